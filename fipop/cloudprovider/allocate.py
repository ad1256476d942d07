"""Which addresses a Service gets: values in, values out. Who may assign them is in `assignment`.

A Service keeps the address that it has of each family. Of a family that it lacks, it gets one of the pool that it
chose, or of that of its namespace: one that it had, else one that it can share, else the first that is free. The
families are those that the API server granted in `spec.ipFamilies`, never more. With PreferDualStack a Service is
content with one of them; otherwise either all that it needs is found, or nothing is assigned.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from fipop.api.conditions import ConditionContent, Verdict
from fipop.api.service import POOL_NOT_ALLOWED
from fipop.cloudprovider.pools import GLOBAL, INVALID_POOL, UNUSABLE, NamespacePool
from fipop.cloudprovider.usage import Usage, User, name_users
from fipop.ipam.addresses import DHCP, DHCP_ADDRESSES, Address, Family, FamilyPolicy, format_address
from fipop.texts import sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRequest:
    """What a Service needs."""

    user: User
    policy: FamilyPolicy = FamilyPolicy.SINGLE_STACK
    families: tuple[Family, ...] = ()
    """What `spec.ipFamilies` grants, in its order."""
    kept: tuple[Address, ...] = ()
    """The addresses that it has: they stay, whoever else has them."""
    preferred: tuple[Address, ...] = ()
    """The addresses that it had: it gets them again if they are free and in its pool."""
    asked: Address | None = None
    """The one that its user asks for by name."""
    pool: str | None = None
    """The name of the pool that it chose; None if that of its namespace serves it."""

    @property
    def needed(self) -> tuple[Family, ...]:
        """The families that it needs, in the order of its annotation."""
        return self.families[:1] if self.policy is FamilyPolicy.SINGLE_STACK else self.families


INVALID_METHOD = "InvalidForwardMethod"
"""The reason of a Service, in keepalived mode, that has its address all the same."""
_NOT_AWAITED = frozenset({POOL_NOT_ALLOWED, INVALID_POOL, INVALID_METHOD})


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a Service waits; `reason` is that of its condition."""

    reason: str
    message: str

    @property
    def waits(self) -> bool:
        """Whether a Service waits for what is refused: for a pool that is closed to it, it does not."""
        return self.reason not in _NOT_AWAITED

    def to_finding(self, *, has_address: bool) -> ConditionContent:
        """Return what the condition of a Service says of it."""
        verdict = Verdict.TRUE if has_address else Verdict.FALSE
        return ConditionContent(verdict=verdict, reason=self.reason, message=self.message)


def allocate(
    request: ServiceRequest, pool: NamespacePool | None, usage: Usage
) -> tuple[Address, ...] | Refusal:
    """Return the addresses of a Service, in the order of its families; `pool` is None if its namespace has none."""
    chosen = {address.family: address for address in reversed(request.kept)}
    families = request.needed
    if request.asked is not None:
        refusal = refuse_asked(request.asked, families, request.user, usage)
        if refusal is not None:
            return refusal
        chosen[request.asked.family] = request.asked
    if pool is not None and pool.dhcp and not chosen:
        by_family = tuple(each for each in DHCP_ADDRESSES if each.family in families)
        return sort_by(families, by_family) if len(pool.dhcp) > 1 else (DHCP,)
    if any(each in DHCP_ADDRESSES for each in chosen.values()):
        return sort_by(families, tuple(chosen.values()))
    refusals: list[Refusal] = []
    for family in families:
        if family not in chosen:
            found = _choose(request, family, pool, usage)
            if isinstance(found, Refusal):
                refusals.append(found)
            else:
                chosen[family] = found
    addresses = tuple(chosen[family] for family in families if family in chosen)
    is_content = bool(addresses) and request.policy is FamilyPolicy.PREFER_DUAL_STACK
    return refusals[0] if refusals and not is_content else addresses


def sort_by(families: tuple[Family, ...], addresses: tuple[Address, ...]) -> tuple[Address, ...]:
    """Return addresses in the order of the families of a Service."""
    order = {family: number for number, family in enumerate(families)}
    return tuple(sorted(addresses, key=lambda each: order.get(each.family, len(order))))


def _choose(
    request: ServiceRequest, family: Family, pool: NamespacePool | None, usage: Usage
) -> Address | Refusal:
    """Return an address of a family for a Service that has none."""
    if pool is None:
        message = (
            f"The ConfigMap has no pool {request.pool or 'for this namespace'}. Ask an administrator of the fleet for "
            "a floating IP, or an administrator of this cluster for a key with a pool, for example "
            f"cidr-{request.pool or GLOBAL}."
        )
        return Refusal(reason="NoPool", message=message)
    if pool.problem or pool.dhcp:
        message = pool.problem or f"Key {pool.key} has DHCP alone."
        if pool.reason == UNUSABLE:
            message += " Only an administrator of this cluster can change that."
        return Refusal(reason=pool.reason, message=message)
    user, addresses = request.user, pool.addresses.of(family)
    if not addresses:
        remedy = sentence(_ask_for(f"an {family.label} address", pool))
        message = f"Key {pool.key} has no {family.label} address. {remedy}"
        return Refusal(reason="PoolFull", message=message)
    for each in request.preferred:
        if each.family is family and each.value in addresses and not usage.find_conflicting(each, user):
            return each
    if family is Family.IPV4 and user.shares and user.ports:
        of_pool = (each for each in usage.addresses() if each.family is family and each.value in addresses)
        shared = [each for each in of_pool if not usage.find_conflicting(each, user)]
        if shared:
            return max(shared) if pool.descending else min(shared)
    in_order = (Address(family, value) for value in addresses.addresses(descending=pool.descending))
    free = next((each for each in in_order if usage.is_free(each, user)), None)
    message = (
        f"Key {pool.key} is full: {addresses.count} of {addresses.count} {family.label} addresses are in use. "
        f"Delete unused Services, or {_ask_for(f'another {family.label} address', pool)}."
    )
    return free or Refusal(reason="PoolFull", message=message)


def _ask_for(what: str, pool: NamespacePool) -> str:
    """Return whom the owner of a Service asks for more addresses: who can write the key."""
    if pool.is_of_operator:
        return f"ask an administrator of the fleet for {what}: fipop's operator writes this key"
    return f"ask an administrator of this cluster for {what} in this key"


def refuse_asked(address: Address, families: Collection[Family], user: User, usage: Usage) -> Refusal | None:
    """Return why a Service of these families cannot have the address that its user asks for; None if it can."""
    text = format_address(address)
    if address.family not in families:
        message = f"Address {text} is no {' or '.join(each.label for each in families)} address. Use another address."
        return Refusal(reason="InvalidAddress", message=message)
    conflicting = usage.find_conflicting(address, user)
    message = f"Address {text} is in use by {name_users(conflicting)}. Use another address."
    return Refusal(reason="AddressInUse", message=message) if conflicting else None
