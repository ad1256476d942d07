import asyncio
import os
import sys
from pathlib import Path

import pytest

from localfleet.errors import ProcessFailedError
from localfleet.guard import guarded
from localfleet.processes import Process, build_environment

READY = "print('ready', flush=True); import signal; signal.pause()"


def python(program: str, tmp_path: Path) -> Process:
    return Process("tool", [sys.executable, "-c", program], log=tmp_path / "tool.log")


async def start(process: Process) -> None:
    async def is_ready() -> bool:
        return "ready" in process.read_log()

    await process.start()
    await process.wait_until(is_ready, timeout_seconds=10)


async def never() -> bool:
    return False


async def test_a_process_that_ends_before_it_is_ready_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    lines = "; ".join(f"print('line {number}')" for number in range(30))
    process = python(f"{lines}; raise SystemExit('bad flag')", tmp_path)
    await process.start()
    with pytest.raises(ProcessFailedError, match="tool ended with 1 before it was ready") as failed:
        await process.wait_until(never, timeout_seconds=10)
    assert "bad flag" in str(failed.value)
    assert "line 29" in str(failed.value)
    assert "line 1\n" not in str(failed.value)


async def test_ctrl_c_reaches_only_us(tmp_path: Path) -> None:
    """A terminal sends it to the whole group; what we started is to be ended by us, in order."""
    process = python(READY, tmp_path)
    await start(process)
    assert os.getpgid(process.pid) != os.getpgid(0)
    await process.stop()


async def test_a_process_whose_parent_is_gone_before_it_begins_does_not_begin() -> None:
    argv = guarded([sys.executable, "-c", "print('began')"])
    argv[4] = "1"  # as if started by somebody who has died meanwhile
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await process.communicate()
    assert (output, process.returncode) == (b"", 1)
    assert b"the parent 1 is gone" in errors


async def test_programs_see_nothing_of_the_users_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """etcd takes flags from ETCD_… and kwok reads a file under HOME."""
    monkeypatch.setenv("ETCD_NAME", "mine")
    environment = build_environment(tmp_path)
    assert environment["HOME"] == str(tmp_path)
    assert environment["PATH"] == os.environ["PATH"]
    assert "ETCD_NAME" not in environment
