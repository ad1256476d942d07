"""A Service chooses a pool by its annotation, if the pool is open to its namespace. The rows have the single cases."""

import pytest

from tests.harness.service_cluster import INTERFACE, ServiceCluster
from tests.harness.service_rows import POOL, SHARE

KEYS = {
    "cidr-global": "10.0.0.1-10.0.0.9",
    "cidr-edge": "10.4.0.1-10.4.0.9",
    "allow-pool-edge": "shop, lab",
}
EDGE = {"annotations": {POOL: "edge"}}


@pytest.mark.parametrize(
    ("keys", "is_open"),
    [
        ({"allow-pool-edge": "shop"}, True),
        ({"allow-pool-edge": "lab,shop"}, True),
        ({"allow-pool-edge": " lab , shop \n"}, True),
        ({"allow-pool-edge": "lab\nshop"}, True),
        ({"allow-pool-edge": "*"}, True),
        ({"allow-pool-edge": "lab, *"}, True),
        ({"allow-pool-edge": ""}, False),
        ({"allow-pool-edge": "edge"}, False),
        ({"allow-pool-edge": "shop-floor, workshop"}, False),
        ({"allow-pool-edge": "Shop"}, False),
        ({"namespaces-edge": "shop"}, False),
        ({"allow-pool-shop": "shop", "allow-share-edge": "true"}, False),
        ({}, False),
    ],
    ids=str,
)
async def test_the_key_of_the_pool_decides_who_may_choose_it(keys: dict[str, str], is_open: bool) -> None:
    cluster = ServiceCluster({"cidr-global": "10.0.0.1", "cidr-edge": "10.4.0.1-10.4.0.9", **keys})
    cluster.add(metadata=EDGE)
    await cluster.start()
    assert cluster.addresses() == ("10.4.0.1" if is_open else "")
    assert cluster.condition() == (("", "") if is_open else ("False", "PoolNotAllowed"))
    assert is_open or "allow-pool-edge" in cluster.message()


@pytest.mark.parametrize(
    ("keys", "is_open"), [({}, True), ({"allow-pool-shop": "lab"}, False)], ids=["no key", "a key without it"]
)
async def test_without_the_key_the_namespace_of_that_name_may(keys: dict[str, str], is_open: bool) -> None:
    cluster = ServiceCluster({"cidr-shop": "10.4.0.1-10.4.0.9", **keys})
    cluster.add(metadata={"annotations": {POOL: "shop"}})
    cluster.add(namespace="lab")
    await cluster.start()
    assert cluster.addresses() == ("10.4.0.1" if is_open else "")


async def test_the_keys_of_the_chosen_pool_count_instead_of_those_of_the_namespace() -> None:
    cluster = ServiceCluster(
        {
            **KEYS,
            "cidr-shop": "10.5.0.1-10.5.0.9",
            "namespaces-pick": "shop",
            "cidr-pick": "10.6.0.1-10.6.0.9",
            "interface-shop": "eth5",
            "interface-edge": "eth4",
            "exclude-shop": "10.4.0.9",
            "exclude-edge": "10.4.0.8-10.4.0.9",
            "draining-shop": "true",
            "search-order-shop": "asc",
            "search-order-edge": "desc",
            "allow-share-shop": "true",
        }
    )
    cluster.add("one", metadata=EDGE)
    cluster.add("two", metadata=EDGE, ports=[81])
    await cluster.start()
    assert {cluster.addresses("one"), cluster.addresses("two")} == {"10.4.0.7", "10.4.0.6"}
    assert cluster.annotation(INTERFACE, "one") == "eth4"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"search-order-shop": "desc"}, "10.0.0.9"),
        ({"search-order": "desc", "search-order-shop": "asc"}, "10.0.0.1"),
        ({"search-order": "desc", "search-order-shop": ""}, "10.0.0.1"),
        ({"search-order": "desc", "search-order-lab": "asc"}, "10.0.0.9"),
        ({"search-order-global": "desc"}, "10.0.0.9"),
    ],
    ids=str,
)
async def test_the_search_order_of_a_scope_wins(keys: dict[str, str], expected: str) -> None:
    cluster = ServiceCluster({"cidr-global": "10.0.0.1-10.0.0.9", **keys})
    cluster.add()
    await cluster.start()
    assert cluster.addresses() == expected
    assert cluster.events("kubevip") == []


async def test_a_chosen_pool_of_dhcp_serves_only_those_who_may_choose_it() -> None:
    cluster = ServiceCluster({"cidr-edge": "0.0.0.0/32", "allow-pool-edge": "lab"})
    cluster.add(metadata=EDGE)
    cluster.add(metadata=EDGE, namespace="lab")
    await cluster.start()
    assert (cluster.addresses(), cluster.addresses(namespace="lab")) == ("", "0.0.0.0")


async def test_a_service_that_may_not_choose_its_pool_is_told_so_once() -> None:
    cluster = ServiceCluster({**KEYS, "allow-pool-edge": "lab"})
    cluster.add(metadata=EDGE)
    await cluster.start()
    version = cluster.memory.version
    await cluster.pass_time(600)
    assert cluster.reasons("web") == ["SyncLoadBalancerFailed"]
    assert cluster.writes_of_services(version) == []


@pytest.mark.parametrize(
    ("by_operator", "who"),
    [(True, "an administrator of the fleet"), (False, "an administrator of this cluster")],
)
async def test_the_message_names_who_can_write_the_key(by_operator: bool, who: str) -> None:
    cluster = ServiceCluster({})
    cluster.set_keys({**KEYS, "allow-pool-edge": "lab"}, by_operator=by_operator)
    cluster.add(metadata=EDGE)
    await cluster.start()
    assert who in cluster.message()


async def test_a_service_that_is_created_again_with_another_pool_does_not_get_its_former_address() -> None:
    cluster = ServiceCluster({**KEYS, "sticky-seconds": "600"})
    cluster.add(metadata=EDGE)
    await cluster.start()
    cluster.delete()
    await cluster.settle()
    cluster.add()
    await cluster.settle()
    assert cluster.addresses() == "10.0.0.1"
    cluster.delete()
    await cluster.settle()
    cluster.add(metadata=EDGE)
    await cluster.settle()
    assert cluster.addresses() == "10.4.0.1"


async def test_a_service_without_room_in_its_pool_is_served_from_another_one_that_it_chooses_then() -> None:
    cluster = ServiceCluster({**KEYS, "cidr-global": "10.0.0.1"})
    cluster.add("first")
    await cluster.start()
    cluster.add()
    await cluster.settle()
    assert cluster.condition() == ("False", "PoolFull")
    cluster.change(annotations={POOL: "edge"})
    await cluster.settle()
    assert cluster.addresses() == "10.4.0.1"


async def test_an_address_of_a_former_pool_is_not_left_by_what_else_is_assigned() -> None:
    dual = {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}
    cluster = ServiceCluster({**KEYS, "cidr-edge": "10.4.0.1-10.4.0.9,fd00::1-fd00::9"})
    cluster.add()
    await cluster.start()
    cluster.change(annotations={POOL: "edge"}, **dual)
    await cluster.settle()
    assert cluster.addresses() == "10.0.0.1,fd00::1"


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"allow-pool-edge": "shop, La_b"}, "KeyInvalid"),
        ({"search-order-edge": "down"}, "KeyInvalid"),
        ({"allow_pool_edge": "shop"}, "KeyUnusual"),
        ({"allow-pools-edge": "shop"}, "KeyUnusual"),
        ({"search_order_edge": "desc"}, "KeyUnusual"),
    ],
    ids=str,
)
async def test_a_key_that_is_not_what_was_meant_is_told(keys: dict[str, str], named: str) -> None:
    cluster = ServiceCluster({"cidr-global": "10.0.0.1-10.0.0.9", **keys})
    await cluster.start()
    ((_, reason, text),) = cluster.events("kubevip")
    assert reason == named
    assert named == "KeyInvalid" or next(iter(keys)).replace("_", "-").replace("pools", "pool") in text


@pytest.mark.parametrize("value", ["/", "..", "a/b", "x" * 300, "\x1b[31m", "*", "a b", "é"])
async def test_any_text_can_be_in_the_annotation(value: str) -> None:
    cluster = ServiceCluster({**KEYS, "allow-pool-*": "*"})
    cluster.add(metadata={"annotations": {POOL: value, SHARE: value}})
    running = await cluster.start()
    assert (cluster.addresses(), cluster.condition()[0]) == ("", "False")
    assert "\x1b" not in cluster.message()
    assert running.is_alive
