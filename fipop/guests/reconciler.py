"""Visits of guest clusters: read everything, write the ConfigMap, park Harvester's kube-vip or not, report. Never helm.

A visit that finds that releases have to change enqueues the guest cluster for `installs`. So addresses never wait for
helm.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from random import Random

from fipop.addresses.gate import Gate
from fipop.addresses.guests import GuestObservation
from fipop.addresses.in_use import InUseAddresses
from fipop.addresses.quarantine import request_reservation
from fipop.addresses.reconciler import request_users
from fipop.addresses.reports import Source
from fipop.api.conditions import Finding
from fipop.backoff import Backoff
from fipop.errors import ApiError, ConflictError, FipopError, GuestError, RequestTimeoutError
from fipop.guests.access import KubeconfigMissingError, NotConnectedError, read_access
from fipop.guests.clients import GuestClients
from fipop.guests.conditions import (
    describe_status,
    describe_unknown_options,
    judge_config_map,
    judge_release,
    judge_unseen,
    provisioning,
    unreachable,
)
from fipop.guests.config_map import (
    ConfigMapResult,
    ConfigMapWriter,
    Outcome,
    build_keys,
    find_foreign_pools,
    find_namespace,
    find_overruled,
)
from fipop.guests.desired import (
    Duty,
    choose_namespace,
    count_event,
    describe_mismatch,
    find_duty,
    find_goal,
    find_needs,
)
from fipop.guests.directory import GuestDirectory, GuestState
from fipop.guests.errors import VisitTimeoutError, explain_refusal
from fipop.guests.harvester import build_patch, find_harvester, is_taken_by_harvester, should_park
from fipop.guests.in_use import AddressedService, TooManyAddressesError, find_in_use
from fipop.guests.install import KIND as INSTALL
from fipop.guests.observed import (
    Observed,
    observe,
    read_config_maps,
    read_in_use,
    read_interfaces,
    read_machines,
)
from fipop.guests.permits import WritePermits
from fipop.guests.release_plan import SOON_SECONDS, Step, Verb, plan_releases
from fipop.helm.charts import Role
from fipop.helm.releases import Release, Status, find_places
from fipop.interfaces import loop_time
from fipop.ipam.addresses import parse_address
from fipop.jsons import Json
from fipop.kube.client import KubeClient
from fipop.kube.resources import DAEMON_SETS, FLOATING_IPS
from fipop.metrics.counters import VISIT_SECONDS, GuestEvent, result_label
from fipop.rancher.discovery import retry_delay_seconds
from fipop.rancher.matching import Guest
from fipop.rollout.controller import RolloutController
from fipop.rollout.plan import ReleaseGoal
from fipop.runtime.configuration import Configuration
from fipop.runtime.queues import Event, Key, Request, WorkQueues, request_floating_ip, request_visit
from fipop.runtime.workqueue import Priority, RetryAfter

logger = logging.getLogger(__name__)

JUDGED_SECONDS = 30.0
"""How often a guest cluster is visited that a rollout judges."""
PROVISIONING_SECONDS = 3600.0
"""How long Rancher can take to make a new guest cluster until that is a fault."""
BOOT_SECONDS = 15.0
"""How often a guest cluster is asked while Rancher makes it; the end of that is an event."""
SECRET_BACKOFF = Backoff(first_seconds=0.5, limit_seconds=BOOT_SECONDS)
"""Rancher writes the kubeconfig of a guest cluster 2 s after it connected at the latest."""
READ_RETRY_SECONDS = 5.0
"""When a guest cluster is read again that did not answer, while new addresses wait for it."""
MACHINES_SECONDS = 3600.0
"""How long a guest cluster counts as new, and how often its nodes and Deployments are read afterwards."""
FIRST_CONTACT_SECONDS = 5.0
"""A new guest cluster is not expected to be reachable at once."""


@dataclass(slots=True, kw_only=True)
class VisitController:
    """Visits guest clusters. The work queue brings their ids."""

    guests: GuestDirectory
    clients: GuestClients
    configuration: Configuration
    permits: WritePermits
    queues: WorkQueues
    rollout: RolloutController
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
        state, began, duty = self.guests.state(guest_id), loop_time(), None
        self._note_floating_ips(state, guest_id)
        if self.gate.is_open:
            duty = find_duty(self.guests.inventory, guest_id, state, self.configuration.settings)
        if duty is None:
            # Before the gate opens one reading is enough, whatever changes meanwhile: the pace is for the others.
            is_read = not self.gate.is_open and not self.gate.waits_for(guest_id)
            return RetryAfter(self._next(None if is_read else await self._read(state, guest_id)))
        try:
            observation, seconds = await self._visit(state, duty)
        except (ApiError, GuestError) as error:
            self._note_unread(guest_id)
            state.visits.failures += not isinstance(error, NotConnectedError)
            state.visits.releases = ()
            observation, seconds = self._describe_failure(state, duty, error)
            if self._age_seconds(duty.guest) < FIRST_CONTACT_SECONDS:
                seconds = min(seconds or FIRST_CONTACT_SECONDS, FIRST_CONTACT_SECONDS)
        state.visits.visited_at = loop_time()
        VISIT_SECONDS.labels(result_label(bool(observation.reachable))).observe(loop_time() - began)
        self._note(state, duty, observation)
        return RetryAfter(self._next(seconds))

    async def _read(self, state: GuestState, guest_id: str) -> float | None:
        """Read which addresses a guest cluster uses, and nothing else; return when the next visit is due."""
        guest = self.guests.inventory.known(guest_id) or self.guests.glimpse(guest_id, of_any_kind=True)
        if guest is None or not self.guests.is_readable(guest_id):
            self._note_unread(guest_id)
            self.gate.note_gone(guest_id)
            return None
        self.gate.note_begun(guest_id)
        began = self._now()
        try:
            access = await read_access(self.guests.client, guest)
            async with self.clients.session(access, is_urgent=not self.gate.is_open) as client:
                await self._read_in_use(state, guest, client, began)
                if self._are_machines_due(state, guest):
                    await self._read_machines(state, guest, client, began)
        except FipopError as error:
            self._note_unread(guest_id)
            logger.info("Could not read guest cluster", extra={"guest": guest_id, "error": str(error)})
            has_answered = isinstance(error, ApiError) and error.status > 0
            if has_answered or isinstance(error, VisitTimeoutError | RequestTimeoutError):
                self.gate.note_answer()  # one that hangs refuses nothing
            elif isinstance(error, GuestError) and not isinstance(error, TooManyAddressesError):
                self.gate.note_gone(guest_id)
            return READ_RETRY_SECONDS if self.gate.waits_for(guest_id) else None
        return None

    async def _visit(self, state: GuestState, duty: Duty) -> tuple[GuestObservation, float | None]:
        """Visit a guest cluster; return what was found, and when to come back. Raises ApiError and GuestError."""
        guest, began = duty.guest, self._now()
        access = await read_access(self.guests.client, guest)
        has_news = set(self.guests.inventory.reports.find_ours(guest.id)) != duty.addresses
        is_urgent = self._is_young(guest) or has_news
        is_due, troubles, parking = self._are_machines_due(state, guest), Troubles(), Troubles()
        async with self.clients.session(access, is_urgent=is_urgent) as client:
            config_maps, services, in_use = await self._read_in_use(state, guest, client, began)
            if is_due:
                with troubles.noted():
                    await self._read_machines(state, guest, client, began)
                if guest.on_harvester and any(each.spec.interface for each in duty.floating_ips):
                    with troubles.noted():
                        state.visits.interfaces = await read_interfaces(client)
            observed, unseen = None, None
            try:
                observed = await self._observe(state, duty, client, is_due=is_due) if duty.places else None
            except (ApiError, GuestError) as error:
                unseen, state.visits.releases = error, ()  # the addresses are written all the same
            written = await self._sync_config_map(duty, client, config_maps, in_use, observed)
            if written.outcome is Outcome.WRITTEN:
                config_maps = await read_config_maps(client)
                self._take(state, guest.id, Source.OBJECTS, began, find_in_use(config_maps, services))
            state.visits.foreign_pools = find_foreign_pools(config_maps)
            if observed is not None:
                with parking.noted():
                    await self._park(duty, client, observed)
        goal, steps = ReleaseGoal(), ()  # type: tuple[ReleaseGoal, tuple[Step, ...]]
        if observed is not None:
            goal = find_goal(duty, observed, self.rollout)
            steps = plan_releases(observed.releases, goal)
        self._enqueue_helm(state, duty, steps, goal)
        if written.outcome is Outcome.FAILED and not guest.provisioned and self._is_provisioning(guest):
            return provisioning(installs=duty.keeps), BOOT_SECONDS
        unparked = parking.first if isinstance(parking.first, ApiError) and parking.first.is_refusal else None
        releases = observed.releases if observed is not None else ()
        is_bare = duty.removes and _has_no_provider(releases)
        finalizers = sum(each.has_finalizer for each in services) if is_bare else 0
        observation = GuestObservation(
            reachable=True,
            configured={
                each.key: judge_config_map(
                    each.key,
                    replace(written, error=written.error or unparked),
                    mismatch=describe_mismatch(self.guests.inventory, each, state.visits.interfaces),
                    finalizers=finalizers,
                )
                for each in duty.floating_ips
            },
            served=duty.served,
            conditions=self._judge(state, duty, steps, goal, unseen),
            releases=tuple(describe_status(each) for each in releases if duty.keeps or each.revision)
            if observed is not None
            else None,
        )
        trouble = written.error or unseen or parking.first or troubles.first
        return observation, self._seconds_until_next(state, duty, written, steps, trouble)

    # What is read and written

    async def _read_in_use(
        self, state: GuestState, guest: Guest, client: KubeClient, began: datetime
    ) -> tuple[tuple[Json, ...], tuple[AddressedService, ...], InUseAddresses]:
        config_maps, services = await read_in_use(client)
        in_use = find_in_use(config_maps, services)
        self._take(state, guest.id, Source.OBJECTS, began, in_use)
        return config_maps, services, in_use

    async def _read_machines(
        self, state: GuestState, guest: Guest, client: KubeClient, began: datetime
    ) -> None:
        machines = await read_machines(client)
        self._take(state, guest.id, Source.MACHINES, began, machines)
        state.visits.machines_read_at = loop_time()

    async def _observe(self, state: GuestState, duty: Duty, client: KubeClient, *, is_due: bool) -> Observed:
        """Return what its releases show; `is_due`: read all Deployments, which matters now and then."""
        record = state.visits
        observed = await observe(
            client,
            duty.places,
            with_pods=self.rollout.is_judged(duty.guest.id),
            around=None if is_due else record.around,
        )
        record.around, record.releases = observed.around, record.mark_foreign(observed.releases)
        return replace(observed, releases=record.releases)

    async def _sync_config_map(
        self,
        duty: Duty,
        client: KubeClient,
        config_maps: tuple[Json, ...],
        in_use: InUseAddresses,
        observed: Observed | None,
    ) -> ConfigMapResult:
        async def may_write() -> bool:
            return duty.is_complete and await self.permits.may_write(duty.held)

        # What this guest cluster uses already stays: its former key had it, or a Service has it.
        in_conflict = {each for each in duty.in_conflict if in_use.carrier_of(each) is None}
        granted = frozenset(each for each in duty.granted if parse_address(each) not in in_conflict)
        namespace = choose_namespace(duty, observed, find_namespace(config_maps, duty.known))
        namespace = namespace or self.configuration.settings.kubevip_namespace
        writer = ConfigMapWriter(client=client, permit=may_write)
        keys = build_keys(duty.floating_ips, granted)
        result = await writer.sync(config_maps, namespace, keys, duty.known)
        if result.outcome in (Outcome.WRITTEN, Outcome.FAILED):
            count_event(
                self.guests, duty.guest, GuestEvent.CONFIG_MAP, success=result.outcome is Outcome.WRITTEN
            )
        return replace(result, overruled=find_overruled(duty.floating_ips, keys))

    async def _park(self, duty: Duty, client: KubeClient, observed: Observed) -> None:
        """Let Harvester's kube-vip make room for fipop's, or run again. Raises ApiError."""
        park = should_park(observed.kube_vip, removes=duty.removes)
        for each in find_harvester(observed.daemon_sets) if park is not None else ():
            if each.is_parked != park:
                fields = {"guest": duty.guest.id, "park": park}
                logger.info("Changing the kube-vip of Harvester", extra=fields)
                patch = build_patch(each, park=bool(park))
                await client.merge_patch(DAEMON_SETS, each.name, patch, namespace=each.namespace)

    # What follows from it

    def _enqueue_helm(
        self, state: GuestState, duty: Duty, steps: tuple[Step, ...], goal: ReleaseGoal
    ) -> None:
        target = goal.target.name if goal.target is not None else ""
        if not any(each.verb.needs_turn for each in steps):
            return
        is_back = goal.reason == "RolledBack" or goal.leaves is not None
        has_begun = self.rollout.is_judged(duty.guest.id) and (
            state.visits.began_target == target or any(each.release.made_for == target for each in steps)
        )
        is_new = any(each.release.is_missing for each in steps)
        # A new one that has one of its releases is finished before the next one.
        has_begun |= is_new and not all(each.is_missing for each in state.visits.releases)
        priority = Priority.NORMAL if is_new else Priority.BACKGROUND
        # Who goes back, or has a deadline, does not wait for hundreds that opted in at once.
        priority = Priority.URGENT if is_back or has_begun else priority
        rest = state.visits.rest_seconds(target)
        self.queues.add(Request(Key(INSTALL, "", duty.guest.id), priority, rest))

    def _judge(
        self,
        state: GuestState,
        duty: Duty,
        steps: tuple[Step, ...],
        goal: ReleaseGoal,
        unseen: FipopError | None,
    ) -> dict[Role, Finding]:
        if not duty.keeps:
            return {}
        if unseen is not None:
            return dict.fromkeys(Role, judge_unseen(unseen))
        settings = self.configuration.settings
        places = {each.role: (each.namespace, each.name) for each in find_places(settings, ())}
        unknown = settings.unknown_release_options
        return {
            each.release.role: judge_release(
                each,
                "OptionUnknown" if unknown else goal.reason_of(each.release),
                place=places[each.release.role],
                error=state.visits.find_error(each.release) if each.verb.needs_turn else None,
                problem=self.rollout.problem,
                waits=each.verb.needs_turn,
                held_up=describe_unknown_options(unknown) if unknown else self.rollout.held_up,
                is_taken_by_harvester=is_taken_by_harvester(each.release, state.visits.around or ()),
            )
            for each in steps
        }

    def _describe_failure(
        self, state: GuestState, duty: Duty, error: FipopError
    ) -> tuple[GuestObservation, float | None]:
        """Return what is known of a guest cluster that could not be visited, and when to try again."""
        guest, failures, is_new = duty.guest, state.visits.failures, self._is_provisioning(duty.guest)
        if isinstance(error, NotConnectedError):
            if is_new:
                return provisioning(installs=duty.keeps), None
            return unreachable("GuestDisconnected", str(error), installs=duty.keeps), None
        if isinstance(error, KubeconfigMissingError) and error.is_absent and is_new:
            return provisioning(installs=duty.keeps), SECRET_BACKOFF.step_seconds(failures)
        if not state.is_dropped:
            count_event(self.guests, guest, GuestEvent.API_CONNECTION, success=False)
        error = explain_refusal(error, workspace=guest.cluster.namespace, cluster_name=guest.cluster_name)
        fields = {"guest": guest.id, "cluster": guest.cluster_name, "error": str(error)}
        level = logging.WARNING if failures == 1 else logging.DEBUG
        logger.log(level, "Could not visit guest cluster", extra=fields)
        if not guest.provisioned and is_new:
            return provisioning(installs=duty.keeps), BOOT_SECONDS
        reason = "KubeconfigMissing" if isinstance(error, KubeconfigMissingError) else "GuestUnreachable"
        found = unreachable(reason, str(error), installs=duty.keeps)
        if isinstance(error, ConflictError):
            return found, SOON_SECONDS
        return found, self._retry_seconds(state, guest, error)

    def _seconds_until_next(
        self,
        state: GuestState,
        duty: Duty,
        written: ConfigMapResult,
        steps: tuple[Step, ...],
        trouble: FipopError | None,
    ) -> float | None:
        """Return when to come back, if that is sooner than the interval."""
        waits = [each.seconds for each in steps if each.verb is Verb.WAIT]
        unready = (each.release for each in steps if duty.keeps and each.release.problem)
        # Soon after a change often, later less and less. Without a release, helm has its visit.
        waits += [max(SOON_SECONDS, each.age_seconds / 2) for each in unready if each.revision]
        if self.rollout.is_judged(duty.guest.id) and not any(each.verb.needs_turn for each in steps):
            waits.append(JUDGED_SECONDS)
        if written.outcome is Outcome.WITHHELD or isinstance(trouble, ConflictError):
            waits.append(SOON_SECONDS)
        if trouble is None:
            state.visits.failures, state.visits.finished_at = 0, self._now().timestamp()
            return min(waits, default=None)
        state.visits.failures += 1
        retry = self._retry_seconds(state, duty.guest, trouble)
        return min([*waits, *([retry] if retry is not None else [])], default=None)

    def _retry_seconds(self, state: GuestState, guest: Guest, error: FipopError) -> float | None:
        """Return when to try again what failed; None at the interval: an API server refuses the very object."""
        if isinstance(error, ApiError) and error.is_lasting:
            return None
        return retry_delay_seconds(self._age_seconds(guest), state.visits.failures)

    # What is noted

    def _note_floating_ips(self, state: GuestState, guest_id: str) -> None:
        record, found = state.visits, self.guests.inventory.floating_ips_of(guest_id)
        if found:
            record.bare_since = None
        elif record.bare_since is None:
            record.bare_since = loop_time()
        if not any(each.status.addresses for each in found):
            # Nothing checks it any more: what was found last would be reported for good.
            record.observation = record.finished_at = None

    def _take(
        self, state: GuestState, guest_id: str, source: Source, began: datetime, found: InUseAddresses
    ) -> None:
        """Take in what was read wholly."""
        reports = self.guests.inventory.reports
        if self.guests.has_nothing(guest_id) or self.guests.state(guest_id) is not state:
            return
        news = reports.take(guest_id, source, began, found)
        self.queues.add(*request_users(self.guests.inventory, news))
        self.gate.note_answer()
        if reports.read_since(guest_id) is not None:
            self.queues.add(*map(request_reservation, self.guests.inventory.find_quarantined(guest_id)))
            self.gate.note_read(guest_id)

    def _note_unread(self, guest_id: str) -> None:
        if not self.guests.has_nothing(guest_id):  # it may be gone since the visit began
            self.guests.inventory.reports.note_unread(guest_id, self._now())

    def _note(self, state: GuestState, duty: Duty, observation: GuestObservation) -> None:
        if state.is_dropped:
            return
        if observation.reachable:
            count_event(self.guests, duty.guest, GuestEvent.API_CONNECTION, success=True)
        is_new = self._age_seconds(duty.guest) < FIRST_CONTACT_SECONDS
        if is_new and not observation.reachable and state.visits.observation is None:
            return  # its status is written when it is known
        if state.visits.observation != observation:
            state.visits.observation = observation
            floating_ips = self.guests.inventory.floating_ips_of(duty.guest.id)
            self.queues.add(*map(request_floating_ip, floating_ips))

    def _next(self, seconds: float | None) -> float:
        """Return the time to the next visit: spread, so that a fleet that started together does not stay together."""
        interval = float(self.configuration.settings.operate_guest_cluster_interval_seconds)
        return min(interval, seconds or interval) * self.random.uniform(0.9, 1.0)

    def _is_provisioning(self, guest: Guest) -> bool:
        """Whether a guest cluster is new, and no status tells of an answer or a fault of it."""
        was_tried = any(each.reachable is not None for each in self.guests.inventory.guest_statuses(guest.id))
        return self._age_seconds(guest) < PROVISIONING_SECONDS and not was_tried

    def _are_machines_due(self, state: GuestState, guest: Guest) -> bool:
        """Whether nodes, the API server and all Deployments are read: in the first hour, then hourly.

        And as long as a quarantine waits for that.
        """
        is_over = loop_time() - state.visits.machines_read_at >= MACHINES_SECONDS
        return is_over or self._is_young(guest) or bool(self.guests.inventory.find_quarantined(guest.id))

    def _is_young(self, guest: Guest) -> bool:
        return self._age_seconds(guest) < MACHINES_SECONDS

    def _age_seconds(self, guest: Guest) -> float:
        return (self._now() - guest.cluster.metadata.creation_timestamp).total_seconds()

    def _now(self) -> datetime:
        return self.guests.client.server_now()


@dataclass(slots=True)
class Troubles:
    """The parts of a visit that failed without ending it: `first` is the first one's error."""

    first: FipopError | None = None

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Go on after a failure."""
        try:
            yield
        except (ApiError, GuestError) as error:
            self.first = self.first or error


def _has_no_provider(releases: Iterable[Release]) -> bool:
    found = [each for each in releases if each.role is Role.CLOUD_PROVIDER]
    return bool(found) and found[0].status is Status.ABSENT
