"""What is asked of an operator at its limits: clusters that are refreshed all the time, and a start at half speed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.costs import processor_seconds
from localfleet.rancher_steps import MANAGEMENT
from localfleet.stack import Stack

REFRESH_SECONDS = 15.0
"""How often Rancher refreshes what it says of a cluster."""
REFRESHED_SECONDS = 45.0
SLICE_SECONDS = 0.05
"""So long a process of half speed runs, and so long it is stopped."""
TERM_OVER = '"This replica stopped leading"'


async def cost_of_refreshes(stack: Stack) -> float:
    """Refresh every cluster every 15 s for a while; the share of a core that this costs the operator."""
    operator, names = stack.operators[-1], sorted(stack.player.guests)
    before, began = processor_seconds(operator), time.monotonic()
    number = 0
    async with asyncio.TaskGroup() as group:
        while time.monotonic() - began < REFRESHED_SECONDS:
            refreshed = {"metadata": {"annotations": {"bench/refreshed": str(number)}}}
            name = names[number % len(names)]
            group.create_task(stack.client.patch(f"{MANAGEMENT}/{name}", refreshed))
            number += 1
            due = began + number * REFRESH_SECONDS / len(names)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
    took = time.monotonic() - began
    return (processor_seconds(operator) - before) / took


@asynccontextmanager
async def half_speed(stack: Stack) -> AsyncIterator[None]:
    """Have the operator that is started within this block run half of the time only."""
    known = len(stack.operators)

    async def slow_down() -> None:
        while len(stack.operators) == known or not stack.operators[-1].process.is_running:  # noqa: ASYNC110
            await asyncio.sleep(SLICE_SECONDS)
        pid = stack.operators[-1].process.pid
        try:
            while True:
                for number in (signal.SIGSTOP, signal.SIGCONT):
                    os.kill(pid, number)
                    await asyncio.sleep(SLICE_SECONDS)
        finally:
            os.kill(pid, signal.SIGCONT)

    slowing = asyncio.create_task(slow_down())
    try:
        yield
    finally:
        slowing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await slowing


def count_lost_terms(stack: Stack) -> int:
    """How often the last operator lost the lead."""
    return stack.operators[-1].process.log.read_text(encoding="utf-8").count(TERM_OVER)
