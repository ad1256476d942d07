"""Which pool serves a namespace, what it assigns, and what a change of the ConfigMap does."""

import pytest

from tests.harness.service_cluster import INTERFACE, ServiceCluster

POOL = {"cidr-global": "10.0.0.1-10.0.0.4"}


async def test_the_first_key_of_a_namespace_that_is_there_is_its_pool() -> None:
    cluster = ServiceCluster(
        {
            "cidr-shop": "10.1.0.8/30",
            "range-shop": "10.9.0.1-10.9.0.9",
            "range-lab": "10.2.0.5-10.2.0.9",
            "cidr-dmz": "10.4.0.8/30",
            "namespaces-dmz": "bank, club",
            "cidr-global": "10.3.0.8/30",
            "range-global": "10.9.1.1-10.9.1.9",
            "interface-lab": "eth1",
            "interface-global": "eth0",
        }
    )
    namespaces = ("shop", "lab", "bank", "club", "home")
    for namespace in namespaces:
        cluster.add(namespace=namespace)
    await cluster.start()
    assert [cluster.addresses(namespace=each) for each in namespaces] == [
        "10.1.0.8",
        "10.2.0.5",
        "10.4.0.8",
        "10.4.0.9",
        "10.3.0.8",
    ]
    assert cluster.annotation(INTERFACE, namespace="lab") == "eth1"
    assert cluster.annotation(INTERFACE, namespace="home") == "eth0"


async def test_a_full_pool_is_not_left_for_the_global_one() -> None:
    cluster = ServiceCluster({"cidr-shop": "10.1.0.1-10.1.0.1", **POOL})
    cluster.add("first")
    await cluster.start()
    cluster.add("second")
    await cluster.settle()
    assert (cluster.addresses("second"), cluster.condition("second")) == ("", ("False", "PoolFull"))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"cidr-global": "10.0.0.0/24"}, ["10.0.0.1", "10.0.0.2"]),
        ({"cidr-global": "10.0.0.0/24", "search-order": "desc"}, ["10.0.0.254", "10.0.0.253"]),
        ({"cidr-global": "10.0.0.8/30", "skip-end-ips-in-cidr": "true"}, ["10.0.0.9", "10.0.0.10"]),
        ({"range-global": "10.0.0.8-10.0.0.11", "exclude-global": "10.0.0.9"}, ["10.0.0.8", "10.0.0.10"]),
        ({"range-global": "10.0.0.0-10.0.0.1"}, ["10.0.0.0", "10.0.0.1"]),
        ({"cidr-global": " 10.0.0.7 - 10.0.0.7 , 10.0.1.0/31 "}, ["10.0.0.7", "10.0.1.0"]),
        ({"cidr-global": "0.0.0.0/32"}, ["0.0.0.0", "0.0.0.0"]),
    ],
    ids=lambda value: ",".join(value.values()) if isinstance(value, dict) else "",
)
async def test_a_pool_is_assigned_in_its_order(data: dict[str, str], expected: list[str]) -> None:
    cluster = ServiceCluster(data)
    await cluster.start()
    for number in range(2):
        cluster.add(f"web-{number}")
        await cluster.settle()
    assert [cluster.addresses(name) for name in cluster.names()] == expected


async def test_no_address_that_a_service_has_in_any_way_is_assigned() -> None:
    cluster = ServiceCluster({"cidr-global": "10.0.0.1-10.0.0.9"})
    cluster.add("annotated", a="10.0.0.1", namespace="lab")
    cluster.add("requested", loadBalancerIP="10.0.0.2")
    cluster.add("theirs", loadBalancerClass="example.org/other", has=["10.0.0.3"])
    cluster.add("mixed", a="lb.example.org, 10.0.0.4 ,0.0.0.0")
    cluster.add()
    await cluster.start()
    assert cluster.addresses() == "10.0.0.5"


async def test_a_pool_that_is_changed_drained_or_removed_moves_no_service() -> None:
    cluster = ServiceCluster(POOL)
    cluster.add()
    await cluster.start()
    version = cluster.memory.version
    for data in ({"cidr-global": "10.9.0.0/24"}, {**POOL, "draining-global": "true"}, {}):
        cluster.set_keys(data)
        await cluster.settle()
    assert cluster.addresses() == "10.0.0.1"
    assert cluster.writes_of_services(version) == []


async def test_a_draining_pool_assigns_nothing_until_it_drains_no_more() -> None:
    cluster = ServiceCluster({**POOL, "draining-global": "true"})
    cluster.add()
    await cluster.start()
    assert (cluster.addresses(), cluster.condition()[0]) == ("", "False")
    assert "draining-global" in cluster.message()
    cluster.set_keys(POOL)
    await cluster.settle()
    assert (cluster.addresses(), cluster.condition()) == ("10.0.0.1", ("True", "Assigned"))


async def test_a_config_map_that_is_missing_is_created_and_one_that_comes_serves_at_once() -> None:
    cluster = ServiceCluster()
    cluster.add()
    await cluster.start()
    assert ("configmaps", "kube-system", "kubevip") in cluster.memory.objects
    assert cluster.condition() == ("False", "NoPool")
    cluster.set_keys(POOL)
    await cluster.settle()
    assert cluster.addresses() == "10.0.0.1"


async def test_a_config_map_that_is_deleted_moves_no_service() -> None:
    cluster = ServiceCluster(POOL)
    cluster.add()
    await cluster.start()
    cluster.memory.remove(("configmaps", "kube-system", "kubevip"))
    await cluster.settle()
    cluster.add("later")
    await cluster.settle()
    assert (cluster.addresses(), cluster.condition("later")) == ("10.0.0.1", ("False", "NoPool"))


async def test_an_invalid_key_is_reported_once_for_each_fault_and_harms_no_other() -> None:
    cluster = ServiceCluster({"cidr-shop": "nonsense", **POOL})
    cluster.add()
    cluster.add(namespace="lab")
    await cluster.start()
    assert cluster.addresses(namespace="lab") == "10.0.0.1"
    assert (cluster.addresses(), cluster.condition()[0]) == ("", "False")
    assert "cidr-shop" in cluster.message()
    cluster.set_keys({"cidr-shop": "nonsense", **POOL, "search-order": "desc"})
    await cluster.settle()
    assert cluster.reasons("kubevip") == ["KeyInvalid"]
    cluster.set_keys({"cidr-shop": "10.0.0.0/99", **POOL})
    await cluster.settle()
    assert cluster.reasons("kubevip") == ["KeyInvalid", "KeyInvalid"]
    assert all("cidr-shop" in message for _, _, message in cluster.events("kubevip"))


async def test_data_of_any_shape_stops_no_provider() -> None:
    cluster = ServiceCluster(POOL)
    running = await cluster.start()
    for data in (["no", "mapping"], None, {"cidr-global": 7}):
        cluster.memory.put(("configmaps", "kube-system", "kubevip"), {"metadata": {}, "data": data})
        await cluster.settle()
    cluster.set_keys(POOL)
    cluster.add()
    await cluster.settle()
    assert running.is_alive
    assert cluster.addresses() == "10.0.0.1"


async def test_five_thousand_pools_serve_their_namespaces() -> None:
    data = {f"cidr-n{number}": f"10.{number // 250}.{number % 250}.0/24" for number in range(5000)}
    cluster = ServiceCluster(data)
    cluster.add(namespace="n0")
    cluster.add(namespace="n4999")
    await cluster.start()
    assert cluster.addresses(namespace="n0") == "10.0.0.1"
    assert cluster.addresses(namespace="n4999") == "10.19.249.1"
