"""`fipop check`: what it prints, how long it waits, how it ends."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from fipop.report.findings import Finding, Severity, Subject, point
from tests.unit.report.snapshots import build_cluster, snapshot

SNAPSHOT = snapshot(clusters=[build_cluster("demo", "c-m-a"), build_cluster("other", "c-m-b")])
RANGE = Subject(section="ranges", kind="FloatingIPRange", name="pool")
GOOD = point(RANGE, Severity.OK, "Ready", "3 of 5 addresses are free")
BAD = point(RANGE, Severity.CRITICAL, "Full", "3 of 3 addresses are used", "extend spec.iprange")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, run_over: Callable[..., Any]) -> Callable[..., Any]:
    """Run the command over SNAPSHOT; `checks` are the findings of each reading."""

    def start(*arguments: str, checks: Iterable[list[Finding]] = ([GOOD],), charset: str = "utf-8") -> Any:
        readings = iter(checks)
        last: list[Finding] = []

        def judge(*_: object) -> list[Finding]:
            nonlocal last
            last = next(readings, last)
            return last

        async def nothing(*_: object, **__: object) -> list[Finding]:
            return []

        monkeypatch.setattr("fipop.cli.check.probe_secret_rights", nothing)
        monkeypatch.setattr("fipop.report.status.judge", judge)
        return run_over([SNAPSHOT], "check", *arguments, charset=charset)

    return start


def test_only_problems_are_shown_if_that_is_asked_for(run: Callable[..., Any]) -> None:
    assert run("--problems").stdout == "2 ok, 0 info, 0 warning, 0 critical\n"
    assert GOOD.message not in run("--problems", checks=[[GOOD, BAD]]).stdout


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
