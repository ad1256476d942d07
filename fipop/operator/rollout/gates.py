"""What a rollout allows one guest: to which target its releases may be brought. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from fipop.guest.helm.charts import Role
from fipop.guest.helm.targets import hash_asked
from fipop.guest.release_gate import Aim, ReleaseGate, Return, gate_of_settings
from fipop.operator.rollout.progress import GuestProgress, Phase, RolloutState, Step
from fipop.settings.options import Settings
from fipop.settings.values import FailureStrategy, RolloutType

_LONGEST_RECHECK_SECONDS = 15.0
_RECHECKS = 8
"""So often, at least, a guest is looked at while it is to stay ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateKeeper:
    """The rollout as gates need it. `current` and `stable` are the targets of `state`, where they can be told."""

    settings: Settings
    state: RolloutState | None
    current: Aim | None
    stable: Aim | None

    def gate(self, *, progress: GuestProgress | None, at_current: bool, seen: bool) -> ReleaseGate:
        """Give the gate of one guest; `at_current`: its releases were seen at the current target.

        Nothing that runs is changed in a guest before a pass of ours has seen it (`seen`).
        """
        settings, state, current = self.settings, self.state, self.current
        if settings.kubevip_rollout_type is RolloutType.ALL:
            return gate_of_settings(settings)
        if not settings.kubevip_update and not self._is_under_way():
            return gate_of_settings(settings)
        if state is None or current is None:
            # No rollout yet: new guests get what the settings say.
            return ReleaseGate(update=False, mend=False, is_proven=False, reason="RolloutPending")
        if state.phase is Phase.COMPLETED:
            may = settings.kubevip_update
            return self._build(current, update=may and seen, mend=may, is_proven=True)
        if progress is not None and progress.step is not Step.SKIPPED:
            return self._admitted(progress, current)
        if at_current:
            return self._build(current, mend=settings.kubevip_update, is_proven=False)
        return self._waiting()

    def _is_under_way(self) -> bool:
        """Whether what the options ask for is the target of a rollout that is not completed."""
        state, current = self.state, self.current
        if state is None or current is None or state.phase is Phase.COMPLETED:
            return False
        return current.target.asked == hash_asked(self.settings)

    def _admitted(self, progress: GuestProgress, current: Aim) -> ReleaseGate:
        settings, state = self.settings, self.state
        assert state is not None, "a guest is admitted to a rollout"
        may = settings.kubevip_update
        if progress.step is Step.ROLLED_BACK:
            return self._waiting(reason="RolledBack")
        if state.phase is Phase.STOPPED and progress.step is Step.FAILED:
            return self._stopped(progress, current)
        starts = progress.step is not Step.ADMITTED or not settings.kubevip_rollout_paused
        return self._build(
            current,
            update=may and starts,
            mend=may,
            in_turn=not progress.weak,
            watch_pods=progress.step is Step.UPGRADING,
            recheck_seconds=self._recheck_seconds() if not progress.step.is_final else None,
        )

    def _stopped(self, progress: GuestProgress, current: Aim) -> ReleaseGate:
        settings = self.settings
        may_go = settings.kubevip_update and not settings.kubevip_rollout_paused
        if settings.kubevip_rollout_failure_strategy is FailureStrategy.STOP or not may_go:
            return ReleaseGate(aim=current, known=self._known(), is_open=False)
        kube_vip, provider = progress.revisions
        revisions = {Role.KUBE_VIP: kube_vip, Role.CLOUD_PROVIDER: provider}
        return ReleaseGate(
            aim=self.stable or current,
            known=self._known(),
            going_back=Return(revisions=revisions, leaving=current),
        )

    def _waiting(self, reason: str = "RolloutPending") -> ReleaseGate:
        """Give the gate of a guest whose turn has not come: what runs is left, what is broken is mended."""
        aim = self.stable or self.current
        assert aim is not None, "called only with a target"
        return self._build(
            aim,
            mend=self.settings.kubevip_update,
            is_proven=self.stable is not None,
            reason=reason,
        )

    def _build(self, aim: Aim, *, update: bool = False, mend: bool = False, **more: object) -> ReleaseGate:
        return ReleaseGate(aim=aim, update=update, mend=mend, known=self._known(), **more)  # type: ignore[arg-type]

    def _known(self) -> tuple[Aim, ...]:
        return tuple(aim for aim in (self.current, self.stable) if aim is not None)

    def _recheck_seconds(self) -> float:
        soak = self.settings.kubevip_rollout_min_success_seconds
        return min(max(soak / _RECHECKS, 1.0), _LONGEST_RECHECK_SECONDS)
