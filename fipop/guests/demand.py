"""Floating IPs for the Services of guest clusters whose range has `perGuest`: what the plan says is carried out.

A visit hands over the Services that it read, and so does the list of Services alone between two visits. Nothing is
written to a guest cluster here. A floating IP that is made or gone has its guest cluster visited, as any other does.
One that a Service took just before it was deleted comes back: the report keeps its address in quarantine, and the next
list has a floating IP made that names it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from math import inf
from random import Random

from fipop.addresses.claims import address_of, read_addresses
from fipop.addresses.decision import bind_guest
from fipop.addresses.gate import GATE_RETRY_SECONDS, Gate
from fipop.addresses.inventory import is_respecified
from fipop.addresses.stores import BY_RANGE
from fipop.api import names
from fipop.api.codec import write, write_patch
from fipop.api.conditions import ConditionContent, ConditionType, Verdict, merge_conditions
from fipop.api.objects import (
    EPOCH,
    FloatingIP,
    FloatingIPRange,
    FloatingIPSpec,
    FloatingIPStatus,
    PerGuest,
    ServicesStatus,
    UnusedStatus,
    WaitingService,
    WaitingStatus,
    digest_spec,
    read_metadata,
)
from fipop.api.service import Service
from fipop.errors import WRITE_REFUSED, ApiError, ConflictError, FipopError
from fipop.guests.access import GuestClients, read_access
from fipop.guests.desired import is_paused
from fipop.guests.discovery import GuestDirectory
from fipop.guests.observed import read_services
from fipop.guests.record import GuestRecord
from fipop.guests.services import (
    MET,
    DemandInput,
    DemandPlan,
    NewFloatingIP,
    ServiceUse,
    judge_demand,
    plan_floating_ips,
    read_classes,
    read_uses,
)
from fipop.interfaces import loop_time
from fipop.ipam.addresses import Address, FamilyPolicy, format_address
from fipop.jsons import Json
from fipop.kube.events import EventRecorder, EventType, Named, reference_to
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IPS
from fipop.rancher.matching import Guest
from fipop.runtime.configuration import Configuration
from fipop.runtime.queues import Event, Key, Request, WorkQueues, request_floating_ip
from fipop.runtime.workqueue import Priority, RetryAfter

logger = logging.getLogger(__name__)

KIND = "services"
"""The kind of keys: the Services of a guest cluster, by its id."""
REPORT_SECONDS = 60.0
"""The time between two changes of what floating IPs say of Services."""
MOST_NAMED = 8
"""How many Services that use a floating IP its status names."""
MOST_WAITING = 16
"""How many Services that wait the status of the oldest floating IP names."""


def request_services(guest_id: str) -> Request:
    """Request a list of the Services of a guest cluster alone, without hurry."""
    return Request(Key(KIND, "", guest_id), Priority.BACKGROUND)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandController:
    """Makes floating IPs for Services, and lets them go."""

    guests: GuestDirectory
    clients: GuestClients
    configuration: Configuration
    queues: WorkQueues
    events: EventRecorder
    gate: Gate
    random: Random

    def watches(self, event: Event) -> Iterator[Request]:
        """Yield the guest clusters whose Services are listed from now on."""
        change, guest_ids = event.change, set(event.guest_ids)
        if event.resource == FLOATING_IPS:
            guest_ids.add(change.latest.namespace)
        elif event.resource == FLOATING_IP_RANGES and is_respecified(change.old, change.new):
            found = self.guests.inventory.floating_ips.by_index(BY_RANGE, change.latest.name)
            guest_ids |= {each.namespace for each in found}
        yield from self.request_new(guest_ids)

    def request_new(self, guest_ids: Iterable[str]) -> Iterator[Request]:
        """Yield those of some guest clusters whose Services are to be listed, and are not yet."""
        for guest_id in sorted(guest_ids):
            record = self.guests.record(guest_id)
            if not record.follows_services and self._find_range(guest_id) is not None:
                record.follows_services = True
                yield request_services(guest_id)

    async def reconcile(self, guest_id: str) -> RetryAfter | None:
        """Read the Services of a guest cluster alone, between two visits, and make the floating IPs that they need."""
        record, guest = self.guests.record(guest_id), self.guests.inventory.known(guest_id)
        if self._find_range(guest_id) is None:
            self._stop(record, guest_id)
            return None
        if not self.gate.is_open:
            return RetryAfter(GATE_RETRY_SECONDS)
        if guest is not None and self._may_act(guest):
            try:
                access = await read_access(self.guests.client, guest)
                async with self.clients.session(access, is_urgent=False) as client:
                    services, now = await read_services(client), client.server_now()
            except FipopError as error:  # visits report it
                logger.debug("Could not list Services", extra={"guest": guest_id, "error": str(error)})
            else:
                await self.follow(record, guest, services, now)
        return RetryAfter(self.configuration.settings.service_visit_seconds).spread(self.random)

    async def follow(
        self, record: GuestRecord, guest: Guest, services: Sequence[Service], now: datetime
    ) -> None:
        """Make floating IPs for Services, or delete one; `now` is what the clock of the guest cluster shows.

        Raises: ApiError, TooManyAddressesError.
        """
        found = self._find_range(guest.id)
        if found is None or not self._may_act(guest):
            return
        if record.demand is None:  # the first list of this leader: it goes on where a former one ended
            record.idle_since = self._read_idle_since(guest.id)
        classes = self._find_classes(record, guest)
        uses = read_uses(services, classes, now)
        given = self._see(record, guest, found, uses)
        if not given.floating_ips:
            return
        plan = plan_floating_ips(given)
        record.idle_since = {
            each.uid: record.idle_since.get(each.uid, loop_time())
            for each in given.floating_ips
            if each.name not in plan.busy
        }
        finding = judge_demand(given, plan, found.name)
        if finding == MET and record.taker is not None and not classes:
            message = f"No Service without a class counts as waiting. {record.taker.message}"
            finding = ConditionContent(verdict=Verdict.TRUE, reason=record.taker.value, message=message)
        failure: ApiError | None = None
        try:
            for want in plan.makes:
                await self._make(guest, found, given, want)
        except ApiError as error:
            failure = error
            if error.is_refusal and plan.makes[0].service is not None:
                finding = ConditionContent(
                    verdict=Verdict.FALSE, reason=WRITE_REFUSED, message=error.explain()
                )
        record.demand = finding
        await self._report(record, guest.id, given, plan)
        if failure is not None:
            raise failure
        if plan.delete is not None:
            seconds = int(given.idle_seconds.get(plan.delete.uid, 0.0))
            await self._delete(plan.delete, f"fipop deleted it: no Service has used it for {seconds} s.")

    def _find_range(self, guest_id: str) -> FloatingIPRange | None:
        """Return the range that says how many floating IPs a guest cluster has; None if fipop makes none for it."""
        inventory, settings = self.guests.inventory, self.configuration.settings
        guest = inventory.known(guest_id)
        is_off = guest is not None and not guest.cluster.wants_floating_ip
        if is_off or not settings.may_create_floating_ips or not inventory.exists(guest_id):
            return None
        oldest = next(iter(inventory.floating_ips_of(guest_id)), None)
        found = inventory.ranges.get("", oldest.current_range) if oldest is not None else None
        return found if found is not None and found.spec.per_guest is not None else None

    def _stop(self, record: GuestRecord, guest_id: str) -> None:
        """Forget the Services of a guest cluster for which no floating IPs are made any more."""
        record.follows_services, record.demand, record.idle_since = False, None, {}
        record.services_reported_at = -inf
        self.queues.add(*map(request_floating_ip, self.guests.inventory.floating_ips_of(guest_id)))

    def _may_act(self, guest: Guest) -> bool:
        """Return whether floating IPs of a guest cluster can be made and deleted now."""
        inventory = self.guests.inventory
        return not (guest.deleting or inventory.is_leaving(guest.id) or is_paused(inventory, guest))

    def _find_classes(self, record: GuestRecord, guest: Guest) -> frozenset[str]:
        """Return the classes that fipop's provider serves: "" is that of Services without one.

        Those are another controller's if one takes every Service; on Harvester only a visit that reads Deployments
        knows.
        """
        classes = read_classes(self.configuration.settings.kubevip_cloud_provider_chart_values.values)
        is_unknown = guest.on_harvester and record.other_providers is None
        return classes - {""} if is_unknown or record.taker is not None else classes

    def _see(
        self, record: GuestRecord, guest: Guest, found: FloatingIPRange, services: Sequence[ServiceUse]
    ) -> DemandInput:
        inventory = self.guests.inventory
        every, read = inventory.floating_ips_of(guest.id), inventory.pools.get(found.name)
        # One that fipop writes to no guest cluster serves no Service.
        bound = (each for each in every if bind_guest(inventory, each).blocker is None)
        here = [each for each in bound if each.current_range == found.name]
        quarantined = (each for each in inventory.find_quarantined(guest.id) if each.spec.range == found.name)
        former = {address_of(each): each.spec.owner.name for each in quarantined}
        refusal = inventory.pools.refusal
        shares = len(inventory.shares(guest.id, found.name)) + sum(not each.status.addresses for each in here)
        limit = found.spec.max_per_guest
        return DemandInput(
            cluster=guest.cluster_name,
            per_guest=found.spec.per_guest or PerGuest(),
            families=frozenset(read.pool.families if read is not None else ()),
            floating_ips=here,
            taken=frozenset(each.name for each in every),
            services=[replace(each, pool=None) for each in services] if record.ignores_pools else services,
            foreign_pools=record.foreign_pools,
            pool_namespaces=record.pool_namespaces,
            former={each: name for each, name in former.items() if refusal(found.name, each) is None},
            room=limit - shares if limit is not None else None,
            idle_seconds={uid: loop_time() - since for uid, since in record.idle_since.items()},
        )

    def _read_idle_since(self, guest_id: str) -> dict[str, float]:
        """Return since when floating IPs are unused, as statuses say it."""
        now = self.guests.client.server_now()
        return {
            each.uid: loop_time() - max((now - each.status.unused.since).total_seconds(), 0.0)
            for each in self.guests.inventory.floating_ips_of(guest_id)
            if each.status.unused is not None
        }

    async def _report(self, record: GuestRecord, guest_id: str, given: DemandInput, plan: DemandPlan) -> None:
        """Write into statuses which Services use a floating IP, and whether the demand is met; not every moment.

        Whoever reconciles a floating IP keeps that part of its status. So another leader that found something else
        writes it once, too, and not again and again.
        """
        if loop_time() - record.services_reported_at < REPORT_SECONDS:
            return
        for each in self.guests.inventory.floating_ips_of(guest_id):
            wanted = self._build_status(record, each, given, plan)
            if wanted != each.status and each.status.observed_generation:
                record.services_reported_at = loop_time()
                await self._write_status(each, wanted)

    def _build_status(
        self, record: GuestRecord, floating_ip: FloatingIP, given: DemandInput, plan: DemandPlan
    ) -> FloatingIPStatus:
        before, now, has = floating_ip.status, self.guests.client.server_now(), frozenset[Address]()
        if any(each.key == floating_ip.key for each in given.floating_ips):
            has = read_addresses(before.addresses)
        users = sorted(str(each) for each in given.services if not has.isdisjoint(each.addresses))
        shown: WaitingStatus | None = None
        conditions = [each for each in before.conditions if each.type != ConditionType.DEMAND_MET]
        if given.floating_ips[0].key == floating_ip.key and record.demand is not None:
            demand = record.demand.to_condition(ConditionType.DEMAND_MET)
            conditions.append(replace(demand, observed_generation=before.observed_generation))
            named = tuple(_name_waiting(each, now) for each in plan.waiting[:MOST_WAITING])
            is_shown = bool(named) and record.demand.verdict is not Verdict.TRUE
            shown = WaitingStatus(services=named, count=len(plan.waiting)) if is_shown else None
        return replace(
            before,
            services=ServicesStatus(names=tuple(users[:MOST_NAMED]), count=len(users)) if users else None,
            waiting=shown,
            unused=self._describe_unused(record, floating_ip, given)
            if floating_ip.uid in plan.unused
            else None,
            conditions=merge_conditions(before.conditions, conditions, now),
        )

    def _describe_unused(
        self, record: GuestRecord, floating_ip: FloatingIP, given: DemandInput
    ) -> UnusedStatus:
        """Return since when it is unused; what two leaders find apart by less than a minute is the same."""
        before, idle_seconds = floating_ip.status.unused, loop_time() - record.idle_since[floating_ip.uid]
        since = (self.guests.client.server_now() - timedelta(seconds=idle_seconds)).replace(microsecond=0)
        if before is not None and abs((before.since - since).total_seconds()) < REPORT_SECONDS:
            since = before.since
        return UnusedStatus(
            since=since, until=since + timedelta(seconds=given.per_guest.release_after_seconds)
        )

    async def _write_status(self, floating_ip: FloatingIP, wanted: FloatingIPStatus) -> None:
        try:
            answer = await self.guests.client.merge_patch(
                FLOATING_IPS,
                floating_ip.name,
                {"metadata": floating_ip.precondition, "status": write_patch(wanted)},
                namespace=floating_ip.namespace,
                subresource="status",
            )
        except ConflictError:
            return  # it changed: the next list decides
        self.guests.inventory.observe(FLOATING_IPS, answer)

    async def _make(
        self, guest: Guest, found: FloatingIPRange, given: DemandInput, want: NewFloatingIP
    ) -> None:
        body = build_floating_ip(guest, found.name, want, overwrites=given.floating_ips[0].update_config_map)
        try:
            made = await self.guests.client.create(FLOATING_IPS, body)
        except ConflictError:
            return  # it is there already
        self.guests.inventory.observe(FLOATING_IPS, made)
        cause = (
            f"Service {want.service} needs an address" if want.service else "the range asks for a spare one"
        )
        message = f'fipop created it because of perGuest of range "{found.name}": {cause}.'
        self._record(read_metadata(made), "FloatingIPCreated", message)
        fields = {"guest": guest.id, "floating_ip": want.name, "service": str(want.service or "")}
        logger.info("Created FloatingIP for Services", extra=fields)

    def _record(self, floating_ip: Named, reason: str, message: str) -> None:
        about = reference_to(FLOATING_IPS, floating_ip)
        self.events.record(about, EventType.NORMAL, reason, message)

    async def _delete(self, floating_ip: FloatingIP, message: str) -> None:
        try:
            await self.guests.client.delete(
                FLOATING_IPS,
                floating_ip.name,
                namespace=floating_ip.namespace,
                uid=floating_ip.uid,
                resource_version=floating_ip.resource_version,
            )
        except ConflictError:
            return  # it changed: the next list decides
        self.guests.inventory.forget(FLOATING_IPS, floating_ip)
        self._record(floating_ip.metadata, "FloatingIPDeleted", message)
        fields = {"guest": floating_ip.namespace, "floating_ip": floating_ip.name}
        logger.info("Deleted FloatingIP that no Service used", extra=fields)


def build_floating_ip(guest: Guest, range_name: str, want: NewFloatingIP, *, overwrites: bool) -> Json:
    """Build a floating IP for Services; it `overwrites` foreign values as the oldest one does."""
    both, is_flexible = len(want.families) > 1, want.service is not None and want.service.is_flexible
    policy = FamilyPolicy.PREFER_DUAL_STACK if is_flexible else FamilyPolicy.REQUIRE_DUAL_STACK
    spec = FloatingIPSpec(
        ipaddress=",".join(map(format_address, want.addresses)),
        ip_family_policy=policy if both else None,
        ip_families=want.families,
        service_namespace="" if want.is_pool else want.scope,
        pool=want.scope if want.is_pool else "",
    )
    annotations = {
        names.ANNOTATION_CLUSTER: guest.cluster_name,
        names.ANNOTATION_RANGE: range_name,
        names.ANNOTATION_MADE: digest_spec(spec),
        **({names.ANNOTATION_UPDATE_CONFIG_MAP: "true"} if overwrites else {}),
    }
    return {
        "metadata": {"name": want.name, "namespace": guest.id, "annotations": annotations},
        "spec": write(spec),
    }


def _name_waiting(service: ServiceUse, now: datetime) -> WaitingService:
    """Return how a status shows a Service that waits. The times are those of the guest cluster, which can be any."""
    since = service.since
    is_time = since is not None and EPOCH <= since <= now + timedelta(days=1)
    shown = since.astimezone(UTC).replace(microsecond=0) if since is not None and is_time else None
    return WaitingService(name=str(service), since=shown)
