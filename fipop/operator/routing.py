"""From a change of the world to the work that it causes; what is to be done, the reconcilers find out themselves."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from fipop.api.models import FloatingIP, FloatingIPRange, Reservation
from fipop.ipam.addresses import Address
from fipop.kube.resources import (
    FLOATING_IP_RANGES,
    FLOATING_IP_RESERVATIONS,
    FLOATING_IPS,
    MANAGEMENT_CLUSTERS,
    NAMESPACES,
    PROVISIONING_CLUSTERS,
    Resource,
)
from fipop.operator.addresses.values import is_settled, read_addresses
from fipop.operator.queues import Key, Kind, WorkQueues
from fipop.rancher.objects import ManagementCluster, NamespaceInfo, ProvisioningCluster
from fipop.runtime.store import Change
from fipop.runtime.workqueue import Priority
from fipop.state.cache import BY_OWNER_NAMESPACE, ClusterCache
from fipop.state.guests import GuestDirectory

FEW_WAITING = 8
STAND_BACK_SECONDS = 0.1
LONGEST_STAND_BACK_SECONDS = 10.0
COUNT_SECONDS = 0.2
"""So long changes of what a range holds are gathered: its status counts them together."""
FAILED_CLAIM_SECONDS = 5.0
"""Until others try for an address whose claim came to nothing: what refused that one may refuse them all."""


@dataclass(slots=True)
class Router:
    """Puts keys into the queues.

    `waiting` are the floating IPs that lack an address.
    """

    cache: ClusterCache
    queues: WorkQueues
    guests: GuestDirectory
    waiting: dict[tuple[str, str], FloatingIP] = field(default_factory=dict)

    def route(self, resource: Resource, change: Change[Any]) -> None:
        """Enqueue what a change may concern, however it was learned."""
        routes: dict[Resource, Callable[[Change[Any]], None]] = {
            FLOATING_IP_RANGES: self._range_changed,
            FLOATING_IPS: self._floating_ip_changed,
            FLOATING_IP_RESERVATIONS: self._reservation_changed,
            PROVISIONING_CLUSTERS: self._cluster_changed,
            MANAGEMENT_CLUSTERS: self._management_changed,
            NAMESPACES: self._namespace_changed,
        }
        routes[resource](change)

    def note_decided_on(self, key: tuple[str, str]) -> None:
        """Have the round over a floating IP that is under way answer for all that is known by now."""
        self.queues.objects.drop_rerun(Key(Kind.FLOATING_IP, *key))

    def note_waiting(self, floating_ip: FloatingIP, is_waiting: bool) -> None:
        """Remember who waits for an address to become free; one that it names may be free, or be offered to it."""
        before = self.waiting.pop(floating_ip.meta.key, None)
        if not is_waiting:
            return
        self.waiting[floating_ip.meta.key] = floating_ip
        if before is None or before.ipaddress != floating_ip.ipaddress:
            for address in read_addresses(floating_ip.ipaddress.split(",")):
                for reservation in self.cache.reservations_at(address):
                    if not reservation.is_held:
                        self.add_reservation(reservation)

    def add_floating_ip(self, key: tuple[str, str]) -> None:
        """Enqueue a floating IP; one that has all that it asks for does not come before those that have not."""
        found = self.cache.floating_ips.get(*key)
        is_served = found is not None and is_settled(found, self.cache.reservations_of(key))
        self.queues.objects.add(
            Key(Kind.FLOATING_IP, *key), priority=Priority.BACKGROUND if is_served else Priority.NORMAL
        )

    async def stand_back(self) -> None:
        """Wait while more floating IPs wait for an address than are worked on: those come first, for a while."""
        objects = self.queues.objects
        until = asyncio.get_running_loop().time() + LONGEST_STAND_BACK_SECONDS
        while objects.waiting(Priority.NORMAL) > FEW_WAITING and asyncio.get_running_loop().time() < until:  # noqa: ASYNC110 - numbers have no event
            await asyncio.sleep(STAND_BACK_SECONDS)

    def add_guest_floating_ips(self, guest_id: str) -> None:
        """Enqueue all floating IPs of a guest."""
        for floating_ip in self.cache.floating_ips_of(guest_id):
            self.add_floating_ip(floating_ip.meta.key)

    def add_reservation(self, reservation: Reservation) -> None:
        """Enqueue a reservation: it may be ownerless, or its quarantine may end."""
        self.queues.objects.add(Key(Kind.RESERVATION, "", reservation.name), priority=Priority.BACKGROUND)

    def add_check(self, guest_id: str) -> None:
        """Enqueue a check of a guest: the quarantine of some of its addresses is over."""
        self.queues.checks.add(Key(Kind.QUARANTINE, "", guest_id))

    def add_pass(self, guest_id: str) -> None:
        """Want a pass over a guest before all that are only due again: something happened to it."""
        self.queues.passes.add(guest_id, priority=Priority.URGENT)

    def add_routine_pass(self, guest_id: str) -> None:
        """Want a pass over a guest when its turn comes, one of many."""
        self.queues.passes.add(guest_id)

    def add_pass_later(self, guest_id: str, seconds: float) -> None:
        """Want a pass over a guest in a while, one of many."""
        self.queues.passes.add(guest_id, delay_seconds=seconds)

    def add_install(self, guest_id: str, priority: Priority) -> None:
        """Want a pass over a guest that may run helm, when its turn comes."""
        self.queues.installs.add(guest_id, priority=priority)

    def wake_waiting(self) -> None:
        """Enqueue who waits, the oldest first: an address became free, or the gate opened."""
        self._wake(self.waiting.values())

    def address_freed(self, space: str, address: Address, *, claim_failed: bool) -> None:
        """Enqueue who waits for an address that is free though no reservation went, and the ranges that counted it.

        After a failed claim (`claim_failed`) they wait: where all claims fail, waiting floating IPs would wake each
        other in a circle. The one whose claim failed is tried again by its own back-off.
        """
        for each in self.cache.ranges.all():
            if each.address_space == space:
                self._add_range(each.name)
        concerned = self._waiting_for(address, "")
        self._wake(
            (each for each in concerned if not self.cache.allocations.is_trying_again(each.meta.key)),
            delay_seconds=FAILED_CLAIM_SECONDS if claim_failed else 0.0,
        )

    def waiting_by_name(self, address: Address) -> list[FloatingIP]:
        """Return who waits and names an address in its spec, the oldest first."""
        found = (
            each for each in self.waiting.values() if address in read_addresses(each.ipaddress.split(","))
        )
        return sorted(found, key=lambda each: (each.meta.created, each.meta.key))

    def _wake(self, floating_ips: Iterable[FloatingIP], *, delay_seconds: float = 0.0) -> None:
        for each in sorted(floating_ips, key=lambda each: (each.meta.created, each.meta.key)):
            self.queues.objects.add(Key(Kind.FLOATING_IP, *each.meta.key), delay_seconds=delay_seconds)

    def _waiting_for(self, address: Address, holder: str) -> list[FloatingIP]:
        """Return who waits and names an address, or might get it: also from a range that is not known yet.

        And who waits in the namespace of its former holder, which may hold another address instead (maxPerGuest).
        """
        may_get = functools.cache(
            lambda range_name: self.cache.allocations.ranges.may_get(range_name, address)
        )
        return [
            each
            for each in self.waiting.values()
            if each.namespace == holder
            or may_get(each.range or each.status.range or "")
            or address in read_addresses([*each.ipaddress.split(","), *each.status.addresses])
        ]

    def _range_changed(self, change: Change[FloatingIPRange]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and _only_status_changed(old, new):
            return
        # Overlaps concern every range of the space, also the one that it left.
        for each in self.cache.ranges.all():
            if each.address_space in {side.address_space for side in (old, new) if side is not None}:
                self.queues.objects.add(Key(Kind.RANGE, "", each.name))
        for floating_ip in self.cache.floating_ips_of_range(change.latest.name):
            self.add_floating_ip(floating_ip.meta.key)
        self.wake_waiting()
        for guest_id in self.guests.unserved():
            self.queues.objects.add(Key(Kind.GUEST, "", guest_id))

    def _floating_ip_changed(self, change: Change[FloatingIP]) -> None:
        floating_ip = change.latest
        self.add_floating_ip(floating_ip.meta.key)
        for side in (change.old, change.new):
            if side is not None and side.status.range is not None:
                self._add_range(side.status.range)
        if change.new is None:
            self.waiting.pop(floating_ip.meta.key, None)
            self.queues.objects.add(Key(Kind.GUEST, "", floating_ip.namespace))
            self.add_guest_floating_ips(floating_ip.namespace)
            self.add_pass(floating_ip.namespace)

    def _reservation_changed(self, change: Change[Reservation]) -> None:
        for side in (change.old, change.new):
            if side is not None:
                self._add_range(side.range)
        self.add_floating_ip(change.latest.owner.key)
        old, new = change.old, change.new
        if old is not None and (new is None or (new.is_held, new.range) != (old.is_held, old.range)):
            # Free now, or counted by another range; or in quarantine, and who waits for it learns until when.
            for address in read_addresses([old.address]):
                self._wake(self._waiting_for(address, old.owner.namespace))
            left = self.cache.ranges.get("", old.range)
            if left is not None and left.address_space != old.space:
                self.wake_waiting()  # it may have been the last that kept the range shut
        if new is None:
            return
        has_owner = new.is_held and self.cache.floating_ips.get(*new.owner.key) is not None
        if not has_owner:
            self.add_reservation(new)

    def _cluster_changed(self, change: Change[ProvisioningCluster]) -> None:
        ids = {side.cluster_name for side in (change.old, change.new) if side is not None}
        for guest_id in sorted(ids - {""}):
            self._guest_changed(guest_id)

    def _management_changed(self, change: Change[ManagementCluster]) -> None:
        self._guest_changed(change.latest.name)
        if any(side is not None and side.is_harvester for side in (change.old, change.new)):
            for each in self.cache.ranges.all():
                self._add_range(each.name)  # whether its Harvester cluster is in Rancher
        for guest_id in self.guests.waiting_for(change.latest.name):
            self._guest_changed(guest_id)

    def _namespace_changed(self, change: Change[NamespaceInfo]) -> None:
        if self.cache.guest_clusters(change.latest.name):
            self._guest_changed(change.latest.name)

    def _guest_changed(self, guest_id: str) -> None:
        self.queues.objects.add(Key(Kind.GUEST, "", guest_id))
        self.add_guest_floating_ips(guest_id)
        # A guest that is gone carries nothing, one that is back can be asked: quarantines may end.
        for reservation in self.cache.reservations.by_index(BY_OWNER_NAMESPACE, guest_id):
            if not reservation.is_held:
                self.add_reservation(reservation)

    def _add_range(self, name: str) -> None:
        if self.cache.ranges.get("", name) is not None:
            key = Key(Kind.RANGE, "", name)
            self.queues.objects.add(key, delay_seconds=COUNT_SECONDS, priority=Priority.BACKGROUND)


def gives_out_more(change: Change[FloatingIPRange]) -> bool:
    """Whether a range may give out, from now on, what it did not give out before."""
    old, new = change.old, change.new
    return new is not None and (old is None or not _only_status_changed(old, new))


def _only_status_changed(old: FloatingIPRange, new: FloatingIPRange) -> bool:
    return (
        old.meta.generation == new.meta.generation
        and old.harvester_cluster == new.harvester_cluster
        and old.harvester_network == new.harvester_network
        and old.meta.deleting == new.meta.deleting
        and old.uid == new.uid
    )
