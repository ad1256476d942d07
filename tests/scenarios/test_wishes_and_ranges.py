"""Ranges that change, and floating IPs that wait, are made again or are refused: what they get, and what others get."""

import pytest

from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IPS
from tests.harness.small_operator import SmallOperator
from tests.harness.stored import condition

A, B, C = "c-m-a", "c-m-b", "c-m-c"
X, Y = "10.0.0.10", "10.0.0.11"
EVERY_GUEST = {"matchLabels": {}}


async def test_who_is_at_its_limit_gets_one_more_when_another_range_counts_what_it_has() -> None:
    """The address moved to another range with its label, and nothing went to quarantine: it waited for ever."""
    operator = SmallOperator()
    operator.add_range("other", X)
    operator.memory.pass_time(5)
    operator.add_range("pool", f"{Y}-10.0.0.13", maxPerGuest=1)
    operator.add_guest(A)
    await operator.start()
    operator.ask(A)
    await operator.settle()
    operator.ask(A, name="api")
    await operator.settle()
    assert operator.held() == {f"default.{Y}": A}

    operator.change_range("other", iprange=f"{X}-{Y}")
    await operator.settle()
    operator.ask_for_range(A, "other")
    await operator.settle()

    assert operator.held() == {f"default.{Y}": A, "default.10.0.0.12": A}


async def test_a_range_in_another_space_serves_once_its_last_address_is_counted_by_another_range() -> None:
    operator = SmallOperator()
    operator.add_range("pool", f"{X}-{Y}")
    operator.memory.pass_time(5)
    operator.add_range("other", f"{X}-{Y}")
    operator.add_guest(A)
    operator.add_guest(B)
    await operator.start()
    operator.ask(A)
    await operator.settle()
    operator.memory.remove((FLOATING_IP_RANGES.plural, "", "pool"))
    await operator.settle()
    operator.add_range("pool", "10.0.5.10", addressSpace="lab")
    operator.ask(B)
    await operator.settle()
    assert operator.held() == {f"default.{X}": A}

    operator.ask_for_range(A, "other")
    await operator.settle()

    assert operator.held() == {f"default.{X}": A, "lab.10.0.5.10": B}


async def with_two_ranges() -> SmallOperator:
    """Have two ranges for every guest cluster, of which the older one has a single address."""
    operator = SmallOperator()
    operator.add_range("pool", X, clusterSelector=EVERY_GUEST)
    operator.memory.pass_time(5)
    operator.add_range("other", "10.0.1.10-10.0.1.20", clusterSelector=EVERY_GUEST)
    return operator


async def test_a_floating_ip_that_is_made_again_gets_its_address_though_that_fills_its_range() -> None:
    """Its range was full by its own quarantine, so another range served it."""
    operator = await with_two_ranges()
    operator.add_guest(A)
    await operator.start()
    operator.ask(A, range_name="")
    await operator.settle()
    operator.give_up(A)
    await operator.settle()
    assert operator.quarantined() == {f"default.{X}"}

    operator.ask(A, range_name="")
    await operator.settle()

    assert operator.held() == {f"default.{X}": A}


async def test_who_had_no_address_of_a_full_range_is_served_by_another() -> None:
    operator = await with_two_ranges()
    operator.add_guest(A)
    operator.add_guest(B)
    await operator.start()
    operator.ask(A, range_name="")
    await operator.settle()
    operator.give_up(A)
    await operator.settle()

    operator.ask(B, range_name="")
    await operator.settle()

    assert operator.held() == {"default.10.0.1.10": B}


async def test_an_address_that_was_excluded_is_not_claimed_again_after_a_claim_without_an_answer() -> None:
    operator = SmallOperator()
    operator.add_range("pool", f"{X}-{Y}")
    operator.add_guest(A)
    await operator.start()
    operator.client.failures["create"] = 1
    operator.ask(A)
    await operator.settle()
    assert operator.held() == {}

    operator.change_range(exclude=[X])
    await operator.settle()
    await operator.pass_time(5)

    assert operator.held() == {f"default.{Y}": A}


@pytest.mark.parametrize(
    ("limits", "asked"),
    [
        ({"maxPerGuest": 2}, {}),
        ({"restrictToMatching": True}, {}),
        ({}, {"range_name": "typo"}),
        ({}, {"ipFamilies": ["IPv6"]}),
        ({}, {"ipFamilyPolicy": "RequireDualStack"}),
    ],
)
async def test_what_a_guest_carries_is_given_to_no_other_though_its_own_wish_for_it_is_refused(
    limits: dict[str, object], asked: dict[str, object]
) -> None:
    """A restored backup: the spec names what the guest carries, and there is neither a status nor a reservation."""
    operator = SmallOperator()
    operator.add_range("pool", f"{X}-10.0.0.13", clusterSelector=EVERY_GUEST, **limits)  # type: ignore[arg-type]
    operator.add_guest(B)
    operator.add_guest(C, is_served=True)
    operator.ask(B, X, **asked)  # type: ignore[arg-type]
    operator.carried.services[B] = X
    await operator.start()
    await operator.visit(B, C)
    await operator.pass_time(3600)

    assert operator.held().get(f"default.{X}") != C
    assert C in operator.held().values()


async def test_a_wish_beyond_the_limit_does_not_hide_what_the_guest_carries() -> None:
    operator = SmallOperator()
    operator.add_range("pool", f"{X}-10.0.0.13", clusterSelector=EVERY_GUEST, maxPerGuest=1)
    operator.add_guest(B)
    operator.add_guest(C, is_served=True)
    operator.ask(B, name="first", has="10.0.0.13")
    operator.memory.pass_time(1)
    operator.ask(B, X)
    operator.carried.services[B] = X
    await operator.start()
    await operator.visit(B, C)
    await operator.pass_time(3600)

    assert operator.held() == {"default.10.0.0.13": B, f"default.{Y}": C}


async def test_a_range_that_cannot_be_read_any_more_keeps_nobody_from_the_next_by_what_it_once_assigned() -> (
    None
):
    """Each round failed on the address in quarantine, and the floating IP had no condition that told."""
    operator = SmallOperator()
    operator.add_range("pool", f"{X}-{Y}", clusterSelector=EVERY_GUEST)
    operator.add_guest(A)
    await operator.start()
    operator.ask(A, range_name="")
    await operator.settle()
    operator.give_up(A)
    await operator.settle()
    operator.change_range("pool", iprange=f"{Y}-{X}")
    operator.ask(A, range_name="")
    await operator.settle()
    found = operator.memory.objects[FLOATING_IPS.plural, A, "web"]
    assert "RangeInvalid" in condition(found, "Allocated")
    operator.add_range("other", "10.0.9.10", clusterSelector=EVERY_GUEST)
    await operator.settle()
    assert operator.held() == {"default.10.0.9.10": A}
