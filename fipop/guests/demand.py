"""Follows the Services of guest clusters whose range has `perGuest`: one list, then what the plan says.

Nothing is written to a guest cluster here. A floating IP that is made or gone has its guest cluster visited, as any
other does. One that a Service took just before it was deleted comes back: the report keeps its address in quarantine,
and the next list has a floating IP made that names it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random

from fipop.addresses.claims import address_of, read_addresses
from fipop.addresses.decision import bind_guest
from fipop.addresses.gate import Gate
from fipop.addresses.inventory import is_respecified
from fipop.addresses.stores import BY_OWNER_NAMESPACE, BY_RANGE
from fipop.api import names
from fipop.api.codec import write
from fipop.api.conditions import Finding, Verdict
from fipop.api.objects import (
    EPOCH,
    FloatingIP,
    FloatingIPRange,
    FloatingIPSpec,
    PerGuest,
    ServicesStatus,
    WaitingService,
    WaitingStatus,
    digest_spec,
)
from fipop.errors import WRITE_REFUSED, ApiError, ConflictError, FipopError
from fipop.guests.access import read_access
from fipop.guests.clients import GuestClients
from fipop.guests.demand_record import DemandRecord, DemandReport
from fipop.guests.desired import is_paused
from fipop.guests.directory import GuestDirectory, GuestState
from fipop.guests.observed import read_service_uses
from fipop.guests.service_uses import ServiceUse, read_classes
from fipop.guests.services import MET, Seen, Want, judge_demand, plan_floating_ips
from fipop.interfaces import loop_time
from fipop.ipam.addresses import FamilyPolicy, format_address
from fipop.jsons import Json
from fipop.kube.client import KubeClient
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
GATE_RETRY_SECONDS = 5.0
"""When work is tried again that waits for the gate."""
MOST_NAMED = 8
"""How many Services that use a floating IP its status names."""
MOST_WAITING = 16
"""How many Services that wait the status of the oldest floating IP names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandController:
    """Makes floating IPs for Services, and lets them go."""

    client: KubeClient
    guests: GuestDirectory
    clients: GuestClients
    configuration: Configuration
    queues: WorkQueues
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
            record = self.guests.state(guest_id).demand
            if not record.is_followed and self._find_range(guest_id) is not None:
                record.is_followed = True
                yield Request(Key(KIND, "", guest_id), Priority.BACKGROUND)

    async def reconcile(self, guest_id: str) -> RetryAfter | None:
        """List the Services of a guest cluster, and act; return when to do so again."""
        state, found = self.guests.state(guest_id), self._find_range(guest_id)
        if found is None:
            state.demand = DemandRecord()
            self.queues.add(*map(request_floating_ip, self.guests.inventory.floating_ips_of(guest_id)))
            return None
        if not self.gate.is_open:
            return RetryAfter(GATE_RETRY_SECONDS)
        guest = self.guests.inventory.known(guest_id)
        if guest is not None and self._may_act(guest):
            services = await self._list(state, guest)
            if services is not None:
                await self._follow(state, guest, found, services)
        seconds = self.configuration.settings.service_visit_seconds
        return RetryAfter(seconds * self.random.uniform(0.9, 1.0))

    def _find_range(self, guest_id: str) -> FloatingIPRange | None:
        """Return the range that says how many floating IPs a guest cluster has; None if fipop makes none for it."""
        guest, cache = self.guests.inventory.known(guest_id), self.guests.inventory
        is_off = guest is not None and not guest.cluster.wants_floating_ip
        if (
            is_off
            or not self.configuration.settings.may_create_floating_ips
            or not self.guests.inventory.exists(guest_id)
        ):
            return None
        oldest = next(iter(cache.floating_ips_of(guest_id)), None)
        found = cache.ranges.get("", _range_of(oldest)) if oldest is not None else None
        return found if found is not None and found.spec.per_guest is not None else None

    def _may_act(self, guest: Guest) -> bool:
        inventory = self.guests.inventory
        return not (guest.deleting or inventory.is_leaving(guest.id) or is_paused(inventory, guest))

    async def _list(self, state: GuestState, guest: Guest) -> tuple[ServiceUse, ...] | None:
        """List the Services of a guest cluster; None if that cannot be done, which its visits report."""
        try:
            access = await read_access(self.client, guest)
            async with self.clients.session(access, is_urgent=False) as client:
                return await read_service_uses(client, self._find_classes(state, guest))
        except FipopError as error:
            logger.debug("Could not list Services", extra={"guest": guest.id, "error": str(error)})
            return None

    async def _follow(
        self, state: GuestState, guest: Guest, found: FloatingIPRange, services: Sequence[ServiceUse]
    ) -> None:
        """Make floating IPs, or let one go. Raises: ApiError."""
        seen = self._see(state, guest, found, services)
        if not seen.floating_ips:
            return
        plan, record = plan_floating_ips(seen), state.demand
        record.idle_since = {
            each.uid: record.idle_since.get(each.uid, loop_time())
            for each in seen.floating_ips
            if each.name not in plan.busy
        }
        finding = judge_demand(seen, plan, found.name)
        try:
            for want in plan.makes:
                await self._make(guest, found, seen, want)
        except ApiError as error:
            if error.is_refusal and plan.makes[0].service is not None:
                finding = Finding(verdict=Verdict.FALSE, reason=WRITE_REFUSED, message=error.explain())
            raise
        finally:
            self._report(record, seen, finding, plan.waiting)
        if plan.lets_go is not None:
            await self._let_go(plan.lets_go)

    def _find_classes(self, state: GuestState, guest: Guest) -> frozenset[str]:
        """Return the classes that fipop's provider serves: "" is that of Services without one.

        Those are Harvester's if its Service controller runs; on Harvester only a visit that reads Deployments knows.
        """
        classes = read_classes(self.configuration.settings.kubevip_cloud_provider_chart_values.values)
        around = state.visits.around
        is_taken = guest.on_harvester if around is None else any(each.takes_services for each in around)
        return classes - {""} if is_taken else classes

    def _see(
        self, state: GuestState, guest: Guest, found: FloatingIPRange, services: Sequence[ServiceUse]
    ) -> Seen:
        cache = self.guests.inventory
        every, read = cache.floating_ips_of(guest.id), cache.pools.get(found.name)
        # One that fipop writes to no guest cluster serves no Service.
        bound = (each for each in every if bind_guest(cache, each).blocker is None)
        here = [each for each in bound if _range_of(each) == found.name]
        reservations = cache.reservations.by_index(BY_OWNER_NAMESPACE, guest.id)
        quarantined = (each for each in reservations if not each.is_held and each.spec.range == found.name)
        former = {address_of(each): each.spec.owner.name for each in quarantined}
        refusal = cache.pools.refusal
        shares = len(cache.shares(guest.id, found.name)) + sum(not each.status.addresses for each in here)
        limit = found.spec.max_per_guest
        return Seen(
            cluster=guest.cluster_name,
            per_guest=found.spec.per_guest or PerGuest(),
            families=frozenset(read.pool.families if read is not None else ()),
            floating_ips=here,
            taken=frozenset(each.name for each in every),
            services=services,
            foreign_pools=state.visits.foreign_pools,
            former={each: name for each, name in former.items() if refusal(found.name, each) is None},
            room=limit - shares if limit is not None else None,
            idle_seconds={uid: loop_time() - since for uid, since in state.demand.idle_since.items()},
        )

    def _report(
        self, record: DemandRecord, seen: Seen, finding: Finding, waiting: Sequence[ServiceUse]
    ) -> None:
        """Have the floating IPs say which Services use them, and whether the demand is met; not every moment."""
        used: dict[str, ServicesStatus] = {}
        for each in seen.floating_ips:
            has = read_addresses(each.status.addresses)
            users = sorted(str(one) for one in seen.services if not has.isdisjoint(one.addresses))
            if users:
                used[each.name] = ServicesStatus(names=tuple(users[:MOST_NAMED]), count=len(users))
        if loop_time() - record.reported_at < REPORT_SECONDS:
            return
        now = self.client.server_now()
        named = tuple(_name_waiting(each, now) for each in waiting[:MOST_WAITING])
        record.report = DemandReport(
            services=used,
            oldest=seen.floating_ips[0].name,
            finding=finding,
            waiting=WaitingStatus(services=named, count=len(waiting)) if named and finding != MET else None,
        )
        news = [each for each in seen.floating_ips if not record.report.is_shown_by(each)]
        if news:
            record.unshown, record.reported_at = {each.name for each in news}, loop_time()
            self.queues.add(*map(request_floating_ip, news))

    async def _make(self, guest: Guest, found: FloatingIPRange, seen: Seen, want: Want) -> None:
        body = build_floating_ip(guest, found.name, want, overwrites=seen.floating_ips[0].update_config_map)
        try:
            made = await self.client.create(FLOATING_IPS, body)
        except ConflictError:
            return  # it is there already
        self.guests.inventory.observe(FLOATING_IPS, made)
        fields = {"guest": guest.id, "floating_ip": want.name, "service": str(want.service or "")}
        logger.info("Created FloatingIP for Services", extra=fields)

    async def _let_go(self, floating_ip: FloatingIP) -> None:
        try:
            await self.client.delete(
                FLOATING_IPS,
                floating_ip.name,
                namespace=floating_ip.namespace,
                uid=floating_ip.uid,
                resource_version=floating_ip.resource_version,
            )
        except ConflictError:
            return  # it changed: the next list decides
        self.guests.inventory.forget(FLOATING_IPS, floating_ip)
        fields = {"guest": floating_ip.namespace, "floating_ip": floating_ip.name}
        logger.info("Deleted FloatingIP that no Service used", extra=fields)


def build_floating_ip(guest: Guest, range_name: str, want: Want, *, overwrites: bool) -> Json:
    """Build a floating IP for Services; it `overwrites` foreign values as the oldest one does."""
    both, is_flexible = len(want.families) > 1, want.service is not None and want.service.is_flexible
    policy = FamilyPolicy.PREFER_DUAL_STACK if is_flexible else FamilyPolicy.REQUIRE_DUAL_STACK
    spec = FloatingIPSpec(
        ipaddress=",".join(map(format_address, want.addresses)),
        ip_family_policy=policy if both else None,
        ip_families=want.families,
        service_namespace=want.namespace,
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


def _range_of(floating_ip: FloatingIP) -> str:
    return floating_ip.status.range or floating_ip.range or ""
