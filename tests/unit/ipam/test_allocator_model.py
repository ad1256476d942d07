"""The new allocator beside the old ledger and the old tenancy: whatever is done to both, they must agree."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fipop.errors import IpamError
from fipop.ipam import assignment, ledger
from fipop.ipam.addresses import Address, Family, FamilyPolicy
from fipop.ipam.allocator import AddressPool, AddressUser, Port, Reason
from fipop.ipam.guest_pool import parse_guest_pool
from fipop.ipam.pool import parse_pool
from fipop.ipam.ranges import Range, RangeAllocator
from fipop.ipam.sharing import Request, Sharing
from tests.unit.ipam.naive import UNIVERSE, parts

START = datetime(2026, 8, 1, tzinfo=UTC)
NAMES = st.sampled_from(["amber", "birch", "cedar"])
OWNERS = st.sampled_from(["ada", "bob", "cyd", "dan"])
ADDRESSES = st.sampled_from(UNIVERSE)
FAMILIES = st.sampled_from(list(Family))


def outcome(choice: object) -> object:
    """Return what a call returns, or its error as far as a caller sees it."""
    assert callable(choice)
    try:
        return choice()
    except IpamError as error:
        return type(error), str(error), vars(error)


class RangesMachine(RuleBasedStateMachine):
    @initialize()
    def make(self) -> None:
        self.old: ledger.Ledger[str] = ledger.Ledger()
        self.new: RangeAllocator[str] = RangeAllocator()
        self.names: set[str] = set()

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
        self.old.set_range(
            ledger.Range(name=name, pool=pool, created=created, descending=descending, draining=draining)
        )
        self.new.set_pool(
            Range(
                name=name,
                addresses=pool.addresses,
                source=pool,
                created=created,
                descending=descending,
                draining=draining,
            )
        )
        self.names.add(name)

    @rule(name=NAMES)
    def remove_range(self, name: str) -> None:
        self.old.remove_range(name)
        self.new.remove_pool(name)
        self.names.discard(name)

    @precondition(lambda self: self.names)
    @rule(data=st.data(), family=FAMILIES, owner=OWNERS, many=st.integers(1, 6))
    def claim(self, data: st.DataObject, family: Family, owner: str, many: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.names)))
        for _ in range(many):
            expected = outcome(lambda: self.old.claim_next(name, family, owner))
            found = outcome(lambda: self.new.peek_free(name, family))
            assert found == expected
            if not isinstance(found, Address):
                return
            self.new.enter(found, AddressUser(Reason.RESERVED, owner, name))

    @rule(address=ADDRESSES, owner=OWNERS, name=NAMES, minutes=st.none() | st.integers(0, 5))
    def reserve(self, address: Address, owner: str, name: str, minutes: int | None) -> None:
        until = None if minutes is None else START + timedelta(minutes=minutes)
        self.old.adopt(address, owner, name, quarantined_until=until)
        # A reservation has one owner: the new one comes before the former one leaves, as in the product.
        before = self.new.users(address)
        user = AddressUser(Reason.RESERVED, owner, name, until)
        self.new.enter(address, user)
        for each in before:
            if each != user:
                assert not self.new.leave(address, each)

    @rule(address=ADDRESSES)
    def free(self, address: Address) -> None:
        assert (self.old.free(address) is not None) == any(
            [self.new.leave(address, each) for each in self.new.users(address)]
        )

    @invariant()
    def both_have_the_same_holders(self) -> None:
        expected = [(address, *record) for address, record in self.old.records()]
        users = ((address, *self.new.users(address)) for address in self.new.addresses())
        assert [(address, holder.owner, holder.pool, holder.until) for address, holder in users] == expected

    @invariant()
    def both_count_and_choose_the_same(self) -> None:
        for name in self.names:
            old = self.old.snapshot(name)
            assert tuple(map(tuple, self.new.count(name))) == tuple(map(tuple, old))
            assert self.new.conflicts(name) == self.old.conflicts(name)
            for family in Family:
                assert self.new.assigned(name, family) == self.old.given(name, family)
                expected = outcome(lambda name=name, family=family: self.old.peek_free(name, family, 9))
                found = outcome(lambda name=name, family=family: self.new.peek_free(name, family))
                if isinstance(found, Address):
                    assert tuple(islice(self.new.free_addresses(name, family), 9)) == expected
                    assert isinstance(expected, tuple)
                    assert found == expected[0]
                else:
                    assert found == expected
            for address in UNIVERSE[::5]:
                assert str(self.new.refusal(address, name)) == str(self.old.refusal(address, name))


POOL = parse_guest_pool("10.0.0.1-10.0.0.4,2001:db8::1-2001:db8::2")
OTHER_POOL = parse_guest_pool("10.0.0.3-10.0.0.6,2001:db8::2")
PORTS: list[Port] = [(80, "TCP"), (53, "UDP"), (443, "TCP")]
POOLS = {
    (name, descending): (
        assignment.AddressPool(key=name, addresses=addresses, descending=descending),
        AddressPool(name=name, addresses=addresses, descending=descending),
    )
    for name, addresses in (("one", POOL), ("two", OTHER_POOL))
    for descending in (False, True)
}
SERVICE_ADDRESSES = st.sampled_from(
    [
        address
        for addresses in (POOL, OTHER_POOL)
        for address in (
            *(Address(Family.IPV4, value) for value in addresses.v4.addresses()),
            *(Address(Family.IPV6, value) for value in addresses.v6.addresses()),
        )
    ]
)
CONSENTS = st.sampled_from([True, True, True, False])
PORT_SETS = st.frozensets(st.sampled_from(PORTS), max_size=1)


class SharingMachine(RuleBasedStateMachine):
    @initialize(descending=st.booleans())
    def make(self, descending: bool) -> None:
        self.old: assignment.Tenancy[str] = assignment.Tenancy()
        self.new: Sharing[str] = Sharing()
        self.descending = descending

    @rule(address=SERVICE_ADDRESSES, owner=OWNERS, ports=PORT_SETS, consents=CONSENTS)
    def enter(self, address: Address, owner: str, ports: frozenset[Port], consents: bool) -> None:
        self.old.enter(address, owner, assignment.Tenant(ports=ports, consents=consents))
        self.new.enter(address, AddressUser(Reason.RESERVED, owner, ports=ports, consents=consents))

    @rule(address=SERVICE_ADDRESSES, owner=OWNERS)
    def leave(self, address: Address, owner: str) -> None:
        self.old.leave(address, owner)
        user = self.new.user_of(address, owner)
        if user is not None:
            self.new.leave(address, user)

    @rule()
    def forget_pools(self) -> None:
        self.old.forget_pools()
        self.new.forget_pools()

    @rule(
        name=st.sampled_from(["one", "two"]),
        owner=OWNERS,
        ports=PORT_SETS,
        consents=CONSENTS,
        policy=st.sampled_from(FamilyPolicy),
        family=FAMILIES,
        is_any=st.booleans(),
        enters=st.booleans(),
    )
    def choose(
        self,
        name: str,
        owner: str,
        ports: frozenset[Port],
        consents: bool,
        policy: FamilyPolicy,
        family: Family,
        is_any: bool,
        enters: bool,
    ) -> None:
        old_pool, pool = POOLS[name, self.descending]
        tenant = assignment.Tenant(ports=ports, consents=consents)
        user = AddressUser(Reason.RESERVED, owner, ports=ports, consents=consents)
        expected = outcome(
            lambda: self.old.choose(
                assignment.Request(
                    owner=owner,
                    pool=old_pool,
                    policy=policy,
                    families=(family,),
                    is_any_family=is_any,
                    tenant=tenant,
                )
            )
        )
        found = outcome(
            lambda: self.new.choose(
                Request(user=user, pool=pool, policy=policy, families=(family,), is_any_family=is_any)
            )
        )
        assert found == expected
        if enters and isinstance(expected, tuple) and isinstance(expected[0], Address):
            for address in expected:
                self.enter(address, owner, ports, consents)

    @invariant()
    def both_know_the_same(self) -> None:
        addresses = list(self.old.addresses())
        assert list(self.new.addresses()) == addresses
        for address in addresses:
            tenants = self.old.tenants(address)
            users = self.new.users(address)
            assert {each.owner: (each.ports, each.consents) for each in users} == dict(tenants.items())
            for owner in tenants:
                assert sorted(self.old.clashing(address, owner)) == list(self.new.conflicting(address, owner))
                assert self.old.held_by(owner) == self.new.held_by(owner)


RangesMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
SharingMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestOldAndNewAgreeOnRanges = RangesMachine.TestCase
TestOldAndNewAgreeOnSharing = SharingMachine.TestCase
