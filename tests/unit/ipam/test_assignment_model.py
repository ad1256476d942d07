"""Requests of all kinds beside a naive answer by enumeration: policies, static addresses, sharing, several pools."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fipop.errors import AddressHeldError, AddressNotHeldError, IpamError, RequestError
from fipop.ipam.addresses import DHCP, Address, Family
from fipop.ipam.assignment import Assigner, FamilyPolicy, Port, Request
from fipop.ipam.ledger import Ledger, Range
from fipop.ipam.pool import parse_pool
from tests.unit.ipam.naive import UNIVERSE, NaiveLedger, NaiveRange, NaiveRecord, naive_pool, parts

START = datetime(2026, 8, 1, tzinfo=UTC)
OWN_POOLS = ("team", "spare")
GLOBAL_POOLS = ("everyone",)
OWNERS = st.sampled_from(["ada", "bob", "cyd", "dan", "eve"])
PORTS = st.frozensets(st.sampled_from([(80, "TCP"), (443, "TCP"), (53, "UDP"), (53, "TCP")]), max_size=2)
Ports = frozenset[Port]


@dataclass
class NaiveAssigner:
    ledger: NaiveLedger
    tenants: dict[Address, dict[str, Ports]] = field(default_factory=dict)

    def fits(self, address: Address, owner: str, ports: Ports) -> bool:
        others = [theirs for other, theirs in self.tenants.get(address, {}).items() if other != owner]
        disjoint = all(theirs and not theirs & ports for theirs in others)
        return address.family is Family.IPV4 and bool(ports) and bool(others) and disjoint

    def is_given(self, name: str, address: Address) -> bool:
        return not self.ledger.ranges[name].draining and address in self.ledger.given_by(name)

    def can_share(self, request: Request[str], name: str, address: Address) -> bool:
        shared = name in request.shared_pools and self.is_given(name, address)
        return shared and self.fits(address, request.owner, request.ports)

    def static(self, request: Request[str], address: Address) -> Address | None:
        for name in (*request.pools, *request.global_pools):
            is_mine = request.owner in self.tenants.get(address, {})
            record = self.ledger.records.get(address)
            is_free = record is None or self.ledger.returning(name, address, request.owner)
            if (
                is_mine
                or self.can_share(request, name, address)
                or (self.is_given(name, address) and is_free)
            ):
                return address
        return None

    def dynamic(self, request: Request[str], family: Family) -> Address | None:
        names = (*request.pools, *request.global_pools)
        for address in sorted(self.tenants):
            mine = address.family is family and request.owner in self.tenants[address]
            if mine and self.ledger.records[address].range_name in names:
                return address
        for name in names:
            shared = [each for each in self.tenants if each.family is family]
            shared = [each for each in shared if self.can_share(request, name, each)]
            found = min(shared, default=None) or self.ledger.next(name, family, request.owner)
            if found:
                return found
        return None

    def expect(self, request: Request[str]) -> list[Address] | None:
        """The answer, None where the request is refused."""
        for address, tenants in self.tenants.items():
            if (
                request.owner in tenants
                and len(tenants) > 1
                and not self.fits(address, request.owner, request.ports)
            ):
                return None
        static = {address.family: address for address in request.static}
        families = list(dict.fromkeys([*request.families, *Family]))
        if len(static) < len(request.static):
            return None
        if request.policy is FamilyPolicy.SINGLE_STACK:
            if len(static) > 1:
                return None
            pools = (*request.pools, *request.global_pools)
            served = {each.family for name in pools for each in self.ledger.ranges[name].pool}
            preferred = (*request.families, *static, *sorted(served), Family.IPV4)
            families = [preferred[0]]
            if static and families[0] not in static:
                return None
        answers = [
            self.static(request, static[family]) if family in static else self.dynamic(request, family)
            for family in families
        ]
        given = [answer for answer in answers if answer is not None]
        lost_static = any(
            family in static and not answer for family, answer in zip(families, answers, strict=True)
        )
        if request.policy is FamilyPolicy.PREFER_DUAL_STACK and given and not lost_static:
            return given
        return None if len(given) < len(answers) or not given else given


class AssignmentMachine(RuleBasedStateMachine):
    @initialize(
        shared_overlaps=st.booleans(),
        texts=st.tuples(*[st.lists(parts(), min_size=1, max_size=3)] * 3),
        descending=st.booleans(),
    )
    def make(self, shared_overlaps: bool, texts: tuple[list[str], ...], descending: bool) -> None:
        self.assigner = Assigner(Ledger[str](shared_overlaps=shared_overlaps))
        self.naive = NaiveAssigner(NaiveLedger(shared_overlaps=shared_overlaps))
        self.now = START
        for name, pool in zip((*OWN_POOLS, *GLOBAL_POOLS), texts, strict=True):
            self.assigner.ledger.set_range(
                Range(name=name, pool=parse_pool(",".join(pool)), created=START, descending=descending)
            )
            self.naive.ledger.ranges[name] = NaiveRange(naive_pool(pool), START, descending, False)

    @rule(
        owner=OWNERS,
        pools=st.sampled_from([(), OWN_POOLS[:1], OWN_POOLS]),
        policy=st.sampled_from(list(FamilyPolicy)),
        families=st.lists(st.sampled_from(list(Family)), max_size=2, unique=True),
        static=st.lists(st.sampled_from(UNIVERSE), max_size=2) | st.just([]),
        ports=PORTS,
        shared=st.frozensets(st.sampled_from((*OWN_POOLS, *GLOBAL_POOLS))),
    )
    def assign(
        self,
        owner: str,
        pools: tuple[str, ...],
        policy: FamilyPolicy,
        families: list[Family],
        static: list[Address],
        ports: Ports,
        shared: frozenset[str],
    ) -> None:
        request = Request(
            owner=owner,
            pools=pools,
            global_pools=GLOBAL_POOLS,
            policy=policy,
            families=tuple(families),
            static=tuple(dict.fromkeys(static)),
            ports=ports,
            shared_pools=shared,
        )
        expected = self.naive.expect(request)
        if expected is None:
            with pytest.raises((IpamError, RequestError)):
                self.assigner.assign(request)
            return
        assert list(self.assigner.assign(request)) == expected
        assert list(self.assigner.assign(request)) == expected, "asking twice must change nothing"
        for address in expected:
            if address not in self.naive.tenants:
                names = (*request.pools, *request.global_pools)
                name = next(each for each in names if address in self.naive.ledger.given_by(each))
                self.naive.ledger.records[address] = NaiveRecord(owner, name)
            self.naive.tenants.setdefault(address, {})[owner] = ports

    @rule(
        owner=OWNERS, address=st.sampled_from(UNIVERSE), ports=PORTS, name=st.sampled_from([None, *OWN_POOLS])
    )
    def adopt(self, owner: str, address: Address, ports: Ports, name: str | None) -> None:
        others = self.naive.tenants.get(address, {}).keys() - {owner}
        if others and not self.naive.fits(address, owner, ports):
            with pytest.raises(AddressHeldError):
                self.assigner.adopt(address, owner, name, ports)
            return
        self.assigner.adopt(address, owner, name, ports)
        if not others:
            self.naive.ledger.records[address] = NaiveRecord(owner, name)
        self.naive.tenants.setdefault(address, {})[owner] = ports

    @precondition(lambda self: self.naive.tenants)
    @rule(data=st.data(), owner=OWNERS, minutes=st.none() | st.integers(1, 3))
    def withdraw(self, data: st.DataObject, owner: str, minutes: int | None) -> None:
        address = data.draw(st.sampled_from(sorted(self.naive.tenants)))
        until = None if minutes is None else self.now + timedelta(minutes=minutes)
        tenants = self.naive.tenants[address]
        if owner not in tenants:
            with pytest.raises(AddressNotHeldError):
                self.assigner.withdraw(address, owner, until=until)
            return
        self.assigner.withdraw(address, owner, until=until)
        record = self.naive.ledger.records[address]
        del tenants[owner]
        if tenants:
            record.owner = next(iter(tenants))
            return
        del self.naive.tenants[address]
        if until is None:
            del self.naive.ledger.records[address]
        else:
            self.naive.ledger.records[address] = NaiveRecord(owner, record.range_name, until)

    @rule(minutes=st.integers(0, 2))
    def time_passes(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)
        for address in self.assigner.ledger.expire(self.now):
            del self.naive.ledger.records[address]

    @invariant()
    def nobody_shares_but_by_disjoint_ports(self) -> None:
        for address, tenants in self.naive.tenants.items():
            assert self.assigner.tenants(address) == tenants
            all_ports = [port for ports in tenants.values() for port in ports]
            assert len(tenants) == 1 or (address.family is Family.IPV4 and all(tenants.values()))
            assert len(set(all_ports)) == len(all_ports)

    @invariant()
    def the_ledger_names_the_first_tenant(self) -> None:
        expected = {each: (record.owner, record.until) for each, record in self.naive.ledger.records.items()}
        records = self.assigner.ledger.records()
        assert {each: (record.owner, record.quarantined_until) for each, record in records} == expected
        assert DHCP not in expected


AssignmentMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestRequestsAreAnsweredAsByEnumeration = AssignmentMachine.TestCase
