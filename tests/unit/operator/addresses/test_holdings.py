"""Which address of each family a floating IP should hold: facts in, holdings out."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.api.models import Requested, Reservation
from fipop.ipam.addresses import format_address
from fipop.operator.addresses.holdings import Holdings, plan
from fipop.operator.addresses.values import Blocker, Quota, Request, address_of
from fipop.state.claims import Claim
from tests.harness.objects import floating_ip, held_by, reservation
from tests.unit.operator.addresses.cases import build_facts, mine, named, reservations_held, specs
from tests.unit.operator.addresses.facts import facts_of, range_facts

BOTH = {"ipFamilyPolicy": "RequireDualStack"}
PREFERS_BOTH = {"ipFamilyPolicy": "PreferDualStack"}
NEW_RANGE = {"annotations": {"fiprange": "new"}}
NEW_POOL = "10.1.0.0/24"


def had(*addresses: str, **spec: Any) -> Any:
    return floating_ip(status=held_by(list(addresses)), **spec)


def claims(found: Holdings) -> list[str]:
    return [format_address(each.address) for each in found.claims]


def held(found: Holdings) -> list[str]:
    return [format_address(address_of(each)) for each in found.held.values()]


def reasons(found: Holdings) -> list[str]:
    return [each.reason for each in found.blockers]


def holds(*reservations: Reservation, **facts: Any) -> tuple[list[str], list[str], list[str]]:
    """Return what is kept, what is claimed, and why the rest is not."""
    subject = facts.pop("subject", None)
    found = plan(facts_of(subject, *reservations, **facts))
    return held(found), claims(found), reasons(found)


def requested(found: Holdings) -> Requested:
    return found.claims[0].requested


def test_a_new_floating_ip_claims_the_next_free_address_or_the_one_that_it_names() -> None:
    found = plan(facts_of())
    assert (claims(found), requested(found)) == (["10.0.0.1"], Requested.DYNAMIC)
    found = plan(facts_of(floating_ip(ipaddress="10.0.0.7")))
    assert (claims(found), requested(found)) == (["10.0.0.7"], Requested.STATIC)


@pytest.mark.parametrize("spec", ["10.0.0.7", ""])
def test_what_is_held_stays_also_if_the_spec_is_emptied(spec: str) -> None:
    assert holds(mine("10.0.0.7"), subject=had("10.0.0.7", ipaddress=spec)) == (["10.0.0.7"], [], [])


def test_a_new_address_is_claimed_before_the_old_one_is_given_up_and_the_old_one_stays_otherwise() -> None:
    old, subject = mine("10.0.0.7"), had("10.0.0.7", ipaddress="10.0.0.8")
    (found,) = plan(facts_of(subject, old)).claims
    assert format_address(found.address) == "10.0.0.8"
    taken = reservation("10.0.0.8", "other")
    assert holds(old, subject=subject, others=(taken,)) == (["10.0.0.7"], [], ["AddressInUse"])
    outside = had("10.0.0.7", ipaddress="10.0.0.99")
    assert holds(old, subject=outside) == (["10.0.0.7"], [], ["AddressOutOfRange"])


@pytest.mark.parametrize("wish", ["10.0.0.99", ""])
def test_a_reservation_that_vanished_is_made_again_whatever_the_range_assigns(wish: str) -> None:
    where = range_facts(draining=True, restricted=Blocker(reason="RangeRestricted", message="no"))
    facts = facts_of(had("10.0.0.99", ipaddress=wish), where=where)
    found = plan(facts)
    assert (claims(found), found.restores) == (["10.0.0.99"], True), "no other address will do"
    assert found.claims[0].owner == facts.owner


def test_of_two_families_the_one_whose_reservation_vanished_is_made_again() -> None:
    for kept, lost in (("10.0.0.7", "fd00::7"), ("fd00::7", "10.0.0.7")):
        assert claims(plan(facts_of(had("10.0.0.7", "fd00::7"), mine(kept)))) == [lost]


def test_a_vanished_reservation_is_made_again_where_it_was_before_the_request_is_read() -> None:
    subject = had("10.0.0.7", ipaddress="10.0.0.8", **NEW_RANGE)
    found = plan(facts_of(subject, where=range_facts("new", space="lab")))
    assert [(each.name, each.range) for each in found.claims] == [("default.10.0.0.7", "pool")]
    assert found.restores
    taken = plan(facts_of(subject, others=(reservation("10.0.0.7", "other"),)))
    assert (claims(taken), reasons(taken), taken.names_spec) == ([], ["AddressInUse"], False)


def test_a_vanished_reservation_is_made_again_also_if_no_range_serves() -> None:
    """Without that the status lost it, and the next floating IP got what the guest still carried."""
    subject = floating_ip(status={"addresses": ["10.0.0.7"], "observedGeneration": 1})
    blocker = Blocker(reason="RangeNotFound", message="no")
    found = plan(facts_of(subject, where=blocker))
    assert (claims(found), requested(found)) == (["10.0.0.7"], Requested.DYNAMIC)


def test_an_address_that_was_released_for_another_one_did_not_vanish() -> None:
    released = mine("10.0.0.7", quarantined_until="2026-01-01T00:10:00Z")
    assert holds(mine("10.0.0.9"), released, subject=had("10.0.0.7")) == (["10.0.0.9"], [], [])
    assert claims(plan(facts_of(had("10.0.0.7"), released))) == ["10.0.0.7"], "nothing else is held"


@pytest.mark.parametrize(
    ("name", "expected"), [("demo-kubevip", Requested.DYNAMIC), ("web", Requested.STATIC)]
)
def test_an_address_that_was_chosen_does_not_turn_static_when_it_is_made_again(
    name: str, expected: Requested
) -> None:
    subject = had("10.0.0.9", name=name, ipaddress="10.0.0.9", annotations={"clustername": "demo"})
    assert requested(plan(facts_of(subject))) is expected
    unknown_range = replace(subject, status=replace(subject.status, range=None))
    assert requested(plan(facts_of(unknown_range))) is expected


@pytest.mark.parametrize("requested_as", ["static", "dynamic"])
def test_an_address_that_is_outside_its_range_by_now_stays(requested_as: str) -> None:
    kept = mine("10.0.0.99", requested=requested_as)
    assert holds(kept, subject=had("10.0.0.99", ipaddress="10.0.0.99")) == (["10.0.0.99"], [], [])


def test_a_chosen_address_moves_to_another_range_and_one_that_is_named_waits_for_it() -> None:
    subject = had("10.0.0.7", ipaddress="10.0.0.7", **NEW_RANGE)
    where = range_facts("new", NEW_POOL, free=("10.1.0.1",))
    moved = facts_of(subject, mine("10.0.0.7"), where=where, pool=NEW_POOL)
    other = moved.addresses["default.10.0.0.1"]
    moved = replace(moved, addresses={**moved.addresses, "default.10.1.0.1": replace(other, refused=None)})
    assert claims(plan(moved)) == ["10.1.0.1"]
    named = mine("10.0.0.7", requested="static")
    assert holds(named, subject=subject, where=where, pool=NEW_POOL) == (
        ["10.0.0.7"],
        [],
        ["AddressOutOfRange"],
    )


def test_an_address_that_the_other_range_assigns_too_is_counted_there() -> None:
    (found,) = plan(facts_of(had("10.0.0.7", **NEW_RANGE), mine("10.0.0.7"), where=range_facts("new"))).claims
    assert (found.name, found.range) == ("default.10.0.0.7", "new")
    draining = range_facts("new", draining=True)
    assert holds(mine("10.0.0.7"), subject=had("10.0.0.7", **NEW_RANGE), where=draining) == (
        ["10.0.0.7"],
        [],
        ["RangeDraining"],
    )


def test_a_move_that_was_cut_short_is_completed_with_the_address_that_it_has() -> None:
    old, new = mine("10.0.0.7"), mine("10.1.0.9", range_name="new")
    where = range_facts("new", NEW_POOL)
    assert holds(old, new, subject=had("10.0.0.7"), where=where, pool=NEW_POOL) == (["10.1.0.9"], [], [])
    elsewhere = mine("10.0.0.7", space="lab", range_name="lab")
    found = plan(facts_of(had("10.0.0.7"), old, elsewhere, where=range_facts("lab", space="lab")))
    assert (claims(found), [each.space for each in found.held.values()]) == ([], ["lab"])


def test_a_chosen_address_that_another_has_in_the_new_space_is_changed_for_a_new_one() -> None:
    """Its owner waited there for good, though any address would have done."""
    subject, where = had("10.0.0.7"), range_facts(space="lab")
    others = (reservation("10.0.0.7", "other", space="lab"),)
    assert claims(plan(facts_of(subject, mine("10.0.0.7"), where=where, others=others))) == ["10.0.0.1"]
    begun = mine("10.0.0.9", space="lab")
    assert holds(mine("10.0.0.7"), begun, subject=subject, where=where, others=others) == (
        ["10.0.0.9"],
        [],
        [],
    )
    named, asks = mine("10.0.0.7", requested="static"), had("10.0.0.7", ipaddress="10.0.0.7")
    assert holds(named, subject=asks, where=where, others=others) == (["10.0.0.7"], [], ["AddressInUse"]), (
        "who names it waits"
    )


def test_a_chosen_address_that_another_took_meanwhile_is_changed_for_the_next_free_one() -> None:
    subject, chosen = had("10.0.0.7", **NEW_RANGE), mine("10.0.0.7")
    taken = reservation("10.0.0.7", "other")
    found = plan(facts_of(subject, chosen, where=range_facts("new"), others=(taken,)))
    assert claims(found) == ["10.0.0.1"]


def test_a_draining_range_assigns_nothing_new_and_takes_nothing_away() -> None:
    draining = range_facts(draining=True)
    assert holds(where=draining) == ([], [], ["RangeDraining"])
    assert holds(mine("10.0.0.7"), subject=had("10.0.0.7"), where=draining) == (["10.0.0.7"], [], [])


def test_of_two_reservations_the_one_that_the_spec_names_is_kept_else_the_one_of_the_status() -> None:
    first, second = mine("10.0.0.7"), mine("10.0.0.8")
    older = mine("10.0.0.9", since="2025-01-01T00:00:00Z")
    asked = had("10.0.0.7", ipaddress="10.0.0.8")
    assert held(plan(facts_of(asked, first, mine("10.0.0.8", requested="static")))) == ["10.0.0.8"]
    assert held(plan(facts_of(had("10.0.0.8"), first, second))) == ["10.0.0.8"]
    assert held(plan(facts_of(floating_ip(), first, second, older))) == ["10.0.0.9"]


def test_a_floating_ip_that_moves_back_by_name_before_the_release_asks_for_that_address() -> None:
    chosen, asked = mine("10.0.0.7"), mine("10.0.0.9", requested="static")
    back = had("10.0.0.9", ipaddress="10.0.0.7")
    found = plan(facts_of(back, chosen, asked))
    assert (claims(found), requested(found)) == (["10.0.0.7"], Requested.STATIC)
    # It stays a chosen one after a move to another range that was cut short before its status.
    elsewhere = mine("10.0.0.9", range_name="other")
    assert holds(chosen, elsewhere, subject=back) == (["10.0.0.7"], [], [])


def test_what_is_held_stays_if_the_request_cannot_be_read_or_no_range_serves() -> None:
    known, begun, other = mine("10.0.0.7"), mine("10.0.0.1"), mine("fd00::1")
    found = plan(facts_of(had("10.0.0.7", "fd00::1", ipaddress="nonsense"), begun, known, other))
    assert (held(found), reasons(found), found.names_spec) == (
        ["10.0.0.7", "fd00::1"],
        ["InvalidSpec"],
        False,
    )
    blocker = Blocker(reason="RangeNotFound", message="no")
    assert holds(begun, known, other, subject=had("10.0.0.7", "fd00::1"), where=blocker) == (
        ["10.0.0.7", "fd00::1"],
        [],
        ["RangeNotFound"],
    )


# Two families


def test_both_families_are_claimed_ipv4_first() -> None:
    assert claims(plan(facts_of(floating_ip(**BOTH)))) == ["10.0.0.1", "fd00::1"]


@pytest.mark.parametrize("address", ["", "10.0.0.9,fd00::9"], ids=["any", "by name"])
def test_nothing_is_begun_if_one_of_two_required_families_is_known_to_be_taken(address: str) -> None:
    others = (reservation("fd00::9", "other"),)
    where = range_facts(free=("10.0.0.1",))
    found = plan(facts_of(floating_ip(ipaddress=address, **BOTH), where=where, others=others))
    assert (claims(found), held(found), len(found.blockers)) == ([], [], 1)


def test_what_was_begun_is_not_kept_if_the_second_family_turned_out_to_be_taken() -> None:
    subject = floating_ip(ipaddress="10.0.0.9,fd00::9")
    denied = (reservation("fd00::9", "other"),)
    assert holds(mine("10.0.0.9"), subject=subject, others=denied) == ([], [], ["AddressInUse"])


@pytest.mark.parametrize("wish", ["", "10.0.0.8"], ids=["its own", "another"])
def test_what_the_floating_ip_had_stays_if_the_second_family_cannot_be_had(wish: str) -> None:
    subject = had("10.0.0.9", ipaddress=wish, **BOTH)
    nothing = range_facts(free=())
    assert holds(mine("10.0.0.9"), subject=subject, where=nothing) == (["10.0.0.9"], [], ["RangeFull"])


def test_what_the_predecessor_assigned_counts_as_had() -> None:
    inherited, nothing = floating_ip(ipaddress="10.0.0.9", **BOTH), range_facts(free=())
    found = plan(facts_of(inherited, where=nothing, is_inherited=True))
    assert claims(found) == ["10.0.0.9"], "it is claimed, whatever becomes of the rest"
    found = plan(facts_of(inherited, mine("10.0.0.9"), where=nothing, is_inherited=True))
    assert held(found) == ["10.0.0.9"]
    second = floating_ip(ipaddress="fd00::9", **BOTH)
    found = plan(facts_of(second, is_inherited=True))
    assert claims(found) == ["fd00::9"], "it comes before what is new"


@pytest.mark.parametrize("is_taken", [True, False])
def test_a_family_that_is_wanted_no_more_stays_until_the_other_is_there(is_taken: bool) -> None:
    subject, old = had("fd00::1", ipaddress="10.0.0.2"), mine("fd00::1")
    if is_taken:
        found = plan(facts_of(subject, old, others=(reservation("10.0.0.2", "other"),)))
    else:
        found = plan(facts_of(subject, old, mine("10.0.0.2")))
    assert held(found) == (["fd00::1"] if is_taken else ["10.0.0.2"])


def test_one_family_is_enough_if_both_are_only_preferred() -> None:
    subject = floating_ip(**PREFERS_BOTH)
    found = plan(facts_of(subject, mine("10.0.0.1"), where=range_facts(free=())))
    assert (held(found), [each.tolerable for each in found.blockers]) == (["10.0.0.1"], [True])
    named = plan(facts_of(floating_ip(ipaddress="10.0.0.99", **PREFERS_BOTH)))
    assert [each.tolerable for each in named.blockers] == [False], "a request that names one wants that one"


def test_a_status_names_one_space_and_what_is_of_another_is_released() -> None:
    old, other = mine("10.0.0.7"), mine("fd00::7", space="lab")
    found = plan(facts_of(had("10.0.0.7", **PREFERS_BOTH), old, other, where=range_facts(free=())))
    assert held(found) == ["10.0.0.7"]


def test_a_family_that_comes_on_top_is_asked_for_after_a_move_to_another_space() -> None:
    subject, where = had("10.0.0.7", **PREFERS_BOTH), range_facts("lab", space="lab")
    assert claims(plan(facts_of(subject, mine("10.0.0.7"), where=where))) == ["10.0.0.7"]


# Quotas, and guests that are not known yet


def test_a_quota_counts_both_families_together_and_never_what_was_its_own() -> None:
    def limited(limit: int, *reserved: str) -> Any:
        return range_facts(quota=Quota(limit=limit, reserved=frozenset(reserved), claimed=frozenset()))

    assert claims(plan(facts_of(where=limited(1)))) == ["10.0.0.1"]
    assert holds(where=limited(1, "default.10.0.0.9")) == ([], [], ["QuotaExceeded"])
    both = plan(facts_of(floating_ip(**BOTH), where=limited(1)))
    assert (claims(both), reasons(both)) == ([], ["QuotaExceeded"]), "neither is begun"
    assert claims(plan(facts_of(had("10.0.0.7"), where=limited(1, "default.10.0.0.9")))) == ["10.0.0.7"]
    assert claims(plan(facts_of(where=limited(1, "default.10.0.0.1")))) == ["10.0.0.1"], "it has that one"


def test_the_guest_cluster_is_awaited_if_it_alone_tells_the_range() -> None:
    blocker = Blocker(reason="GuestNotFound", message="not known yet")
    assert plan(facts_of(where=blocker, is_guest_known=False)).awaits_guest
    assert not plan(facts_of(where=blocker)).awaits_guest
    restricted = range_facts(restricted=blocker)
    assert plan(facts_of(where=restricted, is_guest_known=False)).awaits_guest
    assert not plan(facts_of(where=range_facts(draining=True), is_guest_known=False)).awaits_guest
    assert not plan(facts_of(is_guest_known=False)).awaits_guest


# Rules that hold for all


@given(own=reservations_held, spec=specs, status=named, draining=st.booleans(), data=st.data())
def test_no_holdings_depend_on_the_order_of_things_and_no_refusal_costs_what_the_status_names(
    own: list[Reservation], spec: dict[str, Any], status: list[str], draining: bool, data: st.DataObject
) -> None:
    where = range_facts(draining=draining)
    found = plan(build_facts(own, spec, status, where=where))
    shuffled = data.draw(st.permutations(own))
    assert plan(build_facts(shuffled, spec, status, where=where)) == found
    assert len({each.space for each in found.held.values()}) <= 1
    assert all(address_of(each).family is family for family, each in found.held.items())
    there = [text for text in status if any(each.name == f"default.{text}" for each in own)]
    if found.blockers and not found.claims and any(not each.tolerable for each in found.blockers):
        assert set(there) <= set(held(found)), "what is held stays, and the reason is stated"


@given(own=reservations_held, spec=specs)
def test_holdings_that_were_carried_out_have_nothing_left_to_claim(
    own: list[Reservation], spec: dict[str, Any]
) -> None:
    """After one reconciliation; after two if what is held goes to another space first."""
    after = list(own)
    for _ in range(6):
        facts = build_facts(after, spec, [])
        found = plan(facts)
        if found.blockers or not isinstance(facts.request, Request):
            return
        if not found.claims:
            break
        after = [each for each in after if each.name != found.claims[0].name]
        after.append(_made(found.claims[0]))
    assert found.claims == ()
    again = plan(build_facts(list(found.held.values()), spec, []))
    assert (again.claims, again.held) == ((), found.held)


def _made(claim: Claim) -> Reservation:
    text = format_address(claim.address)
    return mine(text, space=claim.space, range_name=claim.range, requested=claim.requested.value)
