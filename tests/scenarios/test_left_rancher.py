"""An imported guest lives on when Rancher knows it no more: what it may carry waits a day from then."""

import asyncio
from datetime import timedelta

import pytest

from fipop.kube.resources import FLOATING_IP_RESERVATIONS, FLOATING_IPS
from fipop.operator.queues import Key, Kind
from tests.harness.small_operator import SmallOperator
from tests.harness.virtual_time import in_virtual_time

GUEST, OTHER, X = "c-m-a", "c-m-b", "10.0.0.10"
NAME = f"default.{X}"
HOUR = 3600


def build(*, imported: bool) -> SmallOperator:
    """A process that starts: X was released three days ago, and meanwhile its guest was taken out of Rancher."""
    operator = SmallOperator()
    operator.add_range()
    released = operator.memory.now - timedelta(days=3)
    operator.reserve(X, GUEST, until=released + timedelta(minutes=10))
    key = (FLOATING_IP_RESERVATIONS.plural, "", NAME)
    found = operator.memory.objects[key]
    owner = {**found["spec"]["owner"], "imported": imported}
    history = [{"namespace": GUEST, "name": "web", "releasedAt": released.strftime("%Y-%m-%dT%H:%M:%SZ")}]
    operator.memory.put(key, {**found, "spec": {**found["spec"], "owner": owner, "history": history}})
    return operator


async def test_a_process_that_did_not_see_it_leave_counts_the_day_from_its_own_first_look() -> None:
    """The day counted from the release, which was over: at a restart the address was given to another at once."""
    operator = build(imported=True)
    await operator.start()
    await operator.pass_time(23 * HOUR)
    assert operator.quarantined() == {NAME}
    await operator.pass_time(2 * HOUR)
    assert not operator.quarantined()


async def test_one_that_comes_back_and_leaves_again_has_its_day_anew() -> None:
    operator = build(imported=True)
    await operator.start()
    await operator.pass_time(20 * HOUR)
    operator.add_guest(GUEST, imported=True)
    operator.carried.services[GUEST] = X
    await operator.settle()
    operator.remove_guest(GUEST)
    await operator.settle()
    await operator.pass_time(23 * HOUR)
    assert operator.quarantined() == {NAME}
    await operator.pass_time(2 * HOUR)
    assert not operator.quarantined()


async def test_an_absence_of_long_ago_does_not_count() -> None:
    operator = build(imported=True)
    await operator.start()
    await operator.pass_time(48 * HOUR)
    operator.add_guest(GUEST, imported=True)
    operator.ask(GUEST)
    await operator.settle()
    assert operator.held() == {NAME: GUEST}
    operator.remove_guest(GUEST)
    operator.give_up(GUEST)
    await operator.settle()
    await operator.pass_time(23 * HOUR)
    assert operator.quarantined() == {NAME}
    await operator.pass_time(2 * HOUR)
    assert not operator.quarantined()


async def test_a_guest_that_rancher_made_went_with_its_cluster_objects() -> None:
    operator = build(imported=False)
    await operator.start()
    await operator.pass_time(60)
    assert not operator.quarantined()


async def test_who_takes_the_lead_again_counts_from_what_it_finds_then() -> None:
    """What it noted when it led before is of an absence that may have ended meanwhile."""
    operator = build(imported=True)
    await operator.start()
    await operator.pass_time(20 * HOUR)
    operator.manager.end()
    operator.add_guest(GUEST, imported=True)
    operator.carried.services[GUEST] = X
    operator.remove_guest(GUEST)
    await operator.start()
    await operator.pass_time(23 * HOUR)
    assert operator.quarantined() == {NAME}
    await operator.pass_time(2 * HOUR)
    assert not operator.quarantined()


async def test_a_floating_ip_that_waits_for_it_is_told_until_when_and_not_what_was_before() -> None:
    """Its status stayed as it was for a day: it waited for a check that nobody was about to make."""
    operator = build(imported=True)
    operator.add_guest(OTHER)
    await operator.start()
    operator.ask(OTHER, X)
    await operator.pass_time(10)
    end = until_of(operator)
    assert end in allocated(operator)["message"]
    operator.add_guest(GUEST, imported=True)
    operator.carried.services[GUEST] = X
    await operator.settle()
    await operator.pass_time(400)
    assert end not in allocated(operator)["message"]
    assert GUEST in allocated(operator)["message"]


@in_virtual_time
async def test_one_that_leaves_while_it_is_asked_has_its_day_for_every_address() -> None:
    """Of two addresses that were checked together the second was freed, though the answer named it."""
    operator = SmallOperator()
    operator.add_range(iprange="10.0.0.10-10.0.0.10,fd00::10-fd00::10", quarantineSeconds=60)
    operator.add_guest(GUEST, imported=True)
    await operator.start()
    operator.ask(GUEST, ipFamilyPolicy="RequireDualStack")
    await operator.settle()
    operator.carried.config_maps[GUEST] = "10.0.0.10/32,fd00::10/128"
    operator.give_up(GUEST)
    await operator.settle()
    await operator.pass_time(500)
    assert len(operator.quarantined()) == 2
    operator.carried.slow[GUEST] = 1.0
    check = asyncio.create_task(operator.manager.reconcile(Key(Kind.QUARANTINE, "", GUEST)))
    await asyncio.sleep(0.5)
    operator.remove_guest(GUEST)
    await check
    await operator.settle()
    assert len(operator.quarantined()) == 2
    await operator.pass_time(23 * HOUR)
    assert len(operator.quarantined()) == 2
    await operator.pass_time(2 * HOUR)
    assert not operator.quarantined()


async def test_an_offer_from_before_it_left_gives_its_address_to_nobody_within_the_day() -> None:
    operator = SmallOperator()
    operator.add_range(iprange="10.0.0.10-10.0.0.13,fd00::10-fd00::12", quarantineSeconds=60)
    operator.add_guest(GUEST, imported=True)
    operator.add_guest(OTHER)
    operator.add_guest("c-m-c")
    await operator.start()
    operator.ask("c-m-c", "fd00::10")
    operator.ask(GUEST, X)
    await operator.settle()
    operator.give_up(GUEST)
    operator.carried.services[OTHER] = X
    await operator.pass_time(20)
    operator.ask(OTHER, f"{X},fd00::10")  # the second is another's: X is offered, and not claimed
    await operator.pass_time(200)
    operator.carried.services[GUEST] = X
    operator.remove_guest(GUEST)
    await operator.settle()
    await operator.pass_time(120)
    operator.ask_for_another(OTHER, X)
    await operator.pass_time(120)
    assert operator.quarantined() == {NAME}


async def test_what_used_an_address_in_an_earlier_quarantine_is_not_told_in_a_later_one() -> None:
    operator = build(imported=False)
    operator.add_guest(GUEST)
    operator.add_guest(OTHER)
    operator.carried.services[GUEST] = X
    await operator.start()
    await operator.pass_time(60)
    operator.ask(GUEST)
    await operator.settle()
    assert operator.held() == {NAME: GUEST}
    operator.ask_for_another(GUEST, "10.0.0.12")
    await operator.pass_time(30)
    operator.ask(OTHER, X)
    await operator.settle()
    assert allocated(operator)["reason"] == "AddressQuarantined"
    assert "shop/web" not in allocated(operator)["message"], "the Service of the earlier quarantine"


def allocated(operator: SmallOperator) -> dict[str, str]:
    conditions = operator.memory.objects[FLOATING_IPS.plural, OTHER, "web"]["status"]["conditions"]
    found: dict[str, str] = next(each for each in conditions if each["type"] == "Allocated")
    return found


def until_of(operator: SmallOperator) -> str:
    """Return when the day is over that began at the start."""
    return (operator.memory.now + timedelta(hours=24)).strftime("%Y-%m-%d")


@pytest.mark.parametrize("custom", [True, False])
async def test_the_address_of_a_custom_cluster_waits_a_day_too(custom: bool) -> None:
    """Rancher did not make its machines, and does not uninstall Kubernetes there."""
    operator = SmallOperator()
    operator.add_range()
    operator.add_guest(GUEST, custom=custom)
    await operator.start()
    operator.ask(GUEST)
    await operator.settle()
    assert operator.held() == {NAME: GUEST}
    operator.give_up(GUEST)
    operator.remove_guest(GUEST)
    await operator.settle()
    await operator.pass_time(23 * HOUR)
    assert operator.quarantined() == ({NAME} if custom else set())
    await operator.pass_time(2 * HOUR)
    assert not operator.quarantined()
