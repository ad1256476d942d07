"""Charts from a repository over HTTP and from an OCI registry with TLS, fetched once for all guests."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio

from fipop.guest.errors import ChartError
from fipop.guest.helm.chart_cache import ChartCache
from fipop.guest.helm.charts import ChartSource, Role
from fipop.guest.helm.runner import HelmRunner
from localfleet.assets import ensure
from localfleet.certificates import build_authority
from localfleet.chartrepo import ChartRepository
from localfleet.controlplane import ControlPlane
from localfleet.fleet import LocalFleet
from localfleet.helm import Helm
from localfleet.proxy import RancherProxy
from localfleet.registry import OciRegistry
from localfleet.waiting import eventually
from tests.api.guest.guest_bench import open_bench, release_of, settings_with
from tests.harness.reaching import build_runner

pytestmark = pytest.mark.xdist_group("guest-charts")


@pytest.fixture
def runner(helm_program: Path) -> HelmRunner:
    return build_runner(str(helm_program))


@pytest_asyncio.fixture
async def cache(runner: HelmRunner) -> AsyncIterator[ChartCache]:
    cache = ChartCache(runner, resolve_seconds=0.0, failure_seconds=0.0)
    yield cache
    await cache.close()


@pytest_asyncio.fixture(scope="session")
async def registry(
    fleet: LocalFleet, archives: dict[str, Path], helm_program: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[OciRegistry]:
    folder = tmp_path_factory.mktemp("registry")
    async with OciRegistry(
        program=ensure("registry"),
        folder=folder,
        ports=fleet.ports,
        authority=build_authority("registry", datetime.now(UTC)),
        helm=Helm(program=helm_program, home=folder / "home"),
    ) as registry:
        for archive in archives.values():
            await registry.push(archive)
        yield registry


@pytest.fixture
def trusting_runner(helm_program: Path, registry: OciRegistry) -> HelmRunner:
    return build_runner(str(helm_program), environ={"SSL_CERT_FILE": str(registry.ca_file)})


@pytest.mark.parametrize(("asked", "given"), [("", "0.11.0"), ("0.9.9", "0.9.9"), ("v0.9.9", "0.9.9")])
async def test_a_repository_gives_the_version_asked_for_or_the_newest(
    repository: ChartRepository, cache: ChartCache, asked: str, given: str
) -> None:
    chart = await cache.get(ChartSource(name="kube-vip", repo_url=repository.url, version=asked))
    assert (chart.identity.name, chart.identity.version) == ("kube-vip", given)


@pytest.mark.parametrize(("asked", "given"), [("", "0.11.0"), ("0.9.9", "0.9.9")])
async def test_a_registry_gives_the_version_asked_for_or_the_newest(
    registry: OciRegistry, trusting_runner: HelmRunner, asked: str, given: str
) -> None:
    cache = ChartCache(trusting_runner)
    source = ChartSource(name="kube-vip", ref=registry.reference("kube-vip"), version=asked)
    chart = await cache.get(source)
    assert (chart.identity.name, chart.identity.version) == ("kube-vip", given)
    await cache.close()


async def test_a_chart_is_the_same_wherever_it_came_from(
    repository: ChartRepository, registry: OciRegistry, trusting_runner: HelmRunner
) -> None:
    cache = ChartCache(trusting_runner)
    by_http = await cache.get(ChartSource(name="kube-vip", repo_url=repository.url))
    by_oci = await cache.get(ChartSource(name="kube-vip", ref=registry.reference("kube-vip")))
    assert by_http.identity == by_oci.identity
    await cache.close()


async def test_both_releases_come_from_a_registry(
    plane: ControlPlane,
    proxy: RancherProxy,
    registry: OciRegistry,
    helm_program: Path,
    guest_id: str,
    bench: object,  # it sweeps the guest
) -> None:
    settings = settings_with(
        kubevipChartRef=registry.reference("kube-vip"),
        kubevipChartVersion="0.9.9",
        kubevipCloudProviderChartRef=registry.reference("kube-vip-cloud-provider"),
    )
    environ = {"SSL_CERT_FILE": str(registry.ca_file)}
    async with open_bench(
        plane, proxy, settings, str(helm_program), f"{guest_id}-oci", environ=environ
    ) as oci_bench:
        report = await oci_bench.settle()
        assert release_of(report, Role.KUBE_VIP).release.version == "0.9.9"
        assert release_of(report, Role.CLOUD_PROVIDER).release.version == "0.2.10"


async def test_a_registry_whose_certificate_is_not_trusted_is_not_used(
    registry: OciRegistry, cache: ChartCache
) -> None:
    with pytest.raises(ChartError) as refused:
        await cache.get(ChartSource(name="kube-vip", ref=registry.reference("kube-vip")))
    assert refused.value.condition == "ChartSourceUntrusted"


async def test_many_guests_at_once_cause_one_fetch(repository: ChartRepository, runner: HelmRunner) -> None:
    cache = ChartCache(runner)
    source = ChartSource(name="kube-vip", repo_url=repository.url)
    charts = await asyncio.gather(*(cache.get(source) for _ in range(50)))
    assert len({chart.path for chart in charts}) == 1
    assert repository.requests["/kube-vip-0.11.0.tgz"] == 1
    for _ in range(10):
        await cache.get(source)
    assert repository.requests["/index.yaml"] <= 2
    await cache.close()
    assert not charts[0].path.exists()


async def test_a_pass_that_is_cancelled_does_not_stop_the_fetch_that_others_wait_for(
    repository: ChartRepository, runner: HelmRunner
) -> None:
    cache = ChartCache(runner)
    source = ChartSource(name="kube-vip", repo_url=repository.url)
    first = asyncio.create_task(cache.get(source))
    second = asyncio.create_task(cache.get(source))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).identity.version == "0.11.0"
    await cache.close()


async def test_a_new_version_is_seen_when_the_newest_is_resolved_again(
    repository: ChartRepository, cache: ChartCache
) -> None:
    repository.retract("kube-vip", "0.11.0")
    source = ChartSource(name="kube-vip", repo_url=repository.url)
    first = await cache.get(source)
    assert first.identity.version == "0.9.9"
    assert await cache.get(source) is first, "asked again, not fetched again"
    assert repository.requests["/kube-vip-0.9.9.tgz"] == 1


async def test_a_published_version_replaces_an_older_newest(
    repository: ChartRepository, cache: ChartCache, archives: dict[str, Path]
) -> None:
    repository.retract("kube-vip", "0.11.0")
    source = ChartSource(name="kube-vip", repo_url=repository.url)
    assert (await cache.get(source)).identity.version == "0.9.9"
    repository.publish(archives["kube-vip-0.11.0"])

    async def is_taken() -> bool:
        return (await cache.get(source)).identity.version == "0.11.0"

    await eventually(is_taken, what="the newer version")


async def test_a_source_that_is_away_is_told_and_what_is_at_hand_is_used(
    repository: ChartRepository, cache: ChartCache
) -> None:
    source = ChartSource(name="kube-vip", repo_url=repository.url)
    repository.unavailable = True
    with pytest.raises(ChartError):
        await cache.get(source)
    repository.unavailable = False
    chart = await cache.get(source)
    repository.unavailable = True
    assert await cache.get(source) is chart


async def test_a_source_that_failed_is_not_asked_by_every_guest_in_turn(
    repository: ChartRepository, runner: HelmRunner
) -> None:
    cache = ChartCache(runner, failure_seconds=60)
    repository.unavailable = True
    for _ in range(5):
        with pytest.raises(ChartError):
            await cache.get(ChartSource(name="kube-vip", repo_url=repository.url))
    assert runner.runs == 1
    await cache.close()


async def test_an_archive_that_the_index_does_not_describe_is_refused(
    repository: ChartRepository, cache: ChartCache, archives: dict[str, Path], tmp_path: Path
) -> None:
    name = "kube-vip-0.11.0.tgz"
    tampered = gzip.compress(gzip.decompress(archives["kube-vip-0.11.0"].read_bytes()) + b"\0" * 512)
    repository.archives[name] = tampered
    with pytest.raises(ChartError):
        await cache.get(ChartSource(name="kube-vip", repo_url=repository.url))


async def test_a_version_or_chart_that_is_not_there_is_told(
    repository: ChartRepository, cache: ChartCache, registry: OciRegistry, trusting_runner: HelmRunner
) -> None:
    with pytest.raises(ChartError):
        await cache.get(ChartSource(name="kube-vip", repo_url=repository.url, version="7.7.7"))
    with pytest.raises(ChartError):
        await cache.get(ChartSource(name="no-such", repo_url=repository.url))
    oci = ChartCache(trusting_runner)
    with pytest.raises(ChartError):
        await oci.get(ChartSource(name="kube-vip", ref=registry.reference("kube-vip"), version="7.7.7"))
    with pytest.raises(ChartError):
        await oci.get(ChartSource(name="no-such", ref=registry.reference("no-such")))
    await oci.close()
