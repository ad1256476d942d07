"""What a rollout does next, by values alone."""

from dataclasses import replace
from typing import Any

import pytest

from fipop.operator.rollout.plan import HELM_ATTEMPTS, advance, begin, complete
from fipop.operator.rollout.progress import GuestProgress, Phase, RolloutState, Step
from fipop.settings.options import DEFAULTS, Settings
from fipop.state.guest_health import GuestHealth

NOW = 10_000.0
SOAK, DEADLINE = (
    DEFAULTS.kubevip_rollout_min_success_seconds,
    DEFAULTS.kubevip_rollout_progress_deadline_seconds,
)
WELL = GuestHealth(reachable=True, ready=True, seen_since=0.0)
DONE = replace(WELL, at_target=True, ready_since=NOW - SOAK, helm_began=NOW - SOAK - 1)


def wave(phase: Phase = Phase.WAVE, **guests: GuestProgress) -> RolloutState:
    return RolloutState(
        number=2,
        target="new",
        stable="old",
        phase=phase,
        started_at=0.0,
        wave=1,
        size=len(guests),
        guests=guests,
    )


def at(step: Step, since: float = NOW - 1, **fields: Any) -> GuestProgress:
    return GuestProgress(step=step, since=since, revisions=(3, 3), wave=1, **fields)


def step(
    state: RolloutState, *, settings: Settings = DEFAULTS, **fleet: GuestHealth
) -> tuple[RolloutState, list[str]]:
    after, notices = advance(state, fleet, settings, NOW, elapsed=5.0)
    return after, [each.reason for each in notices]


def test_a_rollout_begins_with_canaries_and_another_target_takes_its_place() -> None:
    first, notices = begin(None, "old", NOW)
    assert (first.phase, first.number, [each.reason for each in notices]) == (
        Phase.CANARY,
        1,
        ["RolloutStarted"],
    )
    second, notices = begin(first, "new", NOW)
    assert (second.number, [each.reason for each in notices]) == (2, ["RolloutSuperseded", "RolloutStarted"])
    back, notices = begin(complete(second, "")[0], "new", NOW)
    assert (back.phase, back.stable, notices[-1].reason) == (Phase.COMPLETED, "new", "RolloutCompleted")


def test_ready_guests_are_canaries_those_with_the_label_first() -> None:
    fleet = {"a": replace(WELL, ready=False), "b": WELL, "c": WELL, "d": replace(WELL, canary=True)}
    after, reasons = step(wave(Phase.CANARY), **fleet)
    assert set(after.guests) == {"b", "d"}
    assert reasons == ["WaveStarted"]
    assert {one.step for one in after.guests.values()} == {Step.ADMITTED}


def test_a_guest_succeeds_after_its_soak_at_the_target() -> None:
    after, _ = step(
        wave(a=at(Step.UPGRADING), b=at(Step.UPGRADING)), a=DONE, b=replace(DONE, ready_since=NOW - 1)
    )
    assert {name: one.step for name, one in after.guests.items()} == {
        "a": Step.SUCCEEDED,
        "b": Step.UPGRADING,
    }


@pytest.mark.parametrize(
    ("member", "since", "weak", "found"),
    [
        (replace(WELL, helm_began=1.0, helm_failures=HELM_ATTEMPTS), NOW, False, Step.FAILED),
        (replace(WELL, helm_began=1.0), NOW - DEADLINE, False, Step.FAILED),
        (replace(WELL, helm_began=1.0), NOW - DEADLINE, True, Step.PASSED_OVER),
        (replace(WELL, helm_began=1.0, seen_since=NOW - 1), NOW - DEADLINE, False, Step.UPGRADING),
        (None, NOW, False, Step.UPGRADING),
        (None, NOW - DEADLINE, False, Step.PASSED_OVER),
    ],
)
def test_how_a_guest_of_a_wave_ends(
    member: GuestHealth | None, since: float, weak: bool, found: Step
) -> None:
    other = at(Step.UPGRADING, NOW)
    fleet = {"b": replace(WELL, helm_began=NOW)} | ({"a": member} if member is not None else {})
    after, _ = step(wave(a=at(Step.UPGRADING, since, weak=weak), b=other), **fleet)
    assert after.guests["a"].step is found


def test_a_guest_that_was_not_touched_and_is_out_of_reach_is_skipped() -> None:
    after, _ = step(
        wave(a=at(Step.ADMITTED), b=at(Step.UPGRADING, NOW)), a=replace(WELL, reachable=False), b=WELL
    )
    assert after.guests["a"].step is Step.SKIPPED


def test_one_failure_among_canaries_stops_and_takes_them_all_back() -> None:
    failed = replace(WELL, helm_began=1.0, helm_failures=HELM_ATTEMPTS)
    canaries = wave(Phase.CANARY, a=at(Step.UPGRADING), b=at(Step.SUCCEEDED), c=at(Step.ADMITTED))
    after, reasons = step(canaries, a=failed, b=DONE, c=WELL)
    assert (after.phase, reasons) == (Phase.STOPPED, ["RolloutStopped"])
    assert {name: one.step for name, one in after.guests.items()} == {"a": Step.FAILED, "b": Step.FAILED}
    back = replace(WELL, went_back=True)
    settled, reasons = step(after, a=back, b=back)
    assert reasons == ["RolledBack"]
    assert step(settled, a=back, b=back)[1] == [], "it is told once"


def test_a_later_wave_only_takes_back_what_failed() -> None:
    failed = replace(WELL, helm_began=1.0, helm_failures=HELM_ATTEMPTS)
    after, _ = step(wave(a=at(Step.UPGRADING), b=at(Step.SUCCEEDED)), a=failed, b=DONE)
    assert {name: one.step for name, one in after.guests.items()} == {"a": Step.FAILED, "b": Step.SUCCEEDED}


def test_when_many_go_out_of_reach_at_once_clocks_stand_still() -> None:
    lost = replace(WELL, helm_began=1.0, lost_at=NOW - 30, reachable=False)
    others = {f"g{number}": replace(lost, helm_began=None) for number in range(3)}
    state = wave(a=at(Step.UPGRADING, NOW - DEADLINE))
    alone, _ = step(state, a=lost, **dict.fromkeys(others, WELL))
    assert alone.guests["a"].step is Step.FAILED
    with_others, _ = step(state, a=lost, **others)
    assert with_others.guests["a"].since == NOW - DEADLINE + 5


def test_while_it_is_paused_nothing_is_judged_and_clocks_stand_still() -> None:
    paused = replace(DEFAULTS, kubevip_rollout_paused=True)
    after, reasons = step(wave(a=at(Step.UPGRADING, NOW - DEADLINE)), settings=paused, a=WELL)
    assert (after.guests["a"].step, after.guests["a"].since, reasons) == (
        Step.UPGRADING,
        NOW - DEADLINE + 5,
        [],
    )


def test_while_the_charts_cannot_be_had_nobody_is_late_or_passed_over_and_who_failed_stops_it() -> None:
    late = NOW - DEADLINE - 1
    state = wave(a=at(Step.ADMITTED, since=late), b=at(Step.UPGRADING, since=late))
    fleet = {"a": replace(WELL, turn_since=0.0), "b": replace(WELL, helm_began=late)}
    after, notices = advance(state, fleet, DEFAULTS, NOW, elapsed=5.0, blocked=True)
    assert notices == ()
    assert after.guests == {"a": at(Step.ADMITTED, since=late + 5), "b": at(Step.UPGRADING, since=late + 5)}

    ended = wave(a=at(Step.SUCCEEDED), b=at(Step.SUCCEEDED))
    assert advance(ended, {"a": DONE, "b": DONE}, DEFAULTS, NOW, elapsed=5.0, blocked=True) == (ended, ())

    fleet["b"] = replace(WELL, helm_began=late, helm_failures=HELM_ATTEMPTS)
    after, notices = advance(state, fleet, DEFAULTS, NOW, elapsed=5.0, blocked=True)
    assert [each.reason for each in notices] == ["RolloutStopped"]


def test_it_is_complete_when_all_have_it_and_not_while_somebody_was_not_asked() -> None:
    state = wave(a=at(Step.SUCCEEDED))
    after, reasons = step(state, a=DONE, b=DONE)
    assert (after.phase, after.stable, reasons[-1]) == (Phase.COMPLETED, "new", "RolloutCompleted")
    waiting, _ = step(state, a=DONE, b=GuestHealth())
    assert waiting.phase is Phase.WAVE


def test_where_nobody_can_be_reached_it_waits_and_says_so_once() -> None:
    away = replace(WELL, reachable=False)
    after, reasons = step(wave(Phase.CANARY), a=away)
    assert reasons == ["RolloutWaiting"]
    assert step(after, a=away)[1] == []
