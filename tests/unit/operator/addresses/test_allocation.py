from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.api.models import Requested, Reservation
from fipop.ipam.addresses import Address, Family, format_address, parse_address
from fipop.operator.addresses.allocation import (
    AllocationView,
    DesiredAddress,
    Plan,
    RangeView,
    find_lost,
    keep_best,
    plan_allocation,
)
from fipop.operator.addresses.ownership import address_of
from fipop.operator.addresses.request import SpecError, read_request
from tests.harness.objects import floating_ip, held_by, reservation
from tests.harness.views import POOL, range_view

V4, V6 = Family.IPV4, Family.IPV6


def view(name: str = "pool", text: str = POOL, *, others: tuple[str, ...] = (), **fields: Any) -> RangeView:
    return range_view(name, text, is_anothers=lambda address: format_address(address) in others, **fields)


def plan(
    *held: Reservation,
    where: RangeView | None = None,
    had: tuple[str, ...] = (),
    made_by_us: bool = False,
    **spec: Any,
) -> Plan:
    request = read_request(floating_ip(**spec))
    facts = AllocationView(
        range=where or view(),
        held=held,
        had=frozenset(parse_address(text) for text in had),
        had_in="default",
        made_by_us=made_by_us,
    )
    return plan_allocation(request, facts)


def claims(decided: Plan) -> list[tuple[Family, str | None, str | None]]:
    """Family, address and what it replaces of every claim."""
    return [
        (
            desired.family,
            format_address(desired.address) if desired.address else None,
            desired.replaces.address if desired.replaces else None,
        )
        for desired in decided.claim
    ]


def test_who_has_nothing_and_names_nothing_gets_the_next_free_address() -> None:
    decided = plan()
    assert claims(decided) == [(V4, None, None)]
    assert decided.claim[0].requested is Requested.DYNAMIC
    assert (decided.keep, decided.blockers) == ((), ())


def test_who_names_an_address_gets_that_one_or_none() -> None:
    decided = plan(ipaddress="10.0.0.7")
    assert claims(decided) == [(V4, "10.0.0.7", None)]
    assert decided.claim[0].requested is Requested.STATIC


def test_what_is_held_and_named_is_kept() -> None:
    mine = reservation("10.0.0.7")
    assert plan(mine, ipaddress="10.0.0.7") == Plan(keep=(mine,))
    assert plan(mine) == Plan(keep=(mine,)), "an emptied spec changes nothing"


def test_a_new_address_is_claimed_before_the_old_one_goes() -> None:
    decided = plan(reservation("10.0.0.7"), ipaddress="10.0.0.8")
    assert claims(decided) == [(V4, "10.0.0.8", "10.0.0.7")]
    assert decided.keep == ()


def test_a_new_address_that_the_range_refuses_leaves_the_old_one() -> None:
    mine = reservation("10.0.0.7")
    decided = plan(mine, ipaddress="10.0.0.99")
    assert decided.surplus == (mine,)
    assert decided.claim == ()
    assert decided.blockers[0].reason == "AddressOutOfRange"


def test_the_range_has_no_say_in_an_address_that_was_held_before() -> None:
    decided = plan(ipaddress="10.0.0.99", had=("10.0.0.99",))
    assert claims(decided) == [(V4, "10.0.0.99", None)]
    assert decided.claim[0].confirms


def test_a_vanished_reservation_is_made_again_also_where_the_spec_was_emptied_meanwhile() -> None:
    decided = plan(had=("10.0.0.9",), where=view(draining=True))
    assert claims(decided) == [(V4, "10.0.0.9", None)]
    assert decided.claim[0].confirms


@pytest.mark.parametrize(("made_by_us", "requested"), [(True, Requested.DYNAMIC), (False, Requested.STATIC)])
def test_an_address_that_was_chosen_for_a_guest_does_not_turn_static_when_it_is_confirmed(
    made_by_us: bool, requested: Requested
) -> None:
    decided = plan(ipaddress="10.0.0.9", had=("10.0.0.9",), made_by_us=made_by_us)
    assert decided.claim[0].requested is requested


@pytest.mark.parametrize("requested", ["static", "dynamic"])
@pytest.mark.parametrize("address", ["10.0.0.99", ""])
def test_an_address_that_is_out_of_its_range_by_now_stays(requested: str, address: str) -> None:
    mine = reservation("10.0.0.99", requested=requested)
    assert plan(mine, ipaddress=address, had=("10.0.0.99",)) == Plan(keep=(mine,))


def test_a_chosen_address_moves_to_another_range() -> None:
    decided = plan(reservation("10.0.0.7"), where=view("new", "10.1.0.0/24"), ipaddress="10.0.0.7")
    assert claims(decided) == [(V4, None, "10.0.0.7")]


def test_a_move_that_was_cut_short_is_completed_with_the_address_that_it_has() -> None:
    old, new = reservation("10.0.0.7"), reservation("10.1.0.9", range_name="new")
    decided = plan(old, new, where=view("new", "10.1.0.0/24"), ipaddress="10.0.0.7", had=("10.0.0.7",))
    assert decided == Plan(keep=(new,), surplus=(old,))


def test_an_address_that_was_asked_for_by_name_stays_where_the_other_range_lacks_it() -> None:
    mine = reservation("10.0.0.7", requested="static")
    decided = plan(mine, where=view("new", "10.1.0.0/24"), ipaddress="10.0.0.7")
    assert decided.surplus == (mine,)
    assert decided.blockers[0].reason == "AddressOutOfRange"


def test_an_address_that_the_other_range_gives_out_too_is_counted_there() -> None:
    decided = plan(reservation("10.0.0.7"), where=view("new", "10.0.0.0/24"), ipaddress="10.0.0.7")
    assert claims(decided) == [(V4, "10.0.0.7", "10.0.0.7")]


def test_a_chosen_address_that_another_has_in_the_new_space_is_changed_for_a_new_one() -> None:
    """Its owner waited there for good, though any address would have done."""
    mine = reservation("10.0.0.7", requested="dynamic")
    where = view(space="lab", others=("10.0.0.7",))
    assert claims(plan(mine, where=where, had=("10.0.0.7",))) == [(V4, None, "10.0.0.7")]
    begun = reservation("10.0.0.9", requested="dynamic", space="lab")
    assert plan(mine, begun, where=where, had=("10.0.0.7",)).keep == (begun,), "what was begun is used"
    named = reservation("10.0.0.7", requested="static")
    decided = plan(named, where=where, had=("10.0.0.7",), ipaddress="10.0.0.7")
    assert claims(decided) == [(V4, "10.0.0.7", "10.0.0.7")], "who names it waits for it"


def test_a_draining_range_gives_nothing_new_and_takes_nothing_away() -> None:
    assert plan(where=view(draining=True)).blockers[0].reason == "RangeDraining"
    mine = reservation("10.0.0.7")
    assert plan(mine, where=view(draining=True), ipaddress="10.0.0.7") == Plan(keep=(mine,))


def test_of_two_reservations_the_one_that_the_spec_names_is_kept_else_the_one_of_the_status() -> None:
    first, second = reservation("10.0.0.7"), reservation("10.0.0.8")
    asked = reservation("10.0.0.8", requested="static")
    assert plan(first, asked, ipaddress="10.0.0.8", had=("10.0.0.7",)).keep == (asked,)
    assert plan(first, second, had=("10.0.0.8",)).keep == (second,)
    older = reservation("10.0.0.9", since="2025-01-01T00:00:00Z")
    assert plan(first, second, older).keep == (older,)


def test_a_family_that_is_wanted_no_more_is_spare_until_what_takes_its_place_is_there() -> None:
    mine = reservation("fd00::7")
    decided = plan(mine, ipaddress="10.0.0.8")
    assert claims(decided) == [(V4, "10.0.0.8", None)]
    assert decided.surplus == (mine,)


def test_an_obstacle_to_one_family_is_tolerable_where_both_are_only_preferred() -> None:
    decided = plan(where=view(draining=True), ipFamilyPolicy="PreferDualStack")
    assert decided.content_with_one
    assert all(blocker.tolerable for blocker in decided.blockers)
    named = plan(ipaddress="10.0.0.99", ipFamilyPolicy="PreferDualStack")
    assert [blocker.tolerable for blocker in named.blockers] == [False], "who names one wants that one"


def test_of_several_of_a_family_the_one_of_the_status_is_kept_while_nothing_can_be_decided() -> None:
    known, begun, other = reservation("10.0.0.7"), reservation("10.0.0.1"), reservation("fd00::1")
    had = frozenset({parse_address("10.0.0.7")})
    assert keep_best([begun, known, other], had, space="default") == (known, other)


def test_what_the_status_names_and_no_reservation_says_is_lost() -> None:
    had = frozenset({parse_address("10.0.0.7"), parse_address("fd00::7")})

    def lost(own: Reservation, space: str = "default") -> list[str]:
        found = find_lost([own], had, space=space, asked_for=())
        assert all(desired.confirms for desired in found)
        return [format_address(desired.address) for desired in found if desired.address]

    assert lost(reservation("fd00::7")) == ["10.0.0.7"]
    assert lost(reservation("fd00::7"), "lab") == ["10.0.0.7", "fd00::7"], "the same address of another space"
    assert lost(reservation("fd00::1")) == ["10.0.0.7", "fd00::7"], (
        "another one, which it is on the move from or to"
    )


def test_what_was_released_for_another_address_did_not_vanish() -> None:
    """The status that says so is on its way."""
    had = frozenset({parse_address("10.0.0.7")})
    released = reservation("10.0.0.7", quarantined_until="2026-01-01T00:10:00Z")
    assert find_lost([reservation("10.0.0.9"), released], had, space="default", asked_for=()) == ()
    (desired,) = find_lost([released], had, space="default", asked_for=())
    assert desired.address == parse_address("10.0.0.7"), "nothing else is held"


def test_a_vanished_reservation_is_made_again_before_another_address_is_asked_for() -> None:
    moved = floating_ip(ipaddress="10.0.0.9", status=held_by(["10.0.0.7"]))
    facts = AllocationView(
        range=view(),
        held=(),
        had=frozenset({parse_address("10.0.0.7")}),
        had_in="default",
        made_by_us=False,
    )
    (desired,) = plan_allocation(read_request(moved), facts).claim
    assert desired == DesiredAddress(
        family=V4, address=parse_address("10.0.0.7"), requested=Requested.STATIC, confirms=True
    )


hosts = st.integers(1, 60)
reservations_held = st.lists(
    st.builds(
        lambda host, is_v6, space, range_name, requested: reservation(
            f"fd00::{host:x}" if is_v6 else f"10.0.0.{host}",
            space=space,
            range_name=range_name,
            requested=requested,
        ),
        hosts,
        st.booleans(),
        st.sampled_from(["default", "default", "lab"]),
        st.sampled_from(["pool", "other"]),
        st.sampled_from(["static", "dynamic"]),
    ),
    unique_by=lambda each: each.name,
    max_size=5,
)
specs = st.fixed_dictionaries(
    {},
    optional={
        "ipaddress": st.sampled_from(["10.0.0.5", "fd00::5", "10.0.0.59,fd00::5", "fd00::5,10.0.0.5", ""]),
        "ipFamilyPolicy": st.sampled_from(["SingleStack", "PreferDualStack", "RequireDualStack"]),
        "ipFamilies": st.sampled_from([["IPv4"], ["IPv6"], ["IPv6", "IPv4"]]),
    },
)


@given(held=reservations_held, spec=specs, draining=st.booleans(), data=st.data())
def test_a_plan_loses_no_family_keeps_one_address_of_each_and_does_not_depend_on_the_order_of_things(
    held: list[Reservation], spec: dict[str, Any], draining: bool, data: st.DataObject
) -> None:
    try:
        decided = plan(*held, where=view(draining=draining), **spec)
    except SpecError:
        return
    shuffled = data.draw(st.permutations(held))
    assert plan(*shuffled, where=view(draining=draining), **spec) == decided
    kept = [address_of(each).family for each in (*decided.keep, *decided.surplus)]
    replaced = [desired.family for desired in decided.claim if desired.replaces is not None]
    assert sorted([*kept, *replaced]) == sorted({address_of(each).family for each in held})
    assert len({desired.family for desired in decided.claim}) == len(decided.claim)
    assert [desired.family for desired in decided.claim] == sorted(
        desired.family for desired in decided.claim
    )


@given(held=reservations_held, spec=specs)
def test_plans_that_were_carried_out_have_nothing_left_to_do(
    held: list[Reservation], spec: dict[str, Any]
) -> None:
    """After one round; after two where what is held goes to another space first."""
    after = held
    for _ in range(2):
        try:
            decided = plan(*after, **spec)
        except SpecError:
            return
        if decided.blockers:
            return
        after = [
            *decided.keep,
            *(_granted(desired.address, desired.family, desired.requested) for desired in decided.claim),
        ]
        if all(each.space == "default" for each in held):
            break
    again = plan(*after, **spec)
    assert again.claim == ()
    assert {each.name for each in again.keep} == {each.name for each in after}


def _granted(address: Address | None, family: Family, requested: Requested) -> Reservation:
    text = format_address(address) if address else {V4: "10.0.0.40", V6: "fd00::40"}[family]
    return reservation(text, requested=requested.value)


def test_who_moves_back_by_name_before_the_former_address_was_given_back_has_asked_for_it() -> None:
    chosen, asked = reservation("10.0.0.7", requested="dynamic"), reservation("10.0.0.9", requested="static")
    back = read_request(floating_ip(ipaddress="10.0.0.7", status=held_by(["10.0.0.9"])))
    facts = AllocationView(
        range=view(),
        held=(chosen, asked),
        had=frozenset({parse_address("10.0.0.9")}),
        had_in="default",
        made_by_us=False,
    )
    (desired,) = plan_allocation(back, facts).claim
    assert (desired.address, desired.requested, desired.renames) == (
        parse_address("10.0.0.7"),
        Requested.STATIC,
        True,
    )
    # A move to another range that was cut short before its status: what was chosen there stays chosen.
    elsewhere = reservation("10.0.0.9", requested="dynamic", range_name="other")
    cut_short = replace(facts, held=(chosen, elsewhere))
    assert plan_allocation(back, cut_short).keep == (chosen,)
