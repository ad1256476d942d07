"""The part of each guest cluster in a rollout, and what the rollout waits for: for those who read it.

No leader goes by it. Once a guest cluster was rolled back, nothing in it shows the cause any more: the part of one that
failed keeps its reason, and every part its time, for as long as the status stays.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import ceil

from fipop.api import names
from fipop.api.codec import format_time, parse_time
from fipop.helm.errors import ChartError
from fipop.helm.releases import Release, ReleaseOwner
from fipop.rollout.member import Fleet, Member, RolloutStatus
from fipop.rollout.plan import (
    MemberState,
    Phase,
    Progress,
    Rollout,
    Standing,
    has_gone_dark,
)
from fipop.settings.options import Settings
from fipop.texts import clean, sentence

BLOCKED = "It is blocked: "
"""How the sentence begins that says which chart of the options cannot be had."""
_LONGEST_REASON = 300
_LONG_MINUTES = 120
"""From here on, a duration is shown in hours."""
_TIME = "%Y-%m-%d %H:%M:%SZ"
_ABOUT_THE_SAME = timedelta(seconds=10)
_BACK = " The guest cluster was rolled back."
_MOST_BYTES = 256 * 1024
"""Of all parts: a ConfigMap has room for 1 MiB, and both targets are in it. Beyond that, reasons are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The part of one guest cluster in the current rollout."""

    status: RolloutStatus
    is_canary: bool = False
    """Whether the others wait for its success: it was admitted as one of the first, or waits and has the label."""
    since: datetime | None = None
    """When this status was first written."""
    reason: str = ""
    """Why it failed or takes no part, or what it waits for, as a sentence; "" if there is nothing to say."""

    ready_since: datetime | None = field(default=None, compare=False)
    """Since when all pods are Ready, as `reason` has it; None for one that was read from the ConfigMap."""

    def __str__(self) -> str:
        return f"{self.status.value}. {self.reason}".rstrip()

    def to_fields(self) -> dict[str, object]:
        """Return the fields of the JSON."""
        return {
            "part": self.status.value,
            "canary": self.is_canary,
            "since": self.since,
            "reason": self.reason,
        }


Parts = Mapping[str, Part]
"""By guest cluster: those that failed, canaries, those under way, those that wait in the order of admission, others."""
_ORDER = (
    *(RolloutStatus.FAILED, RolloutStatus.PROGRESSING, RolloutStatus.PENDING),
    *(RolloutStatus.SKIPPED, RolloutStatus.SUCCEEDED),
)


def describe_parts(
    rollout: Rollout,
    fleet: Fleet,
    progress: Progress,
    settings: Settings,
    before: Parts,
    *,
    now: datetime,
    at: float,
) -> dict[str, Part]:
    """Return the part of each guest cluster; `before`: those that were written last in this rollout.

    `now` is the management cluster's clock, `at` the loop's.
    """
    *_, pending = Standing(fleet=fleet, progress=progress, settings=settings).find_limit()
    found = {}
    for guest_id in sorted(fleet, key=lambda each: (fleet[each].rank, each)):
        member, state = fleet[guest_id], progress.states[guest_id]
        status, known = state.status, before.get(guest_id)
        stays = known if known is not None and known.status is status else None
        was_admitted = status not in (RolloutStatus.PENDING, RolloutStatus.SKIPPED)
        is_canary = was_admitted and (state.is_canary or (known is not None and known.is_canary))
        reason, ready_since = "", None
        if status is RolloutStatus.PENDING:
            is_canary = member.is_canary
            reason = "It is next." if not rollout.is_stopped and pending[:1] == [guest_id] else ""
        elif status is RolloutStatus.PROGRESSING:
            ready_since = _find_ready_since(member, known, now, at)
            reason = _describe_progress(member, state, settings, ready_since)
        elif status is RolloutStatus.FAILED:
            reason = stays.reason if stays is not None else sentence(_describe_failure(member, settings))
            is_back = member.is_reachable and rollout.target.name not in member.made_for
            reason = clean(reason.removesuffix(_BACK), _LONGEST_REASON - len(_BACK))
            reason += _BACK if is_back else ""
        elif status is RolloutStatus.SKIPPED:
            reason = _describe_skip(member, settings)
        found[guest_id] = Part(
            status=status,
            is_canary=is_canary,
            since=stays.since if stays is not None else now.replace(microsecond=0),
            reason=clean(sentence(reason), _LONGEST_REASON),
            ready_since=ready_since,
        )
    return dict(sorted(found.items(), key=lambda each: _rank(each[1])))


def find_cause(parts: Parts) -> tuple[str, str]:
    """Return the first guest cluster in which the target failed, and why, as a sentence; "" if that is not known."""
    failed = ((each, part.reason) for each, part in parts.items() if part.status is RolloutStatus.FAILED)
    return next(((each, reason) for each, reason in failed if reason), ("", ""))


def _rank(part: Part) -> tuple[bool, int]:
    return not (part.is_canary or part.status is RolloutStatus.FAILED), _ORDER.index(part.status)


def describe_wait(
    rollout: Rollout, fleet: Fleet, progress: Progress, settings: Settings, problem: ChartError | None
) -> str:
    """Return what a rollout waits for that goes on, or why the next one cannot begin, as a sentence; else "".

    `problem`: why a chart of the target cannot be had.
    """
    blocked = f"{BLOCKED}{problem}." if problem is not None else ""
    if rollout.phase is not Phase.PROGRESSING:
        return blocked
    if settings.pauses_rollouts:
        bad = ", ".join(sorted(settings.unknown_rollout_options))
        why = "option kubevipRolloutPaused is true. Run fipop rollout resume"
        why = f"correct {bad}, which has no known valid value" if bad else why
        return f"It is paused by ConfigMap {names.SETTINGS_CONFIG_MAP}: {why}."
    if blocked:
        return blocked
    unseen = [each for each in fleet.values() if each.is_eligible and each.visited_at is None]
    if unseen:
        return "The leader is new, and visits each guest cluster before it admits another one."
    standing = Standing(fleet=fleet, progress=progress, settings=settings)
    limit, are_canaries, pending = standing.find_limit()
    tolerated = standing.count_tolerated(rollout.failed)
    failures = (
        f"Failures: {len(rollout.failed)} of {tolerated} that are tolerated (kubevipRolloutMaxFailures)."
    )
    if pending:
        first = "when the canaries have succeeded" if are_canaries else "when one of those has succeeded"
        limits = f"At most {limit} can be under way at a time. The next guest cluster is admitted {first}."
        left = len(pending) + len(standing.under_way)
        return f"{limits} {_describe_duration(left, len(fleet), settings)} {failures}"
    if standing.under_way:
        return f"No guest cluster is left to admit. It waits for those that are under way. {failures}"
    if not settings.kubevip_update and any(each.drifts for each in fleet.values()):
        return "kubevipUpdate is false, and releases differ from the target. They stay as they are."
    return (
        f"No guest cluster can be admitted, and the target has succeeded in {len(standing.proven)}. It completes when "
        "it has succeeded in more than cannot be reached."
    )


def _describe_duration(left: int, guests: int, settings: Settings) -> str:
    """Return how long the rest takes at least: each has to be ready for a while before another one takes its place."""
    at_once = max(1, settings.kubevip_rollout_max_concurrency.of(guests))
    minutes = ceil(ceil(left / at_once) * settings.kubevip_rollout_min_success_seconds / 60)
    shown = f"{minutes} min" if minutes < _LONG_MINUTES else f"{minutes // 60} h"
    return f"The rest takes at least {shown} (kubevipRolloutMinSuccessTime)."


def _find_ready_since(member: Member, known: Part | None, now: datetime, at: float) -> datetime | None:
    """Return since when all pods are Ready, by the management cluster's clock; None if they are not.

    Each visit measures it in whole seconds of the guest cluster: what it was before stays, if it is about the same.
    """
    seconds, visited_at = member.ready_seconds, member.visited_at
    if seconds is None or visited_at is None or not (member.is_at_target and member.is_ready):
        return None
    found = now.replace(microsecond=0) - timedelta(seconds=round(seconds + at - visited_at))
    before = known.ready_since if known is not None else None
    return before if before is not None and abs(before - found) <= _ABOUT_THE_SAME else found


def _describe_progress(
    member: Member, state: MemberState, settings: Settings, ready_since: datetime | None
) -> str:
    if not member.is_reachable:
        return "fipop cannot reach the guest cluster"
    if member.helm_problem:
        return member.helm_problem
    if member.is_at_target:
        seconds = settings.kubevip_rollout_min_success_seconds
        if has_gone_dark(member, state):
            return "an address of it is no longer announced: see condition Announced of its floating IPs"
        if ready_since is not None:
            earliest = ready_since + timedelta(seconds=seconds)
            return f"ready since {ready_since:{_TIME}}, succeeds at the earliest {earliest:{_TIME}}"
        return _find_problem(member) or f"all pods must have been Ready for {seconds} s"
    return "helm has begun" if member.began_at is not None else "it waits for helm"


def _describe_failure(member: Member, settings: Settings) -> str:
    if not member.is_reachable:
        return "fipop could not reach the guest cluster"
    late = f"not all pods had been Ready for {settings.kubevip_rollout_min_success_seconds} s"
    return member.helm_problem or _find_problem(member) or late


def _describe_skip(member: Member, settings: Settings) -> str:
    if member.hindrance:
        return member.hindrance
    if member.visited_at is None:
        return "fipop has not visited the guest cluster yet"
    if not member.is_reachable:
        return "fipop cannot reach the guest cluster"
    for each in member.releases:
        if each.conflicting_workloads:
            return f"{each.conflicting_workloads[0]} does the work of {each.role.value}"
        if not each.is_unlocked:
            return _describe_lock(each)
    if not settings.kubevip_update:
        return "kubevipUpdate is false: its releases stay as they are"
    problem = _find_problem(member)
    return (
        f"it is not ready, so it takes no part: {problem}"
        if problem
        else "fipop gives it the stable target first"
    )


def _describe_lock(release: Release) -> str:
    if release.owner is ReleaseOwner.OTHER:
        return f"release {release} belongs to neither fipop nor kube-fip-operator"
    return f"another helm has locked release {release}"


def _find_problem(member: Member) -> str:
    """Return what does not run, as a clause; "" if all that is there does."""
    return next((each.problem for each in member.releases if each.problem and not each.is_missing), "")


def render_parts(parts: Parts) -> str:
    """Return parts as the text that the ConfigMap keeps."""
    text = json.dumps({each: _render(part) for each, part in parts.items()}, separators=(",", ":"))
    if len(text.encode()) > _MOST_BYTES:
        bare = {each: replace(part, reason="") for each, part in parts.items()}
        return json.dumps({each: _render(part) for each, part in bare.items()}, separators=(",", ":"))
    return text


def _render(part: Part) -> list[object]:
    since = format_time(part.since) if part.since is not None else ""
    return [part.status.value, int(part.is_canary), since, *([part.reason] if part.reason else [])]


def parse_parts(text: str) -> dict[str, Part]:
    """Read what `render_parts` wrote; empty for anything else."""
    try:
        return {
            str(guest_id): Part(
                status=RolloutStatus(status),
                is_canary=bool(is_canary),
                since=parse_time(since),
                reason=str(*reason),
            )
            for guest_id, (status, is_canary, since, *reason) in json.loads(text).items()
        }
    except (ValueError, TypeError, AttributeError):
        return {}
