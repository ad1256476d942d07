"""The cloud provider as a process: its flags, its Lease, its access, what it takes over and what it leaves."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from localfleet.client import Json
from localfleet.controlplane import ControlPlane
from localfleet.fleet import LocalFleet
from localfleet.provider import NAME, ProviderProcess
from localfleet.waiting import eventually
from tests.api.services.conftest import open_shop
from tests.api.services.shop import FINALIZER, KEYS, A, Shop
from tests.harness.left_services import LEFT, Left

pytestmark = pytest.mark.xdist_group("management")

ROLE = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{NAME}"
KVCP_SERVICES = "/api/v1/services"


@dataclass(slots=True, kw_only=True)
class Bench:
    """A guest in which providers are started and stopped."""

    plane: ControlPlane
    fleet: LocalFleet
    folder: Path
    shop: Shop
    running: list[ProviderProcess]

    def build(self, *arguments: str, **environment: str) -> ProviderProcess:
        """Prepare a provider."""
        folder = self.folder / f"provider-{len(self.running)}"
        made = ProviderProcess(
            plane=self.plane,
            folder=folder,
            ports=self.fleet.ports,
            arguments=arguments,
            environment=environment,
        )
        self.running.append(made)
        return made

    async def start(self, *arguments: str, **environment: str) -> ProviderProcess:
        made = self.build(*arguments, **environment)
        await made.start()
        return made


@pytest_asyncio.fixture
async def bench(
    bare_guest: ControlPlane, fleet: LocalFleet, tmp_path: Path, shop_numbers: Iterator[int]
) -> AsyncIterator[Bench]:
    shop = await open_shop(bare_guest, next(shop_numbers))
    made = Bench(plane=bare_guest, fleet=fleet, folder=tmp_path, shop=shop, running=[])
    yield made
    for each in made.running:
        if each.process.is_running:
            await each.stop()
        assert "Traceback" not in each.process.log.read_text()


def by_kvcp(name: str, address: str) -> Json:
    """A Service as kube-vip-cloud-provider v0.0.12 leaves it."""
    return {
        "metadata": {
            "name": name,
            "labels": {"implementation": "kube-vip"},
            "annotations": {A: address},
            "finalizers": [FINALIZER],
        },
        "spec": {
            "type": "LoadBalancer",
            "loadBalancerIP": address.partition(",")[0],
            "ports": [{"port": 80}],
        },
    }


def numbered(text: str, number: int) -> str:
    """The same with addresses of its own: of 10.0.0.0/16 and 2001:db8::/48 in place of 10.0.0.0/24, 2001:db8::/64."""
    return text.replace("10.0.0.", f"10.0.{number}.").replace("2001:db8::", f"2001:db8:0:{number:x}::")


async def leave_behind(bench: Bench, number: int, left: Left) -> str:
    """Have a Service as kube-vip-cloud-provider leaves it and kube-vip serves it; its name."""
    a, l, spec = left  # noqa: E741
    made = by_kvcp(f"left-{number}", numbered(a, number))
    made["spec"] |= {"loadBalancerIP": numbered(l, number), **spec}
    await bench.plane.client.create(f"/api/v1/namespaces/{bench.shop.namespace}/services", made)
    parts = [each.strip() for each in numbered(a, number).split(",")]
    ingress = [{"ip": each} if each[-1].isdigit() else {"hostname": each} for each in dict.fromkeys(parts)]
    path = bench.shop.path(f"left-{number}")
    await bench.plane.client.patch(f"{path}/status", {"status": {"loadBalancer": {"ingress": ingress}}})
    return f"left-{number}"


async def test_no_service_of_kvcp_that_has_what_it_asks_for_is_written_when_the_provider_takes_over(
    bench: Bench,
) -> None:
    """All shapes of the annotation, side by side on a real API server; then one that waits, and a restart."""
    names = [await leave_behind(bench, number, left) for number, left in enumerate(LEFT.values(), start=1)]
    before = {name: await bench.shop.read(name) for name in names}
    await bench.plane.client.create(
        "/api/v1/namespaces/kube-system/configmaps",
        {"metadata": {"name": "kubevip"}, "data": {"cidr-global": "10.0.0.0/16,2001:db8::/48"}},
    )
    first = await bench.start()
    await bench.shop.open("next", ipFamilyPolicy="RequireDualStack")
    await bench.shop.has("next", "10.0.0.1,2001:db8::")
    assert {name: await bench.shop.read(name) for name in names} == before
    assert await first.stop() == 0
    await bench.start()
    await bench.shop.open("again")
    await bench.shop.has("again", "10.0.0.2")
    assert {name: await bench.shop.read(name) for name in names} == before


async def test_health_and_metrics_are_on_one_port(bench: Bench) -> None:
    running = await bench.start()
    await bench.shop.offer(2)
    await bench.shop.set_keys(allow_share="true")
    for name, port, number in (("one", 81, 1), ("two", 82, 1), ("three", 81, 2)):
        await bench.shop.open(name, ports=(port,))
        await bench.shop.has(name, f"{bench.shop.net}.{number}")
    await bench.shop.open("four", ports=(81,))
    await bench.shop.waits("four", "PoolFull")
    key = f"range-{bench.shop.namespace}"

    async def are_right() -> bool:
        text = await running.metrics()
        wanted = (
            f'fipop_service_pool_addresses{{family="IPv4",key="{key}"}} 2.0',
            f'fipop_service_pool_used{{family="IPv4",key="{key}"}} 2.0',
            f'fipop_service_pool_free{{family="IPv4",key="{key}"}} 0.0',
            'fipop_service_assignments_total{result="assigned"} 3.0',
            'fipop_service_assignments_total{result="PoolFull"} 1.0',
            "fipop_service_assignment_seconds_count 3.0",
            "fipop_services_waiting 1.0",
            "fipop_leader 1.0",
        )
        missing = [each for each in wanted if each not in text]
        assert not missing, missing
        return True

    await eventually(are_right)
    async with aiohttp.ClientSession() as session:
        for path in ("/healthz", "/livez", "/readyz"):
            async with session.get(running.url + path) as answer:
                assert answer.status == 200
                assert (await answer.json())["ok"] is True


async def _versions(bench: Bench) -> dict[str, str]:
    """Return the versions of all that a restart does not write: Service waits is stamped."""
    paths = (KVCP_SERVICES, "/api/v1/configmaps", f"/api/v1/namespaces/{bench.shop.namespace}/events")
    lists = [await bench.plane.client.items(path) for path in paths]
    every = (each["metadata"] for found in lists for each in found if each["metadata"]["name"] != "waits")
    return {f"{each['name']} {each['uid']}": each["resourceVersion"] for each in every}


VERBS = [
    ("services", "list", "list"),
    ("services", "watch", "watch"),
    ("services", "get", "get"),
    ("services", "update", "replace"),
    ("services/status", "update", "replace"),
    ("configmaps", "get", "get"),
    ("configmaps", "list", "list"),
    ("configmaps", "watch", "watch"),
    ("configmaps", "create", "create"),
    ("leases", "get", "get"),
    ("leases", "create", "create"),
    ("leases", "update", "replace"),
    ("events", "create", "create"),
    ("nodes", "list", "list"),
    ("endpoints", "get", "get"),
]


@pytest.mark.slow  # test_own_manifest.py has that the rights are enough
@pytest.mark.parametrize(("resource", "verb", "ours"), VERBS, ids=[f"{each[0]}-{each[1]}" for each in VERBS])
async def test_each_verb_is_needed_and_its_return_is_enough(
    bench: Bench, resource: str, verb: str, ours: str
) -> None:
    role = await bench.plane.client.get(ROLE)
    if verb != "create" and resource != "services/status":
        keys = {"cidr-global": f"{bench.shop.net}.1/32"}
        body = {"metadata": {"name": "kubevip"}, "data": keys}
        await bench.plane.client.create("/api/v1/namespaces/kube-system/configmaps", body)
    await bench.plane.client.patch(ROLE, {"rules": _without(role["rules"], resource, verb)})
    running = bench.build()
    try:
        await running.begin()
        await bench.shop.open("web")

        async def is_refused() -> bool:
            await bench.shop.change("web", {"metadata": {"annotations": {"touched": "again"}}})
            return f'fipop_api_requests_total{{code="403",verb="{ours}"}}' in await running.metrics()

        await eventually(is_refused, seconds=20.0)
    finally:
        await bench.plane.client.patch(ROLE, {"rules": role["rules"]})
    if await bench.plane.client.find(KEYS) is None:

        async def is_created() -> bool:
            await bench.shop.change("web", {"metadata": {"annotations": {"touched": "once more"}}})
            return await bench.plane.client.find(KEYS) is not None

        await eventually(is_created, seconds=90.0)  # after a backoff
    await bench.shop.offer(9)
    await bench.shop.has("web", f"{bench.shop.net}.1", seconds=90.0)  # after a backoff, on a loaded machine


def _without(rules: list[Json], resource: str, verb: str) -> list[Json]:
    """Write rules so that one verb of one resource is not allowed."""
    every = ["get", "list", "watch", "create", "update", "patch"]
    found = []
    for rule in rules:
        for each in rule["resources"]:
            verbs = every if rule["verbs"] == ["*"] else rule["verbs"]
            left = [one for one in verbs if (each, one) != (resource, verb)]
            found.append({"apiGroups": rule["apiGroups"], "resources": [each], "verbs": left})
    return found


async def test_release_services_waits_for_no_provider_and_names_what_it_released(bench: Bench) -> None:
    running = await bench.start()
    await bench.shop.offer(9)
    await bench.shop.open("web")
    await bench.shop.has("web", f"{bench.shop.net}.1")
    assert await running.stop() == 0
    released = bench.build("--release-services")
    await released.begin()
    assert await released.process.wait() == 0
    assert f"{bench.shop.namespace}/web" in released.process.log.read_text()
    assert FINALIZER not in (await bench.shop.read("web"))["metadata"].get("finalizers", ())
