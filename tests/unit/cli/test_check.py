"""`fipop check`: which guests it asks, what it prints, how long it waits, how it ends."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from fipop.cli.main import main
from fipop.report.findings import Finding, Severity, Subject, point
from fipop.report.snapshot import ClusterSnapshot, Unread
from tests.unit.cli.access import Unasked
from tests.unit.report.snapshots import build_cluster, snapshot

SNAPSHOT = snapshot(clusters=[build_cluster("demo", "c-m-a"), build_cluster("other", "c-m-b")])
RANGE = Subject(section="ranges", kind="FloatingIPRange", name="pool")
GOOD = point(RANGE, Severity.OK, "Ready", "3 of 5 addresses are free")
BAD = point(RANGE, Severity.CRITICAL, "Full", "3 of 3 addresses are used", "extend spec.iprange")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run the command over SNAPSHOT; `checks` are the findings of each reading."""
    asked: list[list[str]] = []

    def start(
        *arguments: str,
        checks: Iterable[list[Finding]] = ([GOOD],),
        found: ClusterSnapshot = SNAPSHOT,
        charset: str = "utf-8",
    ) -> Any:
        looks = iter(checks)
        last: list[Finding] = []

        def judge(*_: object) -> list[Finding]:
            nonlocal last
            last = next(looks, last)
            return last

        async def read(*_: object, **__: object) -> Any:
            return found

        async def nothing(*_: object, **__: object) -> list[Finding]:
            return []

        async def read_guests(
            _client: object, _found: object, guests: Iterable[str], **_: object
        ) -> list[Any]:
            asked.append(list(guests))
            return []

        for name, made in (
            ("read_snapshot", read),
            ("probe_secret_rights", nothing),
            ("probe_charts", nothing),
            ("probe_credential", nothing),
            ("read_guests", read_guests),
            ("judge", judge),
        ):
            monkeypatch.setattr(f"fipop.cli.check.{name}", made)
        monkeypatch.setattr("fipop.cli.reading.Reading.connect", lambda _self: Unasked())
        monkeypatch.setattr("fipop.cli.reading.POLL_SECONDS", 0.01)
        result = CliRunner(charset=charset).invoke(main, ["check", *arguments], prog_name="fipop")
        assert "Traceback" not in result.output
        result.asked = asked  # type: ignore[attr-defined]
        return result

    return start


def test_where_nothing_failed_it_ends_with_0(run: Callable[..., Any]) -> None:
    result = run()
    assert result.exit_code == 0
    assert GOOD.message in result.stdout
    assert result.asked == [["c-m-a", "c-m-b"]]


def test_a_failure_is_told_with_what_to_do_and_ends_with_1(run: Callable[..., Any]) -> None:
    result = run(checks=[[BAD]])
    assert result.exit_code == 1
    for told in (BAD.subject.name, BAD.reason, BAD.message, BAD.advice):
        assert told in result.stdout


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


def test_one_guest_is_asked_by_its_cluster_or_none(run: Callable[..., Any]) -> None:
    assert run("--guest", "demo").asked == [["c-m-a"]]
    assert run("--no-guests").asked[-1] == []
    unknown = run("--guest", "nobody")
    assert unknown.exit_code == 1
    assert "nobody" in unknown.stderr


def test_it_waits_until_nothing_fails_and_says_so(run: Callable[..., Any]) -> None:
    result = run("--wait", "5s", checks=[[BAD], [BAD], [GOOD]])
    assert result.exit_code == 0
    assert len(result.stderr.splitlines()) == 1, "what it waits for is told once"
    assert run("--wait", "1s", checks=[[BAD]]).exit_code == 1


def test_a_helm_that_is_not_there_is_a_mistake_of_the_command_line(run: Callable[..., Any]) -> None:
    result = run("--helm", "/none/helm")
    assert result.exit_code == 2
    assert "helm" in result.stderr


def test_what_could_not_be_read_ends_with_4(run: Callable[..., Any]) -> None:
    partly = replace(SNAPSHOT, unread=(Unread(what="reservations", problem="missing right"),))
    result = run("-o", "json", found=partly)
    assert result.exit_code == 4
    assert json.loads(result.stdout)["unread"][0]["what"] == "reservations"
    assert run(found=partly, checks=[[BAD]]).exit_code == 1
