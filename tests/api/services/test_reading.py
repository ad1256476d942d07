"""What the cloud provider reads (docs/reference/cloud-provider.md#keys-of-the-configmap), against a real API server."""

import pytest

from localfleet.waiting import eventually
from tests.api.services.shop import (
    DUAL,
    INTERFACE,
    KEYS,
    PREFER,
    SERVED_SECONDS,
    Shop,
    condition,
    is_chosen,
    of,
)

pytestmark = pytest.mark.xdist_group("services")


async def test_the_first_key_of_a_namespace_is_its_one_pool(shop: Shop) -> None:
    other = f"{shop.net}.100"
    await shop.client.patch(KEYS, {"data": {"cidr-global": f"{other}/32"}})
    await shop.set_keys(range=f"{shop.net}.7-{shop.net}.7")
    await shop.open("web")
    found = await shop.has("web", f"{shop.net}.7")
    assert is_chosen(found)
    await shop.open("more")
    message = await shop.waits("more", "PoolFull")
    assert f"range-{shop.namespace}" in message, "no spill into the global pool"
    await shop.set_keys(cidr=f"{shop.net}.8/32")
    await shop.has("more", f"{shop.net}.8", seconds=SERVED_SECONDS)
    await shop.set_keys(cidr=None, range=None)
    await shop.open("third")
    await shop.has("third", other)


async def test_a_named_pool_serves_the_namespaces_that_it_names(shop: Shop) -> None:
    keys = {"range-team": f"{shop.net}.5-{shop.net}.5", "namespaces-team": f"elsewhere, {shop.namespace}"}
    await shop.client.patch(KEYS, {"data": {**keys, "cidr-global": f"{shop.net}.100/32"}})
    await shop.open("web")
    await shop.has("web", f"{shop.net}.5")
    await shop.client.patch(KEYS, {"data": dict.fromkeys(keys)})


async def test_an_empty_key_is_an_error_of_that_key_and_is_served_when_corrected(shop: Shop) -> None:
    await shop.client.patch(KEYS, {"data": {"cidr-global": f"{shop.net}.100/32"}})
    await shop.set_keys(cidr="")
    await shop.open("web")
    assert "empty" in await shop.waits("web", "PoolUnusable")
    await shop.set_keys(cidr="nonsense")
    assert await eventually(lambda: _told(shop, "web", "nonsense"))
    await shop.warned("SyncLoadBalancerFailed", "nonsense")
    await shop.set_keys(cidr=f" {shop.net}.3 , {shop.net}.4/32 ")
    await shop.has("web", f"{shop.net}.3", seconds=SERVED_SECONDS)


async def _told(shop: Shop, name: str, words: str) -> bool:
    return words in condition(await shop.read(name))["message"]


async def test_the_ends_of_a_lan_are_never_given_and_the_first_of_ipv6_is(shop: Shop) -> None:
    await shop.set_keys(cidr=f"{shop.net}.0/30,{shop.net6}:/126")
    await shop.open("web", **DUAL)
    await shop.has("web", f"{shop.net}.1,{shop.net6}:")


async def test_the_ends_of_every_prefix_are_skipped_where_that_is_wanted(shop: Shop) -> None:
    await shop.client.patch(KEYS, {"data": {"skip-end-ips-in-cidr": "true"}})
    await shop.set_keys(cidr=f"{shop.net}.8/30")
    for name, address in (("one", f"{shop.net}.9"), ("two", f"{shop.net}.10")):
        await shop.open(name)
        await shop.has(name, address)
    await shop.open("three")
    await shop.waits("three", "PoolFull")
    await shop.client.patch(KEYS, {"data": {"skip-end-ips-in-cidr": None}})


async def test_the_highest_first_where_it_is_wanted(shop: Shop) -> None:
    await shop.offer(9)
    await shop.client.patch(KEYS, {"data": {"search-order": "desc"}})
    await shop.open("web")
    await shop.has("web", f"{shop.net}.9")
    await shop.client.patch(KEYS, {"data": {"search-order": None}})


@pytest.mark.parametrize("text", ["0.0.0.0/32", "::/128"])
async def test_dhcp_for_every_family_and_policy(shop: Shop, text: str) -> None:
    await shop.set_keys(cidr=text)
    await shop.open("web", **DUAL)
    assert is_chosen(await shop.has("web", "0.0.0.0"))
    assert await shop.entries() == {}


async def test_addresses_are_shared_by_consent_and_disjoint_ports(shop: Shop) -> None:
    await shop.offer(9)
    await shop.set_keys(allow_share="true")
    await shop.open("tcp", ports=(53,))
    await shop.open("udp", ports=(53,), protocol="UDP")
    await shop.has("tcp", f"{shop.net}.1")
    await shop.has("udp", f"{shop.net}.1")
    await shop.open("clashing", ports=(53,))
    await shop.has("clashing", f"{shop.net}.2")


async def test_the_interface_is_written_with_a_new_address_and_that_of_the_user_stays(shop: Shop) -> None:
    await shop.offer(9)
    await shop.open("before")
    await shop.has("before", f"{shop.net}.1")
    await shop.set_keys(interface="eth7")
    await shop.open("web")
    await shop.open("own", annotations={INTERFACE: "eth1"})

    async def interfaces() -> list[str | None]:
        names = ("before", "web", "own")
        found = [await shop.read(name) for name in names]
        assert all(of(each) for each in found)
        return [each["metadata"]["annotations"].get(INTERFACE) for each in found]

    assert await eventually(interfaces) == [None, "eth7", "eth1"]


async def test_services_of_a_class_are_not_ours(shop: Shop) -> None:
    await shop.offer(9)
    await shop.open("theirs", loadBalancerClass="example.com/other")
    await shop.open("web")
    await shop.has("web", f"{shop.net}.1")
    found = await shop.read("theirs")
    assert (of(found), found["metadata"].get("finalizers")) == ("", None)


async def test_a_pool_that_grows_serves_who_waits_and_a_draining_one_gives_out_nothing_new(
    shop: Shop,
) -> None:
    await shop.offer(1)
    await shop.open("web")
    await shop.has("web", f"{shop.net}.1")
    await shop.open("more")
    await shop.waits("more", "PoolFull")
    await shop.set_keys(draining="true")
    await shop.offer(9)
    assert "draining" in await eventually(lambda: _message(shop, "more", "draining"))
    await shop.set_keys(draining=None)
    await shop.has("more", f"{shop.net}.2", seconds=SERVED_SECONDS)
    await shop.set_keys(exclude=f"{shop.net}.3-{shop.net}.4")
    await shop.open("third")
    await shop.has("third", f"{shop.net}.5")


async def _message(shop: Shop, name: str, words: str) -> str:
    message = str(condition(await shop.read(name))["message"])
    assert words in message
    return message


@pytest.mark.parametrize(
    ("options", "pool", "expected"),
    [
        ({}, "4", "{net}.1"),
        ({}, "6", ""),
        ({"ipFamilies": ["IPv6"]}, "46", "{net6}:1"),
        ({"ipFamilies": ["IPv6"]}, "4", ""),
        (PREFER, "46", "{net}.1,{net6}:1"),
        (PREFER, "4", "{net}.1"),
        (PREFER, "6", "{net6}:1"),
        ({**PREFER, "ipFamilies": ["IPv6", "IPv4"]}, "46", "{net6}:1,{net}.1"),
        (DUAL, "46", "{net}.1,{net6}:1"),
        ({**DUAL, "ipFamilies": ["IPv6", "IPv4"]}, "46", "{net6}:1,{net}.1"),
        (DUAL, "4", ""),
    ],
)
async def test_families_and_policies(shop: Shop, options: dict, pool: str, expected: str) -> None:
    parts = {"4": f"{shop.net}.1-{shop.net}.3", "6": f"{shop.net6}:1-{shop.net6}:3"}
    await shop.set_keys(range=",".join(parts[each] for each in pool))
    await shop.open("web", **options)
    if expected:
        assert is_chosen(await shop.has("web", expected.format(net=shop.net, net6=shop.net6)))
    else:
        await shop.waits("web", "PoolFull")
        assert await shop.entries() == {}, "nothing is begun that cannot be had"


async def test_a_missing_config_map_is_made_empty(shop: Shop) -> None:
    await shop.client.delete(KEYS)

    async def is_there() -> bool:
        return not (await shop.client.get(KEYS)).get("data")

    await eventually(is_there)
    await shop.open("web")
    await shop.waits("web", "NoPool")
    await shop.offer(1)
    await shop.has("web", f"{shop.net}.1", seconds=SERVED_SECONDS)


async def test_bad_keys_are_told_where_they_stand(shop: Shop) -> None:
    await shop.set_keys(allow_share="yes")

    async def is_told() -> bool:
        events = await shop.client.items("/api/v1/namespaces/kube-system/events")
        return any(each["reason"] == "KeyInvalid" and "true or false" in each["message"] for each in events)

    await eventually(is_told)
