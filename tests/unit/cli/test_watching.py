"""`--watch`: a terminal gets one line for each change, a pipe gets nothing of it."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from fipop.errors import UnavailableError
from fipop.rollout.member import RolloutStatus
from fipop.rollout.parts import Part
from fipop.rollout.plan import Phase, Rollout
from tests.harness.objects import build_floating_ip, build_range
from tests.harness.releases import OTHER, TARGET
from tests.unit.report.snapshots import build_cluster, healthy_installation, snapshot


def see(phase: Phase, *statuses: RolloutStatus, waits: str = "") -> Any:
    rollout = Rollout(target=TARGET, stable=OTHER, phase=phase)
    parts = {
        f"c-m-{number}": Part(status=each, reason=f"Why {each.value}.")
        for number, each in enumerate(statuses)
    }
    installation = healthy_installation(rollout=rollout, rollout_parts=parts, rollout_waits=waits)
    return snapshot(clusters=[build_cluster("demo", "c-m-0")], installation=installation)


PENDING, UNDER_WAY, SUCCEEDED = RolloutStatus.PENDING, RolloutStatus.PROGRESSING, RolloutStatus.SUCCEEDED
READINGS = (
    see(Phase.PROGRESSING, UNDER_WAY, PENDING),
    see(Phase.PROGRESSING, UNDER_WAY, PENDING),
    see(Phase.PROGRESSING, SUCCEEDED, UNDER_WAY),
    see(Phase.COMPLETED, SUCCEEDED, SUCCEEDED),
)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_rollout_is_watched_to_its_end(
    run_over: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool
) -> None:
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: is_terminal)
    result = run_over(READINGS, "rollout", "status", "--watch")
    assert result.exit_code == 0
    assert "Completed" in result.stdout
    lines = [line.split(maxsplit=1)[1] for line in result.stderr.splitlines()]
    assert lines == (
        [
            *("demo: succeeded. Why succeeded.", "c-m-1: progressing. Why progressing."),
            "Rollout: kube-vip 2.0.0 → 1.0.0, kube-vip-cloud-provider 2.0.0 → 1.0.0, Completed",
            "c-m-1: succeeded. Why succeeded.",
        ]
        if is_terminal
        else []
    )


@pytest.mark.parametrize("phase", [Phase.STOPPED, Phase.COMPLETED])
def test_an_order_that_is_not_taken_up_yet_is_watched_to_its_end(
    run_over: Callable[..., Any], phase: Phase
) -> None:
    result = run_over((see(phase, UNDER_WAY, waits="Not yet."), *READINGS), "rollout", "status", "--watch")
    assert (result.exit_code, "2 succeeded" in result.stdout) == (0, True)


def test_in_a_pipe_problems_are_shown_once(run_over: Callable[..., Any]) -> None:
    found = snapshot(ranges=[build_range("pool", "10.0.0.0/29")], floating_ips=[build_floating_ip("web")])
    assert not sys.stderr.isatty()
    once, watched = (run_over([found], "status", *arguments) for arguments in ((), ("--watch",)))
    assert (watched.exit_code, watched.output) == (once.exit_code, once.output)


@pytest.mark.parametrize("arguments", [(), ("--watch",)])
def test_an_api_server_that_does_not_answer_ends_it_and_one_that_goes_away_meanwhile_does_not(
    run_over: Callable[..., Any], arguments: tuple[str, ...]
) -> None:
    lost = UnavailableError("list FloatingIP", reason="ConnectionCut")
    assert run_over([lost], "rollout", "status", *arguments).exit_code == 3
    result = run_over([READINGS[0], lost, READINGS[-1]], "rollout", "status", *arguments)
    assert (result.exit_code, ("Completed" in result.stdout)) == (0, bool(arguments))
