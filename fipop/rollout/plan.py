"""What a rollout does next, decided from values alone: who gets the target, who succeeded or failed, when it stops.

Where a guest cluster stands follows from what its last visit found (`Member`), and from what this leader knows of it
already (`MemberState`). Only what no visit can find is kept in `Rollout`. The rules are those of
docs/concepts/rollouts.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property

from fipop.helm.charts import Target
from fipop.helm.releases import Release
from fipop.rollout.member import Fleet, Member, RolloutStatus
from fipop.settings.options import Settings
from fipop.settings.values import FailureStrategy, RolloutType
from fipop.texts import list_some

_NAMED = 5
"""The most guest clusters, and the most overrides, that the reason of a stop names."""
VERDICT_SECONDS = 120.0
"""How long after a deadline the verdict can take: a visit, a write, a change of leaders in between."""
_REMEMBERED = 10
"""The most targets that are remembered as unproven."""


class Phase(StrEnum):
    """How a rollout stands."""

    PROGRESSING = "Progressing"
    STOPPED = "Stopped"
    COMPLETED = "Completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """All that is remembered of rollouts. A ConfigMap keeps it."""

    target: Target
    stable: Target | None = None
    """The target that was completed last; None before the first one."""
    phase: Phase = Phase.PROGRESSING
    reason: str = ""
    """Why it stopped, for people."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """The guest clusters in which the target failed, with their own target then: going back removes the evidence."""
    unproven: tuple[str, ...] = ()
    """The names of former targets that were never completed. What is not ready with one of them can be its fault."""
    takes_unready: bool = False
    """Whether no guest cluster was ready when it began, so that those that are not ready take part."""
    retried: str = ""
    """The annotation that was acted upon."""
    orders: Mapping[str, str] = field(default_factory=dict)
    """By role, which chart the options asked for. The version is looked up again if this changes."""
    began: datetime | None = None
    """When its target was taken up, for people."""

    @property
    def is_stable(self) -> bool:
        """Whether the target was completed before. Guest clusters without a release then get it without a turn."""
        return self.stable is not None and self.stable.name == self.target.name

    @property
    def retry_annotation(self) -> str:
        """The annotation by which the guest clusters take part again in which the target failed."""
        return f"retry/{self.target.name}"

    @property
    def is_stopped(self) -> bool:
        """Whether too many failures ended it."""
        return self.phase is Phase.STOPPED

    def has_failed(self, guest_id: str, member: Member) -> bool:
        """Return whether the target failed in a guest cluster, with the overrides that it has now."""
        return self.failed.get(guest_id) == member.target.name


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberState:
    """What this leader knows of one guest cluster in a rollout, for the target that the guest cluster had then."""

    target: str
    status: RolloutStatus = RolloutStatus.PENDING
    began_at: float | None = None
    """When helm began with the target, for the deadline."""
    is_canary: bool = False
    """Whether this leader admitted it as one of the first, whose success the others wait for."""

    @property
    def is_admitted(self) -> bool:
        """Whether it may have the target, and is judged by it."""
        return self.status is RolloutStatus.PROGRESSING


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What this leader knows of a rollout. The next leader finds it out by visits."""

    since: float = 0.0
    """When this leader began to lead, or began the rollout."""
    began_here: bool = False
    """Whether this leader began the rollout, so that no former one has judged a guest cluster in it."""
    states: Mapping[str, MemberState] = field(default_factory=dict)
    """By guest cluster."""
    is_blocked: bool = False
    """Whether an archive of the target is missing."""
    has_stable: bool = True
    """Whether the archives of the stable target are there. If not, it counts as none."""

    @property
    def admitted(self) -> frozenset[str]:
        """Those that may have the target and have neither succeeded nor failed."""
        return frozenset(list_guests(self, RolloutStatus.PROGRESSING))

    def state_of(self, guest_id: str, member: Member) -> MemberState:
        """Return what is known of a guest cluster: nothing if its labels have changed its target since."""
        state = self.states.get(guest_id)
        if state is None or state.target != member.target.name:
            return MemberState(target=member.target.name)
        return state


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseGoal:
    """What the releases of a guest cluster should be now."""

    target: Target | None = None
    """The charts and values; None: nothing is installed or changed."""
    may_change: bool = False
    """Whether what runs can be changed now: upgraded to the target, rolled back, or removed."""
    leaves: Target | None = None
    """A target that failed here, with no other one to go back to. What it made goes back to the newest revision that
    it did not make, or is removed if it made the first one."""
    keeps_first: bool = False
    """Whether a first revision for that target stays: the target was completed since, so none is left to go back to."""
    awaited: Target | None = None
    """What the options ask for; None if that is not known."""
    remove: bool = False
    reason: str = ""
    """That of the condition of a release that differs and stays as it is."""
    has_failed: bool = False
    """Whether a rollout failed here, so that what is missing does not wait for its turn."""

    @property
    def compare(self) -> tuple[Target, ...]:
        """The targets that a release of kube-fip-operator is compared with when it is taken over."""
        return tuple(each for each in (self.target, self.awaited) if each is not None)

    def reason_of(self, release: Release) -> str:
        """Return the reason for one release: one that is missing differs from nothing, it waits for its turn."""
        waits = self.reason == "Drift" and release.is_missing and not self.has_failed
        return "RolloutPending" if waits else self.reason


def begin(before: Rollout | None, target: Target, began: datetime | None = None) -> Rollout:
    """Start the rollout of another target."""
    if before is None:
        return Rollout(target=target, began=began)
    left = () if before.is_stable else (before.target.name,)
    unproven = tuple(each for each in (*before.unproven, *left) if each != target.name)
    return Rollout(
        target=target,
        stable=before.stable,
        unproven=unproven[-_REMEMBERED:],
        retried=before.retried,
        began=began,
    )


def retry(rollout: Rollout, fleet: Fleet, progress: Progress, now: float) -> tuple[Rollout, Progress]:
    """Let the guest clusters in which the target failed take part again. Those that have it get another deadline."""
    again = {}
    for each in rollout.failed.keys() & fleet.keys():
        target, has_begun = fleet[each].target.name, fleet[each].began_at is not None
        again[each] = MemberState(target=target, began_at=now if has_begun else None)
    rollout = replace(rollout, phase=Phase.PROGRESSING, reason="", failed={})
    return rollout, replace(progress, states={**progress.states, **again})


def advance(
    rollout: Rollout, fleet: Fleet, progress: Progress, settings: Settings, now: float
) -> tuple[Rollout, Progress]:
    """Take in what is seen of the fleet, and return how the rollout goes on."""
    if _is_all(settings):
        phase = Phase.PROGRESSING if rollout.is_stopped else rollout.phase
        rollout = replace(rollout, phase=phase, reason="", failed={})
    states = {each: _find_start(each, fleet[each], rollout, progress, settings, now) for each in fleet}
    rollout = _include_unready(rollout, find_affected(fleet), states)
    for each, member in fleet.items():
        status = _judge(each, member, states[each], rollout, progress, settings)
        states[each] = replace(states[each], status=status)
    progress = replace(progress, states=states)
    if any(each.is_eligible and each.visited_at is None for each in fleet.values()):
        # How many succeeded is not known yet, so neither is how many failures are too many.
        return rollout, progress
    standing = Standing(fleet=fleet, progress=progress, settings=settings)
    rollout = _stop(rollout, standing)
    if rollout.is_stopped or settings.pauses_rollouts or progress.is_blocked:
        # Who was admitted, and helm has not begun there, waits again.
        waits = [each for each in progress.admitted if states[each].began_at is None]
        return rollout, _set_status(progress, waits, RolloutStatus.PENDING)
    if standing.is_completed:
        return replace(rollout, phase=Phase.COMPLETED, stable=rollout.target), progress
    limit, are_canaries, pending = standing.find_limit()
    next_ones = pending[: max(0, limit - len(standing.under_way))]
    return rollout, _set_status(progress, next_ones, RolloutStatus.PROGRESSING, are_canaries=are_canaries)


def decide_goal(
    guest_id: str, member: Member, rollout: Rollout, progress: Progress, settings: Settings
) -> ReleaseGoal:
    """Return what the releases of a guest cluster should be. Every one keeps what it runs until it is admitted.

    The first of these that applies:

    1. The target failed here: roll back.
    2. It can have the target (admitted, succeeded, or all at once): the target.
    3. The rollout stopped, and what is not ready here can be the fault of a former target: roll back.
    4. helm has begun with the target: it stays, until this leader has judged it.
    5. Otherwise it keeps what it has; what is missing comes from the stable target.

    `member`: as it is seen now, perhaps later than what `progress` was made from.
    """
    updates, is_paused = settings.kubevip_update, settings.pauses_rollouts
    stable = member.stable if progress.has_stable else None
    drifts = not updates or (rollout.is_stopped and rollout.stable is not None and not member.is_at_stable)
    waits_for = "RolloutPaused" if is_paused else "Drift" if drifts else "RolloutPending"
    is_former_at_fault = rollout.is_stopped and not member.has_begun and _is_at_fault(member, rollout)

    if rollout.has_failed(guest_id, member):
        return _roll_back(member, stable, rollout, settings, waits_for, to_stable=is_former_at_fault)
    if _can_have_target(guest_id, member, rollout, progress, settings):
        return ReleaseGoal(target=member.target, may_change=updates, reason="" if updates else "Drift")
    if is_former_at_fault:
        return _roll_back(member, stable, rollout, settings, waits_for, to_stable=True)
    if member.has_begun:
        return ReleaseGoal(target=member.target, reason=waits_for)
    gets_stable = member.is_unlocked and (updates or member.is_unchanged or rollout.is_stopped)
    if member.lacks_release and not gets_stable:
        return ReleaseGoal(reason=waits_for)
    return ReleaseGoal(target=stable, reason=waits_for)


def _can_have_target(
    guest_id: str, member: Member, rollout: Rollout, progress: Progress, settings: Settings
) -> bool:
    """Return whether a guest cluster in which the target has not failed can have it now."""
    state = progress.state_of(guest_id, member)
    if state.status is RolloutStatus.SUCCEEDED or (_is_all(settings) and not settings.pauses_rollouts):
        return True
    if state.status is RolloutStatus.SKIPPED and member.is_at_target:
        return True  # it had the target before: nothing but a repair can follow
    return state.is_admitted and (member.has_begun or _takes_part(member, rollout, progress, settings))


def _roll_back(
    member: Member,
    stable: Target | None,
    rollout: Rollout,
    settings: Settings,
    waits_for: str,
    *,
    to_stable: bool,
) -> ReleaseGoal:
    """Return how a guest cluster leaves a target that failed: to the stable one, else to what ran before.

    `to_stable`: what runs can be the fault of a former target, so nothing that it made is kept.
    """
    goes_back = settings.kubevip_rollout_failure_strategy is FailureStrategy.ROLLBACK
    goes_back = goes_back and not settings.pauses_rollouts
    if not (goes_back and settings.kubevip_update):
        # What is missing changes nothing that is deployed.
        is_filled_up = goes_back and rollout.is_stopped and member.is_unlocked and member.lacks_release
        return ReleaseGoal(target=stable if is_filled_up else None, reason=waits_for, has_failed=True)
    if to_stable or (stable is not None and not member.is_unchanged):
        return ReleaseGoal(target=stable, may_change=True, reason="RolledBack")
    return ReleaseGoal(
        leaves=member.target, keeps_first=member.is_unchanged, may_change=True, reason="RolledBack"
    )


def count(statuses: Iterable[RolloutStatus]) -> dict[str, int]:
    """Count guest clusters by status, for the metric and for reports."""
    counts = Counter(statuses)
    return {each.value: counts[each] for each in RolloutStatus}


# Where a guest cluster stands


def _find_start(
    guest_id: str, member: Member, rollout: Rollout, progress: Progress, settings: Settings, now: float
) -> MemberState:
    """Return what is known of a guest cluster, with when helm began there: what is known once stays."""
    state, updates = progress.state_of(guest_id, member), settings.kubevip_update
    began_at, seen_at = state.began_at, member.began_at
    if began_at is None and seen_at is not None:
        # The time without a leader makes no guest cluster late.
        began_at = seen_at if member.is_at_target else max(seen_at, progress.since)
    if began_at is None or member.is_at_target:
        return replace(state, began_at=began_at)
    # Nor does the time in which helm could not go on there.
    is_over = _is_filled(member, settings) and not state.is_admitted
    is_made = rollout.target.name in member.made_for
    is_held = progress.is_blocked or is_over or not (updates or member.lacks_release or is_made)
    waits = not member.is_eligible or (is_held and member.is_reachable)
    return replace(state, began_at=now if waits else began_at)


def _judge(
    guest_id: str,
    member: Member,
    state: MemberState,
    rollout: Rollout,
    progress: Progress,
    settings: Settings,
) -> RolloutStatus:
    """Return where a guest cluster stands. What succeeded or failed once stays so."""
    if rollout.has_failed(guest_id, member):
        return RolloutStatus.FAILED
    if state.status is RolloutStatus.SUCCEEDED:
        return RolloutStatus.SUCCEEDED
    deadline_seconds = settings.kubevip_rollout_progress_deadline_seconds
    ready_seconds = member.ready_seconds
    has_soaked = (ready_seconds or 0.0) >= settings.kubevip_rollout_min_success_seconds and member.is_ready
    has_soaked = has_soaked and not has_gone_dark(member, state)
    if member.is_at_target:
        # A former leader has judged those with a deadline before this lead.
        verdict_at = (state.began_at or 0.0) + deadline_seconds + VERDICT_SECONDS
        is_over = state.began_at is not None and verdict_at <= progress.since
        if has_soaked or (is_over and not progress.began_here):
            return RolloutStatus.SUCCEEDED
        # Nor is judged who got the target before this rollout began, or as the stable one.
        if (is_over or member.is_unchanged) and not state.is_admitted:
            return RolloutStatus.SUCCEEDED if member.is_ready else RolloutStatus.SKIPPED
    if not member.is_eligible:
        return RolloutStatus.SKIPPED
    is_filled = _is_filled(member, settings)
    if is_filled and (has_soaked or not state.is_admitted):
        return RolloutStatus.SKIPPED  # what was missing is there, and the rest drifts
    if state.began_at is not None and (state.is_admitted or not member.is_unchanged):
        # How long pods have been ready counts, not when a visit comes: a verdict needs a visit after the deadline.
        was_asked = ready_seconds is not None or not (member.is_at_target or is_filled)
        if was_asked and (member.visited_at or 0.0) >= state.began_at + deadline_seconds:
            return RolloutStatus.SKIPPED if _is_all(settings) else RolloutStatus.FAILED
        return RolloutStatus.PROGRESSING
    if not _takes_part(member, rollout, progress, settings):
        return RolloutStatus.SKIPPED
    return RolloutStatus.PROGRESSING if state.is_admitted else RolloutStatus.PENDING


def has_gone_dark(member: Member, state: MemberState) -> bool:
    """Return whether an address of a guest cluster is announced no more since helm began there."""
    # The start for the deadline can be later: a change of leader, a pause and a retry make no guest cluster late.
    starts = [each for each in (state.began_at, member.began_at) if each is not None]
    return bool(starts) and member.dark_since is not None and member.dark_since >= min(starts)


def _takes_part(member: Member, rollout: Rollout, progress: Progress, settings: Settings) -> bool:
    """Return whether a guest cluster in which helm has not begun can be admitted."""
    if not (member.is_reachable and member.is_eligible and member.is_unlocked):
        return False
    updates = settings.kubevip_update
    if member.is_new or (member.lacks_release and not updates):
        # It gets the stable target first, if there is one.
        has_stable = rollout.stable is not None and progress.has_stable
        return member.is_ready and not (has_stable and (updates or member.is_unchanged))
    if member.is_unchanged and member.is_of_target:
        return False  # It gets the target as the stable one: nothing that is there has to be changed.
    # What its former labels chose can be the fault, too.
    may_be_unready = rollout.takes_unready or _is_all(settings)
    may_be_unready = may_be_unready or member.is_moved or _is_at_fault(member, rollout)
    return updates and (may_be_unready or member.is_ready)


def _is_at_fault(member: Member, rollout: Rollout) -> bool:
    """Return whether a guest cluster is not ready with a target that was never completed: that can be the fault."""
    return not (member.is_ready or member.made_for.isdisjoint(rollout.unproven))


def _is_filled(member: Member, settings: Settings) -> bool:
    """Return whether nothing is missing, and the target changes nothing more: what is deployed stays as it is."""
    return not settings.kubevip_update and member.is_deployed and not member.is_at_target


def _is_all(settings: Settings) -> bool:
    """Return whether every guest cluster has the target at its next visit, and no failure stops that."""
    return settings.kubevip_rollout_type is RolloutType.ALL


# How the rollout stands


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where the guest clusters of a fleet stand, and what follows from that by the options."""

    fleet: Fleet
    progress: Progress
    settings: Settings

    @cached_property
    def affected(self) -> Fleet:
        """The guest clusters in which the target changes something."""
        return find_affected(self.fleet)

    @cached_property
    def pending(self) -> list[str]:
        """Those that wait for their turn, in the order in which they are admitted."""
        pending = list_guests(self.progress, RolloutStatus.PENDING)
        return sorted(pending, key=lambda each: (self.fleet[each].rank, each))

    @cached_property
    def under_way(self) -> list[str]:
        """Those that were admitted, and have neither succeeded nor failed."""
        return list_guests(self.progress, RolloutStatus.PROGRESSING)

    @cached_property
    def proven(self) -> list[str]:
        """Those in which the target succeeded that it changes."""
        return [each for each in list_guests(self.progress, RolloutStatus.SUCCEEDED) if each in self.affected]

    @cached_property
    def tested(self) -> frozenset[str]:
        """The changed overrides with which the target succeeded."""
        return self.find_entries(self.proven)

    @property
    def canaries(self) -> int:
        """How many have to succeed before the others are admitted."""
        return max(1, self.settings.kubevip_rollout_canaries.of(len(self.fleet)))

    @property
    def is_completed(self) -> bool:
        """Whether none is pending or under way, and more have succeeded than cannot be reached."""
        drifts = not self.settings.kubevip_update and any(each.drifts for each in self.fleet.values())
        if self.pending or self.under_way or drifts:
            return False
        skipped = self.affected.keys() & list_guests(self.progress, RolloutStatus.SKIPPED)
        members = [self.fleet[each] for each in skipped]
        return len(self.proven) > sum(each.is_eligible and not each.is_reachable for each in members)

    def find_entries(self, those: Iterable[str]) -> frozenset[str]:
        """Return the changed overrides of some guest clusters."""
        return frozenset().union(*(self.fleet[each].entries for each in those if each in self.fleet))

    def count_tolerated(self, failed: Collection[str]) -> int:
        """Return how many failures are tolerated now: none before the canaries have succeeded."""
        untested = self.find_entries((*self.pending, *self.under_way, *failed)) - self.tested
        if len(self.proven) < self.canaries or untested:
            return 0
        judged = len(self.proven) + len(failed) + len(self.under_way)
        return self.settings.kubevip_rollout_max_failures.of(judged)

    def find_limit(self) -> tuple[int, bool, list[str]]:
        """Return how many can be under way: canaries, then as many as have succeeded, so 2, 2, 4, 8 and so on.

        Also whether those that are admitted now are canaries, and who waits, in the order of admission.
        """
        first = self._choose_canaries()
        most, are_canaries = max(self.canaries, len(self.proven)), len(self.proven) < self.canaries
        if not self.tested >= self.find_entries((*self.pending, *self.under_way)):
            most, are_canaries = max(self.canaries - len(self.proven), len(self.under_way) + len(first)), True
        limit = min(max(1, self.settings.kubevip_rollout_max_concurrency.of(len(self.fleet))), most)
        limit = len(self.fleet) if _is_all(self.settings) else limit
        return limit, are_canaries, list(dict.fromkeys((*first, *self.pending)))

    def _choose_canaries(self) -> list[str]:
        """Return one that waits for each changed override that none has, be it proven or under way."""
        chosen, known = [], self.tested | self.find_entries(self.under_way)
        for each in self.pending:
            if not self.fleet[each].entries <= known:
                chosen.append(each)
                known |= self.fleet[each].entries
        return chosen


def _include_unready(rollout: Rollout, affected: Fleet, states: Mapping[str, MemberState]) -> Rollout:
    """Let guest clusters that are not ready take part if none is ready: they have nothing to lose."""
    known = (
        each
        for each, state in states.items()
        if state.began_at is not None or state.status is RolloutStatus.SUCCEEDED
    )
    if rollout.takes_unready or not affected.keys().isdisjoint((*known, *rollout.failed)):
        return rollout
    eligible = [each for each in affected.values() if each.is_eligible]
    candidates = [
        each for each in eligible if each.is_reachable and each.is_unlocked and not each.lacks_release
    ]
    is_seen = all(each.visited_at is not None for each in eligible)
    if is_seen and candidates and not any(each.is_ready for each in candidates):
        return replace(rollout, takes_unready=True)
    return rollout


def _stop(rollout: Rollout, standing: Standing) -> Rollout:
    """Keep who failed. If another one did, stop if these are too many: any before the canaries have succeeded."""
    those = list_guests(standing.progress, RolloutStatus.FAILED)
    failed = {**rollout.failed, **{each: standing.fleet[each].target.name for each in those}}
    if failed == rollout.failed:
        return rollout
    tolerated = standing.count_tolerated(failed)
    if len(failed) <= tolerated or rollout.is_stopped:
        return replace(rollout, failed=failed)
    reason = _describe_failures(failed, standing, tolerated)
    return replace(rollout, failed=failed, phase=Phase.STOPPED, reason=reason)


def find_affected(fleet: Fleet) -> Fleet:
    """Return the guest clusters in which the target changes something; all of them if it changes nothing anywhere."""
    return {each: member for each, member in fleet.items() if not member.is_unchanged} or fleet


def _set_status(
    progress: Progress, guest_ids: Iterable[str], status: RolloutStatus, *, are_canaries: bool = False
) -> Progress:
    changed = {
        each: replace(progress.states[each], status=status, is_canary=are_canaries) for each in guest_ids
    }
    return replace(progress, states={**progress.states, **changed})


def list_guests(progress: Progress, wanted: RolloutStatus) -> list[str]:
    """Return the guest clusters that have a status."""
    return [each for each, state in progress.states.items() if state.status is wanted]


def _describe_failures(failed: Iterable[str], standing: Standing, tolerated: int) -> str:
    fleet, untested = standing.fleet, standing.find_entries(failed) - standing.tested
    names = sorted((fleet[each].shown if each in fleet else "") or each for each in failed)
    entries = sorted({each.rpartition("/")[0] for each in untested})
    where = f"{len(names)} of {len(standing.affected)} guest clusters ({list_some(names, _NAMED)})"
    of_entries = f"; no guest cluster of override {list_some(entries, _NAMED)} succeeded" if entries else ""
    limit = f"; {tolerated} of these failures are tolerated" if tolerated else ""
    return f"the target failed in {where} and succeeded in {len(standing.proven)}{of_entries}{limit}"


def advise_after_stop(rollout: Rollout) -> str:
    """Return what to do about a rollout that stopped, as a clause. From the stable target nothing can be undone."""
    can_undo = rollout.stable is not None and not rollout.is_stable
    undo = "run fipop rollout undo, " if can_undo else ""
    return f"Correct the options, {undo}or repair the guest clusters and run fipop rollout retry"


def describe_change(rollout: Rollout) -> str:
    """Return the versions of the charts of a target, how it differs from the stable one, or that it goes back there."""
    target, stable = rollout.target, rollout.stable or rollout.target
    found = []
    for role, chart in target.charts.items():
        version = stable.charts[role].version
        former = f"{version} → " if version != chart.version else ""
        found.append(f"{role.value} {former}{chart.version}")
    differs = stable.name != target.name and stable.charts == target.charts
    back = "back to " if rollout.is_stable and rollout.phase is not Phase.COMPLETED else ""
    return back + ", ".join(found) + (" with other values" if differs else "")
