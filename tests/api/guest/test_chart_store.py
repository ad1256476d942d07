"""Charts by real helm: from repositories and registries, open and closed, and from archives that are mounted."""

import asyncio
import base64
import hashlib
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from aiohttp import web

from fipop.helm.chart_store import Access, ChartStore
from fipop.helm.charts import Chart, Role
from fipop.helm.command import Helm, empty_folder
from fipop.helm.errors import ChartError
from fipop.helm.process import LocalHelm, find_helm
from fipop.kube.guests import GuestServers
from localfleet.assets import ensure
from localfleet.certificates import CertificateAuthority, build_authority, build_server_tls
from localfleet.chartrepo import ChartRepository
from localfleet.fleet import LocalFleet
from localfleet.helm import Helm as HelmProgram
from localfleet.registry import CREDENTIAL, OciRegistry
from tests.harness.answering_client import AnsweringClient

pytestmark = pytest.mark.xdist_group("guest-charts")

USER, PASSWORD = CREDENTIAL
LOGIN = {"username": USER, "password": PASSWORD}


def order(url: str, version: str = "", sha256: str = "") -> Chart:
    return Chart(role=Role.KUBE_VIP, url=url, version=version, sha256=sha256)


@dataclass(slots=True)
class Sources:
    """A store of charts, and what the Secret and the ConfigMap hold that it reads; None: there is none."""

    program: Path
    folder: Path
    secret: dict[str, str] | None = None
    authority: str | None = None
    store: ChartStore = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin with another process: a source that failed rests for the one before."""

        async def get(resource: Any, name: str, *, namespace: str) -> Any:
            assert (name, namespace) == ("charts", "kube-fip")
            if resource.kind == "ConfigMap":
                return {"data": {"ca.crt": self.authority}} if self.authority is not None else None
            if self.secret is None:
                return None
            encoded = {key: base64.b64encode(text.encode()).decode() for key, text in self.secret.items()}
            return {"data": encoded}

        empty_folder(self.folder)
        helm = Helm(process=LocalHelm(find_helm(str(self.program)), GuestServers()), folder=self.folder)
        self.store = ChartStore(helm=helm, client=AnsweringClient(get=get), namespace="kube-fip")  # type: ignore[arg-type]

    async def fetch(self, wanted: Chart, host: str = "") -> Chart:
        access = Access(
            host=host or urlsplit(wanted.url).netloc,
            secret="charts" if self.secret is not None else "",
            authority="charts" if self.authority is not None else "",
        )
        return await self.store.resolve(wanted, access)

    async def condition(self, wanted: Chart, host: str = "") -> str:
        with pytest.raises(ChartError) as caught:
            await self.fetch(wanted, host)
        assert PASSWORD not in str(caught.value)
        return caught.value.condition


@pytest.fixture
def sources(helm_program: Path, tmp_path: Path) -> Sources:
    return Sources(helm_program, tmp_path / "charts")


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return build_authority("private", datetime.now(UTC))


# Open


@pytest.mark.parametrize(("asked", "found"), [("", "0.11.0"), ("0.9.9", "0.9.9")])
async def test_a_repository_returns_the_version_that_is_wanted_or_the_newest(
    repository: ChartRepository, sources: Sources, archives: dict[str, Path], asked: str, found: str
) -> None:
    chart = await sources.fetch(order(repository.url, asked))
    content = archives[f"kube-vip-{found}"].read_bytes()
    assert (chart.version, chart.sha256) == (found, hashlib.sha256(content).hexdigest())
    path = await sources.store.path(chart, Access(host=""))
    assert path.read_bytes() == content
    assert [each.name for each in sources.folder.iterdir()] == [path.name], "nothing else is left"


async def test_many_that_want_a_chart_at_once_cause_one_fetch(
    repository: ChartRepository, sources: Sources
) -> None:
    chart = await sources.fetch(order(repository.url))
    await asyncio.gather(*(sources.store.path(chart, Access(host="")) for _ in range(20)))
    assert repository.requests["/kube-vip-0.11.0.tgz"] == 1


async def test_archives_that_nobody_wants_any_more_are_deleted(
    repository: ChartRepository, sources: Sources
) -> None:
    old, new = [await sources.fetch(order(repository.url, each)) for each in ("0.9.9", "0.11.0")]
    sources.store.keep_only([new])
    assert [each.stem for each in sources.folder.iterdir()] == [new.sha256]
    assert await sources.store.path(replace(old), Access(host=""))


@pytest.mark.parametrize("version", ["7.7.7", "0.11.0"])
async def test_what_a_source_does_not_have_is_reported(
    repository: ChartRepository, sources: Sources, version: str
) -> None:
    repository.unavailable = version == "0.11.0"
    assert await sources.condition(order(repository.url, version)) == "ReleaseFailed"


# Closed


@pytest_asyncio.fixture(scope="module", params=["repository", "registry"])
async def closed(
    request: pytest.FixtureRequest,
    fleet: LocalFleet,
    archives: dict[str, Path],
    helm_program: Path,
    authority: CertificateAuthority,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[str]:
    """The URL of a source that asks for a password, behind an authority of its own."""
    if request.param == "repository":
        async with ChartRepository(authority=authority, credential=CREDENTIAL) as repository:
            for archive in archives.values():
                repository.publish(archive)
            yield repository.url
        return
    folder = tmp_path_factory.mktemp("closed-registry")
    async with OciRegistry(
        program=ensure("registry"),
        folder=folder,
        ports=fleet.ports,
        authority=authority,
        helm=HelmProgram(program=helm_program, home=folder / "home"),
        is_closed=True,
    ) as registry:
        for archive in archives.values():
            await registry.push(archive)
        yield registry.reference("kube-vip")


def pull_secret(host: str, **entry: str) -> dict[str, str]:
    return {".dockerconfigjson": json.dumps({"auths": {host: entry}})}


@pytest.mark.parametrize("kind", ["username and password", "pull secret", "pull secret with auth"])
@pytest.mark.parametrize("version", ["", "0.9.9"])
async def test_a_source_that_asks_for_a_password_gets_it(
    sources: Sources, closed: str, authority: CertificateAuthority, kind: str, version: str
) -> None:
    host, pair = urlsplit(closed).netloc, base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    sources.secret = {
        "username and password": LOGIN,
        "pull secret": pull_secret(host, **LOGIN),
        "pull secret with auth": pull_secret(host, auth=pair),
    }[kind]
    sources.authority = f"# Autorité de l'entreprise é\n{authority.pem.decode()}"
    assert (await sources.fetch(order(closed, version))).version == (version or "0.11.0")


WRONG: dict[str, tuple[dict[str, str] | None, str | None, str]] = {
    "password": ({**LOGIN, "password": "wr0ng"}, "", "ChartUnauthorized"),
    "no credential": (None, "", "ChartUnauthorized"),
    "no authority": (LOGIN, None, "ChartSourceUntrusted"),
    "another authority": (
        LOGIN,
        build_authority("another", datetime.now(UTC)).pem.decode(),
        "ChartSourceUntrusted",
    ),
    "a Secret of another shape": ({"username": USER}, "", "ChartAccessMissing"),
    "no certificate": (LOGIN, "nothing", "ChartAccessMissing"),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_each_wrong_access_has_its_own_condition_and_a_right_one_heals_it(
    sources: Sources, closed: str, authority: CertificateAuthority, wrong: str
) -> None:
    secret, pem, condition = WRONG[wrong]
    sources.secret, sources.authority = secret, authority.pem.decode() if pem == "" else pem
    assert await sources.condition(order(closed)) == condition
    sources.secret, sources.authority = LOGIN, authority.pem.decode()
    assert await sources.condition(order(closed)) == condition, "a source that failed rests"
    sources.restart()
    assert (await sources.fetch(order(closed))).role is Role.KUBE_VIP


async def test_an_archive_of_another_digest_is_refused(
    sources: Sources, closed: str, authority: CertificateAuthority, archives: dict[str, Path]
) -> None:
    sources.secret, sources.authority = LOGIN, authority.pem.decode()
    right = hashlib.sha256(archives["kube-vip-0.11.0"].read_bytes()).hexdigest()
    assert (await sources.fetch(order(closed, sha256=right))).sha256 == right
    assert await sources.condition(order(closed, sha256="0" * 64)) == "ChartDigestMismatch"


async def test_no_password_is_seen_while_helm_runs_or_left_when_it_has(
    sources: Sources, closed: str, authority: CertificateAuthority
) -> None:
    """Command lines are what `ps` shows: all processes are watched while charts are fetched."""
    sources.secret, sources.authority = LOGIN, authority.pem.decode()
    seen: set[bytes] = set()

    async def watch() -> None:
        while True:
            seen.update(_command_lines())
            await asyncio.sleep(0.005)

    watching = asyncio.create_task(watch())
    for _ in range(20):  # a short helm can begin and end between two samples
        await sources.fetch(order(closed))
        sources.store.keep_only(())
        files = [each for each in sources.folder.rglob("*") if each.is_file()]
        assert not [each for each in files if PASSWORD.encode() in each.read_bytes()]
        if any(b"pull" in line for line in seen):
            break
    watching.cancel()
    assert any(b"pull" in line for line in seen), "helm was not seen at work"
    assert not any(PASSWORD.encode() in line for line in seen)


def _command_lines() -> set[bytes]:
    found = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                found.add(Path(entry.path, "cmdline").read_bytes())
            except OSError:
                continue
    return found


@dataclass(slots=True)
class Stranger:
    """Another host, over TLS or not; it notes what it is sent."""

    authorizations: set[str] = field(default_factory=set)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.authorizations.add(request.headers.get("Authorization", ""))
        return web.json_response({}, status=404)


@asynccontextmanager
async def serving(stranger: Stranger, authority: CertificateAuthority | None) -> AsyncIterator[str]:
    runner = web.ServerRunner(web.Server(stranger.answer, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    tls = build_server_tls(authority.issue_server(["127.0.0.1"])) if authority is not None else None
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    try:
        yield f"http{'s' if authority else ''}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("kind", ["another host", "over http"])
async def test_the_password_goes_to_one_host_alone_and_not_over_http(
    sources: Sources, authority: CertificateAuthority, kind: str
) -> None:
    sources.secret, sources.authority = LOGIN, authority.pem.decode()
    stranger, is_other = Stranger(), kind == "another host"
    async with serving(stranger, authority if is_other else None) as url:
        await sources.condition(order(url), host="registry.example" if is_other else "")
    assert stranger.authorizations == {""}


# Mounted


MOUNTED: dict[str, tuple[str, str, str, str]] = {
    "no such file": ("missing.tgz", "", "", "ReleaseFailed"),
    "another version": ("chart.tgz", "9.9.9", "", "ReleaseFailed"),
    "another digest": ("chart.tgz", "", "0" * 64, "ChartDigestMismatch"),
    "another chart": ("other.tgz", "", "", "ReleaseFailed"),
    "nonsense": ("nonsense.tgz", "", "", "ReleaseFailed"),
}


async def test_a_mounted_archive_is_copied_and_used(
    sources: Sources, archives: dict[str, Path], tmp_path: Path
) -> None:
    mounted = tmp_path / "kube-vip.tgz"
    shutil.copy(archives["kube-vip-0.9.9"], mounted)
    chart = await sources.fetch(order(f"file://{mounted}"))
    assert chart.version == "0.9.9"
    path = await sources.store.path(chart, Access(host=""))
    assert path != mounted, "helm reads a copy"
    assert mounted.exists()


@pytest.mark.parametrize("case", MOUNTED)
async def test_a_mounted_archive_that_is_not_what_was_meant_is_refused(
    sources: Sources, archives: dict[str, Path], tmp_path: Path, case: str
) -> None:
    name, version, sha256, condition = MOUNTED[case]
    shutil.copy(archives["kube-vip-0.11.0"], tmp_path / "chart.tgz")
    shutil.copy(archives["kube-vip-cloud-provider-0.2.10"], tmp_path / "other.tgz")
    (tmp_path / "nonsense.tgz").write_bytes(b"nonsense")
    assert await sources.condition(order(f"file://{tmp_path / name}", version, sha256)) == condition
