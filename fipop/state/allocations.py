"""The ledgers of all address spaces, kept from what the stores hold.

An address is used where a reservation says so, where a claim is under way, or where the status of a floating IP names
it (a reservation that vanished must not free it). After any of the three changes its entry is made anew from all three,
in that order: there is no other way into a ledger, so its state never depends on the order of events.
"""

from __future__ import annotations

from collections.abc import Callable

from fipop.api.models import FloatingIP, FloatingIPRange, Reservation
from fipop.api.names import DEFAULT_ADDRESS_SPACE
from fipop.errors import IpamError
from fipop.ipam.addresses import Address, Family, parse_address
from fipop.state.allocation_entries import Entry, Name, Named, OwnerKey
from fipop.state.claims import Claim
from fipop.state.range_index import RangeIndex


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
        self.ranges = RangeIndex()
        self._floating_ips: dict[OwnerKey, FloatingIP] = {}
        self._named_by: dict[OwnerKey, Named] = {}
        self._unsettled: dict[tuple[OwnerKey, Family], Claim] = {}
        self._failed_claimants: set[OwnerKey] = set()

    # What changed

    def range_changed(self, old: FloatingIPRange | None, new: FloatingIPRange | None) -> None:
        """Enter, change or forget a range; what is held stays held."""
        latest = new if new is not None else old
        assert latest is not None
        if self.ranges.change(old, new):
            # What says nothing of its space is in that of its range, as soon as the range is known.
            for each in [each for each in self._floating_ips.values() if _range_of(each) == latest.name]:
                self.floating_ip_changed(each, each)

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
                self.ranges.use(side.range, side.space, 1 if side is new else -1)
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
                self.ranges.use(name.range, name.space, 1 if name in after else -1)
        changed = sorted({(each.space, each.address) for each in before ^ after})
        for space, address in [each for each in changed if self._enter(*each)]:
            self._on_free(space, address, False)

    def expect(self, claim: Claim) -> None:
        """Note a claim before it is asked for: nobody else chooses the address while its outcome is open."""
        self._abandon(claim.owner.key, claim.address.family, but=claim)
        key = claim.owner.key, claim.address.family
        asked_before = self._unsettled.pop(key, None)
        if asked_before is not None:
            self.ranges.use(asked_before.range, asked_before.space, -1)
        self._unsettled[key] = claim
        self.ranges.use(claim.range, claim.space, 1)
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
        ledger = self.ranges.ledger_of(range_name)
        address = ledger.claim_next(range_name, family, owner)
        # Chosen is not claimed: the entry is made by `expect`, from the one place that makes entries.
        space = self.ranges.space_of(range_name)
        assert space is not None, "its ledger was there"
        self._enter(space, address)
        return address

    def peek_free(self, range_name: str, family: Family) -> Address:
        """Return the next free address of a range, and change nothing; IpamError says why there is none."""
        return self.ranges.ledger_of(range_name).next_free(range_name, family)

    def is_nobodys(self, range_name: str, address: Address, *, carrier: str) -> bool:
        """Whether an address of a range, be it draining or overlapped, has no reservation, no claim and no status.

        The spec of a floating IP that names it counts as an owner only where its guest carries the address.
        """
        space = self.ranges.space_of(range_name)
        if space is None or not self.ranges.has(range_name, address):
            return False
        entry = self.ranges.space(space).entries.get(address)
        if entry is None:
            return True
        if entry.reservation is not None or entry.claims:
            return False
        wishes = {namespace for (namespace, _), name in entry.named_by.items() if not name.is_had}
        return len(wishes) == len(entry.named_by) and wishes != {carrier}

    def is_anothers(self, space: str, address: Address, owner: OwnerKey) -> bool:
        """Whether another floating IP has an address, or had it until its quarantine ends."""
        entry = self.ranges.space(space).entries.get(address)
        if entry is not None and entry.reservation is not None:
            return entry.reservation.owner.key != owner
        return self.named_by_another(space, address, owner) is not None

    def named_by_another(self, space: str, address: Address, owner: OwnerKey) -> OwnerKey | None:
        """Give another floating IP whose status names an address though no reservation says so."""
        entry = self.ranges.space(space).entries.get(address)
        if entry is None or entry.reservation is not None:
            return None
        had_by = {key for key, name in entry.named_by.items() if name.is_had}
        return min(had_by - {owner}, default=None)

    # How

    def _named(self, floating_ip: FloatingIP | None) -> Named:
        if floating_ip is None:
            return frozenset()
        status = floating_ip.status
        range_name = _range_of(floating_ip)
        space = status.address_space or self.ranges.space_of(range_name) or DEFAULT_ADDRESS_SPACE
        is_had = bool(status.observed_generation) and not self._is_inherited(floating_ip)
        texts = status.addresses if is_had else floating_ip.ipaddress.split(",")
        found = (_read(text) for text in texts)
        return frozenset(Name(space, address, range_name, is_had) for address in found if address is not None)

    def _entry(self, space: str, address: Address) -> Entry:
        return self.ranges.space(space).entries.setdefault(address, Entry())

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
            self.ranges.use(asked_for.range, asked_for.space, -1)
        self._entry(claim.space, claim.address).claims.pop(claim.owner.key, None)
        return self._enter(claim.space, claim.address)

    def _enter(self, space: str, address: Address) -> bool:
        """Make the ledger's record of an address anew from all that is known of it; whether that made it free."""
        there = self.ranges.space(space)
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


def _read(text: str) -> Address | None:
    try:
        return parse_address(text)
    except IpamError:
        return None
