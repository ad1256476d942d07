"""Runs of helm: how many, for how long, and what is told of them."""

import asyncio
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from fipop.errors import StartError
from fipop.guest.errors import HelmError, HelmFailure
from fipop.guest.helm.runner import find_helm
from tests.harness.reaching import build_runner
from tests.unit.guest.helm.programs import RECORD, Stub, order, target


async def failure_of(program: str, tmp_path: Path, **options: Any) -> HelmFailure:
    with pytest.raises(HelmError) as failed:
        await build_runner(program, **options).upgrade(target(), order(tmp_path))
    assert "verysecret" not in str(failed.value)
    return failed.value.failure


async def test_each_run_is_told_by_its_subcommand_and_how_it_ended(stub: Stub, tmp_path: Path) -> None:
    seen: list[tuple[str, bool]] = []

    def observe(command: str, success: bool) -> None:
        seen.append((command, success))

    await build_runner(stub.make(), observe=observe).upgrade(target(), order(tmp_path))
    await failure_of(stub.make("exit 1"), tmp_path, observe=observe)
    await failure_of(stub.make("sleep 60"), tmp_path, observe=observe, deadline_seconds=0.2)
    await failure_of(str(tmp_path / "no-such-program"), tmp_path, observe=observe)
    assert seen == [("upgrade", True), ("upgrade", False), ("upgrade", False), ("upgrade", False)]


@pytest.mark.parametrize("after", ["echo '{}'", "exit 1", "kill -9 $$", "sleep 60"])
async def test_no_file_stays_behind_however_helm_ends(
    stub: Stub, tmp_path: Path, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    runner = build_runner(stub.make(after), deadline_seconds=1)
    await asyncio.gather(runner.upgrade(target(), order(tmp_path)), return_exceptions=True)
    assert [path.name for path in place.rglob("*") if not path.is_dir()] == ["lock"]
    runner.work_folder.close()
    assert list(place.iterdir()) == []


async def test_a_source_of_charts_that_hangs_keeps_no_guest_from_its_upgrade(
    stub: Stub, tmp_path: Path
) -> None:
    runner = build_runner(stub.make('[ "$1" != show ] || exec sleep 60; echo "{}"'), concurrency=1)

    async def fetch() -> None:
        async with runner.fetching("a chart") as charts:
            await charts.newest_version("oci://registry.example/chart")

    fetching = asyncio.create_task(fetch())
    while runner.runs == 0:  # noqa: ASYNC110 - a runner has no event for that
        await asyncio.sleep(0.01)
    await asyncio.wait_for(runner.upgrade(target(), order(tmp_path)), 20)
    fetching.cancel()
    await asyncio.gather(fetching, return_exceptions=True)


async def test_a_failure_is_classified_and_its_words_do_not_travel(stub: Stub, tmp_path: Path) -> None:
    words = "Error: verysecret: another operation (install/upgrade/rollback) is in progress"
    assert await failure_of(stub.make(f"echo '{words}' >&2; exit 1"), tmp_path) is HelmFailure.IN_PROGRESS
    assert await failure_of(stub.make("kill -9 $$"), tmp_path) is HelmFailure.KILLED
    assert await failure_of(stub.make("sleep 60"), tmp_path, deadline_seconds=0.5) is HelmFailure.TIMED_OUT


async def test_of_an_upgrade_only_how_it_ended_is_read(stub: Stub, tmp_path: Path) -> None:
    for says in ("true", "echo '{broken'", "head -c 30000000 /dev/zero"):
        await build_runner(stub.make(says)).upgrade(target(), order(tmp_path))


async def test_helm_is_asked_by_name_and_revision_what_a_release_was_made_from(stub: Stub) -> None:
    answers = '[ "$2" = values ] && echo \'{"a": 1}\' || echo \'{"chart": "kube-vip", "version": "0.9.9"}\''
    found = await build_runner(stub.make(answers)).describe(target(), RECORD)
    assert (found.chart_name, found.chart_version, found.values) == ("kube-vip", "0.9.9", {"a": 1})
    place = ["kube-vip", "--namespace", "kube-system", "--revision", "1", "--output", "json"]
    assert stub.told("argv") == ["get", "values", *place]


async def test_hooks_that_stand_in_a_record_do_not_run(stub: Stub) -> None:
    runner = build_runner(stub.make())
    await runner.uninstall(target(), RECORD)
    assert stub.told("argv")[:3] == ["uninstall", "kube-vip", "--no-hooks"]
    await runner.roll_back(target(), RECORD, 1)
    assert stub.told("argv")[:4] == ["rollback", "kube-vip", "1", "--no-hooks"]


async def test_a_release_without_values_has_none(stub: Stub) -> None:
    found = await build_runner(stub.make("echo null")).describe(target(), RECORD)
    assert (found.chart_name, found.values) == ("", {})


@pytest.mark.parametrize(
    ("says", "failure"),
    [
        ("echo '{'", HelmFailure.UNKNOWN),
        ("echo '[1]'", HelmFailure.UNKNOWN),
        ("head -c 100000 /dev/zero | tr '\\0' '['", HelmFailure.UNKNOWN),
        ("head -c 300000 /dev/zero | tr '\\0' ' '", HelmFailure.TOO_MUCH),
        ("kill -9 $$", HelmFailure.KILLED),
        ("exit 2", HelmFailure.KILLED),
    ],
)
async def test_what_helm_tells_of_a_release_is_bounded_and_may_be_nonsense(
    stub: Stub, says: str, failure: HelmFailure
) -> None:
    with pytest.raises(HelmError) as failed:
        await build_runner(stub.make(says)).describe(target(), RECORD)
    assert failed.value.failure is failure


async def test_what_is_left_of_a_turn_bounds_each_helm_in_it(stub: Stub, tmp_path: Path) -> None:
    """A slow guest held a turn for twelve minutes: 120 s for each of six names."""
    runner = build_runner(stub.make("sleep 60"), deadline_seconds=50)
    ends = target(0.5)
    began = asyncio.get_running_loop().time()
    for _ in range(6):
        with pytest.raises(HelmError) as failed:
            await runner.upgrade(ends, order(tmp_path))
        assert failed.value.failure is HelmFailure.TIMED_OUT
    assert asyncio.get_running_loop().time() - began < 10
    assert runner.runs == 1, "the others had no time left"


async def test_a_helm_that_got_no_more_memory_was_killed_whatever_stands_in_its_traces(
    stub: Stub, tmp_path: Path
) -> None:
    crash = "echo 'fatal error: runtime: out of memory ... io.EOF' >&2; exit 2"
    assert await failure_of(stub.make(crash), tmp_path) is HelmFailure.KILLED
    assert stub.env["GOMEMLIMIT"] == "112MiB"


async def test_a_helm_that_cannot_be_started_is_told(stub: Stub, tmp_path: Path) -> None:
    assert await failure_of(str(tmp_path / "none"), tmp_path) is HelmFailure.NOT_STARTED
    stub.make()
    stub.program.chmod(stat.S_IRUSR)
    if os.geteuid() != 0 or not os.access(stub.program, os.X_OK):
        assert await failure_of(str(stub.program), tmp_path) is HelmFailure.NOT_STARTED


async def test_a_disk_that_cannot_be_written_is_told(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "not-there"))
    assert await failure_of(stub.make(), tmp_path) is HelmFailure.FILES


async def test_no_more_helms_than_allowed_run_at_once(stub: Stub, tmp_path: Path) -> None:
    (tmp_path / "running").mkdir()
    count = f"touch {tmp_path}/running/$$; sleep 0.2; ls {tmp_path}/running | wc -l >> {tmp_path}/seen"
    forget = f"rm {tmp_path}/running/$$; echo '{{}}'"
    runner = build_runner(stub.make(f"{count}; {forget}"), concurrency=2)
    await asyncio.gather(*(runner.upgrade(target(), order(tmp_path)) for _ in range(6)))
    assert max(int(line) for line in (tmp_path / "seen").read_text().split()) <= 2
    assert runner.runs == 6


def test_helm_is_the_given_one_or_that_on_the_path(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    program = stub.make()
    assert find_helm(program) == program
    monkeypatch.setenv("PATH", str(stub.folder))
    assert find_helm() == program
    monkeypatch.setenv("PATH", "")
    for given in (None, "/no-such/helm"):
        with pytest.raises(StartError) as caught:
            find_helm(given)
        assert (given or "helm") in str(caught.value)
