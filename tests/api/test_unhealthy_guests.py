"""A guest that is ill says so, costs the others nothing, and recovers by itself."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from localfleet.rancher_plan import Step
from localfleet.rancher_steps import SECRETS
from localfleet.routes import Fault
from localfleet.simulated import SimulatedGuest
from localfleet.stack import Stack, build_range
from tests.api.borrowing import borrow
from tests.api.served_guest import ServedGuest, bring_up, scrape

pytestmark = pytest.mark.xdist_group("default")

NOTICED_SECONDS = 40.0
RECOVERED_SECONDS = 40.0
"""An ill guest that is new is tried every 3 s; a request that hangs takes 10 s to be given up."""


@pytest_asyncio.fixture(scope="module")
async def stack(stack: Stack) -> AsyncIterator[Stack]:
    """Visits are 8 minutes apart: what comes sooner comes by itself."""
    vlan = build_range("vlan", "10.79.0.0/16", harvester="harvester-cluster1", network="vlan10")
    options = {"operateGuestClusterInterval": "480", "logLevel": "Trace"}
    async with borrow(stack, vlan, **options) as stack:
        yield stack


@pytest_asyncio.fixture
async def guest(stack: Stack, numbers: Iterator[int]) -> AsyncIterator[ServedGuest]:
    async with bring_up(stack, SimulatedGuest(), stack.player.plan_guest(f"guest-{next(numbers)}")) as guest:
        await guest.has_condition()
        yield guest


@dataclass(frozen=True, slots=True, kw_only=True)
class Illness:
    """What ails a guest, what its condition then says, and what heals it."""

    strike: Callable[[ServedGuest], Awaitable[None]]
    heal: Callable[[ServedGuest], Awaitable[None]]
    reason: str = "GuestUnreachable"
    words: str = ""


def by_fault(words: str, **fault: Any) -> Illness:
    async def strike(guest: ServedGuest) -> None:
        guest.route.fault = Fault(**fault)

    async def heal(guest: ServedGuest) -> None:
        guest.route.fault = None

    return Illness(strike=strike, heal=heal, words=words)


async def revoke(guest: ServedGuest) -> None:
    guest.stack.proxy.revoke_token(guest.guest.token)


async def unbind(guest: ServedGuest) -> None:
    guest.stack.proxy.revoke_token(guest.guest.token)
    guest.stack.proxy.issue_token(guest.guest.token)


async def bind(guest: ServedGuest) -> None:
    guest.stack.proxy.bind_token(guest.guest.token, guest.id)


async def disconnect(guest: ServedGuest) -> None:
    await guest.stack.player.disconnect(guest.guest)


async def reconnect(guest: ServedGuest) -> None:
    await guest.stack.player.reconnect(guest.guest)


async def lose_secret(guest: ServedGuest) -> None:
    await guest.stack.client.delete(secret_path(guest))


async def find_secret(guest: ServedGuest) -> None:
    await guest.stack.player.take(guest.guest, Step.KUBECONFIG)


def secret_path(guest: ServedGuest) -> str:
    plan = guest.guest.plan
    return f"{SECRETS.format(namespace=plan.namespace)}/{plan.kubeconfig_secret}"


ILLNESSES = {
    "hangs": by_fault("", hang=True),
    "refuses": by_fault("", refuse=True),
    "fails": by_fault("500", status=500),
    "knows nobody": Illness(strike=revoke, heal=bind, words="401"),
    "lets nobody in": Illness(strike=unbind, heal=bind, words="403"),
    "is cut off": Illness(strike=disconnect, heal=reconnect, reason="GuestDisconnected"),
    "has no kubeconfig": Illness(strike=lose_secret, heal=find_secret, reason="KubeconfigMissing"),
}


async def want_a_pass(guest: ServedGuest, interface: str) -> None:
    """Change what the guest's ConfigMap is to say."""
    await guest.stack.client.patch(guest.path(), {"spec": {"interface": interface}})


async def test_ill_guests_say_why_and_recover_by_themselves_while_the_others_are_served(
    stack: Stack, numbers: Iterator[int]
) -> None:
    number = next(numbers)
    async with AsyncExitStack() as exits:
        ill: dict[str, ServedGuest] = {}
        for index, name in enumerate(ILLNESSES):
            plan = stack.player.plan_guest(f"ill-{number}-{index}")
            ill[name] = await exits.enter_async_context(bring_up(stack, SimulatedGuest(), plan))
        for guest in ill.values():
            await guest.has_condition()
        for name, guest in ill.items():
            await ILLNESSES[name].strike(guest)
        await asyncio.gather(*(want_a_pass(guest, "eth1") for guest in ill.values()))

        healthy = await exits.enter_async_context(
            bring_up(stack, SimulatedGuest(), stack.player.plan_guest(f"healthy-{number}"))
        )
        await healthy.has_condition()

        async def is_told(name: str) -> None:
            illness = ILLNESSES[name]
            found = await ill[name].has_condition(
                "GuestConfigured",
                "False",
                reason=illness.reason,
                words=illness.words,
                seconds=NOTICED_SECONDS,
            )
            assert found["status"]["guest"]["reachable"] is False, name
            assert found["status"]["addresses"], name

        await asyncio.gather(*(is_told(name) for name in ill))
        all_of_them = [*ill.values(), healthy]
        expected = {guest.name: 0.0 for guest in ill.values()} | {healthy.name: 1.0}
        assert await reachable(stack, all_of_them) == expected

        # While they are ill the healthy one's next wish is served, too.
        await want_a_pass(healthy, "eth2")
        address = (await healthy.floating_ip())["status"]["addresses"][0]
        await healthy.has_data({"cidr-global": f"{address}/32", "interface-global": "eth2"})

        for name, guest in ill.items():
            await ILLNESSES[name].heal(guest)
        await asyncio.gather(*(guest.has_condition(seconds=RECOVERED_SECONDS) for guest in ill.values()))
        assert await reachable(stack, all_of_them) == dict.fromkeys(expected, 1.0)


async def reachable(stack: Stack, guests: Iterable[ServedGuest]) -> dict[str, float]:
    """Return what the operator shows of these guests, by their names."""
    names = {guest.name for guest in guests}
    found = [one for one in await scrape(stack) if one.name == "kubefipoperator_guestcluster_status"]
    shown = {one.labels["guestclustername"]: one.value for one in found}
    return {name: value for name, value in shown.items() if name in names}


async def test_a_kubeconfig_that_is_made_again_with_another_token_works_at_the_next_pass(
    guest: ServedGuest,
) -> None:
    address = (await guest.floating_ip())["status"]["addresses"][0]
    for interface in ("eth1", "eth2"):
        await guest.stack.player.recreate_secret(guest.guest)
        await want_a_pass(guest, interface)
        await guest.has_data({"cidr-global": f"{address}/32", "interface-global": interface})
