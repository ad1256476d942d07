import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from localfleet.errors import ProcessFailedError, ToolFailedError
from localfleet.guard import guarded
from localfleet.ports import Ports
from localfleet.processes import Process, build_environment, run_to_end
from localfleet.servers import start_server

READY = "print('ready', flush=True); import signal; signal.pause()"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + READY


def python(program: str, tmp_path: Path) -> Process:
    return Process("tool", [sys.executable, "-c", program], log=tmp_path / "tool.log")


async def start(process: Process) -> None:
    async def is_ready() -> bool:
        return "ready" in process.read_log()

    await process.start()
    await process.wait_until(is_ready, timeout_seconds=10)


async def never() -> bool:
    return False


async def test_a_process_runs_until_it_is_stopped_and_may_be_started_again(tmp_path: Path) -> None:
    process = python(READY, tmp_path)
    await start(process)
    first = process.pid
    await process.stop()
    assert (process.is_running, process.returncode) == (False, -signal.SIGTERM)
    await start(process)
    assert process.pid != first
    await process.stop()
    await process.stop()  # does nothing any more


async def test_a_process_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    process = python(DEAF, tmp_path)
    await start(process)
    await process.stop(grace_seconds=0.1)
    assert process.returncode == -signal.SIGKILL


async def test_a_paused_process_can_be_stopped(tmp_path: Path) -> None:
    process = python(READY, tmp_path)
    await start(process)
    process.pause()
    await process.stop(grace_seconds=10)
    assert process.returncode == -signal.SIGTERM


async def test_a_process_that_ends_before_it_is_ready_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    lines = "; ".join(f"print('line {number}')" for number in range(30))
    process = python(f"{lines}; raise SystemExit('bad flag')", tmp_path)
    await process.start()
    with pytest.raises(ProcessFailedError, match="tool ended with 1 before it was ready") as failed:
        await process.wait_until(never, timeout_seconds=10)
    assert "bad flag" in str(failed.value)
    assert "line 29" in str(failed.value)
    assert "line 1\n" not in str(failed.value)


async def test_a_process_that_is_not_ready_in_time_is_told(tmp_path: Path) -> None:
    process = python(READY, tmp_path)
    await start(process)
    with pytest.raises(ProcessFailedError, match=r"not ready after 0\.1 s"):
        await process.wait_until(never, timeout_seconds=0.1)
    await process.stop()


async def test_a_program_that_is_not_there_is_told_by_name(tmp_path: Path) -> None:
    process = Process("tool", ["/nonexistent/tool"], log=tmp_path / "log")
    await process.start()
    with pytest.raises(ProcessFailedError, match="/nonexistent/tool: No such file"):
        await process.wait_until(never, timeout_seconds=10)


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


async def test_a_tool_gets_its_input_and_gives_its_output() -> None:
    program = "import sys; print(sys.stdin.read().upper(), end='')"
    assert await run_to_end([sys.executable, "-c", program], stdin="text", timeout_seconds=10) == "TEXT"


async def test_programs_see_nothing_of_the_users_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """etcd takes flags from ETCD_… and kwok reads a file under HOME."""
    monkeypatch.setenv("ETCD_NAME", "mine")
    environment = build_environment(tmp_path)
    assert environment["HOME"] == str(tmp_path)
    assert environment["PATH"] == os.environ["PATH"]
    assert "ETCD_NAME" not in environment


async def test_a_failed_tool_is_told_with_what_it_wrote() -> None:
    with pytest.raises(ToolFailedError, match="no such thing") as failed:
        await run_to_end([sys.executable, "-c", "raise SystemExit('no such thing')"], timeout_seconds=10)
    assert failed.value.returncode == 1


async def test_a_tool_is_killed_at_its_deadline(tmp_path: Path, ends: Callable[[int], bool]) -> None:
    note = tmp_path / "pid"
    program = f"import os, pathlib, signal; pathlib.Path({str(note)!r}).write_text(str(os.getpid())); signal.pause()"
    with pytest.raises(TimeoutError):
        await run_to_end([sys.executable, "-c", program], timeout_seconds=1)
    assert ends(int(note.read_text()))


SERVER = """
import socket, sys
server = socket.socket()
server.bind(("127.0.0.1", int(sys.argv[1])))
server.listen()
while True:
    server.accept()[0].close()
"""


def server(tmp_path: Path, port: int, program: str = SERVER) -> Process:
    return Process("server", [sys.executable, "-c", program, str(port)], log=tmp_path / "server.log")


async def is_listening(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def test_a_server_whose_port_was_snatched_tries_another(tmp_path: Path) -> None:
    thieves: list[asyncio.Server] = []
    tried: list[int] = []

    async def is_ready(port: int) -> bool:
        """The first port is taken by a stranger between its choice and its use."""
        if not thieves:
            thieves.append(
                await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", port)
            )
            return False
        return port != tried[0] and await is_listening(port)

    def build(port: int) -> Process:
        tried.append(port)
        return server(tmp_path, port, SERVER if len(tried) > 1 else WAIT_FOR_THIEF + SERVER)

    with Ports(tmp_path / "ports") as ports:
        port, process = await start_server(ports, build, is_ready, timeout_seconds=10)
        assert [port] == tried[1:]
        await process.stop()
    for thief in thieves:
        thief.close()


WAIT_FOR_THIEF = """
import socket, sys, time
while socket.socket().connect_ex(("127.0.0.1", int(sys.argv[1]))):
    time.sleep(0.01)
"""


async def test_a_server_that_fails_for_another_reason_is_not_tried_again(tmp_path: Path) -> None:
    tried: list[int] = []

    def build(port: int) -> Process:
        tried.append(port)
        return server(tmp_path, port, "raise SystemExit('bad flag')")

    with Ports(tmp_path / "ports") as ports:
        with pytest.raises(ProcessFailedError, match="bad flag"):
            await start_server(ports, build, is_listening, timeout_seconds=10)
        assert len(tried) == 1
