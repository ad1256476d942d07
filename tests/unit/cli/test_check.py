"""`fipop check`: which guests it asks, what it prints, how long it waits, how it ends."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from click.testing import CliRunner

from fipop.cli.main import main
from fipop.report.checks import Check, failed, ok, warning
from fipop.report.facts import Unread
from fipop.report.picture import Picture
from tests.unit.cli.access import Unasked
from tests.unit.report.pictures import build_cluster, picture

PICTURE = picture(clusters=[build_cluster("demo", "c-m-a"), build_cluster("other", "c-m-b")])
BAD = failed("ranges", "range pool", "all 3 addresses are given out", "widen spec.iprange")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run the command over PICTURE; `checks` are those of each look at the ranges."""
    asked: list[list[str]] = []

    def start(
        *arguments: str,
        checks: Iterable[list[Check]] = ([ok("ranges", "range pool")],),
        found: Picture = PICTURE,
        charset: str = "utf-8",
    ) -> Any:
        looks = iter(checks)
        last: list[Check] = []

        def check_ranges(_ranges: object) -> list[Check]:
            nonlocal last
            last = next(looks, last)
            return last

        async def read(*_: object, **__: object) -> Any:
            return found.facts

        async def nothing(*_: object, **__: object) -> list[Check]:
            return []

        async def probe_guests(
            _client: object, _picture: Picture, guests: list[str], **_: object
        ) -> list[Check]:
            asked.append(guests)
            return []

        for name, made in (
            ("read_facts", read),
            ("probe_secret_rights", nothing),
            ("probe_charts", nothing),
            ("probe_credential", nothing),
            ("probe_guests", probe_guests),
            ("check_ranges", check_ranges),
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
    assert "range pool" in result.stdout
    assert result.asked == [["c-m-a", "c-m-b"]]


def test_a_failure_is_told_with_what_to_do_and_ends_with_1(run: Callable[..., Any]) -> None:
    result = run(checks=[[BAD]])
    assert result.exit_code == 1
    for told in (BAD.name, BAD.message, BAD.advice):
        assert told in result.stdout


def test_warnings_are_no_failure(run: Callable[..., Any]) -> None:
    result = run(checks=[[warning("ranges", "range pool", "95 %", "widen it")]])
    assert (result.exit_code, "widen it" in result.stdout) == (0, True)


def test_what_could_not_be_read_is_4(run: Callable[..., Any]) -> None:
    """Of whoever is not logged in everything is refused: nothing failed, since nothing was checked."""
    unread = (Unread(what="floating IPs", problem="missing right", forbidden=True),)
    result = run("-o", "json", found=picture(unread=unread))
    assert result.exit_code == 4
    assert [each["what"] for each in json.loads(result.stdout)["unread"]] == ["floating IPs"]
    assert run("-o", "json", found=picture(unread=unread), checks=[[BAD]]).exit_code == 1


def test_a_terminal_without_utf_8_gets_all_that_it_can_show(run: Callable[..., Any]) -> None:
    result = run(charset="latin-1")
    assert (result.exit_code, "? range pool" in result.stdout) == (0, True)


def test_one_guest_is_asked_by_its_cluster_or_none(run: Callable[..., Any]) -> None:
    assert run("--guest", "demo").asked == [["c-m-a"]]
    assert run("--no-guests").asked[-1] == []
    unknown = run("--guest", "nobody")
    assert unknown.exit_code == 1
    assert "nobody" in unknown.stderr


def test_it_waits_until_nothing_fails_and_says_so(run: Callable[..., Any]) -> None:
    result = run("--wait", "5s", checks=[[BAD], [BAD], [ok("ranges", "range pool")]])
    assert result.exit_code == 0
    assert len(result.stderr.splitlines()) == 1, "what it waits for is told once"
    assert run("--wait", "1s", checks=[[BAD]]).exit_code == 1


def test_json_has_every_check_and_short_only_what_is_not_well(run: Callable[..., Any]) -> None:
    found = json.loads(run("-o", "json", checks=[[BAD]]).stdout)
    assert found["passed"] is False
    assert any(each["verdict"] == "ok" for each in found["checks"])
    short = run("-o", "short", checks=[[BAD]]).stdout
    assert "√" not in short


def test_a_helm_that_is_not_there_is_a_mistake_of_the_command_line(run: Callable[..., Any]) -> None:
    result = run("--helm", "/none/helm")
    assert result.exit_code == 2
    assert "helm" in result.stderr
