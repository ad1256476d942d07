"""kube-fip-config of a running operator: options that a test or a module sets for a while."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fipop.settings.options import DEFAULTS, parse_settings
from localfleet.observation import parse_metrics
from localfleet.stack import SETTINGS, Stack
from localfleet.waiting import eventually

MARK = "helmConcurrency"
"""An option that blocks nothing while it is bad."""


async def in_force(stack: Stack, **options: str | None) -> None:
    """Set options, and return when they are in force: a bad value that was set with them came and went."""
    data: dict[str, str] = (await stack.client.get(SETTINGS))["data"]
    for mark in ("a mark", options.get(MARK, data.get(MARK))):
        await stack.set_options(**{**options, MARK: mark})
        _, bad = parse_settings((await stack.client.get(SETTINGS))["data"], DEFAULTS)

        async def is_counted() -> bool:
            return await count_bad_options(stack) == len(bad)  # noqa: B023

        await eventually(is_counted, seconds=30, what="the options to be in force")


async def count_bad_options(stack: Stack) -> float:
    """Return how many options of kube-fip-config the operator refuses."""
    samples = parse_metrics(await stack.operators[-1].metrics())
    return next(sample.value for sample in samples if sample.name == "fipop_settings_bad_options")


@asynccontextmanager
async def with_options(stack: Stack, **options: str) -> AsyncIterator[None]:
    """Have options in force for a while; afterwards they are as they were."""
    before: dict[str, str] = (await stack.client.get(SETTINGS))["data"]
    await in_force(stack, **options)
    try:
        yield
    finally:
        await in_force(stack, **{name: before.get(name) for name in options})
