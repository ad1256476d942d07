"""Which addresses a Service gets, and which others can share them: families, policies, sharing by ports.

An existing state is never refused: an address can have several tenants that cannot share it, because a user wrote it
into both. It stays taken until the last of them is gone. All addresses of a request are chosen before the first is
entered, so that a request that cannot be served leaves no trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from fipop.errors import IpamError, PoolExhaustedError, PoolFamilyMissingError
from fipop.ipam.addresses import Address, Family, FamilyPolicy
from fipop.ipam.free_list import FreeList
from fipop.ipam.intervals import AddressSet

OwnerT = TypeVar("OwnerT")

Port = tuple[int, str]
"""A port number and its protocol."""


class Tenant(NamedTuple):
    """What a tenant of an address is to its others; `consents`: its namespace allows sharing."""

    ports: frozenset[Port] = frozenset()
    consents: bool = False

    def may_share_with(self, other: Tenant) -> bool:
        """Whether both allow it and their ports are disjoint; a tenant without ports does not share."""
        return (
            self.consents
            and other.consents
            and bool(self.ports)
            and bool(other.ports)
            and self.ports.isdisjoint(other.ports)
        )


ALONE = Tenant()
"""A tenant that does not share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressPool:
    """What a key assigns, in its order; `key` is its name."""

    key: str
    addresses: AddressSet
    descending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Generic[OwnerT]):
    """A request: `families` in the order of the answer, at least one.

    With SingleStack the first counts; with `is_any_family` the pool decides which one. `held` are the addresses that
    stay; None: those of the owner in the tenancy.
    """

    owner: OwnerT
    pool: AddressPool
    policy: FamilyPolicy = FamilyPolicy.SINGLE_STACK
    families: tuple[Family, ...] = (Family.IPV4,)
    is_any_family: bool = False
    tenant: Tenant = ALONE
    held: Mapping[Family, Address] | None = None


class Tenancy(Generic[OwnerT]):
    """The tenants of the addresses of a guest."""

    def __init__(self) -> None:
        self._tenants: dict[Address, dict[OwnerT, Tenant]] = {}
        self._addresses: dict[OwnerT, set[Address]] = {}
        self._taken: dict[Family, set[int]] = {family: set() for family in Family}
        self._shareable: dict[int, set[Port]] = {}
        """The IPv4 addresses all of whose tenants allow sharing, each with the ports that are in use there."""
        self._lists: dict[tuple[int, Family], tuple[AddressPool, FreeList]] = {}

    def enter(self, address: Address, owner: OwnerT, tenant: Tenant) -> None:
        """Add a tenant to an address, or change it."""
        self._tenants.setdefault(address, {})[owner] = tenant
        self._addresses.setdefault(owner, set()).add(address)
        self._taken[address.family].add(address.value)
        self._note_shareable(address)

    def leave(self, address: Address, owner: OwnerT) -> None:
        """Take an address from a tenant; after the last one it is free. Nothing happens if it is not a tenant."""
        tenants = self._tenants.get(address, {})
        if owner not in tenants:
            return
        del tenants[owner]
        self._addresses[owner].discard(address)
        if not self._addresses[owner]:
            del self._addresses[owner]
        self._note_shareable(address)
        if tenants:
            return
        del self._tenants[address]
        self._taken[address.family].discard(address.value)
        for (_, family), (_, free) in self._lists.items():
            if family is address.family and address.value in free.addresses:
                free.put_back(address.value)

    def forget_pools(self) -> None:
        """Forget how far pools were walked; call it when pools change."""
        self._lists.clear()

    def held_by(self, owner: OwnerT) -> tuple[Address, ...]:
        """Return the addresses of an owner, IPv4 first."""
        return tuple(sorted(self._addresses.get(owner, ())))

    def tenants(self, address: Address) -> Mapping[OwnerT, Tenant]:
        """Return the tenants of an address, the longest there first."""
        return self._tenants.get(address, {})

    def addresses(self) -> Iterator[Address]:
        """Iterate over all addresses that have a tenant, in order."""
        yield from sorted(self._tenants)

    def clashing(self, address: Address, owner: OwnerT) -> tuple[OwnerT, ...]:
        """Return the tenants of an address with which one of them cannot share it."""
        tenants = self._tenants.get(address, {})
        mine = tenants.get(owner)
        if mine is None:
            return ()
        return tuple(
            other
            for other, theirs in tenants.items()
            if other != owner and not (address.family is Family.IPV4 and mine.may_share_with(theirs))
        )

    def used(self, pool: AddressPool) -> int:
        """Count the addresses of a pool that have a tenant, a shared one once."""
        return sum(1 for address in self._tenants if address in pool.addresses)

    def choose(self, request: Request[OwnerT]) -> tuple[Address, ...]:
        """Choose the addresses of a request, in the order of its families; what its owner has stays.

        PoolFamilyMissingError, PoolExhaustedError: for the first family that is needed and cannot be had.
        """
        held = request.held
        if held is None:
            held = {address.family: address for address in reversed(self.held_by(request.owner))}
        families = self._families(request, held)
        found: dict[Family, Address] = {}
        failures: list[IpamError] = []
        for family in families:
            try:
                found[family] = held.get(family) or self._choose_one(request, family)
            except IpamError as error:
                if request.policy is not FamilyPolicy.PREFER_DUAL_STACK:
                    raise
                failures.append(error)
        if not found:
            # That a family is full can change by itself; that the pool has none of it cannot.
            raise min(failures, key=lambda failure: isinstance(failure, PoolFamilyMissingError))
        return tuple(found[family] for family in families if family in found)

    def _families(self, request: Request[OwnerT], held: Mapping[Family, Address]) -> tuple[Family, ...]:
        if request.policy is not FamilyPolicy.SINGLE_STACK:
            return tuple(dict.fromkeys((*request.families, *Family)))
        first = request.families[0]
        if not request.is_any_family:
            return (first,)
        served = (family for family in Family if family in held or request.pool.addresses.of(family))
        return (next(served, first),)

    def _choose_one(self, request: Request[OwnerT], family: Family) -> Address:
        pool = request.pool
        if not pool.addresses.of(family):
            raise PoolFamilyMissingError(key=pool.key, family=family.label)
        if family is Family.IPV4 and request.tenant.consents and request.tenant.ports:
            shared = self._choose_shared(pool, request.tenant)
            if shared is not None:
                return shared
        free = self._free_list(pool, family)
        value = free.next_free()
        if value is None:
            raise PoolExhaustedError(key=pool.key, family=family.label, total=pool.addresses.of(family).count)
        free.put_back(value)
        return Address(family, value)

    def _choose_shared(self, pool: AddressPool, tenant: Tenant) -> Address | None:
        values = (
            value
            for value, ports in self._shareable.items()
            if tenant.ports.isdisjoint(ports) and value in pool.addresses.v4
        )
        chosen = max(values, default=None) if pool.descending else min(values, default=None)
        return None if chosen is None else Address(Family.IPV4, chosen)

    def _note_shareable(self, address: Address) -> None:
        if address.family is not Family.IPV4:
            return
        tenants = self._tenants.get(address, {}).values()
        self._shareable.pop(address.value, None)
        if tenants and all(each.consents and each.ports for each in tenants):
            self._shareable[address.value] = {port for each in tenants for port in each.ports}

    def _free_list(self, pool: AddressPool, family: Family) -> FreeList:
        """Return the free list of a pool, which is walked once; the pool is kept, so that its id stays unique."""
        key = id(pool), family
        found = self._lists.get(key)
        if found is None:
            addresses, taken = pool.addresses.of(family), self._taken[family]
            free = FreeList(addresses, taken, descending=pool.descending, closed=False)
            found = self._lists[key] = pool, free
        return found[1]
