"""Which addresses a Service gets, and which others can share them: families, policies, sharing by ports.

All addresses of a request are chosen before the first is entered, so that a request that cannot be served leaves no
trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic

from fipop.ipam.addresses import Address, Family, FamilyPolicy
from fipop.ipam.allocator import AddressPool, AddressUser, Allocator, OwnerT, Port
from fipop.ipam.errors import IpamError, PoolExhaustedError, PoolFamilyMissingError


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Generic[OwnerT]):
    """A request for addresses.

    `families` are in the order of the answer, at least one. With SingleStack the first counts; with `is_any_family`
    the pool decides which one. `held` are the addresses that stay; None: those that the user has.
    """

    user: AddressUser[OwnerT]
    pool: AddressPool
    policy: FamilyPolicy = FamilyPolicy.SINGLE_STACK
    families: tuple[Family, ...] = (Family.IPV4,)
    is_any_family: bool = False
    held: Mapping[Family, Address] | None = None


class Sharing(Allocator[OwnerT, AddressPool]):
    """The users of the addresses of a guest cluster. Pools that overlap each assign the addresses of the overlap."""

    def __init__(self) -> None:
        super().__init__()
        self._held_by: dict[OwnerT, dict[Address, AddressUser[OwnerT]]] = {}
        self._shareable: dict[int, set[Port]] = {}
        """The IPv4 addresses all of whose users allow sharing, each with the ports that are in use there."""

    def enter(self, address: Address, user: AddressUser[OwnerT]) -> None:
        """Add a user to an address, or change it."""
        super().enter(address, user)
        self._held_by.setdefault(user.owner, {})[address] = user
        self._update_shareable(address)

    def leave(self, address: Address, user: AddressUser[OwnerT]) -> bool:
        """Remove exactly this user from an address; return whether the address is free because of that."""
        held = self._held_by.get(user.owner, {})
        if held.get(address) == user:
            del held[address]
        if not held:
            self._held_by.pop(user.owner, None)
        is_free = super().leave(address, user)
        self._update_shareable(address)
        return is_free

    def forget_pools(self) -> None:
        """Forget all pools; call it when they change."""
        for name in [*self._pools]:
            self.remove_pool(name)

    def held_by(self, owner: OwnerT) -> Mapping[Address, AddressUser[OwnerT]]:
        """Return the addresses of an owner, with what it is to each of them."""
        return self._held_by.get(owner, {})

    def conflicting(self, address: Address, owner: OwnerT) -> tuple[OwnerT, ...]:
        """Return the users of an address with which one of them cannot share it."""
        mine = self.held_by(owner).get(address)
        if mine is None:
            return ()
        others = (each for each in self.users(address) if each.owner != owner)
        return tuple(
            each.owner for each in others if address.family is Family.IPV6 or not can_share(mine, each)
        )

    def choose(self, request: Request[OwnerT]) -> tuple[Address, ...]:
        """Choose the addresses of a request, in the order of its families; what its user has stays.

        Raises: PoolFamilyMissingError, PoolExhaustedError, for the first family that is needed and cannot be had.
        """
        held = request.held
        if held is None:
            mine = sorted(self.held_by(request.user.owner), reverse=True)
            held = {address.family: address for address in mine}
        found: dict[Family, Address] = {}
        failures: list[IpamError] = []
        for family in _families(request, held):
            try:
                found[family] = held.get(family) or self._choose_one(request, family)
            except IpamError as error:
                if request.policy is not FamilyPolicy.PREFER_DUAL_STACK:
                    raise
                failures.append(error)
        if not found:
            # That a family is full can change without an edit; that the pool has none of it cannot.
            raise min(failures, key=lambda failure: isinstance(failure, PoolFamilyMissingError))
        return tuple(found.values())

    def _choose_one(self, request: Request[OwnerT], family: Family) -> Address:
        pool = request.pool
        addresses = pool.addresses.of(family)
        if not addresses:
            raise PoolFamilyMissingError(key=pool.name, family=family.label)
        self.set_pool(pool)
        found = self._find_shared(request, family) or self.peek_free(pool.name, family)
        if found is None:
            raise PoolExhaustedError(key=pool.name, family=family.label, total=addresses.count)
        return found

    def _find_shared(self, request: Request[OwnerT], family: Family) -> Address | None:
        """Return the first address of the pool that the user can share, if there is one."""
        user, pool = request.user, request.pool
        if family is Family.IPV6 or not user.is_open:
            return None
        found = (value for value, ports in self._shareable.items() if user.ports.isdisjoint(ports))
        values = [value for value in found if value in pool.addresses.v4]
        return Address(family, (max if pool.descending else min)(values)) if values else None

    def _update_shareable(self, address: Address) -> None:
        if address.family is not Family.IPV4:
            return
        users = self.users(address)
        self._shareable.pop(address.value, None)
        if users and all(each.is_open for each in users):
            self._shareable[address.value] = {port for each in users for port in each.ports}


def can_share(user: AddressUser[OwnerT], other: AddressUser[OwnerT]) -> bool:
    """Return whether both allow sharing and their ports are disjoint."""
    return user.is_open and other.is_open and user.ports.isdisjoint(other.ports)


def _families(request: Request[OwnerT], held: Mapping[Family, Address]) -> tuple[Family, ...]:
    if request.policy is not FamilyPolicy.SINGLE_STACK:
        return tuple(dict.fromkeys((*request.families, *Family)))
    first = request.families[0]
    if not request.is_any_family:
        return (first,)
    served = (family for family in Family if family in held or request.pool.addresses.of(family))
    return (next(served, first),)
