from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from fipop.errors import (
    AddressOutOfRangeError,
    FamilyMissingError,
    RangeDrainingError,
    RangeFullError,
    RangeUnknownError,
)
from fipop.ipam.addresses import Address, Family, parse_address
from fipop.ipam.ledger import Ledger, Range, Record, Usage
from fipop.ipam.pool import parse_pool

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
    return Range(name=name, pool=pool, created=created, descending=descending, draining=draining)


def make_ledger(*ranges: Range) -> Ledger[str]:
    ledger: Ledger[str] = Ledger()
    for each in ranges:
        ledger.set_range(each)
    return ledger


def claim_all(ledger: Ledger[str], name: str, family: Family = V4) -> list[str]:
    claimed = []
    while ledger.snapshot(name)[1 if family is V4 else 2].free:
        claimed.append(str(ledger.claim_next(name, family, f"owner-{len(claimed)}")))
    return claimed


# Order


def test_the_lowest_free_address_comes_first_whatever_the_order_of_the_parts():
    ledger = make_ledger(make_range("10.0.0.9,10.0.0.1-10.0.0.2,10.0.0.2/31"))
    assert claim_all(ledger, "lan") == ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.9"]


def test_a_descending_range_begins_at_its_highest_address():
    ledger = make_ledger(make_range("10.0.0.254-10.0.1.1,10.0.0.9", descending=True, avoid_buggy_ips=True))
    assert claim_all(ledger, "lan") == ["10.0.1.1", "10.0.0.254", "10.0.0.9"]


@pytest.mark.parametrize(("descending", "expected"), [(False, "10.0.0.2"), (True, "10.0.0.5")])
def test_a_freed_address_is_given_out_again_in_its_turn(descending: bool, expected: str):
    ledger = make_ledger(make_range("10.0.0.1-10.0.0.6", descending=descending))
    claim_all(ledger, "lan")
    for text in ("10.0.0.5", "10.0.0.2", "10.0.0.4"):
        ledger.free(at(text))
    assert ledger.claim_next("lan", V4, "new") == at(expected)


def test_the_same_history_always_gives_the_same_choices():
    """kube-fip-operator chose at random."""

    def play() -> list[str]:
        ledger = make_ledger(make_range("10.0.0.0/28,2001:db8::/124"))
        chosen = [str(ledger.claim_next("lan", family, "a")) for family in (V4, V6, V4, V6)]
        ledger.free(at(chosen[0]))
        return [*chosen, str(ledger.claim_next("lan", V4, "b"))]

    assert play() == play() == ["10.0.0.0", "2001:db8::1", "10.0.0.1", "2001:db8::2", "10.0.0.0"]


def test_a_held_address_ahead_is_stepped_over_until_it_is_freed():
    ledger = make_ledger(make_range("10.0.0.1-10.0.0.3"))
    ledger.adopt(at("10.0.0.2"), "early", "lan")
    assert ledger.claim_next("lan", V4, "a") == at("10.0.0.1")
    assert ledger.claim_next("lan", V4, "b") == at("10.0.0.3")
    ledger.free(at("10.0.0.2"))
    assert ledger.claim_next("lan", V4, "c") == at("10.0.0.2")


def test_an_address_freed_ahead_does_not_jump_the_queue():
    ledger = make_ledger(make_range("10.0.0.1-10.0.0.9"))
    assert ledger.claim_next("lan", V4, "a") == at("10.0.0.1")
    ledger.adopt(at("10.0.0.5"), "b", "lan")
    ledger.free(at("10.0.0.5"))
    assert ledger.claim_next("lan", V4, "c") == at("10.0.0.2")


# Refusals


def test_a_full_range_says_how_full_it_is():
    ledger = make_ledger(make_range("10.0.0.0/29,2001:db8::1", skip_end_ips=True))
    claim_all(ledger, "lan")
    ledger.adopt(at("10.0.0.3"), "owner-2", "lan", quarantined_until=LATER)
    with pytest.raises(RangeFullError) as caught:
        ledger.claim_next("lan", V4, "late")
    error = caught.value
    assert (error.range_name, error.family, error.total, error.used, error.quarantined) == (
        "lan",
        "IPv4",
        6,
        5,
        1,
    )
    assert error.pool_text == "10.0.0.0/29,2001:db8::1"


def test_a_missing_family_is_told_apart_from_a_full_range():
    ledger = make_ledger(make_range("10.0.0.1"))
    with pytest.raises(FamilyMissingError) as caught:
        ledger.claim_next("lan", V6, "a")
    error = caught.value
    assert (error.range_name, error.family, error.families) == ("lan", "IPv6", ("IPv4",))


def test_a_range_that_is_all_excluded_has_no_addresses():
    ledger = make_ledger(make_range("10.0.0.1", exclude=("10.0.0.1",)))
    with pytest.raises(FamilyMissingError) as caught:
        ledger.claim_next("lan", V4, "a")
    assert caught.value.families == ()


def test_an_unknown_range_is_named():
    ledger = make_ledger(make_range("10.0.0.1"))
    for refused in (
        lambda: ledger.claim_next("wan", V4, "a"),
        lambda: ledger.snapshot("wan"),
        lambda: ledger.conflicts("wan"),
        lambda: ledger.refusal(at("10.0.0.1"), "wan"),
    ):
        with pytest.raises(RangeUnknownError) as caught:
            refused()
        assert caught.value.range_name == "wan"


def test_a_draining_range_gives_out_nothing_and_breaks_nothing():
    ledger = make_ledger(make_range("10.0.0.1-10.0.0.4"))
    ledger.adopt(at("10.0.0.1"), "a", "lan")
    ledger.adopt(at("10.0.0.2"), "b", "lan", quarantined_until=LATER)
    ledger.set_range(make_range("10.0.0.1-10.0.0.4", draining=True))
    for refused in (
        lambda: ledger.claim_next("lan", V4, "a"),
        lambda: ledger.claim_next("lan", V4, "b"),
    ):
        with pytest.raises(RangeDrainingError):
            refused()
    ledger.adopt(at("10.0.0.1"), "a", "lan")
    assert ledger.snapshot("lan").whole == Usage(used=1, free=2, quarantined=1, out_of_range=0)
    ledger.set_range(make_range("10.0.0.1-10.0.0.4"))
    assert ledger.claim_next("lan", V4, "c") == at("10.0.0.3")


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
def test_an_address_that_the_range_does_not_give_out_is_refused_with_the_reason(address: str, reason: str):
    text = "10.0.0.0/24,10.0.2.128/26"
    ledger = make_ledger(make_range(text, exclude=("10.0.0.7",), skip_end_ips=True, avoid_buggy_ips=True))
    refusal = ledger.refusal(at(address), "lan")
    assert isinstance(refusal, AddressOutOfRangeError)
    assert reason in refusal.reason
    assert refusal.older_range is None


# Quarantine


def test_a_released_address_waits_for_its_quarantine():
    ledger = make_ledger(make_range("10.0.0.1-10.0.0.2"))
    ledger.adopt(at("10.0.0.1"), "a", "lan")
    ledger.adopt(at("10.0.0.1"), "a", "lan", quarantined_until=LATER)
    assert ledger.record(at("10.0.0.1")) == Record("a", "lan", LATER)
    assert ledger.claim_next("lan", V4, "b") == at("10.0.0.2")
    with pytest.raises(RangeFullError):
        ledger.claim_next("lan", V4, "c")
    ledger.free(at("10.0.0.1"))
    assert ledger.claim_next("lan", V4, "c") == at("10.0.0.1")


def test_freeing_ends_a_quarantine_whatever_its_time():
    ledger = make_ledger(make_range("10.0.0.1"))
    ledger.adopt(at("10.0.0.1"), "a", "lan", quarantined_until=LATER)
    assert ledger.free(at("10.0.0.1")) == Record("a", "lan", LATER)
    assert ledger.free(at("10.0.0.1")) is None
    assert ledger.claim_next("lan", V4, "b") == at("10.0.0.1")


# Existing holders


def test_existing_holders_are_adopted_inside_and_outside_the_range():
    ledger = make_ledger(make_range("10.0.0.1-10.0.0.3"))
    ledger.adopt(at("10.0.0.1"), "a", "lan")
    ledger.adopt(at("192.0.2.1"), "b", "lan")
    ledger.adopt(at("192.0.2.2"), "c", None)
    assert ledger.snapshot("lan").whole == Usage(used=1, free=2, quarantined=0, out_of_range=1)


def test_what_the_world_says_replaces_a_quarantine():
    ledger = make_ledger(make_range("10.0.0.1-10.0.0.3"))
    ledger.adopt(at("10.0.0.1"), "a", "lan", quarantined_until=LATER)
    ledger.adopt(at("10.0.0.1"), "b", "lan")
    assert ledger.record(at("10.0.0.1")) == Record("b", "lan")
    assert ledger.snapshot("lan").whole == Usage(used=1, free=2, quarantined=0, out_of_range=0)


def test_records_are_listed_by_address_ipv4_first():
    ledger = make_ledger(make_range("10.0.0.0/24,2001:db8::/64"))
    for text in ("2001:db8::2", "10.0.0.9", "10.0.0.10", "2001:db8::1"):
        ledger.adopt(at(text), text, "lan")
    assert [str(address) for address, _ in ledger.records()] == [
        "10.0.0.9",
        "10.0.0.10",
        "2001:db8::1",
        "2001:db8::2",
    ]


# Changes of ranges


def test_shrinking_a_range_renumbers_nobody():
    ledger = make_ledger(make_range("10.0.0.0/28"))
    held = [ledger.claim_next("lan", V4, "a") for _ in range(10)]
    ledger.set_range(make_range("10.0.0.0/30"))
    assert all(ledger.record(address) == Record("a", "lan") for address in held)
    assert ledger.snapshot("lan").whole == Usage(used=4, free=0, quarantined=0, out_of_range=6)
    ledger.adopt(held[-1], "a", "lan")
    ledger.set_range(make_range("10.0.0.0/28"))
    assert ledger.snapshot("lan").whole == Usage(used=10, free=6, quarantined=0, out_of_range=0)


def test_a_range_made_again_finds_its_holders():
    """kube-fip-operator forgot all allocations when a range was deleted and created again."""
    ledger = make_ledger(make_range("10.0.0.0/28"))
    ledger.adopt(at("10.0.0.0"), "a", "lan")
    ledger.remove_range("lan")
    assert ledger.record(at("10.0.0.0")) == Record("a", "lan")
    ledger.set_range(make_range("10.0.0.0/28"))
    assert ledger.claim_next("lan", V4, "b") == at("10.0.0.1")
    assert ledger.snapshot("lan").whole == Usage(used=2, free=14, quarantined=0, out_of_range=0)


def test_a_quarantined_address_out_of_range_counts_as_out_of_range():
    ledger = make_ledger(make_range("10.0.0.0/30"))
    ledger.adopt(at("192.0.2.1"), "a", "lan", quarantined_until=LATER)
    assert ledger.snapshot("lan").whole == Usage(used=0, free=4, quarantined=0, out_of_range=1)


# Overlapping ranges


def test_overlapping_ranges_never_give_out_the_same_address():
    """kube-fip-operator gave out the same address twice from overlapping ranges."""
    ledger = make_ledger(
        make_range("10.0.0.0/29", name="young", age_days=1), make_range("10.0.0.4/30", name="old", age_days=2)
    )
    assert claim_all(ledger, "young") == ["10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3"]
    assert claim_all(ledger, "old") == ["10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7"]
    assert ledger.snapshot("young").whole.total == ledger.snapshot("old").whole.total == 4
    assert ledger.conflicts("young") == ("old",)
    assert ledger.conflicts("old") == ()


def test_an_address_in_an_overlap_is_refused_to_the_younger_range_and_the_older_is_named():
    ledger = make_ledger(
        make_range("10.0.0.0/29", name="young"), make_range("10.0.0.4/30", name="old", age_days=2)
    )
    refusal = ledger.refusal(at("10.0.0.5"), "young")
    assert isinstance(refusal, AddressOutOfRangeError)
    assert refusal.older_range == "old"
    assert ledger.refusal(at("10.0.0.5"), "old") is None


def test_of_ranges_of_the_same_age_the_first_name_gives_out_the_overlap():
    ledger = make_ledger(make_range("10.0.0.0/30", name="b"), make_range("10.0.0.0/30", name="a"))
    assert ledger.conflicts("b") == ("a",)
    with pytest.raises(RangeFullError):
        ledger.claim_next("b", V4, "x")


def test_what_was_adopted_in_an_overlap_counts_where_its_record_says():
    ledger = make_ledger(
        make_range("10.0.0.0/29", name="young"), make_range("10.0.0.4/30", name="old", age_days=2)
    )
    ledger.adopt(at("10.0.0.5"), "a", "young")
    assert ledger.snapshot("young").whole == Usage(used=0, free=4, quarantined=0, out_of_range=1)
    assert ledger.snapshot("old").whole == Usage(used=0, free=3, quarantined=0, out_of_range=0)
    assert claim_all(ledger, "old") == ["10.0.0.4", "10.0.0.6", "10.0.0.7"]
    ledger.free(at("10.0.0.5"))
    assert ledger.claim_next("old", V4, "late") == at("10.0.0.5")


def test_a_younger_range_gives_out_what_an_older_one_excludes_or_avoids():
    ledger = make_ledger(
        make_range("10.0.0.0/24", name="old", age_days=2, exclude=("10.0.0.8/29",), avoid_buggy_ips=True),
        make_range("10.0.0.0/24", name="young"),
    )
    assert claim_all(ledger, "young") == [
        "10.0.0.0",
        *(f"10.0.0.{last}" for last in range(8, 16)),
        "10.0.0.255",
    ]


def test_an_overlap_opens_up_when_the_older_range_goes():
    ledger = make_ledger(
        make_range("10.0.0.0/29", name="young"), make_range("10.0.0.4/30", name="old", age_days=2)
    )
    held = ledger.claim_next("old", V4, "a")
    ledger.remove_range("old")
    assert ledger.conflicts("young") == ()
    assert len(claim_all(ledger, "young")) == 7
    assert ledger.record(held) == Record("a", "old")


# Size


@pytest.mark.parametrize("text", ["10.0.0.0/8", "::/0", "0.0.0.0/0,::/0"])
@pytest.mark.parametrize("descending", [False, True])
def test_memory_of_a_ledger_does_not_grow_with_its_pools(text: str, descending: bool):
    family = V6 if ":" in text else V4
    tracemalloc.start()
    try:
        ledger = make_ledger(make_range(text, descending=descending, avoid_buggy_ips=True, skip_end_ips=True))
        for owner in range(100):
            ledger.claim_next("lan", family, str(owner))
        assert tracemalloc.get_traced_memory()[1] < 256 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("takes_another", [False, True])
def test_giving_back_and_claiming_for_ever_does_not_grow(takes_another: bool):
    ledger = make_ledger(make_range("10.0.0.0/16"))
    for number in range(20):
        ledger.claim_next("lan", V4, str(number))

    def churn() -> int:
        for _ in range(3_000):
            ledger.free(at("10.0.0.7"))
            ledger.adopt(at("10.0.0.7"), "a", "lan")
            if takes_another:
                ledger.adopt(at("10.0.0.7"), "a", "lan", quarantined_until=NOW)
                ledger.free(ledger.claim_next("lan", V4, "b"))
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        # Python keeps up to 2,000 dead tuples for its own use: it has them after the first round.
        before = churn()
        assert churn() < before + 8 * 1024
    finally:
        tracemalloc.stop()


def test_a_pool_is_walked_lazily():
    assert list(islice(parse_pool("::/0").addresses.v6.addresses(), 2)) == [1, 2]


def test_setting_the_same_range_again_changes_nothing():
    ledger = make_ledger(make_range("10.0.0.0/29"))
    claim_all(ledger, "lan")
    before = list(ledger.records())
    ledger.set_range(make_range("10.0.0.0/29"))
    assert list(ledger.records()) == before
    assert ledger.range("lan") == make_range("10.0.0.0/29")
