"""Wishes for what a guest carries already, tools that revert, and limits: all of it settles after a few writes."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest
import pytest_asyncio

from localfleet.controlplane import ControlPlane
from localfleet.rancher_plan import GuestPlan
from localfleet.stack import RESERVATIONS, Stack, build_range
from localfleet.waiting import eventually
from tests.api.borrowing import borrow
from tests.api.served_guest import ServedGuest, bring_up

pytest_plugins = ("tests.api.shared_stacks",)
pytestmark = pytest.mark.xdist_group("quick-stack")

SOON_SECONDS = 20.0
"""Far less than the quarantine of an hour."""


@pytest_asyncio.fixture(scope="module")
async def stack(quick_stack: Stack) -> AsyncIterator[Stack]:
    both = "10.81.0.0/24,fd00:81::/64"
    wide = build_range("wide", both, harvester="harvester-cluster1", network="vlan10", quarantineSeconds=3600)
    single = build_range("single", "10.82.0.0/24,fd00:82::/64", maxPerGuest=1)
    async with borrow(quick_stack, wide, single) as stack:
        yield stack


def plan_guest(stack: Stack, number: int) -> GuestPlan:
    """A guest for which fipop makes no floating IP: the test asks for its own."""
    plan = stack.player.plan_guest(f"carries-{number}")
    return replace(plan, annotations={"kubefip.k8s.binbash.org/floating-ip": "false"})


@pytest_asyncio.fixture
async def guest(
    stack: Stack, second_guest: ControlPlane, numbers: Iterator[int]
) -> AsyncIterator[ServedGuest]:
    async with bring_up(stack, second_guest, plan_guest(stack, next(numbers))) as guest:
        yield guest


async def versions(guest: ServedGuest, name: str) -> dict[str, str]:
    """The versions of a floating IP and of the guest's reservations: a write changes one of them."""
    reservations = await guest.stack.client.items(RESERVATIONS)
    own = [each for each in reservations if each["spec"]["owner"]["namespace"] == guest.id]
    items = [await guest.floating_ip(name), *own]
    return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in items}


async def test_a_floating_ip_under_another_name_takes_its_guests_address_over_at_once(
    guest: ServedGuest,
) -> None:
    """As when a floating IP that fipop made moves into Git."""
    await guest.ask("made", "wide", ipaddress="10.81.0.20")
    await guest.has_condition(name="made")
    await guest.has_data({"cidr-global": "10.81.0.20/32"})
    await guest.ask("from-git", "wide", ipaddress="10.81.0.20")
    await guest.has_condition("Allocated", "False", name="from-git")
    await guest.stack.client.delete(guest.path("made"))
    await guest.has_condition("Allocated", name="from-git", seconds=SOON_SECONDS)
    assert await guest.data() == {"cidr-global": "10.81.0.20/32"}


async def test_a_tool_that_reverts_to_one_of_two_addresses_is_answered_a_few_times_and_told(
    stack: Stack, guest: ServedGuest
) -> None:
    await guest.ask("web", "wide", ipaddress="10.81.0.40", ipFamilyPolicy="PreferDualStack")
    await guest.has_condition("Allocated", name="web")
    reverts = 0

    async def is_left() -> bool:
        nonlocal reverts
        found = await guest.floating_ip("web")
        told = [each["reason"] for each in found["status"]["conditions"] if each["type"] == "Ready"]
        if found["spec"]["ipaddress"] != "10.81.0.40":
            reverts += 1
            await stack.client.patch(guest.path("web"), {"spec": {"ipaddress": "10.81.0.40"}})
        return told == ["SpecReverted"]

    await eventually(is_left, seconds=60, what="fipop to leave the floating IP to the tool")
    assert reverts <= 4
    await guest.passes(3)
    before = await versions(guest, "web")
    await guest.passes(3)
    assert await versions(guest, "web") == before


async def test_two_addresses_over_the_limit_are_refused_together_and_nothing_is_written_again(
    stack: Stack, guest: ServedGuest
) -> None:
    await guest.ask("visited", "wide", ipaddress="10.81.0.50")
    await guest.has_condition(name="visited")
    await guest.ask("both", "single", ipFamilyPolicy="RequireDualStack")
    await guest.has_condition("Allocated", "False", name="both", reason="QuotaExceeded")
    before = await versions(guest, "both")
    await guest.passes(3)
    assert await versions(guest, "both") == before
    assert not [name for name in await stack.held() if "10.82." in name or "fd00-82" in name]
