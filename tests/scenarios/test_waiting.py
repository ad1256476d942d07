"""Who waits for an address is told when a reservation goes, and asks again soon: another address may be free, too."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from fipop.api import names
from fipop.errors import ApiForbiddenError
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IP_RESERVATIONS, FLOATING_IPS, Resource
from fipop.operator.addresses.reconciler import WAITING_SECONDS
from fipop.operator.queues import Key, Kind
from tests.harness.history import Change
from tests.harness.memory import Json
from tests.harness.small_operator import SmallOperator

A, B, C = "c-m-a", "c-m-b", "c-m-c"
X, Y = "10.0.0.10", "10.0.0.11"
QUARANTINE = 600


def ask_of(operator: SmallOperator, guest_id: str, range_name: str, ipaddress: str) -> None:
    annotations = {names.ANNOTATION_RANGE: range_name}
    operator.put(FLOATING_IPS, guest_id, "web", annotations=annotations, spec={"ipaddress": ipaddress})


async def with_an_heir_whose_range_is_gone() -> SmallOperator:
    """A brings X along from the predecessor; B asks the range whose only address that is."""
    operator = SmallOperator()
    operator.add_range(iprange=f"{X}-{X}")
    ask_of(operator, A, "gone", X)
    operator.cache.inheritance.ours_since = operator.memory.now + timedelta(days=1)
    await operator.start()
    operator.ask(B)
    await operator.settle()
    assert operator.holders(X) == set()
    return operator


async def have_its_turn(operator: SmallOperator, guest_id: str) -> None:
    key = Key(Kind.FLOATING_IP, guest_id, "web")
    operator.pending.keys.pop(key, None)
    again = await operator.manager.reconcile(key)
    if again is not None:
        operator.manager.queues.objects.add(key, delay_seconds=again.seconds)


def free_by_status(operator: SmallOperator) -> int:
    found = operator.memory.objects[FLOATING_IP_RANGES.plural, "", "pool"]
    return int(found["status"]["capacity"]["free"])


async def test_what_an_heir_named_in_vain_goes_to_who_waits_once_the_heir_is_gone() -> None:
    operator = await with_an_heir_whose_range_is_gone()
    operator.give_up(A)
    await operator.settle()
    await operator.pass_time(WAITING_SECONDS)
    assert operator.holders(X) == {B}


async def test_what_an_heir_named_in_vain_goes_to_who_waits_once_the_heir_names_another() -> None:
    operator = await with_an_heir_whose_range_is_gone()
    operator.ask_for_another(A, "192.0.2.1")
    await operator.settle()
    await operator.pass_time(WAITING_SECONDS)
    assert operator.holders(X) == {B}


async def test_a_range_shows_the_address_that_an_heir_named_in_vain_as_free_once_the_heir_is_gone() -> None:
    operator = await with_an_heir_whose_range_is_gone()
    operator.give_up(B)
    await operator.settle()
    assert free_by_status(operator) == 0
    operator.give_up(A)
    await operator.settle()
    await operator.pass_time(2)
    assert free_by_status(operator) == 1


async def test_an_address_that_was_wished_for_in_vain_goes_to_who_was_refused_meanwhile() -> None:
    operator = SmallOperator()
    operator.add_range(iprange=f"{X}-{X}")
    operator.add_range("other", iprange="10.1.0.1-10.1.0.2")
    await operator.start()
    ask_of(operator, A, "other", X)
    operator.ask(B)
    for _ in range(2):  # before A's; the second as it wrote its status
        await have_its_turn(operator, B)
    assert operator.holders(X) == set()
    await operator.settle()
    await operator.pass_time(WAITING_SECONDS)
    assert operator.holders(X) == {B}


async def test_an_address_whose_claim_was_never_committed_goes_to_who_waits_when_its_claimant_goes() -> None:
    operator = SmallOperator()
    operator.add_range(iprange=f"{X}-{X}")
    await operator.start()
    operator.client.failures["create"] = 1
    operator.ask(A)
    await operator.settle()
    operator.ask(B)
    await operator.settle()
    assert operator.holders(X) == set()
    operator.give_up(A)
    await operator.settle()
    await operator.pass_time(WAITING_SECONDS)
    assert operator.holders(X) == {B}


def refuse_creates(operator: SmallOperator, monkeypatch: pytest.MonkeyPatch, *owners: str) -> list[str]:
    """Have every reservation for these guests refused, after who else was woken had a turn; give who tried."""
    create, tried = operator.client.create, []

    async def refuse(resource: Resource, body: Json, **options: Any) -> Json:
        owner = body["spec"]["owner"]["namespace"] if resource == FLOATING_IP_RESERVATIONS else ""
        if owner not in owners:
            return await create(resource, body, **options)
        tried.append(owner)
        for key in [each for each in operator.pending.keys if each.kind is Kind.FLOATING_IP]:
            await have_its_turn(operator, key.namespace)
        raise ApiForbiddenError(verb="create", kind=resource.kind, name=body["metadata"]["name"], status=403)

    monkeypatch.setattr(operator.client, "create", refuse)
    return tried


async def with_those_who_wait_for_one(
    monkeypatch: pytest.MonkeyPatch, guests: Sequence[str], *refused: str, seconds: float
) -> list[str]:
    """Free the one address that all of them wait for, and let time go by; who tried in vain, then who has it."""
    operator = SmallOperator()
    operator.add_range(iprange=f"{X}-{X}")
    await operator.start()
    operator.ask("c-m-first")
    await operator.settle()
    for guest_id in guests:
        operator.ask(guest_id)
        await operator.settle()
    tried = refuse_creates(operator, monkeypatch, *refused)
    operator.remove_reservation(f"default.{X}")
    operator.give_up("c-m-first")
    await operator.settle()
    await operator.pass_time(seconds)
    return [*tried, *sorted(operator.holders(X))]


async def test_an_address_that_one_may_not_have_goes_to_another_who_was_refused_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    *tried, holder = await with_those_who_wait_for_one(monkeypatch, (A, B), A, seconds=WAITING_SECONDS)
    assert (set(tried), holder) == ({A}, B)


async def test_where_nobody_may_have_a_free_address_nobody_wakes_another_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guests = [f"c-m-{number:02}" for number in range(20)]
    tried = await with_those_who_wait_for_one(monkeypatch, guests, *guests, seconds=10)
    assert len(tried) <= 12, "only the first, whose claim failed, is tried again, each second"


async def test_a_release_in_a_full_range_writes_no_status_of_those_who_wait_on() -> None:
    operator = SmallOperator()
    operator.add_range(iprange=f"{X}-{Y}")
    await operator.start()
    for number in range(52):
        operator.ask(f"c-m-{number:02}")
    await operator.settle()
    written: list[Change] = []
    operator.memory.listeners.append(
        lambda change: written.append(change) if change.plural == FLOATING_IPS.plural and change.obj else None
    )
    operator.give_up("c-m-00")
    await operator.settle()
    await operator.pass_time(QUARANTINE + 10)
    assert operator.held() == {f"default.{X}": "c-m-02", f"default.{Y}": "c-m-01"}
    assert {change.namespace for change in written} == {"c-m-02"}
    assert len(written) <= 3


async def test_who_waits_for_another_range_is_not_woken_by_a_release() -> None:
    """Hundreds may wait for a full range, and each release elsewhere would have all of them decided on."""
    operator = SmallOperator()
    operator.add_range(iprange=f"{X}-{X}")
    operator.add_range("other", "10.9.0.10-10.9.0.10")
    await operator.start()
    operator.ask(A)
    operator.ask(B, range_name="other")
    await operator.settle()
    operator.ask(C, range_name="other")
    await operator.settle()
    operator.take_requests()
    operator.remove_reservation(f"default.{X}")
    woken, _ = operator.take_requests()
    assert Key(Kind.FLOATING_IP, C, "web") not in woken
    operator.remove_reservation("default.10.9.0.10")
    woken, _ = operator.take_requests()
    assert Key(Kind.FLOATING_IP, C, "web") in woken


async def test_who_prefers_both_families_gets_the_second_as_soon_as_it_is_free() -> None:
    operator = SmallOperator()
    operator.add_range(iprange="10.0.0.10-10.0.0.13,fd00::1-fd00::1", quarantineSeconds=5)
    await operator.start()
    operator.ask(A, ipFamilyPolicy="RequireDualStack")
    await operator.settle()
    operator.ask(B, ipFamilyPolicy="PreferDualStack")
    await operator.settle()
    operator.give_up(A)
    await operator.settle()
    await operator.pass_time(8)
    assert operator.holders("fd00::1") == {B}
