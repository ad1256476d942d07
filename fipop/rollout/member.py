"""A guest cluster in a rollout: what its releases show, compared with the target and the stable one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import TypeAlias

from fipop.helm.charts import Target
from fipop.helm.releases import Release, Status


class RolloutStatus(StrEnum):
    """Where a guest cluster stands in a rollout, in the words of Open Cluster Management.

    The values are those of metrics and of `fipop rollout status`.
    """

    SKIPPED = "skipped"
    """It takes no part."""
    PENDING = "pending"
    """It waits for its turn."""
    PROGRESSING = "progressing"
    """It was admitted: it may have the target, and has neither succeeded nor failed."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A guest cluster that is opted in, as the last visit of this leader found it. Times are monotonic.

    All that a rollout asks about it follows from its releases and its targets.
    """

    target: Target
    """The target of the rollout as it is for this guest cluster: its name changes with its labels."""
    stable: Target | None = None
    """The stable target as it is for this guest cluster."""
    releases: tuple[Release, ...] = ()
    """Both releases; none if it could not be reached."""
    visited_at: float | None = None
    """When it was visited last, whether it answered or not; None before the first visit of this leader."""
    taken_up_at: float | None = None
    """When helm of this leader first took it up for the target; None if it did not."""
    chosen_at: float = -inf
    """When its labels chose this target instead of another one of the same rollout, as this leader saw it."""
    hindrance: str = ""
    """Why it can take no part, whatever a visit finds, as a sentence; "" if it can."""
    helm_problem: str = ""
    """Why helm failed with the target when it ran last, as a clause; "" if it did not."""
    dark_since: float | None = None
    """When an address was announced last that is not any more; None if there is none."""
    is_canary: bool = False
    """Whether it has the label that puts it first."""
    name: str = ""
    """That of its cluster, by which all others follow."""
    shown: str = ""
    """The same as messages have it: with what people call it, if that is another name."""

    @property
    def rank(self) -> tuple[bool, str]:
        """What it is admitted by, the smallest first: those with the label, then by name."""
        return not self.is_canary, self.name

    @property
    def is_eligible(self) -> bool:
        """Whether it is not paused, has a floating IP, and was ready in Rancher's eyes once."""
        return not self.hindrance

    @property
    def is_reachable(self) -> bool:
        """Whether it answered."""
        return bool(self.releases)

    @property
    def is_unlocked(self) -> bool:
        """Whether no other helm has locked a release, and no other kube-vip or provider runs or has its name."""
        return all(each.is_unlocked for each in self.releases)

    @property
    def is_new(self) -> bool:
        """Whether both releases are missing: a first revision that failed is none."""
        return self.is_reachable and all(each.is_missing for each in self.releases)

    @property
    def lacks_release(self) -> bool:
        """Whether a release is missing."""
        return any(each.is_missing for each in self.releases)

    @property
    def is_deployed(self) -> bool:
        """Whether both releases are deployed."""
        return self.is_reachable and all(each.status is Status.DEPLOYED for each in self.releases)

    @property
    def is_ready(self) -> bool:
        """Whether every release that is not missing runs and is ready."""
        return self.is_reachable and not any(each.problem for each in self.releases if not each.is_missing)

    @property
    def is_at_target(self) -> bool:
        """Whether both releases are deployed at the target."""
        return self.is_deployed and all(each.is_at(self.target) for each in self.releases)

    @property
    def is_at_stable(self) -> bool:
        """Whether both releases are deployed at the stable target."""
        return self.is_deployed and all(each.is_at(self.stable) for each in self.releases)

    @property
    def drifts(self) -> bool:
        """Whether a release that is not missing differs from the target."""
        return any(
            not (each.is_missing or (each.status is Status.DEPLOYED and each.is_at(self.target)))
            for each in self.releases
        )

    @property
    def is_unchanged(self) -> bool:
        """Whether the stable target has the same for it: then the target is proven there."""
        return self.stable is not None and self.stable.digests == self.target.digests

    @property
    def made_for(self) -> frozenset[str]:
        """The names of the targets that its releases were made for; "" for one that no target made."""
        return frozenset(_base(each.made_for) for each in self._present)

    @property
    def is_of_target(self) -> bool:
        """Whether all that is there was made for the target, be it whole or not."""
        return bool(self._present) and all(each.made_for == self.target.name for each in self._present)

    @property
    def is_moved(self) -> bool:
        """Whether a release was made for one of the two targets, and its labels have chosen other overrides since."""
        names = {each.name for each in (self.target, self.stable) if each is not None}
        others = {each.made_for for each in self._present} - names
        return not {_base(each) for each in others}.isdisjoint(map(_base, names))

    @property
    def entries(self) -> frozenset[str]:
        """The overrides that it gets with one of the two targets, and not with the other one.

        All, if the target is the stable one: labels, and guest clusters that come back, bring some with which none
        has succeeded.
        """
        if self.stable is None or self.stable.name == self.target.name:
            return self.target.entries
        return frozenset() if self.is_unchanged else self.target.entries ^ self.stable.entries

    @property
    def began_at(self) -> float | None:
        """When helm began with the target, by this leader or by the age of what it made; None if it did not."""
        # The older release shows when helm began. A release at the stable target was made in a former rollout. But if
        # another target changes nothing here, the release has the name of the one that it was made for. And a guest
        # cluster that lacks a release is still being installed.
        # What is older than the choice of the labels was made when they were the same before.
        is_other = self.stable is not None and self.stable.name != self.target.name
        tells = self.is_unchanged and (is_other or self.lacks_release)
        ages = [
            each.age_seconds
            for each in self._present
            if each.made_for == self.target.name and (tells or not each.is_at(self.stable))
        ]
        at = self.visited_at or 0.0
        ages = [each for each in ages if at - each >= self.chosen_at]
        if self.is_at_target and not ages:
            # Both were at the target before: nothing was made for it.
            ages = [min(each.age_seconds for each in self.releases)]
        starts = [] if self.taken_up_at is None else [self.taken_up_at]
        starts += [at - max(ages)] if ages and self.visited_at is not None else []
        return max(min(starts), self.chosen_at) if starts else None

    @property
    def has_begun(self) -> bool:
        """Whether helm has begun with the target, or was at it before."""
        return self.began_at is not None or self.is_at_target

    @property
    def ready_seconds(self) -> float | None:
        """How long all pods of both releases have been ready, since the upgrade.

        None if that was not asked, or if a release is not deployed.
        """
        # Not longer than since the upgrade: before it, the pods of the revision before were ready.
        soaks = [
            min(each.ready_seconds, each.age_seconds)
            for each in self.releases
            if each.ready_seconds is not None
        ]
        return min(soaks, default=None) if self.is_deployed else None

    @property
    def _present(self) -> list[Release]:
        return [each for each in self.releases if each.status is not Status.ABSENT]


Fleet: TypeAlias = Mapping[str, Member]
"""The guest clusters that are opted in, by id."""


def _base(name: str) -> str:
    """Return the name of the target that the target of a guest cluster is part of."""
    return name.partition(".")[0]
