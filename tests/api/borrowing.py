"""What a file does with a stack that several share: it borrows it, and leaves no guest and no floating IP."""

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
