"""A table of ranges beside a naive one over enumerated sets: whatever is done to both, they must agree."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fipop.ipam.addresses import Address, Family
from fipop.ipam.errors import (
    AddressOutOfRangeError,
    FamilyMissingError,
    IpamError,
    RangeDrainingError,
    RangeFullError,
)
from fipop.ipam.pool import parse_pool
from fipop.ipam.ranges import Range, RangeTable
from tests.unit.ipam.naive import UNIVERSE, NaiveRange, NaiveTable, capacity_of, naive_pool, parts

START = datetime(2026, 8, 1, tzinfo=UTC)
NAMES = st.sampled_from(["amber", "birch", "cedar", "dogwood"])
SPACES = st.sampled_from(["default", "default", "lab"])
FAMILIES = st.sampled_from(list(Family))


class RangesMachine(RuleBasedStateMachine):
    @initialize()
    def make(self) -> None:
        self.table = RangeTable()
        self.freed = 0
        self.naive = NaiveTable()

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
    def enter(
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
        created, space = START - timedelta(days=age), "lab" if name == "dogwood" else "default"
        pool = parse_pool(", ".join(texts), exclude=exclude, skip_end_ips=skip, avoid_buggy_ips=avoid)
        self.table.enter(
            Range(
                name=name, space=space, pool=pool, created=created, descending=descending, draining=draining
            )
        )
        enumerated = naive_pool(texts, exclude, skip_end_ips=skip, avoid_buggy_ips=avoid)
        assert capacity_of(pool) == len(enumerated)
        self.naive.ranges[name] = NaiveRange(space, enumerated, created, descending, draining)

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        self.table.remove(name)
        self.naive.ranges.pop(name, None)

    @precondition(lambda self: self.naive.ranges)
    @rule(data=st.data(), family=FAMILIES, many=st.integers(1, 6))
    def claim(self, data: st.DataObject, family: Family, many: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.naive.ranges)))
        found, used = self.naive.ranges[name], self.naive.used
        for _ in range(many):
            expected = self.naive.next(name, family)
            here = {address for space, address in used if space == found.space}
            told = self.table.next_free(name, family, here, self.freed)
            if expected is None:
                has_family = any(each.family is family for each in found.pool)
                kind = RangeFullError if has_family else FamilyMissingError
                assert type(told) is (RangeDrainingError if found.draining else kind)
                return
            assert told == expected
            used.add((found.space, expected))

    @rule(space=SPACES, address=st.sampled_from(UNIVERSE))
    def use(self, space: str, address: Address) -> None:
        """Use an address without a claim: by hand, or from another range."""
        self.naive.used.add((space, address))

    @precondition(lambda self: self.naive.used)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        self.naive.used.remove(data.draw(st.sampled_from(sorted(self.naive.used))))
        self.freed += 1

    @precondition(lambda self: self.naive.ranges)
    @rule(data=st.data(), address=st.sampled_from(UNIVERSE))
    def refuse(self, data: st.DataObject, address: Address) -> None:
        name = data.draw(st.sampled_from(sorted(self.naive.ranges)))
        expected: type[IpamError] | None = None
        if self.naive.ranges[name].draining:
            expected = RangeDrainingError
        elif address not in self.naive.assigned(name):
            expected = AddressOutOfRangeError
        refusal = self.table.refusal(name, address)
        assert (type(refusal) if refusal is not None else None) is expected
        older = re.search(r'belongs to the older range "(\w+)"', str(refusal))
        if older is not None:
            assert address in self.naive.ranges[older[1]].pool

    @invariant()
    def every_range_assigns_what_no_older_one_has(self) -> None:
        for name in self.naive.ranges:
            assigned = self.naive.assigned(name)
            assert {each for each in UNIVERSE if each in self.table.assigned(name)} == assigned & {*UNIVERSE}
            for family in Family:
                count = sum(each.family is family for each in assigned)
                assert self.table.assigned(name).of(family).count == count
            assert self.table.older(name) == self.naive.older(name)
        assert [each.name for each in self.table.all()] == sorted(
            self.naive.ranges, key=lambda name: (self.naive.ranges[name].created, name)
        )


RangesMachine.TestCase.settings = settings(stateful_step_count=40)
TestRangesAgreeWithEnumeratedSets = RangesMachine.TestCase
