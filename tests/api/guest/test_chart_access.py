"""Charts from sources that ask who we are, behind an authority of their own, and from archives that are mounted."""

import asyncio
import hashlib
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from fipop.guest.errors import ChartError
from fipop.guest.helm.chart_access import ChartAccess, ChartAccessError
from fipop.guest.helm.chart_cache import ChartCache
from fipop.guest.helm.charts import ChartSource
from localfleet.assets import ensure
from localfleet.certificates import CertificateAuthority, build_authority
from localfleet.chartrepo import ChartRepository
from localfleet.fleet import LocalFleet
from localfleet.helm import Helm
from localfleet.registry import CREDENTIAL, OciRegistry
from localfleet.waiting import eventually
from tests.harness.reaching import build_runner

pytestmark = pytest.mark.xdist_group("guest-charts")

USER, PASSWORD = CREDENTIAL


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return build_authority("private", datetime.now(UTC))


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """A source of the kind, and the access that opens it."""

    source: ChartSource
    access: ChartAccess


def build_closed(source: ChartSource, access: ChartAccess) -> Closed:
    hosts = frozenset({source.url.host_port_subcomponent or ""})
    return Closed(source=source, access=replace(access, hosts=hosts))


@pytest_asyncio.fixture(scope="module", params=["repository", "registry"])
async def closed(
    request: pytest.FixtureRequest,
    fleet: LocalFleet,
    archives: dict[str, Path],
    helm_program: Path,
    authority: CertificateAuthority,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Closed]:
    access = ChartAccess(username=USER, password=PASSWORD, authority=authority.pem.decode())
    if request.param == "repository":
        async with ChartRepository(authority=authority, credential=CREDENTIAL) as repository:
            for archive in archives.values():
                repository.publish(archive)
            yield build_closed(ChartSource(name="kube-vip", repo_url=repository.url), access)
        return
    folder = tmp_path_factory.mktemp("closed-registry")
    async with OciRegistry(
        program=ensure("registry"),
        folder=folder,
        ports=fleet.ports,
        authority=authority,
        helm=Helm(program=helm_program, home=folder / "home"),
        is_closed=True,
    ) as registry:
        for archive in archives.values():
            await registry.push(archive)
        source = ChartSource(name="kube-vip", ref=registry.reference("kube-vip"))
        yield build_closed(source, access)


class Sources:
    """A cache whose access a test changes."""

    def __init__(self, program: Path, access: ChartAccess) -> None:
        self.access: ChartAccess | ChartAccessError = access
        self.cache = ChartCache(
            build_runner(str(program), environ={}),
            resolve_seconds=0.0,
            failure_seconds=0.0,
            read_access=self.read,
        )

    async def read(self, _source: ChartSource) -> ChartAccess:
        if isinstance(self.access, ChartAccessError):
            raise self.access
        return self.access

    async def problem(self, source: ChartSource) -> ChartError:
        with pytest.raises(ChartError) as caught:
            await self.cache.get(source)
        return caught.value


@pytest_asyncio.fixture
async def sources(helm_program: Path, closed: Closed) -> AsyncIterator[Sources]:
    sources = Sources(helm_program, closed.access)
    yield sources
    await sources.cache.close()


@pytest.mark.parametrize("version", ["", "0.9.9"])
async def test_who_has_the_credential_and_the_authority_gets_the_chart(
    closed: Closed, sources: Sources, version: str
) -> None:
    chart = await sources.cache.get(replace(closed.source, version=version))
    assert chart.identity.version == (version or "0.11.0")


@pytest.mark.parametrize(
    ("change", "condition"),
    [
        ({"password": "wr0ng"}, "ChartUnauthorized"),
        ({"username": "", "password": ""}, "ChartUnauthorized"),
        ({"authority": ""}, "ChartSourceUntrusted"),
        (
            {"authority": build_authority("another", datetime.now(UTC)).pem.decode()},
            "ChartSourceUntrusted",
        ),
    ],
    ids=["wrong password", "no credential", "no authority", "wrong authority"],
)
async def test_each_wrong_access_has_its_own_condition_and_a_right_one_heals_it(
    closed: Closed, sources: Sources, change: dict[str, Any], condition: str
) -> None:
    sources.access = replace(closed.access, **change)
    error = await sources.problem(closed.source)
    assert error.condition == condition, error
    assert PASSWORD not in str(error)
    sources.access = closed.access
    assert (await sources.cache.get(closed.source)).identity.name == "kube-vip"


async def test_what_is_not_there_is_told_by_its_name(closed: Closed, sources: Sources) -> None:
    sources.access = ChartAccessError("kube-fip/charts")
    error = await sources.problem(closed.source)
    assert error.condition == "ChartAccessMissing"
    assert "kube-fip/charts" in str(error)


async def test_an_archive_of_another_digest_is_refused(
    closed: Closed, sources: Sources, archives: dict[str, Path]
) -> None:
    right = hashlib.sha256(archives["kube-vip-0.11.0"].read_bytes()).hexdigest()
    assert (await sources.cache.get(replace(closed.source, sha256=right))).sha256 == right
    error = await sources.problem(replace(closed.source, sha256="0" * 64))
    assert error.condition == "ChartDigestMismatch"
    assert f"sha256:{right}" in str(error)


async def test_no_credential_is_seen_while_helm_runs_or_left_when_it_has(
    closed: Closed, helm_program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Command lines are what `ps` shows: all processes below this one are watched while charts are fetched."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    seen: set[bytes] = set()

    async def watch() -> None:
        while True:
            seen.update(_command_lines())
            await asyncio.sleep(0.005)

    watching = asyncio.create_task(watch())
    for _ in range(20):
        # A short helm can begin and end between two samples.
        sources = Sources(helm_program, closed.access)
        await sources.cache.get(closed.source)
        assert not await asyncio.to_thread(_files_with, PASSWORD.encode(), tmp_path)
        await sources.cache.close()
        if any(b"pull" in line for line in seen):
            break
    watching.cancel()
    assert any(b"pull" in line for line in seen), "helm was not seen at work"
    assert not any(PASSWORD.encode() in line for line in seen)
    assert PASSWORD not in repr(closed.access)


def _files_with(text: bytes, folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text in path.read_bytes()]


def _command_lines() -> set[bytes]:
    found = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                found.add(Path(entry.path, "cmdline").read_bytes())
            except OSError:
                continue
    return found


# Mounted archives


@pytest_asyncio.fixture
async def cache(helm_program: Path) -> AsyncIterator[ChartCache]:
    cache = ChartCache(build_runner(str(helm_program), environ={}), resolve_seconds=0.0, failure_seconds=0.0)
    yield cache
    await cache.close()


async def test_a_mounted_archive_is_taken_and_taken_anew_when_it_is_another(
    cache: ChartCache, archives: dict[str, Path], tmp_path: Path
) -> None:
    mounted = tmp_path / "kube-vip.tgz"
    shutil.copy(archives["kube-vip-0.9.9"], mounted)
    source = ChartSource(name="kube-vip", ref=f"file://{mounted}")
    first = await cache.get(source)
    assert first.identity.version == "0.9.9"
    assert first.path != mounted, "helm reads a copy"
    shutil.copy(archives["kube-vip-0.11.0"], mounted)

    async def is_taken() -> bool:
        return (await cache.get(source)).identity.version == "0.11.0"

    await eventually(is_taken, what="the other archive")
    assert mounted.exists()


@pytest.mark.parametrize(
    ("name", "version", "sha256", "condition"),
    [
        ("missing.tgz", "", "", "ReleaseFailed"),
        ("chart.tgz", "9.9.9", "", "ReleaseFailed"),
        ("chart.tgz", "", "0" * 64, "ChartDigestMismatch"),
        ("other.tgz", "", "", "ReleaseFailed"),
        ("nonsense.tgz", "", "", "ReleaseFailed"),
    ],
    ids=[
        "missing.tgz---no such file",
        "chart.tgz-9.9.9--another chart or version",
        f"chart.tgz--{'0' * 64}-digest",
        "other.tgz---another chart or version",
        "nonsense.tgz---cannot be read",
    ],
)
async def test_a_mounted_archive_that_is_not_what_was_meant_is_refused(
    cache: ChartCache,
    archives: dict[str, Path],
    tmp_path: Path,
    name: str,
    version: str,
    sha256: str,
    condition: str,
) -> None:
    shutil.copy(archives["kube-vip-0.11.0"], tmp_path / "chart.tgz")
    shutil.copy(archives["kube-vip-cloud-provider-0.2.10"], tmp_path / "other.tgz")
    (tmp_path / "nonsense.tgz").write_bytes(b"nonsense")
    source = ChartSource(name="kube-vip", ref=f"file://{tmp_path / name}", version=version, sha256=sha256)
    with pytest.raises(ChartError) as refused:
        await cache.get(source)
    assert refused.value.condition == condition
