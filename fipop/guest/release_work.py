"""What one pass does about releases: install and upgrade, go back, or leave, whichever its task asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fipop.guest.helm.charts import Role, wanted_releases
from fipop.guest.helm.runner import HelmTarget
from fipop.guest.limits import GuestLimits
from fipop.guest.observed import ObservedState
from fipop.guest.release_attempt import Outcome
from fipop.guest.release_gate import Return
from fipop.guest.release_installer import ReleaseInstaller
from fipop.guest.release_removal import ReleaseRemoval, find_ours
from fipop.guest.release_return import ReleaseReturn
from fipop.guest.reports import GuestTask
from fipop.guest.workloads import judge_readiness

IN_TURN_SECONDS = 2.0
"""How soon to look again whether kube-vip is ready, so that the provider can follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseWork:
    """Works on the releases of one guest during one pass; `take` hears of each outcome."""

    task: GuestTask
    limits: GuestLimits
    target: HelmTarget
    observed: ObservedState
    missing: Mapping[Role, tuple[str, ...]]
    may_run_helm: bool
    take: Callable[[Role, Outcome], None]

    async def run(self) -> None:
        """Do what the task asks for."""
        gate = self.task.gate
        if self.task.leaving:
            await self._leave()
        elif gate.going_back is not None:
            await self._go_back(gate.going_back)
        elif gate.is_open:
            await self._settle()

    async def _settle(self) -> None:
        installer = ReleaseInstaller(
            task=self.task,
            limits=self.limits,
            target=self.target,
            observed=self.observed,
            missing=self.missing,
            may_run_helm=self.may_run_helm,
        )
        has_changed = False
        for wanted in wanted_releases(self.task.settings):
            is_second = wanted.role is Role.CLOUD_PROVIDER and self.task.gate.in_turn
            if is_second and (has_changed or not self._kube_vip_serves()):
                self.take(wanted.role, Outcome(wait_seconds=IN_TURN_SECONDS))
                return
            outcome = await installer.settle(wanted)
            has_changed = outcome.ran
            self.take(wanted.role, outcome)

    async def _go_back(self, back: Return) -> None:
        going_back = ReleaseReturn(
            task=self.task,
            limits=self.limits,
            target=self.target,
            observed=self.observed,
            may_run_helm=self.may_run_helm,
        )
        for wanted in reversed(wanted_releases(self.task.settings)):
            self.take(wanted.role, await going_back.settle(wanted, back))

    async def _leave(self) -> None:
        if not self.task.may_remove:
            return
        removal = ReleaseRemoval(
            task=self.task,
            limits=self.limits,
            target=self.target,
            observed=self.observed,
            may_run_helm=self.may_run_helm,
        )
        for state in find_ours(self.observed):
            outcome = await removal.settle(state)
            if state.latest.role is not None:
                self.take(state.latest.role, outcome)

    def _kube_vip_serves(self) -> bool:
        """Whether kube-vip is at the aim and ready, as it was seen before helm ran in this pass."""
        state, aim = self.observed.managed.get(Role.KUBE_VIP), self.task.gate.aim
        if state is None or aim is None:
            return False
        serves = judge_readiness(self.observed.workloads_of(Role.KUBE_VIP)).ready
        return serves and aim.is_reached(Role.KUBE_VIP, state)
