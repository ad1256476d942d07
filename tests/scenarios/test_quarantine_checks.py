"""How guest clusters are asked for addresses whose quarantine is over."""

from fipop.operator.queues import Key, Kind
from tests.harness.small_operator import SmallOperator

A, B = "c-m-a", "c-m-b"
HOUR = 3600


async def released(count: int, *, quarantine_seconds: int = 60) -> SmallOperator:
    """Have a guest cluster that held so many addresses of a range, and holds none now."""
    operator = SmallOperator()
    operator.add_range(iprange="10.0.0.10-10.0.0.99", quarantineSeconds=quarantine_seconds)
    operator.add_guest(A)
    operator.add_guest(B)
    await operator.start()
    for number in range(count):
        operator.ask(A, name=f"web-{number}")
    await operator.settle()
    for number in range(count):
        operator.give_up(A, f"web-{number}")
    await operator.settle()
    return operator


async def test_one_check_of_a_guest_cluster_is_for_all_its_addresses_in_quarantine() -> None:
    """Each address had a check of its own, by the workers that new addresses need."""
    operator = await released(8)
    operator.carried.services[A] = "10.0.0.12"
    operator.carried.looks.clear()
    await operator.pass_time(61)
    assert operator.quarantined() == {"default.10.0.0.12"}
    assert operator.carried.looks == [A]


async def test_a_round_over_a_reservation_asks_no_guest_cluster() -> None:
    """It shares its workers with new addresses: one guest cluster that dripped its answers made them all wait."""
    operator = await released(1)
    operator.memory.pass_time(61)
    operator.carried.looks.clear()
    await operator.manager.reconcile(Key(Kind.RESERVATION, "", "default.10.0.0.10"))
    assert operator.carried.looks == []
    await operator.settle()
    assert operator.quarantined() == set()


async def test_a_guest_cluster_that_goes_on_to_use_an_address_is_asked_ever_more_rarely() -> None:
    """It was asked every 30 s, for ever."""
    operator = await released(1)
    operator.carried.services[A] = "10.0.0.10"
    await operator.pass_time(HOUR)
    operator.carried.looks.clear()
    await operator.pass_time(HOUR)
    assert 0 < len(operator.carried.looks) <= HOUR / 300
    operator.carried.services.clear()
    await operator.pass_time(301)
    assert operator.quarantined() == set()


async def test_an_address_that_a_floating_ip_waits_for_by_name_is_checked_at_once_and_then_often() -> None:
    operator = await released(1)
    operator.carried.services[A] = "10.0.0.10"
    await operator.pass_time(HOUR)
    operator.carried.looks.clear()
    operator.ask(B, "10.0.0.10")
    await operator.settle()
    assert set(operator.carried.looks) == {A, B}
    operator.carried.services.clear()
    await operator.pass_time(31)
    assert operator.held() == {"default.10.0.0.10": B}
