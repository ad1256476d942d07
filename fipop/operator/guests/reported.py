"""Which addresses guest clusters reported that they use, and which of these reports count.

Anybody who may create a Service in a guest cluster can have it report any address. Reports are needed because a store
may have been restored from a backup that is older than what guest clusters use. So a report counts if it can be true:
in ranges that could serve the guest cluster, and for a limited number of addresses.

- An address without an owner goes to quarantine.
- An address of another owner is contested: after a restored backup two guest clusters may have a claim to it. The store
  says whose it is; the other guest cluster may have got it after the backup was made. While that one uses it and the
  owner's does not, the owner's guest cluster is not written, and nobody else gets the address: it would be in use
  twice (I1, I3). An owner whose guest cluster uses its address is never in doubt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

from fipop.api.models import FloatingIPRange, Owner, Requested, Reservation
from fipop.backoff import Backoff
from fipop.errors import ApiError, FipopError, GuestError
from fipop.guest.errors import (
    AddressConflictError,
    GuestUnreadableError,
    PassTimeoutError,
    explain_refusal,
)
from fipop.guest.guest_pass import GuestSessions
from fipop.guest.in_use import InUseAddresses
from fipop.ipam.addresses import Address, format_address
from fipop.operator.addresses.reservations import ReservationStore
from fipop.operator.addresses.values import FindCarriers, address_of
from fipop.operator.guests.kubeconfigs import NotConnectedError, read_kubeconfig
from fipop.rancher.discovery import NotAGuest
from fipop.rancher.matching import Guest, fits_guest
from fipop.runtime.retry import retry_passing
from fipop.state.cache import BY_OWNER_NAMESPACE, BY_PAST_NAMESPACE
from fipop.state.claims import Claim, read_addresses
from fipop.state.guests import GuestDirectory, GuestReport

logger = logging.getLogger(__name__)

MAX_CLAIMS = 64
"""The most reported addresses of a guest cluster that count and are not its own; ConfigMaps first, then the lowest."""
MAX_ASKED = 8
"""The most guest clusters that are asked if they use an address that their floating IPs wait for."""
MAX_PROBING = 4
"""The most reconciliations that wait for nodes of guest clusters at the same time: all of them share 32 workers."""
SCAN_BACKOFF = Backoff(first_seconds=0.5, limit_seconds=5.0)
"""For trouble of our own API server."""

_Answers = dict[str, tuple[frozenset[str], InUseAddresses | GuestError]]
"""What guest clusters answered in one check, which asks each of them once.

With each answer, the addresses that a visit could be about to write when the guest cluster was asked.
"""


@dataclass(slots=True, kw_only=True)
class GuestReader:
    """Asks guest clusters."""

    guests: GuestDirectory
    sessions: GuestSessions
    _probes: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_PROBING))

    async def is_harvester(self, guest: Guest) -> bool:
        """Return whether the nodes are Harvester's; True also if they cannot be listed, or MAX_PROBING lists run."""
        if self._probes.locked():
            return True
        async with self._probes:
            try:
                return await self.sessions.is_harvester(
                    guest.id, await read_kubeconfig(self.guests.client, guest)
                )
            except (ApiError, GuestError):
                return True

    async def read_in_use(self, guest_id: str) -> InUseAddresses:
        """Return the addresses that a guest cluster uses.

        Raises GuestError if it cannot be asked, ApiError if our own API server fails.
        """
        guest = self.guests.known(guest_id) or self.guests.glimpse(guest_id, of_any_kind=True)
        if guest is None:
            if isinstance(await self.guests.discover(guest_id), NotAGuest):
                return InUseAddresses()  # no visit is ever made there, nothing was written
            guest = self.guests.known(guest_id)
        if guest is None:
            raise NotConnectedError
        kubeconfig = await read_kubeconfig(self.guests.client, guest)
        try:
            return await self.sessions.look(guest_id, kubeconfig)
        except (ApiError, PassTimeoutError) as error:
            cluster = guest.cluster
            cause = explain_refusal(error, workspace=cluster.namespace, cluster_name=cluster.name)
            raise GuestUnreadableError(guest_id=guest_id, cause=str(cause)) from error


@dataclass(frozen=True, slots=True)
class ClaimScope:
    """Decides for which ranges and reservations the report of a guest cluster counts."""

    guests: GuestDirectory

    def ranges_for(self, guest_id: str) -> tuple[FloatingIPRange, ...]:
        """Return the ranges that could serve a guest cluster, of whatever network.

        Their harvesterClusterName and selector fit, if set. Or a floating IP of the guest cluster names them. Or its
        reservations, or their history, come from them.
        """
        return tuple(self.serving(guest_id, self.guests.cache.ranges.all()))

    def could_serve(self, range_name: str, guest_id: str) -> bool:
        """Return whether a range, or one that shares addresses with it, could serve a guest cluster.

        True also if the range is gone.
        """
        if self.guests.cache.ranges.get("", range_name) is None:
            return True
        return any(self.serving(guest_id, self.guests.cache.allocations.ranges.sharing(range_name)))

    def serving(self, guest_id: str, ranges: Iterable[FloatingIPRange]) -> Iterator[FloatingIPRange]:
        """Yield those of some ranges that could serve a guest cluster."""
        named = {
            name
            for each in self.guests.cache.floating_ips_of(guest_id)
            for name in (each.range, each.status.range)
        }
        for index in (BY_OWNER_NAMESPACE, BY_PAST_NAMESPACE):
            named |= {each.range for each in self.guests.cache.reservations.by_index(index, guest_id)}
        guest = self._guest(guest_id)
        # Which Harvester it is on may not be known (yet): then it may be any.
        is_unresolved = not (self.guests.is_resolved(guest_id) or (guest and guest.harvester_cluster_name))
        anywhere = guest is not None and guest.on_harvester and is_unresolved
        for each in ranges:
            if each.name in named:
                yield each
            elif guest is None:
                if not each.harvester_cluster and each.match_labels is None:
                    yield each
            elif fits_guest(each, guest, on_any_harvester=anywhere):
                yield each

    def _guest(self, guest_id: str) -> Guest | None:
        """Return a guest cluster with its labels of now.

        Before its first reconciliation its links are not resolved, but its labels are known.
        """
        known, now = self.guests.known(guest_id), self.guests.glimpse(guest_id, of_any_kind=True)
        if known and now:
            return replace(known, cluster=now.cluster)
        return known or now or self.guests.state(guest_id).report.guest

    def reaches(self, ranges: Iterable[FloatingIPRange], reservation: Reservation) -> bool:
        """Return whether a report counts about an address that is reserved for another, with the reporter's ranges.

        It does not if none of them assigns that address. If the reservation's range is gone, it counts: what could
        assign the address is unknown then.
        """
        if self.guests.cache.ranges.get("", reservation.range) is None:
            return True
        may_get = self.guests.cache.allocations.ranges.may_get
        return any(
            each.address_space == reservation.space
            and (each.name == reservation.range or may_get(each.name, address_of(reservation)))
            for each in ranges
        )

    def rightful(self, guest_id: str) -> frozenset[Address]:
        """Return the addresses that a guest cluster has, in whatever space, or had until their quarantine ends."""
        reserved = self.guests.cache.reservations.by_index(BY_OWNER_NAMESPACE, guest_id)
        named = (each.status.addresses for each in self.guests.cache.floating_ips_of(guest_id))
        return frozenset(map(address_of, reserved)).union(*map(read_addresses, named))

    def unowned_left(self, guest_id: str) -> int:
        """Return how many unowned addresses of a guest cluster count beside those in quarantine on its account."""
        reservations = self.guests.cache.reservations.by_index(BY_OWNER_NAMESPACE, guest_id)
        return MAX_CLAIMS - sum(not each.is_held and not each.history for each in reservations)

    def claims(self, address: Address, guest_id: str, ranges: tuple[FloatingIPRange, ...]) -> Iterator[Claim]:
        """Yield a claim for each of a guest cluster's ranges that would assign an unowned address which it uses.

        Each range is judged when its turn comes: the one before may have brought the address into quarantine.
        """
        allocations = self.guests.cache.allocations
        for each in ranges:
            if allocations.ranges.problem_of(each.name) is None and allocations.is_unowned(
                each.name, address
            ):
                yield Claim(
                    space=each.address_space,
                    address=address,
                    range=each.name,
                    owner=self._owner(guest_id, address),
                    requested=Requested.DYNAMIC,
                )

    def _owner(self, guest_id: str, address: Address) -> Owner:
        """Return who comes first when the quarantine ends: the floating IP of the guest that asks for the address."""
        cluster = next(iter(self.guests.cache.guest_clusters(guest_id)), None)
        asking = [
            each
            for each in self.guests.cache.floating_ips_of(guest_id)
            if address in read_addresses(each.ipaddress.split(","))
        ]
        only = asking[0] if len(asking) == 1 else None
        return Owner(
            namespace=guest_id,
            name=only.name if only else "",
            uid=only.uid if only else "",
            cluster=cluster.name if cluster else "",
            imported=cluster is not None and cluster.lives_on,
        )


@dataclass(slots=True, kw_only=True)
class ReportedAddresses:
    """Remembers what guest clusters reported, and keeps these addresses from others as far as the reports count.

    `over_limit` is called with a guest cluster that reports more unowned addresses than count, and with how many.
    """

    guests: GuestDirectory
    reader: GuestReader
    reservation_store: ReservationStore
    scope: ClaimScope
    over_limit: Callable[[str, int], None] = lambda _guest_id, _count: None
    backoff: Backoff = SCAN_BACKOFF

    # What was reported

    def report_of(self, guest_id: str) -> GuestReport:
        """Return what is remembered of a guest cluster."""
        return self.guests.state(guest_id).report

    def distrust(self) -> None:
        """Count no guest cluster as asked: a scan of all begins."""
        for _, each in self.guests.reports():
            each.is_fresh = False

    def count_ignored(self) -> int:
        """Return how many unowned addresses do not count, of all guest clusters."""
        return sum(each.ignored for _, each in self.guests.reports())

    def reporters_for(self, ranges: Collection[FloatingIPRange]) -> list[str]:
        """Return the guest clusters that one of the ranges could serve, and that reported what is not theirs."""
        return [
            guest_id
            for guest_id, report in self.guests.reports()
            if self._foreign(guest_id, report) and any(self.scope.serving(guest_id, ranges))
        ]

    def is_suspect(self, guest_id: str) -> bool:
        """Return whether a guest cluster reported something that counts and would be assigned to others now."""
        foreign = self._foreign(guest_id, self.report_of(guest_id))
        if not foreign or self.scope.unowned_left(guest_id) <= 0:
            return False
        ranges = self.scope.ranges_for(guest_id)
        return any(any(self.scope.claims(address, guest_id, ranges)) for address in foreign)

    async def quarantine_unowned(self, guest_id: str, report: GuestReport) -> None:
        """Quarantine what a guest cluster reported and nobody owns, also if it has gone since: it may still run."""
        foreign = self._foreign(guest_id, report)
        ranges = self.scope.ranges_for(guest_id) if foreign else ()
        left, ignored = self.scope.unowned_left(guest_id), 0
        for address in foreign:
            if not any(self.scope.claims(address, guest_id, ranges)):
                continue
            if left <= 0:
                ignored += 1
                continue
            left -= 1
            try:
                await retry_passing(partial(self._quarantine, address, guest_id, ranges), self.backoff)
            except FipopError as error:
                logger.info("Could not protect address", extra={"guest": guest_id, "error": str(error)})
        if ignored and ignored != report.ignored:
            self.over_limit(guest_id, ignored)
        report.ignored = ignored

    async def _quarantine(self, address: Address, guest_id: str, ranges: tuple[FloatingIPRange, ...]) -> None:
        """Quarantine an address in every space whose ranges would assign it to the guest cluster."""
        for claim in self.scope.claims(address, guest_id, ranges):
            seconds = self.guests.cache.quarantine_seconds(claim.range)
            found = await self.reservation_store.quarantine_unowned(claim, seconds=seconds)
            if found is not None:
                logger.warning(
                    "Guest cluster uses an unowned address",
                    extra={"guest": guest_id, "address": found.address, "range": claim.range},
                )

    def _foreign(self, guest_id: str, report: GuestReport) -> list[Address]:
        """Return the addresses that a guest cluster reported and has no right to; mostly there are none."""
        rightful = self.scope.rightful(guest_id) if report.addresses else frozenset()
        return [each for each in report.addresses if each not in rightful]

    # What is contested

    def contest(self, guest_id: str, report: GuestReport) -> None:
        """Note which reservations of others a guest cluster contests by what it reported."""
        foreign = self._foreign(guest_id, report)
        ranges = self.scope.ranges_for(guest_id) if foreign else ()
        counting = (
            reservation
            for address in foreign
            for reservation in self.guests.cache.reservations_at(address)
            if self.scope.reaches(ranges, reservation)
        )
        found = {each.name: each for each in islice(counting, MAX_CLAIMS)}
        for name in found.keys() - report.contested:
            logger.warning(
                "Guest cluster uses an address of another owner",
                extra={"address": format_address(address_of(found[name])), "guest": guest_id},
            )
        self.guests.contest(guest_id, report, frozenset(found))

    def reporters(self, reservation: Reservation, *, but: str) -> tuple[str, ...]:
        """Return the guest clusters that reported a reserved address without right, beside one."""
        return tuple(each for each in self.guests.contesting(reservation.name) if each != but)

    def is_contested(self, reservation: Reservation, floating_ip: tuple[str, str]) -> bool:
        """Return whether another guest cluster than a floating IP's reported an address, and its report counts."""
        return any(self._rivals(reservation, floating_ip))

    def _rivals(self, reservation: Reservation, floating_ip: tuple[str, str]) -> Iterator[str]:
        """Yield the reporters of an address beside a floating IP's guest, but those that an administrator ignores."""
        found = self.guests.cache.floating_ips.get(*floating_ip)
        ignored = found.ignored_claims if found is not None else frozenset()
        return (each for each in self.reporters(reservation, but=floating_ip[0]) if each not in ignored)

    # What is asked now

    async def check(self, reservation: Reservation) -> None:
        """Raise AddressConflictError before an address is written that only another guest cluster uses.

        The owner's is asked first: if it uses the address itself, what the store says stands.
        """
        address, owner, answers = address_of(reservation), reservation.owner.namespace, _Answers()
        if not self.reporters(reservation, but=owner):
            return
        if await self._find_user(owner, address, answers, counts_visits=False):
            return
        for guest_id in self._rivals(reservation, reservation.owner.key):
            try:
                carrier = await self._ask_again(guest_id, reservation, answers)
            except GuestError as error:
                carrier = f"guest cluster {guest_id} used it before, and now fipop {error}"
            if carrier is not None:
                raise AddressConflictError(address=format_address(address), carrier=carrier)

    def begin_check(self) -> FindCarriers:
        """Begin a check of several addresses, for which each guest cluster is asked once."""
        return partial(self._find_carriers, _Answers())

    async def _find_carriers(
        self, answers: _Answers, reservation: Reservation, asking: Iterable[str]
    ) -> dict[str, str]:
        """Ask the owner's guest cluster and the reporters of an address; return those that use it.

        Each comes with a sentence. Guest clusters whose floating IPs ask for it (`asking`) may use it since they were
        asked, as when an application moved there. One of them that does not answer counts for nothing. Raises
        FipopError if one of the rest does not.
        """
        address, owner = address_of(reservation), reservation.owner.namespace
        own = await self._find_user(owner, address, answers) if self.guests.exists(owner) else None
        counting = (each for each in asking if self.scope.reaches(self.scope.ranges_for(each), reservation))
        for guest_id in islice(counting, MAX_ASKED):
            with suppress(GuestError):
                if await self._find_user(guest_id, address, answers, counts_visits=False):
                    report = self.report_of(guest_id)
                    self.guests.contest(guest_id, report, report.contested | {reservation.name})
        found = {owner: own}
        for guest_id in self.reporters(reservation, but=owner):
            found[guest_id] = await self._ask_again(guest_id, reservation, answers)
        return {guest_id: carrier for guest_id, carrier in found.items() if carrier is not None}

    async def _ask_again(self, guest_id: str, reservation: Reservation, answers: _Answers) -> str | None:
        """Ask a reporter again; one that does not use the address, or has a right to it, contests it no more.

        Nor does one that no range with the address can serve any more: a range may be gone since it was asked.
        """
        address = address_of(reservation)
        if (
            self.guests.exists(guest_id)
            and self.scope.reaches(self.scope.ranges_for(guest_id), reservation)
            and address not in self.scope.rightful(guest_id)
        ):
            carrier = await self._find_user(guest_id, address, answers)
            if carrier is not None:
                return carrier
        report = self.report_of(guest_id)
        self.guests.contest(guest_id, report, report.contested - {reservation.name})
        return None

    async def _find_user(
        self, guest_id: str, address: Address, answers: _Answers, *, counts_visits: bool = True
    ) -> str | None:
        """Return what uses an address in a guest cluster, as a sentence. GuestError if it cannot be asked.

        A visit that began when the address was still granted counts too, if wanted: it may write after the answer.
        """
        text = format_address(address)
        if guest_id not in answers:
            under_way = self.guests.under_way.get(guest_id, frozenset())
            try:
                answers[guest_id] = under_way, await self.reader.read_in_use(guest_id)
            except GuestError as error:
                answers[guest_id] = under_way, error
        under_way, found = answers[guest_id]
        if counts_visits and text in under_way:
            return f"a reconciliation that can write it to guest cluster {guest_id} is running"
        if isinstance(found, GuestError):
            raise found
        carrier = found.carrier_of(address)
        if carrier is None:
            report = self.report_of(guest_id)
            report.addresses = tuple(each for each in report.addresses if each != address)
            return None
        return f"{carrier} in guest cluster {guest_id} uses {text}"
