"""Reconcile one guest: once all its links are there, it gets a floating IP, unless it has one or wants none."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from fipop.api import names
from fipop.errors import ApiAlreadyExistsError, NamespaceTerminatingError
from fipop.jsons import Json
from fipop.kube.client import KubeClient
from fipop.kube.events import EventRecorder, EventType, ObjectReference
from fipop.kube.resources import FLOATING_IPS, PROVISIONING_CLUSTERS
from fipop.operator.addresses.range_selection import choose_for_guest
from fipop.rancher.discovery import NotAGuest, Waiting, retry_delay_seconds
from fipop.rancher.matching import Guest, RangeChoice
from fipop.runtime.workqueue import RetryAfter
from fipop.state.cache import ClusterCache
from fipop.state.guests import GuestDirectory

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class WaitingGuests:
    """The guests that wait for something else than their own objects to change.

    `unserved` are those that no range is meant for: a changed range may be. `missing` names for a guest the object that
    it waits for.
    """

    unserved: set[str] = field(default_factory=set)
    missing: dict[str, str] = field(default_factory=dict)

    def waiting_for(self, name: str) -> tuple[str, ...]:
        """Return the guests that wait for an object of that name, which is none of their own."""
        return tuple(sorted(guest_id for guest_id, missing in self.missing.items() if missing == name))

    def forget(self, guest_id: str) -> None:
        """Forget a guest that is gone."""
        self.unserved.discard(guest_id)
        self.missing.pop(guest_id, None)


class GuestReconciler:
    """Discovers guests and makes their floating IPs.

    `creates` tells whether guest clusters without a floating IP get one. `learned` hears of every guest that is new or
    changed, `lost` of those that are guests no more.
    """

    def __init__(
        self,
        *,
        client: KubeClient,
        cache: ClusterCache,
        guests: GuestDirectory,
        events: EventRecorder,
        now: Callable[[], datetime],
        creates: Callable[[], bool],
        learned: Callable[[Guest], None],
        lost: Callable[[Guest], None],
        waiting: WaitingGuests,
    ) -> None:
        self._client = client
        self._cache = cache
        self._guests = guests
        self._events = events
        self._now = now
        self._creates = creates
        self._learned = learned
        self._lost = lost
        self._waiting = waiting
        self._told: dict[str, Guest] = {}
        self._failures: dict[str, int] = {}

    async def reconcile(self, guest_id: str) -> RetryAfter | None:
        """Do one round; whatever of the guest's objects arrived last caused it."""
        # A look may have resolved the links before, and tells nobody.
        before = self._guests.known(guest_id)
        found = await self._guests.discover(guest_id)
        if found is None or isinstance(found, NotAGuest):
            self._waiting.forget(guest_id)
            self._failures.pop(guest_id, None)
            gone = self._told.pop(guest_id, before)
            if gone is not None:
                self._lost(gone)
            return None
        guest = found.guest if isinstance(found, Waiting) else found
        has_waited = self._waiting.missing.pop(guest_id, None) is not None and guest is found
        if guest is not None and (guest != self._told.get(guest_id) or has_waited):
            self._told[guest_id] = guest
            self._learned(guest)
        if isinstance(found, Waiting):
            return self._wait(guest_id, found)
        self._failures.pop(guest_id, None)
        await self._serve(found)
        return None

    def _wait(self, guest_id: str, waiting: Waiting) -> RetryAfter | None:
        logger.debug("Guest cluster is waiting", extra={"guest": guest_id, "reason": waiting.message})
        self._waiting.missing[guest_id] = waiting.name
        if not waiting.needs_retry:
            return None
        age = (self._now() - waiting.created).total_seconds()
        failures = self._failures.get(guest_id, 0)
        delay = retry_delay_seconds(age, failures)
        self._failures[guest_id] = failures + 1
        return RetryAfter(delay)

    async def _serve(self, guest: Guest) -> None:
        self._waiting.unserved.discard(guest.id)
        if not needs_floating_ip(self._cache, guest) or not self._creates():
            return
        choice = choose_for_guest(self._cache, guest)
        if not choice.matches:
            self._waiting.unserved.add(guest.id)
            if guest.on_harvester:
                self._tell_unserved(guest)
            return
        await self._create(guest, choice)

    async def _create(self, guest: Guest, choice: RangeChoice) -> None:
        """Make the floating IP; its range is written with its address, since until then another may serve it."""
        try:
            made = await self._client.create(FLOATING_IPS, build_floating_ip(guest))
        except (ApiAlreadyExistsError, NamespaceTerminatingError) as error:
            logger.debug("Did not create FloatingIP", extra={"guest": guest.id, "error": str(error)})
            return
        self._cache.observe(FLOATING_IPS, made)
        logger.info(
            "Created FloatingIP",
            extra={
                "guest": guest.id,
                "cluster": guest.cluster_name,
                "range": next(iter(choice.candidates), ""),
            },
        )

    def _tell_unserved(self, guest: Guest) -> None:
        harvester = guest.harvester_cluster_name or "(not in Rancher)"
        networks = ", ".join(guest.networks) or "(none)"
        self._events.record(
            reference_to_cluster(guest),
            EventType.WARNING,
            "NoMatchingRange",
            f'Guest cluster "{guest.cluster_name}" gets no FloatingIP: no FloatingIPRange serves Harvester cluster '
            f"{harvester}, networks {networks}. Create one.",
        )


def needs_floating_ip(cache: ClusterCache, guest: Guest) -> bool:
    """Return whether a guest cluster wants a floating IP and has none."""
    return guest.wants_floating_ip and not (guest.deleting or cache.floating_ips_of(guest.id))


def build_floating_ip(guest: Guest) -> Json:
    """Build the first floating IP of a guest cluster."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": FLOATING_IPS.kind,
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


def reference_to_cluster(guest: Guest) -> ObjectReference:
    """Return the provisioning Cluster of a guest as the object of an event."""
    return ObjectReference(
        api_version=PROVISIONING_CLUSTERS.api_version,
        kind=PROVISIONING_CLUSTERS.kind,
        name=guest.cluster_name,
        namespace=guest.cluster_namespace,
        uid=guest.cluster_uid,
    )
