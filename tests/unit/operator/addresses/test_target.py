"""What a floating IP is to hold: both families or neither, what stays, and of which space."""

from typing import Any

import pytest

from fipop.api.models import Requested, Reservation
from fipop.ipam.addresses import Family, format_address
from fipop.operator.addresses.blockers import Blocker
from fipop.operator.addresses.target import Target, find_target
from tests.harness.objects import floating_ip, held_by, reservation
from tests.harness.views import FakeHolders, range_view, view_of

V4, V6 = Family.IPV4, Family.IPV6
BOTH = {"ipFamilyPolicy": "RequireDualStack"}


def had(*addresses: str, **spec: Any) -> Any:
    return floating_ip(status=held_by(list(addresses)), **spec)


def mine(address: str, **fields: Any) -> Reservation:
    return reservation(address, cluster="demo", **fields)


def claims(target: Target) -> list[str]:
    return [format_address(each.claim.address) for each in target.claims]


def held(target: Target) -> list[str]:
    return [each.address for _, each in sorted(target.held.items())]


def reasons(target: Target) -> list[str]:
    return [each.reason for each in target.blockers]


def test_both_families_are_claimed_ipv4_first() -> None:
    assert claims(find_target(view_of(floating_ip(**BOTH)))) == ["10.0.0.1", "fd00::1"]


@pytest.mark.parametrize("address", ["", "10.0.0.9,fd00::9"], ids=["any", "by name"])
def test_both_families_or_none_begins_nothing_where_one_is_known_not_to_be_had(address: str) -> None:
    taken = reservation("fd00::9", "other")
    others = FakeHolders(free=["10.0.0.1"], others={taken.name: taken})
    target = find_target(view_of(floating_ip(ipaddress=address, **BOTH), others=others))
    assert (claims(target), held(target)) == ([], [])
    assert len(target.blockers) == 1


def test_what_was_begun_is_not_kept_where_the_second_family_turned_out_to_be_taken() -> None:
    begun, taken = mine("10.0.0.9"), reservation("fd00::9", "other")
    subject = floating_ip(ipaddress="10.0.0.9,fd00::9")
    target = find_target(view_of(subject, begun, denied=(taken,)))
    assert (claims(target), held(target), reasons(target)) == ([], [], ["AddressInUse"])


def test_what_the_floating_ip_had_stays_where_the_second_family_is_not_to_be_had() -> None:
    only = mine("10.0.0.9")
    nothing = FakeHolders(free=[])
    target = find_target(view_of(had("10.0.0.9", **BOTH), only, others=nothing))
    assert (held(target), reasons(target)) == (["10.0.0.9"], ["RangeFull"])
    moving = had("10.0.0.9", ipaddress="10.0.0.8", **BOTH)
    target = find_target(view_of(moving, only, others=nothing))
    assert held(target) == ["10.0.0.9"], "its replacement is not begun either"


def test_what_the_predecessor_gave_out_counts_as_had() -> None:
    inherited = floating_ip(ipaddress="10.0.0.9", **BOTH)
    nothing = FakeHolders(free=[])
    target = find_target(view_of(inherited, others=nothing, is_inherited=True))
    assert claims(target) == ["10.0.0.9"], "it is claimed, whatever comes of the rest"
    target = find_target(view_of(inherited, mine("10.0.0.9"), others=nothing, is_inherited=True))
    assert held(target) == ["10.0.0.9"]


def test_the_old_address_stays_where_its_replacement_turned_out_to_be_taken() -> None:
    old, taken = mine("10.0.0.1"), reservation("10.0.0.2", "other")
    subject = had("10.0.0.1", ipaddress="10.0.0.2")
    assert claims(find_target(view_of(subject, old))) == ["10.0.0.2"]
    target = find_target(view_of(subject, old, denied=(taken,)))
    assert (claims(target), held(target), reasons(target)) == ([], ["10.0.0.1"], ["AddressInUse"])


@pytest.mark.parametrize("is_taken", [True, False])
def test_a_family_that_is_wanted_no_more_stays_until_the_other_is_there(is_taken: bool) -> None:
    subject, old = had("fd00::1", ipaddress="10.0.0.2"), mine("fd00::1")
    if is_taken:
        target = find_target(view_of(subject, old, denied=(reservation("10.0.0.2", "other"),)))
        assert held(target) == [old.address]
    else:
        target = find_target(view_of(subject, old, mine("10.0.0.2")))
        assert held(target) == ["10.0.0.2"]


def test_one_family_is_enough_where_both_are_only_preferred() -> None:
    subject = floating_ip(ipFamilyPolicy="PreferDualStack")
    target = find_target(view_of(subject, mine("10.0.0.1"), others=FakeHolders(free=[])))
    assert held(target) == ["10.0.0.1"]
    assert [each.tolerable for each in target.blockers] == [True]


def test_a_chosen_address_that_another_took_meanwhile_is_changed_for_the_next_free_one() -> None:
    subject = had("10.0.0.7", annotations={"fiprange": "new"})
    chosen, where = mine("10.0.0.7"), range_view("new")
    taken = reservation("10.0.0.7", "other")
    assert claims(find_target(view_of(subject, chosen, where=where))) == ["10.0.0.7"]
    assert claims(find_target(view_of(subject, chosen, where=where, denied=(taken,)))) == ["10.0.0.1"]


def test_what_is_held_already_where_it_is_to_move_is_not_claimed_again() -> None:
    subject = had("10.0.0.7", annotations={"fiprange": "lab"})
    old, new = mine("10.0.0.7"), mine("10.0.0.7", space="lab", range_name="lab")
    target = find_target(view_of(subject, old, new, where=range_view("lab", space="lab")))
    assert (claims(target), [each.space for each in target.held.values()]) == ([], ["lab"])


def test_what_is_lost_is_claimed_where_the_status_says_it_was_before_the_wish_is_looked_at() -> None:
    subject = had("10.0.0.7", ipaddress="10.0.0.8", annotations={"fiprange": "new"})
    (found,) = find_target(view_of(subject, where=range_view("new", space="lab"))).claims
    assert (format_address(found.claim.address), found.claim.range, found.claim.space) == (
        "10.0.0.7",
        "pool",
        "default",
    )
    assert found.is_own


def test_what_is_lost_for_good_is_told_before_the_wish_is_looked_at() -> None:
    subject = had("10.0.0.7", ipaddress="10.0.0.8")
    target = find_target(view_of(subject, denied=(reservation("10.0.0.7", "other"),)))
    assert (claims(target), reasons(target), target.names_spec) == ([], ["AddressInUse"], False)


def test_what_is_held_stays_where_the_wish_cannot_be_read_or_has_no_range() -> None:
    known, begun, other = mine("10.0.0.7"), mine("10.0.0.1"), mine("fd00::1")
    unreadable = had("10.0.0.7", "fd00::1", ipaddress="nonsense")
    target = find_target(view_of(unreadable, begun, known, other))
    assert held(target) == ["10.0.0.7", other.address]
    assert (reasons(target), target.names_spec) == (["InvalidSpec"], False)
    blocker = Blocker(reason="RangeNotFound", message="no")
    target = find_target(view_of(had("10.0.0.7", "fd00::1"), begun, known, other, where=blocker))
    assert (held(target), reasons(target)) == (["10.0.0.7", other.address], ["RangeNotFound"])


def test_what_the_status_names_is_claimed_again_also_where_the_wish_has_no_range() -> None:
    """Without that the status lost it, and the next to come got what the guest still carried."""
    subject = floating_ip(status={"addresses": ["10.0.0.7"], "observedGeneration": 1})
    blocker = Blocker(reason="RangeNotFound", message="no")
    (found,) = find_target(view_of(subject, where=blocker)).claims
    assert (format_address(found.claim.address), found.claim.requested) == ("10.0.0.7", Requested.DYNAMIC)


def test_a_status_names_one_space_and_what_is_of_another_is_left() -> None:
    both = had("10.0.0.7", ipFamilyPolicy="PreferDualStack")
    old, other = mine("10.0.0.7"), mine("fd00::7", space="lab")
    target = find_target(view_of(both, old, other, others=FakeHolders(free=[])))
    assert held(target) == ["10.0.0.7"]


def test_who_asks_more_than_the_guest_may_have_is_told_and_what_was_its_own_is_no_matter_of_quota() -> None:
    quota = {"10.0.0.7": Blocker(reason="QuotaExceeded", message="enough")}
    target = find_target(view_of(floating_ip(ipaddress="10.0.0.7"), others=FakeHolders(refused=quota)))
    assert (claims(target), reasons(target)) == ([], ["QuotaExceeded"])
    assert claims(find_target(view_of(had("10.0.0.7"), others=FakeHolders(refused=quota)))) == ["10.0.0.7"]


def test_the_guest_is_awaited_where_only_it_tells_the_range() -> None:
    blocker = Blocker(reason="GuestNotFound", message="not known yet")
    assert find_target(view_of(where=blocker, is_guest_known=False)).awaits_guest
    assert not find_target(view_of(where=blocker)).awaits_guest
