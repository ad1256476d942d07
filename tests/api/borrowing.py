"""What a file does with a stack that several share: it borrows it, and leaves no guest and no floating IP."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from localfleet.assets import ensure
from localfleet.certificates import CertificateAuthority
from localfleet.chartrepo import ChartRepository
from localfleet.client import Json
from localfleet.helm import Helm
from localfleet.registry import OciRegistry
from localfleet.stack import RANGES, SETTINGS, Stack
from localfleet.waiting import eventually
from tests.api.emptying import clear

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


@asynccontextmanager
async def borrow(stack: Stack, *ranges: Json, **options: str) -> AsyncIterator[Stack]:
    """Have these ranges and options in a stack for a while; afterwards they are gone, and with them all guests."""
    before: dict[str, str] = (await stack.client.get(SETTINGS))["data"] if options else {}
    if options:
        await in_force(stack, **options)
    try:
        for body in ranges:
            await stack.client.create(RANGES, body)
        yield stack
        await clear(stack)
    finally:
        if options:
            await in_force(stack, **{name: before.get(name) for name in options})


@dataclass(frozen=True, slots=True, kw_only=True)
class Installs:
    """A stack that keeps releases in guests, and where their charts come from.

    The operator trusts what `authority` signs, and may read the Secret `charts` and the ConfigMap `charts-authority`.
    """

    stack: Stack
    repository: ChartRepository
    archives: list[Path]
    authority: CertificateAuthority
    helm: Helm

    @asynccontextmanager
    async def open_registry(self, folder: Path) -> AsyncIterator[OciRegistry]:
        """Run an empty registry that the operator trusts."""
        async with OciRegistry(
            program=ensure("registry"),
            folder=folder,
            ports=self.stack.fleet.ports,
            authority=self.authority,
            helm=self.helm,
        ) as registry:
            yield registry
