"""The rules in their order, each with the facts that call for it: values in, a step out."""

from dataclasses import replace
from typing import Any

import pytest

from fipop.api.models import FloatingIP, Reservation
from fipop.operator.addresses.holdings import plan
from fipop.operator.addresses.next_step import (
    CLOSED_GATE_SECONDS,
    MAX_WRITE_BACKS,
    SPEC_REVERTED,
    Confirm,
    ReadAgain,
    Release,
    Step,
    Wait,
    WriteSpec,
    WriteStatus,
    next_step,
)
from fipop.operator.addresses.values import Blocker, Facts
from fipop.state.claims import Claim
from tests.harness.objects import floating_ip, held_by, reservation
from tests.unit.operator.addresses.facts import facts_of, range_facts


def decide(facts: Facts) -> Step:
    return next_step(facts, plan(facts))


def mine(address: str, **fields: Any) -> Reservation:
    return reservation(address, cluster="demo", **fields)


def settled(*addresses: str, own: tuple[Reservation, ...], **spec: Any) -> FloatingIP:
    """Give a floating IP whose status says all there is to say, by the product's own words."""
    subject = floating_ip(status=held_by(list(addresses)), ipaddress=",".join(addresses), **spec)
    step = decide(facts_of(subject, *own))
    return replace(subject, status=step.status) if isinstance(step, WriteStatus) else subject


def test_1_before_anything_is_inherited_the_floating_ip_is_read() -> None:
    former = mine("10.0.0.7", uid="uid-of-the-dead")
    assert decide(facts_of(floating_ip(), former)) == ReadAgain()
    step = decide(facts_of(floating_ip(), former, is_live=True))
    assert isinstance(step, Claim), "who is alive takes it over"
    assert step.owner.uid == "uid-c-m-1-web"


def test_2_nothing_new_is_given_out_while_the_gate_is_closed_and_the_status_stays_as_it_was() -> None:
    waits = decide(facts_of(is_gate_open=False))
    assert waits == Wait(seconds=CLOSED_GATE_SECONDS, is_settled=False), "nothing else may wake it"
    before = floating_ip(status=held_by(["10.0.0.7"]))
    assert isinstance(decide(facts_of(before, is_gate_open=False)), Claim), "but what it had before"
    blocker = Blocker(reason="GuestNotFound", message="not known yet")
    waits = decide(facts_of(where=blocker, is_guest_known=False, is_gate_open=False))
    assert isinstance(waits, Wait), "all guests are found out before the gate opens"
    wish = floating_ip(ipaddress="10.0.0.7")
    assert isinstance(decide(facts_of(wish, where=blocker, is_guest_known=False)), Wait), (
        "nor is a wish refused"
    )
    assert isinstance(decide(facts_of(where=blocker, is_guest_known=False)), WriteStatus), (
        "nothing is at stake"
    )
    assert isinstance(decide(facts_of(where=blocker)), WriteStatus)


def test_3_what_is_missing_is_claimed() -> None:
    step = decide(facts_of(floating_ip(ipaddress="10.0.0.7")))
    assert isinstance(step, Claim)
    assert (step.name, step.range) == ("default.10.0.0.7", "pool")


def test_4_the_owner_is_written_as_it_is_now() -> None:
    unknown = reservation("10.0.0.7")  # the cluster was not known when it was made
    step = decide(facts_of(floating_ip(status=held_by(["10.0.0.7"])), unknown))
    assert isinstance(step, Claim)
    assert (step.owner.cluster, step.requested) == ("demo", unknown.requested)


def test_5_an_address_is_confirmed_before_a_status_names_it_that_others_may_be_releasing() -> None:
    held = mine("10.0.0.7")
    asks = floating_ip(ipaddress="10.0.0.7")
    assert decide(facts_of(asks, held, fresh=frozenset())) == Confirm(held)
    assert isinstance(decide(facts_of(asks, held)), WriteStatus), "this process wrote it just now"
    told = floating_ip(ipaddress="10.0.0.7", status=held_by(["10.0.0.7"]))
    assert not isinstance(decide(facts_of(told, held, fresh=frozenset())), Confirm)


def test_6_the_spec_is_written_before_the_status() -> None:
    held = mine("10.0.0.7")
    assert decide(facts_of(floating_ip(), held)) == WriteSpec("10.0.0.7", None, is_write_back=False)
    ours = floating_ip("demo-kubevip", annotations={"clustername": "demo"})
    step = decide(facts_of(ours, reservation("10.0.0.7", "demo-kubevip", cluster="demo")))
    assert step == WriteSpec("10.0.0.7", "pool", is_write_back=False), "and the range that was chosen"


@pytest.mark.parametrize(
    ("families", "expected"),
    [([], "10.0.0.1,fd00::1"), (["IPv6"], "fd00::1,10.0.0.1"), (["IPv6", "IPv4"], "fd00::1,10.0.0.1")],
)
def test_6_addresses_are_written_in_the_order_of_the_families_that_the_spec_names(
    families: list[str], expected: str
) -> None:
    subject = floating_ip(ipFamilies=families, ipFamilyPolicy="PreferDualStack")
    step = decide(facts_of(subject, mine("10.0.0.1"), mine("fd00::1")))
    assert step == WriteSpec(expected, None, is_write_back=False)


def test_6_a_wish_is_not_written_over() -> None:
    held, taken = mine("10.0.0.7"), reservation("10.0.0.9", "other")
    asks = floating_ip(ipaddress="10.0.0.9", status=held_by(["10.0.0.7"]))
    step = decide(facts_of(asks, held, others=(taken,)))
    assert isinstance(step, WriteStatus)
    assert step.status.addresses == ("10.0.0.7",)


def test_6_who_empties_the_spec_again_and_again_is_left_alone_and_told() -> None:
    held = mine("10.0.0.7")
    emptied = floating_ip(status=held_by(["10.0.0.7"]))
    step = decide(facts_of(emptied, held, written="10.0.0.7", write_backs=MAX_WRITE_BACKS - 1))
    assert step == WriteSpec("10.0.0.7", None, is_write_back=True)
    step = decide(facts_of(emptied, held, written="10.0.0.7", write_backs=MAX_WRITE_BACKS))
    assert isinstance(step, WriteStatus)
    assert SPEC_REVERTED.reason in [each.reason for each in step.status.conditions]
    again = decide(facts_of(replace(emptied, status=step.status), held))
    assert again == Wait(blockers=(next(iter(_blockers(again))),)), "also after a restart, which counts anew"


def _blockers(step: object) -> tuple[Blocker, ...]:
    assert isinstance(step, Wait)
    return step.blockers


def test_7_then_the_status_says_so_and_nothing_is_left() -> None:
    held = mine("10.0.0.7")
    subject = settled("10.0.0.7", own=(held,))
    assert subject.status.addresses == ("10.0.0.7",)
    assert decide(facts_of(subject, held)) == Wait()


def test_8_what_is_held_beyond_that_is_released_by_the_live_object_when_nobody_can_be_about_to_name_it() -> (
    None
):
    held, old, older = mine("10.0.0.7"), mine("10.0.0.8"), mine("10.0.0.9")
    subject = settled("10.0.0.7", own=(held,))
    assert decide(facts_of(subject, held, old)) == ReadAgain()
    assert decide(facts_of(subject, held, old, is_live=True)) == Release(old)
    unsafe = {held.name: 0.0, old.name: 9.0, older.name: 4.0}
    waits = decide(facts_of(subject, held, old, older, is_live=True, unsafe_for=unsafe))
    assert waits == Wait(seconds=4.0)
    waits = decide(facts_of(subject, held, old, is_live=True, unsafe_for=unsafe | {old.name: 0.5}))
    assert waits == Wait(seconds=0.5), "also the last second"
    step = decide(facts_of(subject, held, old, older, is_live=True, unsafe_for=unsafe | {old.name: -1.0}))
    assert step == Release(old), "one does not wait for the other"


def test_8_what_was_begun_in_vain_is_released_too() -> None:
    begun = mine("10.0.0.7")
    subject = floating_ip(ipFamilyPolicy="RequireDualStack")
    nothing = range_facts(free=())
    told = decide(facts_of(subject, begun, where=nothing))
    assert isinstance(told, WriteStatus)
    assert told.status.addresses == ()
    subject = replace(subject, status=told.status)
    assert decide(facts_of(subject, begun, where=nothing, is_live=True)) == Release(begun)


def test_9_who_waits_says_for_what() -> None:
    subject = floating_ip(ipaddress="10.0.0.99")
    told = decide(facts_of(subject))
    assert isinstance(told, WriteStatus)
    waits = decide(facts_of(replace(subject, status=told.status)))
    assert [each.reason for each in _blockers(waits)] == ["AddressOutOfRange"]
