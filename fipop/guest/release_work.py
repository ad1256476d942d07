"""What one pass does about releases: install and upgrade, go back, or leave, whichever its task asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fipop.guest.helm.charts import Role, wanted_releases
from fipop.guest.helm_turn import HelmTurn, Outcome
from fipop.guest.release_gate import Return
from fipop.guest.release_installer import ReleaseInstaller
from fipop.guest.release_removal import remove
from fipop.guest.release_return import bring_back
from fipop.guest.workloads import judge_readiness

IN_TURN_SECONDS = 2.0
"""How soon to look again whether kube-vip is ready, so that the provider can follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseWork:
    """Works on the releases of one guest during one pass; `take` hears of each outcome."""

    turn: HelmTurn
    take: Callable[[Role, Outcome], None]

    async def run(self) -> None:
        """Do what the task asks for."""
        task = self.turn.task
        if task.leaving:
            await self._leave()
        elif task.gate.going_back is not None:
            await self._go_back(task.gate.going_back)
        elif task.gate.is_open:
            await self._settle()

    async def _settle(self) -> None:
        installer = ReleaseInstaller(self.turn)
        has_changed = False
        for wanted in wanted_releases(self.turn.task.settings):
            is_second = wanted.role is Role.CLOUD_PROVIDER and self.turn.task.gate.in_turn
            if is_second and (has_changed or not self._kube_vip_serves()):
                self.take(wanted.role, Outcome(wait_seconds=IN_TURN_SECONDS))
                return
            outcome = await installer.settle(wanted)
            has_changed = outcome.ran
            self.take(wanted.role, outcome)

    async def _go_back(self, back: Return) -> None:
        for wanted in reversed(wanted_releases(self.turn.task.settings)):
            self.take(wanted.role, await bring_back(self.turn, wanted, back))

    async def _leave(self) -> None:
        for state in self.turn.observed.removable if self.turn.task.may_remove else ():
            assert state.latest.role is not None, "releases of fipop have a role"
            self.take(state.latest.role, await remove(self.turn, state.latest.role, state))

    def _kube_vip_serves(self) -> bool:
        """Whether kube-vip is at the aim and ready, as it was seen before helm ran in this pass."""
        state, aim = self.turn.observed.managed.get(Role.KUBE_VIP), self.turn.task.gate.aim
        if state is None or aim is None:
            return False
        serves = judge_readiness(self.turn.observed.workloads_of(Role.KUBE_VIP)).ready
        return serves and aim.is_reached(Role.KUBE_VIP, state)
