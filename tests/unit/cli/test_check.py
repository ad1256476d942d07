"""`fipop check`: what it prints, how long it waits, how it ends."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from fipop.cli.main import main
from fipop.report.findings import Finding, Severity, Subject, point
from fipop.report.snapshot import Snapshot, Unread
from tests.unit.cli.access import Unasked
from tests.unit.report.snapshots import build_cluster, snapshot

SNAPSHOT = snapshot(clusters=[build_cluster("demo", "c-m-a"), build_cluster("other", "c-m-b")])
RANGE = Subject(section="ranges", kind="FloatingIPRange", name="pool")
GOOD = point(RANGE, Severity.OK, "Ready", "3 of 5 addresses are free")
BAD = point(RANGE, Severity.CRITICAL, "Full", "3 of 3 addresses are used", "extend spec.iprange")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run the command over SNAPSHOT; `checks` are the findings of each reading."""

    def start(
        *arguments: str,
        checks: Iterable[list[Finding]] = ([GOOD],),
        found: Snapshot = SNAPSHOT,
        charset: str = "utf-8",
    ) -> Any:
        readings = iter(checks)
        last: list[Finding] = []

        def judge(*_: object) -> list[Finding]:
            nonlocal last
            last = next(readings, last)
            return last

        async def read(*_: object, **__: object) -> Any:
            return found

        async def nothing(*_: object, **__: object) -> list[Finding]:
            return []

        monkeypatch.setattr("fipop.cli.check.read_snapshot", read)
        monkeypatch.setattr("fipop.cli.check.probe_secret_rights", nothing)
        monkeypatch.setattr("fipop.report.status.judge", judge)
        monkeypatch.setattr("fipop.cli.reading.Reading.connect", lambda _self: Unasked())
        monkeypatch.setattr("fipop.cli.reading.POLL_SECONDS", 0.01)
        result = CliRunner(charset=charset).invoke(main, ["check", *arguments], prog_name="fipop")
        assert "Traceback" not in result.output
        return result

    return start


def test_where_nothing_failed_it_ends_with_0(run: Callable[..., Any]) -> None:
    result = run()
    assert result.exit_code == 0
    assert GOOD.message in result.stdout


def test_a_failure_is_told_with_what_to_do_and_ends_with_1(run: Callable[..., Any]) -> None:
    result = run(checks=[[BAD]])
    assert result.exit_code == 1
    for told in (BAD.subject.name, BAD.reason, BAD.message, BAD.advice):
        assert told in result.stdout


def test_only_problems_are_shown_if_that_is_asked_for(run: Callable[..., Any]) -> None:
    assert run("--problems").stdout == "2 ok, 0 warning, 0 failed\n"
    assert GOOD.message not in run("--problems", checks=[[GOOD, BAD]]).stdout


def test_warnings_are_no_failure(run: Callable[..., Any]) -> None:
    result = run(checks=[[replace(BAD, severity=Severity.WARNING, advice="widen it")]])
    assert (result.exit_code, "widen it" in result.stdout) == (0, True)


def test_what_could_not_be_read_is_4(run: Callable[..., Any]) -> None:
    """Of whoever is not logged in everything is refused: nothing failed, since nothing was checked."""
    unread = (Unread(what="floating IPs", problem="missing right", forbidden=True),)
    result = run("-o", "json", found=snapshot(unread=unread))
    assert result.exit_code == 4
    assert [each["what"] for each in json.loads(result.stdout)["unread"]] == ["floating IPs"]
    assert run("-o", "json", found=snapshot(unread=unread), checks=[[BAD]]).exit_code == 1


def test_a_terminal_without_utf_8_gets_all_that_it_can_show(run: Callable[..., Any]) -> None:
    result = run(charset="latin-1")
    assert (result.exit_code, "? FloatingIPRange pool" in result.stdout) == (0, True)


def test_one_guest_cluster_is_checked_by_its_name_with_the_installation(run: Callable[..., Any]) -> None:
    of_guests = [
        point(
            Subject(section=f"guest {name}", kind="Guest", name=name, guests=frozenset((guest,))),
            Severity.CRITICAL,
            "Unreachable",
            "no answer",
            "check it",
        )
        for name, guest in (("demo", "c-m-a"), ("other", "c-m-b"))
    ]
    shown = run("--guest", "demo", checks=[[GOOD, *of_guests]]).stdout
    assert ("Guest demo" in shown, "Guest other" in shown, GOOD.message in shown) == (True, False, True)
    unknown = run("--guest", "nobody")
    assert (unknown.exit_code, "nobody" in unknown.stderr) == (1, True)


def test_it_waits_until_nothing_fails_and_says_so(run: Callable[..., Any]) -> None:
    result = run("--wait", "5s", checks=[[BAD], [BAD], [GOOD]])
    assert result.exit_code == 0
    assert len(result.stderr.splitlines()) == 1, "what it waits for is told once"
    assert run("--wait", "1s", checks=[[BAD]]).exit_code == 1
