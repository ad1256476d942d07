"""Visits of guest clusters: one at a time for each, many guest clusters at once, each with its own back-off."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from random import Random, SystemRandom

from fipop.boundary import loop_time
from fipop.errors import ApiError
from fipop.guest.guest_pass import GuestSessions
from fipop.guest.release_gate import ReleaseGate
from fipop.guest.reports import GuestTask, PassReport
from fipop.kube.resources import FLOATING_IPS
from fipop.metrics.exposition import Metrics
from fipop.metrics.samples import GuestEvent
from fipop.operator.addresses.waiting import request_floating_ips_of
from fipop.operator.configuration import Configuration
from fipop.operator.guests.departures import Departures
from fipop.operator.guests.kubeconfigs import KubeconfigMissingError, NotConnectedError, read_kubeconfig
from fipop.operator.guests.tasks import (
    GuestAddresses,
    WritePermits,
    collect_addresses,
    find_needs,
    judge_urgency,
    reported_releases,
)
from fipop.operator.queues import Event, Key, Kind, Request, WorkQueues, request_routine_visit, request_visit
from fipop.operator.rollout.controller import RolloutController
from fipop.rancher.discovery import retry_delay_seconds
from fipop.rancher.matching import Guest
from fipop.runtime.workqueue import RetryAfter
from fipop.state.guests import GuestDirectory, GuestState, PassSchedule, ReleaseRemoval
from fipop.state.observations import GuestObservation, observe, provisioning, unreachable

logger = logging.getLogger(__name__)

NEW_GUEST_SECONDS = 5.0
"""A status is written when it is known, not in steps on the way there."""
FIRST_PASS_SECONDS = 0.5
BUSY = RetryAfter(1.0)
"""How soon a pass is tried again if another one over the same guest cluster goes on."""
PROVISIONING_SECONDS = 3600.0
"""How long a new cluster may stay disconnected until that is a fault."""
LEAVING_SECONDS = 15.0
"""How soon a guest that is to be left is looked at again: it waits for others, or for people's confirmation."""
DEEP_CHECK_SECONDS = 3600.0


@dataclass(slots=True, kw_only=True)
class PassController:
    """Makes passes; the work queue brings the ids of the guests, the deadlines are those of the guest's session."""

    guests: GuestDirectory
    sessions: GuestSessions
    metrics: Metrics
    configuration: Configuration
    permits: WritePermits
    queues: WorkQueues
    rollout: RolloutController
    departures: Departures
    random: Random = field(default_factory=SystemRandom)

    def watches(self, event: Event) -> Iterator[Request]:
        """Yield the guest of a floating IP that asks for something else there now, or is gone: its keys are removed."""
        change = event.change
        if event.resource != FLOATING_IPS:
            return
        if change.new is None or find_needs(change.old) != find_needs(change.new):
            yield request_visit(change.latest.namespace)

    async def visit(self, guest_id: str, *, may_run_helm: bool = False) -> RetryAfter | None:
        """Make a pass, or note why there is none; the answer says when the next is due."""
        await self.queues.stand_back()
        if guest_id in self.guests.under_way:
            return BUSY
        self.guests.under_way[guest_id] = frozenset()
        try:
            return await self._visit(guest_id, may_run_helm=may_run_helm)
        finally:
            del self.guests.under_way[guest_id]

    async def install(self, guest_id: str) -> RetryAfter | None:
        """Make a pass that may run helm: all is decided again, as the guest may have waited for long."""
        again = await self.visit(guest_id, may_run_helm=True)
        if again is None or again is BUSY:
            return again
        self.queues.add(request_routine_visit(guest_id, again.seconds))
        return None

    async def _visit(self, guest_id: str, *, may_run_helm: bool) -> RetryAfter | None:
        state = self.guests.state(guest_id)
        guest = state.guest
        if guest is None:
            return None
        addresses = collect_addresses(self.guests.cache, guest)
        leaving = self.departures.is_leaving(guest)
        if self.configuration.settings.kubevip_guest_install.includes(opted_in=guest.cluster.opted_in):
            # Whatever becomes of this pass: a removal that was confirmed is over, and what is about to be installed is
            # not gone, whatever was seen before.
            state.removal = ReleaseRemoval()
        if not (addresses.floating_ips or addresses.retired or leaving):
            # Nothing checks it any more: what was found last would be reported for good.
            state.schedule, state.observation = PassSchedule(), None
            return None
        # Keys of several floating IPs are merged: where one of them is paused, all of its guest's stand still.
        if guest.cluster.paused or any(each.paused for each in addresses.floating_ips):
            self.departures.note(state, None)
            return None
        if state.schedule.deep_at is None:
            # The deep checks of a fleet are spread over their hour, also after a restart.
            state.schedule.deep_at = self._now() - self.random.uniform(0.0, DEEP_CHECK_SECONDS)
            if self._is_new(guest):
                # Its kubeconfig and its token come with it, one after the other.
                return RetryAfter(FIRST_PASS_SECONDS)
        task = self._build_task(state, guest, addresses, leaving=leaving, may_run_helm=may_run_helm)
        began = loop_time()
        observation, retry_seconds = await self._try(state, task)
        self.metrics.observe_pass(loop_time() - began, success=bool(observation.reachable))
        if observation.reachable or state.observation is not None or not self._is_new(guest):
            self._note(state, task, observation)
        else:
            # A new guest is not expected to be reachable, for a moment.
            retry_seconds = min(retry_seconds or NEW_GUEST_SECONDS, NEW_GUEST_SECONDS)
        return RetryAfter(self._next(retry_seconds))

    def _build_task(
        self,
        state: GuestState,
        guest: Guest,
        addresses: GuestAddresses,
        *,
        leaving: bool,
        may_run_helm: bool,
    ) -> GuestTask:
        settings = self.configuration.settings
        includes = settings.kubevip_guest_install.includes(opted_in=guest.cluster.opted_in)
        opted_in = bool(addresses.floating_ips) and includes
        gate = self.rollout.gate(guest) if opted_in else ReleaseGate()

        async def may_write() -> bool:
            return addresses.are_complete and await self.permits.may_write(addresses.held)

        return GuestTask(
            guest=guest,
            opted_in=opted_in,
            floating_ips=addresses.floating_ips,
            granted=addresses.granted,
            retired=addresses.retired,
            settings=settings if gate.aim is None else gate.aim.settings,
            before_write=may_write,
            gate=gate,
            on_helm=lambda: self.rollout.note_helm(state),
            leaving=leaving,
            may_run_helm=may_run_helm,
            reported=reported_releases(self.guests.cache, guest.id),
            memory=state.release_memory,
        )

    async def _try(self, state: GuestState, task: GuestTask) -> tuple[GuestObservation, float | None]:
        """Make a pass if the guest can be reached; return what is observed, and when to try again."""
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
            self._count(state, task, GuestEvent.API_CONNECTION, success=False)
            missing = unreachable("KubeconfigMissing", str(error), installs=task.opted_in)
            return missing, retry_delay_seconds(self._age_seconds(guest), state.schedule.failures)
        except ApiError:
            self.departures.note(state, None)  # other guest clusters do not wait for it
            raise
        may_remove = task.leaving and self.departures.may_remove(guest.id)
        return await self._pass_over(state, replace(task, kubeconfig=kubeconfig, may_remove=may_remove))

    async def _pass_over(self, state: GuestState, task: GuestTask) -> tuple[GuestObservation, float | None]:
        guest_id = task.guest.id
        deep = self._now() - (state.schedule.deep_at or 0.0) >= DEEP_CHECK_SECONDS

        def observe_now(report: PassReport) -> GuestObservation:
            return observe(report, task, self.permits.contested(guest_id))

        self.guests.under_way[guest_id] = task.granted
        report = await self.sessions.run_pass(
            task,
            deep=deep,
            is_known=state.observation is not None,
            # An address in the ConfigMap is reported before charts and helm are waited for.
            early=lambda report: self._note(state, task, observe_now(report)),
        )
        self._note_rollout(state, task, report)
        if task.leaving:
            self.departures.note(state, report.has_ours, awaits_helm=report.awaits_helm)
        if report.awaits_helm:
            self.queues.add(Request(Key(Kind.INSTALL, "", guest_id), judge_urgency(task, report)))
        retry = self._record(state, task, report, deep=deep)
        if task.leaving and report.has_ours:
            retry = min(retry or LEAVING_SECONDS, LEAVING_SECONDS)
        return observe_now(report), retry

    def _note_rollout(self, state: GuestState, task: GuestTask, report: PassReport | None) -> None:
        if task.opted_in:
            self.rollout.note(state, report)
        elif report is None:
            self.departures.note(state, None)

    def _record(self, state: GuestState, task: GuestTask, report: PassReport, *, deep: bool) -> float | None:
        """Count and log how a pass ended; return in how many seconds the next is due, None: at the interval."""
        guest, schedule = task.guest, state.schedule
        for event in report.events:
            self._count(state, task, event.event, success=event.success)
        retry_seconds = schedule_next(
            schedule,
            report,
            deep=deep,
            now=self.guests.client.server_now(),
            created=guest.cluster.meta.created,
        )
        if report.error is not None:
            fields = {"guest": guest.id, "cluster": guest.cluster_name, "error": str(report.error)}
            level = logging.WARNING if schedule.failures == 1 else logging.DEBUG
            logger.log(level, "Reconciliation of guest cluster failed", extra=fields)
        return retry_seconds

    def _note(self, state: GuestState, task: GuestTask, observation: GuestObservation) -> None:
        if state.observation != observation:
            state.observation = observation
            self.queues.add(*request_floating_ips_of(self.guests.cache, task.guest.id))

    def _next(self, retry_seconds: float | None) -> float:
        """Return the time to the next pass: spread, so that a fleet that started together does not stay together."""
        interval = float(self.configuration.settings.operate_guest_cluster_interval_seconds)
        if retry_seconds is not None:
            interval = min(interval, retry_seconds)
        return interval * self.random.uniform(0.9, 1.0)

    def _count(self, state: GuestState, task: GuestTask, event: GuestEvent, *, success: bool) -> None:
        if not state.is_dropped:
            harvester = task.guest.harvester_cluster_name or ""
            self.metrics.count_guest_event(task.guest.cluster_name, harvester, event, success)

    def _is_new(self, guest: Guest) -> bool:
        return self._age_seconds(guest) < NEW_GUEST_SECONDS

    def _is_provisioning(self, guest: Guest) -> bool:
        """Whether a disconnected guest is new, and no status tells of an answer or a fault of it."""
        was_tried = any(each.reachable is not None for each in self.guests.cache.guest_statuses(guest.id))
        return self._age_seconds(guest) < PROVISIONING_SECONDS and not was_tried

    def _age_seconds(self, guest: Guest) -> float:
        return (self.guests.client.server_now() - guest.cluster.meta.created).total_seconds()

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
    """Record how a pass ended; return in how many seconds the next is due, None: at the interval."""
    if deep and report.releases and report.checked:
        # Also when the pass failed: what fails for good would make every pass a deep one.
        schedule.deep_at = now.timestamp()
    schedule.failures = 0 if report.error is None else schedule.failures + 1
    if not report.mends_soon:
        schedule.finished_at = now.timestamp()
        return report.retry_after_seconds
    if report.retry_after_seconds is not None:
        return report.retry_after_seconds
    return retry_delay_seconds((now - created).total_seconds(), schedule.failures)
