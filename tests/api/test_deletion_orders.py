"""Range, guest and floating IP go in every order: nothing is held for nobody, and nothing of ours is left behind."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Literal

import pytest

from localfleet.controlplane import ControlPlane
from localfleet.errors import DeadlineError
from localfleet.rancher_steps import delete
from localfleet.simulated import SimulatedGuest
from localfleet.stack import RANGES, Stack, build_range
from localfleet.waiting import eventually
from tests.api.served_guest import (
    ServedGuest,
    bring_up,
    remove_range,
    scrape,
)

Part = Literal["range", "guest", "floating IP"]
pytestmark = pytest.mark.xdist_group("default")

PARTS: tuple[Part, ...] = ("range", "guest", "floating IP")
ORDERS = list(itertools.permutations(PARTS))

TERMINATING_SECONDS = 20.0
QUARANTINE_SECONDS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Household:
    """A range, a guest and the floating IP that fipop made for it there; `address` is what it holds."""

    stack: Stack
    range_name: str
    guest: ServedGuest
    address: str

    async def remove(self, part: Part) -> None:
        """Delete one of the three, as its admin does; a floating IP may have gone with its guest."""
        removals: dict[Part, Callable[[], Awaitable[None]]] = {
            "range": lambda: remove_range(self.stack, self.range_name),
            "guest": lambda: self.stack.player.delete_guest(self.guest.guest),
            "floating IP": lambda: delete(self.stack.client, self.guest.path()),
        }
        await removals[part]()

    async def owners(self) -> list[str]:
        """The floating IPs that hold addresses for this guest."""
        return [owner for owner in (await self.stack.held()).values() if owner.startswith(self.guest.id)]

    async def is_let_go(self) -> None:
        """Wait until nothing is held for the guest's floating IPs."""

        async def is_nothing_held() -> bool:
            return not await self.owners()

        await eventually(is_nothing_held, what=f"{self.address} to be let go")

    async def is_namespace_gone(self) -> None:
        async def is_gone() -> bool:
            return await self.stack.client.find(f"/api/v1/namespaces/{self.guest.id}") is None

        await eventually(is_gone, seconds=TERMINATING_SECONDS, what="the namespace to be gone")

    async def are_all_gone(self) -> None:
        """Wait until nothing speaks of the three any more."""
        await self.is_namespace_gone()
        await self.is_let_go()

        async def is_silent() -> bool:
            words = {self.guest.id, self.guest.name, self.range_name}
            told = [one for one in await scrape(self.stack) if words & set(one.labels.values())]
            assert not told, told
            return True

        await eventually(is_silent, what="no metric of what is gone")


@asynccontextmanager
async def open_household(
    stack: Stack, target: ControlPlane | SimulatedGuest, number: int
) -> AsyncIterator[Household]:
    range_name = f"vlan-{number}"
    iprange = f"10.{number // 256}.{number % 256}.0/24"
    harvester = await stack.player.create_harvester(f"harvester-{number}")
    body = build_range(
        range_name, iprange, harvester=harvester.display_name, quarantineSeconds=QUARANTINE_SECONDS
    )
    await stack.client.create(RANGES, body)
    plan = stack.player.plan_guest(f"guest-{number}", harvester=harvester)
    async with bring_up(stack, target, plan) as guest:
        found = await guest.has_condition(seconds=20)
        address: str = found["status"]["addresses"][0]
        yield Household(stack=stack, range_name=range_name, guest=guest, address=address)


@contextmanager
def telling(order: Sequence[Part]) -> Iterator[None]:
    """Have a failure tell in which order it came."""
    try:
        yield
    except (AssertionError, DeadlineError) as error:
        error.add_note(f"in the order {', '.join(order)}")
        raise


async def test_all_at_once_they_leave_nothing_behind(stack: Stack, numbers: Iterator[int]) -> None:
    async def remove_all(order: Sequence[Part]) -> None:
        async with open_household(stack, SimulatedGuest(), next(numbers)) as household:
            with telling(order):
                for part in order:
                    await household.remove(part)
                await household.are_all_gone()

    await asyncio.gather(*(remove_all(order) for order in ORDERS))
