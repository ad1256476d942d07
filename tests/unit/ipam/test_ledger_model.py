"""The ledger beside a naive one over enumerated sets: whatever is done to both, they must agree."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fipop.errors import (
    AddressOutOfRangeError,
    FamilyMissingError,
    IpamError,
    RangeDrainingError,
    RangeFullError,
)
from fipop.ipam.addresses import Address, Family
from fipop.ipam.ledger import Ledger, Range
from fipop.ipam.pool import parse_pool
from tests.unit.ipam.naive import UNIVERSE, NaiveLedger, NaiveRange, NaiveRecord, naive_pool, parts

START = datetime(2026, 8, 1, tzinfo=UTC)
NAMES = st.sampled_from(["amber", "birch", "cedar"])
OWNERS = st.sampled_from(["ada", "bob", "cyd", "dan"])
ADDRESSES = st.sampled_from(UNIVERSE)
FAMILIES = st.sampled_from(list(Family))
MINUTES = st.integers(0, 5)


class LedgerMachine(RuleBasedStateMachine):
    @initialize()
    def make(self) -> None:
        self.ledger: Ledger[str] = Ledger()
        self.naive = NaiveLedger()
        self.now = START

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
        self.ledger.set_range(
            Range(name=name, pool=pool, created=created, descending=descending, draining=draining)
        )
        enumerated = naive_pool(texts, exclude, skip_end_ips=skip, avoid_buggy_ips=avoid)
        assert pool.capacity() == len(enumerated)
        self.naive.ranges[name] = NaiveRange(enumerated, created, descending, draining)

    @rule(name=NAMES)
    def remove_range(self, name: str) -> None:
        self.ledger.remove_range(name)
        self.naive.ranges.pop(name, None)

    @precondition(lambda self: self.naive.ranges)
    @rule(data=st.data(), family=FAMILIES, owner=OWNERS, many=st.integers(1, 6))
    def claim_next(self, data: st.DataObject, family: Family, owner: str, many: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.naive.ranges)))
        for _ in range(many):
            expected = self.naive.next(name, family)
            if expected is None:
                with pytest.raises((RangeFullError, FamilyMissingError, RangeDrainingError)):
                    self.ledger.claim_next(name, family, owner)
                return
            assert self.ledger.claim_next(name, family, owner) == expected
            self.naive.records[expected] = NaiveRecord(owner, name)

    @precondition(lambda self: self.naive.ranges)
    @rule(data=st.data(), address=ADDRESSES)
    def refusal(self, data: st.DataObject, address: Address) -> None:
        name = data.draw(st.sampled_from(sorted(self.naive.ranges)))
        expected: type[IpamError] | None = None
        if self.naive.ranges[name].draining:
            expected = RangeDrainingError
        elif address not in self.naive.given_by(name):
            expected = AddressOutOfRangeError
        refusal = self.ledger.refusal(address, name)
        assert (type(refusal) if refusal is not None else None) is expected

    @rule(
        address=ADDRESSES,
        owner=st.none() | OWNERS,
        name=st.none() | NAMES,
        minutes=st.none() | MINUTES,
    )
    def adopt(self, address: Address, owner: str | None, name: str | None, minutes: int | None) -> None:
        until = None if minutes is None else self.now + timedelta(minutes=minutes)
        self.ledger.adopt(address, owner, name, quarantined_until=until)
        self.naive.records[address] = NaiveRecord(owner, name, until)

    @rule(address=ADDRESSES)
    def free(self, address: Address) -> None:
        freed = self.ledger.free(address)
        record = self.naive.records.pop(address, None)
        assert (freed and freed.owner) == (record and record.owner)

    @invariant()
    def both_know_the_same_records(self) -> None:
        expected = [
            (each, record.owner, record.range_name, record.until)
            for each, record in sorted(self.naive.records.items())
        ]
        assert [(each, *record) for each, record in self.ledger.records()] == expected

    @invariant()
    def every_range_is_counted_exactly(self) -> None:
        for name in self.naive.ranges:
            snapshot = self.ledger.snapshot(name)
            assert tuple(snapshot.ipv4) == self.naive.usage(name, Family.IPV4)
            assert tuple(snapshot.ipv6) == self.naive.usage(name, Family.IPV6)
            assert snapshot.whole.total == snapshot.ipv4.total + snapshot.ipv6.total
            assert self.ledger.conflicts(name) == tuple(self.naive.older(name))


LedgerMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestTheLedgerAgreesWithEnumeratedSets = LedgerMachine.TestCase
