"""The ledger beside a naive one over enumerated sets: whatever is done to both, they must agree."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fipop.errors import (
    AddressHeldError,
    AddressNotHeldError,
    AddressOutOfRangeError,
    AddressQuarantinedError,
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
    @initialize(shared=st.booleans())
    def make(self, shared: bool) -> None:
        self.ledger: Ledger[str] = Ledger(shared_overlaps=shared)
        self.naive = NaiveLedger(shared_overlaps=shared)
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
            expected = self.naive.next(name, family, owner)
            if expected is None:
                with pytest.raises((RangeFullError, FamilyMissingError, RangeDrainingError)):
                    self.ledger.choose(name, family, owner)
                with pytest.raises((RangeFullError, FamilyMissingError, RangeDrainingError)):
                    self.ledger.claim_next(name, family, owner)
                return
            assert self.ledger.choose(name, family, owner) == expected
            assert self.ledger.claim_next(name, family, owner) == expected
            self.naive.records[expected] = NaiveRecord(owner, name)

    @precondition(lambda self: self.naive.ranges)
    @rule(data=st.data(), address=ADDRESSES, owner=OWNERS)
    def claim(self, data: st.DataObject, address: Address, owner: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.naive.ranges)))
        record = self.naive.records.get(address)
        if record == NaiveRecord(owner, name):
            self.ledger.claim(address, owner, name)
            return
        expected: type[IpamError] | None = None
        if self.naive.ranges[name].draining:
            expected = RangeDrainingError
        elif address not in self.naive.given_by(name):
            expected = AddressOutOfRangeError
        elif record is not None and record.until is None and record.owner != owner:
            expected = AddressHeldError
        elif record is not None and record.until and not self.naive.returning(name, address, owner):
            expected = AddressQuarantinedError
        if expected is None:
            self.ledger.claim(address, owner, name)
            self.naive.records[address] = NaiveRecord(owner, name)
            return
        with pytest.raises(expected):
            self.ledger.claim(address, owner, name)

    @rule(
        address=ADDRESSES,
        owner=st.none() | OWNERS,
        name=st.none() | NAMES,
        minutes=st.none() | MINUTES,
    )
    def adopt(self, address: Address, owner: str | None, name: str | None, minutes: int | None) -> None:
        record = self.naive.records.get(address)
        until = None if minutes is None else self.now + timedelta(minutes=minutes)
        if record is not None and record.until is None and record.owner not in (None, owner):
            with pytest.raises(AddressHeldError):
                self.ledger.adopt(address, owner, name, quarantined_until=until)
            return
        self.ledger.adopt(address, owner, name, quarantined_until=until)
        self.naive.records[address] = NaiveRecord(owner, name, until)

    @precondition(lambda self: self.naive.records)
    @rule(data=st.data(), minutes=MINUTES, other=OWNERS)
    def release(self, data: st.DataObject, minutes: int, other: str) -> None:
        address = data.draw(st.sampled_from(sorted(self.naive.records)))
        record = self.naive.records[address]
        until = self.now + timedelta(minutes=minutes)
        if record.until is not None or other != record.owner:
            with pytest.raises(AddressNotHeldError):
                self.ledger.release(address, other, until=until)
        if record.until is None:
            self.ledger.release(address, record.owner, until=until)
            record.until = until

    @rule(address=ADDRESSES)
    def free(self, address: Address) -> None:
        freed = self.ledger.free(address)
        record = self.naive.records.pop(address, None)
        assert (freed and freed.owner) == (record and record.owner)

    @rule(minutes=MINUTES)
    def expire(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)
        over = sorted(
            each for each, record in self.naive.records.items() if record.until and record.until <= self.now
        )
        assert self.ledger.due(self.now) == tuple(over)
        assert self.ledger.expire(self.now) == tuple(over)
        for address in over:
            del self.naive.records[address]

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

    @precondition(lambda self: self.naive.ranges)
    @rule(owner=OWNERS)
    def replaying_the_records_gives_the_same_ledger(self, owner: str) -> None:
        replayed: Ledger[str] = Ledger(shared_overlaps=self.naive.shared_overlaps)
        for address, record in self.ledger.records():
            replayed.adopt(
                address, record.owner, record.range_name, quarantined_until=record.quarantined_until
            )
        for each in self.ledger.ranges():
            replayed.set_range(each)
        for name in self.naive.ranges:
            assert replayed.snapshot(name) == self.ledger.snapshot(name)
            for family in Family:
                expected = self.naive.next(name, family, owner)
                if expected is not None:
                    assert replayed.choose(name, family, owner) == expected


LedgerMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestTheLedgerAgreesWithEnumeratedSets = LedgerMachine.TestCase
