"""`fipop who` and `free`: what they print of a small installation, and how they end."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from fipop.report.snapshot import Snapshot, Unread
from tests.harness.objects import build_floating_ip, build_range, build_reservation, held_by
from tests.unit.report.snapshots import build_cluster, snapshot

A = "10.0.0.5"
POOL = build_range("pool", "10.0.0.1-10.0.0.10")
HELD = snapshot(
    ranges=[POOL],
    floating_ips=[build_floating_ip("web", status=held_by([A]))],
    reservations=[build_reservation(A, cluster="demo")],
    clusters=[build_cluster("demo", "c-m-1")],
)


@pytest.fixture
def run(run_over: Callable[..., Any]) -> Callable[..., Any]:
    def start(*arguments: str, found: Snapshot = HELD) -> Any:
        return run_over([found], *arguments)

    return start


def test_an_empty_range_and_a_cluster_without_addresses_are_no_error(run: Callable[..., Any]) -> None:
    without = snapshot(ranges=[POOL], clusters=[build_cluster("demo", "c-m-1", opted_in=False)])
    for asked in ("pool", "demo"):
        result = run("who", asked, found=without)
        assert (result.exit_code, result.stdout) == (0, f"No address of {asked} is in use.\n")


def test_whoever_asks_for_an_address_that_another_holds_has_a_column(run: Callable[..., Any]) -> None:
    wish = build_floating_ip("wish", namespace="c-m-2", ipaddress=A, status={"observedGeneration": 1})
    found = snapshot(
        ranges=[POOL],
        floating_ips=[build_floating_ip("web", status=held_by([A])), wish],
        reservations=[build_reservation(A, cluster="demo")],
        clusters=[build_cluster("demo", "c-m-1"), build_cluster("shop", "c-m-2")],
    )
    for asked in ("shop", A):
        header, row, *_ = run("who", asked, found=found).stdout.splitlines()
        assert row[header.index("CLUSTER") :].startswith("demo")
        assert row[header.index("REQUESTED BY") :] == "c-m-2/wish"


def test_what_could_not_be_read_is_told_and_ends_with_4(run: Callable[..., Any]) -> None:
    unread = (Unread(what="floating IPs", problem="missing right"),)
    partly = snapshot(ranges=[POOL], reservations=[build_reservation(A)], unread=unread)
    result = run("who", A, found=partly)
    assert (result.exit_code, unread[0].what in result.stderr) == (4, True)
    result = run("free", "pool", found=partly)
    assert (result.exit_code, "10.0.0.1" in result.stdout) == (4, False)
    assert run("who", "10.0.0.2", found=partly).exit_code == 4
    for command in (("who", A), ("free", "pool")):
        told = json.loads(run(*command, "-o", "json", found=partly).stdout)
        assert [each["what"] for each in told["unread"]] == ["floating IPs"]


def test_the_name_of_a_range_that_is_gone_shows_what_is_held_from_it(run: Callable[..., Any]) -> None:
    left = snapshot(reservations=[build_reservation(A, range_name="gone")])
    result = run("who", "gone", found=left)
    assert (result.exit_code, A in result.stdout) == (0, True)


def test_a_range_that_could_not_be_read_is_not_called_missing(run: Callable[..., Any]) -> None:
    unread = (Unread(what="floating IP ranges", problem="missing right"),)
    result = run("free", "pool", found=snapshot(unread=unread))
    assert (result.exit_code, "does not exist" in result.stderr) == (4, False)
