"""Beside Harvester's cloud provider (docs/how-to/run-beside-harvester.md) on a real API server: fipop yields."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from localfleet.client import Json
from localfleet.harvester_provider import HarvesterServiceController
from localfleet.waiting import eventually
from tests.api.services.shop import PREFER, Shop, of

pytestmark = pytest.mark.xdist_group("management")

QUIET_SECONDS = 2.5
"""Three times as long as Harvester's cloud provider takes to answer a change."""
SERVICES = {"web": {}, "pinned": {"loadBalancerIP": "10.99.30.1"}, "both": PREFER}


class Writes:
    """Follows the Services of a namespace: the versions that each had since its creation."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self.versions: dict[str, list[str]] = {}

    async def follow(self) -> None:
        path = f"/api/v1/namespaces/{self._shop.namespace}/services"
        async for event in self._shop.client.watch(path):
            metadata = event["object"]["metadata"]
            if event["type"] == "MODIFIED" and not metadata.get("deletionTimestamp"):
                self.versions.setdefault(metadata["name"], []).append(metadata["resourceVersion"])

    def count(self) -> int:
        return sum(map(len, self.versions.values()))


@pytest_asyncio.fixture
async def harvester(shop: Shop) -> AsyncIterator[HarvesterServiceController]:
    """Harvester's cloud provider at work."""
    controller = HarvesterServiceController(
        shop.client, addresses=(f"192.0.2.{number}" for number in range(1, 250))
    )
    task = asyncio.create_task(controller.run())
    yield controller
    task.cancel()
    await asyncio.wait([task])


async def test_each_service_is_written_twice_at_most_and_its_deletion_leaves_nothing_behind(
    shop: Shop, harvester: HarvesterServiceController
) -> None:
    await shop.offer(9, with_v6=True)
    await shop.open("first")

    async def has_a_pool() -> bool:
        return bool(of(await shop.read("first")))

    await eventually(has_a_pool, what="the provider to know the pool: before, it writes that a Service waits")
    await shop.close("first")
    await shop.is_gone("first")
    writes = Writes(shop)
    following = asyncio.create_task(writes.follow())
    made: dict[str, Json] = {name: await shop.open(name, **options) for name, options in SERVICES.items()}
    theirs = {name: each["metadata"]["uid"] for name, each in made.items()}

    async def has_yielded() -> bool:
        found = {name: of(await shop.read(name)) for name in SERVICES}
        assert found == {name: harvester.load_balancers[uid] for name, uid in theirs.items()}
        before = writes.count()
        await asyncio.sleep(QUIET_SECONDS)
        return writes.count() == before

    await eventually(has_yielded, seconds=60.0, what="nobody writes any more")
    ours = Counter(
        {
            name: sum(each not in harvester.written for each in found)
            for name, found in writes.versions.items()
        }
    )
    assert set(ours) == set(SERVICES)
    assert max(ours.values()) <= 2, ours
    for name in SERVICES:
        await shop.close(name)
    for name in SERVICES:
        await shop.is_gone(name)

    async def is_empty() -> bool:
        return not harvester.load_balancers

    await eventually(is_empty, what="no LoadBalancer is left on Harvester")
    following.cancel()
    await asyncio.wait([following])


async def test_a_service_that_changes_its_type_leaves_nothing_of_either_provider(
    shop: Shop, harvester: HarvesterServiceController
) -> None:
    """The order of the page: ClusterIP and the annotation off, while Harvester's cloud provider still runs."""
    await shop.offer(9)
    made = await shop.open("web")
    uid = made["metadata"]["uid"]

    async def is_theirs() -> bool:
        return of(await shop.read("web")) == harvester.load_balancers[uid]

    await eventually(is_theirs)
    gone = {"kube-vip.io/loadbalancerIPs": None}
    await shop.change("web", {"spec": {"type": "ClusterIP"}, "metadata": {"annotations": gone}})

    async def is_bare() -> bool:
        metadata = (await shop.read("web"))["metadata"]
        assert uid not in harvester.load_balancers
        return not metadata.get("finalizers") and "labels" not in metadata and not metadata.get("annotations")

    await eventually(is_bare)
