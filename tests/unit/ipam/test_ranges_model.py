"""The allocator of ranges beside a naive one over enumerated sets: whatever is done to both, they must agree."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fipop.ipam.addresses import Address, Family
from fipop.ipam.allocator import AddressUser, Reason
from fipop.ipam.errors import (
    AddressOutOfRangeError,
    FamilyMissingError,
    IpamError,
    RangeDrainingError,
    RangeFullError,
)
from fipop.ipam.pool import parse_pool
from fipop.ipam.ranges import Range, RangeAllocator
from tests.unit.ipam.naive import (
    UNIVERSE,
    NaiveAllocator,
    NaiveRange,
    NaiveUser,
    capacity_of,
    naive_pool,
    parts,
)

START = datetime(2026, 8, 1, tzinfo=UTC)
NAMES = st.sampled_from(["amber", "birch", "cedar"])
OWNERS = st.sampled_from(["ada", "bob", "cyd", "dan"])
ADDRESSES = st.sampled_from(UNIVERSE)
FAMILIES = st.sampled_from(list(Family))
MINUTES = st.integers(0, 5)


class RangesMachine(RuleBasedStateMachine):
    @initialize()
    def make(self) -> None:
        self.allocator: RangeAllocator[str] = RangeAllocator()
        self.naive = NaiveAllocator()

    @rule(
        name=NAMES,
        texts=st.lists(parts(), min_size=1, max_size=4),
        exclude=st.lists(parts(), max_size=2),
        skip=st.booleans(),
        avoid=st.booleans(),
        age=st.integers(0, 2),
        descending=st.booleans(),
        draining=st.integers(0, 5).map(lambda number: number == 0),
    )
    def set_range(
        self,
        name: str,
        texts: list[str],
        exclude: list[str],
        skip: bool,
        avoid: bool,
        age: int,
        descending: bool,
        draining: bool,
    ) -> None:
        created = START - timedelta(days=age)
        pool = parse_pool(", ".join(texts), exclude=exclude, skip_end_ips=skip, avoid_buggy_ips=avoid)
        self.allocator.set_pool(
            Range(
                name=name,
                addresses=pool.addresses,
                source=pool,
                created=created,
                descending=descending,
                draining=draining,
            )
        )
        enumerated = naive_pool(texts, exclude, skip_end_ips=skip, avoid_buggy_ips=avoid)
        assert capacity_of(pool) == len(enumerated)
        self.naive.ranges[name] = NaiveRange(enumerated, created, descending, draining)

    @rule(name=NAMES)
    def remove_range(self, name: str) -> None:
        self.allocator.remove_pool(name)
        self.naive.ranges.pop(name, None)

    @precondition(lambda self: self.naive.ranges)
    @rule(data=st.data(), family=FAMILIES, owner=OWNERS, many=st.integers(1, 6))
    def claim(self, data: st.DataObject, family: Family, owner: str, many: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.naive.ranges)))
        for _ in range(many):
            expected = self.naive.next(name, family)
            if expected is None:
                with pytest.raises((RangeFullError, FamilyMissingError, RangeDrainingError)):
                    self.allocator.peek_free(name, family)
                return
            assert self.allocator.peek_free(name, family) == expected
            self.enter(expected, Reason.CLAIMED, owner, name, None)

    @precondition(lambda self: self.naive.ranges)
    @rule(data=st.data(), address=ADDRESSES)
    def refusal(self, data: st.DataObject, address: Address) -> None:
        name = data.draw(st.sampled_from(sorted(self.naive.ranges)))
        expected: type[IpamError] | None = None
        if self.naive.ranges[name].draining:
            expected = RangeDrainingError
        elif address not in self.naive.given_by(name):
            expected = AddressOutOfRangeError
        refusal = self.allocator.refusal(address, name)
        assert (type(refusal) if refusal is not None else None) is expected

    @rule(
        address=ADDRESSES,
        reason=st.sampled_from(Reason),
        owner=OWNERS,
        name=NAMES,
        minutes=st.none() | MINUTES,
    )
    def enter(self, address: Address, reason: Reason, owner: str, name: str, minutes: int | None) -> None:
        until = None if minutes is None else START + timedelta(minutes=minutes)
        self.allocator.enter(address, AddressUser(reason, owner, name, until))
        self.naive.users.setdefault(address, {})[reason, owner] = NaiveUser(name, until)

    @precondition(lambda self: self.naive.users)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        address = data.draw(st.sampled_from(sorted(self.naive.users)))
        reason, owner = data.draw(st.sampled_from(sorted(self.naive.users[address])))
        found = self.naive.users[address].pop((reason, owner))
        is_last = not self.naive.users[address]
        if is_last:
            del self.naive.users[address]
        user = AddressUser(Reason(reason), owner, found.pool, found.until)
        assert self.allocator.leave(address, user) is is_last
        assert not self.allocator.leave(address, user)

    @invariant()
    def both_know_the_same_users(self) -> None:
        assert list(self.allocator.addresses()) == sorted(self.naive.users)
        for address, users in self.naive.users.items():
            expected = [(*key, found.pool, found.until) for key, found in sorted(users.items())]
            assert [each[:4] for each in self.allocator.users(address)] == expected

    @invariant()
    def every_range_is_counted_exactly(self) -> None:
        for name in self.naive.ranges:
            count = self.allocator.count(name)
            assert tuple(count.ipv4) == self.naive.usage(name, Family.IPV4)
            assert tuple(count.ipv6) == self.naive.usage(name, Family.IPV6)
            assert count.whole.total == count.ipv4.total + count.ipv6.total
            assert self.allocator.conflicts(name) == tuple(self.naive.older(name))


RangesMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestRangesAgreeWithEnumeratedSets = RangesMachine.TestCase
