"""A Service that is deleted and created again under its name gets its address back (key `sticky-seconds`)."""

from tests.harness.service_cluster import ServiceCluster

POOL = {"cidr-global": "10.0.0.1-10.0.0.9"}
STICKY = {**POOL, "sticky-seconds": "600"}
X, Y, Z = "10.0.0.1", "10.0.0.2", "10.0.0.3"
REMEMBERED = ("configmaps", "kube-system", "fipop-sticky")


async def build(data: dict[str, str]) -> ServiceCluster:
    """Return a cluster in which Service first has X, web has Y, and both are deleted, the first one last."""
    cluster = ServiceCluster(data)
    cluster.add("first")
    await cluster.start()
    cluster.add()
    await cluster.settle()
    assert (cluster.addresses("first"), cluster.addresses()) == (X, Y)
    cluster.delete("web")
    await cluster.settle()
    cluster.delete("first")
    await cluster.settle()
    return cluster


async def test_it_gets_its_former_address_though_another_one_is_first() -> None:
    cluster = await build(STICKY)
    cluster.add()
    await cluster.settle()
    assert cluster.addresses() == Y
    assert cluster.problems == []


async def test_without_the_key_it_gets_the_first_that_is_free_and_nothing_is_written() -> None:
    cluster = await build(POOL)
    cluster.add()
    await cluster.settle()
    assert cluster.addresses() == X
    assert REMEMBERED not in cluster.memory.objects


async def test_after_that_time_it_gets_the_first_that_is_free() -> None:
    cluster = await build(STICKY)
    await cluster.pass_time(601)
    cluster.add()
    await cluster.settle()
    assert cluster.addresses() == X


async def test_an_address_that_another_service_has_by_now_stays_there() -> None:
    cluster = await build(STICKY)
    cluster.add("other", loadBalancerIP=Y)
    cluster.add()
    await cluster.settle()
    assert (cluster.addresses("other"), cluster.addresses()) == (Y, X)
    assert cluster.problems == []


async def test_an_address_that_is_not_in_the_pool_any_more_is_not_assigned() -> None:
    cluster = await build(STICKY)
    cluster.set_keys({**STICKY, "cidr-global": "10.0.0.3-10.0.0.9"})
    cluster.add()
    await cluster.settle()
    assert cluster.addresses() == Z


async def test_a_service_of_the_same_name_in_another_namespace_is_another_one() -> None:
    cluster = await build(STICKY)
    cluster.add(namespace="other")
    await cluster.settle()
    assert cluster.addresses(namespace="other") == X


async def test_the_next_leader_knows_it() -> None:
    cluster = await build(STICKY)
    await cluster.stop()
    await cluster.start()
    cluster.add()
    await cluster.settle()
    assert cluster.addresses() == Y


async def test_what_a_policy_refuses_to_have_remembered_is_an_event_and_is_written_when_it_is_allowed() -> (
    None
):
    cluster = ServiceCluster(STICKY)
    cluster.add("first")
    running = await cluster.start()
    cluster.add()
    await cluster.settle()
    running.link.refuse = lambda verb, target, _: (verb, target.plural) == ("create", "configmaps")
    cluster.delete()
    await cluster.pass_time(150)
    assert cluster.reasons("fipop-sticky") == ["WriteRefused"]
    running.link.refuse = lambda *_: False
    await cluster.pass_time(70)
    cluster.delete("first")
    await cluster.stop()
    await cluster.start()
    cluster.add()
    await cluster.settle()
    assert cluster.addresses() == Y


async def test_both_families_come_back() -> None:
    dual = {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}
    cluster = ServiceCluster({"cidr-global": "10.0.0.1-10.0.0.9,fd00::1-fd00::9", "sticky-seconds": "600"})
    cluster.add("first", **dual)
    await cluster.start()
    cluster.add(**dual)
    await cluster.settle()
    had = cluster.addresses()
    cluster.delete("web")
    cluster.delete("first")
    await cluster.settle()
    cluster.add(**dual)
    await cluster.settle()
    assert (cluster.addresses(), had) == (had, "10.0.0.2,fd00::2")


async def test_at_most_256_services_are_remembered_the_last_ones() -> None:
    cluster = ServiceCluster({"cidr-global": "10.0.0.0/22", "sticky-seconds": "600"})
    for number in range(300):
        cluster.add(f"web-{number}")
    await cluster.start()
    await cluster.settle()
    for number in range(300):
        cluster.delete(f"web-{number}")
        await cluster.pass_time(0.01)
    await cluster.settle()
    data = cluster.memory.objects[REMEMBERED]["data"]
    assert (len(data), "shop.web-299" in data, "shop.web-0" in data) == (256, True, False)


async def test_services_that_their_users_gave_an_address_are_not_remembered() -> None:
    cluster = ServiceCluster(STICKY)
    cluster.add(loadBalancerIP=Z)
    await cluster.start()
    cluster.delete("web")
    await cluster.settle()
    cluster.add()
    await cluster.settle()
    assert cluster.addresses() == X
