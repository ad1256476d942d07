"""Visits of guest clusters: one at a time for each, many guest clusters at once, each with its own back-off."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from random import SystemRandom

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
"""How long a new cluster may stay disconnected until that is a fault (J10)."""
LEAVING_SECONDS = 15.0
"""How soon a guest that is to be left is looked at again: it waits for others, or for people's confirmation."""
DEEP_CHECK_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Visit:
    """One pass over a guest cluster, by what was known when it began."""

    state: GuestState
    schedule: PassSchedule
    guest: Guest
    addresses: GuestAddresses
    installs: bool
    """Whether fipop keeps releases there."""
    leaving: bool
    """Whether it is to have none of fipop's releases any more."""
    may_run_helm: bool


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
    _random: SystemRandom = field(default_factory=SystemRandom)

    def watches(self, event: Event) -> Iterator[Request]:
        """Yield the guest of a floating IP that is gone: its keys are to be taken out of the guest."""
        if event.resource == FLOATING_IPS and event.change.new is None:
            yield request_visit(event.change.latest.namespace)

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

    def resume_held_up(self) -> None:
        """Request passes over guests that were not written because of guests that had not answered yet."""
        for guest_id, state in self.guests.states():
            if state.is_held_up:
                state.is_held_up = False
                self.queues.add(request_visit(guest_id))

    async def _visit(self, guest_id: str, *, may_run_helm: bool) -> RetryAfter | None:
        state = self.guests.state(guest_id)
        guest = state.guest
        if guest is None:
            return None
        addresses = collect_addresses(self.guests.cache, guest)
        leaving = self.departures.is_leaving(guest)
        if not (addresses.floating_ips or addresses.retired or leaving):
            # Nothing checks it any more: what was found last would be reported for good.
            state.schedule = state.observation = None
            return None
        # Keys of several floating IPs are merged: where one of them is paused, all of its guest's stand still.
        if guest.cluster.paused or any(each.paused for each in addresses.floating_ips):
            self.departures.note(state.removal, None)
            return None
        if state.schedule is None:
            # The deep checks of a fleet are spread over their hour, also after a restart.
            spread = self._random.uniform(0.0, DEEP_CHECK_SECONDS)
            state.schedule = PassSchedule(deep_at=time.monotonic() - spread)
            if self._is_new(guest):
                # Its kubeconfig and its token come with it, one after the other.
                return RetryAfter(FIRST_PASS_SECONDS)
        install = self.configuration.settings.kubevip_guest_install
        visit = _Visit(
            state=state,
            schedule=state.schedule,
            guest=guest,
            addresses=addresses,
            installs=bool(addresses.floating_ips) and install.includes(opted_in=guest.cluster.opted_in),
            leaving=leaving,
            may_run_helm=may_run_helm,
        )
        began = time.monotonic()
        observation, retry_seconds = await self._try(visit)
        self.metrics.observe_pass(time.monotonic() - began, success=bool(observation.reachable))
        if observation.reachable or state.observation is not None or not self._is_new(guest):
            self._note(visit, observation)
        else:
            # A new guest is not expected to be reachable, for a moment.
            retry_seconds = min(retry_seconds or NEW_GUEST_SECONDS, NEW_GUEST_SECONDS)
        return RetryAfter(self._next(retry_seconds))

    async def _try(self, visit: _Visit) -> tuple[GuestObservation, float | None]:
        """Make a pass if the guest can be reached; return what is observed, and when to try again."""
        guest, installs = visit.guest, visit.installs
        try:
            kubeconfig = await read_kubeconfig(self.guests.client, guest)
        except NotConnectedError as error:
            self._note_rollout(visit, None)
            if self._is_provisioning(guest):
                return provisioning(installs=installs), None
            return unreachable("GuestDisconnected", str(error), installs=installs), None
        except KubeconfigMissingError as error:
            visit.schedule.failures += 1
            self._note_rollout(visit, None)
            self._count(visit, GuestEvent.API_CONNECTION, success=False)
            missing = unreachable("KubeconfigMissing", str(error), installs=installs)
            return missing, retry_delay_seconds(self._age_seconds(guest), visit.schedule.failures)
        return await self._pass_over(visit, kubeconfig)

    async def _pass_over(self, visit: _Visit, kubeconfig: bytes) -> tuple[GuestObservation, float | None]:
        state = visit.state
        deep = time.monotonic() - visit.schedule.deep_at >= DEEP_CHECK_SECONDS
        task = self._build_task(visit, kubeconfig)
        if task.opted_in:
            # Not only when the pass ends: what it is about to install is not gone, whatever was seen before.
            state.removal = ReleaseRemoval()
        self.guests.under_way[task.guest_id] = task.granted
        report = await self.sessions.run_pass(
            task,
            deep=deep,
            is_known=state.observation is not None,
            # An address in the ConfigMap is reported before charts and helm are waited for.
            early=lambda report: self._note(visit, self._observe(visit, task, report)),
            may_run_helm=visit.may_run_helm,
        )
        self._note_rollout(visit, report)
        if task.leaving:
            self.departures.note(state.removal, report.has_ours)
        if report.awaits_helm:
            self.queues.add(Request(Key(Kind.INSTALL, "", task.guest_id), judge_urgency(task, report)))
        retry = self._record(visit, report, deep=deep)
        if task.leaving and report.has_ours:
            retry = min(retry or LEAVING_SECONDS, LEAVING_SECONDS)
        return self._observe(visit, task, report), retry

    def _build_task(self, visit: _Visit, kubeconfig: bytes) -> GuestTask:
        state, guest, addresses = visit.state, visit.guest, visit.addresses
        settings = self.configuration.settings
        gate = self.rollout.gate(guest) if visit.installs else ReleaseGate()

        async def may_write() -> bool:
            return addresses.are_complete and await self.permits.may_write(state, addresses.held)

        return GuestTask(
            guest_id=guest.id,
            cluster_name=guest.cluster_name,
            kubeconfig=kubeconfig,
            opted_in=visit.installs,
            wanted=addresses.wanted(),
            granted=addresses.granted,
            retired=addresses.retired,
            settings=settings if gate.aim is None else gate.aim.settings,
            before_write=may_write,
            gate=gate,
            on_helm=lambda: self.rollout.note_helm(state),
            leaving=visit.leaving,
            may_remove=visit.leaving and self.departures.may_remove(guest.id),
            reported=reported_releases(self.guests.cache, guest.id),
            memory=state.release_memory,
        )

    def _observe(self, visit: _Visit, task: GuestTask, report: PassReport) -> GuestObservation:
        return observe(
            report,
            {each.meta.key: each.status.addresses for each in visit.addresses.floating_ips},
            installs=task.opted_in,
            contested=self.permits.contested(task.guest_id),
            unknown_options=task.settings.unknown_options,
            unreadable=task.gate.unreadable,
        )

    def _note_rollout(self, visit: _Visit, report: PassReport | None) -> None:
        if visit.installs:
            self.rollout.note(visit.state, report)
        elif report is None:
            self.departures.note(visit.state.removal, None)

    def _record(self, visit: _Visit, report: PassReport, *, deep: bool) -> float | None:
        """Count and log how a pass ended; return in how many seconds the next is due, None: at the interval."""
        guest, schedule = visit.guest, visit.schedule
        for event in report.events:
            self._count(visit, event.event, success=event.success)
        retry_seconds = schedule_next(
            schedule,
            report,
            deep=deep,
            now=self.guests.client.server_now(),
            monotonic=time.monotonic(),
            created=guest.cluster.meta.created,
        )
        if report.error is not None:
            fields = {"guest": guest.id, "cluster": guest.cluster_name, "error": str(report.error)}
            level = logging.WARNING if schedule.failures == 1 else logging.DEBUG
            logger.log(level, "Reconciliation of guest cluster failed", extra=fields)
        return retry_seconds

    def _note(self, visit: _Visit, observation: GuestObservation) -> None:
        if visit.state.observation != observation:
            visit.state.observation = observation
            self.queues.add(*request_floating_ips_of(self.guests.cache, visit.guest.id))

    def _next(self, retry_seconds: float | None) -> float:
        """Return the time to the next pass: spread, so that a fleet that started together does not stay together."""
        interval = float(self.configuration.settings.operate_guest_cluster_interval_seconds)
        if retry_seconds is not None:
            interval = min(interval, retry_seconds)
        return interval * self._random.uniform(0.9, 1.0)

    def _count(self, visit: _Visit, event: GuestEvent, *, success: bool) -> None:
        if not visit.state.is_dropped:
            harvester = visit.guest.harvester_cluster_name or ""
            self.metrics.count_guest_event(visit.guest.cluster_name, harvester, event, success)

    def _is_new(self, guest: Guest) -> bool:
        return self._age_seconds(guest) < NEW_GUEST_SECONDS

    def _is_provisioning(self, guest: Guest) -> bool:
        """Whether a disconnected guest is new, and no status tells of an answer or a fault of it."""
        statuses = (each.status.guest for each in self.guests.cache.floating_ips_of(guest.id))
        was_tried = any(each is not None and each.reachable is not None for each in statuses)
        return self._age_seconds(guest) < PROVISIONING_SECONDS and not was_tried

    def _age_seconds(self, guest: Guest) -> float:
        return (self.guests.client.server_now() - guest.cluster.meta.created).total_seconds()


def schedule_next(
    schedule: PassSchedule,
    report: PassReport,
    *,
    deep: bool,
    now: datetime,
    monotonic: float,
    created: datetime,
) -> float | None:
    """Record how a pass ended; return in how many seconds the next is due, None: at the interval."""
    if deep and report.releases and report.checked:
        # Also when the pass failed: what fails for good would make every pass a deep one.
        schedule.deep_at = monotonic
    schedule.failures = 0 if report.error is None else schedule.failures + 1
    if not report.mends_soon:
        schedule.finished_at = now.timestamp()
        return report.retry_after_seconds
    if report.retry_after_seconds is not None:
        return report.retry_after_seconds
    return retry_delay_seconds((now - created).total_seconds(), schedule.failures)
