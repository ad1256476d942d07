"""Passes over the guests: one after the other for each guest, many guests at once, each by itself when it fails."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Protocol

from fipop.api.models import FloatingIP, Reservation
from fipop.errors import PASSING_ERRORS
from fipop.guest.guest_pass import GuestSessions
from fipop.guest.release_gate import ReleaseGate
from fipop.guest.reports import GuestTask, PassReport
from fipop.ipam.addresses import format_address
from fipop.kube.client import KubeClient
from fipop.metrics.exposition import Metrics
from fipop.metrics.samples import GuestEvent
from fipop.operator.addresses.reservations import ReservationStore
from fipop.operator.addresses.values import address_of
from fipop.operator.guests.departures import Departures
from fipop.operator.guests.kubeconfigs import KubeconfigMissingError, NotConnectedError, read_kubeconfig
from fipop.operator.guests.reported import ReportedAddresses
from fipop.operator.guests.schedules import DEEP_CHECK_SECONDS, PassSchedule
from fipop.operator.guests.tasks import (
    build_wanted,
    judge_urgency,
    reported_releases,
    served_floating_ips,
    text_of,
)
from fipop.rancher.discovery import retry_delay_seconds
from fipop.rancher.matching import Guest
from fipop.runtime.workqueue import Priority, RetryAfter
from fipop.settings.options import Settings
from fipop.state.cache import BY_OWNER_NAMESPACE, ClusterCache
from fipop.state.gate import AllocationGate
from fipop.state.guests import GuestDirectory
from fipop.state.observations import GuestObservation, observe, provisioning, unreachable

logger = logging.getLogger(__name__)

NEW_GUEST_SECONDS = 5.0
"""A status is written when it is known, not in steps on the way there."""
FIRST_PASS_SECONDS = 0.5
PROVISIONING_SECONDS = 3600.0
"""How long a new cluster may stay disconnected until that is a fault (J10)."""
LEAVING_SECONDS = 15.0
"""How soon a guest that is to be left is looked at again: it waits for others, or for people's confirmation."""


class PassRequests(Protocol):
    """What a pass asks for."""

    def add_pass(self, guest_id: str) -> None:
        """Want a pass before all that are only due again."""

    def add_pass_later(self, guest_id: str, seconds: float) -> None:
        """Want a pass in a while."""

    def add_install(self, guest_id: str, priority: Priority) -> None:
        """Want a pass that may run helm, when its turn comes."""

    async def stand_back(self) -> None:
        """Wait while floating IPs wait for an address: those come first."""

    def add_guest_floating_ips(self, guest_id: str) -> None:
        """Want rounds over the floating IPs of a guest: their statuses tell what was found."""


class Rollout(Protocol):
    """Who knows what may be done about the releases of a guest, and is told what was found."""

    def gate(self, guest: Guest) -> ReleaseGate:
        """Return what may be done about a guest's releases now."""

    def note(self, guest_id: str, report: PassReport | None) -> None:
        """Take in how a pass ended; None: there could be none."""

    def note_helm(self, guest_id: str) -> None:
        """Take in that helm begins to change a release of a guest."""


@dataclass(slots=True, kw_only=True)
class PassController:
    """Makes passes; the work queue brings the ids of the guests, the deadlines are those of the guest's session.

    `leads` tells whether this replica leads for as long as a write may take; `gate` and `conflicts` what guests were
    seen to carry.
    """

    client: KubeClient
    cache: ClusterCache
    guests: GuestDirectory
    sessions: GuestSessions
    metrics: Metrics
    settings: Callable[[], Settings]
    leads: Callable[[], bool]
    reservation_store: ReservationStore
    gate: AllocationGate
    reported: ReportedAddresses
    requests: PassRequests
    rollout: Rollout
    departures: Departures
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    random: Random
    _schedules: dict[str, PassSchedule] = field(default_factory=dict)
    _held_up: set[str] = field(default_factory=set)
    _visited: dict[str, set[Callable[[str], None]]] = field(default_factory=dict)
    """The guests that a pass goes on over, and what was asked for meanwhile."""

    def held_up(self) -> frozenset[str]:
        """Return the guests that were not written because of guests that had not answered yet, and forget them."""
        held_up, self._held_up = frozenset(self._held_up), set()
        return held_up

    async def visit(self, guest_id: str) -> RetryAfter | None:
        """Make a pass without helm, or note why there is none; the answer says when the next is due."""
        await self.requests.stand_back()
        return await self._visit_alone(guest_id, may_run_helm=False)

    async def install(self, guest_id: str) -> None:
        """Make a pass that may run helm: all is decided anew, as the guest may have waited for long."""
        await self.requests.stand_back()
        again = await self._visit_alone(guest_id, may_run_helm=True)
        if again is not None:
            self.requests.add_pass_later(guest_id, again.seconds)

    async def _visit_alone(self, guest_id: str, *, may_run_helm: bool) -> RetryAfter | None:
        """Make a pass, unless another one over the same guest goes on: then that comes after it."""
        requests = self.requests
        ask_again = self._install_again if may_run_helm else requests.add_pass
        if guest_id in self._visited:
            self._visited[guest_id].add(ask_again)
            return None
        self._visited[guest_id] = set()
        try:
            return await self._visit(guest_id, may_run_helm=may_run_helm)
        finally:
            for ask in self._visited.pop(guest_id):
                ask(guest_id)

    def _install_again(self, guest_id: str) -> None:
        self.requests.add_install(guest_id, Priority.NORMAL)

    async def _visit(self, guest_id: str, *, may_run_helm: bool) -> RetryAfter | None:
        guest = self.guests.known(guest_id)
        if guest is None:
            self.forget(guest_id)
            return None
        floating_ips = served_floating_ips(self.cache, guest)
        retired = self._retired(guest_id)
        leaving = self.departures.is_leaving(guest)
        if not (floating_ips or retired or leaving):
            # Nobody looks at it any more: what was found last would be told for good.
            self._schedules.pop(guest_id, None)
            self.guests.forget_observation(guest_id)
            return None
        # Keys of several floating IPs are merged: where one of them is paused, all of its guest's stand still.
        if guest.paused or any(each.paused for each in floating_ips):
            self.departures.note(guest_id, None)
            return None
        schedule = self._schedules.get(guest_id)
        if schedule is None:
            # The deep checks of a fleet are spread over their hour, also after a restart.
            spread = self.random.uniform(0.0, DEEP_CHECK_SECONDS)
            schedule = self._schedules[guest_id] = PassSchedule(deep_at=self.monotonic() - spread)
            if self._is_new(guest):
                # Its kubeconfig and its token come with it, one after the other.
                return RetryAfter(FIRST_PASS_SECONDS)
        began = self.monotonic()
        observation, retry_seconds = await self._try(
            guest, floating_ips, retired, schedule, may_run_helm=may_run_helm
        )
        self.metrics.observe_pass(self.monotonic() - began, success=bool(observation.reachable))
        if self.guests.known(guest_id) is None:
            # It went while it was looked at, and what was noted meanwhile goes after it.
            self.metrics.forget_guest(guest.cluster_name)
            self.forget(guest_id)
            return None
        if not (observation.reachable or self._is_told(guest)):
            return RetryAfter(self._next(min(retry_seconds or NEW_GUEST_SECONDS, NEW_GUEST_SECONDS)))
        self._note(guest_id, observation)
        return RetryAfter(self._next(retry_seconds))

    def _is_told(self, guest: Guest) -> bool:
        """Whether it is told that a guest cannot be reached: a new one is not expected to be, for a moment."""
        return not self._is_new(guest) or self.guests.observation(guest.id) is not None

    def _is_new(self, guest: Guest) -> bool:
        return self._age_seconds(guest) < NEW_GUEST_SECONDS

    def _is_provisioning(self, guest: Guest) -> bool:
        """Whether a disconnected guest is new, and no status tells of an answer or a fault of it."""
        statuses = (each.status.guest for each in self.cache.floating_ips_of(guest.id))
        was_tried = any(each is not None and each.reachable is not None for each in statuses)
        return self._age_seconds(guest) < PROVISIONING_SECONDS and not was_tried

    def _age_seconds(self, guest: Guest) -> float:
        return (self.now() - guest.created).total_seconds()

    def last_pass_at(self, guest_id: str) -> float | None:
        """Return the Unix time of the last whole pass; None before it."""
        schedule = self._schedules.get(guest_id)
        return schedule.finished_at if schedule is not None else None

    async def _try(
        self,
        guest: Guest,
        floating_ips: list[FloatingIP],
        retired: frozenset[str],
        schedule: PassSchedule,
        *,
        may_run_helm: bool,
    ) -> tuple[GuestObservation, float | None]:
        """Make a pass over a guest that can be reached; say what is observed, and when it is to be tried again."""
        installing = self._installs(guest, floating_ips)
        try:
            kubeconfig = await read_kubeconfig(self.client, guest)
        except NotConnectedError as error:
            self._note_rollout(guest, None, installing=installing)
            if self._is_provisioning(guest):
                return provisioning(installs=installing), None
            return unreachable("GuestDisconnected", str(error), installs=installing), None
        except KubeconfigMissingError as error:
            schedule.failures += 1
            self._note_rollout(guest, None, installing=installing)
            self._count(guest, GuestEvent.API_CONNECTION, success=False)
            missing = unreachable("KubeconfigMissing", str(error), installs=installing)
            return missing, retry_delay_seconds(self._age_seconds(guest), schedule.failures)
        deep = self.monotonic() - schedule.deep_at >= DEEP_CHECK_SECONDS
        task = self._task(guest, floating_ips, retired, kubeconfig)
        served = {each.meta.key: each.status.addresses for each in floating_ips}
        unknown = task.settings.unknown_options
        if task.opted_in:
            # Not only when the pass ends: what it is about to install is not gone, whatever was seen before.
            self.departures.forget(guest.id)
        with self.reported.visit_under_way(guest.id, task.granted):
            report = await self.sessions.run_pass(
                # An address in the ConfigMap is told before charts and helm are waited for.
                task,
                deep=deep,
                is_known=self.guests.observation(guest.id) is not None,
                early=lambda report: self._note(
                    guest.id, observe(report, served, installs=task.opted_in, unknown_options=unknown)
                ),
                may_run_helm=may_run_helm,
            )
        self._follow_up(guest, task, report)
        retry = self._record(guest, report, schedule, deep=deep)
        if task.leaving and report.has_ours:
            retry = min(retry or LEAVING_SECONDS, LEAVING_SECONDS)
        contested = self._contested(guest.id)
        observation = observe(
            report, served, installs=task.opted_in, contested=contested, unknown_options=unknown
        )
        return observation, retry

    def _installs(self, guest: Guest, floating_ips: list[FloatingIP]) -> bool:
        install = self.settings().kubevip_guest_install
        return bool(floating_ips) and install.includes(opted_in=guest.opted_in)

    def _follow_up(self, guest: Guest, task: GuestTask, report: PassReport) -> None:
        """Tell rollouts and departures, and put a guest that needs helm in line."""
        self._note_rollout(guest, report, installing=task.opted_in)
        if task.leaving:
            self.departures.note(guest.id, report.has_ours)
        if report.awaits_helm:
            self.requests.add_install(guest.id, judge_urgency(task, report))

    def _note_rollout(self, guest: Guest, report: PassReport | None, *, installing: bool) -> None:
        if installing:
            self.rollout.note(guest.id, report)
        elif report is None:
            self.departures.note(guest.id, None)

    def _contested(self, guest_id: str) -> dict[str, tuple[str, ...]]:
        """Return the guests that claim addresses which this one holds, by address."""
        return {
            format_address(address_of(each)): claimants
            for each in self.cache.reservations.by_index(BY_OWNER_NAMESPACE, guest_id)
            if each.is_held and (claimants := self.reported.reporters(each, but=guest_id))
        }

    def _record(
        self, guest: Guest, report: PassReport, schedule: PassSchedule, *, deep: bool
    ) -> float | None:
        """Count and log how a pass ended; give when the next is due, None: at the interval."""
        for event in report.events:
            self._count(guest, event.event, success=event.success)
        retry = schedule.note(
            report, deep=deep, now=self.now(), monotonic=self.monotonic(), created=guest.created
        )
        if report.error is not None:
            fields = {"guest": guest.id, "cluster": guest.cluster_name, "error": str(report.error)}
            level = logging.WARNING if schedule.failures == 1 else logging.DEBUG
            logger.log(level, "Reconciliation of guest cluster failed", extra=fields)
        return retry

    def _note(self, guest_id: str, observation: GuestObservation) -> None:
        if self.guests.observe(guest_id, observation):
            self.requests.add_guest_floating_ips(guest_id)

    def _next(self, retry_seconds: float | None) -> float:
        """Return the time to the next pass: spread, so that a fleet that started together does not stay together."""
        interval = float(self.settings().operate_guest_cluster_interval_seconds)
        if retry_seconds is not None:
            interval = min(interval, retry_seconds)
        return interval * self.random.uniform(0.9, 1.0)

    def _retired(self, guest_id: str) -> frozenset[str]:
        reservations = self.cache.reservations.by_index(BY_OWNER_NAMESPACE, guest_id)
        # What was only found there was never given by us: it is somebody else's, and so are its keys.
        return text_of(each for each in reservations if not each.is_held and each.owner.name)

    def _task(
        self, guest: Guest, floating_ips: list[FloatingIP], retired: frozenset[str], kubeconfig: bytes
    ) -> GuestTask:
        held = [
            each
            for floating_ip in floating_ips
            for each in self.cache.reservations_of(floating_ip.meta.key)
            if each.is_held and each.owner.uid == floating_ip.uid
        ]
        granted = text_of(held)
        # A reservation that is missing is made again; until then its address stays as it is in the guest.
        is_complete = all(granted.issuperset(each.status.addresses) for each in floating_ips)
        settings = self.settings()
        opted_in = self._installs(guest, floating_ips)
        gate = self.rollout.gate(guest) if opted_in else ReleaseGate()
        leaving = self.departures.is_leaving(guest)
        return GuestTask(
            guest_id=guest.id,
            cluster_name=guest.cluster_name,
            kubeconfig=kubeconfig,
            opted_in=opted_in,
            wanted=tuple(
                wanted for each in floating_ips if (wanted := build_wanted(each, granted)) is not None
            ),
            granted=granted,
            retired=retired - granted,
            settings=settings if gate.aim is None else gate.aim.settings,
            before_write=lambda: self._confirm(guest.id, held, is_complete=is_complete),
            gate=gate,
            on_helm=lambda: self.rollout.note_helm(guest.id),
            leaving=leaving,
            may_remove=leaving and self.departures.may_remove(guest.id),
            reported=reported_releases(self.cache, guest.id),
        )

    async def _confirm(self, guest_id: str, held: list[Reservation], *, is_complete: bool) -> bool:
        """Ask right before a guest is written whether all of it is still its owners', and no other guest carries it."""
        if not is_complete:
            return False
        if self.gate.is_shut or not all(map(self.gate.may_write, held)):
            self._held_up.add(guest_id)
            return False
        for reservation in held:
            floating_ip = self.cache.floating_ips.get(*reservation.owner.key)
            ignored = floating_ip.ignored_claims if floating_ip is not None else frozenset()
            await self.reported.check(reservation, ignored)
        try:
            for reservation in held:
                if not await self.reservation_store.is_held_by(reservation.name, reservation.owner):
                    return False
        except PASSING_ERRORS as error:
            # The guest has no part in that, and is not to wait as if it had.
            logger.debug("Could not confirm addresses", extra={"guest": guest_id, "error": str(error)})
            return False
        return self.leads()

    def _count(self, guest: Guest, event: GuestEvent, *, success: bool) -> None:
        harvester = guest.harvester_cluster_name or ""
        self.metrics.count_guest_event(guest.cluster_name, harvester, event, success)

    def forget(self, guest_id: str) -> None:
        """Drop what is remembered of a guest that is gone."""
        self._schedules.pop(guest_id, None)
        self.sessions.forget(guest_id)
        self.departures.forget(guest_id)
        self.guests.forget(guest_id)
