"""Leads rollouts: finds what the options ask for, has the plan decide, and keeps what must be remembered."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from fipop.api import names
from fipop.boundary import loop_time
from fipop.errors import WRITE_REFUSED, ApiError, ConflictError, FipopError, NotFoundError
from fipop.helm.chart_store import Access, ChartStore
from fipop.helm.charts import (
    Chart,
    Target,
    parse_target,
    render_target,
    wanted_charts,
    wanted_overrides,
    wanted_values,
)
from fipop.helm.errors import ChartError
from fipop.helm.releases import Release
from fipop.jsons import Json
from fipop.kube.client import KubeClient
from fipop.kube.resources import CONFIG_MAPS
from fipop.rollout.plan import (
    Member,
    Phase,
    Policy,
    Progress,
    Rollout,
    Wish,
    advance,
    begin,
    choose_wish,
    count,
    judge,
    retry,
)
from fipop.runtime.configuration import Configuration
from fipop.runtime.queues import WorkQueues, request_routine_visit
from fipop.settings.options import Settings
from fipop.settings.overrides import Override
from fipop.settings.values import FailureStrategy, RolloutType

logger = logging.getLogger(__name__)

TICK_SECONDS, IDLE_TICK_SECONDS = 2.0, 5.0
FIRST_VISITS_SECONDS = 300.0
"""How long a new leader waits for visits before it admits a guest cluster: 2,000 visits take 2 minutes."""
SOURCE_REST_SECONDS = 30.0
"""How long a source of charts rests that failed."""
COUNT_SECONDS = 10.0
"""How often counts are written that changed alone."""


@dataclass(slots=True, kw_only=True)
class RolloutController:
    """One leader's rollouts.

    `has_members` tells whether a guest cluster is opted in: before that no chart is fetched. `look` returns those that
    are, as the last visits found them, for a target and the stable one.
    """

    client: KubeClient
    namespace: str
    charts: ChartStore
    configuration: Configuration
    queues: WorkQueues
    has_members: Callable[[], bool]
    look: Callable[[Target, Target | None], Mapping[str, Member]]
    rollout: Rollout | None = None
    progress: Progress = field(default_factory=Progress)
    problem: ChartError | None = None
    """Why a chart that the options ask for cannot be had."""
    _members: Mapping[str, Member] = field(default_factory=dict)
    _is_loaded: bool = False
    _load_error: str = ""
    _stored: Json = field(default_factory=dict)
    """The ConfigMap as it was last read or written; empty if there is none."""
    _told: Rollout | None = None
    """The rollout that events and visits know: a write can be stored although its answer was lost."""
    _began_at: float | None = None
    _has_stable: bool = True
    _failures: dict[str, tuple[float, ChartError]] = field(default_factory=dict)
    """By chart, when its source failed, and why."""
    _found: dict[str, Chart] = field(default_factory=dict)
    """By what the options ask for, what was found, until all charts of a target were."""
    _counts: Mapping[str, int] = field(default_factory=dict)
    _counted_at: float = 0.0
    _refused: str = ""

    @property
    def held_up(self) -> str:
        """Why no release changes anywhere, as a sentence; "" if releases can change."""
        if not self._load_error:
            return ""
        return (
            f"The state of rollouts is not known, so fipop installs and upgrades nothing: {self._load_error}."
        )

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
                    self._is_loaded = False
            await asyncio.sleep(TICK_SECONDS if self.progress.admitted else IDLE_TICK_SECONDS)

    def is_judged(self, guest_id: str) -> bool:
        """Return whether a guest cluster has to succeed now, so that its pods matter."""
        return guest_id in self.progress.admitted

    def wish(
        self,
        guest_id: str,
        choose: Callable[[Target, Target | None], tuple[Target, Target | None]],
        releases: tuple[Release, ...],
    ) -> Wish:
        """Return what the releases of a guest cluster should be, as they are seen now.

        `choose` returns the target and the stable one as they are for this guest cluster.
        """
        unknown = self.configuration.settings.unknown_release_options
        if unknown or not self._is_loaded:
            return Wish(reason="OptionUnknown" if unknown else "RolloutUnreadable")
        if self.rollout is None:
            return Wish(reason="RolloutPending")
        target, stable = choose(self.rollout.target, self.rollout.stable)
        own = replace(self.rollout, target=target, stable=stable)
        member = self._members.get(guest_id, Member()).see(releases, target, stable)
        wish = choose_wish(guest_id, member, own, self.progress, self._build_policy())
        return replace(wish, awaited=target)

    def count_guests(self) -> Mapping[str, int]:
        """Return how many guest clusters stand where, as they were counted last."""
        return self._counts or count(())

    async def step(self) -> None:
        """Go one step further, if there is one."""
        settings = self.configuration.settings
        if not self._is_loaded:
            await self._load()
        if settings.unknown_release_options:
            return
        problem: ChartError | None = None
        rollout, progress = self.rollout, self.progress
        if not self.has_members():
            if rollout is not None and not self._is_young():
                # Those that were counted are opted in no more.
                policy = self._build_policy()
                await self._publish(*advance(rollout, {}, progress, policy, loop_time()), {}, policy)
            return
        try:
            target, orders = await self._find_target(settings)
        except ChartError as error:
            if rollout is None:
                self._note_problem(error)
                return
            target, orders, problem = rollout.target, rollout.orders, error
        if rollout is None or rollout.target.name != target.name:
            rollout, progress = begin(rollout, target), Progress(since=loop_time())
        elif rollout.target.charts != target.charts:
            # The same archives, from another source.
            stable = target if rollout.is_stable else rollout.stable
            rollout = replace(rollout, target=target, stable=stable)
        members = self._find_members(rollout.target, rollout.stable)
        rollout, progress = self._retry(replace(rollout, orders=orders), members, progress)
        self._has_stable = (
            rollout.stable is None or await self._find_problem(rollout.stable, settings) is None
        )
        policy = self._build_policy(problem)
        decided = advance(rollout, members, progress, policy, loop_time())
        if decided[1].admitted and problem is None:
            # Who is admitted does not wait for an archive, and is not late for it.
            problem = await self._find_problem(rollout.target, settings)
            policy = self._build_policy(problem)
            decided = advance(rollout, members, progress, policy, loop_time())
        self._note_problem(problem)
        await self._publish(*decided, members, policy)

    async def _publish(
        self, rollout: Rollout, progress: Progress, members: Mapping[str, Member], policy: Policy
    ) -> None:
        """Write what was decided, and only then let it count."""
        before, admitted = self._told, self.progress.admitted
        counts = count(judge(each, member, rollout, progress, policy) for each, member in members.items())
        is_recounted = counts != parse_counts(self._stored.get("data") or {})
        if rollout != self.rollout or (is_recounted and loop_time() - self._counted_at >= COUNT_SECONDS):
            await self._save(rollout, counts)
            self._counted_at = loop_time()
        self.rollout, self.progress, self._members, self._counts = rollout, progress, members, counts
        kept = (rollout.target, rollout.stable)
        self.charts.keep_only(chart for one in kept if one is not None for chart in one.archives)
        changed: set[str] = set(admitted ^ progress.admitted)
        if before is None or (before.target.name, before.phase) != (rollout.target.name, rollout.phase):
            self._report(before, rollout)
            changed = set(members)
        elif before.failed != rollout.failed:
            changed |= before.failed.keys() ^ rollout.failed.keys()
        self._told = rollout
        self.queues.add(*map(request_routine_visit, sorted(changed)))

    # What the options ask for

    async def _find_target(self, settings: Settings) -> tuple[Target, Mapping[str, str]]:
        """Return the target that the options ask for, with what tells whether they ask for other charts later.

        Raises ChartError.
        """
        before, wanted = self.rollout, wanted_charts(settings)
        orders = {role.value: _key(order) for role, order in wanted.items()}
        charts = {
            role: before.target.charts[role]
            if before is not None and before.orders.get(role.value) == orders[role.value]
            else self._found.get(orders[role.value]) or await self._fetch(order, settings)
            for role, order in wanted.items()
        }
        overrides = {
            role: tuple([await self._pin(each, charts[role], settings) for each in entries])
            for role, entries in wanted_overrides(settings).items()
        }
        self._found.clear()
        return Target(charts=charts, values=wanted_values(settings), overrides=overrides), orders

    async def _pin(self, entry: Override, chart: Chart, settings: Settings) -> Override:
        """Return an override with the digest of its version. Raises ChartError."""
        if not entry.chart_version:
            return entry
        version, sha256 = entry.chart_version.removeprefix("v"), entry.chart_digest.removeprefix("sha256:")
        order = replace(chart, version=version, sha256=sha256)
        known = self.rollout.target.archives if self.rollout is not None else ()
        found = next((each for each in known if replace(each, sha256="") == order), order)
        if not found.sha256:
            found = self._found.get(_key(order)) or await self._fetch(order, settings)
        return replace(entry, chart_version=found.version, chart_digest=f"sha256:{found.sha256}")

    async def _find_problem(self, target: Target, settings: Settings) -> ChartError | None:
        """Return why an archive of a target is not on disk, and cannot be had."""
        try:
            for each in target.archives:
                await self._fetch(each, settings)
        except ChartError as error:
            return error
        return None

    async def _fetch(self, chart: Chart, settings: Settings) -> Chart:
        """Return a chart with its archive on disk. Raises ChartError; a source that failed rests."""
        failed_at, error = self._failures.get(_key(chart), (0.0, None))
        if error is not None and loop_time() - failed_at < SOURCE_REST_SECONDS:
            raise error
        try:
            if chart.version and chart.sha256:
                await self.charts.path(chart, Access.of(settings))
            else:
                self._found[_key(chart)] = await self.charts.resolve(chart, Access.of(settings))
        except ChartError as error:
            self._failures[_key(chart)] = (loop_time(), error)
            raise
        self._failures.pop(_key(chart), None)
        return self._found.get(_key(chart), chart)

    def _note_problem(self, problem: ChartError | None) -> None:
        if str(problem) == str(self.problem):
            return
        self.problem = problem
        if problem is not None:
            self._tell("RolloutBlocked", f"Guest clusters keep their releases: {problem}.", is_warning=True)
        self.queues.add(*map(request_routine_visit, self._members))

    def _build_policy(self, problem: ChartError | None = None) -> Policy:
        settings = self.configuration.settings
        strategy = settings.kubevip_rollout_failure_strategy
        return Policy(
            canaries=settings.kubevip_rollout_canaries,
            max_concurrency=settings.kubevip_rollout_max_concurrency,
            max_failures=settings.kubevip_rollout_max_failures,
            soak_seconds=settings.kubevip_rollout_min_success_seconds,
            deadline_seconds=settings.kubevip_rollout_progress_deadline_seconds,
            is_all=settings.kubevip_rollout_type is RolloutType.ALL,
            goes_back=strategy is FailureStrategy.ROLLBACK,
            is_paused=settings.kubevip_rollout_paused or bool(settings.unknown_rollout_options),
            is_blocked=problem is not None,
            has_stable=self._has_stable,
            updates=settings.kubevip_update,
        )

    def _find_members(self, target: Target, stable: Target | None) -> Mapping[str, Member]:
        """Return the guest clusters; those that no visit reached in time count as out of reach."""
        members, now = self.look(target, stable), loop_time()
        if self._is_young():
            return members
        return {
            each: replace(member, visited_at=now) if member.visited_at is None else member
            for each, member in members.items()
        }

    def _is_young(self) -> bool:
        """Return whether this leader can still lack guest clusters, or visits of them."""
        return loop_time() - (self._began_at or 0.0) < FIRST_VISITS_SECONDS

    def _retry(
        self, rollout: Rollout, members: Mapping[str, Member], progress: Progress
    ) -> tuple[Rollout, Progress]:
        """Do what the annotation asks for, once."""
        asked = self.configuration.annotations.get(names.ANNOTATION_ROLLOUT, "")
        if not asked or asked == rollout.retried:
            return replace(rollout, retried=asked), progress
        wanted = f"retry/{rollout.target.name}"
        if asked == wanted:
            return retry(replace(rollout, retried=asked), members, progress, loop_time())
        if asked != self._refused:
            self._refused = asked
            message = f"Annotation {names.ANNOTATION_ROLLOUT} must be {wanted}: it is {asked[:100]!r}."
            self.configuration.complain("BadOption", message)
        return rollout, progress

    # What is kept, and reported

    def _report(self, before: Rollout | None, rollout: Rollout) -> None:
        what = f"target {rollout.target.name} ({describe_change(rollout)})"
        if before is None or before.target.name != rollout.target.name:
            self._tell("RolloutStarted", f"The rollout of {what} began.")
        if rollout.phase is Phase.STOPPED:
            advice = (
                "Correct the options, or repair the guest clusters and run fipop rollout retry. Without the command "
                f"line, set annotation {names.ANNOTATION_ROLLOUT}: retry/{rollout.target.name}."
            )
            self._tell(
                "RolloutStopped",
                f"The rollout of {what} stopped: {rollout.reason}. {advice}",
                is_warning=True,
            )
        if rollout.phase is Phase.COMPLETED:
            self._tell("RolloutCompleted", f"The rollout of {what} is completed.")

    def _tell(self, reason: str, message: str, *, is_warning: bool = False) -> None:
        logger.log(logging.WARNING if is_warning else logging.INFO, "Rollout", extra={"reason": reason})
        self.configuration.complain(reason, message, is_warning=is_warning, is_repeated=True)

    async def _load(self) -> None:
        try:
            found = await self.client.get(CONFIG_MAPS, names.ROLLOUT_CONFIG_MAP, namespace=self.namespace)
        except FipopError as error:
            self._load_error = str(error)
            raise
        self._stored = found or {}
        before, self.rollout = self.rollout, parse_rollout(self._stored.get("data") or {})
        if self._began_at is None:
            self._began_at, self._told = loop_time(), self.rollout
        if before is None or self.rollout is None or before.target.name != self.rollout.target.name:
            self.progress = Progress(since=self._began_at)
        self._is_loaded, self._load_error = True, ""

    async def _save(self, rollout: Rollout, counts: Mapping[str, int]) -> None:
        data, name = render_rollout(rollout, counts), names.ROLLOUT_CONFIG_MAP
        try:
            if self._stored:
                version = self._stored["metadata"]["resourceVersion"]
                patch = {"metadata": {"resourceVersion": version}, "data": data}
                self._stored = await self.client.merge_patch(
                    CONFIG_MAPS, name, patch, namespace=self.namespace
                )
            else:
                body = {"metadata": {"name": name}, "data": data}
                self._stored = await self.client.create(CONFIG_MAPS, body, namespace=self.namespace)
        except NotFoundError:
            self._stored = {}  # it was deleted: the next step makes it again
            raise


def describe_change(rollout: Rollout) -> str:
    """Return the versions of the charts of a target, and how it differs from the stable one."""
    target, stable = rollout.target, rollout.stable or rollout.target
    found = []
    for role, chart in target.charts.items():
        version = stable.charts[role].version
        former = f"{version} → " if version != chart.version else ""
        found.append(f"{role.value} {former}{chart.version}")
    differs = stable.name != target.name and stable.charts == target.charts
    return ", ".join(found) + (" with other values" if differs else "")


def render_rollout(rollout: Rollout, counts: Mapping[str, int]) -> dict[str, str]:
    """Return the data of the ConfigMap. `counts` are for those who read it: no leader does."""
    facts = {
        "target": rollout.target.name,
        "stable": rollout.stable.name if rollout.stable is not None else "",
        "phase": rollout.phase.value,
        "reason": rollout.reason,
        "failed": rollout.failed,
        "unproven": rollout.unproven,
        "takesUnready": rollout.takes_unready,
        "retried": rollout.retried,
        "orders": rollout.orders,
    }
    return {
        "rollout": json.dumps(facts),
        "target": render_target(rollout.target),
        "stable": render_target(rollout.stable),
        "guests": json.dumps(counts),
    }


def parse_rollout(data: Mapping[str, str]) -> Rollout | None:
    """Read what `render_rollout` wrote; None for anything else: the rollout begins again with canaries."""
    target = parse_target(data.get("target", ""))
    try:
        facts = json.loads(data.get("rollout", ""))
        return (
            None
            if target is None
            else Rollout(
                target=target,
                stable=parse_target(data.get("stable", "")),
                phase=Phase(facts["phase"]),
                reason=str(facts["reason"]),
                failed={str(guest_id): str(name) for guest_id, name in facts["failed"].items()},
                unproven=tuple(map(str, facts["unproven"])),
                takes_unready=facts["takesUnready"] is True,
                retried=str(facts["retried"]),
                orders={str(role): str(order) for role, order in facts["orders"].items()},
            )
        )
    except (ValueError, TypeError, AttributeError, LookupError):
        return None


def parse_counts(data: Mapping[str, str]) -> dict[str, int]:
    """Read how many guest clusters stand where; empty if that was not written."""
    try:
        return {str(each): int(number) for each, number in json.loads(data.get("guests", "")).items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _key(chart: Chart) -> str:
    return f"{chart} {chart.version} {chart.sha256}"
