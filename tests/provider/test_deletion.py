"""A deleted Service loses the finalizer, and its address is free when it is gone."""

from tests.harness.service_cluster import FINALIZER, ServiceCluster

ONE = {"cidr-global": "10.0.0.1-10.0.0.1"}
OTHERS = "example.org/held"
CLASS, OTHER_CLASS = "kube-vip.io/kube-vip-class", "example.org/other"


async def test_its_address_is_free_when_the_last_finalizer_is_gone() -> None:
    cluster = ServiceCluster(ONE)
    cluster.add(metadata={"finalizers": [OTHERS]})
    await cluster.start()
    cluster.delete()
    cluster.add("next")
    await cluster.settle()
    assert cluster.service()["metadata"]["finalizers"] == [OTHERS]
    assert cluster.addresses("next") == ""
    cluster.change(metadata={"finalizers": []})
    cluster.memory.remove(("services", "shop", "web"))
    await cluster.settle()
    assert cluster.addresses("next") == "10.0.0.1"


async def test_one_with_an_address_of_its_user_goes_too() -> None:
    cluster = ServiceCluster(ONE)
    cluster.add(a="192.0.2.1", loadBalancerIP="192.0.2.1")
    cluster.add("annotated", a="192.0.2.2")
    await cluster.start()
    for name in ("web", "annotated"):
        cluster.delete(name)
    await cluster.settle()
    assert cluster.names() == []


async def test_one_that_was_deleted_while_no_provider_ran_goes_when_one_starts() -> None:
    cluster = ServiceCluster(ONE)
    cluster.add()
    await cluster.start()
    await cluster.stop()
    cluster.delete()
    cluster.add("next")
    await cluster.start()
    assert cluster.names() == ["next"]
    assert cluster.addresses("next") == "10.0.0.1"


async def test_one_that_waits_goes_at_once() -> None:
    cluster = ServiceCluster({})
    cluster.add()
    cluster.add("held", metadata={"finalizers": [FINALIZER]})
    await cluster.start()
    for name in ("web", "held"):
        cluster.delete(name)
    await cluster.settle()
    assert cluster.names() == []


async def test_one_that_changed_its_type_at_the_same_time_goes() -> None:
    cluster = ServiceCluster(ONE)
    cluster.add()
    await cluster.start()
    cluster.change(type="ClusterIP")
    cluster.delete()
    await cluster.settle()
    assert cluster.names() == []


async def test_of_one_of_a_class_now_the_finalizer_goes_and_nothing_else() -> None:
    cluster = ServiceCluster(ONE)
    cluster.add(metadata={"finalizers": [OTHERS]})
    await cluster.start()
    shown = cluster.shown()
    cluster.change(loadBalancerClass=OTHER_CLASS)
    await cluster.settle()
    assert cluster.shown() == shown
    cluster.delete()
    await cluster.pass_time(600)
    assert cluster.service()["metadata"]["finalizers"] == [OTHERS]
    assert cluster.shown() == {key: value for key, value in shown.items() if key != "F"}


async def test_the_finalizer_of_another_provider_stays_while_its_service_lives() -> None:
    cluster = ServiceCluster(ONE)
    cluster.add(loadBalancerClass=OTHER_CLASS, metadata={"finalizers": [FINALIZER]})
    await cluster.start()
    await cluster.pass_time(600)
    assert cluster.shown() == {"F": True}
