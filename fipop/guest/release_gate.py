"""What may be done about a guest's releases: to which charts and values they are brought, and what else is changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fipop.guest.decisions import is_as_wanted, wanted_digest
from fipop.guest.errors import ChartError
from fipop.guest.helm.charts import Role, WantedRelease, wanted_releases
from fipop.guest.helm.releases import ReleaseState, Status
from fipop.guest.helm.targets import Target
from fipop.settings.options import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """A target with the settings in force: releases as they are to be once a guest has it."""

    target: Target
    settings: Settings
    wanted: Mapping[Role, WantedRelease]

    def is_reached(self, role: Role, state: ReleaseState) -> bool:
        """Whether a release is at the target, or was made by the predecessor of the same chart and values."""
        wanted, chart = self.wanted[role], self.target.charts[role]
        return is_as_wanted(state, wanted, chart, wanted_digest(state, wanted, chart))

    def made(self, role: Role, state: ReleaseState) -> bool:
        """Whether the release's latest revision came from this target, be it that people changed it later."""
        wanted, chart = self.wanted[role], self.target.charts[role]
        return state.latest.digest == wanted_digest(state, wanted, chart)


def build_aim(target: Target, settings: Settings) -> Aim:
    """Apply a target to the settings in force."""
    applied = target.apply(settings)
    return Aim(target=target, settings=applied, wanted={one.role: one for one in wanted_releases(applied)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Return:
    """Back to the revisions deployed before the first touch (0: none), away from target `leaving`."""

    revisions: Mapping[Role, int]
    leaving: Aim

    def is_done(self, role: Role, state: ReleaseState | None) -> bool:
        """Whether a release is back, was never touched, or has nothing to go back to."""
        revision = self.revisions.get(role, 0)
        if state is None or revision == 0:
            return True
        latest = state.latest
        is_back = latest.revision == revision or not self.leaving.made(role, state)
        return latest.status is Status.DEPLOYED and is_back


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseGate:
    """What a pass may do about releases.

    `aim`: to what they are brought; None: to what the settings say, with the chart that is found for it. `update`:
    one that runs is brought there, too; else only what is missing or broken is. `mend`: what people deleted or changed
    is put right. `is_proven`: the aim was completed before, so a guest with something deployed may be repaired towards
    it. `is_open`: helm may run at all. `in_turn`: the provider follows once kube-vip is ready. `watch_pods`: restarts
    are counted. `reason`: that of the condition where a release that differs is left so. `known`: what releases are
    compared with. `problems`: charts that the options ask for and that cannot be had, where the aim is another.
    `unreadable`: why the state of rollouts cannot be read, "" if it can.
    """

    aim: Aim | None = None
    update: bool = False
    mend: bool = False
    is_proven: bool = True
    is_open: bool = True
    in_turn: bool = False
    watch_pods: bool = False
    going_back: Return | None = None
    known: tuple[Aim, ...] = ()
    reason: str = ""
    unreadable: str = ""
    problems: Mapping[Role, ChartError] = field(default_factory=dict)
    recheck_seconds: float | None = field(default=None, compare=False)

    def may_change(self, state: ReleaseState) -> bool:
        """Whether a deployed release that differs from the aim is brought there."""
        by_hand = state.latest.digest is not None and not state.latest.is_by_us
        return self.update or (self.mend and self.is_proven and by_hand)

    def may_retry(self, state: ReleaseState) -> bool:
        """Whether what failed or died is brought to the aim: where something runs, only to one that is proven."""
        return self.update or self.is_proven or not state.deployed_revision


def gate_of_settings(settings: Settings) -> ReleaseGate:
    """Return the gate without rollouts: if updates are wanted, every guest cluster gets them at its next visit."""
    return ReleaseGate(update=settings.kubevip_update, mend=settings.kubevip_update)
