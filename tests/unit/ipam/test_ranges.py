"""What ranges assign, in which order, and how they are counted."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from fipop.ipam.addresses import Address, Family, parse_address
from fipop.ipam.allocator import AddressUser, Reason, Usage
from fipop.ipam.errors import (
    AddressOutOfRangeError,
    FamilyMissingError,
    RangeDrainingError,
    RangeFullError,
    RangeUnknownError,
)
from fipop.ipam.pool import parse_pool
from fipop.ipam.ranges import Range, RangeAllocator

V4, V6 = Family.IPV4, Family.IPV6
NOW = datetime(2026, 8, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=600)


def at(text: str) -> Address:
    return parse_address(text)


def make_range(
    text: str,
    *,
    name: str = "lan",
    age_days: int = 0,
    descending: bool = False,
    draining: bool = False,
    skip_end_ips: bool = False,
    avoid_buggy_ips: bool = False,
    exclude: tuple[str, ...] = (),
) -> Range:
    pool = parse_pool(text, exclude=exclude, skip_end_ips=skip_end_ips, avoid_buggy_ips=avoid_buggy_ips)
    created = NOW - timedelta(days=age_days)
    return Range(
        name=name,
        addresses=pool.addresses,
        source=pool,
        created=created,
        descending=descending,
        draining=draining,
    )


def make_allocator(*ranges: Range) -> RangeAllocator[str]:
    allocator: RangeAllocator[str] = RangeAllocator()
    for each in ranges:
        allocator.set_pool(each)
    return allocator


def reserve(
    allocator: RangeAllocator[str], text: str, owner: str, name: str = "lan", until: datetime | None = None
) -> None:
    """Enter the reservation of an address, which has one owner."""
    user = AddressUser(Reason.RESERVED, owner, name, until)
    before = allocator.users(at(text))
    allocator.enter(at(text), user)
    for each in before:
        if each != user:
            allocator.leave(at(text), each)


def free(allocator: RangeAllocator[str], text: str) -> None:
    for each in allocator.users(at(text)):
        allocator.leave(at(text), each)


def claim(allocator: RangeAllocator[str], name: str = "lan", family: Family = V4, owner: str = "a") -> str:
    address = allocator.peek_free(name, family)
    allocator.enter(address, AddressUser(Reason.RESERVED, owner, name))
    return str(address)


def claim_all(allocator: RangeAllocator[str], name: str, family: Family = V4) -> list[str]:
    claimed = []
    while allocator.usage(name, family).free:
        claimed.append(claim(allocator, name, family, f"owner-{len(claimed)}"))
    return claimed


# Order


def test_the_lowest_free_address_comes_first_whatever_the_order_of_the_parts() -> None:
    allocator = make_allocator(make_range("10.0.0.9,10.0.0.1-10.0.0.2,10.0.0.2/31"))
    assert claim_all(allocator, "lan") == ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.9"]


def test_a_descending_range_begins_at_its_highest_address() -> None:
    allocator = make_allocator(
        make_range("10.0.0.254-10.0.1.1,10.0.0.9", descending=True, avoid_buggy_ips=True)
    )
    assert claim_all(allocator, "lan") == ["10.0.1.1", "10.0.0.254", "10.0.0.9"]


@pytest.mark.parametrize(("descending", "expected"), [(False, "10.0.0.2"), (True, "10.0.0.5")])
def test_a_freed_address_is_given_out_again_in_its_turn(descending: bool, expected: str) -> None:
    allocator = make_allocator(make_range("10.0.0.1-10.0.0.6", descending=descending))
    claim_all(allocator, "lan")
    for text in ("10.0.0.5", "10.0.0.2", "10.0.0.4"):
        free(allocator, text)
    assert claim(allocator, "lan", V4, "new") == expected


def test_the_same_history_always_gives_the_same_choices() -> None:
    """kube-fip-operator chose at random."""

    def play() -> list[str]:
        allocator = make_allocator(make_range("10.0.0.0/28,2001:db8::/124"))
        chosen = [claim(allocator, "lan", family) for family in (V4, V6, V4, V6)]
        free(allocator, chosen[0])
        return [*chosen, claim(allocator)]

    assert play() == play() == ["10.0.0.0", "2001:db8::1", "10.0.0.1", "2001:db8::2", "10.0.0.0"]


def test_a_held_address_ahead_is_stepped_over_until_it_is_freed() -> None:
    allocator = make_allocator(make_range("10.0.0.1-10.0.0.3"))
    reserve(allocator, "10.0.0.2", "early", "lan")
    assert claim(allocator, "lan", V4, "a") == "10.0.0.1"
    assert claim(allocator, "lan", V4, "b") == "10.0.0.3"
    free(allocator, "10.0.0.2")
    assert claim(allocator, "lan", V4, "c") == "10.0.0.2"


def test_an_address_freed_ahead_does_not_jump_the_queue() -> None:
    allocator = make_allocator(make_range("10.0.0.1-10.0.0.9"))
    assert claim(allocator, "lan", V4, "a") == "10.0.0.1"
    reserve(allocator, "10.0.0.5", "b", "lan")
    free(allocator, "10.0.0.5")
    assert claim(allocator, "lan", V4, "c") == "10.0.0.2"


# Refusals


def test_a_full_range_says_which_family_is_full() -> None:
    allocator = make_allocator(make_range("10.0.0.0/29,2001:db8::1", skip_end_ips=True))
    claim_all(allocator, "lan")
    reserve(allocator, "10.0.0.3", "owner-2", "lan", until=LATER)
    with pytest.raises(RangeFullError) as caught:
        claim(allocator, "lan", V4, "late")
    error = caught.value
    assert (error.range_name, error.family) == ("lan", "IPv4")
    assert allocator.usage("lan", V4) == Usage(used=5, quarantined=1)


def test_a_missing_family_is_told_apart_from_a_full_range() -> None:
    allocator = make_allocator(make_range("10.0.0.1"))
    with pytest.raises(FamilyMissingError) as caught:
        claim(allocator, "lan", V6, "a")
    error = caught.value
    assert (error.range_name, error.family, error.families) == ("lan", "IPv6", ("IPv4",))


def test_a_range_that_is_all_excluded_has_no_addresses() -> None:
    allocator = make_allocator(make_range("10.0.0.1", exclude=("10.0.0.1",)))
    with pytest.raises(FamilyMissingError) as caught:
        claim(allocator, "lan", V4, "a")
    assert caught.value.families == ()


def test_an_unknown_range_is_named() -> None:
    allocator = make_allocator(make_range("10.0.0.1"))
    for refused in (
        lambda: claim(allocator, "wan", V4, "a"),
        lambda: allocator.count("wan"),
        lambda: allocator.conflicts("wan"),
        lambda: allocator.refusal(at("10.0.0.1"), "wan"),
    ):
        with pytest.raises(RangeUnknownError) as caught:
            refused()
        assert caught.value.range_name == "wan"


def test_a_draining_range_gives_out_nothing_and_breaks_nothing() -> None:
    allocator = make_allocator(make_range("10.0.0.1-10.0.0.4"))
    reserve(allocator, "10.0.0.1", "a", "lan")
    reserve(allocator, "10.0.0.2", "b", "lan", until=LATER)
    allocator.set_pool(make_range("10.0.0.1-10.0.0.4", draining=True))
    for refused in (
        lambda: claim(allocator, "lan", V4, "a"),
        lambda: claim(allocator, "lan", V4, "b"),
    ):
        with pytest.raises(RangeDrainingError):
            refused()
    reserve(allocator, "10.0.0.1", "a", "lan")
    assert allocator.count("lan").whole == Usage(used=1, free=2, quarantined=1, out_of_range=0)
    allocator.set_pool(make_range("10.0.0.1-10.0.0.4"))
    assert claim(allocator, "lan", V4, "c") == "10.0.0.3"


# Static addresses


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("10.0.9.1", "is not in it"),
        ("2001:db8::1", "is not in it"),
        ("10.0.0.7", "is excluded"),
        ("10.0.2.128", "is the network or broadcast address of a CIDR in it"),
        ("10.0.2.191", "is the network or broadcast address of a CIDR in it"),
        ("10.0.0.0", "ends in .0 or .255"),
        ("10.0.0.255", "ends in .0 or .255"),
    ],
)
def test_an_address_that_the_range_does_not_give_out_is_refused_with_the_reason(
    address: str, reason: str
) -> None:
    text = "10.0.0.0/24,10.0.2.128/26"
    allocator = make_allocator(
        make_range(text, exclude=("10.0.0.7",), skip_end_ips=True, avoid_buggy_ips=True)
    )
    refusal = allocator.refusal(at(address), "lan")
    assert isinstance(refusal, AddressOutOfRangeError)
    assert reason in refusal.reason
    assert refusal.older_range is None


# Quarantine


def test_a_released_address_waits_for_its_quarantine() -> None:
    allocator = make_allocator(make_range("10.0.0.1-10.0.0.2"))
    reserve(allocator, "10.0.0.1", "a", "lan")
    reserve(allocator, "10.0.0.1", "a", "lan", until=LATER)
    assert allocator.users(at("10.0.0.1")) == (AddressUser(Reason.RESERVED, "a", "lan", LATER),)
    assert claim(allocator, "lan", V4, "b") == "10.0.0.2"
    with pytest.raises(RangeFullError):
        claim(allocator, "lan", V4, "c")
    free(allocator, "10.0.0.1")
    assert claim(allocator, "lan", V4, "c") == "10.0.0.1"


def test_freeing_ends_a_quarantine_whatever_its_time() -> None:
    allocator = make_allocator(make_range("10.0.0.1"))
    reserve(allocator, "10.0.0.1", "a", "lan", until=LATER)
    free(allocator, "10.0.0.1")
    assert allocator.users(at("10.0.0.1")) == ()
    assert claim(allocator, "lan", V4, "b") == "10.0.0.1"


# Existing holders


def test_existing_holders_are_adopted_inside_and_outside_the_range() -> None:
    allocator = make_allocator(make_range("10.0.0.1-10.0.0.3"))
    reserve(allocator, "10.0.0.1", "a", "lan")
    reserve(allocator, "192.0.2.1", "b", "lan")
    reserve(allocator, "192.0.2.2", "c", "gone")
    assert allocator.count("lan").whole == Usage(used=1, free=2, quarantined=0, out_of_range=1)


def test_what_the_world_says_replaces_a_quarantine() -> None:
    allocator = make_allocator(make_range("10.0.0.1-10.0.0.3"))
    reserve(allocator, "10.0.0.1", "a", "lan", until=LATER)
    reserve(allocator, "10.0.0.1", "b", "lan")
    assert allocator.users(at("10.0.0.1")) == (AddressUser(Reason.RESERVED, "b", "lan"),)
    assert allocator.count("lan").whole == Usage(used=1, free=2, quarantined=0, out_of_range=0)


def test_addresses_in_use_are_listed_in_order_ipv4_first() -> None:
    allocator = make_allocator(make_range("10.0.0.0/24,2001:db8::/64"))
    for text in ("2001:db8::2", "10.0.0.9", "10.0.0.10", "2001:db8::1"):
        reserve(allocator, text, text)
    assert [str(address) for address in allocator.addresses()] == [
        "10.0.0.9",
        "10.0.0.10",
        "2001:db8::1",
        "2001:db8::2",
    ]


# Changes of ranges


def test_shrinking_a_range_renumbers_nobody() -> None:
    allocator = make_allocator(make_range("10.0.0.0/28"))
    held = [claim(allocator, "lan", V4, "a") for _ in range(10)]
    allocator.set_pool(make_range("10.0.0.0/30"))
    assert all(
        allocator.users(at(address)) == (AddressUser(Reason.RESERVED, "a", "lan"),) for address in held
    )
    assert allocator.count("lan").whole == Usage(used=4, free=0, quarantined=0, out_of_range=6)
    reserve(allocator, held[-1], "a")
    allocator.set_pool(make_range("10.0.0.0/28"))
    assert allocator.count("lan").whole == Usage(used=10, free=6, quarantined=0, out_of_range=0)


def test_a_range_made_again_finds_its_holders() -> None:
    """kube-fip-operator forgot all allocations when a range was deleted and created again."""
    allocator = make_allocator(make_range("10.0.0.0/28"))
    reserve(allocator, "10.0.0.0", "a", "lan")
    allocator.remove_pool("lan")
    assert allocator.users(at("10.0.0.0")) == (AddressUser(Reason.RESERVED, "a", "lan"),)
    allocator.set_pool(make_range("10.0.0.0/28"))
    assert claim(allocator, "lan", V4, "b") == "10.0.0.1"
    assert allocator.count("lan").whole == Usage(used=2, free=14, quarantined=0, out_of_range=0)


def test_a_quarantined_address_out_of_range_counts_as_out_of_range() -> None:
    allocator = make_allocator(make_range("10.0.0.0/30"))
    reserve(allocator, "192.0.2.1", "a", "lan", until=LATER)
    assert allocator.count("lan").whole == Usage(used=0, free=4, quarantined=0, out_of_range=1)


# Overlapping ranges


def test_overlapping_ranges_never_give_out_the_same_address() -> None:
    """kube-fip-operator gave out the same address twice from overlapping ranges."""
    allocator = make_allocator(
        make_range("10.0.0.0/29", name="young", age_days=1), make_range("10.0.0.4/30", name="old", age_days=2)
    )
    assert claim_all(allocator, "young") == ["10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3"]
    assert claim_all(allocator, "old") == ["10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7"]
    assert allocator.count("young").whole.total == allocator.count("old").whole.total == 4
    assert allocator.conflicts("young") == ("old",)
    assert allocator.conflicts("old") == ()


def test_an_address_in_an_overlap_is_refused_to_the_younger_range_and_the_older_is_named() -> None:
    allocator = make_allocator(
        make_range("10.0.0.0/29", name="young"), make_range("10.0.0.4/30", name="old", age_days=2)
    )
    refusal = allocator.refusal(at("10.0.0.5"), "young")
    assert isinstance(refusal, AddressOutOfRangeError)
    assert refusal.older_range == "old"
    assert allocator.refusal(at("10.0.0.5"), "old") is None


def test_of_ranges_of_the_same_age_the_first_name_gives_out_the_overlap() -> None:
    allocator = make_allocator(make_range("10.0.0.0/30", name="b"), make_range("10.0.0.0/30", name="a"))
    assert allocator.conflicts("b") == ("a",)
    with pytest.raises(RangeFullError):
        claim(allocator, "b", V4, "x")


def test_what_was_adopted_in_an_overlap_counts_where_its_record_says() -> None:
    allocator = make_allocator(
        make_range("10.0.0.0/29", name="young"), make_range("10.0.0.4/30", name="old", age_days=2)
    )
    reserve(allocator, "10.0.0.5", "a", "young")
    assert allocator.count("young").whole == Usage(used=0, free=4, quarantined=0, out_of_range=1)
    assert allocator.count("old").whole == Usage(used=0, free=3, quarantined=0, out_of_range=0)
    assert claim_all(allocator, "old") == ["10.0.0.4", "10.0.0.6", "10.0.0.7"]
    free(allocator, "10.0.0.5")
    assert claim(allocator, "old", V4, "late") == "10.0.0.5"


def test_a_younger_range_gives_out_what_an_older_one_excludes_or_avoids() -> None:
    allocator = make_allocator(
        make_range("10.0.0.0/24", name="old", age_days=2, exclude=("10.0.0.8/29",), avoid_buggy_ips=True),
        make_range("10.0.0.0/24", name="young"),
    )
    assert claim_all(allocator, "young") == [
        "10.0.0.0",
        *(f"10.0.0.{last}" for last in range(8, 16)),
        "10.0.0.255",
    ]


def test_an_overlap_opens_up_when_the_older_range_goes() -> None:
    allocator = make_allocator(
        make_range("10.0.0.0/29", name="young"), make_range("10.0.0.4/30", name="old", age_days=2)
    )
    held = claim(allocator, "old", V4, "a")
    assert allocator.conflicts("young") == ("old",)
    allocator.remove_pool("old")
    assert allocator.conflicts("young") == ()
    assert len(claim_all(allocator, "young")) == 7
    assert allocator.users(at(held)) == (AddressUser(Reason.RESERVED, "a", "old"),)


# Size


@pytest.mark.parametrize("text", ["10.0.0.0/8", "::/0", "0.0.0.0/0,::/0"])
@pytest.mark.parametrize("descending", [False, True])
def test_memory_of_an_allocator_does_not_grow_with_its_pools(text: str, descending: bool) -> None:
    family = V6 if ":" in text else V4
    tracemalloc.start()
    try:
        allocator = make_allocator(
            make_range(text, descending=descending, avoid_buggy_ips=True, skip_end_ips=True)
        )
        for owner in range(100):
            claim(allocator, "lan", family, str(owner))
        assert tracemalloc.get_traced_memory()[1] < 256 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("takes_another", [False, True])
def test_giving_back_and_claiming_for_ever_does_not_grow(takes_another: bool) -> None:
    allocator = make_allocator(make_range("10.0.0.0/16"))
    for number in range(20):
        claim(allocator, "lan", V4, str(number))

    def churn() -> int:
        for _ in range(3_000):
            free(allocator, "10.0.0.7")
            reserve(allocator, "10.0.0.7", "a", "lan")
            if takes_another:
                reserve(allocator, "10.0.0.7", "a", "lan", until=NOW)
                free(allocator, claim(allocator, "lan", V4, "b"))
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        # Python keeps up to 2,000 dead tuples for its own use: it has them after the first round.
        before = churn()
        assert churn() < before + 8 * 1024
    finally:
        tracemalloc.stop()


def test_a_pool_is_walked_lazily() -> None:
    assert list(islice(parse_pool("::/0").addresses.v6.addresses(), 2)) == [1, 2]


def test_setting_the_same_range_again_changes_nothing() -> None:
    allocator = make_allocator(make_range("10.0.0.0/29"))
    claim_all(allocator, "lan")
    before = list(allocator.addresses()), allocator.count("lan")
    allocator.set_pool(make_range("10.0.0.0/29"))
    assert (list(allocator.addresses()), allocator.count("lan")) == before
    assert allocator.pool("lan") == make_range("10.0.0.0/29")


def test_of_two_ranges_the_older_is_by_time_then_by_name() -> None:
    ranges = [make_range("10.0.0.0/24", name=name) for name in ("b", "a")]
    ranges.append(make_range("10.0.0.0/24", name="z", age_days=1))
    assert [each.name for each in sorted(ranges, key=lambda each: each.age)] == ["z", "a", "b"]


def test_the_user_with_the_strongest_reason_holds_an_address_until_the_last_user_leaves() -> None:
    allocator = make_allocator(make_range("10.0.0.1"), make_range("10.0.0.2", name="wan"))
    reserved = AddressUser(Reason.RESERVED, "z", "lan", LATER)
    named, wanted = AddressUser(Reason.NAMED, "b", "wan"), AddressUser(Reason.WANTED, "a", "wan")
    for user in (wanted, reserved, named):
        allocator.enter(at("10.0.0.1"), user)
    assert allocator.users(at("10.0.0.1")) == (reserved, named, wanted)
    assert allocator.count("lan").whole == Usage(quarantined=1)
    assert [allocator.leave(at("10.0.0.1"), each) for each in (reserved, reserved, wanted)] == [False] * 3
    assert allocator.count("wan").whole == Usage(free=1, out_of_range=1)
    assert allocator.leave(at("10.0.0.1"), named)
    assert allocator.peek_free("lan", V4) == at("10.0.0.1")


def test_peeking_changes_nothing() -> None:
    allocator = make_allocator(make_range("10.0.0.1-10.0.0.4"))
    assert {str(allocator.peek_free("lan", V4)) for _ in range(3)} == {"10.0.0.1"}
    assert list(allocator.addresses()) == []
    assert [str(each) for each in allocator.free_addresses("lan", V4)] == [f"10.0.0.{n}" for n in range(1, 5)]
