"""What an operator would decide if it started now: a loop over pure steps, applied to a cache of its own.

The order is that of a start. Floating IPs that have an address claim it, the oldest first. What guest clusters carry is
kept from others. Then the rest is decided on, the oldest first as well.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from fipop.api.models import FloatingIP, Reservation
from fipop.api.parsing import parse_floating_ip
from fipop.ipam.addresses import Address
from fipop.kube.client import KubeClient
from fipop.kube.resources import FLOATING_IP_RESERVATIONS, FLOATING_IPS, Resource
from fipop.operator.addresses.facts import FactSource
from fipop.operator.addresses.holdings import plan
from fipop.operator.addresses.next_step import (
    Release,
    Step,
    Wait,
    WriteSpec,
    WriteStatus,
    next_step,
)
from fipop.operator.addresses.range_selection import choose_for_guest
from fipop.operator.addresses.reconciler import MAX_STEPS
from fipop.operator.addresses.reservations import (
    ReservationStore,
    build_acquired,
    build_quarantined,
    build_unowned,
)
from fipop.operator.guests.discovery import build_floating_ip, needs_floating_ip
from fipop.operator.guests.reported import ClaimScope
from fipop.operator.startup import adopt_all
from fipop.state.cache import WATCHED, ClusterCache
from fipop.state.claims import Claim
from fipop.state.gate import AllocationGate
from fipop.state.guests import GuestDirectory
from fipop.state.range_index import OwnerKey

MAX_ROUNDS = 5
"""A decision can change what others wait for: so many rounds over all floating IPs are made at most."""


class DryRun:
    """Decides on floating IPs, and applies each step to its cache alone: `client` only reads.

    `ours_since` is since when our CRDs are there; None: they are not yet. `creates`: guest clusters get floating IPs.
    """

    def __init__(self, client: KubeClient, ours_since: datetime | None, *, creates: bool = True) -> None:
        self._client = client
        self._creates = creates
        self._has_reservations = ours_since is not None
        self._versions = itertools.count(1 << 53)
        self.cache = ClusterCache()
        self.cache.inheritance.ours_since = ours_since or client.server_now() + timedelta(seconds=1)
        # Nodes are not asked: hardly any imported cluster of a kind that Rancher does not know is Harvester.
        self._guests = GuestDirectory(
            cache=self.cache, client=client, is_harvester=lambda _guest: asyncio.sleep(0, result=False)
        )
        self._scope = ClaimScope(self._guests)
        self._gate = AllocationGate(self._scope.could_serve)
        self._reservations = ReservationStore(
            client=client,
            known=self.cache,
            now=client.server_now,
            look_again=lambda _reservation: asyncio.sleep(0),
            lives=self._guests.exists,
        )
        self._facts = FactSource(
            cache=self.cache,
            reservation_store=self._reservations,
            gate=self._gate,
            guests=self._guests,
            carrier_of=lambda _reservation: None,
            removal_of=lambda _floating_ip, _cluster: None,
        )

    async def run(
        self, carried: Mapping[str, Iterable[Address]], progress: Callable[[str], None] = lambda _step: None
    ) -> ClusterCache:
        """Decide as at a start, and return the cache of then; `carried` are the addresses that guest clusters use.

        Raises ApiError if the objects cannot be read.
        """
        for resource in WATCHED:  # reservations first, owners after them, as the operator does
            # kube-fip-operator knows no reservations: before our CRDs are there, none exist.
            if resource != FLOATING_IP_RESERVATIONS or self._has_reservations:
                listing = await self._client.list(resource)
                self.cache.feed(resource).take_list(listing, seen_before=0)
        progress("adopting")
        await adopt_all(self._guests, self._gate, self._decide)
        for each in self.cache.clusters.all():
            await self._guests.discover(each.cluster_name)
        for guest_id, addresses in carried.items():
            self._keep_from_others(guest_id, addresses)
        progress("Deciding on the remaining floating IPs")
        self._gate.is_shut = False
        for guest in self._guests.all():
            is_without = self._guests.is_resolved(guest.id) and needs_floating_ip(self.cache, guest)
            if self._creates and is_without and choose_for_guest(self.cache, guest):
                self._suppose(FLOATING_IPS, parse_floating_ip(build_floating_ip(guest)))
        for _ in range(MAX_ROUNDS):
            if not sum([await self._decide(each.meta.key) for each in self.cache.floating_ips_by_age()]):
                break
        return self.cache

    def _keep_from_others(self, guest_id: str, addresses: Iterable[Address]) -> None:
        ranges = self._scope.ranges_for(guest_id)
        for address in addresses:
            if address in self._scope.rightful(guest_id):
                continue
            for claim in self._scope.claims(address, guest_id, ranges):
                seconds = self.cache.quarantine_seconds(claim.range)
                self._reserve(build_unowned(claim, self._client.server_now(), seconds))

    async def _decide(self, key: OwnerKey) -> int:
        """Apply all steps for a floating IP; return how many there were."""
        for number in range(MAX_STEPS):
            floating_ip = self.cache.floating_ips.get(*key)
            assert floating_ip is not None, "a dry run deletes no FloatingIP"
            found = self._facts.gather(floating_ip, is_live=True, written="", write_backs=0)
            # No other operator is at work.
            fresh, safe = frozenset(found.unsafe_for), dict.fromkeys(found.unsafe_for, 0.0)
            facts = replace(found, fresh=fresh, unsafe_for=safe)
            step = next_step(facts, plan(facts))
            if isinstance(step, Wait):
                return number
            self._apply(step, floating_ip)
        return MAX_STEPS

    def _apply(self, step: Step, floating_ip: FloatingIP) -> None:
        now = self._client.server_now()
        match step:
            case Claim():
                self._reserve(build_acquired(self.cache.get_reservation(step.name), step, now))
            case Release(reservation):
                seconds = self.cache.quarantine_seconds(reservation.range)
                self._reserve(build_quarantined(reservation, now, seconds))
            case WriteSpec(ipaddress=ipaddress, range=range_name):
                meta = replace(floating_ip.meta, generation=floating_ip.meta.generation + 1)
                named = range_name if range_name is not None else floating_ip.range
                self._suppose(FLOATING_IPS, replace(floating_ip, meta=meta, ipaddress=ipaddress, range=named))
            case WriteStatus(status):
                self._suppose(FLOATING_IPS, replace(floating_ip, status=status))

    def _reserve(self, reservation: Reservation) -> None:
        self._suppose(FLOATING_IP_RESERVATIONS, reservation)

    def _suppose(self, resource: Resource, changed: FloatingIP | Reservation) -> None:
        version, meta = next(self._versions), changed.meta
        if not meta.uid:
            uid, now = f"dry-run-{version}", self._client.server_now().replace(microsecond=0)
            meta = replace(meta, uid=uid, generation=1, created=now)
        meta = replace(meta, resource_version=version)
        self.cache.suppose(resource, replace(changed, meta=meta))
