"""What a visit of a guest cluster does: one session that reads everything and writes the ConfigMap. Never helm.

A visit parks Harvester's kube-vip or not, makes floating IPs for Services, and reports. If releases have to change, it
enqueues the guest cluster for `releases`. So addresses never wait for helm.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from random import Random

from fipop.addresses.claims import read_addresses
from fipop.addresses.gate import Gate
from fipop.addresses.guests import GuestObservation
from fipop.addresses.in_use import InUseAddresses, Source
from fipop.addresses.quarantine import request_reservation
from fipop.addresses.reconciler import request_users
from fipop.addresses.reservations import ReservationStore
from fipop.api.conditions import ConditionType, find_condition
from fipop.errors import (
    ApiError,
    FipopError,
    GuestError,
    UnavailableError,
)
from fipop.guests.access import (
    GuestClients,
    NotConnectedError,
    VisitTimeoutError,
    read_access,
)
from fipop.guests.announced import Reason, build_check, build_unknown, settle
from fipop.guests.conditions import describe_failure, describe_visit
from fipop.guests.config_map import (
    ConfigMapWriter,
    Outcome,
    build_keys,
    find_foreign_pools,
    find_namespace,
    find_overruled,
    find_pool_namespaces,
)
from fipop.guests.demand import DemandController, request_services
from fipop.guests.desired import (
    DesiredState,
    choose_namespace,
    count_event,
    describe_interface_mismatch,
    find_desired,
    find_needs,
)
from fipop.guests.discovery import GuestDirectory
from fipop.guests.harvester import build_patch, find_harvester, should_park
from fipop.guests.in_use import TooManyAddressesError, find_in_use
from fipop.guests.observed import (
    observe,
    read_config_maps,
    read_in_use,
    read_interfaces,
    read_machines,
    read_network,
)
from fipop.guests.record import GuestRecord
from fipop.guests.release_plan import plan_releases
from fipop.guests.releases import find_goal, request_turn
from fipop.guests.visit_state import YOUNG_SECONDS, Visit
from fipop.interfaces import loop_time
from fipop.ipam.addresses import format_address
from fipop.kube.client import KubeClient
from fipop.kube.resources import DAEMON_SETS, FLOATING_IPS
from fipop.metrics.counters import VISIT_SECONDS, GuestEvent, result_label
from fipop.rancher.matching import Guest
from fipop.rollout.controller import RolloutController
from fipop.runtime.configuration import Configuration
from fipop.runtime.queues import (
    Event,
    Request,
    WorkQueues,
    request_floating_ip,
    request_guest,
    request_visit,
)
from fipop.runtime.workqueue import RetryAfter
from fipop.texts import sentence

logger = logging.getLogger(__name__)

READ_RETRY_SECONDS = 5.0
"""When a guest cluster is read again that did not answer, while new addresses wait for it, or the gate is closed."""


@dataclass(slots=True, kw_only=True)
class VisitController:
    """Visits guest clusters. The work queue brings their ids.

    `leads` tells whether this replica leads for as long as a write to a guest cluster may take.
    """

    guests: GuestDirectory
    clients: GuestClients
    configuration: Configuration
    reservations: ReservationStore
    leads: Callable[[], bool]
    queues: WorkQueues
    rollout: RolloutController
    demand: DemandController
    gate: Gate
    random: Random

    def watches(self, event: Event) -> Iterator[Request]:
        """Yield the guest cluster of a floating IP that asks for something else there now, or is gone."""
        change = event.change
        if event.resource != FLOATING_IPS:
            return
        if change.new is None or find_needs(change.old) != find_needs(change.new):
            yield request_visit(change.latest.namespace)

    async def reconcile(self, guest_id: str) -> RetryAfter | None:
        """Visit a guest cluster, or note why that cannot be done. Return when the next visit is due."""
        if not self.guests.inventory.exists(guest_id):
            self.gate.note_gone(guest_id)
            return None
        seconds: float | None = None
        # Before the gate opens one reading is enough, whatever changes meanwhile: the pace is for the others.
        if self.gate.is_open or self.gate.needs(guest_id):
            with self.gate.trying(guest_id):
                seconds = await self._serve_or_read(guest_id)
        if self.gate.is_open and self.guests.needs_reading(guest_id, self.guests.record(guest_id)):
            self.queues.add(request_guest(guest_id))  # its network can be another one, without an event
        interval = float(self.configuration.settings.operate_guest_cluster_interval_seconds)
        return RetryAfter(min(interval, seconds or interval)).spread(self.random)

    # What is done

    async def _serve_or_read(self, guest_id: str) -> float | None:
        """Visit a guest cluster, or only read it; return when to come back, if before the interval."""
        record = self.guests.record(guest_id)
        self._note_floating_ips(record, guest_id)
        if self.gate.is_open:
            settings = self.configuration.settings
            desired = find_desired(self.guests.inventory, guest_id, record, settings)
            if desired is not None:
                return await self._serve(record, desired)
        return await self._read_only(record, guest_id)

    async def _read_only(self, record: GuestRecord, guest_id: str) -> float | None:
        """Read which addresses a guest cluster uses, and nothing else; return when the next visit is due."""
        inventory = self.guests.inventory
        guest = inventory.known(guest_id) or inventory.resolve_cached(guest_id)
        if guest is None or not self.guests.is_readable(guest_id):
            self._note_unread(guest_id)
            self.gate.note_gone(guest_id)
            return None
        self.gate.note_begun(guest_id)
        visit = self._begin(record, guest)
        try:
            access = await read_access(self.guests.client, guest)
            async with self.clients.session(access, is_urgent=self.gate.waits_for(guest_id)) as client:
                await self._read(visit, client)
            if visit.errors.first is not None:
                raise visit.errors.first
        except FipopError as error:
            self._note_unread(guest_id)
            logger.info("Could not read guest cluster", extra={"guest": guest_id, "error": str(error)})
            if isinstance(error, GuestError) and not isinstance(
                error, VisitTimeoutError | TooManyAddressesError
            ):
                self.gate.note_gone(guest_id)  # without a usable kubeconfig; one that hangs has one
            return READ_RETRY_SECONDS if self.gate.waits_for(guest_id) else None
        return None

    async def _serve(self, record: GuestRecord, desired: DesiredState) -> float | None:
        """Visit a guest cluster that should have something; return when to come back, if before the interval."""
        visit, began = self._begin(record, desired.guest), loop_time()
        try:
            await self._visit(visit, desired)
            self._count_failures(visit)
            observation = self._describe(visit, desired)
            seconds = visit.seconds_until_next(desired, is_judged=self.rollout.is_judged(visit.guest.id))
        except (ApiError, GuestError) as error:
            self._note_unread(visit.guest.id)
            record.failures += not isinstance(error, NotConnectedError)
            record.releases = ()
            self._report_failure(visit, error)
            self._note_not_read(visit, desired, error)
            observation = describe_failure(visit, error, desired)
            seconds = visit.seconds_until_retry(error)
        record.visited_at = loop_time()
        VISIT_SECONDS.labels(result_label(bool(observation.reachable))).observe(loop_time() - began)
        self._report(visit, observation)
        return seconds

    async def _visit(self, visit: Visit, desired: DesiredState) -> None:
        """Read everything, write, and decide.

        1. Read the kubeconfig that Rancher keeps, and open one session.
        2. Read what uses addresses: ConfigMaps and Services; now and then nodes, the API server and all Deployments.
        3. Read the releases, and what they run. If that fails, the addresses are written all the same.
        4. Write the ConfigMap, after each reservation was read again, and park Harvester's kube-vip or not.
        5. Read whether kube-vip announces the addresses that Services use.
        6. Decide what the releases should be, and request a turn of helm if that is another thing.
        7. Make the floating IPs that its Services need.

        Raises ApiError and GuestError.
        """
        is_urgent = visit.is_young or self._has_news(visit, desired) or self.gate.waits_for(visit.guest.id)
        access = await read_access(self.guests.client, visit.guest)
        async with self.clients.session(access, is_urgent=is_urgent) as client:
            await self._read(visit, client)
            if visit.needs_machines and visit.guest.on_harvester and desired.names_interface:
                with visit.errors.collect():
                    visit.record.interfaces = await read_interfaces(client)
            if desired.places:
                await self._observe(visit, desired, client)
            await self._write_config_map(visit, desired, client)
            with visit.parking.collect():
                await self._park(visit, desired, client)
            await self._check_announced(visit, desired, client)
            if visit.observed is not None:
                # Together with what is announced: a rollout judges both at any moment.
                visit.record.releases = visit.observed.releases
        if visit.observed is not None:
            visit.goal = find_goal(desired, visit.observed, self.rollout)
            visit.steps = plan_releases(visit.observed.releases, visit.goal)
            if visit.needs_helm:
                visit.record.keep_observed(visit.observed, visit.observed_at)
                is_judged = self.rollout.is_judged(visit.guest.id)
                self.queues.add(
                    request_turn(visit.guest.id, visit.record, visit.goal, visit.steps, is_judged=is_judged)
                )
        await self._follow_services(visit)

    def _has_news(self, visit: Visit, desired: DesiredState) -> bool:
        """Return whether a guest cluster lacks an address; of one that was not read yet the statuses tell."""
        if visit.record.was_read:
            return set(self.guests.inventory.reports.find_ours(visit.guest.id)) != desired.addresses
        statuses = (each.status for each in desired.floating_ips if each.status.addresses)
        found = (find_condition(each.conditions, ConditionType.GUEST_CONFIGURED) for each in statuses)
        return not all(each is not None and each.is_true for each in found)

    async def _read(self, visit: Visit, client: KubeClient) -> None:
        """Read which addresses it uses. Raises ApiError and GuestError."""
        visit.config_maps, visit.services = await read_in_use(client)
        visit.guest_now = client.server_now()
        visit.in_use = self._find_in_use(visit)
        self._take(visit, Source.OBJECTS, visit.in_use)
        if visit.needs_machines:
            with visit.errors.collect():
                self._take(visit, Source.MACHINES, await read_machines(client))
                visit.record.machines_read_at = loop_time()

    def _find_in_use(self, visit: Visit) -> InUseAddresses:
        mode = visit.record.mode
        announces_on = mode is None or mode.announces_on
        return find_in_use(visit.config_maps, visit.services, announces_on=announces_on)

    async def _observe(self, visit: Visit, desired: DesiredState, client: KubeClient) -> None:
        """Read its releases and what they run; what fails does not keep the addresses from being written."""
        record, began = visit.record, loop_time()
        try:
            observed = await observe(
                client,
                desired.places,
                with_pods=self.rollout.is_judged(visit.guest.id),
                other_providers=None if visit.needs_machines else record.other_providers,
            )
        except (ApiError, GuestError) as error:
            visit.unseen, record.releases = error, ()
            return
        record.other_providers = observed.other_providers
        record.has_service_lb = any(each.is_service_lb for each in observed.daemon_sets)
        releases, record.mode = record.mark_foreign(observed.releases), observed.mode
        record.ignores_pools = observed.ignores_pools
        visit.observed, visit.observed_at = replace(observed, releases=releases), began

    async def _write_config_map(self, visit: Visit, desired: DesiredState, client: KubeClient) -> None:
        """Set the keys of its floating IPs, where they belong now."""
        # What this guest cluster uses already stays: its former key had it, or a Service has it.
        in_conflict = {each for each in desired.in_conflict if visit.in_use.user_of(each) is None}
        granted = frozenset(map(format_address, desired.addresses - in_conflict))
        before = find_namespace(visit.config_maps, desired.known)
        namespace = choose_namespace(desired, visit.observed, before)
        namespace = namespace or self.configuration.settings.kubevip_namespace
        writer = ConfigMapWriter(client=client, permit=partial(self._may_write, desired))
        keys = build_keys(desired.floating_ips, granted)
        written = await writer.sync(visit.config_maps, namespace, keys, desired.known)
        visit.written = replace(written, overruled=find_overruled(desired.floating_ips, keys))
        is_written = written.outcome is Outcome.WRITTEN
        if is_written or written.outcome is Outcome.FAILED:
            count_event(self.guests, visit.guest, GuestEvent.CONFIG_MAP, success=is_written)
        if is_written:
            visit.config_maps = await read_config_maps(client)
            self._take(visit, Source.OBJECTS, self._find_in_use(visit))
        visit.record.foreign_pools = find_foreign_pools(visit.config_maps)
        pools = {each.spec.scope for each in desired.floating_ips}
        visit.record.pool_namespaces = find_pool_namespaces(visit.config_maps, namespace, pools)

    async def _may_write(self, desired: DesiredState) -> bool:
        """Return whether addresses are still their owners', and this replica still leads."""
        if not (desired.is_complete and self.gate.is_open):
            return False
        try:
            if not await self.reservations.are_held(desired.held):
                return False
        except UnavailableError as error:
            # The guest cluster has no part in that, and is not to wait as if it had.
            logger.debug("Could not confirm addresses", extra={"error": str(error)})
            return False
        return self.leads()

    async def _park(self, visit: Visit, desired: DesiredState, client: KubeClient) -> None:
        """Let Harvester's kube-vip make room for fipop's, or run again. Raises ApiError."""
        if visit.observed is None:
            return
        park = should_park(visit.observed.kube_vip, removes=desired.removes)
        for each in find_harvester(visit.observed.daemon_sets) if park is not None else ():
            if each.is_parked != park:
                fields = {"guest": visit.guest.id, "park": park}
                logger.info("Changing the kube-vip of Harvester", extra=fields)
                patch = build_patch(each, park=bool(park))
                await client.merge_patch(DAEMON_SETS, each.name, patch, namespace=each.namespace)

    async def _check_announced(self, visit: Visit, desired: DesiredState, client: KubeClient) -> None:
        """Find out whether the addresses of its floating IPs are announced, if fipop keeps kube-vip there."""
        record = visit.record
        if not desired.keeps:
            record.announced_states = {}
            return
        addresses = {each.key: read_addresses(each.status.addresses) for each in desired.floating_ips}
        mode = visit.observed.mode if visit.observed is not None else None
        check = build_check(visit.services, addresses, mode)
        network, problem = None, sentence(str(visit.unseen)) if visit.unseen is not None else ""
        if check.needs_network:
            try:
                network, record.lease_reading = await read_network(client, check, record.lease_reading)
            except (ApiError, GuestError) as error:
                problem = sentence(str(error))
            else:
                visit.is_unsure = network.is_unsure
        found, states = check.judge(network, problem), record.find_announced(desired.floating_ips)
        record.announced_states = {
            key: settle(state, found[key], at=loop_time()) for key, state in states.items()
        }

    def _note_not_read(self, visit: Visit, desired: DesiredState, error: FipopError) -> None:
        """Take a visit that failed for a reading, of the floating IPs that show whether they are announced."""
        found = build_unknown(Reason.NOT_READ, sentence(str(visit.explain(error))))
        states = visit.record.find_announced(desired.floating_ips) if desired.keeps else {}
        visit.record.announced_states = {
            key: settle(state, found, at=loop_time())
            for key, state in states.items()
            if state.shown is not None
        }

    async def _follow_services(self, visit: Visit) -> None:
        """Make the floating IPs that its Services need; what fails is tried again by a list of them alone."""
        if not visit.record.follows_services or visit.guest_now is None:
            return
        try:
            await self.demand.follow(visit.record, visit.guest, visit.services, visit.guest_now)
        except FipopError as error:
            logger.debug("Could not make FloatingIPs", extra={"guest": visit.guest.id, "error": str(error)})
            self.queues.add(request_services(visit.guest.id))

    # What is reported

    def _describe(self, visit: Visit, desired: DesiredState) -> GuestObservation:
        """Return what a visit found, as floating IPs report it."""
        inventory, interfaces = self.guests.inventory, visit.record.interfaces
        return describe_visit(
            visit,
            desired,
            self.configuration.settings,
            mismatches={
                each.key: describe_interface_mismatch(inventory, each, interfaces)
                for each in desired.floating_ips
            },
            problem=self.rollout.problem,
            held_up=self.rollout.held_up,
        )

    def _report_failure(self, visit: Visit, error: FipopError) -> None:
        """Count and log why a guest cluster could not be visited, unless that is to be expected."""
        if visit.expects(error):
            return
        guest = visit.guest
        if self._is_current(visit):
            count_event(self.guests, guest, GuestEvent.API_CONNECTION, success=False)
        level = logging.WARNING if visit.record.failures == 1 else logging.DEBUG
        fields = {"guest": guest.id, "cluster": guest.cluster_name, "error": str(visit.explain(error))}
        logger.log(level, "Could not visit guest cluster", extra=fields)

    def _report(self, visit: Visit, observation: GuestObservation) -> None:
        """Have the statuses of floating IPs written if a visit found something else than the one before."""
        record, guest = visit.record, visit.guest
        if not self._is_current(visit):
            return
        if observation.reachable:
            count_event(self.guests, guest, GuestEvent.API_CONNECTION, success=True)
        if visit.is_new and not observation.reachable and record.observation is None:
            return  # its status is written when it is known
        if record.observation != observation:
            record.observation = observation
            floating_ips = self.guests.inventory.floating_ips_of(guest.id)
            self.queues.add(*map(request_floating_ip, floating_ips))

    def _count_failures(self, visit: Visit) -> None:
        if visit.error is None:
            visit.record.failures, visit.record.finished_at = 0, self._now().timestamp()
        elif not visit.is_booting:
            visit.record.failures += 1

    def _take(self, visit: Visit, source: Source, found: InUseAddresses) -> None:
        """Take in what was read wholly."""
        inventory, guest_id = self.guests.inventory, visit.guest.id
        if self.guests.has_nothing(guest_id) or not self._is_current(visit):
            return
        self.queues.add(
            *request_users(inventory, inventory.reports.take(guest_id, source, visit.began, found))
        )
        self.gate.note_reached()
        if inventory.reports.read_since(guest_id) is not None:
            self.queues.add(*map(request_reservation, inventory.find_quarantined(guest_id)))
            self.gate.note_read(guest_id)

    def _note_unread(self, guest_id: str) -> None:
        if not self.guests.has_nothing(guest_id):  # it may be gone since the visit began
            self.guests.inventory.reports.note_unread(guest_id, self._now())

    def _note_floating_ips(self, record: GuestRecord, guest_id: str) -> None:
        found = self.guests.inventory.floating_ips_of(guest_id)
        if found:
            record.bare_since = None
        elif record.bare_since is None:
            record.bare_since = loop_time()
        if not any(each.status.addresses for each in found):
            # Nothing checks it any more: what was found last would be reported for good.
            record.observation = record.finished_at = None

    # When it is visited

    def _begin(self, record: GuestRecord, guest: Guest) -> Visit:
        """Begin a visit. Nodes, the API server and all Deployments are read in the first hour, then hourly.

        And as long as a quarantine waits for that.
        """
        inventory = self.guests.inventory
        visit = Visit(
            guest=guest,
            record=record,
            began=self._now(),
            was_tried=inventory.was_tried(guest.id),
            needs_machines=loop_time() - record.machines_read_at >= YOUNG_SECONDS
            or bool(inventory.find_quarantined(guest.id)),
        )
        visit.needs_machines |= visit.is_young
        return visit

    def _is_current(self, visit: Visit) -> bool:
        return self.guests.is_current(visit.guest.id, visit.record)

    def _now(self) -> datetime:
        return self.guests.client.server_now()
