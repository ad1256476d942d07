"""What an operator would decide if it started now: a loop over the decisions, applied to an inventory of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from fipop.addresses.decision import DecisionView, decide
from fipop.addresses.guests import GuestRecords
from fipop.addresses.in_use import AddressUser, InUseAddresses, Source, build_parts
from fipop.addresses.inventory import Inventory
from fipop.addresses.range_selection import choose_for_guest
from fipop.addresses.range_status import build_status
from fipop.addresses.reconciler import build_spec_patch
from fipop.addresses.reservations import build_held, build_quarantined
from fipop.addresses.status import StatusBuilder
from fipop.addresses.stores import WATCHED
from fipop.api.objects import FloatingIP, FloatingIPRange, FloatingIPReservation, read_object
from fipop.guests.discovery import GuestDirectory, build_floating_ip, needs_floating_ip
from fipop.guests.in_use import SERVICE
from fipop.guests.record import GuestRecord
from fipop.ipam.addresses import Address
from fipop.kube.client import KubeClient
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IP_RESERVATIONS, FLOATING_IPS, Resource
from fipop.runtime.informer import Informer

MAX_ROUNDS = 5
"""A decision can change what others wait for: so many rounds over all floating IPs are made at most."""


class DryRun:
    """Decides on floating IPs, and applies each decision to its inventory alone: `client` only reads.

    `ours_since` is since when our CRDs are there; None: they are not yet. `creates`: guest clusters get floating IPs.
    """

    def __init__(self, client: KubeClient, ours_since: datetime | None, *, creates: bool) -> None:
        self._client = client
        self._creates = creates
        self._has_reservations = ours_since is not None
        self._versions = itertools.count(1 << 53)
        records = GuestRecords(GuestRecord)
        self.inventory = Inventory(records)
        self._guests = GuestDirectory(inventory=self.inventory, records=records, client=client)
        since = ours_since or client.server_now() + timedelta(seconds=1)
        self._view = DecisionView(inventory=self.inventory, ours_since=since)
        self._statuses = StatusBuilder(inventory=self.inventory, now=client.server_now)

    async def run(
        self, carried: Mapping[str, Iterable[Address]], progress: Callable[[str], None]
    ) -> Inventory:
        """Decide as at a start, and return the inventory of then; `carried` are the addresses that guest clusters use.

        Raises ApiError if the objects cannot be read.
        """
        for resource in WATCHED:  # reservations first, owners after them, as the operator does
            # kube-fip-operator knows no reservations: before our CRDs are there, none exist.
            if resource != FLOATING_IP_RESERVATIONS or self._has_reservations:
                store, take = self.inventory.store_of(resource), self.inventory.taker_of(resource)
                await Informer(self._client, resource, store, take).relist()
        for each in self.inventory.clusters.all():
            await self._guests.discover(each.cluster_name)
        for guest_id, addresses in carried.items():
            found = InUseAddresses(build_parts(AddressUser(kind=SERVICE, namespace="?", name="?"), addresses))
            self.inventory.reports.take(guest_id, Source.OBJECTS, self._client.server_now(), found)
        progress("Deciding on the floating IPs")
        self._decide_all(assigns=False)  # as long as the gate is closed: what exists keeps what it has
        for guest in self.inventory.known_guests():
            is_without = self.inventory.is_resolved(guest.id) and needs_floating_ip(self.inventory, guest)
            if self._creates and is_without and choose_for_guest(self.inventory, guest):
                self._suppose(FLOATING_IPS, read_object(FloatingIP, build_floating_ip(guest)))
        for _ in range(MAX_ROUNDS):
            if not self._decide_all():
                break
        usages, now = self.inventory.count(), self._client.server_now()
        for one in self.inventory.ranges.all():
            status = build_status(self.inventory, one, usages.get(one.name), now)
            self._suppose(FLOATING_IP_RANGES, replace(one, status=status))
        return self.inventory

    def _decide_all(self, *, assigns: bool = True) -> bool:
        """Apply the decisions on all floating IPs, the oldest first; return whether one changed something."""
        before = next(self._versions)
        for each in self.inventory.floating_ips_by_age():
            self._apply(each, assigns=assigns)
        return next(self._versions) > before + 1

    def _apply(self, floating_ip: FloatingIP, *, assigns: bool) -> None:
        decision, now = decide(self._view, floating_ip), self._client.server_now()
        if not assigns and (decision.new_ranges or decision.blockers):
            decision = decision.keep()
        elif decision.blockers and self._guests.is_pending(floating_ip.namespace):
            decision = replace(decision, is_final=False)
        for claim in (*decision.had, *decision.holds):
            known = self.inventory.reservation(claim.space, claim.address)
            if (wanted := build_held(known, claim, now)) != known:
                self._suppose(FLOATING_IP_RESERVATIONS, wanted)
        if not decision.is_final:
            return
        patch = build_spec_patch(floating_ip, decision)
        meta = replace(floating_ip.metadata, generation=floating_ip.metadata.generation + (patch is not None))
        spec = floating_ip.spec if patch is None else replace(floating_ip.spec, **patch["spec"])
        after = replace(floating_ip, metadata=meta, spec=spec)
        after = replace(after, status=self._statuses.build(after, decision))
        if after != floating_ip:
            self._suppose(FLOATING_IPS, after)
        kept = {claim.name for claim in decision.holds}
        for each in self.inventory.reservations_of(floating_ip.key):
            if each.is_held and each.name not in kept:
                seconds = self.inventory.quarantine_seconds(each.spec.range)
                self._suppose(FLOATING_IP_RESERVATIONS, build_quarantined(each, now, seconds))

    def _suppose(
        self, resource: Resource, changed: FloatingIP | FloatingIPRange | FloatingIPReservation
    ) -> None:
        version, meta = next(self._versions), changed.metadata
        if not meta.uid:
            uid, now = f"dry-run-{version}", self._client.server_now().replace(microsecond=0)
            meta = replace(meta, uid=uid, generation=1, creation_timestamp=now)
        self.inventory.suppose(resource, replace(changed, metadata=replace(meta, resource_version=version)))
