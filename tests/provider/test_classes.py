"""One provider serves the Services of one class, or those without one; the addresses of all others are in use."""

from tests.harness.service_cluster import ServiceCluster

POOL = {"cidr-global": "10.0.0.1-10.0.0.4"}
CLASS, OTHER_CLASS = "kube-vip.io/kube-vip-class", "example.org/other"


def add_one_of_each(cluster: ServiceCluster) -> None:
    cluster.add("theirs", loadBalancerClass=OTHER_CLASS, has=["10.0.0.1"])
    cluster.add("none")
    cluster.add("ours", loadBalancerClass=CLASS)


async def test_without_a_class_only_services_without_one_are_served() -> None:
    cluster = ServiceCluster(POOL)
    add_one_of_each(cluster)
    await cluster.start()
    assert [cluster.addresses(name) for name in ("theirs", "none", "ours")] == ["", "10.0.0.2", ""]
    assert cluster.events("theirs") == []


async def test_with_a_class_only_services_of_it_are_served() -> None:
    cluster = ServiceCluster(POOL)
    add_one_of_each(cluster)
    await cluster.start(classes=frozenset({CLASS}))
    assert [cluster.addresses(name) for name in ("theirs", "none", "ours")] == ["", "", "10.0.0.2"]


async def test_after_the_class_changed_the_addresses_of_the_former_stay_in_use() -> None:
    cluster = ServiceCluster(POOL)
    add_one_of_each(cluster)
    await cluster.start()
    await cluster.restart(classes=frozenset({CLASS}))
    assert [cluster.addresses(name) for name in ("theirs", "none", "ours")] == ["", "10.0.0.2", "10.0.0.3"]
