"""Services that share an address name one Lease, by which kube-vip has one node announce it."""

import asyncio
from typing import Any

import pytest

from fipop.interfaces import ApiRequest
from localfleet.simulated import Target
from tests.harness.api_in_memory import Commit, copy_json
from tests.harness.service_cluster import ServiceCluster
from tests.harness.service_rows import LEASE, LEASE_NAME, LEASE_NOTE, SHARE

KEYS = {"cidr-global": "10.0.0.1-10.0.0.9"}
SHARED = {**KEYS, "allow-share-global": "true"}
GROUP = {"annotations": {SHARE: "front"}}
MANAGER = {"manager": "pruner", "operation": "Update", "time": "2026-01-01T00:00:00Z"}


def leases(cluster: ServiceCluster) -> list[str]:
    """Return what the Services name, in the order of their names."""
    return [
        cluster.annotation(LEASE_NAME, name, namespace=namespace)
        for _, namespace, name in sorted(cluster.stored_keys())
    ]


async def start_group(*, data: dict[str, str] = KEYS, **spec: Any) -> ServiceCluster:
    """Return a cluster in which Services one and two share an address."""
    cluster = ServiceCluster(data)
    await cluster.start()
    for number, name in enumerate(("one", "two")):
        cluster.add(name, ports=[80 + number], metadata=GROUP, **spec)
        await cluster.settle()
    return cluster


async def test_it_costs_the_first_of_them_one_write_and_the_others_none() -> None:
    cluster = await start_group()
    assert leases(cluster) == [LEASE, LEASE]
    version = cluster.memory.version
    cluster.add("three", ports=[443], metadata=GROUP)
    await cluster.pass_time(60)
    assert [each.key[2] for each in cluster.writes_of_services(version)] == ["three", "three"], (
        "made, assigned"
    )
    assert leases(cluster) == [LEASE, LEASE, LEASE]


async def test_services_of_several_namespaces_name_the_same() -> None:
    cluster = ServiceCluster(SHARED)
    cluster.add("one", ports=[80])
    cluster.add("two", ports=[81], namespace="lab")
    await cluster.start()
    assert leases(cluster) == [LEASE, LEASE]


async def test_the_lease_is_in_the_namespace_of_the_config_map_and_its_name_is_valid_for_both_families() -> (
    None
):
    dual = {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"]}
    cluster = await start_group(data={"cidr-global": "10.0.0.1-10.0.0.9,fd00::/120"}, **dual)
    assert cluster.addresses("two") == "fd00::1,10.0.0.1"
    assert leases(cluster) == [LEASE, LEASE]


async def test_a_service_that_shares_with_none_is_written_once() -> None:
    cluster = ServiceCluster(SHARED)
    await cluster.start()
    cluster.add("one", ports=[80], metadata=GROUP)
    version = cluster.memory.version
    await cluster.pass_time(600)
    assert len(cluster.writes_of_services(version)) == 1
    assert leases(cluster) == [""]


async def test_a_restart_writes_no_service() -> None:
    cluster = await start_group()
    version = cluster.memory.version
    await cluster.restart()
    await cluster.pass_time(600)
    assert cluster.writes_of_services(version) == []


async def test_a_consent_that_goes_leaves_the_lease_and_a_restart_does_so_too() -> None:
    cluster = ServiceCluster(SHARED)
    cluster.add("one", ports=[80])
    cluster.add("two", ports=[81])
    await cluster.start()
    version = cluster.memory.version
    cluster.set_keys(KEYS)
    await cluster.settle()
    await cluster.restart()
    await cluster.pass_time(600)
    assert cluster.writes_of_services(version) == []
    assert leases(cluster) == [LEASE, LEASE]


async def test_two_that_have_one_address_by_hand_and_may_not_share_it_name_none() -> None:
    cluster = ServiceCluster(KEYS)
    cluster.add("one", loadBalancerIP="10.0.0.5")
    cluster.add("two", loadBalancerIP="10.0.0.5", ports=[81])
    await cluster.start()
    assert leases(cluster) == ["", ""]


async def test_a_service_of_another_class_keeps_the_others_from_naming_one() -> None:
    cluster = await start_group(data=SHARED)
    cluster.add("they", a="10.0.0.1", ports=[8443], loadBalancerClass="example.org/other")
    await cluster.settle()
    assert leases(cluster) == ["", "", ""]


async def test_external_ips_of_another_service_which_kube_vip_never_announces_take_no_lease_away() -> None:
    cluster = await start_group()
    cluster.add("internal", namespace="lab", type="ClusterIP", externalIPs=["10.0.0.1"])
    await cluster.settle()
    assert leases(cluster) == ["", LEASE, LEASE]


async def test_a_lease_of_a_user_is_never_touched() -> None:
    cluster = ServiceCluster(SHARED)
    cluster.add("one", ports=[80], metadata={"annotations": {LEASE_NAME: "mine"}})
    cluster.add("two", ports=[81])
    await cluster.start()
    assert cluster.addresses("one") == cluster.addresses("two")
    assert leases(cluster) == ["mine", ""]
    cluster.delete("two")
    cluster.change("one", type="ClusterIP")
    await cluster.settle()
    assert leases(cluster) == ["mine"]


async def test_a_user_who_names_another_one_takes_it_over() -> None:
    cluster = await start_group()
    for name in ("one", "two"):
        cluster.change(name, annotations={LEASE_NAME: "mine"})
    await cluster.settle()
    cluster.delete("two")
    await cluster.settle()
    assert leases(cluster) == ["mine"]


async def test_one_that_is_being_deleted_keeps_its_lease_and_so_does_the_other_until_it_is_gone() -> None:
    cluster = await start_group()
    cluster.change("two", metadata={"finalizers": ["example.org/slow"]})
    cluster.delete("two")
    await cluster.settle()
    assert leases(cluster) == [LEASE, LEASE]
    cluster.memory.remove(("services", "shop", "two"))
    await cluster.settle()
    assert leases(cluster) == [""]


async def test_sharers_that_come_and_go_are_no_other_controller() -> None:
    cluster = await start_group()
    for _ in range(5):
        cluster.delete("two")
        await cluster.settle()
        assert leases(cluster) == [""]
        cluster.add("two", ports=[81], metadata=GROUP)
        await cluster.settle()
        assert leases(cluster) == [LEASE, LEASE]
    assert "AnotherController" not in cluster.reasons()


@pytest.mark.parametrize("takes_note", [True, False])
async def test_a_writer_that_removes_it_again_and_again_is_waited_for(*, takes_note: bool) -> None:
    cluster = await start_group()
    key, loop, times = ("services", "shop", "one"), asyncio.get_running_loop(), list[float]()

    def remove() -> None:
        obj = copy_json(cluster.memory.objects[key])
        obj["metadata"]["annotations"].pop(LEASE_NAME, None)
        if takes_note:
            obj["metadata"]["annotations"].pop(LEASE_NOTE, None)
        obj["metadata"]["managedFields"] = [MANAGER]
        cluster.judge.by_people.add(cluster.memory.version + 1)
        cluster.memory.put(key, obj)

    def hear(commit: Commit) -> None:
        if commit.key == key and commit.obj is not None and "managedFields" not in commit.obj["metadata"]:
            times.append(loop.time())
            loop.call_later(0.1, remove)

    cluster.memory.listeners.append(hear)
    remove()
    await cluster.pass_time(600)
    assert 4 <= len(times) <= 9
    assert cluster.reasons("one").count("AnotherController") == 1
    version = cluster.memory.version
    cluster.change("one", loadBalancerIP="10.0.0.7")
    await cluster.settle()
    assert cluster.addresses("one") == "10.0.0.7", "a pause holds up no request of a user"
    assert len(cluster.writes_of_services(version)) <= 4


async def test_a_writer_that_writes_it_again_and_again_into_one_that_shares_with_none_is_waited_for() -> None:
    cluster = ServiceCluster(KEYS)
    cluster.add("one")
    await cluster.start()
    key, loop, times = ("services", "shop", "one"), asyncio.get_running_loop(), list[float]()

    def write() -> None:
        cluster.change("one", annotations={LEASE_NAME: LEASE, LEASE_NOTE: LEASE})

    def hear(commit: Commit) -> None:
        if commit.key == key and commit.obj is not None and not cluster.annotation(LEASE_NAME, "one"):
            times.append(loop.time())
            loop.call_later(0.1, write)

    cluster.memory.listeners.append(hear)
    write()
    await cluster.pass_time(600)
    assert 4 <= len(times) <= 9
    assert cluster.reasons("one").count("AnotherController") == 1


async def test_a_service_that_names_it_without_the_note_keeps_it_and_so_do_the_others() -> None:
    cluster = await start_group()
    version = cluster.memory.version
    cluster.change("one", annotations={LEASE_NOTE: None})
    await cluster.settle()
    await cluster.restart()
    assert leases(cluster) == [LEASE, LEASE]
    assert len(cluster.writes_of_services(version)) == 1, "the user's"


async def test_a_service_that_becomes_local_in_a_pause_loses_it_at_once() -> None:
    cluster = await start_group()
    for _ in range(4):
        cluster.change("one", loadBalancerIP=None)
        await cluster.settle()
    assert "AnotherController" in cluster.reasons("one")
    cluster.change("one", externalTrafficPolicy="Local")
    await cluster.settle()
    assert leases(cluster) == ["", ""]


async def test_a_policy_that_refuses_to_have_it_written_is_reported_and_the_condition_is_written_once() -> (
    None
):
    cluster = ServiceCluster(KEYS)
    running = await cluster.start()
    cluster.add("one", ports=[80], metadata=GROUP)
    await cluster.settle()

    def refuse(_verb: str, target: Target, request: ApiRequest) -> bool:
        return request.method == "PUT" and target.name == "one" and not target.subresource

    running.link.refuse = refuse
    cluster.add("two", ports=[81], metadata=GROUP)
    await cluster.settle()
    assert cluster.condition("one") == ("True", "WriteRefused")
    version = cluster.memory.version
    await cluster.pass_time(600)
    assert cluster.writes_of_services(version) == []
    running.link.refuse = lambda *_: False
    await cluster.pass_time(1200)
    assert leases(cluster) == [LEASE, LEASE]
    assert cluster.condition("one") == ("True", "Assigned")
