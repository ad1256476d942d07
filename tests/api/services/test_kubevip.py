"""What the cloud provider writes to a Service (docs/reference/cloud-provider.md#what-the-provider-writes), by row."""

import asyncio

import pytest

from localfleet.waiting import eventually
from tests.api.services.shop import (
    DUAL,
    FINALIZER,
    SERVED_SECONDS,
    A,
    Shop,
    condition,
    is_chosen,
    of,
)

pytestmark = pytest.mark.xdist_group("services")


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
            if seen and condition(seen[-1]):
                break
    first, second = seen
    assert is_chosen(first), "F, I, A, L and the interface at once"
    assert first["metadata"]["annotations"]["kube-vip.io/serviceInterface"] == "eth7"
    assert condition(second)["status"] == "True"
    assert await shop.warned("AddressAssigned", f"{shop.net}.1")


async def test_l_only_is_a_legacy_service(shop: Shop) -> None:
    await shop.open("web", loadBalancerIP="10.99.1.1", labels={"ipam-address": "10.99.1.1", "mine": "yes"})
    found = await shop.has("web", "10.99.1.1")
    assert found["metadata"]["labels"] == {"mine": "yes"}
    assert FINALIZER in found["metadata"]["finalizers"]
    assert not is_chosen(found)
    assert condition(found) == {}, "it is told nothing that was not asked for"


async def test_a_only_keeps_every_part_and_gets_f_and_i(shop: Shop) -> None:
    parts = "10.99.2.1, example.com"
    await shop.open("web", annotations={A: parts})

    async def is_marked() -> bool:
        found = await shop.read("web")
        return found["metadata"].get("labels", {}).get("implementation") == "kube-vip"

    await eventually(is_marked)
    found = await shop.read("web")
    assert (of(found), found["spec"].get("loadBalancerIP")) == (parts, None)
    assert FINALIZER in found["metadata"]["finalizers"]


async def test_a_and_l_that_are_not_ours_get_the_finalizer_only(shop: Shop) -> None:
    await shop.open("web", annotations={A: "10.99.3.1,10.99.3.2"}, loadBalancerIP="10.99.3.2")

    async def is_finalized() -> bool:
        return FINALIZER in (await shop.read("web"))["metadata"].get("finalizers", ())

    await eventually(is_finalized)
    found = await shop.read("web")
    assert (of(found), found["metadata"].get("labels")) == ("10.99.3.1,10.99.3.2", None)


async def test_a_user_asks_for_another_address(shop: Shop) -> None:
    await shop.offer(9, with_v6=True)
    await shop.open("web", **DUAL)
    await shop.has("web", f"{shop.net}.1,{shop.net6}:1")
    await shop.change("web", {"spec": {"loadBalancerIP": f"{shop.net}.200"}})
    await shop.has("web", f"{shop.net}.200,{shop.net6}:1")
    await eventually(lambda: _is_free(shop, f"{shop.net}.1"), what="what it had is free")
    await shop.change("web", {"spec": {"loadBalancerIP": f"{shop.net6}:8"}})
    await shop.change("web", {"spec": {"ipFamilies": None}})
    found = await shop.has("web", f"{shop.net}.200,{shop.net6}:8")
    assert found["spec"]["loadBalancerIP"] == f"{shop.net}.200"


async def _is_free(shop: Shop, address: str) -> bool:
    return address not in await shop.entries()


async def test_a_taken_away_is_restored_and_l_emptied_too(shop: Shop) -> None:
    await shop.offer(9)
    await shop.open("web")
    await shop.has("web", f"{shop.net}.1")
    await shop.change("web", {"metadata": {"annotations": {A: None}}})
    assert is_chosen(await shop.has("web", f"{shop.net}.1"))
    await shop.change("web", {"spec": {"loadBalancerIP": None}})

    async def is_restored() -> bool:
        return is_chosen(await shop.read("web"))

    await eventually(is_restored)
    assert of(await shop.read("web")) == f"{shop.net}.1"


async def test_a_second_family_comes_and_goes(shop: Shop) -> None:
    await shop.offer(9, with_v6=True)
    await shop.open("web")
    await shop.has("web", f"{shop.net}.1")
    await shop.change("web", {"spec": {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}})
    await shop.has("web", f"{shop.net}.1,{shop.net6}:1")
    single = {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"], "clusterIPs": None}
    await shop.change("web", {"spec": single})
    await shop.has("web", f"{shop.net}.1")
    await eventually(lambda: _has_no_v6(shop), what="the other family is free")


async def _has_no_v6(shop: Shop) -> bool:
    return list(await shop.entries()) == [f"{shop.net}.1"]


async def test_l_that_names_anothers_address_is_told_and_served_when_it_is_free(shop: Shop) -> None:
    await shop.offer(9)
    await shop.open("web")
    await shop.has("web", f"{shop.net}.1")
    await shop.open("other")
    await shop.has("other", f"{shop.net}.2")
    await shop.change("web", {"spec": {"loadBalancerIP": f"{shop.net}.2"}})
    await shop.warned("AddressInUse", f"{shop.namespace}/other")
    assert of(await shop.read("web")) == f"{shop.net}.1"
    await shop.close("other")
    await shop.has("web", f"{shop.net}.2", seconds=SERVED_SECONDS)


async def test_a_static_address_that_somebody_has_is_warned_of_on_both(shop: Shop) -> None:
    await shop.offer(9)
    await shop.open("web")
    await shop.has("web", f"{shop.net}.1")
    await shop.open("static", annotations={A: f"{shop.net}.1"}, loadBalancerIP=f"{shop.net}.1")
    await shop.warned("AddressInUse", f"{shop.namespace}/web")
    await shop.warned("AddressInUse", f"{shop.namespace}/static")
    await shop.open("next")
    await shop.has("next", f"{shop.net}.2")
    await shop.close("web")
    await shop.is_gone("web")
    await shop.open("after")
    await shop.has("after", f"{shop.net}.3")


async def test_sharers_whose_ports_clash_or_whose_consent_goes_stay_and_are_warned(shop: Shop) -> None:
    await shop.offer(9)
    await shop.set_keys(allow_share="true")
    await shop.open("one", ports=(81,))
    await shop.open("two", ports=(82,))
    for name in ("one", "two"):
        await shop.has(name, f"{shop.net}.1")
    await shop.change("two", {"spec": {"externalTrafficPolicy": "Local"}})
    await shop.warned("SharedAddressLocal", f"{shop.net}.1")
    await shop.change(
        "two", {"spec": {"ports": [{"name": "p", "port": 81}], "externalTrafficPolicy": "Cluster"}}
    )
    await shop.warned("AddressInUse", f"{shop.namespace}/two")
    await shop.warned("AddressInUse", f"{shop.namespace}/one")
    await shop.change("two", {"spec": {"ports": [{"name": "q", "port": 83}]}})
    await shop.set_keys(allow_share="false")
    await shop.open("three", ports=(84,))
    await shop.has("three", f"{shop.net}.2")
    assert [of(await shop.read(name)) for name in ("one", "two")] == [f"{shop.net}.1"] * 2


async def test_a_service_that_is_no_load_balancer_any_more_has_nothing_of_ours(shop: Shop) -> None:
    await shop.offer(1)
    await shop.open("web", labels={"mine": "yes"}, annotations={"mine": "yes"})
    await shop.has("web", f"{shop.net}.1")
    await shop.change("web", {"spec": {"type": "ClusterIP"}})

    async def is_cleared() -> bool:
        found = await shop.read("web")
        metadata, spec = found["metadata"], found["spec"]
        assert (metadata["annotations"], metadata["labels"]) == ({"mine": "yes"}, {"mine": "yes"})
        assert condition(found) == {}
        return "loadBalancerIP" not in spec and not metadata.get("finalizers")

    await eventually(is_cleared)
    await eventually(lambda: _is_free(shop, f"{shop.net}.1"))
    await shop.open("next")
    await shop.has("next", f"{shop.net}.1")
    await shop.change("web", {"spec": {"type": "LoadBalancer"}})
    await shop.waits("web", "PoolFull")


async def test_what_is_no_load_balancer_any_more_can_be_deleted(shop: Shop) -> None:
    await shop.open("static", annotations={A: "10.99.4.1"}, loadBalancerIP="10.99.4.1")

    async def is_held() -> bool:
        return FINALIZER in (await shop.read("static"))["metadata"].get("finalizers", ())

    await eventually(is_held)
    await shop.change("static", {"spec": {"type": "ClusterIP"}})

    async def is_free() -> bool:
        return not (await shop.read("static"))["metadata"].get("finalizers")

    await eventually(is_free)
    assert of(await shop.read("static")) == "10.99.4.1", "what the user wrote stays"
    await shop.offer(1)
    await shop.open("web")
    await shop.has("web", f"{shop.net}.1")
    await shop.change("web", {"spec": {"type": "ClusterIP"}})
    await shop.close("web")
    await shop.is_gone("web")


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
    assert list(await shop.entries()) == [f"{shop.net}.1"], "it is there still, and its address in use"
    await shop.change("web", {"metadata": {"finalizers": None}})
    await shop.has("next", f"{shop.net}.1", seconds=SERVED_SECONDS)

    async def is_told() -> bool:
        return bool(condition(await shop.read("next"))["status"] == "True")

    await eventually(is_told)


async def test_a_key_that_is_taken_away_moves_no_holder(shop: Shop) -> None:
    await shop.offer(9)
    await shop.open("web")
    before = await shop.has("web", f"{shop.net}.1")
    await shop.set_keys(range=None, cidr="10.98.0.0/24")
    await shop.open("next")
    await shop.has("next", "10.98.0.1")
    assert of(await shop.read("web")) == of(before)


async def test_what_nobody_can_read_is_as_if_it_were_not_there(shop: Shop) -> None:
    await shop.offer(9)
    await shop.open("web", annotations={A: "not-an-address, 999.1.1.1"})

    async def is_marked() -> bool:
        return FINALIZER in (await shop.read("web"))["metadata"].get("finalizers", ())

    await eventually(is_marked)
    await shop.open("next")
    await shop.has("next", f"{shop.net}.1")
