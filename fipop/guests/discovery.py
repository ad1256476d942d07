"""Reconcile one guest: once all its links are there, it gets a floating IP, unless it has one or wants none."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fipop.addresses.inventory import Inventory, is_respecified
from fipop.addresses.range_selection import choose_for_guest, describe_misfits
from fipop.addresses.reconciler import request_users
from fipop.api import names
from fipop.api.conditions import ConditionType, find_condition
from fipop.api.objects import FloatingIP
from fipop.errors import ConflictError, ForbiddenError
from fipop.guests.directory import GuestDirectory, GuestState
from fipop.jsons import Json
from fipop.kube.client import NAMESPACE_TERMINATING
from fipop.kube.events import EventRecorder, EventType, reference_to
from fipop.kube.resources import (
    FLOATING_IP_RANGES,
    FLOATING_IPS,
    MANAGEMENT_CLUSTERS,
    NAMESPACES,
    PROVISIONING_CLUSTERS,
    Resource,
)
from fipop.rancher.discovery import retry_delay_seconds
from fipop.rancher.links import NotAGuest, Waiting
from fipop.rancher.matching import Guest
from fipop.rancher.objects import ManagementCluster
from fipop.runtime.configuration import Configuration
from fipop.runtime.queues import (
    Event,
    Request,
    WorkQueues,
    request_floating_ip,
    request_guest,
    request_visit,
    request_waiting,
)
from fipop.runtime.store import Change
from fipop.runtime.workqueue import RetryAfter

logger = logging.getLogger(__name__)

REFUSED = frozenset({"InvalidSpec", "RangeNotFound", "RangeRestricted", "AddressOutOfRange", "FamilyMissing"})
"""Reasons of floating IPs that do not wait for anybody else."""
REFUSED_SECONDS = 600.0
"""How long all floating IPs of a guest cluster are refused until it gets the automatic one beside them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestReconciler:
    """Discovers guest clusters and creates their floating IPs."""

    guests: GuestDirectory
    events: EventRecorder
    configuration: Configuration
    queues: WorkQueues

    def find_changed(self, resource: Resource, change: Change[Any]) -> tuple[str, ...]:
        """Return the guests that a change in Rancher may change: its own, and those on a Harvester cluster."""
        if resource == PROVISIONING_CLUSTERS:
            sides = (change.old, change.new)
            return tuple(sorted({side.cluster_name for side in sides if side is not None} - {""}))
        name = change.latest.name
        if resource == MANAGEMENT_CLUSTERS:
            return (name, *self._find_on_harvester(change))
        cache = self.guests.inventory
        if resource == NAMESPACES and (cache.guest_clusters(name) or cache.floating_ips_of(name)):
            return (name,)
        return ()

    def _find_on_harvester(self, change: Change[ManagementCluster]) -> tuple[str, ...]:
        """Return the guests on any Harvester cluster, if one is new, or has another name: they may be on that one."""
        old, new = change.old, change.new
        is_new = new is not None and new.is_harvester and (old is None or not old.is_harvester)
        # Its kind may not be known (yet).
        is_renamed = new is not None and old is not None and old.display_name != new.display_name
        if not (is_new or is_renamed):
            return ()
        return tuple(each.id for each in self.guests.all() if each.on_harvester)

    def watches(self, event: Event) -> Iterator[Request]:
        """Yield the guests that an event may change, or that may get a floating IP now."""
        change, guest_ids = event.change, list(event.guest_ids)
        if event.resource == FLOATING_IP_RANGES and is_respecified(change.old, change.new):
            known = self.guests.all()
            guest_ids += [each.id for each in known if self._seconds_to_replacement(each) is not None]
        elif event.resource == FLOATING_IPS and (change.new is None or _refused_since(change.new)):
            guest_ids.append(change.latest.namespace)
        yield from map(request_guest, guest_ids)

    async def reconcile(self, guest_id: str) -> RetryAfter | None:
        """Resolve the links of a guest cluster, whichever of its objects changed, and create its floating IP."""
        found, news = await self.guests.discover(guest_id)
        self.queues.add(*request_users(self.guests.inventory, news))
        if found is None or isinstance(found, NotAGuest):
            return None
        state = self.guests.state(guest_id)
        guest = found.guest if isinstance(found, Waiting) else found
        is_news, state.announced = found != state.announced, found
        if is_news and guest is not None:
            floating_ips = self.guests.inventory.floating_ips_of(guest_id)
            self.queues.add(
                *map(request_floating_ip, floating_ips), request_visit(guest_id), request_waiting()
            )
        if guest is not None and (found is guest or self.guests.inventory.is_resolved(guest_id)):
            await self._serve(guest, is_retry=found is not guest and bool(state.failed_lookups))
        if isinstance(found, Waiting):
            return self._wait(guest_id, state, found)
        state.failed_lookups = 0
        seconds = self._seconds_to_replacement(found)
        return RetryAfter(seconds) if seconds is not None and seconds > 0 else None

    def _wait(self, guest_id: str, state: GuestState, waiting: Waiting) -> RetryAfter | None:
        logger.debug("Guest cluster is waiting", extra={"guest": guest_id, "reason": waiting.message})
        if not waiting.needs_retry:
            return None
        age = (self.guests.client.server_now() - waiting.created).total_seconds()
        delay = retry_delay_seconds(age, state.failed_lookups)
        state.failed_lookups += 1
        return RetryAfter(delay)

    async def _serve(self, guest: Guest, *, is_retry: bool) -> None:
        creates = self.configuration.settings.may_create_floating_ips
        seconds = self._seconds_to_replacement(guest)
        if not creates or seconds is None or seconds > 0:
            return
        if choose_for_guest(self.guests.inventory, guest):
            await self._create(guest)
            return
        if (guest.on_harvester or guest.cluster.opted_in) and not is_retry:
            message = describe_misfits(self.guests.inventory, guest)
            self.events.record(
                reference_to(PROVISIONING_CLUSTERS, guest.cluster.metadata),
                EventType.WARNING,
                "NoMatchingRange",
                f"No FloatingIP is created. {message}",
            )

    def _seconds_to_replacement(self, guest: Guest) -> float | None:
        """Return in how many seconds a guest cluster gets a floating IP; None if it has one, or wants none."""
        cache, now = self.guests.inventory, self.guests.client.server_now()
        if needs_floating_ip(cache, guest):
            return 0.0
        others = cache.floating_ips_of(guest.id)
        refused = [since for each in others if (since := _refused_since(each)) is not None]
        is_there = cache.floating_ips.get(guest.id, guest.cluster_name + names.FLOATING_IP_SUFFIX) is not None
        if len(refused) < len(others) or is_there or guest.deleting or not guest.cluster.wants_floating_ip:
            return None
        return REFUSED_SECONDS - (now - max(refused)).total_seconds()

    async def _create(self, guest: Guest) -> None:
        """Make the floating IP; its range is written with its address, since until then another may serve it."""
        try:
            made = await self.guests.client.create(FLOATING_IPS, build_floating_ip(guest))
        except (ConflictError, ForbiddenError) as error:
            if isinstance(error, ForbiddenError) and error.reason != NAMESPACE_TERMINATING:
                raise
            logger.debug("Did not create FloatingIP", extra={"guest": guest.id, "error": str(error)})
            return
        self.guests.inventory.observe(FLOATING_IPS, made)
        logger.info("Created FloatingIP", extra={"guest": guest.id, "cluster": guest.cluster_name})


def _refused_since(floating_ip: FloatingIP) -> datetime | None:
    """Return since when a floating IP has no address and gets none until it changes; None otherwise."""
    found = find_condition(floating_ip.status.conditions, ConditionType.ALLOCATED)
    is_refused = found is not None and found.reason in REFUSED and not floating_ip.status.addresses
    return found.last_transition_time if found is not None and is_refused else None


def needs_floating_ip(cache: Inventory, guest: Guest) -> bool:
    """Return whether a guest cluster wants a floating IP and has none."""
    return guest.cluster.wants_floating_ip and not (guest.deleting or cache.floating_ips_of(guest.id))


def build_floating_ip(guest: Guest) -> Json:
    """Build the first floating IP of a guest cluster."""
    return {
        "metadata": {
            "name": f"{guest.cluster_name}{names.FLOATING_IP_SUFFIX}",
            "namespace": guest.id,
            "annotations": {
                names.ANNOTATION_CLUSTER: guest.cluster_name,
                names.ANNOTATION_UPDATE_CONFIG_MAP: "true",
            },
        },
        "spec": {},
    }
