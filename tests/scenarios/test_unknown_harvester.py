"""A Harvester cluster that Rancher does not have, and one that a guest cluster's objects do not name yet."""

from fipop.kube.resources import (
    FLOATING_IP_RANGES,
    FLOATING_IPS,
    HARVESTER_CONFIGS,
    MANAGEMENT_CLUSTERS,
)
from tests.harness.recorded_events import RecordedEvents
from tests.harness.small_cluster import WORKSPACE
from tests.harness.small_operator import SmallOperator
from tests.harness.virtual_time import in_virtual_time

A = "c-m-a"
EVERY_GUEST = {"matchLabels": {}}


def ready(operator: SmallOperator) -> tuple[str, str]:
    conditions = operator.memory.objects[FLOATING_IP_RANGES.plural, "", "pool"]["status"]["conditions"]
    found = next(each for each in conditions if each["type"] == "Ready")
    return found["status"], found["reason"]


async def test_a_range_made_before_its_harvester_is_imported_stays_ready_and_tells_until_then() -> None:
    operator = SmallOperator()
    operator.add_range(harvester="harvester-1")
    operator.add_guest("c-m-a")
    await operator.start()
    assert ready(operator) == ("True", "HarvesterNotFound")
    version = operator.memory.version
    await operator.pass_time(3600)
    assert operator.memory.version == version, "the same is not written again"
    operator.put_on_harvester("c-m-a", "harvester-1")
    await operator.settle()
    await operator.pass_time(5)
    assert ready(operator) == ("True", "Ready")


async def test_a_range_is_chosen_once_it_is_known_what_the_guest_cluster_stands_on() -> None:
    """The catch-all range was chosen, for good: the HarvesterConfig could be read only later."""
    operator = SmallOperator()
    operator.add_range("own", harvester="harvester-1", clusterSelector=EVERY_GUEST)
    await operator.pass_time(10)
    operator.add_range("rest", "10.0.9.10-10.0.9.13", clusterSelector=EVERY_GUEST)
    operator.add_guest("c-m-a")
    operator.put_on_harvester("c-m-a", "harvester-1")
    key = (HARVESTER_CONFIGS.plural, WORKSPACE, "nodes-c-m-a")
    config = operator.memory.objects.pop(key)
    await operator.start()
    operator.ask("c-m-a", range_name="")
    await operator.settle()
    conditions = operator.memory.objects[FLOATING_IPS.plural, "c-m-a", "web"]["status"]["conditions"]
    allocated = next(each for each in conditions if each["type"] == "Allocated")
    assert operator.held() == {}
    assert allocated["reason"] == "GuestNotFound"
    operator.memory.objects[key] = config
    await operator.pass_time(30)
    assert operator.held() == {"default.10.0.0.10": "c-m-a"}


async def test_a_range_is_chosen_though_an_external_harvester_cluster_names_no_network() -> None:
    """What is known of the guest cluster does not change then: that all of it is known must count."""
    operator = SmallOperator()
    operator.add_range(clusterSelector=EVERY_GUEST)
    operator.add_guest("c-m-a")
    operator.put_on_harvester("c-m-a", "harvester-1")
    key = (HARVESTER_CONFIGS.plural, WORKSPACE, "nodes-c-m-a")
    config = operator.memory.objects.pop(key)
    secret = operator.memory.objects["secrets", "cattle-global-data", "cc-harvester-1"]
    secret["data"] = {"harvestercredentialConfig-kubeconfigContent": "e30="}
    await operator.start()
    operator.ask("c-m-a", range_name="")
    await operator.settle()
    assert operator.held() == {}
    operator.memory.objects[key] = {**config, "networkName": ""}
    await operator.pass_time(30)
    assert operator.held() == {"default.10.0.0.10": "c-m-a"}


async def test_a_guest_cluster_gets_a_range_of_its_harvester_cluster_that_was_renamed() -> None:
    """It was not resolved again: it had no range, and kept the former name."""
    operator = SmallOperator()
    operator.add_range(harvester="new-name")
    operator.add_guest("c-m-a", is_served=True)
    operator.put_on_harvester("c-m-a", "harvester-1")
    await operator.start()
    assert operator.held() == {}
    operator.rename_harvester("harvester-1", "new-name")
    await operator.settle()
    assert operator.held() == {"default.10.0.0.10": "c-m-a"}


async def test_a_guest_cluster_gets_no_range_of_another_harvester_cluster_that_took_the_former_name() -> None:
    operator = SmallOperator()
    operator.add_guest("c-m-a", is_served=True)
    operator.put_on_harvester("c-m-a", "harvester-1")
    await operator.start()
    operator.rename_harvester("harvester-1", "new-name")
    await operator.settle()
    operator.add_guest("c-m-b")
    operator.put_on_harvester("c-m-b", "harvester-2")
    operator.rename_harvester("harvester-2", "harvester-1")
    await operator.settle()
    operator.add_range(harvester="harvester-1")
    await operator.settle()
    assert operator.held() == {}


async def test_a_guest_cluster_keeps_its_range_while_its_harvester_cluster_is_not_in_rancher() -> None:
    operator = SmallOperator()
    operator.add_range(harvester="harvester-1")
    operator.add_guest("c-m-a", is_served=True)
    operator.put_on_harvester("c-m-a", "harvester-1")
    await operator.start()
    operator.give_up("c-m-a", "cluster-c-m-a-kubevip")
    operator.memory.remove((MANAGEMENT_CLUSTERS.plural, "", "c-harvester-1"))
    await operator.settle()
    await operator.pass_time(60)
    assert operator.held() == {"default.10.0.0.10": "c-m-a"}, "what was known stays known"


async def test_a_rename_is_noticed_though_rancher_does_not_know_the_kind_of_that_cluster() -> None:
    operator = SmallOperator(asks_at_once=True)
    operator.add_guest(A, is_served=False)
    operator.put_on_harvester(A, "hv1")
    key = (MANAGEMENT_CLUSTERS.plural, "", "c-hv1")
    operator.memory.put(key, {**operator.memory.objects[key], "status": {}})
    await operator.start()
    operator.rename_harvester("hv1", "hv9")
    await operator.settle()
    await operator.pass_time(60)
    known = operator.manager.guests.known(A)
    assert known is not None
    assert known.harvester_cluster_name == "hv9"


async def test_a_new_name_of_a_harvester_cluster_is_found_out_once_what_names_it_can_be_read() -> None:
    """What was known before held for good: nothing asked again."""
    operator = SmallOperator(asks_at_once=True)
    operator.add_range("new", harvester="hv9")
    operator.add_guest(A, is_served=True)
    operator.put_on_harvester(A, "hv1")
    await operator.start()
    await operator.pass_time(60)
    key = (HARVESTER_CONFIGS.plural, WORKSPACE, f"nodes-{A}")
    config = operator.memory.objects.pop(key)
    operator.rename_harvester("hv1", "hv9")
    await operator.settle()
    await operator.pass_time(90)
    assert operator.held() == {}
    operator.memory.objects[key] = config
    await operator.pass_time(30)
    assert set(operator.held().values()) == {A}


async def test_a_guest_cluster_is_served_while_what_names_its_harvester_cluster_cannot_be_read() -> None:
    operator = SmallOperator(asks_at_once=True)
    operator.add_range("own", harvester="hv1")
    operator.add_guest(A, is_served=True)
    operator.put_on_harvester(A, "hv1")
    await operator.start()
    await operator.pass_time(60)
    operator.memory.objects.pop((HARVESTER_CONFIGS.plural, WORKSPACE, f"nodes-{A}"))
    operator.give_up(A, f"cluster-{A}-kubevip")
    await operator.settle()
    await operator.pass_time(60)
    assert (FLOATING_IPS.plural, A, f"cluster-{A}-kubevip") in operator.memory.objects


async def test_a_guest_cluster_that_no_range_serves_is_told_once_while_its_link_cannot_be_read() -> None:
    events = RecordedEvents()
    operator = SmallOperator(record_event=events.record, asks_at_once=True)
    operator.add_guest(A, is_served=True)
    operator.put_on_harvester(A, "hv1")
    await operator.start()
    operator.memory.objects.pop((HARVESTER_CONFIGS.plural, WORKSPACE, f"nodes-{A}"))
    operator.label_guest(A, changed="yes")
    await operator.pass_time(600)
    assert 1 <= events.reasons.count("NoMatchingRange") <= 3


async def test_a_guest_cluster_that_gets_a_pool_is_served_once_its_harvesterconfig_can_be_read() -> None:
    """It was resolved without one, and what was known of it said nothing of the new pool."""
    operator = SmallOperator(asks_at_once=True)
    operator.add_range("r1", "10.1.0.10-10.1.0.20", harvester="hv1")
    operator.add_guest(A, custom=True, is_served=True)
    await operator.start()
    await operator.pass_time(30)
    key = (HARVESTER_CONFIGS.plural, WORKSPACE, f"nodes-{A}")
    operator.put_on_harvester(A, "hv1")
    config = operator.memory.objects.pop(key)
    await operator.settle()
    await operator.pass_time(5)
    assert operator.held() == {}
    operator.memory.objects[key] = config
    await operator.pass_time(60)
    assert set(operator.held().values()) == {A}


@in_virtual_time
async def test_a_floating_ip_without_an_address_is_told_why_though_its_guest_cluster_is_never_resolved() -> (
    None
):
    """It had no status for as long as the nodes of the imported cluster could not be listed."""
    operator = SmallOperator()
    operator.add_range()
    operator.add_guest(A, imported=True, provider="")
    operator.carried.silent.add(A)
    operator.memory.pass_time(300)
    await operator.start()
    await operator.pass_time(120)
    operator.ask(A, range_name="typo")
    await operator.settle()
    await operator.pass_time(3600)
    conditions = operator.memory.objects[FLOATING_IPS.plural, A, "web"]["status"]["conditions"]
    allocated = next(each for each in conditions if each["type"] == "Allocated")
    assert allocated["reason"] == "RangeNotFound"
    assert '"typo"' in allocated["message"]
