"""A program ends for certain, however it and we behave."""

import asyncio
import os
import signal
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from fipop.helm.process import FILE_BYTES, STDERR_BYTES, STDOUT_BYTES, Finished, run_process
from localfleet.waiting import eventually

SHELL = "/bin/sh"


async def run(script: str, folder: Path, *, stdin: bytes | None = None, deadline: float = 20.0) -> Finished:
    argv, env = [SHELL, "-c", script], {"PATH": os.environ["PATH"], "ONLY": "this"}
    return await run_process(argv, env=env, folder=folder, stdin=stdin, seconds_left=until(deadline))


def until(seconds: float) -> Callable[[], float]:
    """Return what is left of so many seconds from now on."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + seconds
    return lambda: deadline - clock()


async def started_pid(path: Path) -> int:
    async def read() -> int | None:
        return read_pid(path)

    return await eventually(read, what="the program to have started")


def read_pid(path: Path) -> int | None:
    return int(path.read_text()) if path.exists() and path.read_text().strip() else None


def is_alive(pid: int) -> bool:
    try:
        # A process that ended and was not waited for is none any more.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def is_gone(pid: int) -> None:
    """Wait until a process that was killed is gone: the kernel ends those of a group one after the other."""

    async def ended() -> bool:
        return not is_alive(pid)

    await eventually(ended, what=f"process {pid} to be gone")


async def test_input_outputs_and_the_exit_code_pass_through_and_our_environment_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example")
    ended = await run("cat; echo $ONLY $HTTPS_PROXY; pwd; echo no >&2; exit 3", tmp_path, stdin=b"in\n")
    assert ended == Finished(
        returncode=3, timed_out=False, stdout=f"in\nthis\n{tmp_path}\n".encode(), stderr=b"no\n"
    )
    assert "this" not in repr(ended), "outputs can hold secrets"


async def test_a_program_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no-such"):
        await run_process(["/no-such"], env={}, folder=tmp_path, stdin=None, seconds_left=until(1))


async def test_at_the_deadline_the_program_may_tidy_up(tmp_path: Path) -> None:
    ended = await run("trap 'echo tidied; exit 1' TERM; sleep 60 & wait", tmp_path, deadline=0.5)
    assert (ended.timed_out, ended.stdout) == (True, b"tidied\n")


async def test_a_program_and_its_children_that_ignore_the_deadline_are_killed(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    ended = await run(f"trap '' TERM; sleep 60 & echo $! > {path}; wait; wait", tmp_path, deadline=0.3)
    assert ended.timed_out
    assert ended.returncode == -signal.SIGKILL
    await is_gone(int(path.read_text()))


async def test_a_cancelled_task_returns_when_the_program_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    task = asyncio.create_task(run(f"trap '' TERM; echo $$ > {path}; sleep 60", tmp_path))
    pid = await started_pid(path)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_alive(pid)


@pytest.mark.parametrize("steps", range(5))
async def test_a_task_that_is_cancelled_while_the_program_starts_returns_when_it_is_gone(
    tmp_path: Path, steps: int
) -> None:
    """It waited for the end of what the program had started: of an install, for minutes."""
    path = tmp_path / "pid"
    task = asyncio.create_task(run(f"sleep 60 & echo $! > {path}; wait", tmp_path))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    async with asyncio.timeout(20):
        with pytest.raises(asyncio.CancelledError):
            await task
    if path.exists():
        await is_gone(int(path.read_text() or "0"))


@pytest.mark.parametrize("steps", range(5))
async def test_a_task_that_is_cancelled_ends_as_cancelled_though_the_program_is_not_there(
    tmp_path: Path, steps: int
) -> None:
    """Whoever awaits its end would wait forever if it took up its next work."""
    work = run_process(["/no-such"], env={}, folder=tmp_path, stdin=None, seconds_left=until(1))
    task = asyncio.create_task(work)
    for _ in range(steps):
        await asyncio.sleep(0)
    if task.cancel():
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_program_that_writes_much_does_not_hang(tmp_path: Path) -> None:
    ended = await run("head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2", tmp_path)
    assert (len(ended.stdout), len(ended.stderr), ended.is_cut) == (STDOUT_BYTES, STDERR_BYTES, True)


async def test_of_what_a_program_says_the_beginning_and_of_its_complaints_the_end_are_kept(
    tmp_path: Path,
) -> None:
    ended = await run("echo first; head -c 9000 /dev/zero >&2; echo last >&2", tmp_path)
    assert (ended.stdout, ended.is_cut) == (b"first\n", False)
    assert len(ended.stderr) == STDERR_BYTES
    assert ended.stderr.endswith(b"\0last\n")


async def test_a_program_that_complains_without_end_leaves_us_our_memory(tmp_path: Path) -> None:
    """90 MB of stderr, which a guest's webhook had helm write, grew the operator by 172 MiB."""
    tracemalloc.start()
    try:
        await run("head -c 90000000 /dev/zero >&2", tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 4 * 1024 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="Linux bounds a program's files")
async def test_a_program_that_writes_a_long_file_fails(tmp_path: Path) -> None:
    """A guest's discovery documents filled 360 MB of the disk in 15 s."""
    ended = await run(f"sleep 0.3; head -c 80000000 /dev/zero > {tmp_path}/file", tmp_path)
    assert ended.returncode != 0
    assert (tmp_path / "file").stat().st_size == FILE_BYTES


async def test_a_program_that_does_not_read_its_input_is_no_error(tmp_path: Path) -> None:
    assert (await run("exit 0", tmp_path, stdin=b"x" * 1_000_000)).returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="Linux bounds a program's memory")
async def test_a_program_that_wants_all_memory_fails_and_leaves_us_ours(tmp_path: Path) -> None:
    """A guest's Secret that unpacked to 800 MB in helm had the whole operator killed for it, again and again."""
    program = "import resource; a = b'x' * 2**{}; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    ended = [
        await run_process(
            [sys.executable, "-c", program.format(power)],
            env={},
            folder=tmp_path,
            stdin=None,
            seconds_left=until(60),
        )
        for power in (30, 26)
    ]
    assert [(one.returncode != 0, one.stdout == b"") for one in ended] == [(True, True), (False, False)]
    assert b"MemoryError" in ended[0].stderr
