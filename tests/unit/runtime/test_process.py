"""The life that every role has: a start that waits, parts that end together, what the probes are told."""

from __future__ import annotations

import asyncio
import logging

import pytest

from fipop.errors import ApiError, ForbiddenError, StartError, UnavailableError, UntrustedServerError
from fipop.runtime.process import Process
from tests.harness.virtual_time import in_virtual_time

REFUSED = ForbiddenError("get ConfigMap", status=403)


class Server:
    """An API server that reads objects, or raises what a test says; of its version it tells always."""

    def __init__(self) -> None:
        self.is_replaced = False
        """Whether its authority was replaced."""
        self.error: Exception | None = None
        self.answer_seconds = 0.0
        self.reads = 0

    async def get(self) -> None:
        self.reads += 1
        await asyncio.sleep(self.answer_seconds)
        if self.error is not None:
            raise self.error

    async def version(self) -> dict[str, str]:
        return {}

    def check_authority(self) -> None:
        if self.is_replaced:
            raise StartError(what="certificate authority", problem="was replaced")


def build_process(server: Server | None = None) -> Process:
    server = server or Server()
    return Process(
        client=server,  # type: ignore[arg-type]
        read=server.get,
        is_loaded=lambda: True,
    )


@in_virtual_time
async def test_a_step_of_the_start_is_done_until_it_succeeds_and_says_meanwhile_why_it_does_not() -> None:
    process, tries, told = build_process(), 0, list[str]()

    async def step() -> None:
        nonlocal tries
        tries += 1
        told.append(process.why_not_ready().get("settings", ""))
        if tries < 3:
            raise REFUSED

    await process.take_step(step, "settings")
    assert told == ["", str(REFUSED), str(REFUSED)]
    assert process.why_not_ready() == {"start": "has not finished", "api-server": "no object was read"}
    process.record_started()
    assert process.why_not_ready() == {"api-server": "no object was read"}


@in_virtual_time
async def test_a_replaced_authority_ends_a_start_and_a_process_at_work() -> None:
    invalid = UntrustedServerError("get version", reason="CertificateInvalid")
    server = Server()
    server.error = invalid
    server.is_replaced = True
    process = build_process(server)

    async def step() -> None:
        raise invalid

    with pytest.raises(StartError):
        await process.take_step(step, "settings")
    with pytest.raises(StartError):
        await process.run_parts()


@in_virtual_time
async def test_the_first_part_that_fails_ends_the_rest_the_last_of_them_first() -> None:
    process, ended = build_process(), list[str]()

    async def part(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await process.run_parts(part("events"), fail(), part("watcher"), part("leader"))
    assert ended == ["leader", "watcher", "events"], "each stands on those before it"


def failed(kind: type[ApiError], status: int, reason: str = "") -> ApiError:
    return kind("get ConfigMap", status=status, reason=reason)


@pytest.mark.parametrize(
    ("error", "answer_seconds"),
    [
        pytest.param(failed(UnavailableError, 0, "Timeout"), 10.0, id="its store hangs"),
        pytest.param(failed(UnavailableError, 500), 0.0, id="its store is gone"),
        pytest.param(failed(ApiError, 401), 0.0, id="our token is refused"),
        pytest.param(REFUSED, 0.0, id="the right is refused"),
        pytest.param(failed(ApiError, 429), 0.0, id="it has no time for us"),
    ],
)
@in_virtual_time
async def test_a_replica_that_reads_no_object_is_not_ready_within_a_minute_and_says_why(
    error: ApiError, answer_seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    """No restart is asked for.

    etcd hangs or is gone, and kube-apiserver stays up: /version needs no etcd, and proves nothing.
    """
    server = Server()
    process, clock = build_process(server), asyncio.get_running_loop().time
    process.record_started()
    running = asyncio.create_task(process.run_parts())
    await asyncio.sleep(60)
    assert process.why_not_ready() == {}, "what is read stays ready"
    assert server.reads > 10
    server.error, server.answer_seconds, began = error, answer_seconds, clock()
    ready: list[float] = []
    while clock() - began < 240:
        await asyncio.sleep(1)
        if not process.why_not_ready():
            ready.append(clock() - began)
    assert 25 <= max(ready) < 60
    assert process.why_not_ready()["api-server"].endswith(f" s: {error}")
    told = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert [each.error for each in told] == [str(error)], "once"  # type: ignore[attr-defined]
    server.error, server.answer_seconds = None, 0.0
    await asyncio.sleep(20)
    assert process.why_not_ready() == {}
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@in_virtual_time
async def test_a_replica_is_ready_with_the_first_object_that_is_read() -> None:
    process = build_process()
    process.record_started()
    running = asyncio.create_task(process.run_parts())
    await asyncio.sleep(1)
    assert process.why_not_ready() == {}
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
