"""The whole of the ledger in the log, where the options ask for it, at most once a second."""

import asyncio
import logging

import pytest

from fipop.operator.tracing import IpamTracer, log_ipam_data
from tests.harness.objects import build_range, build_reservation, cache_of

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
        (each.message, getattr(each, "address", ""), getattr(each, "state", "")) for each in told.records
    ] == [
        ("ipam data: range", "", ""),
        ("ipam data: address", "10.0.0.2", "held"),
        ("ipam data: address", "10.0.0.3", "quarantined"),
    ]
    (pool, *_) = told.records
    assert (pool.used, pool.quarantined) == (1, 1)  # type: ignore[attr-defined] # fields of the line


async def test_many_rounds_at_once_are_told_once(told: pytest.LogCaptureFixture) -> None:
    tracer = IpamTracer(CACHE, wanted=lambda: True)
    for _ in range(50):
        tracer.note_round()
    await asyncio.sleep(0.01)
    assert sum(each.message == "ipam data: range" for each in told.records) == 1
    tracer.note_round()
    await asyncio.sleep(0.01)
    assert sum(each.message == "ipam data: range" for each in told.records) == 1, "the second is not over"


async def test_nothing_is_told_where_nobody_asked(told: pytest.LogCaptureFixture) -> None:
    is_wanted = True
    tracer = IpamTracer(CACHE, wanted=lambda: is_wanted)
    tracer.note_round()
    is_wanted = False
    await asyncio.sleep(0.01)
    IpamTracer(CACHE, wanted=lambda: False).note_round()
    assert not told.records
