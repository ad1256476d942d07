"""Brings a guest's releases to the wanted state: decides, repairs what a dead helm left, runs helm."""

from __future__ import annotations

from dataclasses import dataclass

from fipop.guest.decisions import Action, Decision, decide
from fipop.guest.errors import ChartError, HelmError, HelmFailure
from fipop.guest.helm.chart_archives import CachedChart
from fipop.guest.helm.charts import WantedRelease, digest, object_name_candidates, with_object_name
from fipop.guest.helm.releases import ReleaseState, build_labels
from fipop.guest.helm.runner import ReleaseOrder
from fipop.guest.helm_turn import HelmTurn, Outcome, ReleaseAttempt

_RUNS_HELM = (Action.INSTALL, Action.UPGRADE, Action.RETRY, Action.REPAIR, Action.MEND)
_LEAST_MEND_SECONDS = 60.0
"""Between two mends of drift in a guest: whoever deletes objects may do so again, and each time makes a revision."""


@dataclass(frozen=True, slots=True)
class ReleaseInstaller:
    """Looks after the releases of one guest during one pass."""

    turn: HelmTurn

    async def settle(self, wanted: WantedRelease) -> Outcome:
        """Bring one release to the wanted state, if that takes anything and may be done."""
        observed = self.turn.observed
        if wanted.role in observed.problems:
            return Outcome(error=observed.problems[wanted.role])
        if wanted.role in observed.unknown:
            return Outcome(awaits_helm=not self.turn.task.may_run_helm)
        state = observed.managed.get(wanted.role)
        chart, chart_error = await self._chart(wanted)
        decision = self._decide(state, wanted, chart)
        drift = self._drift(decision, wanted, chart)
        if decision.action not in _RUNS_HELM:
            return Outcome(
                drift=drift,
                reason=self.turn.task.gate.reason if drift else "",
                doubt=chart_error,
                wait_seconds=decision.wait_seconds,
            )
        if chart is None and decision.action is not Action.MEND:
            return Outcome(error=chart_error, wait_seconds=self._rest_without_chart(wanted, chart_error))
        attempt = ReleaseAttempt(
            turn=self.turn,
            role=wanted.role,
            what=decision.digest or "",
            failed="Could not install or update release",
            done="Installed or updated release",
            fields={"release": wanted.name, "action": decision.action.value},
        )
        if rest := attempt.rest_seconds():
            return Outcome(drift=drift, wait_seconds=rest)
        if not self.turn.task.may_run_helm:
            return Outcome(drift=drift, awaits_helm=True)
        if decision.action is not Action.MEND:
            self.turn.task.on_helm()
        return await attempt.make(
            self._change(decision, state, wanted, chart),
            least_seconds=_LEAST_MEND_SECONDS if self.turn.missing.get(wanted.role) else 0.0,
        )

    def _rest_without_chart(self, wanted: WantedRelease, error: ChartError | None) -> float:
        # As for helm: a source that is away for days is not asked for by every guest all the time.
        notes = self.turn.task.memory
        return notes.rest_seconds(wanted.role, "") or notes.note_failure(wanted.role, "", error)

    def _decide(
        self, state: ReleaseState | None, wanted: WantedRelease, chart: CachedChart | None
    ) -> Decision:
        gate = self.turn.task.gate
        decision = decide(
            state,
            wanted,
            chart=chart.identity if chart is not None else None,
            update=state is not None and gate.may_change(state),
            age_seconds=self.turn.observed.age_seconds(state) if state is not None else 0.0,
            grace_seconds=self.turn.limits.grace_seconds,
        )
        if (
            state is not None
            and decision.action in (Action.RETRY, Action.REPAIR)
            and not gate.may_retry(state)
        ):
            return Decision(action=Action.DRIFT, digest=decision.digest)
        if decision.action in (Action.NOTHING, Action.DRIFT) and self.turn.missing.get(wanted.role):
            return Decision(action=Action.MEND if gate.mend else Action.DRIFT, digest=decision.digest)
        if decision.action in (Action.NOTHING, Action.DRIFT):
            # What failed once is no longer tried.
            self.turn.task.memory.note_success(wanted.role)
        return decision

    def _drift(self, decision: Decision, wanted: WantedRelease, chart: CachedChart | None) -> str:
        missing = self.turn.missing.get(wanted.role)
        if missing:
            return f"{', '.join(missing)} is missing"
        if decision.action is not Action.DRIFT or chart is None:
            return ""
        return f"chart or values differ from {chart.identity.name} {chart.identity.version} and the options"

    async def _chart(self, wanted: WantedRelease) -> tuple[CachedChart | None, ChartError | None]:
        aim = self.turn.task.gate.aim
        try:
            chart = await self.turn.limits.charts.get(
                wanted.source, content=aim.target.charts[wanted.role].content if aim is not None else ""
            )
        except ChartError as error:
            return None, error
        return chart, None

    async def _change(
        self,
        decision: Decision,
        state: ReleaseState | None,
        wanted: WantedRelease,
        chart: CachedChart | None,
    ) -> None:
        if state is not None and decision.action is Action.MEND:
            await self.turn.records.roll_back(state, state.latest.revision)
            return
        assert chart is not None, "only a repair has none"
        revision = state.latest.revision + 1 if state is not None else 1
        if state is not None and decision.action is Action.REPAIR:
            await self.turn.records.drop(state)
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
                await self.turn.limits.helm.upgrade(
                    self.turn.target, _order(state, revision, wanted, chart, object_name)
                )
            except HelmError as error:
                if error.failure is not HelmFailure.NAME_TAKEN or number == len(candidates):
                    raise
            else:
                return

    def _taken_names(self, wanted: WantedRelease) -> frozenset[str]:
        return frozenset(
            workload.name
            for workload in self.turn.observed.workloads
            if workload.release != (wanted.namespace, wanted.name)
        )


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
