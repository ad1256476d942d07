"""Brings a guest's releases to the wanted state: decides, repairs what a dead helm left, runs helm."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from fipop.errors import ChartError, FipopError, HelmError, HelmFailure
from fipop.guest.decisions import Action, Decision, decide
from fipop.guest.helm.chart_archives import CachedChart
from fipop.guest.helm.charts import Role, WantedRelease, digest, object_name_candidates, with_object_name
from fipop.guest.helm.releases import ReleaseState, build_labels
from fipop.guest.helm.runner import HelmTarget, ReleaseOrder
from fipop.guest.limits import GuestLimits
from fipop.guest.observed import ObservedState
from fipop.guest.release_attempt import Outcome
from fipop.guest.release_records import ReleaseRecords
from fipop.guest.reports import GuestTask

log = logging.getLogger(__name__)

_RUNS_HELM = (Action.INSTALL, Action.UPGRADE, Action.RETRY, Action.REPAIR, Action.MEND)
_LEAST_MEND_SECONDS = 60.0
"""Between two mends of drift in a guest: whoever deletes objects may do so again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseInstaller:
    """Looks after the releases of one guest during one pass."""

    task: GuestTask
    limits: GuestLimits
    target: HelmTarget
    observed: ObservedState
    missing: Mapping[Role, tuple[str, ...]]
    may_run_helm: bool

    @property
    def records(self) -> ReleaseRecords:
        """What changes records that are there."""
        return ReleaseRecords(limits=self.limits, target=self.target)

    async def settle(self, wanted: WantedRelease) -> Outcome:
        """Bring one release to the wanted state, if that takes anything and may be done."""
        if wanted.role in self.observed.problems:
            return Outcome(error=self.observed.problems[wanted.role])
        if wanted.role in self.observed.unknown:
            return Outcome(awaits_helm=not self.may_run_helm)
        state = self.observed.managed.get(wanted.role)
        chart, chart_error = await self._chart(wanted)
        decision = self._decide(state, wanted, chart)
        if decision.action not in _RUNS_HELM:
            drift = self._drift(decision, wanted, chart)
            return Outcome(
                drift=drift,
                reason=self.task.gate.reason if drift else "",
                doubt=str(chart_error or ""),
                wait_seconds=decision.wait_seconds,
            )
        now = self.limits.monotonic()
        if chart is None and decision.action is not Action.MEND:
            return Outcome(error=chart_error, wait_seconds=self._rest_without_chart(wanted, chart_error, now))
        rest = self.limits.memory.rest_seconds(self.task.guest_id, wanted.role, decision.digest or "", now)
        if rest:
            return Outcome(drift=self._drift(decision, wanted, chart), wait_seconds=rest)
        if not self.may_run_helm:
            return Outcome(drift=self._drift(decision, wanted, chart), awaits_helm=True)
        return await self._run(decision, state, wanted, chart)

    def _rest_without_chart(self, wanted: WantedRelease, error: ChartError | None, now: float) -> float:
        # As for helm: a source that is away for days is not asked for by every guest all the time.
        guest_id, memory = self.task.guest_id, self.limits.memory
        rest = memory.rest_seconds(guest_id, wanted.role, "", now)
        return rest or memory.note_failure(guest_id, wanted.role, "", now, error)

    def _decide(
        self, state: ReleaseState | None, wanted: WantedRelease, chart: CachedChart | None
    ) -> Decision:
        gate = self.task.gate
        decision = decide(
            state,
            wanted,
            chart=chart.identity if chart is not None else None,
            update=state is not None and gate.may_change(state),
            age_seconds=self.observed.age_seconds(state) if state is not None else 0.0,
            grace_seconds=self.limits.grace_seconds,
        )
        if (
            state is not None
            and decision.action in (Action.RETRY, Action.REPAIR)
            and not gate.may_retry(state)
        ):
            return Decision(action=Action.DRIFT, digest=decision.digest)
        if decision.action in (Action.NOTHING, Action.DRIFT) and self.missing.get(wanted.role):
            return Decision(action=Action.MEND if gate.mend else Action.DRIFT, digest=decision.digest)
        if decision.action in (Action.NOTHING, Action.DRIFT):
            # What failed once is no longer tried.
            self.limits.memory.note_success(self.task.guest_id, wanted.role)
        return decision

    def _drift(self, decision: Decision, wanted: WantedRelease, chart: CachedChart | None) -> str:
        missing = self.missing.get(wanted.role)
        if missing:
            return f"the guest lacks {', '.join(missing)}"
        if decision.action is not Action.DRIFT or chart is None:
            return ""
        return f"chart or values differ from what is wanted ({chart.identity.name} {chart.identity.version})"

    async def _chart(self, wanted: WantedRelease) -> tuple[CachedChart | None, ChartError | None]:
        aim = self.task.gate.aim
        try:
            chart = await self.limits.charts.get(
                wanted.source, content=aim.target.charts[wanted.role].content if aim is not None else ""
            )
        except ChartError as error:
            return None, error
        return chart, None

    async def _run(
        self,
        decision: Decision,
        state: ReleaseState | None,
        wanted: WantedRelease,
        chart: CachedChart | None,
    ) -> Outcome:
        guest_id, memory = self.task.guest_id, self.limits.memory
        if decision.action is not Action.MEND:
            self.task.on_helm()
        try:
            await self._change(decision, state, wanted, chart)
        except FipopError as error:
            now = self.limits.monotonic()
            rest = memory.note_failure(guest_id, wanted.role, decision.digest or "", now, error)
            self._log("could not bring a release to the wanted state", decision, wanted, error=str(error))
            return Outcome(ran=True, error=error, wait_seconds=rest)
        if self.missing.get(wanted.role):
            # Whoever deletes the objects may do so again: a revision for each time would be too many.
            memory.note_failure(
                guest_id,
                wanted.role,
                decision.digest or "",
                self.limits.monotonic(),
                least_seconds=_LEAST_MEND_SECONDS,
            )
        else:
            memory.note_success(guest_id, wanted.role)
        self._log("brought a release to the wanted state", decision, wanted)
        return Outcome(ran=True)

    async def _change(
        self,
        decision: Decision,
        state: ReleaseState | None,
        wanted: WantedRelease,
        chart: CachedChart | None,
    ) -> None:
        if state is not None and decision.action is Action.MEND:
            await self.records.roll_back(state, state.latest.revision)
            return
        assert chart is not None, "only a mend goes without one"
        revision = state.latest.revision + 1 if state is not None else 1
        if state is not None and decision.action is Action.REPAIR:
            await self.records.drop(state)
            revision -= 1
        await self._upgrade(state, revision, wanted, chart)

    async def _upgrade(
        self, state: ReleaseState | None, revision: int, wanted: WantedRelease, chart: CachedChart
    ) -> None:
        """Install or upgrade to `revision`, the first time under a name for the objects that nobody else has there."""
        if state is not None:
            candidates: tuple[str, ...] = (wanted.object_name or state.object_name,)
        else:
            candidates = object_name_candidates(wanted, self._taken_names(wanted))
        for number, object_name in enumerate(candidates, start=1):
            try:
                await self.limits.helm.upgrade(
                    self.target, _order(state, revision, wanted, chart, object_name)
                )
            except HelmError as error:
                if error.failure is not HelmFailure.NAME_TAKEN or number == len(candidates):
                    raise
            else:
                return

    def _taken_names(self, wanted: WantedRelease) -> frozenset[str]:
        return frozenset(
            workload.name
            for workload in self.observed.workloads
            if workload.release != (wanted.namespace, wanted.name)
        )

    def _log(self, message: str, decision: Decision, wanted: WantedRelease, *, error: str = "") -> None:
        level = logging.WARNING if error else logging.INFO
        fields = {"cluster": self.task.cluster_name, "release": wanted.name, "action": decision.action.value}
        log.log(level, message, extra=fields | ({"error": error} if error else {}))


def _order(
    state: ReleaseState | None, revision: int, wanted: WantedRelease, chart: CachedChart, object_name: str
) -> ReleaseOrder:
    namespace, name = state.latest.key if state is not None else (wanted.namespace, wanted.name)
    values = with_object_name(wanted.values, object_name)
    labels = build_labels(
        wanted.role,
        digest(chart.identity, values),
        chart.identity,
        object_name=object_name,
        revision=revision,
    )
    return ReleaseOrder(name=name, namespace=namespace, chart=chart.path, values=values, labels=labels)
