"""The life that every role has: a start that waits, parts that end together, what the probes are told."""

from __future__ import annotations

import asyncio

import pytest

from fipop.control.health import judge_liveness, judge_readiness
from fipop.control.leadership import LeaderWorkStuckError
from fipop.control.role import Role
from fipop.errors import ApiForbiddenError, ApiUnreachableError, AuthorityReplacedError
from tests.harness.virtual_time import in_virtual_time

REFUSED = ApiForbiddenError(verb="get", kind="ConfigMap", status=403)


class Server:
    """An API server that answers, or raises what a test says."""

    def __init__(self) -> None:
        self.last_good_answer_at: float | None = None
        self.error: Exception | None = None
        self.asked = 0

    async def version(self) -> dict[str, str]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return {}


class Connection:
    """How the API server is reached; its authority may have been replaced."""

    def __init__(self, *, is_replaced: bool) -> None:
        self._is_replaced = is_replaced

    def check_authority(self) -> None:
        if self._is_replaced:
            raise AuthorityReplacedError(server="https://api", path="ca.crt")


def build_role(server: Server | None = None, *, is_replaced: bool = False) -> Role:
    return Role(client=server or Server(), connection=Connection(is_replaced=is_replaced))  # type: ignore[arg-type]


def not_ready(role: Role) -> dict[str, str]:
    facts = role.judge(watching=True, unserved=(), silences={}, is_loaded=True)
    return dict(facts.not_ready)


@in_virtual_time
async def test_a_step_of_the_start_is_done_until_it_succeeds_and_says_meanwhile_why_it_does_not() -> None:
    role, tries, told = build_role(), 0, list[str]()

    async def step() -> None:
        nonlocal tries
        tries += 1
        told.append(not_ready(role).get("settings", ""))
        if tries < 3:
            raise REFUSED

    await role.take_step(step, "settings")
    assert told == ["", str(REFUSED), str(REFUSED)]
    assert not_ready(role) == {"start": "has not finished"}
    role.note_started()
    assert not_ready(role) == {}


@in_virtual_time
async def test_a_replaced_authority_ends_a_start_and_a_process_at_work() -> None:
    invalid = ApiUnreachableError(verb="get", kind="version", reason="CertificateInvalid")
    server = Server()
    server.error = invalid
    role = build_role(server, is_replaced=True)

    async def step() -> None:
        raise invalid

    with pytest.raises(AuthorityReplacedError):
        await role.take_step(step, "settings")
    with pytest.raises(AuthorityReplacedError):
        await role.run_parts()


@in_virtual_time
async def test_the_first_part_that_fails_ends_the_rest_the_last_of_them_first() -> None:
    role, ended = build_role(), list[str]()

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
        await role.run_parts(part("events"), fail(), part("watcher"), part("leader"))
    assert ended == ["leader", "watcher", "events"], "each stands on those before it"


@in_virtual_time
async def test_work_that_does_not_stop_at_the_end_is_told_instead_of_the_end() -> None:
    role = build_role()

    async def stuck() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise LeaderWorkStuckError(waited_seconds=1.0) from None

    running = asyncio.create_task(role.run_parts(stuck()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(LeaderWorkStuckError):
        await running


@in_virtual_time
async def test_a_quiet_replica_asks_the_api_server_how_it_is() -> None:
    server = Server()
    running = asyncio.create_task(build_role(server).run_parts())
    async with asyncio.timeout(3600):
        while server.asked < 3:  # noqa: ASYNC110 - a counter has no event for that
            await asyncio.sleep(0.5)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_a_resource_that_nobody_serves_makes_a_replica_not_ready_and_no_restart_helps() -> None:
    role = build_role()
    role.note_started()
    facts = role.judge(watching=True, unserved=["clusters"], silences={"floatingips": 1.0}, is_loaded=True)
    assert facts.not_ready == {"watches": "the API server does not serve clusters"}
    assert judge_liveness(facts).ok
    assert not judge_readiness(facts).ok
