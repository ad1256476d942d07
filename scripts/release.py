"""Make a release: build everything from the commit, then push the image and the chart.

    python -m scripts.release --version 0.1.0 --registry registry.example/platform

Nothing is pushed before everything is built. Built again from the same commit with the same tools, every file and the
image's digest are the same: docs/contributing/releasing.md.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from localfleet.assets import MODULES, default_cache_folder, ensure
from localfleet.cache import Cache
from localfleet.errors import ToolFailedError
from localfleet.progress import Progress
from localfleet.recipes import parse_go_mod
from localfleet.toolchain import ensure_go
from scripts.release_bases import FILE as BASES
from scripts.release_bases import Base, find_unresolved, read_bases
from scripts.release_chart import name_image, pack_chart
from scripts.release_tools import (
    ROOT,
    Registry,
    ReleaseError,
    capture,
    exit_code,
    fetch_manifest,
    parse_registry,
    require_programs,
)
from scripts.release_versions import find_version_problems

NAME = "fipop"
CHARTS = "charts"
"""The path of charts in the registry: an image and a chart cannot share a repository and a tag."""
RECORD = "release.json"
CHECKSUMS = "SHA256SUMS"
_ENVIRONMENT: Mapping[str, str] = {"TZ": "UTC", "LC_ALL": "C.UTF-8"}
"""What every tool is run with, so that times and orders do not depend on the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What is released."""

    revision: str
    epoch: int
    """When it was committed: the time of everything that is built from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One release to be made, and the tools for it."""

    version: str
    registry: Registry
    commit: Commit
    bases: tuple[Base, ...]
    helm: Path
    go: Path
    sbom_python: Path
    """The Python of the environment that has cyclonedx-bom."""
    source: Path
    """The files of the commit."""
    target: Path
    """The folder for the files of the release."""
    progress: Progress

    @property
    def image(self) -> str:
        """The name of the image, without a tag."""
        return f"{self.registry.name}/{NAME}"

    @property
    def local_image(self) -> str:
        """The name of the built image on this machine."""
        return f"localhost/{NAME}-release:{self.version}"

    def run(self, *argv: str, environment: Mapping[str, str] = _ENVIRONMENT) -> None:
        """Run a tool as part of the present step, in the folder of the source."""
        self.progress.run(argv, folder=self.source, environment=environment)


def git(*arguments: str) -> str:
    """Return what git answers about this checkout.

    Raises: ToolFailedError
    """
    return capture(("git", *arguments)).decode()


def find_tree_problems(version: str, status: str, revision: str, tagged: str | None) -> list[str]:
    """Return why this checkout cannot be released, by `git status --porcelain` and the commit of the version's tag."""
    changed = [line[3:] for line in status.splitlines()]
    problems = []
    if changed:
        others = f" and {len(changed) - 1} more" if changed[1:] else ""
        problems.append(f"The tree has changes that are not committed: {changed[0]}{others}.")
    if tagged not in (None, revision):
        problems.append(f"The tag v{version} names the commit {tagged}, not the one checked out, {revision}.")
    return problems


def check(version: str, bases: Sequence[Base]) -> Commit:
    """Return the commit to release if nothing speaks against it.

    Raises: ReleaseError, with all reasons
    """
    try:
        revision = git("rev-parse", "HEAD").strip()
    except ToolFailedError as error:
        raise ReleaseError("A release is made from a clone with git; this folder is none.") from error
    tagged: str | None = None
    with suppress(ToolFailedError):
        tagged = git("rev-parse", "--quiet", "--verify", f"refs/tags/v{version}^{{commit}}").strip()
    texts = {
        name: (ROOT / name).read_text("utf-8") for name in ("pyproject.toml", "Chart.yaml", "CHANGELOG.md")
    }
    problems = [
        *find_version_problems(
            version,
            pyproject=texts["pyproject.toml"],
            chart=texts["Chart.yaml"],
            changelog=texts["CHANGELOG.md"],
        ),
        *find_tree_problems(version, git("status", "--porcelain"), revision, tagged),
        *find_unresolved(bases),
    ]
    if problems:
        raise ReleaseError("\n".join(problems))
    return Commit(revision=revision, epoch=int(git("log", "-1", "--format=%ct")))


def check_machine() -> None:
    """Raise ReleaseError if this machine cannot make a release."""
    require_programs("buildah", "skopeo", "git")
    if os.geteuid() != 0:
        raise ReleaseError(
            "A release mounts the image to list its packages: run it as root, or in `buildah unshare`."
        )


def find_or_install_go(progress: Progress) -> Path:
    """Return a go that reads the modules of helm: not older than the one that builds it.

    Raises: AssetError, ToolFailedError
    """
    module = parse_go_mod((MODULES / "helm" / "go.mod").read_text(encoding="utf-8"))
    return ensure_go(
        module.lowest_go,
        cache=Cache(default_cache_folder(os.environ)),
        requirements=MODULES / "toolchain.txt",
        progress=progress,
        search_path=os.environ.get("PATH"),
    )


def export(commit: Commit, folder: Path) -> None:
    """Write the files of the commit into `folder`, with the same rights whatever the umask is."""
    packed = capture(("git", "-c", "tar.umask=0022", "archive", commit.revision))
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="tar")


def build_wheel(release: Release) -> None:
    """Build the wheel from a copy of the source: a build leaves folders behind."""
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(release.source, Path(folder, "source"))
        release.run(
            *(sys.executable, "-m", "build", "--wheel", "--no-isolation"),
            *("--outdir", str(release.target), str(copy)),
            environment={**_ENVIRONMENT, "SOURCE_DATE_EPOCH": str(release.commit.epoch)},
        )


def build_image(release: Release) -> None:
    """Build the image from the pinned bases."""
    for base in release.bases:
        release.run("buildah", "pull", "--quiet", *base.registry.tls_options, base.pinned)
    labels = {
        "org.opencontainers.image.title": NAME,
        "org.opencontainers.image.version": release.version,
        "org.opencontainers.image.revision": release.commit.revision,
    }
    release.run(
        # One isolation everywhere, and no layer of an earlier build: neither may show in the digest.
        *("buildah", "build", "--isolation", "chroot", "--no-cache", "--pull-never"),
        *("--format", "oci", "--timestamp", str(release.commit.epoch)),
        *(part for each in release.bases for part in ("--build-arg", f"{each.argument}={each.pinned}")),
        *(part for name, value in labels.items() for part in ("--label", f"{name}={value}")),
        *("--tag", release.local_image, "--file", "Dockerfile", "."),
    )


def export_image(release: Release, layout: Path) -> str:
    """Write the image into the folder `layout` as it is going to be pushed; return its digest."""
    digest = layout.with_suffix(".digest")
    destination = f"oci:{layout}:{release.version}"
    release.run("buildah", "push", "--quiet", "--digestfile", str(digest), release.local_image, destination)
    return digest.read_text(encoding="utf-8").strip()


@contextmanager
def mounted(release: Release) -> Iterator[Path]:
    """The file system of the built image."""
    container = capture(("buildah", "from", "--pull-never", release.local_image)).decode().strip()
    try:
        yield Path(capture(("buildah", "mount", container)).decode().strip())
    finally:
        capture(("buildah", "rm", container))


def write_sbom(release: Release, digest: str) -> None:
    """Write the bill of materials of the image."""
    file = release.target / f"{NAME}-{release.version}.cdx.json"
    with mounted(release) as root:
        release.run(
            *(
                str(release.sbom_python),
                "-m",
                "scripts.release_sbom",
                "--root",
                str(root),
                "--go",
                str(release.go),
            ),
            *("--name", release.image, "--version", release.version, "--digest", digest),
            *("--epoch", str(release.commit.epoch), str(file)),
        )


def write_chart(release: Release, digest: str) -> Path:
    """Pack the chart, and render the manifest from it; return the packed chart."""
    values = release.source / "values.yaml"
    text = name_image(values.read_text(encoding="utf-8"), repository=release.image, digest=digest)
    values.write_text(text, encoding="utf-8")
    manifest = release.target / f"{NAME}.yaml"
    release.run("scripts/manifest.sh", str(release.helm), str(manifest))
    return pack_chart(release.helm, release.source, release.target, epoch=release.commit.epoch)


def write_record(release: Release, digest: str) -> None:
    """Write what was built from what, by which tools."""
    builder = capture(("buildah", "--version")).decode().strip()
    record = {
        "version": release.version,
        "revision": release.commit.revision,
        "sourceDateEpoch": release.commit.epoch,
        "image": f"{release.image}:{release.version}@{digest}",
        "chart": f"oci://{release.registry.name}/{CHARTS}/{NAME}",
        "bases": {each.argument: f"{each.image}@{each.digest}" for each in release.bases},
        "builder": builder,
    }
    (release.target / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def write_checksums(folder: Path) -> None:
    """Write the SHA-256 of every file of the release, as sha256sum reads it."""
    files = sorted(each for each in folder.iterdir() if each.name != CHECKSUMS)
    lines = (f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in files)
    (folder / CHECKSUMS).write_text("".join(lines), encoding="utf-8")


def refuse_to_replace(registry: Registry, version: str, *, digest: str, chart: bytes) -> None:
    """Raise ReleaseError if the registry has the version with another content: others may have pulled it."""
    image = f"{registry.name}/{NAME}:{version}"
    there = _manifest_of(image, registry)
    if there is not None and (found := _sha256(there)) != digest:
        raise ReleaseError(
            f"{image} exists with the digest {found}, and this build has {digest}: raise the version."
        )
    reference = f"{registry.name}/{CHARTS}/{NAME}:{version}"
    there = _manifest_of(reference, registry)
    layers = json.loads(there)["layers"] if there is not None else ()
    if layers and layers[0]["digest"] != _sha256(chart):
        raise ReleaseError(f"{reference} exists with another content: raise the version.")


def _manifest_of(image: str, registry: Registry) -> bytes | None:
    try:
        return fetch_manifest(image, registry)
    except ToolFailedError:
        # Not there, or not to be had: registries answer alike. The push reports what is wrong with the registry.
        return None


def _sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def push(release: Release, layout: Path, chart: Path) -> None:
    """Push the image, then the chart that names it."""
    options = (
        "--preserve-digests",
        *(f"--dest{each.removeprefix('-')}" for each in release.registry.tls_options),
    )
    release.run(
        *("skopeo", "copy", "--quiet", *options),
        *(f"oci:{layout}:{release.version}", f"docker://{release.image}:{release.version}"),
    )
    plain = ("--plain-http",) if release.registry.is_loopback else ()
    release.run(str(release.helm), "push", str(chart), f"oci://{release.registry.name}/{CHARTS}", *plain)


def make(release: Release, scratch: Path) -> str:
    """Build everything, then push; return the digest of the image.

    Raises: ReleaseError, ToolFailedError
    """
    progress, layout = release.progress, scratch / "image"
    progress.total += 6
    with progress.step("wheel"):
        build_wheel(release)
    with progress.step("image"):
        build_image(release)
    with progress.step("digest of the image"):
        digest = export_image(release, layout)
    with progress.step("bill of materials"):
        write_sbom(release, digest)
    with progress.step("chart, manifest and checksums"):
        chart = write_chart(release, digest)
        write_record(release, digest)
        write_checksums(release.target)
    with progress.step(f"push to {release.registry.name}"):
        refuse_to_replace(release.registry, release.version, digest=digest, chart=chart.read_bytes())
        push(release, layout, chart)
    return digest


def run(chosen: argparse.Namespace) -> None:
    """Check, build and push.

    Raises: ReleaseError, ToolFailedError
    """
    registry = parse_registry(chosen.registry)
    bases = read_bases(chosen.bases)
    commit = check(chosen.version, bases)
    check_machine()
    progress = Progress()
    target: Path = chosen.target.resolve() / chosen.version
    with tempfile.TemporaryDirectory(prefix="fipop-release-") as folder:
        scratch = Path(folder)
        source = scratch / "source"
        export(commit, source)
        # What an earlier attempt left must not get into the checksums.
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        release = Release(
            version=chosen.version,
            registry=registry,
            commit=commit,
            bases=bases,
            helm=ensure("helm"),
            go=find_or_install_go(progress),
            sbom_python=chosen.sbom_python.absolute(),
            source=source,
            target=target,
            progress=progress,
        )
        digest = make(release, scratch)
    print(f"image: {release.image}:{release.version}@{digest}")
    print(f"chart: oci://{registry.name}/{CHARTS}/{NAME} --version {release.version}")
    print(f"files: {target}")


def main(arguments: Sequence[str]) -> int:
    """Make the release; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.release", description="Build and push a release."
    )
    parser.add_argument("--version", required=True, help="as in pyproject.toml, Chart.yaml and CHANGELOG.md")
    parser.add_argument(
        "--registry", required=True, help="host[:port][/path]; one on loopback is asked over HTTP"
    )
    parser.add_argument("--bases", type=Path, default=BASES, help="the file of base images (%(default)s)")
    parser.add_argument("--target", type=Path, default=ROOT / "out" / "release", help="%(default)s")
    parser.add_argument("--sbom-python", type=Path, default=ROOT / ".venv" / "sbom" / "bin" / "python")
    chosen = parser.parse_args(arguments)
    # The time of a release is its commit's. Newer versions of buildah read this one, too.
    os.environ.pop("SOURCE_DATE_EPOCH", None)
    # What a build creates has rights by the umask.
    os.umask(0o022)
    return exit_code("release", lambda: run(chosen))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
