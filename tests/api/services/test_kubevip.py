"""How and when the cloud provider writes what docs/reference/cloud-provider.md#what-the-provider-writes says.

The rows of its table are in test_rows.py.
"""

import asyncio

import pytest

from localfleet.waiting import eventually
from tests.api.services.shop import (
    SERVED_SECONDS,
    Shop,
    condition,
    is_chosen,
    of,
)

pytestmark = pytest.mark.xdist_group("management")


async def test_neither_a_nor_l_gets_all_in_one_put(shop: Shop) -> None:
    await shop.offer(9)
    await shop.set_keys(interface="eth7")
    await shop.open("first", loadBalancerIP="10.99.0.1")
    await shop.has("first", "10.99.0.1")  # somebody leads
    made = await shop.open("web")
    seen = []
    async with asyncio.timeout(10):
        path = f"/api/v1/namespaces/{shop.namespace}/services"
        async for event in shop.client.watch(path, resource_version=made["metadata"]["resourceVersion"]):
            if event["object"]["metadata"]["name"] == "web":
                seen.append(event["object"])
            if seen:
                break
    (first,) = seen
    assert is_chosen(first), "F, I, A, L and the interface at once"
    assert first["metadata"]["annotations"]["kube-vip.io/serviceInterface"] == "eth7"
    assert first["metadata"]["annotations"]["kubefip.k8s.binbash.org/assigned"] == of(first)
    assert condition(first) == {}
    assert await shop.warned("AddressAssigned", f"{shop.net}.1")


async def test_a_deleted_service_gives_its_address_to_who_waits(shop: Shop) -> None:
    await shop.offer(1)
    await shop.open("web", finalizers=["example.com/mine"])
    await shop.has("web", f"{shop.net}.1")
    await shop.open("next")
    message = await shop.waits("next", "PoolFull")
    assert f"range-{shop.namespace}" in message
    await shop.warned("SyncLoadBalancerFailed", f"range-{shop.namespace}")
    await shop.close("web")

    async def is_released() -> bool:
        return (await shop.read("web"))["metadata"]["finalizers"] == ["example.com/mine"]

    await eventually(is_released)
    assert of(await shop.read("next")) == "", "the first one exists still, and its address is in use"
    await shop.change("web", {"metadata": {"finalizers": None}})
    await shop.has("next", f"{shop.net}.1", seconds=SERVED_SECONDS)

    async def is_told() -> bool:
        return bool(condition(await shop.read("next"))["status"] == "True")

    await eventually(is_told)
