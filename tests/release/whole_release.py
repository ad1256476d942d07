"""Two releases into a real registry, and what a user does with them: `make test-release`.

It builds the image twice and needs root, buildah, skopeo and debootstrap; so its name is none that pytest collects
by itself.
"""

import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from localfleet.assets import ensure
from localfleet.controlplane import ControlPlane
from localfleet.fleet import LocalFleet
from localfleet.helm import Helm
from localfleet.registry import OciRegistry
from scripts.release import refuse_to_replace
from scripts.release_bases import Base, parse_bases, render_bases
from scripts.release_tools import ReleaseError, parse_registry
from tests.release.local_bases import push_bases, run

ROOT = Path(__file__).parents[2]
VENV = Path(sys.executable).parents[1]
VERSION = "0.1.0"
DATE = "2026-01-02"
NAMESPACE = "kube-fip"
PROGRAM = "/opt/fipop/bin/python"


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """What is to be looked at: the registry as a release is told of it, and the files of both releases."""

    registry: str
    first: Path
    second: Path

    @property
    def record(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.first / "release.json").read_text())
        return found

    @property
    def image(self) -> str:
        return f"{self.registry}/fipop@{self.digest}"

    @property
    def digest(self) -> str:
        digest: str = self.record["image"].rpartition("@")[2]
        return digest


@pytest.fixture(scope="session")
def environment() -> Iterator[Mapping[str, str]]:
    """A store of images of its own, and an author for git."""
    for program in ("buildah", "skopeo", "debootstrap", "go", "git", "make"):
        assert shutil.which(program), f"{program} must be installed"
    assert os.geteuid() == 0, "run it as root: it mounts images"
    # Not in a folder of pytest, which removes what is older: file systems are mounted there.
    folder = Path(tempfile.mkdtemp(prefix="fipop-images-"))
    config = folder / "storage.conf"
    graph = folder / "graph"
    config.write_text(f'[storage]\ndriver = "overlay"\ngraphroot = "{graph}"\nrunroot = "{folder}/run"\n')
    author = {
        f"GIT_{who}_{what}": what.lower() for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    own = {"CONTAINERS_STORAGE_CONF": str(config), "BUILDAH_ISOLATION": "chroot"}
    environment = {**os.environ, **author, **own}
    yield environment
    run("buildah", "rm", "--all", environment=environment)
    # buildah may leave this mounted, if a build was interrupted.
    subprocess.run(["umount", "--quiet", "--recursive", graph / "overlay"], check=False)
    shutil.rmtree(folder)


@pytest_asyncio.fixture(scope="session")
async def fleet() -> AsyncIterator[LocalFleet]:
    async with LocalFleet() as fleet:
        yield fleet


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(program=ensure("helm"), home=tmp_path_factory.mktemp("helm"))


@pytest_asyncio.fixture(scope="session")
async def registry(fleet: LocalFleet, helm: Helm) -> AsyncIterator[OciRegistry]:
    async with OciRegistry(
        program=ensure("registry"),
        folder=fleet.folder / "registry",
        ports=fleet.ports,
        authority=None,
        helm=helm,
    ) as registry:
        yield registry


def make(
    folder: Path, *arguments: str, environment: Mapping[str, str], umask: int = 0o022
) -> subprocess.CompletedProcess[str]:
    """Run make in a clone, with the environments of this checkout."""
    ready = (f"--old-file={VENV}/.ready", f"--old-file={VENV}/sbom/.ready")
    return subprocess.run(
        ["make", *ready, f"VENV={VENV}", *arguments],
        cwd=folder,
        env=dict(environment),
        capture_output=True,
        text=True,
        check=False,
        umask=umask,
    )


@pytest.fixture(scope="session")
def clone(
    tmp_path_factory: pytest.TempPathFactory, registry: OciRegistry, environment: Mapping[str, str]
) -> Path:
    """A clone that is ready to be released: the bases are resolved, the changelog has a date."""
    folder = tmp_path_factory.mktemp("first") / "fipop"
    run("git", "clone", "--quiet", ROOT, folder, environment=environment)
    images = push_bases(registry.address, environment=environment)
    file = folder / "bases.toml"
    file.write_text(
        render_bases(Base(argument=each, image=image, digest="") for each, image in images.items())
    )
    done = make(folder, "update-bases", environment=environment)
    assert done.returncode == 0, done.stderr
    changelog = folder / "CHANGELOG.md"
    text, count = re.subn(rf"(?m)^## {VERSION} .*$", f"## {VERSION} ({DATE})", changelog.read_text())
    assert count == 1
    changelog.write_text(text)
    run("git", "-C", folder, "commit", "--quiet", "--all", "--message=Release", environment=environment)
    return folder


def release(folder: Path, registry: str, environment: Mapping[str, str], *, umask: int = 0o022) -> Path:
    arguments = ("release", f"VERSION={VERSION}", f"REGISTRY={registry}")
    done = make(folder, *arguments, environment=environment, umask=umask)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "out" / "release" / VERSION


@pytest.fixture(scope="session")
def released(
    clone: Path,
    registry: OciRegistry,
    environment: Mapping[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Released:
    """Released twice: the second time from another clone in another folder, by a user with other settings."""
    name = f"localhost:{registry.address.rpartition(':')[2]}/platform"
    second = tmp_path_factory.mktemp("another-place") / "another-name"
    run("git", "clone", "--quiet", clone, second, environment=environment)
    other = {**environment, "TZ": "Asia/Tokyo", "LC_ALL": "C", "SOURCE_DATE_EPOCH": "1"}
    return Released(
        registry=name,
        first=release(clone, name, environment),
        second=release(second, name, other, umask=0o077),
    )


def fetch(registry: OciRegistry, path: str) -> bytes:
    """What the registry answers; without any tool of the release."""
    accept = "application/vnd.oci.image.manifest.v1+json"
    request = urllib.request.Request(f"http://{registry.address}/v2/{path}", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=30) as answer:
        content: bytes = answer.read()
        return content


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_the_bases_have_the_digests_of_the_registry(clone: Path, registry: OciRegistry) -> None:
    bases = parse_bases((clone / "bases.toml").read_text())
    assert {each.argument for each in bases} == {"GO_IMAGE", "PYTHON_IMAGE", "RUNTIME_IMAGE"}
    for base in bases:
        repository, tag = base.image.partition("/")[2].split(":")
        assert base.digest == f"sha256:{sha256(fetch(registry, f'{repository}/manifests/{tag}'))}"


def test_a_base_that_is_gone_leaves_the_file_as_it_is(
    clone: Path, environment: Mapping[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "bases.toml"
    text = (clone / "bases.toml").read_text().replace("go:bookworm", "go:gone")
    file.write_text(text)
    done = make(clone, "update-bases", f"BASES={file}", environment=environment)
    assert done.returncode != 0
    assert "Could not resolve GO_IMAGE" in done.stderr
    assert "Traceback" not in done.stderr
    assert file.read_text() == text


def test_two_releases_have_the_same_files_and_the_same_digest(released: Released) -> None:
    names = {path.name for path in released.first.iterdir()}
    assert names == {
        *("SHA256SUMS", "release.json", "fipop.yaml"),
        *(f"fipop-{VERSION}.tgz", f"fipop-{VERSION}.cdx.json", f"fipop-{VERSION}-py3-none-any.whl"),
    }
    different = {
        name
        for name in names
        if (released.first / name).read_bytes() != (released.second / name).read_bytes()
    }
    assert different == set()


def test_the_checksums_are_those_of_the_files(released: Released) -> None:
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"],
        cwd=released.first,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert len(done.stdout.splitlines()) == len(list(released.first.iterdir())) - 1


def test_the_registry_has_the_image_with_the_digest_of_the_release(
    released: Released, registry: OciRegistry
) -> None:
    manifest = fetch(registry, f"platform/fipop/manifests/{VERSION}")
    assert f"sha256:{sha256(manifest)}" == released.digest
    for blob in (json.loads(manifest)["config"], *json.loads(manifest)["layers"]):
        content = fetch(registry, f"platform/fipop/blobs/{blob['digest']}")
        assert f"sha256:{sha256(content)}" == blob["digest"]


def test_a_version_in_the_registry_is_not_replaced(released: Released) -> None:
    chart = (released.first / f"fipop-{VERSION}.tgz").read_bytes()
    place = parse_registry(released.registry)
    refuse_to_replace(place, VERSION, digest=released.digest, chart=chart)
    refuse_to_replace(place, "0.1.1", digest="sha256:other", chart=b"other")
    with pytest.raises(ReleaseError, match=f"exists with the digest {released.digest}"):
        refuse_to_replace(place, VERSION, digest=f"sha256:{'0' * 64}", chart=chart)
    with pytest.raises(ReleaseError, match="exists with another content"):
        refuse_to_replace(place, VERSION, digest=released.digest, chart=chart + b" ")


@asynccontextmanager
async def management(fleet: LocalFleet, name: str) -> AsyncIterator[ControlPlane]:
    """A management cluster with the namespaces that Rancher makes."""
    plane = await fleet.management(name)
    for namespace in ("fleet-default", "cattle-global-data"):
        await plane.create_namespace(namespace)
    yield plane
    await fleet.remove(plane)


async def image_of_the_pods(plane: ControlPlane) -> str:
    deployment = await plane.client.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/fipop")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    image: str = container["image"]
    return image


async def test_helm_installs_from_the_registry_and_the_pod_names_the_image_by_its_digest(
    released: Released, helm: Helm, fleet: LocalFleet
) -> None:
    chart = f"oci://{released.registry}/charts/fipop"
    async with management(fleet, "by-helm") as plane:
        await helm.run(
            *("install", "fipop", chart, "--version", VERSION, "--plain-http", "--create-namespace"),
            *("--namespace", NAMESPACE, "--kubeconfig", plane.admin_kubeconfig),
        )
        assert await image_of_the_pods(plane) == released.image


async def test_the_manifest_installs_the_same(released: Released, fleet: LocalFleet) -> None:
    async with management(fleet, "by-kubectl") as plane:
        await plane.kubectl("apply", "--server-side", "-f", str(released.first / "fipop.yaml"))
        assert await image_of_the_pods(plane) == released.image


@pytest.fixture(scope="session")
def container(released: Released, environment: Mapping[str, str]) -> Iterator[str]:
    """A container of the image, pulled by its digest."""
    run("buildah", "rmi", "--force", f"localhost/fipop-release:{VERSION}", environment=environment)
    name = run("buildah", "from", "--tls-verify=false", released.image, environment=environment)
    yield name
    run("buildah", "rm", name, environment=environment)


def inside(container: str, *argv: str, environment: Mapping[str, str]) -> str:
    return run("buildah", "run", container, "--", *argv, environment=environment)


def test_the_image_has_the_program_of_the_release(container: str, environment: Mapping[str, str]) -> None:
    assert VERSION in inside(container, "fipop", "--version", environment=environment)
    assert inside(container, "helm", "version", "--short", environment=environment).startswith("v3.")


def test_python_uses_the_bytecode_of_the_image(container: str, environment: Mapping[str, str]) -> None:
    """All files have the time of the commit: bytecode that compares times would be compiled again at each start."""
    root = run("buildah", "mount", container, environment=environment)
    files = list(Path(root, "opt/fipop/lib").rglob("*.pyc"))
    assert files
    # PEP 552: the lowest bit means by hash, the next one that the source is compared.
    assert {file.read_bytes()[4:8] for file in files} == {b"\x01\x00\x00\x00"}


_DISTRIBUTIONS = """
import importlib.metadata, json
print(json.dumps([[each.metadata["Name"], each.version] for each in importlib.metadata.distributions()]))
"""


def test_the_bill_names_every_package_of_the_image_and_no_other(
    released: Released, container: str, environment: Mapping[str, str]
) -> None:
    """Compared with what the image's own dpkg and Python report, and with what go reads of its helm."""
    bill = json.loads((released.first / f"fipop-{VERSION}.cdx.json").read_text())
    assert bill["metadata"]["component"]["purl"].partition("?")[0] == f"pkg:oci/fipop@{released.digest}"
    named: dict[str, set[tuple[str, str]]] = {}
    for each in bill["components"]:
        # fipop itself is published nowhere as a package of Python: it has no purl.
        kind = each.get("purl", "pkg:pypi/").removeprefix("pkg:").partition("/")[0]
        named.setdefault(kind, set()).add((each["name"], each["version"]))
    shown = inside(
        container, "dpkg-query", "--show", "--showformat=${Package} ${Version}\\n", environment=environment
    )
    assert named.pop("deb") == {(line.split()[0], line.split()[1]) for line in shown.splitlines()}
    found = json.loads(inside(container, PROGRAM, "-c", _DISTRIBUTIONS, environment=environment))
    assert ("fipop", VERSION) in named["pypi"]
    assert named.pop("pypi") == {(name, version) for name, version in found}
    root = run("buildah", "mount", container, environment=environment)
    report = run("go", "version", "-m", f"{root}/usr/local/bin/helm", environment=environment)
    lines = [line.split() for line in report.splitlines()]
    assert not any(line[0] == "=>" for line in lines), "a module is replaced: this test has to learn it"
    modules = {(line[1], line[2]) for line in lines if line[0] in ("dep", "mod") and line[2].startswith("v")}
    stdlib = ("stdlib", f"v{lines[0][1].removeprefix('go')}")
    assert named.pop("golang") == {*modules, stdlib}
    assert len(modules) > 50
    python = inside(
        container, PROGRAM, "-c", "import platform; print(platform.python_version())", environment=environment
    )
    assert named.pop("generic") == {("python", python)}
    assert named == {}


def test_the_wheel_is_of_the_version(released: Released) -> None:
    wheel = released.first / f"fipop-{VERSION}-py3-none-any.whl"
    (found,) = importlib.metadata.distributions(path=[str(wheel)])
    assert (found.metadata["Name"], found.version) == ("fipop", VERSION)


def test_the_record_names_the_commit_and_the_bases(
    released: Released, clone: Path, environment: Mapping[str, str]
) -> None:
    head = run("git", "-C", clone, "rev-parse", "HEAD", environment=environment)
    assert released.record["revision"] == head
    bases = {
        each.argument: f"{each.image}@{each.digest}"
        for each in parse_bases((clone / "bases.toml").read_text())
    }
    assert released.record["bases"] == bases
    assert yaml.safe_load((clone / "values.yaml").read_text())["image"]["digest"] == ""
