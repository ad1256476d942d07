"""Addresses of nodes, of the API server and of externalIPs are never assigned."""

from typing import Any

import pytest

from fipop.interfaces import ApiRequest
from localfleet.simulated import Target
from tests.harness.service_cluster import ServiceCluster

POOL = {"cidr-global": "10.0.0.1-10.0.0.9,2001:db8::1-2001:db8::9"}


def add_node(cluster: ServiceCluster, name: str, *addresses: tuple[str, str]) -> None:
    status = {"addresses": [{"type": kind, "address": address} for kind, address in addresses]}
    cluster.memory.put(("nodes", "", name), {"metadata": {}, "status": status})


async def test_the_first_internal_and_external_address_of_each_family_of_a_node_is_in_use() -> None:
    cluster = ServiceCluster(POOL)
    add_node(
        cluster,
        "one",
        ("InternalIP", "10.0.0.1"),
        ("InternalIP", "2001:db8::1"),
        ("ExternalIP", "10.0.0.2"),
        ("Hostname", "one"),
        ("InternalIP", "10.0.0.4"),
    )
    add_node(cluster, "two", ("InternalIP", "10.0.0.3"))
    cluster.add(ipFamilyPolicy="RequireDualStack")
    await cluster.start()
    assert cluster.addresses() == "10.0.0.4,2001:db8::2"


async def test_nodes_that_come_later_count_within_five_minutes_and_those_that_go_are_free() -> None:
    cluster = ServiceCluster({"cidr-global": "10.0.0.1-10.0.0.2"})
    add_node(cluster, "one", ("InternalIP", "10.0.0.1"))
    await cluster.start()
    add_node(cluster, "two", ("InternalIP", "10.0.0.2"))
    await cluster.pass_time(310)
    cluster.add()
    await cluster.settle()
    assert cluster.condition() == ("False", "PoolFull")
    cluster.memory.remove(("nodes", "", "one"))
    await cluster.pass_time(310)
    assert cluster.addresses() == "10.0.0.1"


async def test_the_endpoints_of_the_api_server_are_in_use() -> None:
    cluster = ServiceCluster(POOL)
    subsets = [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 6443}]}]
    cluster.memory.put(("endpoints", "default", "kubernetes"), {"metadata": {}, "subsets": subsets})
    cluster.add()
    await cluster.start()
    assert cluster.addresses() == "10.0.0.2"


async def test_external_ips_of_any_service_are_in_use() -> None:
    cluster = ServiceCluster(POOL)
    cluster.add("internal", type="ClusterIP", externalIPs=["10.0.0.1", "odd"])
    cluster.add()
    await cluster.start()
    assert cluster.addresses() == "10.0.0.2"


async def test_a_node_address_that_a_user_asks_for_is_refused_by_name() -> None:
    cluster = ServiceCluster(POOL)
    add_node(cluster, "one", ("InternalIP", "10.0.0.9"))
    cluster.add()
    await cluster.start()
    cluster.change(loadBalancerIP="10.0.0.9")
    await cluster.settle()
    assert (cluster.addresses(), cluster.condition()) == ("10.0.0.1", ("True", "AddressInUse"))
    assert "Node one" in cluster.message()


@pytest.mark.parametrize("plural", ["nodes", "endpoints"])
async def test_without_the_right_to_read_them_services_are_served(plural: str) -> None:
    def refuse(_verb: str, target: Target, _request: ApiRequest) -> bool:
        return target.plural == plural

    cluster = ServiceCluster(POOL)
    cluster.add()
    cluster.begin().link.refuse = refuse
    await cluster.pass_time(5)
    assert cluster.addresses() == "10.0.0.1"


@pytest.mark.parametrize(
    ("data", "spec", "expected"),
    [
        ({"cidr-global": "0.0.0.0/32"}, {"ipFamilyPolicy": "RequireDualStack"}, "0.0.0.0"),
        ({"cidr-global": "0.0.0.0/32,::/128"}, {"ipFamilyPolicy": "RequireDualStack"}, "0.0.0.0,::"),
        ({"cidr-global": "0.0.0.0/32,::/128"}, {"ipFamilies": ["IPv6"]}, "::"),
        ({"cidr-global": "0.0.0.0/32, 10.0.0.0/29"}, {}, ""),
    ],
)
async def test_a_pool_of_dhcp_gives_what_it_says_and_never_conflicts(
    data: dict[str, str], spec: dict[str, Any], expected: str
) -> None:
    cluster = ServiceCluster(data)
    cluster.add(**spec)
    cluster.add("other", **spec)
    cluster.add("static", a="0.0.0.0,::")
    await cluster.start()
    assert (cluster.addresses(), cluster.addresses("other")) == (expected, expected)
    assert "AddressInUse" not in cluster.reasons()
    assert cluster.condition() == (("", "") if expected else ("False", "PoolUnusable"))
