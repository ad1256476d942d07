"""The ledgers of all address spaces, kept from what the stores hold.

An address is used where a reservation says so, where a claim is under way, or where the status of a floating IP names
it (a reservation that vanished must not free it). After any of the three changes its entry is made anew from all three,
in that order: there is no other way into a ledger, so its state never depends on the order of events.

A range never changes its address space. One that was deleted and created again in another space gives out nothing as
long as addresses of its name are used in a space that it had: they may be addresses of the same network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from fipop.api.models import Capacity, FloatingIP, FloatingIPRange, RangeCapacity, Reservation, SearchOrder
from fipop.api.names import DEFAULT_ADDRESS_SPACE
from fipop.errors import AddressSpaceChangedError, IpamError, RangeUnknownError
from fipop.ipam.addresses import Address, Family, parse_address
from fipop.ipam.ledger import Ledger, Range, Usage
from fipop.ipam.pool import MaskedPart, Pool, parse_pool
from fipop.state.claims import Claim

OwnerKey = tuple[str, str]


class _Name(NamedTuple):
    """An address that a floating IP names; `is_had`: its status does, not only its spec."""

    space: str
    address: Address
    range: str
    is_had: bool


_Named = frozenset[_Name]


class _Holder(NamedTuple):
    """Who has an address, or asks for it, from which range; `quarantined_until` where it is released."""

    owner: OwnerKey
    range: str
    quarantined_until: datetime | None


@dataclass(slots=True)
class _Entry:
    """All that is known of one address of a space."""

    reservation: Reservation | None = None
    claims: dict[OwnerKey, str] = field(default_factory=dict)
    named_by: dict[OwnerKey, _Name] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return self.reservation is None and not self.claims and not self.named_by

    @property
    def holder(self) -> _Holder:
        """Who has it, of an entry that is not empty: a reservation counts before a claim, a claim before a name."""
        if self.reservation is not None:
            return _holder_by(self.reservation)
        if self.claims:
            return _Holder(*min(self.claims.items()), None)
        owner, name = min(self.named_by.items())
        return _Holder(owner, name.range, None)


@dataclass(slots=True)
class _Space:
    ledger: Ledger[OwnerKey] = field(default_factory=Ledger)
    entries: dict[Address, _Entry] = field(default_factory=dict)


class AllocationIndex:
    """Who holds which address, and what the ranges can still give out.

    `on_free` is told the space and the address where one is free by now that no reservation kept from others, and
    whether that is so because a claim came to nothing.
    """

    def __init__(
        self,
        *,
        is_inherited: Callable[[FloatingIP], bool] = lambda _floating_ip: False,
        on_free: Callable[[str, Address, bool], None] = lambda _space, _address, _claim_failed: None,
    ) -> None:
        self._is_inherited = is_inherited
        self._on_free = on_free
        self._spaces: dict[str, _Space] = {}
        self._ranges: dict[str, FloatingIPRange] = {}
        self._pools: dict[str, Pool] = {}
        self._problems: dict[str, IpamError] = {}
        self._floating_ips: dict[OwnerKey, FloatingIP] = {}
        self._named_by: dict[OwnerKey, _Named] = {}
        self._used_in: dict[str, Counter[str]] = {}
        """How many addresses of a range's name are used in which spaces."""
        self._unsettled: dict[tuple[OwnerKey, Family], Claim] = {}
        self._failed_claimants: set[OwnerKey] = set()

    # What changed

    def range_changed(self, old: FloatingIPRange | None, new: FloatingIPRange | None) -> None:
        """Enter, change or forget a range; what is held stays held."""
        latest = new if new is not None else old
        assert latest is not None
        is_moved = old is None or new is None or old.address_space != new.address_space
        if old is not None and is_moved:
            self._space(old.address_space).ledger.remove_range(old.name)
            del self._ranges[old.name]
        if new is None:
            self._pools.pop(latest.name, None)
            self._problems.pop(latest.name, None)
        else:
            self._ranges[new.name] = new
            self._enter_range(new)
        if is_moved:
            # What says nothing of its space is in that of its range, as soon as the range is known.
            for each in [each for each in self._floating_ips.values() if _range_of(each) == latest.name]:
                self.floating_ip_changed(each, each)

    def _enter_range(self, new: FloatingIPRange) -> None:
        ledger = self._space(new.address_space).ledger
        try:
            pool = self._read_pool(new)
        except IpamError as error:
            # A range that cannot be read gives out nothing; what it gave out before stays held.
            self._problems[new.name] = error
            self._pools.pop(new.name, None)
            ledger.remove_range(new.name)
            return
        self._problems.pop(new.name, None)
        self._pools[new.name] = pool
        ledger.set_range(
            Range(
                name=new.name,
                pool=pool,
                created=new.meta.created,
                descending=new.search_order is SearchOrder.DESC,
                draining=new.draining or new.meta.deleting,
            )
        )

    def _read_pool(self, new: FloatingIPRange) -> Pool:
        former = min(self._used_in.get(new.name, Counter()).keys() - {new.address_space}, default=None)
        if former is not None:
            raise AddressSpaceChangedError(range_name=new.name, former=former, space=new.address_space)
        return parse_pool(
            new.iprange,
            exclude=new.exclude,
            skip_end_ips=new.skip_end_ips,
            avoid_buggy_ips=new.avoid_buggy_ips,
        )

    def _use(self, range_name: str, space: str, count: int) -> None:
        """Count addresses of a range's name in a space: in another than the range's own they keep it shut."""
        used = self._used_in.setdefault(range_name, Counter())
        was_used = used[space] > 0
        used[space] += count
        if not used[space]:
            del used[space]
        found = self._ranges.get(range_name)
        if found is not None and found.address_space != space and was_used != (space in used):
            self._enter_range(found)

    def reservation_changed(self, old: Reservation | None, new: Reservation | None) -> None:
        """Take a reservation in; its name holds its space and address, so these are those of `old`."""
        latest = new if new is not None else old
        assert latest is not None
        address = _read(latest.address)
        if address is None:
            return
        self._entry(latest.space, address).reservation = new
        for side in (new, old):
            if side is not None:
                self._use(side.range, side.space, 1 if side is new else -1)
        self._enter(latest.space, address)

    def floating_ip_changed(self, old: FloatingIP | None, new: FloatingIP | None) -> None:
        """Take in which addresses the status of a floating IP names.

        Before its first status those of its spec count, and as long as it is an object of the predecessor that was
        never served: its guest carries them.
        """
        latest = new if new is not None else old
        assert latest is not None
        key = latest.meta.key
        before, after = self._named_by.pop(key, frozenset()), self._named(new)
        self._floating_ips.pop(key, None)
        if new is not None:
            self._floating_ips[key] = new
        if after:
            self._named_by[key] = after
        for name in before - after:
            self._entry(name.space, name.address).named_by.pop(key, None)
        for name in after:
            self._entry(name.space, name.address).named_by[key] = name
        for name in before ^ after:
            if name.is_had:
                self._use(name.range, name.space, 1 if name in after else -1)
        changed = sorted({(each.space, each.address) for each in before ^ after})
        for space, address in [each for each in changed if self._enter(*each)]:
            self._on_free(space, address, False)

    def expect(self, claim: Claim) -> None:
        """Note a claim before it is asked for: nobody else chooses the address while its outcome is open."""
        self._abandon(claim.owner.key, claim.address.family, but=claim)
        key = claim.owner.key, claim.address.family
        asked_before = self._unsettled.pop(key, None)
        if asked_before is not None:
            self._use(asked_before.range, asked_before.space, -1)
        self._unsettled[key] = claim
        self._use(claim.range, claim.space, 1)
        self._entry(claim.space, claim.address).claims[claim.owner.key] = claim.range
        self._enter(claim.space, claim.address)

    def settle(self, claim: Claim) -> None:
        """Forget a claim whose outcome is known: the reservation, if there is one, is in the store by now."""
        if self._settle(claim):
            self._failed_claimants.add(claim.owner.key)
            self._on_free(claim.space, claim.address, True)

    def abandon(self, owner: OwnerKey) -> None:
        """Forget the open claims of an owner that is gone: one that is granted all the same shows as ownerless."""
        for family in Family:
            self._abandon(owner, family)
        self._failed_claimants.discard(owner)

    # What is so

    def claimants(self) -> frozenset[OwnerKey]:
        """Give the owners of claims whose outcome is open."""
        return frozenset(owner for owner, _ in self._unsettled)

    def open_claims(self, namespace: str, range_name: str) -> frozenset[str]:
        """Give the reservations that the floating IPs of a namespace ask for from a range at this moment."""
        return frozenset(
            claim.name
            for claim in self._unsettled.values()
            if claim.owner.namespace == namespace and claim.range == range_name
        )

    def is_trying_again(self, owner: OwnerKey) -> bool:
        """Whether a claim of an owner came to nothing, and no round of its got to an end since."""
        return owner in self._failed_claimants

    def unsettled(self, owner: OwnerKey, range_name: str, family: Family) -> Address | None:
        """Give the address of a claim whose outcome is unknown: it is asked for again before any other."""
        claim = self._unsettled.get((owner, family))
        return claim.address if claim is not None and claim.range == range_name else None

    def next_free(self, range_name: str, family: Family, owner: OwnerKey) -> Address:
        """Choose the next free address of a range; IpamError says why there is none."""
        ledger = self._ledger_of(range_name)
        address = ledger.claim_next(range_name, family, owner)
        # Chosen is not claimed: the entry is made by `expect`, from the one place that makes entries.
        self._enter(self._ranges[range_name].address_space, address)
        return address

    def problem_of(self, range_name: str) -> IpamError | None:
        """Say why a range cannot be read; None where it can."""
        return self._problems.get(range_name)

    def masked_parts(self, range_name: str) -> tuple[MaskedPart, ...]:
        """Give the CIDRs of a range that were written with host bits."""
        pool = self._pools.get(range_name)
        return pool.masked if pool is not None else ()

    def space_of(self, range_name: str) -> str | None:
        """Give the address space of a range."""
        found = self._ranges.get(range_name)
        return found.address_space if found is not None else None

    def families(self, range_name: str) -> frozenset[Family]:
        """Give the families that a range has addresses of."""
        pool = self._pools.get(range_name)
        return frozenset(pool.families) if pool is not None else frozenset()

    def may_get(self, range_name: str, address: Address) -> bool:
        """Whether who waits for an address of a range, not known yet where it is "", might be given this one."""
        pool = self._pools.get(range_name)
        return any(address in each for each in (self._pools.values() if pool is None else (pool,)))

    def why_refused(self, range_name: str, address: Address) -> IpamError | None:
        """Say why a range would not give out this address, whoever holds it; None where it would."""
        return self._ledger_of(range_name).refusal(address, range_name)

    def is_nobodys(self, range_name: str, address: Address, *, carrier: str) -> bool:
        """Whether an address is of a range, be it draining or overlapped, and nobody has it.

        A wish that a spec names is no possession, unless it is one of the guest that carries the address.
        """
        pool = self._pools.get(range_name)
        if pool is None or address not in pool:
            return False
        entry = self._space(self._ranges[range_name].address_space).entries.get(address)
        if entry is None:
            return True
        if entry.reservation is not None or entry.claims:
            return False
        wishes = {namespace for (namespace, _), name in entry.named_by.items() if not name.is_had}
        return len(wishes) == len(entry.named_by) and wishes != {carrier}

    def is_anothers(self, space: str, address: Address, owner: OwnerKey) -> bool:
        """Whether another floating IP has an address, or had it until its quarantine ends."""
        entry = self._space(space).entries.get(address)
        if entry is not None and entry.reservation is not None:
            return entry.reservation.owner.key != owner
        return self.named_by_another(space, address, owner) is not None

    def named_by_another(self, space: str, address: Address, owner: OwnerKey) -> OwnerKey | None:
        """Give another floating IP whose status names an address though no reservation says so."""
        entry = self._space(space).entries.get(address)
        if entry is None or entry.reservation is not None:
            return None
        had_by = {key for key, name in entry.named_by.items() if name.is_had}
        return min(had_by - {owner}, default=None)

    def is_full(self, range_name: str) -> bool:
        """Whether a range has nothing for a new guest, which gets an address of the first family that there is."""
        if range_name not in self._pools:
            return True
        snapshot = self._ledger_of(range_name).snapshot(range_name)
        return (snapshot.ipv4 if Family.IPV4 in self.families(range_name) else snapshot.ipv6).free == 0

    def conflicts(self, range_name: str) -> tuple[str, ...]:
        """Name the older ranges that take addresses away from this one."""
        return self._ledger_of(range_name).conflicts(range_name) if range_name in self._pools else ()

    def capacity(self, range_name: str) -> RangeCapacity | None:
        """Count a range; None where it cannot be read."""
        if range_name not in self._pools:
            return None
        snapshot = self._ledger_of(range_name).snapshot(range_name)
        return RangeCapacity(
            whole=_capacity(snapshot.whole), ipv4=_capacity(snapshot.ipv4), ipv6=_capacity(snapshot.ipv6)
        )

    # How

    def _named(self, floating_ip: FloatingIP | None) -> _Named:
        if floating_ip is None:
            return frozenset()
        status = floating_ip.status
        range_name = _range_of(floating_ip)
        space = status.address_space or self.space_of(range_name) or DEFAULT_ADDRESS_SPACE
        is_had = bool(status.observed_generation) and not self._is_inherited(floating_ip)
        texts = status.addresses if is_had else floating_ip.ipaddress.split(",")
        found = (_read(text) for text in texts)
        return frozenset(
            _Name(space, address, range_name, is_had) for address in found if address is not None
        )

    def _space(self, name: str) -> _Space:
        space = self._spaces.get(name)
        if space is None:  # a ledger is too much to make one at every look
            space = self._spaces[name] = _Space()
        return space

    def _ledger_of(self, range_name: str) -> Ledger[OwnerKey]:
        space = self.space_of(range_name)
        if space is None:
            raise RangeUnknownError(range_name=range_name)  # it went while somebody worked with it
        return self._space(space).ledger

    def _entry(self, space: str, address: Address) -> _Entry:
        return self._space(space).entries.setdefault(address, _Entry())

    def _abandon(self, owner: OwnerKey, family: Family, *, but: Claim | None = None) -> None:
        claim = self._unsettled.get((owner, family))
        if claim is None or (but is not None and claim.name == but.name):
            return
        if self._settle(claim):
            self._on_free(claim.space, claim.address, False)

    def _settle(self, claim: Claim) -> bool:
        """Forget a claim; whether that made its address free."""
        asked_for = self._unsettled.pop((claim.owner.key, claim.address.family), None)
        if asked_for is not None:
            self._use(asked_for.range, asked_for.space, -1)
        self._entry(claim.space, claim.address).claims.pop(claim.owner.key, None)
        return self._enter(claim.space, claim.address)

    def _enter(self, space: str, address: Address) -> bool:
        """Make the ledger's record of an address anew from all that is known of it; whether that made it free."""
        there = self._space(space)
        entry = there.entries.get(address)
        before = there.ledger.free(address)
        if entry is None or entry.is_empty:
            there.entries.pop(address, None)
            return before is not None
        holder = entry.holder
        there.ledger.adopt(address, holder.owner, holder.range, quarantined_until=holder.quarantined_until)
        return False


def _range_of(floating_ip: FloatingIP) -> str:
    """Give the name of the range that the addresses of a floating IP are of, or are asked for from; "" for none."""
    return floating_ip.status.range or floating_ip.range or ""


def _holder_by(reservation: Reservation) -> _Holder:
    return _Holder(reservation.owner.key, reservation.range, reservation.quarantined_until)


def _read(text: str) -> Address | None:
    try:
        return parse_address(text)
    except IpamError:
        return None


def _capacity(usage: Usage) -> Capacity:
    return Capacity(
        total=usage.total,
        used=usage.used,
        free=usage.free,
        quarantined=usage.quarantined,
        out_of_range=usage.out_of_range,
    )
