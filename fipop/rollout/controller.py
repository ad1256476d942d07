"""Leads rollouts: finds what the options ask for, has the plan decide, and keeps what must be remembered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from fipop.api import names
from fipop.errors import WRITE_REFUSED, ApiError, ConflictError, FipopError
from fipop.helm.chart_store import ChartStore
from fipop.helm.charts import Target
from fipop.helm.errors import ChartError
from fipop.helm.releases import Release
from fipop.interfaces import loop_time
from fipop.rancher.matching import Guest
from fipop.rollout.kept import RolloutStore, render_rollout
from fipop.rollout.member import Fleet, Member
from fipop.rollout.parts import Parts, describe_parts, describe_wait, find_cause, parse_parts
from fipop.rollout.plan import (
    Phase,
    Progress,
    ReleaseGoal,
    Rollout,
    advance,
    advise_after_stop,
    begin,
    count,
    decide_goal,
    describe_change,
    retry,
)
from fipop.rollout.targets import find_problem, find_target
from fipop.runtime.configuration import Configuration
from fipop.runtime.queues import WorkQueues, request_routine_visit

logger = logging.getLogger(__name__)

TICK_SECONDS, IDLE_TICK_SECONDS = 2.0, 5.0
FIRST_VISITS_SECONDS = 300.0
"""How long a new leader waits for visits before it admits a guest cluster: 2,000 visits take 2 minutes."""
PARTS_SECONDS = 10.0
"""How often parts are described, and written if they changed alone."""


class Members(Protocol):
    """Knows the guest clusters that are opted in, and what their last visits found."""

    def list_opted_in(self) -> Iterable[Guest]:
        """Return the guest clusters that are opted in, by id."""

    def find_member(self, guest: Guest, target: Target, stable: Target | None) -> Member:
        """Return a guest cluster as its last visit found it, with these targets as they are for it."""


@dataclass(slots=True, kw_only=True)
class RolloutController:
    """One leader's rollouts."""

    members: Members
    store: RolloutStore
    charts: ChartStore
    configuration: Configuration
    queues: WorkQueues
    rollout: Rollout | None = None
    progress: Progress = field(default_factory=Progress)
    problem: ChartError | None = None
    """Why a chart that the options ask for cannot be had."""
    parts: Parts = field(default_factory=dict)
    """What readers are told of each guest cluster."""
    _told: Rollout | None = None
    """The rollout that events and visits know: a write can be stored although its answer was lost."""
    _began_at: float | None = None
    _described_at: float = 0.0
    _refused: str = ""
    _is_paused: bool | None = None
    """Whether events said last that it is paused; None before this leader knows."""

    @property
    def held_up(self) -> str:
        """Why no release changes anywhere, as a sentence; "" if releases can change."""
        if not self.store.problem:
            return ""
        return f"The state of rollouts is not known, so fipop installs and upgrades nothing: {self.store.problem}."

    async def run(self) -> None:
        """Lead rollouts until cancelled; what fails is tried again."""
        while True:
            try:
                await self.step()
            except FipopError as error:
                logger.warning("Could not continue rollout", extra={"error": str(error)})
                if isinstance(error, ApiError) and error.is_refusal:
                    self.configuration.complain(WRITE_REFUSED, error.explain())
                if isinstance(error, ConflictError):
                    self.store.is_loaded = False
            await asyncio.sleep(TICK_SECONDS if self.progress.admitted else IDLE_TICK_SECONDS)

    def is_judged(self, guest_id: str) -> bool:
        """Return whether a guest cluster has to succeed now, so that its pods matter."""
        state = self.progress.states.get(guest_id)
        return state is not None and state.is_admitted

    def decide_goal(self, guest: Guest, releases: tuple[Release, ...]) -> ReleaseGoal:
        """Return what the releases of a guest cluster should be, as they are seen now."""
        settings = self.configuration.settings
        if settings.unknown_release_options or not self.store.is_loaded:
            unknown = "OptionUnknown" if settings.unknown_release_options else "RolloutUnreadable"
            return ReleaseGoal(reason=unknown)
        if self.rollout is None:
            return ReleaseGoal(reason="RolloutPending")
        member = self.members.find_member(guest, self.rollout.target, self.rollout.stable)
        member = replace(member, releases=releases, visited_at=loop_time())
        goal = decide_goal(guest.id, member, self.rollout, self.progress, settings)
        return replace(goal, awaited=member.target)

    def count_guests(self) -> Mapping[str, int]:
        """Return how many guest clusters stand where."""
        return count(each.status for each in self.progress.states.values())

    async def step(self) -> None:
        """Go one step further, if there is one."""
        settings = self.configuration.settings
        if not self.store.is_loaded:
            await self._load()
        if settings.unknown_release_options:
            return
        rollout = self.rollout
        if not any(True for _ in self.members.list_opted_in()):
            # Before a guest cluster is opted in, no chart is fetched.
            if rollout is not None and not self._is_young():
                # Those that were counted are opted in no more.
                await self._publish(*advance(rollout, {}, self.progress, settings, loop_time()), {})
            return
        problem: ChartError | None = None
        try:
            target, orders = await find_target(rollout, settings, self.charts)
        except ChartError as error:
            if rollout is None:
                self._note_problem(error)
                return
            target, orders, problem = rollout.target, rollout.orders, error
        rollout, progress = self._take_up(target)
        fleet = self._list_fleet(rollout)
        rollout, progress = self._retry(replace(rollout, orders=orders), fleet, progress)
        has_stable = rollout.stable is None or not await find_problem(rollout.stable, settings, self.charts)
        progress = replace(progress, is_blocked=problem is not None, has_stable=has_stable)
        decided = advance(rollout, fleet, progress, settings, loop_time())
        if decided[1].admitted and problem is None:
            # Who is admitted does not wait for an archive, and is not late for it.
            problem = await find_problem(rollout.target, settings, self.charts)
            progress = replace(progress, is_blocked=problem is not None)
            decided = advance(rollout, fleet, progress, settings, loop_time())
        self._note_problem(problem)
        await self._publish(*decided, fleet)

    def _take_up(self, target: Target) -> tuple[Rollout, Progress]:
        """Return the rollout of a target: a new one, unless it is the current one."""
        rollout = self.rollout
        if rollout is None or rollout.target.name != target.name:
            began = self.store.client.server_now().replace(microsecond=0)
            return begin(rollout, target, began), Progress(since=loop_time(), began_here=True)
        if rollout.target.charts != target.charts:
            # The same archives, from another source.
            stable = target if rollout.is_stable else rollout.stable
            rollout = replace(rollout, target=target, stable=stable)
        return rollout, self.progress

    async def _publish(self, rollout: Rollout, progress: Progress, fleet: Fleet) -> None:
        """Write what was decided, and only then let it count."""
        before, admitted = self._told, self.progress.admitted
        is_changed = rollout != self.rollout
        if is_changed or loop_time() - self._described_at >= PARTS_SECONDS:
            if not is_changed:
                # The next leader has to know of a stop and of the stable target.
                await self.store.forget_if_deleted()
            parts = self._describe_parts(rollout, progress, fleet)
            waits = describe_wait(rollout, fleet, progress, self.configuration.settings, self.problem)
            data, stored = render_rollout(rollout, parts, waits), self.store.data
            if is_changed or any(data[each] != stored.get(each) for each in ("guests", "waits")):
                await self.store.save(data)
            self.parts, self._described_at = parts, loop_time()
        self.rollout, self.progress = rollout, progress
        kept = (rollout.target, rollout.stable)
        self.charts.keep_only(chart for one in kept if one is not None for chart in one.archives)
        changed: set[str] = set(admitted ^ progress.admitted)
        if before is None or (before.target.name, before.phase) != (rollout.target.name, rollout.phase):
            self._report(before, rollout, fleet)
            changed = set(fleet)
        elif before.failed != rollout.failed:
            changed |= before.failed.keys() ^ rollout.failed.keys()
        self._told = rollout
        self._report_pause(rollout)
        self.queues.add(*map(request_routine_visit, sorted(changed)))

    def _describe_parts(self, rollout: Rollout, progress: Progress, fleet: Fleet) -> Parts:
        """Return the part of each guest cluster; a new leader tells of none before it has seen all."""
        is_same = self.rollout is not None and self.rollout.target.name == rollout.target.name
        if is_same and any(each.is_eligible and each.visited_at is None for each in fleet.values()):
            return self.parts
        settings, now = self.configuration.settings, self.store.client.server_now()
        before = self.parts if is_same else {}
        return describe_parts(rollout, fleet, progress, settings, before, now=now, at=loop_time())

    def _list_fleet(self, rollout: Rollout) -> Fleet:
        """Return the guest clusters; those that no visit reached in time count as out of reach."""
        members, now = self.members, loop_time()
        fleet = {
            guest.id: members.find_member(guest, rollout.target, rollout.stable)
            for guest in members.list_opted_in()
        }
        if self._is_young():
            return fleet
        return {
            guest_id: member if member.visited_at is not None else replace(member, visited_at=now)
            for guest_id, member in fleet.items()
        }

    def _is_young(self) -> bool:
        """Return whether this leader can still lack guest clusters, or visits of them."""
        return loop_time() - (self._began_at or 0.0) < FIRST_VISITS_SECONDS

    def _retry(self, rollout: Rollout, fleet: Fleet, progress: Progress) -> tuple[Rollout, Progress]:
        """Do what the annotation asks for, once."""
        asked = self.configuration.annotations.get(names.ANNOTATION_ROLLOUT, "")
        if not asked or asked == rollout.retried:
            return replace(rollout, retried=asked), progress
        wanted = rollout.retry_annotation
        if asked == wanted:
            return retry(replace(rollout, retried=asked), fleet, progress, loop_time())
        if asked != self._refused:
            self._refused = asked
            message = f"Annotation {names.ANNOTATION_ROLLOUT} must be {wanted}: it is {asked[:100]!r}."
            self.configuration.complain("BadOption", message)
        return rollout, progress

    async def _load(self) -> None:
        before, self.rollout = self.rollout, await self.store.load()
        if self._began_at is None:
            self._began_at, self._told = loop_time(), self.rollout
        self.parts = parse_parts(self.store.data.get("guests", ""))
        if before is None or self.rollout is None or before.target.name != self.rollout.target.name:
            self.progress = Progress(since=self._began_at)

    # What is reported

    def _note_problem(self, problem: ChartError | None) -> None:
        if str(problem) == str(self.problem):
            return
        self.problem = problem
        if problem is not None:
            self._tell("RolloutBlocked", f"Guest clusters keep their releases: {problem}.", is_warning=True)
        self.queues.add(*(request_routine_visit(guest.id) for guest in self.members.list_opted_in()))

    def _report(self, before: Rollout | None, rollout: Rollout, fleet: Fleet) -> None:
        what = f"target {rollout.target.name} ({describe_change(rollout)})"
        if before is None or before.target.name != rollout.target.name:
            self._tell("RolloutStarted", f"The rollout of {what} began.")
        if rollout.is_stopped:
            guest_id, why = find_cause(self.parts)
            # Last, because it can be long, and an event is cut.
            cause = f" {fleet[guest_id].shown} failed: {why}" if guest_id in fleet else ""
            advice = (
                f"{advise_after_stop(rollout)}. Without the command line, set annotation "
                f"{names.ANNOTATION_ROLLOUT}: {rollout.retry_annotation}."
            )
            self._tell(
                "RolloutStopped",
                f"The rollout of {what} stopped: {rollout.reason}. {advice}{cause}",
                is_warning=True,
            )
        if rollout.phase is Phase.COMPLETED:
            self._tell("RolloutCompleted", f"The rollout of {what} is completed.")

    def _report_pause(self, rollout: Rollout) -> None:
        """Report that a rollout pauses or goes on; what a former leader has reported is not known."""
        is_paused = rollout.phase is Phase.PROGRESSING and self.configuration.settings.pauses_rollouts
        if self._is_paused not in (None, is_paused) and rollout.phase is Phase.PROGRESSING:
            what = "is paused: no guest cluster is admitted, and none rolls back" if is_paused else "goes on"
            reason = "RolloutPaused" if is_paused else "RolloutResumed"
            self._tell(reason, f"The rollout of target {rollout.target.name} {what}.")
        self._is_paused = is_paused

    def _tell(self, reason: str, message: str, *, is_warning: bool = False) -> None:
        logger.log(logging.WARNING if is_warning else logging.INFO, "Rollout", extra={"reason": reason})
        self.configuration.complain(reason, message, is_warning=is_warning, is_repeated=True)
