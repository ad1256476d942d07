"""The whole of the ledger in the log, where the options ask for it, at most once a second."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from fipop.operator.tracing import IpamTracer, log_ipam_data
from tests.harness.objects import build_range, build_reservation, cache_of
from tests.harness.virtual_time import run_virtually

CACHE = cache_of(
    ranges=[build_range("pool", "10.0.0.0/29")],
    reservations=[
        build_reservation("10.0.0.2"),
        build_reservation("10.0.0.3", quarantined_until="2026-03-01T12:00:00Z"),
    ],
)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="fipop.operator.tracing")
    return caplog


def test_every_range_and_every_address_is_a_line(told: pytest.LogCaptureFixture) -> None:
    log_ipam_data(CACHE)
    assert [
        (getattr(each, "range", ""), getattr(each, "address", ""), getattr(each, "state", ""))
        for each in told.records
    ] == [("pool", "", ""), ("pool", "10.0.0.2", "held"), ("pool", "10.0.0.3", "quarantined")]
    (pool, *_) = told.records
    assert (pool.used, pool.quarantined) == (1, 1)  # type: ignore[attr-defined] # fields of the line


class Rounds:
    """Rounds in virtual time. `told`: when the ledger was logged."""

    def __init__(self, caplog: pytest.LogCaptureFixture, wanted: Callable[[], bool]) -> None:
        self._records = caplog.records
        self.tracer = IpamTracer(CACHE, wanted=wanted)
        self.told: list[float] = []

    async def end(self, *, after_seconds: float = 0.0) -> None:
        """Let time pass in small steps, and note when lines come; then let a round end."""
        loop = asyncio.get_running_loop()
        until = loop.time() + after_seconds
        while loop.time() < until:
            before = self._lines()
            await asyncio.sleep(0.125)
            self.told += [loop.time()] * (self._lines() - before)
        self.tracer.note_round()

    def _lines(self) -> int:
        return sum(hasattr(each, "total") for each in self._records)


def test_many_rounds_at_once_are_told_once_and_later_ones_a_second_later(
    told: pytest.LogCaptureFixture,
) -> None:
    rounds = Rounds(told, lambda: True)

    async def run() -> None:
        for _ in range(50):
            await rounds.end()
        await rounds.end(after_seconds=0.5)
        await rounds.end(after_seconds=10)

    run_virtually(run())
    assert rounds.told == [0.125, 1.0]


def test_nothing_is_told_where_nobody_asked(told: pytest.LogCaptureFixture) -> None:
    is_wanted = True

    async def run() -> None:
        nonlocal is_wanted
        tracer = IpamTracer(CACHE, wanted=lambda: is_wanted)
        tracer.note_round()
        is_wanted = False
        await asyncio.sleep(60)
        IpamTracer(CACHE, wanted=lambda: False).note_round()
        await asyncio.sleep(60)

    run_virtually(run())
    assert not told.records
