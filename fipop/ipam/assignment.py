"""Which addresses a request gets: families, static addresses, DHCP, several pools, sharing by ports.

A request is a Service of type LoadBalancer, or a floating IP that asks like one. All of its addresses are chosen before
the first is entered, so that a request that cannot be served leaves no trace.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Generic

from fipop import errors
from fipop.errors import IpamError
from fipop.ipam.addresses import DHCP, Address, Family, format_address
from fipop.ipam.ledger import Ledger, OwnerT

Port = tuple[int, str]
"""A port number and its protocol."""


class FamilyPolicy(enum.StrEnum):
    """As `ipFamilyPolicy` of a Service."""

    SINGLE_STACK = "SingleStack"
    PREFER_DUAL_STACK = "PreferDualStack"
    REQUIRE_DUAL_STACK = "RequireDualStack"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Generic[OwnerT]):
    """What somebody asks for.

    `pools` are names of ranges in the order of search; `global_pools` are asked after all of them, whatever kind they
    are. `families` is the order of the answer (empty: IPv4 first). `static`: at most one address of a family, 0.0.0.0
    asks for DHCP. Owners with disjoint `ports` may share IPv4 addresses of those ranges that are in `shared_pools`.
    """

    owner: OwnerT
    pools: tuple[str, ...] = ()
    global_pools: tuple[str, ...] = ()
    policy: FamilyPolicy = FamilyPolicy.SINGLE_STACK
    families: tuple[Family, ...] = ()
    static: tuple[Address, ...] = ()
    ports: frozenset[Port] = frozenset()
    shared_pools: frozenset[str] = frozenset()


class Assigner(Generic[OwnerT]):
    """Serves requests from a ledger, and knows the tenants of each address with their ports.

    The ledger's holder of a shared address is its first tenant. What was entered in the ledger alone is shared with
    nobody.
    """

    def __init__(self, ledger: Ledger[OwnerT]) -> None:
        self.ledger = ledger
        self._tenants: dict[Address, dict[OwnerT, frozenset[Port]]] = {}
        self._addresses: dict[OwnerT, set[Address]] = {}

    def held_by(self, owner: OwnerT) -> tuple[Address, ...]:
        """Give the addresses of an owner, IPv4 first."""
        return tuple(sorted(self._addresses.get(owner, ())))

    def tenants(self, address: Address) -> Mapping[OwnerT, frozenset[Port]]:
        """Give the owners of an address and their ports, the longest there first."""
        return dict(self._tenants.get(address, {}))

    def assign(self, request: Request[OwnerT]) -> tuple[Address, ...]:
        """Give the request its addresses in the order of its families; what its owner has from its pools stays.

        DHCP (0.0.0.0) may be one of them and is entered nowhere. RequestError, NoAddressError where several ranges
        were asked, else the error of the ledger.
        """
        for address in self.held_by(request.owner):
            self._check_ports(address, request.owner, request.ports)
        choices = self._choose(request)
        for address, range_name in choices:
            if address == DHCP:
                continue
            if address not in self._tenants:
                self.ledger.claim(address, request.owner, range_name)
            self._enter(address, request.owner, request.ports)
        return tuple(address for address, _ in choices)

    def adopt(
        self, address: Address, owner: OwnerT, range_name: str | None, ports: frozenset[Port] = frozenset()
    ) -> None:
        """Enter an address that an owner has, or its changed ports, whatever the ranges say.

        AddressHeldError if others have it and the ports cannot be had beside theirs.
        """
        self._check_ports(address, owner, ports)
        if not self._others(address, owner):
            self.ledger.adopt(address, owner, range_name)
        self._enter(address, owner, ports)

    def withdraw(self, address: Address, owner: OwnerT, *, until: datetime | None = None) -> None:
        """Take an address from an owner; after its last one it is free, or in quarantine `until` then.

        AddressNotHeldError if the owner does not have it.
        """
        tenants = self._tenants.get(address, {})
        if owner not in tenants:
            holder = next(iter(tenants), None)
            raise errors.AddressNotHeldError(address=format_address(address), owner=owner, holder=holder)
        self._leave(address, owner)
        record = self.ledger.free(address)
        range_name = record.range_name if record else None
        if tenants:
            self.ledger.adopt(address, next(iter(tenants)), range_name)
        elif until is not None:
            self.ledger.adopt(address, owner, range_name, quarantined_until=until)

    # How

    def _enter(self, address: Address, owner: OwnerT, ports: frozenset[Port]) -> None:
        self._tenants.setdefault(address, {})[owner] = ports
        self._addresses.setdefault(owner, set()).add(address)

    def _leave(self, address: Address, owner: OwnerT) -> None:
        del self._tenants[address][owner]
        if not self._tenants[address]:
            del self._tenants[address]
        self._addresses[owner].remove(address)
        if not self._addresses[owner]:
            del self._addresses[owner]

    def _check_ports(self, address: Address, owner: OwnerT, ports: frozenset[Port]) -> None:
        """Make sure that an owner can have these ports on an address that it has or brings."""
        others = self._others(address, owner)
        if others and not self._fits(address, owner, ports):
            record = self.ledger.record(address)
            raise errors.AddressHeldError(
                address=format_address(address),
                holder=next(iter(others)),
                range_name=record and record.range_name,
            )

    def _choose(self, request: Request[OwnerT]) -> list[tuple[Address, str]]:
        """Choose address and range for each family; the policy decides whether what was found is enough."""
        static = {address.family: address for address in request.static}
        choices, failures = [], []
        for family in self._families(request):
            try:
                choices.append(self._choose_one(request, family, static.get(family)))
            except IpamError as error:
                # Preferring two families is content with one, but not with another address than the one asked for.
                if request.policy is not FamilyPolicy.PREFER_DUAL_STACK or family in static:
                    raise
                failures.append(error)
        if not choices:
            raise min(failures, key=lambda failure: isinstance(failure, errors.FamilyMissingError))
        return choices

    def _families(self, request: Request[OwnerT]) -> tuple[Family, ...]:
        """Give the families to serve; RequestError where the request contradicts itself."""
        static = [address.family for address in request.static]
        if len(set(static)) < len(static):
            raise errors.RequestError(problem="at most one address of a family can be asked for")
        if request.policy is not FamilyPolicy.SINGLE_STACK:
            return tuple(dict.fromkeys((*request.families, *Family)))
        if len(static) > 1:
            raise errors.RequestError(problem="SingleStack takes one address, two are asked for")
        names = {*request.pools, *request.global_pools}
        served = {
            family for each in self.ledger.ranges() if each.name in names for family in each.pool.families
        }
        family = (*request.families, *static, *sorted(served), Family.IPV4)[0]
        if static and static[0] is not family:
            asked = format_address(request.static[0])
            raise errors.RequestError(problem=f"{asked} is asked for, but only {family.label} is wanted")
        return (family,)

    def _choose_one(
        self, request: Request[OwnerT], family: Family, static: Address | None
    ) -> tuple[Address, str]:
        """Ask the ranges in turn; a namespace's own pools win over the global ones."""
        names = (*request.pools, *request.global_pools)
        if static == DHCP:
            return DHCP, ""
        for address in self.held_by(request.owner) if static is None else ():
            record = self.ledger.record(address)
            if address.family is family and record and record.range_name in names:
                return address, record.range_name
        causes: list[IpamError] = []
        for name in names:
            try:
                if static is not None:
                    return self._check_static(request, static, name), name
                return self._choose_from(request, family, name), name
            except IpamError as error:
                causes.append(error)
        raise (
            causes[0]
            if len(causes) == 1
            else errors.NoAddressError(family=family.label, causes=tuple(causes))
        )

    def _check_static(self, request: Request[OwnerT], address: Address, name: str) -> Address:
        blocker = self.ledger.blocker(address, request.owner, name)
        is_tenant = request.owner in self._tenants.get(address, {})
        if blocker is None or is_tenant or self._can_share(request, address, name):
            return address
        raise blocker

    def _choose_from(self, request: Request[OwnerT], family: Family, name: str) -> Address:
        asked = self.ledger.range(name)
        if asked.pool.is_dhcp and family is Family.IPV4:
            if asked.draining:
                raise errors.RangeDrainingError(range_name=name)
            return DHCP
        if family is Family.IPV4 and name in request.shared_pools and request.ports:
            shared = (address for address in self._tenants if self._can_share(request, address, name))
            if (lowest := min(shared, default=None)) is not None:
                return lowest
        return self.ledger.choose(name, family, request.owner)

    def _can_share(self, request: Request[OwnerT], address: Address, name: str) -> bool:
        return (
            name in request.shared_pools
            and self._fits(address, request.owner, request.ports)
            and self.ledger.refusal(address, name) is None
        )

    def _others(self, address: Address, owner: OwnerT) -> dict[OwnerT, frozenset[Port]]:
        return {tenant: ports for tenant, ports in self._tenants.get(address, {}).items() if tenant != owner}

    def _fits(self, address: Address, owner: OwnerT, ports: frozenset[Port]) -> bool:
        """Tell whether ports can be had beside those of all other owners; who has none shares with nobody."""
        if address.family is Family.IPV6 or not ports:
            return False
        others = self._others(address, owner).values()
        return bool(others) and all(theirs and theirs.isdisjoint(ports) for theirs in others)
