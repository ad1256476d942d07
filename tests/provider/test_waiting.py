"""A Service that waits says why, and is served as soon as it can be."""

import pytest

from tests.harness.service_cluster import CONDITION, ServiceCluster

ONE = {"cidr-global": "10.0.0.1-10.0.0.1"}
X = "10.0.0.1"


async def build_waiting(**first: object) -> ServiceCluster:
    """Return a cluster in which Service first has the only address and Service web waits."""
    cluster = ServiceCluster(ONE)
    cluster.add("first", **first)
    await cluster.start()
    cluster.add()
    await cluster.settle()
    assert (cluster.addresses(), cluster.condition()) == ("", ("False", "PoolFull"))
    return cluster


async def test_it_is_told_once_why_and_served_when_the_holder_is_deleted() -> None:
    cluster = await build_waiting()
    await cluster.pass_time(600)
    assert cluster.reasons("web") == ["SyncLoadBalancerFailed"]
    assert "cidr-global" in cluster.message()
    cluster.delete("first")
    await cluster.settle()
    assert (cluster.addresses(), cluster.condition()) == (X, ("True", "Assigned"))
    assert cluster.reasons("web") == ["SyncLoadBalancerFailed", "AddressAssigned"]


@pytest.mark.parametrize(
    ("keys", "by_operator", "said"),
    [
        (ONE, True, "Delete unused Services, or ask an administrator of the fleet for another IPv4 address"),
        (ONE, False, "ask an administrator of this cluster for another IPv4 address in this key"),
        ({"cidr-global": "fd00::1-fd00::1"}, True, "Ask an administrator of the fleet for an IPv4 address"),
        (
            {"cidr-global": "fd00::1-fd00::1"},
            False,
            "Ask an administrator of this cluster for an IPv4 address",
        ),
        ({"cidr-global": ""}, False, "Only an administrator of this cluster can change that"),
        ({**ONE, "draining-global": "true"}, True, "Only an administrator of this cluster can change that"),
        (
            {},
            False,
            "Ask an administrator of the fleet for a floating IP, or an administrator of this cluster",
        ),
    ],
)
async def test_its_message_names_who_can_write_the_key(
    keys: dict[str, str], by_operator: bool, said: str
) -> None:
    cluster = ServiceCluster({})
    cluster.set_keys(keys, by_operator=by_operator)
    cluster.add("first")
    await cluster.start()
    cluster.add()
    await cluster.settle()
    assert said in cluster.message()
    assert ("operator writes this key" in cluster.message()) is (
        by_operator and "draining-global" not in keys
    )


async def test_a_value_of_ignore_that_means_nothing_is_warned_of() -> None:
    cluster = ServiceCluster(ONE)
    cluster.add(metadata={"annotations": {"kube-vip.io/ignore": "True"}})
    await cluster.start()
    assert (cluster.addresses(), cluster.reasons("web")) == (X, ["AnnotationUnusual", "AddressAssigned"])


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("kube-vip.io/loadbalancerIP", "kube-vip.io/loadbalancerIPs"),
        ("kube-vip.io/LoadBalancerIPs", "kube-vip.io/loadbalancerIPs"),
        ("kubefip.k8s.binbash.org/pools", "kubefip.k8s.binbash.org/pool"),
        ("kubefip.k8s.binbash.org/Share", "kubefip.k8s.binbash.org/share"),
    ],
)
async def test_an_annotation_that_is_one_letter_off_is_warned_of(key: str, meant: str) -> None:
    cluster = ServiceCluster({"cidr-global": "10.0.0.0/24"})
    cluster.add(metadata={"annotations": {key: "10.0.0.9"}})
    await cluster.start()
    assert cluster.reasons("web") == ["AnnotationUnusual", "AddressAssigned"]
    said = f"The annotation {key} is not known: did you mean {meant}?"
    assert said in [message for *_, message in cluster.events("web")]


async def test_the_annotations_of_kube_vip_that_fipop_does_not_read_are_not_warned_of() -> None:
    cluster = ServiceCluster(ONE)
    own = (
        "loadbalancerHostname",
        "vipHost",
        "hwaddr",
        "requestedIP",
        "egress",
        "leaseName",
        "serviceInterface",
    )
    cluster.add(metadata={"annotations": {f"kube-vip.io/{each}": "x" for each in own}})
    await cluster.start()
    assert cluster.reasons("web") == ["AddressAssigned"]


async def test_it_is_served_when_the_holder_is_no_load_balancer_any_more() -> None:
    cluster = await build_waiting()
    cluster.change("first", type="ClusterIP")
    await cluster.settle()
    assert (cluster.addresses(), cluster.shown("first")) == (X, {})


async def test_it_is_served_when_the_holder_moves_to_another_address() -> None:
    cluster = await build_waiting()
    cluster.change("first", loadBalancerIP="192.0.2.1")
    await cluster.settle()
    assert (cluster.addresses(), cluster.addresses("first")) == (X, "192.0.2.1")


async def test_it_is_served_when_the_pool_grows() -> None:
    cluster = await build_waiting()
    cluster.set_keys({"cidr-global": "10.0.0.1-10.0.0.2"})
    await cluster.settle()
    assert cluster.addresses() == "10.0.0.2"


async def test_it_is_served_when_its_user_asks_for_an_address() -> None:
    cluster = await build_waiting()
    cluster.change(loadBalancerIP="192.0.2.7")
    await cluster.settle()
    assert (cluster.addresses(), cluster.condition()[0] != "False") == ("192.0.2.7", True)


async def test_an_address_that_another_service_has_is_granted_when_it_is_free() -> None:
    cluster = ServiceCluster({"cidr-global": "10.0.0.1-10.0.0.9"})
    cluster.add()
    cluster.add("other")
    await cluster.start()
    mine, theirs = cluster.addresses(), cluster.addresses("other")
    cluster.change(loadBalancerIP=theirs)
    await cluster.settle()
    assert (cluster.addresses(), cluster.condition()[1]) == (mine, "AddressInUse")
    assert "shop/other" in cluster.message()
    cluster.delete("other")
    await cluster.settle()
    assert cluster.addresses() == theirs


async def test_as_many_as_there_are_addresses_are_served_at_once() -> None:
    cluster = ServiceCluster({"cidr-global": "10.0.0.1-10.0.0.100"})
    await cluster.start()
    for number in range(120):
        cluster.add(f"web-{number}", namespace=f"n{number % 7}")
    await cluster.settle()
    found = [cluster.addresses(f"web-{number}", namespace=f"n{number % 7}") for number in range(120)]
    served = [each for each in found if each]
    assert (len(served), len(set(served))) == (100, 100)
    assert cluster.problems == []


async def test_the_condition_stands_beside_those_of_others_and_its_time_is_that_of_its_status() -> None:
    theirs = {"type": "example.org/Theirs", "status": "True", "reason": "R", "message": ""}
    cluster = ServiceCluster({})
    cluster.add()
    key = ("services", "shop", "web")
    cluster.memory.put(key, {**cluster.service(), "status": {"conditions": [theirs]}})
    await cluster.start()

    def transition() -> str:
        conditions = cluster.service()["status"]["conditions"]
        assert theirs in conditions
        return str(next(each["lastTransitionTime"] for each in conditions if each["type"] == CONDITION))

    since = transition()
    await cluster.pass_time(60)
    cluster.set_keys({"cidr-global": "nonsense"})
    await cluster.settle()
    assert (transition(), cluster.condition()[0]) == (since, "False")
    cluster.set_keys(ONE)
    await cluster.settle()
    assert transition() > since
    cluster.change(type="ClusterIP")
    await cluster.settle()
    assert cluster.service()["status"]["conditions"] == [theirs]
