"""What a file does with a stack that several share: it borrows it, and leaves no guest and no floating IP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from localfleet.client import Json
from localfleet.stack import RANGES, Stack
from tests.api.emptying import clear
from tests.api.live_options import with_options


@asynccontextmanager
async def borrow(stack: Stack, *ranges: Json, **options: str) -> AsyncIterator[Stack]:
    """Have these ranges and options in a stack for a while; afterwards they are gone, and with them all guests."""
    async with with_options(stack, **options):
        for body in ranges:
            await stack.client.create(RANGES, body)
        yield stack
        await clear(stack)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installs:
    """A stack that keeps releases in guests, and the archives of their charts.

    The operator may read the Secret `charts` and the ConfigMap `charts-authority`.
    """

    stack: Stack
    archives: list[Path]
