"""Services share an address if their ports differ, and the keys of all their namespaces or their group allow it."""

import pytest

from tests.harness.service_cluster import ServiceCluster
from tests.harness.service_rows import POOL, SHARE

ONE = {"cidr-global": "10.0.0.1-10.0.0.1", "allow-share-shop": "true"}
TCP, UDP = {"port": 53, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}


@pytest.mark.parametrize(
    ("first", "second", "is_shared"),
    [
        ([80], [443], True),
        ([80, 81], [443, 81], False),
        ([TCP], [UDP], True),
        ([UDP], [UDP], False),
        ([], [80], False),
        ([], [], False),
    ],
)
async def test_ports_and_protocols_must_differ(first: list[int], second: list[int], is_shared: bool) -> None:
    cluster = ServiceCluster(ONE)
    cluster.add("first", ports=first)
    await cluster.start()
    cluster.add("second", ports=second)
    await cluster.settle()
    assert cluster.addresses("first") == "10.0.0.1"
    assert cluster.addresses("second") == ("10.0.0.1" if is_shared else "")


@pytest.mark.parametrize(
    ("keys", "is_shared"),
    [
        ({"allow-share-shop": "true", "allow-share-lab": "true"}, True),
        ({"allow-share-shop": "T", "allow-share-lab": "1"}, True),
        ({"allow-share-global": "true"}, True),
        ({"allow-share-global": "true", "allow-share-lab": "false"}, False),
        ({"allow-share-shop": "true"}, False),
        ({"allow-share-lab": "true"}, False),
        ({"allow-share-shop": "yes", "allow-share-lab": "true"}, False),
        ({}, False),
    ],
    ids=str,
)
async def test_each_namespace_must_allow_it(keys: dict[str, str], is_shared: bool) -> None:
    cluster = ServiceCluster({"cidr-global": "10.0.0.1-10.0.0.1", **keys})
    cluster.add("first", ports=[80])
    await cluster.start()
    cluster.add("second", namespace="lab", ports=[443])
    await cluster.settle()
    assert cluster.addresses("second", namespace="lab") == ("10.0.0.1" if is_shared else "")


async def test_an_address_that_can_be_shared_is_preferred_to_a_free_one() -> None:
    cluster = ServiceCluster({"cidr-shop": "10.0.0.1-10.0.0.2", "allow-share-shop": "true"})
    await cluster.start()
    for name, port in (("http", 80), ("https", 443), ("http-too", 80)):
        cluster.add(name, ports=[port])
        await cluster.settle()
    assert [cluster.addresses(name) for name in ("http", "https", "http-too")] == [
        "10.0.0.1",
        "10.0.0.1",
        "10.0.0.2",
    ]


async def test_a_waiting_service_shares_when_a_port_in_common_goes() -> None:
    cluster = ServiceCluster(ONE)
    cluster.add("two", ports=[80, 443])
    await cluster.start()
    cluster.add("one", ports=[80])
    await cluster.settle()
    assert cluster.condition("one") == ("False", "PoolFull")
    cluster.change("two", ports=[443])
    await cluster.settle()
    assert (cluster.addresses("one"), cluster.addresses("two")) == ("10.0.0.1", "10.0.0.1")


async def test_a_consent_that_is_withdrawn_moves_no_service_and_admits_no_other() -> None:
    cluster = ServiceCluster({"cidr-shop": "10.0.0.1-10.0.0.2", "allow-share-shop": "true"})
    cluster.add("one", ports=[80])
    cluster.add("two", ports=[443])
    await cluster.start()
    cluster.set_keys({"cidr-shop": "10.0.0.1-10.0.0.2"})
    await cluster.settle()
    cluster.add("three", ports=[8443])
    await cluster.settle()
    assert [cluster.addresses(name) for name in ("one", "two", "three")] == [
        "10.0.0.1",
        "10.0.0.1",
        "10.0.0.2",
    ]
    assert all("AddressInUse" in cluster.reasons(name) for name in ("one", "two"))


async def test_each_of_two_services_with_the_same_static_address_is_warned_about() -> None:
    cluster = ServiceCluster(ONE)
    cluster.add("one", a="192.0.2.1")
    await cluster.start()
    cluster.add("two", loadBalancerIP="192.0.2.1")
    await cluster.settle()
    assert (cluster.addresses("one"), cluster.addresses("two")) == ("192.0.2.1", "192.0.2.1")
    assert "AddressInUse" in cluster.reasons("one")
    assert "AddressInUse" in cluster.reasons("two")


@pytest.mark.parametrize(
    ("first", "second", "is_told"),
    [
        ({"externalTrafficPolicy": "Local", "selector": {"app": "a"}}, {"selector": {"app": "b"}}, True),
        ({"selector": {"app": "a"}}, {"externalTrafficPolicy": "Local", "selector": {"app": "b"}}, True),
        ({"externalTrafficPolicy": "Local", "selector": {"app": "a"}}, {"selector": {"app": "a"}}, False),
        ({"selector": {"app": "a"}}, {"selector": {"app": "b"}}, False),
    ],
    ids=["first", "second", "same pods", "Cluster"],
)
async def test_services_of_different_pods_that_share_with_policy_local_are_warned_of(
    first: dict[str, object], second: dict[str, object], *, is_told: bool
) -> None:
    cluster = ServiceCluster(ONE)
    cluster.add("first", ports=[80], **first)
    await cluster.start()
    cluster.add("second", ports=[443], **second)
    await cluster.settle()
    assert (cluster.addresses("first"), cluster.addresses("second")) == ("10.0.0.1", "10.0.0.1")
    for name in ("first", "second"):
        assert ("SharedAddressLocal" in cluster.reasons(name)) is is_told


TWO = {
    "cidr-global": "10.0.0.1-10.0.0.2",
    "cidr-edge": "10.4.0.1-10.4.0.9",
    "allow-pool-edge": "*",
    "cidr-bank": "10.5.0.1-10.5.0.9",
}
FRONT = {SHARE: "front"}


@pytest.mark.parametrize(
    ("first", "second", "is_shared"),
    [
        (("shop", FRONT), ("shop", FRONT), True),
        (("shop", FRONT), ("shop", {SHARE: " front "}), True),
        (("shop", FRONT), ("shop", {SHARE: "back"}), False),
        (("shop", FRONT), ("shop", {SHARE: " "}), False),
        (("shop", FRONT), ("shop", {}), False),
        (("shop", FRONT), ("lab", FRONT), False),
        (("shop", {**FRONT, POOL: "edge"}), ("shop", {**FRONT, POOL: "edge"}), True),
        (("shop", {**FRONT, POOL: "edge"}), ("lab", {**FRONT, POOL: "edge"}), False),
        (("bank", {**FRONT, POOL: "bank"}), ("bank", FRONT), True),
    ],
    ids=str,
)
@pytest.mark.parametrize("has_key", [False, True])
async def test_a_group_shares_in_its_namespace_and_pool_with_or_without_a_key(
    first: tuple[str, dict[str, str]], second: tuple[str, dict[str, str]], *, is_shared: bool, has_key: bool
) -> None:
    cluster = ServiceCluster({**TWO, **({"allow-share-global": "true"} if has_key else {})})
    await cluster.start()
    for number, (namespace, annotations) in enumerate((first, second)):
        cluster.add(
            f"web-{number}", namespace=namespace, ports=[80 + number], metadata={"annotations": annotations}
        )
        await cluster.settle()
    one = cluster.addresses("web-0", namespace=first[0])
    other = cluster.addresses("web-1", namespace=second[0])
    assert one
    assert other
    assert (one == other) is is_shared
    assert cluster.problems == []


async def test_those_without_a_group_share_as_before_beside_those_with_one() -> None:
    cluster = ServiceCluster({**TWO, "allow-share-global": "true"})
    await cluster.start()
    for number, annotations in enumerate(({}, FRONT, {}, FRONT)):
        cluster.add(f"web-{number}", ports=[80 + number], metadata={"annotations": annotations})
        await cluster.settle()
    assert [cluster.addresses(f"web-{number}") for number in range(4)] == ["10.0.0.1", "10.0.0.2"] * 2


async def test_a_service_waits_for_a_holder_that_joins_its_group() -> None:
    cluster = ServiceCluster({"cidr-global": "10.0.0.1"})
    cluster.add("holder", ports=[80])
    await cluster.start()
    cluster.add(ports=[81], metadata={"annotations": FRONT})
    await cluster.settle()
    assert cluster.condition() == ("False", "PoolFull")
    cluster.change("holder", annotations=FRONT)
    await cluster.settle()
    assert cluster.addresses() == "10.0.0.1"


async def test_an_ipv6_address_is_not_shared_by_a_group_either() -> None:
    cluster = ServiceCluster({"cidr-global": "10.0.0.1-10.0.0.9,fd00::1-fd00::9"})
    await cluster.start()
    for number in range(2):
        cluster.add(
            f"web-{number}",
            ports=[80 + number],
            metadata={"annotations": FRONT},
            ipFamilyPolicy="RequireDualStack",
        )
        await cluster.settle()
    assert cluster.addresses("web-1") == "10.0.0.1,fd00::2"


async def test_a_group_whose_pool_is_closed_keeps_its_address_and_gets_no_further_one() -> None:
    cluster = ServiceCluster(TWO)
    edge = {"annotations": {**FRONT, POOL: "edge"}}
    await cluster.start()
    for number in range(3):
        cluster.add(f"web-{number}", ports=[80 + number], metadata=edge)
        await cluster.settle()
        if number == 1:
            cluster.set_keys({**TWO, "allow-pool-edge": ""})
            await cluster.settle()
    assert [cluster.addresses(f"web-{number}") for number in range(3)] == ["10.4.0.1", "10.4.0.1", ""]
    assert "AddressInUse" not in cluster.reasons()
