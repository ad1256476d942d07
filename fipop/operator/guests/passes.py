"""Visits of guest clusters: one at a time for each, many guest clusters at once, each with its own back-off."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from random import Random
from typing import TypedDict

from fipop.backoff import Backoff
from fipop.boundary import loop_time
from fipop.errors import ApiError, FipopError, GuestError
from fipop.guest.errors import PassTimeoutError
from fipop.guest.guest_pass import GuestSessions
from fipop.guest.in_use import InUseAddresses, TooManyAddressesError
from fipop.guest.release_gate import ReleaseGate
from fipop.guest.reports import ConfigMapOutcome, GuestTask, PassReport
from fipop.kube.client import TIMEOUT
from fipop.kube.resources import FLOATING_IPS
from fipop.metrics.exposition import Metrics
from fipop.metrics.samples import GuestEvent
from fipop.operator.addresses.quarantine import QuarantineReconciler
from fipop.operator.configuration import Configuration
from fipop.operator.guests.kubeconfigs import KubeconfigMissingError, NotConnectedError, read_kubeconfig
from fipop.operator.guests.tasks import (
    GuestAddresses,
    WritePermits,
    collect_addresses,
    find_needs,
    is_leaving,
    judge_urgency,
    reported_releases,
)
from fipop.operator.queues import (
    Event,
    Key,
    Kind,
    Request,
    WorkQueues,
    request_floating_ip,
    request_routine_visit,
    request_visit,
)
from fipop.operator.rollout.controller import RolloutController
from fipop.rancher.discovery import retry_delay_seconds
from fipop.rancher.matching import Guest
from fipop.runtime.workqueue import RetryAfter
from fipop.state.gate import Gate
from fipop.state.guests import GuestDirectory, GuestState, PassSchedule
from fipop.state.observations import GuestObservation, observe, provisioning, unreachable
from fipop.state.reports import Source

logger = logging.getLogger(__name__)

NEW_GUEST_SECONDS = 5.0
"""A new guest cluster is not expected to be reachable at once; its status is written when it is known."""
BUSY = RetryAfter(1.0)
"""How soon a visit is tried again if another one of the same guest cluster goes on."""
PROVISIONING_SECONDS = 3600.0
"""How long Rancher may take to make a new guest cluster until that is a fault."""
BOOT_SECONDS = 15.0
"""How often a guest cluster is asked while Rancher makes it; the end of that is an event."""
SECRET_BACKOFF = Backoff(first_seconds=0.5, limit_seconds=BOOT_SECONDS)
"""Rancher writes the kubeconfig of a guest cluster 2 s after it connected at the latest."""
DEEP_CHECK_SECONDS = 3600.0
READ_RETRY_SECONDS = 5.0
"""When a guest cluster is read again that did not answer, while new addresses wait for it."""
BARE_SECONDS = 600.0
"""How long a guest cluster without a floating IP keeps the keys of fipop."""
MACHINES_SECONDS = 3600.0
"""How long a guest cluster counts as new, and how often its machines are read afterwards."""


class Hearing(TypedDict):
    """Who hears what is read in a guest cluster."""

    on_objects: Callable[[InUseAddresses], None]
    on_machines: Callable[[InUseAddresses], None] | None


@dataclass(slots=True, kw_only=True)
class PassController:
    """Makes visits; the work queue brings the ids of the guests, the deadlines are those of the guest's session."""

    guests: GuestDirectory
    sessions: GuestSessions
    metrics: Metrics
    configuration: Configuration
    permits: WritePermits
    queues: WorkQueues
    rollout: RolloutController
    gate: Gate
    quarantine: QuarantineReconciler
    random: Random
    _under_way: set[str] = field(default_factory=set)

    def watches(self, event: Event) -> Iterator[Request]:
        """Yield the guest of a floating IP that asks for something else there now, or is gone: its keys are removed."""
        change = event.change
        if event.resource != FLOATING_IPS:
            return
        if change.new is None or find_needs(change.old) != find_needs(change.new):
            yield request_visit(change.latest.namespace)

    async def visit(self, guest_id: str, *, may_run_helm: bool = False) -> RetryAfter | None:
        """Make a visit, or note why there is none; the answer says when the next is due."""
        if guest_id in self._under_way:
            return BUSY
        self._under_way.add(guest_id)
        try:
            if not self.gate.is_open:
                return await self._read(guest_id)
            return await self._visit(guest_id, may_run_helm=may_run_helm)
        finally:
            self._under_way.discard(guest_id)

    async def install(self, guest_id: str) -> RetryAfter | None:
        """Make a visit that may run helm: all is decided again, as the guest may have waited for long."""
        again = await self.visit(guest_id, may_run_helm=True)
        if again is None or again is BUSY:
            return again
        self.queues.add(request_routine_visit(guest_id, again.seconds))
        return None

    async def _read(self, guest_id: str) -> RetryAfter | None:
        """Read which addresses a guest cluster uses, and nothing else; return when the next visit is due."""
        if not self.guests.exists(guest_id):
            self.gate.note_gone(guest_id)
            return None
        guest = self.guests.known(guest_id) or self.guests.glimpse(guest_id, of_any_kind=True)
        if guest is None or not self.guests.is_readable(guest_id):
            self._note_unread(guest_id)
            self.gate.note_gone(guest_id)
            return RetryAfter(self._next(None))
        self.gate.note_begun(guest_id)
        began = self.guests.client.server_now()
        try:
            kubeconfig = await read_kubeconfig(self.guests.client, guest)
            await self.sessions.look(
                guest_id, kubeconfig, **self._hear(self.guests.state(guest_id), guest, began)
            )
        except FipopError as error:
            self._note_unread(guest_id)
            logger.info("Could not read guest cluster", extra={"guest": guest_id, "error": str(error)})
            if isinstance(error, PassTimeoutError) or (
                isinstance(error, ApiError) and (error.status or error.reason == TIMEOUT)
            ):
                self.gate.note_answer()  # one that hangs refuses nothing
            elif isinstance(error, GuestError) and not isinstance(error, TooManyAddressesError):
                self.gate.note_gone(guest_id)
            return RetryAfter(READ_RETRY_SECONDS if self.gate.waits_for(guest_id) else self._next(None))
        return RetryAfter(self._next(None))

    async def _visit(self, guest_id: str, *, may_run_helm: bool) -> RetryAfter | None:
        state = self.guests.state(guest_id)
        guest = state.guest
        if guest is None:
            return await self._read(guest_id)
        addresses = collect_addresses(self.guests.cache, guest)
        if self.guests.cache.floating_ips_of(guest_id):
            state.bare_since = None
        elif state.bare_since is None:
            state.bare_since = loop_time()
        needs_work = (
            addresses.floating_ips
            or addresses.retired
            or self._has_old_keys(state, guest_id)
            or is_leaving(guest, self.configuration.settings)
        )
        if not needs_work:
            # Nothing checks it any more: what was found last would be reported for good.
            state.schedule, state.observation = PassSchedule(), None
        # Keys of several floating IPs are merged: if one of them is paused, all of its guest cluster stand still.
        if not needs_work or guest.cluster.paused or any(each.paused for each in addresses.floating_ips):
            return await self._read(guest_id)
        if state.schedule.deep_at is None:
            # The deep checks of a fleet are spread over their hour, also after a restart.
            state.schedule.deep_at = self._now() - self.random.uniform(0.0, DEEP_CHECK_SECONDS)
        task, began = self._build_task(state, guest, addresses, may_run_helm=may_run_helm), loop_time()
        observation, retry_seconds = await self._try(state, task)
        if not observation.reachable:
            self._note_unread(guest_id)
        self.metrics.observe_pass(loop_time() - began, success=bool(observation.reachable))
        is_new = self._age_seconds(guest) < NEW_GUEST_SECONDS
        if is_new and not observation.reachable:
            retry_seconds = min(retry_seconds or NEW_GUEST_SECONDS, NEW_GUEST_SECONDS)
        if observation.reachable or state.observation is not None or not is_new:
            self._note(state, task, observation)
        return RetryAfter(self._next(retry_seconds))

    def _build_task(
        self, state: GuestState, guest: Guest, addresses: GuestAddresses, *, may_run_helm: bool
    ) -> GuestTask:
        settings = self.configuration.settings
        includes = settings.kubevip_guest_install.includes(opted_in=guest.cluster.opted_in)
        leaving = is_leaving(guest, settings)
        opted_in = bool(addresses.floating_ips) and includes and not leaving
        gate = self.rollout.gate(guest) if opted_in else ReleaseGate()
        began = self.guests.client.server_now()

        async def may_write() -> bool:
            return addresses.are_complete and await self.permits.may_write(addresses.held)

        return GuestTask(
            guest=guest,
            opted_in=opted_in,
            floating_ips=addresses.floating_ips,
            granted=addresses.granted,
            retired=addresses.retired,
            withheld=self.permits.find_withheld(addresses),
            frozen=addresses.frozen,
            settings=settings if gate.aim is None else gate.aim.settings,
            before_write=may_write,
            gate=gate,
            **self._hear(state, guest, began),
            on_helm=lambda: self.rollout.note_helm(state),
            leaving=leaving,
            may_remove=leaving,
            may_run_helm=may_run_helm,
            reported=reported_releases(self.guests.cache, guest.id),
            memory=state.release_memory,
        )

    async def _try(self, state: GuestState, task: GuestTask) -> tuple[GuestObservation, float | None]:
        """Make a visit if the guest can be reached; return what is observed, and when to try again."""
        guest = task.guest
        try:
            kubeconfig = await read_kubeconfig(self.guests.client, guest)
        except NotConnectedError as error:
            self._note_rollout(state, task, None)
            if self._is_provisioning(guest):
                return provisioning(installs=task.opted_in), None
            return unreachable("GuestDisconnected", str(error), installs=task.opted_in), None
        except KubeconfigMissingError as error:
            state.schedule.failures += 1
            self._note_rollout(state, task, None)
            if error.is_absent and self._is_provisioning(guest):
                seconds = SECRET_BACKOFF.step_seconds(state.schedule.failures)
                return provisioning(installs=task.opted_in), seconds
            self._count(state, task, GuestEvent.API_CONNECTION, success=False)
            missing = unreachable("KubeconfigMissing", str(error), installs=task.opted_in)
            return missing, retry_delay_seconds(self._age_seconds(guest), state.schedule.failures)
        return await self._run(state, replace(task, kubeconfig=kubeconfig))

    async def _run(self, state: GuestState, task: GuestTask) -> tuple[GuestObservation, float | None]:
        guest_id = task.guest.id
        deep = self._now() - (state.schedule.deep_at or 0.0) >= DEEP_CHECK_SECONDS

        report = await self.sessions.run_pass(
            task,
            deep=deep,
            is_known=state.observation is not None,
            # An address in the ConfigMap is reported before charts and helm are waited for.
            early=lambda report: self._note(state, task, observe(report, task)),
        )
        self._note_rollout(state, task, report)
        if report.awaits_helm:
            self.queues.add(Request(Key(Kind.INSTALL, "", guest_id), judge_urgency(task, report)))
        retry_seconds = self._record(state, task, report, deep=deep)
        is_configured = report.config_map.outcome not in {ConfigMapOutcome.NOT_TRIED, ConfigMapOutcome.FAILED}
        if not (task.guest.provisioned or is_configured) and self._is_provisioning(task.guest):
            return provisioning(installs=task.opted_in), BOOT_SECONDS
        return observe(report, task), retry_seconds

    def _hear(self, state: GuestState, guest: Guest, began: datetime) -> Hearing:
        """Return who takes in what a visit reads: nodes and the API server are not always due."""
        is_due = loop_time() - state.machines_read_at >= MACHINES_SECONDS
        is_young = self._age_seconds(guest) < MACHINES_SECONDS
        may_end = any(self.quarantine.find_quarantined(guest.id))
        machines = partial(self._take, guest.id, Source.MACHINES, began)
        return {
            "on_objects": partial(self._take, guest.id, Source.OBJECTS, began),
            "on_machines": machines if is_due or is_young or may_end else None,
        }

    def _take(self, guest_id: str, source: Source, began: datetime, found: InUseAddresses) -> None:
        """Take in what was read wholly."""
        state, reports = self.guests.state(guest_id), self.guests.cache.ledger.reports
        if self.guests.has_nothing(guest_id):
            return
        reports.take(guest_id, source, began, found)
        if source is Source.MACHINES:
            state.machines_read_at = loop_time()
        self.gate.note_answer()
        if reports.read_since(guest_id) is not None:
            state.unread_since = None
            self.queues.add(*self.quarantine.request_quarantined(guest_id))
            self.gate.note_read(guest_id)

    def _has_old_keys(self, state: GuestState, guest_id: str) -> bool:
        """Whether a guest cluster has been without a floating IP for so long that it loses the keys of fipop."""
        is_bare = state.bare_since is not None and loop_time() - state.bare_since >= BARE_SECONDS
        return is_bare and bool(self.guests.cache.ledger.reports.find_ours(guest_id))

    def _note_unread(self, guest_id: str) -> None:
        state = self.guests.state(guest_id)
        state.unread_since = state.unread_since or self.guests.client.server_now()

    def _note_rollout(self, state: GuestState, task: GuestTask, report: PassReport | None) -> None:
        if task.opted_in:
            self.rollout.note(state, report)

    def _record(self, state: GuestState, task: GuestTask, report: PassReport, *, deep: bool) -> float | None:
        """Count and log how a visit ended; return in how many seconds the next is due, None: at the interval."""
        guest, schedule = task.guest, state.schedule
        for event in report.events:
            self._count(state, task, event.event, success=event.success)
        retry_seconds = schedule_next(
            schedule,
            report,
            deep=deep,
            now=self.guests.client.server_now(),
            created=guest.cluster.created,
        )
        if report.error is not None:
            fields = {"guest": guest.id, "cluster": guest.cluster_name, "error": str(report.error)}
            level = logging.WARNING if schedule.failures == 1 else logging.DEBUG
            logger.log(level, "Reconciliation of guest cluster failed", extra=fields)
        return retry_seconds

    def _note(self, state: GuestState, task: GuestTask, observation: GuestObservation) -> None:
        if state.observation != observation:
            state.observation = observation
            self.queues.add(*map(request_floating_ip, self.guests.cache.floating_ips_of(task.guest.id)))

    def _next(self, retry_seconds: float | None) -> float:
        """Return the time to the next visit: spread, so that a fleet that started together does not stay together."""
        interval = float(self.configuration.settings.operate_guest_cluster_interval_seconds)
        if retry_seconds is not None:
            interval = min(interval, retry_seconds)
        return interval * self.random.uniform(0.9, 1.0)

    def _count(self, state: GuestState, task: GuestTask, event: GuestEvent, *, success: bool) -> None:
        if not state.is_dropped:
            harvester = task.guest.harvester_cluster_name or ""
            self.metrics.count_guest_event(task.guest.cluster_name, harvester, event, success)

    def _is_provisioning(self, guest: Guest) -> bool:
        """Whether a guest cluster is new, and no status tells of an answer or a fault of it."""
        was_tried = any(each.reachable is not None for each in self.guests.cache.guest_statuses(guest.id))
        return self._age_seconds(guest) < PROVISIONING_SECONDS and not was_tried

    def _age_seconds(self, guest: Guest) -> float:
        return (self.guests.client.server_now() - guest.cluster.created).total_seconds()

    def _now(self) -> float:
        return self.guests.client.server_now().timestamp()


def schedule_next(
    schedule: PassSchedule,
    report: PassReport,
    *,
    deep: bool,
    now: datetime,
    created: datetime,
) -> float | None:
    """Record how a visit ended; return in how many seconds the next is due, None: at the interval."""
    if deep and report.releases and report.checked:
        # Also when the visit failed: what fails for good would make every visit a deep one.
        schedule.deep_at = now.timestamp()
    schedule.failures = 0 if report.error is None else schedule.failures + 1
    if not report.mends_soon:
        schedule.finished_at = now.timestamp()
        return report.retry_after_seconds
    if report.retry_after_seconds is not None:
        return report.retry_after_seconds
    return retry_delay_seconds((now - created).total_seconds(), schedule.failures)
