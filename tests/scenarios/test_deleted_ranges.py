"""A range that goes takes no address along: who holds one waits for the range, and moves to no other."""

import pytest

from fipop.api.names import ANNOTATION_RANGE
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IPS
from tests.harness.small_operator import SmallOperator

GUEST, KEY = "c-m-a", (FLOATING_IPS.plural, "c-m-a", "web")
X = "10.1.0.10"
FIRST, SECOND = "10.1.0.10-10.1.0.13", "10.2.0.10-10.2.0.13"


async def build(ipaddress: str = "") -> SmallOperator:
    """Two ranges that match a guest, whose floating IP names none and holds X, of the first."""
    operator = SmallOperator()
    operator.add_range("first", FIRST, clusterSelector={"matchLabels": {}})
    operator.add_guest(GUEST)
    await operator.start()
    operator.memory.put(
        KEY, {"metadata": {"name": "web", "namespace": GUEST}, "spec": {"ipaddress": ipaddress}}
    )
    await operator.settle()
    operator.add_range("second", SECOND, clusterSelector={"matchLabels": {}})
    await operator.settle()
    assert shown(operator) == (X, [X], "Allocated")
    return operator


def remove_first(operator: SmallOperator) -> None:
    operator.memory.remove((FLOATING_IP_RANGES.plural, "", "first"))


def shown(operator: SmallOperator) -> tuple[str, list[str], str]:
    """Address of the spec and of the status, and why it has that."""
    found = operator.memory.objects[KEY]
    conditions = found["status"]["conditions"]
    (reason,) = (each["reason"] for each in conditions if each["type"] == "Allocated")
    return found["spec"]["ipaddress"], found["status"]["addresses"], reason


@pytest.mark.parametrize("ipaddress", ["", X], ids=["dynamic", "static"])
async def test_a_floating_ip_that_names_no_range_keeps_its_address_when_its_range_is_deleted(
    ipaddress: str,
) -> None:
    """Another range matched as well, and it was renumbered at once."""
    operator = await build(ipaddress)
    remove_first(operator)
    await operator.settle()
    assert shown(operator) == (X, [X], "RangeNotFound")
    operator.add_range("first", FIRST, clusterSelector={"matchLabels": {}})
    await operator.settle()
    assert shown(operator) == (X, [X], "Allocated")
    assert operator.held() == {f"default.{X}": GUEST}
    assert not operator.quarantined()


async def test_nor_does_it_move_where_its_reservation_is_gone_too() -> None:
    operator = await build()
    remove_first(operator)
    operator.remove_reservation(f"default.{X}")
    await operator.settle()
    assert shown(operator) == (X, [X], "RangeNotFound")
    assert operator.held() == {f"default.{X}": GUEST}


async def test_it_moves_as_soon_as_somebody_names_another_range() -> None:
    operator = await build()
    remove_first(operator)
    await operator.settle()
    found = operator.memory.objects[KEY]
    metadata = {**found["metadata"], "annotations": {ANNOTATION_RANGE: "second"}}
    operator.memory.put(KEY, {**found, "metadata": metadata})
    await operator.settle()
    assert shown(operator) == ("10.2.0.10", ["10.2.0.10"], "Allocated")


async def test_an_address_whose_range_was_never_noted_is_adopted_in_one_that_matches() -> None:
    operator = SmallOperator()
    operator.add_range("second", SECOND, clusterSelector={"matchLabels": {}})
    operator.add_guest(GUEST)
    status = {"addresses": ["10.2.0.12"], "addressSpace": "default", "observedGeneration": 1}
    metadata = {"name": "web", "namespace": GUEST}
    operator.memory.put(KEY, {"metadata": metadata, "spec": {"ipaddress": ""}, "status": status})
    await operator.start()
    assert shown(operator) == ("10.2.0.12", ["10.2.0.12"], "Allocated")


async def test_a_range_that_replaces_another_of_the_same_addresses_counts_what_becomes_free_there() -> None:
    """Its status said TOTAL 0 FREE 0 for as long as nothing else changed."""
    operator = SmallOperator()
    operator.add_range("first", f"{X}-{X}")
    operator.add_guest(GUEST)
    await operator.start()
    operator.ask(GUEST, range_name="first")
    await operator.settle()
    operator.add_range("second", f"{X}-{X}")
    await operator.settle()
    remove_first(operator)
    await operator.settle()
    await operator.pass_time(5)
    assert counted(operator, "second") == (0, 0)
    operator.give_up(GUEST)
    await operator.settle()
    await operator.visit(GUEST)
    await operator.pass_time(900)
    assert not operator.holders(X)
    assert not operator.quarantined()
    assert counted(operator, "second") == (1, 1)


def counted(operator: SmallOperator, range_name: str) -> tuple[int, int]:
    """Total and free addresses of a range, by its status."""
    capacity = operator.memory.objects[FLOATING_IP_RANGES.plural, "", range_name]["status"]["capacity"]
    return capacity["total"], capacity["free"]
