"""The reading commands over fleets that have an object in each state: what is wrong is named, what waits is found."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fipop.api.codec import format_time
from fipop.report.addresses import AddressState
from fipop.report.findings import Finding
from fipop.report.snapshot import Snapshot
from tests.harness.objects import NOW, Json, build_floating_ip, build_range, build_reservation, held_by
from tests.unit.report.every_state import ADDRESSES, ASKED, CASES, CONDITIONS, FLEETS, RANGE_CASES, SINCE
from tests.unit.report.snapshots import build_cluster, snapshot


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, run_over: Callable[..., Any]) -> Callable[..., Any]:
    async def nothing(*_: object, **__: object) -> list[Finding]:
        return []

    monkeypatch.setattr("fipop.cli.check.probe_secret_rights", nothing)

    def start(found: Snapshot, *arguments: str) -> Any:
        result = run_over([found], *arguments)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert result.exit_code in {0, 1, 4}
        return result

    return start


@pytest.mark.parametrize("output", ["table", "wide", "json"])
@pytest.mark.parametrize("name", FLEETS)
def test_every_command_shows_every_fleet(run: Callable[..., Any], name: str, output: str) -> None:
    found = FLEETS[name]
    ranges = [each.name for each in found.inventory.ranges.all()]
    for command in (
        *(("status",), ("status", "--all"), ("check",)),
        *(("who", each) for each in (*ASKED, *ranges)),
        *(("free", each) for each in ranges),
    ):
        result = run(found, *command, "-o", output)
        assert output != "json" or json.loads(result.stdout)


@pytest.mark.parametrize("command", ["status", "check"])
def test_each_condition_that_is_wrong_is_named(run: Callable[..., Any], command: str) -> None:
    shown = run(CONDITIONS, command, "--all").stdout
    wrong = {each for each in CASES if not each.is_good}
    assert {each for each in wrong if each.message not in shown} == set()
    for each in wrong:
        named = "" if each.type == "Ready" else f"{each.type} is {each.status}: "
        line = f"FloatingIP {each.guest}/web: {each.reason or each.type}: {named}{each.message}"
        assert f" {line}\n" in shown, line
    assert {each for each in RANGE_CASES if f"FloatingIPRange range-{each.number}: " not in shown} == set()


def test_an_address_of_each_state_is_classified(run: Callable[..., Any]) -> None:
    reports = (json.loads(run(ADDRESSES, "who", each, "-o", "json").stdout) for each in ASKED)
    assert {one["state"] for each in reports for one in each["addresses"]} == set(AddressState)


# What waits

LATER = format_time(NOW - timedelta(minutes=7))
REASON = 'Range "pool" allows guest cluster "demo" no more FloatingIPs (maxAllocate).'
UNMET = {
    "type": "DemandMet",
    "status": "False",
    "reason": "LimitReached",
    "message": REASON,
    "lastTransitionTime": SINCE,
}
READY = {"type": "Ready", "status": "True", "reason": "Ready", "message": ""}


def fleet(*conditions: Json, addresses: tuple[str, ...] = ("10.0.0.5",), **status: object) -> Snapshot:
    return snapshot(
        ranges=[build_range("pool", "10.0.0.1-10.0.0.10")],
        floating_ips=[
            build_floating_ip(
                "web", status={**held_by(list(addresses)), "conditions": list(conditions), **status}
            )
        ],
        reservations=[build_reservation(each) for each in addresses],
        clusters=[build_cluster("demo", "c-m-1")],
    )


def test_a_service_that_waits_is_wrong_for_every_command_and_found_by_its_name_and_by_its_cluster(
    run: Callable[..., Any],
) -> None:
    waiting = {"services": [{"name": "shop/api", "since": LATER}, {"name": "shop/web"}], "count": 2}
    found = fleet(READY, UNMET, waiting=waiting)
    status, check = run(found, "status"), run(found, "check")
    assert (status.exit_code, "All is well" in status.stdout) == (1, False)
    line = f"‼ FloatingIP c-m-1/web: LimitReached: DemandMet is False: {REASON}\n"
    assert (line in status.stdout, line in check.stdout) == (True, True)
    by_name = run(found, "who", "shop/api")
    api = f"Service shop/api waits since 2026-03-01 11:53:00Z, because of LimitReached: DemandMet is False: {REASON}"
    assert (by_name.exit_code, by_name.stdout) == (1, f"{api}\n")
    by_cluster = run(found, "who", "demo")
    assert (by_cluster.exit_code, "10.0.0.5" in by_cluster.stdout, api in by_cluster.stdout) == (
        1,
        True,
        True,
    )
    assert "Service shop/web waits since 2026-02-28 12:00:00Z" in by_cluster.stdout
    told = json.loads(run(found, "who", "shop/api", "-o", "json").stdout)["waits"]
    assert [(each["name"], each["since"], each["reason"]) for each in told] == [
        ("shop/api", LATER, "LimitReached")
    ]
    unknown = run(found, "who", "shop/other")
    assert (unknown.exit_code, "shop/other" in unknown.stderr) == (1, True)


def test_services_that_a_status_does_not_name_wait_all_the_same(run: Callable[..., Any]) -> None:
    for found in (fleet(READY, UNMET), fleet(READY, UNMET, waiting={"services": [], "count": 20})):
        result = run(found, "who", "demo")
        assert result.exit_code == 1
        assert "Another Service of guest cluster demo waits since 2026-02-28 12:00:00Z" in result.stdout


def test_a_guest_cluster_that_only_waits_is_not_said_to_use_no_address(run: Callable[..., Any]) -> None:
    full = {"status": "False", "reason": "RangeFull", "message": "It is full.", "lastTransitionTime": SINCE}
    conditions = [{**full, "type": each} for each in ("Ready", "Allocated")]
    result = run(fleet(*conditions, addresses=()), "who", "demo")
    line = "FloatingIP c-m-1/web waits since 2026-02-28 12:00:00Z, because of RangeFull: It is full.\n"
    assert (result.exit_code, result.stdout) == (1, line)
    without = snapshot(ranges=[build_range("pool", "10.0.0.0/24")], clusters=[build_cluster("demo", "c-m-1")])
    result = run(without, "who", "demo")
    assert (result.exit_code, "because of NoFloatingIP: Guest cluster demo" in result.stdout) == (1, True)
    new = fleet(addresses=())
    made_now = snapshot(
        now=new.inventory.floating_ips.all()[0].created, floating_ips=[build_floating_ip("web")]
    )
    result = run(made_now, "who", "c-m-1")
    assert (result.exit_code, "because of NoStatus" in result.stdout) == (0, True)
