"""What a rollout does next, decided from values alone: who is admitted, who succeeded or failed, when it stops.

The rules are those of docs/concepts/rollouts.md, in its order: a guest succeeds by what we saw ourselves; it fails by
helm or by its deadline; what is out of reach neither counts nor blocks; a wave with too many failures stops
the rollout.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fipop.operator.rollout.progress import GuestProgress, Phase, RolloutState, Step
from fipop.settings.options import Settings
from fipop.settings.values import FailureStrategy
from fipop.state.guest_health import GuestHealth

HELM_ATTEMPTS = 3
_LOST_PERCENT = 10
_BACK = "; all of them were rolled back"
"""Ends the reason of a stopped rollout once that was reported."""
_LOST_AT_LEAST = 2
_AT_THE_SAME_TIME_SECONDS = 120.0
"""So long before a guest of the wave others may have been found out of reach; those that are looked at later count."""


@dataclass(frozen=True, slots=True)
class Notice:
    """An event of a rollout: its reason, a sentence, and whether it is bad news."""

    reason: str
    message: str
    is_warning: bool = False


def begin(before: RolloutState | None, target: str, now: float) -> tuple[RolloutState, tuple[Notice, ...]]:
    """Start the rollout of a target: canaries first; back to the stable target only for those that were touched."""
    notices = []
    if before is not None and before.phase.is_active and before.target != target:
        notices.append(
            Notice(
                "RolloutSuperseded",
                f"Target {target} replaces {before.target}.",
            )
        )
    stable = before.stable if before is not None else ""
    state = RolloutState(
        number=before.number + 1 if before is not None else 1,
        target=target,
        stable=stable,
        phase=Phase.CANARY,
        started_at=now,
        acted=before.acted if before is not None else "",
    )
    if target == stable:
        message = f"Target {target} is the stable target: guest clusters that were changed return to it without waves."
        return replace(state, phase=Phase.COMPLETED), (*notices, Notice("RolloutCompleted", message))
    return state, (*notices, Notice("RolloutStarted", f"The rollout of target {target} began with canaries."))


def complete(state: RolloutState, message: str) -> tuple[RolloutState, tuple[Notice, ...]]:
    """Have a target be the stable one."""
    done = replace(state, phase=Phase.COMPLETED, stable=state.target, guests={}, reason="")
    return done, (Notice("RolloutCompleted", message),)


def advance(
    state: RolloutState,
    fleet: Mapping[str, GuestHealth],
    settings: Settings,
    now: float,
    *,
    elapsed: float,
    blocked: bool = False,
) -> tuple[RolloutState, tuple[Notice, ...]]:
    """Take in what is known of the fleet; give the state from now on, and what is to be told.

    `elapsed`: seconds since it was asked last, for clocks that stand still. `blocked`: the target's charts cannot be
    had: who fails without them fails, and nobody is late.
    """
    if state.phase is Phase.COMPLETED:
        return state, ()
    if settings.kubevip_rollout_paused:
        return replace(state, guests={g: _wait(one, elapsed) for g, one in state.guests.items()}), ()
    lost_at = sorted(
        member.lost_at
        for guest_id, member in fleet.items()
        if member.lost_at is not None and guest_id not in state.guests
    )
    untouched = len(fleet.keys() - state.guests.keys())
    guests = {}
    for guest_id, one in state.guests.items():
        member = fleet.get(guest_id)
        stands_still = blocked or (member is not None and _vanished_with_others(member, lost_at, untouched))
        timed = _wait(one, elapsed) if stands_still else one
        guests[guest_id] = _judge(timed, member, settings, now, phase=state.phase)
    state = replace(state, guests=guests)
    if state.phase is Phase.STOPPED:
        return _settle_stopped(state)
    failed = state.count(Step.FAILED)
    if failed > _allowed(state, settings):
        return _stop(state, failed, settings)
    if blocked or not all(one.step.is_final for one in state.of_wave().values()):
        return state, ()
    return _next_wave(state, fleet, settings, now)


def _wait(one: GuestProgress, seconds: float) -> GuestProgress:
    """Have a guest's clock stand still."""
    return one if one.step.is_final else replace(one, since=one.since + seconds)


def _judge(
    one: GuestProgress, member: GuestHealth | None, settings: Settings, now: float, *, phase: Phase
) -> GuestProgress:
    if one.step is Step.FAILED:
        may_go_back = phase is Phase.STOPPED and _goes_back(settings)
        went_back = may_go_back and member is not None and member.went_back
        return replace(one, step=Step.ROLLED_BACK) if went_back else one
    if one.step.is_final:
        return one
    deadline = settings.kubevip_rollout_progress_deadline_seconds
    if (
        member is None
    ):  # gone, paused, or it wants none of it any more: who was touched may be back, and goes back
        if one.step is Step.ADMITTED:
            return replace(one, step=Step.SKIPPED)
        return replace(one, step=Step.PASSED_OVER) if now - one.since >= deadline else one
    if one.step is Step.ADMITTED:
        if member.helm_began is None and not member.at_target:
            if member.reachable is False:
                return replace(one, step=Step.SKIPPED)
            has_turn = member.turn_since is not None and now - max(one.since, member.turn_since) >= deadline
            return replace(one, step=Step.PASSED_OVER) if has_turn else one
        one = replace(one, step=Step.UPGRADING, since=max(one.since, member.helm_began or now))
    if member.helm_failures >= HELM_ATTEMPTS:
        return replace(one, step=Step.FAILED)
    soak = settings.kubevip_rollout_min_success_seconds
    if member.at_target and member.ready_since is not None and now - member.ready_since >= soak:
        return replace(one, step=Step.SUCCEEDED)
    # What nobody of us watched does not count: another leader begins anew.
    if now - max(one.since, member.seen_since) < deadline:
        return one
    return replace(one, step=Step.PASSED_OVER if one.weak else Step.FAILED)


def _vanished_with_others(member: GuestHealth, lost_at: Sequence[float], untouched: int) -> bool:
    """Whether untouched guests went out of reach when this one did: then it is the network, or us."""
    if member.lost_at is None:
        return False
    with_it = len(lost_at) - bisect.bisect_left(lost_at, member.lost_at - _AT_THE_SAME_TIME_SECONDS)
    return with_it >= max(min(_LOST_AT_LEAST, untouched), untouched * _LOST_PERCENT // 100, 1)


def _allowed(state: RolloutState, settings: Settings) -> int:
    return 0 if state.phase is Phase.CANARY else settings.kubevip_rollout_max_failures.of(state.size)


def _goes_back(settings: Settings) -> bool:
    return settings.kubevip_rollout_failure_strategy is FailureStrategy.ROLLBACK


def _stop(state: RolloutState, failed: int, settings: Settings) -> tuple[RolloutState, tuple[Notice, ...]]:
    """Admit nobody more. Of a canary wave all goes back, of a later one what failed; nothing else is touched."""
    guests = {}
    for guest_id, one in state.guests.items():
        if one.step in (Step.ADMITTED, Step.SKIPPED):
            continue  # untouched, and stays so
        all_back = state.phase is Phase.CANARY and _goes_back(settings)
        guests[guest_id] = replace(one, step=Step.FAILED) if all_back else one
    names = ", ".join(sorted(g for g, one in state.guests.items() if one.step is Step.FAILED)[:5])
    reason = f"{failed} of {state.size} guest clusters failed in wave {state.wave}: {names}"
    hint = f"Fix them, then set annotation rollout: retry/{state.target} or force/{state.target}"
    stopped = replace(state, phase=Phase.STOPPED, guests=guests, reason=reason)
    message = f"The rollout of target {state.target} stopped, {reason}. {hint}."
    return stopped, (Notice("RolloutStopped", message, is_warning=True),)


def _settle_stopped(state: RolloutState) -> tuple[RolloutState, tuple[Notice, ...]]:
    """Tell once when all that failed is back."""
    back = [one for one in state.guests.values() if one.step is Step.ROLLED_BACK]
    waits = any(one.step in (Step.FAILED, Step.UPGRADING) for one in state.guests.values())
    told = state.reason.endswith(_BACK)
    if not back or waits or told:
        return state, ()
    message = f"Target {state.target} was rolled back in {len(back)} guest clusters."
    return replace(state, reason=state.reason + _BACK), (Notice("RolledBack", message),)


def _next_wave(
    state: RolloutState, fleet: Mapping[str, GuestHealth], settings: Settings, now: float
) -> tuple[RolloutState, tuple[Notice, ...]]:
    notices: list[Notice] = []
    succeeded = state.count(Step.SUCCEEDED)
    is_first = not state.of_wave()
    proven = state.phase is Phase.WAVE or succeeded > 0
    if not is_first and succeeded:
        notices.append(
            Notice(
                "WaveSucceeded",
                f"Wave {state.wave} of {state.target} succeeded: {succeeded} guest clusters.",
            )
        )
    over = sorted(g for g, one in state.of_wave().items() if one.step is Step.PASSED_OVER)
    if over:
        message = f"Wave {state.wave} of {state.target} passed over {len(over)} guest clusters: {', '.join(over[:5])}."
        notices.append(Notice("GuestsPassedOver", message, is_warning=True))
    left = (Step.FAILED, Step.PASSED_OVER)
    kept = {guest_id: one for guest_id, one in state.guests.items() if one.step in left}
    state = replace(state, guests=kept, phase=Phase.WAVE if proven else Phase.CANARY)
    chosen = _choose(state, fleet, settings)
    if not chosen:
        done, more = _finish(state, fleet)
        return done, (*notices, *more)
    number = state.wave + 1
    admitted = {
        guest_id: GuestProgress(
            step=Step.ADMITTED,
            since=now,
            revisions=fleet[guest_id].revisions,
            wave=number,
            weak=not fleet[guest_id].ready,
        )
        for guest_id in chosen
    }
    what = "canaries" if state.phase is Phase.CANARY else "guest clusters"
    notices.append(Notice("WaveStarted", f"Wave {number} of {state.target} began: {len(chosen)} {what}."))
    state = replace(state, guests=kept | admitted, wave=number, size=len(chosen))
    return state, tuple(notices)


def _finish(state: RolloutState, fleet: Mapping[str, GuestHealth]) -> tuple[RolloutState, tuple[Notice, ...]]:
    """Complete, unless nobody could be asked yet, or no canary could be reached."""
    if any(member.reachable is None for member in fleet.values()):
        return state, ()
    is_proven = state.phase is Phase.WAVE or any(member.at_target for member in fleet.values())
    if fleet and not is_proven:
        waiting = "no guest cluster can be reached for a canary"
        if state.reason == waiting:
            return state, ()
        notice = Notice("RolloutWaiting", f"Target {state.target} waits: {waiting}.", is_warning=True)
        return replace(state, reason=waiting), (notice,)
    return complete(state, f"Target {state.target} is the stable target now.")


def _choose(state: RolloutState, fleet: Mapping[str, GuestHealth], settings: Settings) -> list[str]:
    """Give who is admitted next: canaries, or a wave twice as large as the one before."""
    open_to = {
        guest_id: member
        for guest_id, member in fleet.items()
        if member.reachable and not member.at_target and guest_id not in state.guests
    }
    counted = sum(not member.joined for member in fleet.values())
    if state.phase is Phase.CANARY:
        return list(_choose_canaries(open_to, settings, counted))
    limit = max(1, settings.kubevip_rollout_max_concurrency.of(counted))
    first = max(1, settings.kubevip_rollout_canaries.of(counted))
    # At most 2^20: a number of waves that no fleet has.
    size = min(limit, first * 2 ** min(state.wave, 20))
    ordered = sorted(
        open_to, key=lambda guest_id: (open_to[guest_id].joined, not open_to[guest_id].ready, guest_id)
    )
    old = [guest_id for guest_id in ordered if not open_to[guest_id].joined]
    # Who joined is admitted with the last wave: not before all others are.
    return ordered[:size] if len(old) <= size else old[:size]


def _choose_canaries(open_to: Mapping[str, GuestHealth], settings: Settings, counted: int) -> Iterator[str]:
    old = sorted(guest_id for guest_id, one in open_to.items() if not one.joined)
    # Where nobody is ready it may be what the rollout mends: nobody has anything to lose, and who gets ready is proof.
    ready = [guest_id for guest_id in old if open_to[guest_id].ready] or old
    labelled = [guest_id for guest_id in ready if open_to[guest_id].canary]
    others = [guest_id for guest_id in ready if not open_to[guest_id].canary]
    wanted = max(1, settings.kubevip_rollout_canaries.of(counted))
    yield from labelled
    yield from others[: max(0, wanted - len(labelled))]
