"""What a rollout does next, decided from values alone: who gets the target, who succeeded or failed, when it stops.

Where a guest cluster stands follows from what its last visit found. Only what no visit can find is kept in `Rollout`.
The rules are those of docs/concepts/rollouts.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from fipop.helm.charts import Target
from fipop.helm.releases import Release, Status
from fipop.settings.values import Amount

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

    @property
    def is_stable(self) -> bool:
        """Whether the target was completed before. Guest clusters without a release then get it without a turn."""
        return self.stable is not None and self.stable.name == self.target.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The options of rollouts."""

    canaries: Amount
    max_concurrency: Amount
    max_failures: Amount
    soak_seconds: float
    deadline_seconds: float
    is_all: bool = False
    """Every guest cluster has the target at its next visit, and no failure stops that."""
    goes_back: bool = True
    """Whether guest clusters in which the target failed go back."""
    is_paused: bool = False
    is_blocked: bool = False
    """Whether an archive of the target is missing."""
    has_stable: bool = True
    """Whether the archives of the stable target are there. If not, it counts as none."""
    updates: bool = True
    """Whether releases that are deployed change at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A guest cluster that is opted in, as the last visit of this leader found it. Times are monotonic."""

    visited_at: float | None = None
    """When it was visited last, whether it answered or not; None before the first visit of this leader."""
    is_reachable: bool = False
    is_open: bool = True
    """Whether it is not paused, has a floating IP, and was ready in Rancher's eyes once."""
    is_free: bool = True
    """Whether no other helm has locked a release, and no other kube-vip or provider runs or has its name."""
    is_canary: bool = False
    is_new: bool = False
    """Whether both releases are missing: a first revision that failed is none."""
    lacks: bool = False
    """Whether a release is missing."""
    is_whole: bool = False
    """Whether both releases are deployed."""
    drifts: bool = False
    """Whether a release that is not missing differs from the target."""
    is_sound: bool = False
    """Whether every release that is not missing runs and is ready."""
    made_for: frozenset[str] = frozenset()
    """The names of the targets that its releases were made for; "" for one that no target made."""
    is_at_target: bool = False
    """Whether both releases are deployed at the target."""
    has_no_other: bool = False
    """Whether all that is there was made for the target, be it whole or not."""
    began_at: float | None = None
    """When helm first took it up for the target, by this leader or by the age of what it made; None if it did not."""
    ready_seconds: float | None = None
    """How long all pods of both releases have been ready, since the upgrade; None if that was not asked, or if one is
    not deployed."""
    target: str = ""
    """The name of its own target, which changes with its labels."""
    is_at_stable: bool = False
    """Whether both releases are at the stable target."""
    is_moved: bool = False
    """Whether a release was made for one of the two targets, and its labels have chosen other overrides since."""
    is_unchanged: bool = False
    """Whether the stable target has the same for it: then the target is proven there."""
    entries: frozenset[str] = frozenset()
    """The overrides that it gets with one of the two targets, and not with the other one. All, if the target is the
    stable one: labels, and guest clusters that come back, bring some with which none has succeeded."""

    def see(self, releases: tuple[Release, ...], target: Target, stable: Target | None) -> Member:
        """Return the same guest cluster with its releases; none if it could not be reached.

        `target` and `stable` are those of this guest cluster.
        """
        there = [each for each in releases if each.status is not Status.ABSENT]
        is_whole = len(there) == len(releases) > 0 and all(each.status is Status.DEPLOYED for each in there)
        is_at_target = is_whole and all(each.is_at(target) for each in there)
        is_unchanged = stable is not None and stable.digests == target.digests
        names = {target.name, stable.name} if stable is not None else {target.name}
        others = {each.made_for for each in there} - names
        entries = target.entries
        if stable is not None and stable.name != target.name:
            entries = frozenset() if is_unchanged else target.entries ^ stable.entries
        # The older one is the start of helm. Nothing was made for a target that both releases were at before. What is
        # at the stable target, too, was made in a former rollout of this one.
        mine = [each for each in there if each.made_for == target.name]
        ages = [each.age_seconds for each in mine if is_unchanged or not each.is_at(stable)]
        if is_at_target and not ages:
            ages = [min(each.age_seconds for each in there)]
        starts = [] if self.began_at is None else [self.began_at]
        starts += [self.visited_at - max(ages)] if ages and self.visited_at is not None else []
        # Not longer than since the upgrade: before it, the pods of the revision before were ready.
        soaks = [
            min(each.ready_seconds, each.age_seconds) for each in there if each.ready_seconds is not None
        ]
        return replace(
            self,
            is_reachable=bool(releases),
            is_free=all(each.is_free for each in releases),
            is_new=bool(releases) and all(each.is_missing for each in releases),
            lacks=any(each.is_missing for each in releases),
            is_whole=is_whole,
            drifts=any(
                not (each.is_missing or (each.status is Status.DEPLOYED and each.is_at(target)))
                for each in releases
            ),
            is_sound=bool(releases) and not any(each.problem for each in releases if not each.is_missing),
            made_for=frozenset(_base(each.made_for) for each in there),
            is_at_target=is_at_target,
            has_no_other=bool(there) and all(each.made_for == target.name for each in there),
            began_at=min(starts, default=None),
            ready_seconds=min(soaks, default=None) if is_whole else None,
            target=target.name,
            is_at_stable=is_whole and all(each.is_at(stable) for each in there),
            is_moved=not {_base(each) for each in others}.isdisjoint(map(_base, names)),
            is_unchanged=is_unchanged,
            entries=entries,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
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


class Standing(StrEnum):
    """Where a guest cluster stands in a rollout."""

    AWAY = "away"
    """It takes no part."""
    PENDING = "pending"
    PROGRESSING = "progressing"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What this leader knows of guest clusters in a rollout. The next leader finds it out by visits."""

    since: float = 0.0
    """When this leader began to lead, or began the rollout."""
    admitted: frozenset[str] = frozenset()
    """Those that may have the target and have neither succeeded nor failed."""
    began: Mapping[str, float] = field(default_factory=dict)
    """When helm began with the target, for deadlines."""
    succeeded: frozenset[str] = frozenset()
    targets: Mapping[str, str] = field(default_factory=dict)
    """The own targets of the guest clusters for which all of this is known."""


def begin(before: Rollout | None, target: Target) -> Rollout:
    """Start the rollout of another target."""
    if before is None:
        return Rollout(target=target)
    left = () if before.is_stable else (before.target.name,)
    unproven = tuple(each for each in (*before.unproven, *left) if each != target.name)
    return Rollout(
        target=target,
        stable=before.stable,
        unproven=unproven[-_REMEMBERED:],
        retried=before.retried,
    )


def retry(
    rollout: Rollout, fleet: Mapping[str, Member], progress: Progress, now: float
) -> tuple[Rollout, Progress]:
    """Let the guest clusters in which the target failed take part again. Those that have it get another deadline."""
    again = {each: now for each in rollout.failed if each in fleet and fleet[each].began_at is not None}
    others = {each: since for each, since in progress.began.items() if each not in rollout.failed}
    rollout = replace(rollout, phase=Phase.PROGRESSING, reason="", failed={})
    return rollout, replace(progress, began={**others, **again})


def advance(
    rollout: Rollout, fleet: Mapping[str, Member], progress: Progress, policy: Policy, now: float
) -> tuple[Rollout, Progress]:
    """Take in what is seen of the fleet, and return how the rollout goes on."""
    progress = _forget_moved(progress, fleet)
    if policy.is_all:
        rollout = replace(rollout, phase=_unstopped(rollout), reason="", failed={})
    began = _find_starts(rollout, fleet, progress, policy, now)
    progress = replace(progress, began=began)
    # Where the target changes something; everywhere if it changes nothing.
    affected = {each: member for each, member in fleet.items() if not member.is_unchanged} or fleet
    rollout = _include_unready(rollout, affected, progress)
    standings = {each: judge(each, member, rollout, progress, policy) for each, member in fleet.items()}
    under_way, pending = _those(standings, Standing.PROGRESSING), _those(standings, Standing.PENDING)
    succeeded = frozenset(_those(standings, Standing.SUCCEEDED))
    progress = replace(progress, admitted=frozenset(under_way), succeeded=succeeded)
    if any(each.is_open and each.visited_at is None for each in fleet.values()):
        # How many succeeded is not known yet, so neither is how many failures are too many.
        return rollout, progress
    failed = {**rollout.failed, **{each: fleet[each].target for each in _those(standings, Standing.FAILED)}}
    proven = succeeded.intersection(affected)
    canaries = max(1, policy.canaries.of(len(fleet)))
    tested = _find_entries(fleet, proven)
    tolerated = 0
    if len(proven) >= canaries and tested >= _find_entries(fleet, (*pending, *under_way, *failed)):
        tolerated = policy.max_failures.of(len(proven) + len(failed) + len(under_way))
    if failed != rollout.failed and len(failed) > tolerated and rollout.phase is not Phase.STOPPED:
        untested = _find_entries(fleet, failed) - tested
        reason = _describe_failures(failed, len(affected), len(proven), untested)
        rollout = replace(rollout, phase=Phase.STOPPED, reason=reason)
    rollout = replace(rollout, failed=failed)
    if rollout.phase is Phase.STOPPED or policy.is_paused or policy.is_blocked:
        return rollout, replace(progress, admitted=progress.admitted.intersection(began))
    drifts = not policy.updates and any(each.drifts for each in fleet.values())
    away = affected.keys() & _those(standings, Standing.AWAY)
    out_of_reach = sum(fleet[each].is_open and not fleet[each].is_reachable for each in away)
    if not (pending or under_way or drifts) and len(proven) > out_of_reach:
        return replace(rollout, phase=Phase.COMPLETED, stable=rollout.target), progress
    pending.sort(key=lambda each: (not fleet[each].is_canary, each))
    first = _choose_canaries(fleet, pending, tested | _find_entries(fleet, under_way))
    # As many at a time as have succeeded: 2, 2, 4, 8 and so on, up to the limit.
    most = max(canaries, len(proven))
    if not tested >= _find_entries(fleet, (*pending, *under_way)):
        most = max(canaries - len(proven), len(under_way) + len(first))
    limit = len(fleet) if policy.is_all else min(max(1, policy.max_concurrency.of(len(fleet))), most)
    next_ones = list(dict.fromkeys((*first, *pending)))[: max(0, limit - len(under_way))]
    return rollout, replace(progress, admitted=progress.admitted.union(next_ones))


def judge(guest_id: str, member: Member, rollout: Rollout, progress: Progress, policy: Policy) -> Standing:
    """Return where a guest cluster stands. What succeeded or failed once stays so."""
    if rollout.failed.get(guest_id) == member.target:
        return Standing.FAILED
    if guest_id in progress.succeeded:
        return Standing.SUCCEEDED
    began_at = progress.began.get(guest_id)
    is_admitted = guest_id in progress.admitted
    is_proven = member.is_sound and (member.ready_seconds or 0.0) >= policy.soak_seconds
    if member.is_at_target:
        # Who got the target as the stable one is not judged. A former leader has judged those with a deadline before
        # this lead.
        verdict_seconds = policy.deadline_seconds + VERDICT_SECONDS
        was_judged = began_at is not None and began_at + verdict_seconds <= progress.since
        if is_proven or was_judged or (member.is_unchanged and not is_admitted):
            return Standing.SUCCEEDED
    if not member.is_open:
        return Standing.AWAY
    if _is_filled(member, policy) and (is_proven or not is_admitted):
        return Standing.AWAY  # what was missing is there, and the rest drifts
    if began_at is not None and (is_admitted or not member.is_unchanged):
        # How long pods have been ready counts, not when a visit comes: a verdict needs a visit after the deadline.
        is_asked = member.is_at_target or _is_filled(member, policy)
        was_asked = not (is_asked and member.ready_seconds is None)
        is_late = was_asked and (member.visited_at or 0.0) >= began_at + policy.deadline_seconds
        if is_late:
            return Standing.AWAY if policy.is_all else Standing.FAILED
        return Standing.PROGRESSING
    if not takes_part(member, rollout, policy):
        return Standing.AWAY
    return Standing.PROGRESSING if is_admitted else Standing.PENDING


def takes_part(member: Member, rollout: Rollout, policy: Policy) -> bool:
    """Return whether a guest cluster in which helm has not begun can be admitted."""
    if not (member.is_reachable and member.is_open and member.is_free):
        return False
    if member.is_new or (member.lacks and not policy.updates):
        # It gets the stable target first, if there is one.
        has_stable = rollout.stable is not None and policy.has_stable
        return member.is_sound and not (has_stable and (policy.updates or member.is_unchanged))
    if member.is_unchanged and member.has_no_other:
        return False  # It gets the target as the stable one: nothing that is there has to be changed.
    # What its former labels chose can be the fault, too.
    may_be_unready = rollout.takes_unready or policy.is_all or member.is_moved or is_at_fault(member, rollout)
    return policy.updates and (member.is_sound or may_be_unready)


def is_at_fault(member: Member, rollout: Rollout) -> bool:
    """Return whether a guest cluster is not ready with a target that was never completed: that can be the fault."""
    return not member.is_sound and not member.made_for.isdisjoint(rollout.unproven)


def choose_wish(guest_id: str, member: Member, rollout: Rollout, progress: Progress, policy: Policy) -> Wish:
    """Return what the releases of a guest cluster should be. Every one keeps what it runs until it is admitted.

    `member`: as it is seen now, perhaps later than what `progress` was made from.
    """
    progress = _forget_moved(progress, {guest_id: member})
    target, stable = rollout.target, rollout.stable if policy.has_stable else None
    is_begun = member.began_at is not None or member.is_at_target
    is_admitted = guest_id in progress.admitted and (is_begun or takes_part(member, rollout, policy))
    has_failed = rollout.failed.get(guest_id) == member.target
    is_all = policy.is_all and not policy.is_paused
    if not has_failed and (is_all or is_admitted or guest_id in progress.succeeded):
        return Wish(target=target, may_change=policy.updates, reason="" if policy.updates else "Drift")
    is_stopped = rollout.phase is Phase.STOPPED
    drifts = not policy.updates or (is_stopped and rollout.stable is not None and not member.is_at_stable)
    reason = "Drift" if drifts else "RolloutPending"
    reason = "RolloutPaused" if policy.is_paused else reason
    is_hurt = is_stopped and not is_begun and is_at_fault(member, rollout)
    if has_failed or is_hurt:
        if not (policy.goes_back and policy.updates) or policy.is_paused:
            # What is missing changes nothing that is deployed.
            is_filled_up = policy.goes_back and not policy.is_paused and is_stopped and member.is_free
            filler = stable if is_filled_up and member.lacks else None
            return Wish(target=filler, reason=reason, has_failed=True)
        if is_hurt or (stable is not None and not member.is_unchanged):
            return Wish(target=stable, may_change=True, reason="RolledBack")
        return Wish(leaves=target, keeps_first=member.is_unchanged, may_change=True, reason="RolledBack")
    if is_begun:
        stable = target  # what this leader has not judged yet stays
    elif member.lacks and not (member.is_free and _gets_stable(member, rollout, policy)):
        stable = None  # it waits for its turn, or for the end of what runs beside it
    return Wish(target=stable, reason=reason)


def count(standings: Iterable[Standing]) -> dict[str, int]:
    """Count guest clusters by standing, for the metric and for reports."""
    counts = dict.fromkeys((each.value for each in Standing), 0)
    for each in standings:
        counts[each.value] += 1
    return counts


def _find_starts(
    rollout: Rollout, fleet: Mapping[str, Member], progress: Progress, policy: Policy, now: float
) -> dict[str, float]:
    """Return when helm began with the target in each guest cluster: what is known once stays."""
    found = {}
    for guest_id, member in fleet.items():
        known, seen = progress.began.get(guest_id), member.began_at
        if known is None and seen is not None:
            # The time without a leader makes no guest cluster late.
            known = seen if member.is_at_target else max(seen, progress.since)
        if known is None:
            continue
        # Nor does the time in which helm could not go on there.
        is_made = rollout.target.name in member.made_for
        is_over = _is_filled(member, policy) and guest_id not in progress.admitted
        is_held = policy.is_blocked or is_over or not (policy.updates or member.lacks or is_made)
        waits = not member.is_at_target and (not member.is_open or (is_held and member.is_reachable))
        found[guest_id] = now if waits else known
    return found


def _include_unready(rollout: Rollout, affected: Mapping[str, Member], progress: Progress) -> Rollout:
    """Let guest clusters that are not ready take part if none is ready: they have nothing to lose."""
    is_first = affected.keys().isdisjoint((*progress.began, *progress.succeeded, *rollout.failed))
    is_seen = all(each.visited_at is not None for each in affected.values() if each.is_open)
    candidates = [
        each
        for each in affected.values()
        if each.is_reachable and each.is_open and each.is_free and not each.lacks
    ]
    if is_first and is_seen and candidates and not any(each.is_sound for each in candidates):
        return replace(rollout, takes_unready=True)
    return rollout


def _gets_stable(member: Member, rollout: Rollout, policy: Policy) -> bool:
    """Return whether the stable target is installed at once if a release is missing."""
    return policy.updates or member.is_unchanged or rollout.phase is Phase.STOPPED


def _is_filled(member: Member, policy: Policy) -> bool:
    """Return whether nothing is missing, and the target changes nothing more: what is deployed stays as it is."""
    return member.is_whole and not member.is_at_target and not policy.updates


def _forget_moved(progress: Progress, fleet: Mapping[str, Member]) -> Progress:
    """Take back what is known of guest clusters that the target has something else for, by their labels."""
    moved = {
        each for each, member in fleet.items() if progress.targets.get(each, member.target) != member.target
    }
    return replace(
        progress,
        admitted=progress.admitted - moved,
        succeeded=progress.succeeded - moved,
        began={each: since for each, since in progress.began.items() if each not in moved},
        targets={each: member.target for each, member in fleet.items()},
    )


def _find_entries(fleet: Mapping[str, Member], those: Iterable[str]) -> frozenset[str]:
    """Return the changed overrides of some guest clusters."""
    return frozenset().union(*(fleet[each].entries for each in those if each in fleet))


def _choose_canaries(fleet: Mapping[str, Member], pending: Iterable[str], known: frozenset[str]) -> list[str]:
    """Return one guest cluster for each changed override that is not known."""
    chosen = []
    for each in pending:
        if not fleet[each].entries <= known:
            chosen.append(each)
            known |= fleet[each].entries
    return chosen


def _unstopped(rollout: Rollout) -> Phase:
    return Phase.PROGRESSING if rollout.phase is Phase.STOPPED else rollout.phase


def _base(name: str) -> str:
    """Return the name of the target that the target of a guest cluster is part of."""
    return name.partition(".")[0]


def _those(standings: Mapping[str, Standing], wanted: Standing) -> list[str]:
    return [each for each, standing in standings.items() if standing is wanted]


def _describe_failures(failed: Iterable[str], size: int, succeeded: int, untested: Iterable[str]) -> str:
    names, entries = sorted(failed), sorted({each.rpartition("/")[0] for each in untested})
    where = f"{len(names)} of {size} guest clusters ({_list(names)})"
    of_entries = f"; no guest cluster of override {_list(entries)} succeeded" if entries else ""
    return f"the target failed in {where} and succeeded in {succeeded}{of_entries}"


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
