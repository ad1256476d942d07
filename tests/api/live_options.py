"""kube-fip-config of a running operator: options that a test or a module sets for a while."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from localfleet.observation import parse_metrics
from localfleet.stack import SETTINGS, Stack
from localfleet.waiting import eventually

MARK = "helmConcurrency"
"""An option that blocks nothing while it is bad: the operator keeps the value that it had."""


async def in_force(stack: Stack, **options: str | None) -> None:
    """Set options, and return when they are in force: the log names the bad value that was set with them.

    That one is good again at the next reading of the options.
    """
    mark, log = f"mark-{secrets.token_hex(8)}", stack.operators[-1].process.log
    good = options.get(MARK, (await stack.client.get(SETTINGS))["data"].get(MARK))
    await stack.set_options(**{**options, MARK: mark})

    async def is_told() -> bool:
        return mark in await asyncio.to_thread(log.read_text)

    await eventually(is_told, seconds=30, what="the options to be in force")
    await stack.set_options(**{MARK: good})


async def count_bad_options(stack: Stack) -> float:
    """Return how many options of kube-fip-config the operator refuses."""
    samples = parse_metrics(await stack.operators[-1].metrics())
    return next(sample.value for sample in samples if sample.name == "fipop_settings_bad_options")


@asynccontextmanager
async def with_options(stack: Stack, **options: str) -> AsyncIterator[None]:
    """Have options in force for a while; afterwards they are as they were."""
    if not options:
        yield
        return
    before: dict[str, str] = (await stack.client.get(SETTINGS))["data"]
    await in_force(stack, **options)
    try:
        yield
    finally:
        await in_force(stack, **{name: before.get(name) for name in options})
