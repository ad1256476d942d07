"""`fipop status`: what it prints, how long it waits, how it ends."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fipop.api.codec import format_time
from fipop.api.names import ANNOTATION_PAUSED
from fipop.errors import ApiError, UnavailableError
from fipop.report.snapshot import Snapshot, Unread
from fipop.rollout.member import RolloutStatus
from fipop.rollout.parts import Part
from fipop.rollout.plan import Rollout
from fipop.settings.options import DEFAULTS, parse_settings
from tests.harness.objects import NOW, build_floating_ip, build_range, build_reservation, held_by
from tests.harness.releases import TARGET
from tests.unit.report.snapshots import healthy_installation, snapshot

SINCE = format_time(NOW - timedelta(hours=1))


def seen(status: str = "True", reason: str = "Ready", **objects: Any) -> Snapshot:
    ready = {"type": "Ready", "status": status, "reason": reason, "message": "m", "lastTransitionTime": SINCE}
    return snapshot(
        ranges=[build_range("pool", "10.0.0.1-10.0.0.10")],
        floating_ips=[build_floating_ip("web", status={**held_by(["10.0.0.5"]), "conditions": [ready]})],
        reservations=[build_reservation("10.0.0.5")],
        **objects,
    )


WELL, ILL = seen(), seen("False", "GuestUnreachable")


@pytest.fixture
def run(run_over: Callable[..., Any]) -> Callable[..., Any]:
    def start(*arguments: str, found: tuple[Snapshot | ApiError, ...] = (WELL,)) -> Any:
        return run_over(found, "status", *arguments)

    return start


def test_of_one_guest_only_what_is_wrong_there_counts(run: Callable[..., Any]) -> None:
    assert run("-n", "c-m-1", found=(ILL,)).exit_code == 1
    assert run("-n", "c-m-1", found=(WELL,)).exit_code == 0
    strange = run("-n", "c-m-typo", found=(WELL,))
    assert (strange.exit_code, "NotFound" in strange.stdout) == (1, True)


def test_what_could_not_be_read_is_4(run: Callable[..., Any]) -> None:
    unread = (Unread(what="Rancher's clusters", problem="missing right: list"),)
    result = run(found=(seen(unread=unread),))
    assert (result.exit_code, unread[0].what in result.stderr) == (4, True)
    assert "All is well" not in result.stdout
    assert json.loads(run("-o", "json", found=(seen(unread=unread),)).stdout)["healthy"] is None
    unknown = run("-n", "c-m-typo", found=(seen(unread=unread),))
    assert (unknown.exit_code, "NotFound" in unknown.stdout) == (4, False)


def test_it_waits_until_all_is_well_and_says_for_what(run: Callable[..., Any]) -> None:
    result = run("--wait", "5s", found=(ILL, ILL, WELL))
    assert result.exit_code == 0
    assert result.stderr.count("c-m-1/web GuestUnreachable") == 1
    assert run("--wait", "1s", found=(ILL,)).exit_code == 1


def test_it_waits_for_a_floating_ip_that_is_pending_and_not_for_one_that_is_paused(
    run: Callable[..., Any],
) -> None:
    made_now = snapshot(ranges=[build_range("pool", "10.0.0.0/29")], floating_ips=[build_floating_ip("web")])
    result = run("--wait", "5s", found=(made_now, WELL))
    assert (result.exit_code, "Waiting: c-m-1/web" in result.stderr) == (0, True)
    assert "waiting" not in run("--wait", "5s", "-n", "c-m-2", found=(made_now, WELL)).stderr
    status = {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "Paused", "message": ""}]}
    left_alone = build_floating_ip("web", annotations={ANNOTATION_PAUSED: "true"}, status=status)
    paused = snapshot(ranges=[build_range("pool", "10.0.0.0/29")], floating_ips=[left_alone])
    assert "waiting" not in run("--wait", "5s", found=(paused,)).stderr


def test_a_request_that_is_lost_does_not_end_the_waiting(run: Callable[..., Any]) -> None:
    lost = UnavailableError("list FloatingIP", reason="ConnectionCut")
    result = run("--wait", "5s", found=(ILL, lost, WELL))
    assert (result.exit_code, "the connection was cut" in result.stderr) == (0, True)
    assert run("--wait", "0s", found=(lost,)).exit_code == 3
    assert run("--wait", "1ms", found=(lost,)).exit_code == 3


def test_a_rollout_that_is_paused_shows(run: Callable[..., Any]) -> None:
    settings, _ = parse_settings({"kubevipRolloutPaused": "true"}, DEFAULTS)
    found = healthy_installation(
        rollout=Rollout(target=TARGET),
        rollout_parts={each: Part(status=RolloutStatus.PENDING) for each in ("c-m-1", "c-m-2")},
        settings=settings,
    )
    result = run(found=(seen(installation=found),))
    for named in ("Progressing, paused", "kube-vip 1.0.0", "2 pending", "RolloutPaused"):
        assert named in result.stdout
