"""Which guest clusters there are: the links between Rancher's objects, resolved once and kept.

Once all links of one are there, it gets a floating IP, unless it has one or wants none.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from fipop.addresses.guests import GuestRecords
from fipop.addresses.inventory import Inventory, is_respecified
from fipop.addresses.range_selection import choose_for_guest, describe_misfits
from fipop.addresses.reconciler import request_users
from fipop.addresses.reports import News
from fipop.api import names
from fipop.api.conditions import ConditionType, find_condition
from fipop.api.guest_problems import GuestProblem
from fipop.api.objects import FloatingIP
from fipop.errors import ApiError, ConflictError, NamespaceTerminatingError
from fipop.guests.record import GuestRecord
from fipop.interfaces import loop_time
from fipop.jsons import Json
from fipop.kube.client import KubeClient
from fipop.kube.events import EventRecorder, EventType, reference_to
from fipop.kube.resources import (
    FLOATING_IP_RANGES,
    FLOATING_IPS,
    MANAGEMENT_CLUSTERS,
    NAMESPACES,
    PROVISIONING_CLUSTERS,
    Resource,
)
from fipop.metrics.counters import forget_guest
from fipop.rancher.discovery import LINKS_BACKOFF, discover_guest
from fipop.rancher.link_reader import KEPT_SECONDS, LinkReader
from fipop.rancher.links import Discovery, Links, NotAGuest, Waiting, resolve_cached
from fipop.rancher.matching import Guest
from fipop.rancher.objects import ManagementCluster, ProvisioningCluster
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
from fipop.texts import sentence

logger = logging.getLogger(__name__)

REFUSED = frozenset({"InvalidSpec", "RangeNotFound", "RangeRestricted", "AddressOutOfRange", "FamilyMissing"})
"""Reasons of floating IPs that do not wait for anybody else."""
REFUSED_SECONDS = 600.0
"""How long all floating IPs of a guest cluster are refused until it gets the automatic one beside them."""
FIRST_VISIT_SECONDS = 0.5
"""When a guest cluster is visited whose first floating IP has no address yet."""
RESOLVE_ATTEMPTS = 3
"""Links that change meanwhile are resolved up to 3 times; each attempt is two requests at most."""
UNKNOWN_AFTER = timedelta(seconds=60)
"""An imported cluster without a provider is of unknown kind after 60 s of Ready: Rancher detects others at once."""
LASTING_SECONDS = 5.0
"""What is missing for a moment beside a new Cluster is no fault."""
LINKS_SECONDS = 60.0
"""How often the links of a guest cluster on Harvester are read again that waits for its first floating IP."""
UNRESOLVED = "GuestUnresolved"
CONTRADICTION = "CredentialMismatch"


@dataclass(slots=True)
class GuestDirectory:
    """Finds guest clusters by the links between Rancher's objects, and keeps what it found in their records."""

    inventory: Inventory
    records: GuestRecords[GuestRecord]
    client: KubeClient
    _reader: LinkReader = field(init=False)

    def __post_init__(self) -> None:
        self._reader = LinkReader(self.client)

    def record(self, guest_id: str) -> GuestRecord:
        """Return the record of a guest cluster; of one that does not exist, a new one that nothing keeps."""
        return self.records.of(guest_id) if self.inventory.exists(guest_id) else GuestRecord()

    def is_current(self, guest_id: str, record: GuestRecord) -> bool:
        """Return whether a guest cluster was not forgotten since work on it began with this record."""
        return self.records.get(guest_id) is record

    def has_nothing(self, guest_id: str) -> bool:
        """Return whether a guest cluster has no addresses, without a visit: it is gone, Harvester, or not made yet."""
        management = self.inventory.find_management(guest_id)
        if not self.inventory.exists(guest_id) or isinstance(self._resolve_cached(guest_id), NotAGuest):
            return True
        return management is not None and not (management.provisioned or management.connected)

    def needs_reading(self, guest_id: str, record: GuestRecord) -> bool:
        """Return whether what a guest cluster stands on can have changed without an event since it was read."""
        guest = self.inventory.known(guest_id)
        is_on_harvester = guest is not None and guest.on_harvester
        return is_on_harvester and loop_time() - record.resolved_at >= KEPT_SECONDS

    def is_readable(self, guest_id: str) -> bool:
        """Return whether Rancher has a way to a guest cluster."""
        management = self.inventory.find_management(guest_id)
        is_open = management is not None and management.connected and management.provisioned
        return is_open and bool(self.inventory.guest_clusters(guest_id)) and not self.has_nothing(guest_id)

    def drop(self, guest_id: str) -> News:
        """Forget a guest cluster. If it comes back under this id, it counts as new.

        What it reported stays as long as Rancher has anything of it: it may still run, with its addresses.
        """
        guest = self.inventory.known(guest_id)
        if guest is not None:
            forget_guest(guest.cluster_name)
        return self.inventory.forget_guest(guest_id, may_run=not self.has_nothing(guest_id))

    async def discover(self, guest_id: str) -> tuple[Discovery | None, News]:
        """Resolve the links of a guest again; None where no provisioning Cluster names it (any more).

        The result is noted only if nothing changed meanwhile, also by another discovery: a slow answer must not undo a
        younger one. After the last attempt, the event of the last change causes another discovery.
        """
        found: Discovery | None = None
        for _ in range(RESOLVE_ATTEMPTS):
            links = self._links(guest_id)
            if links is None:
                return None, self.drop(guest_id)
            found = await discover_guest(self._reader, links)
            if self._links(guest_id) == links:
                return found, self._note(guest_id, found)
        return found, {}

    def _resolve_cached(self, guest_id: str) -> Discovery | None:
        """Return what is known of a guest cluster without a request; None if Rancher does not have it."""
        links = self._links(guest_id)
        return resolve_cached(links) if links is not None else None

    def _links(self, guest_id: str) -> Links | None:
        links = self.inventory.find_links(guest_id)
        return replace(links, is_unknown_kind=self._is_unknown_kind(links)) if links is not None else None

    def _is_unknown_kind(self, links: Links) -> bool:
        """Whether an imported cluster was served as one of no known kind, or could be by now."""
        cluster, management = links.cluster, links.management
        if management is None or management.provider or not cluster.is_imported:
            return False
        if self.inventory.was_tried(cluster.cluster_name) or self.inventory.is_resolved(cluster.cluster_name):
            return True
        ready = management.ready_since
        return ready is not None and self.client.server_now() - ready >= UNKNOWN_AFTER

    def _note(self, guest_id: str, found: Discovery) -> News:
        if isinstance(found, NotAGuest):
            return self.drop(guest_id)
        known = self.inventory.known(guest_id)
        guest, is_resolved = known, self.inventory.is_resolved(guest_id)
        if isinstance(found, Guest):
            guest, is_resolved = found, True
        elif found.guest is not None:
            guest, is_resolved = found.guest, found.is_resolved
        elif not is_resolved:
            guest = None
        if known is not None and (
            guest is None or known.harvester_cluster_name != guest.harvester_cluster_name
        ):
            # Else each name of its Harvester cluster leaves its events behind.
            forget_guest(known.cluster_name)
        problem = "" if isinstance(found, Guest) else sentence(found.message)
        return self.inventory.note_guest(guest_id, guest, is_resolved=is_resolved, problem=problem)

    def list_problems(self) -> tuple[GuestProblem, ...]:
        """Return what is wrong with the links of guest clusters; a cause that several have once, with all of them."""
        found: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for guest_id, record in self.records.items():
            guest = record.guest
            if guest is not None and guest.deleting:
                continue
            if record.problem and not record.is_resolved and record.unresolved_since is not None:
                found[UNRESOLVED, record.problem].append(guest_id)
            elif guest is not None and guest.warning:
                found[CONTRADICTION, guest.warning].append(guest_id)
        return tuple(
            GuestProblem(reason=reason, message=message, guests=tuple(sorted(guest_ids)))
            for (reason, message), guest_ids in sorted(found.items())
        )

    def is_pending(self, guest_id: str) -> bool:
        """Return whether a guest cluster exists of which nothing was resolved yet."""
        found = self._resolve_cached(guest_id) if self.inventory.known(guest_id) is None else None
        return isinstance(found, Guest)


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
        inventory = self.guests.inventory
        if resource == NAMESPACES and (inventory.guest_clusters(name) or inventory.floating_ips_of(name)):
            return (name,)
        return ()

    def _find_on_harvester(self, change: Change[ManagementCluster]) -> tuple[str, ...]:
        """Return the guests on any Harvester cluster, if one is new, or has another name: they may be on that one."""
        old, new = change.old, change.new
        is_new = new is not None and new.is_harvester and (old is None or not old.is_harvester)
        may_be_one = new is not None and new.may_be_harvester
        is_renamed = may_be_one and old is not None and old.display_name != change.latest.display_name
        if not (is_new or is_renamed):
            return ()
        return tuple(each.id for each in self.guests.inventory.known_guests() if each.on_harvester)

    def watches(self, event: Event) -> Iterator[Request]:
        """Yield the guests that an event may change, or that may get a floating IP now."""
        change, guest_ids = event.change, list(event.guest_ids)
        if event.resource == FLOATING_IP_RANGES and is_respecified(change.old, change.new):
            known = self.guests.inventory.known_guests()
            guest_ids += [each.id for each in known if self._seconds_to_replacement(each) is not None]
        elif event.resource == FLOATING_IPS and (change.new is None or _refused_since(change.new)):
            guest_ids.append(change.latest.namespace)
        yield from map(request_guest, guest_ids)

    async def reconcile(self, guest_id: str) -> RetryAfter | None:
        """Resolve the links of a guest cluster, whichever of its objects changed, and create its floating IP."""
        try:
            found, news = await self.guests.discover(guest_id)
        except ApiError as error:
            self._report_failure(guest_id, error)
            raise
        self.guests.record(guest_id).resolved_at = loop_time()
        self.queues.add(*request_users(self.guests.inventory, news))
        if found is None or isinstance(found, NotAGuest):
            return None
        record = self.guests.record(guest_id)
        guest = found.guest if isinstance(found, Waiting) else found
        before, record.announced = record.announced, found
        is_news = found != before
        is_made = False
        if guest is not None and (found is guest or self.guests.inventory.is_resolved(guest_id)):
            is_made = await self._serve(guest, is_retry=found is not guest and bool(record.failed_lookups))
        if is_news and guest is not None:
            floating_ips = self.guests.inventory.floating_ips_of(guest_id)
            visit = request_visit(guest_id)
            # Its first address has it visited, normally before that.
            visit = visit._replace(delay_seconds=FIRST_VISIT_SECONDS) if is_made else visit
            self.queues.add(*map(request_floating_ip, floating_ips), visit)
            if _without_display_name(found) != _without_display_name(before):
                self.queues.add(request_waiting())
        if isinstance(found, Waiting):
            return self._wait(guest_id, record, found)
        record.failed_lookups, record.unresolved_since = 0, None
        if found.warning and is_news:
            self._warn(found.cluster, CONTRADICTION, found.warning)
        seconds = self._seconds_to_replacement(found)
        if seconds == 0 and found.on_harvester and not is_made:
            return RetryAfter(LINKS_SECONDS)  # what it stands on can be corrected in place, without an event
        return RetryAfter(seconds) if seconds is not None and seconds > 0 else None

    def _report_failure(self, guest_id: str, error: ApiError) -> None:
        """Report that the API server fails to serve a link, if that lasts: the queue repeats it."""
        record, clusters = self.guests.record(guest_id), self.guests.inventory.guest_clusters(guest_id)
        since = record.unresolved_since = record.unresolved_since or loop_time()
        if not record.is_resolved and loop_time() - since >= LASTING_SECONDS:
            record.problem = sentence(str(error))
            for each in clusters:
                self._warn(each, UNRESOLVED, f"No range is chosen for the guest cluster. {record.problem}")

    def _wait(self, guest_id: str, record: GuestRecord, waiting: Waiting) -> RetryAfter | None:
        logger.debug("Guest cluster is waiting", extra={"guest": guest_id, "reason": waiting.message})
        if waiting.guest is not None and not waiting.is_resolved:
            since = record.unresolved_since = record.unresolved_since or loop_time()
            if loop_time() - since >= LASTING_SECONDS or not waiting.needs_retry:
                message = f"No range is chosen for the guest cluster. {record.problem}"
                self._warn(waiting.guest.cluster, UNRESOLVED, message)
        if not waiting.needs_retry:
            return None
        record.failed_lookups += 1
        return RetryAfter(LINKS_BACKOFF.step_seconds(record.failed_lookups))

    async def _serve(self, guest: Guest, *, is_retry: bool) -> bool:
        """Create the floating IP of a guest cluster that should get one; return whether that was done."""
        creates = self.configuration.settings.may_create_floating_ips
        seconds = self._seconds_to_replacement(guest)
        if not creates or seconds is None or seconds > 0:
            return False
        if choose_for_guest(self.guests.inventory, guest):
            await self._create(guest)
            return True
        if (guest.on_harvester or guest.cluster.opted_in) and not is_retry:
            message = describe_misfits(self.guests.inventory, guest)
            self._warn(guest.cluster, "NoMatchingRange", f"No FloatingIP is created. {message}")
        return False

    def _warn(self, cluster: ProvisioningCluster, reason: str, message: str) -> None:
        about = reference_to(PROVISIONING_CLUSTERS, cluster.metadata)
        self.events.record(about, EventType.WARNING, reason, message)

    def _seconds_to_replacement(self, guest: Guest) -> float | None:
        """Return in how many seconds a guest cluster gets a floating IP; None if it has one, or wants none."""
        inventory, now = self.guests.inventory, self.guests.client.server_now()
        if needs_floating_ip(inventory, guest):
            return 0.0
        others = inventory.floating_ips_of(guest.id)
        refused = [since for each in others if (since := _refused_since(each)) is not None]
        name = f"{guest.cluster_name}{names.FLOATING_IP_SUFFIX}"
        is_there = inventory.floating_ips.get(guest.id, name) is not None
        if len(refused) < len(others) or is_there or guest.deleting or not guest.cluster.wants_floating_ip:
            return None
        return REFUSED_SECONDS - (now - max(refused)).total_seconds()

    async def _create(self, guest: Guest) -> None:
        """Make the floating IP; its range is written with its address, since until then another may serve it."""
        try:
            made = await self.guests.client.create(FLOATING_IPS, build_floating_ip(guest))
        except (ConflictError, NamespaceTerminatingError) as error:
            logger.debug("Did not create FloatingIP", extra={"guest": guest.id, "error": str(error)})
            return
        self.guests.inventory.observe(FLOATING_IPS, made)
        logger.info("Created FloatingIP", extra={"guest": guest.id, "cluster": guest.cluster_name})


def _without_display_name(found: Discovery | None) -> Discovery | None:
    """Return what was found without what people call the guest cluster, which frees no address."""
    if isinstance(found, Waiting):
        return replace(found, guest=_rename(found.guest)) if found.guest is not None else found
    return _rename(found) if isinstance(found, Guest) else found


def _rename(guest: Guest) -> Guest:
    return replace(guest, display_name="", cluster=replace(guest.cluster, display_name=""))


def _refused_since(floating_ip: FloatingIP) -> datetime | None:
    """Return since when a floating IP has no address and gets none until it changes; None otherwise."""
    found = find_condition(floating_ip.status.conditions, ConditionType.ALLOCATED)
    is_refused = found is not None and found.reason in REFUSED and not floating_ip.status.addresses
    return found.last_transition_time if found is not None and is_refused else None


def needs_floating_ip(inventory: Inventory, guest: Guest) -> bool:
    """Return whether a guest cluster wants a floating IP and has none."""
    return guest.cluster.wants_floating_ip and not (guest.deleting or inventory.floating_ips_of(guest.id))


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
