"""An installation to look at: two guests, ranges, an operator at work under the chart's rights."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest_asyncio

from localfleet.controlplane import ControlPlane
from localfleet.stack import Stack, build_range
from tests.api.borrowing import Installs, borrow
from tests.api.cli.commands import Commands
from tests.api.served_guest import ServedGuest, bring_up


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the commands look at."""

    stack: Stack
    guest: ServedGuest
    address: str
    commands: Commands


@pytest_asyncio.fixture(scope="module")
async def seen(installs: Installs, guest: ControlPlane) -> AsyncIterator[Seen]:
    """A guest with its floating IP and both releases. The files of this folder are of the group "installs"."""
    pool = build_range("vlan", "10.90.0.0/24", harvester="harvester-cluster1", network="vlan10")
    async with borrow(installs.stack, pool) as stack:
        plan = stack.player.plan_guest("demo", labels={"kube-vip": "true"})
        async with bring_up(stack, guest, plan) as served:
            found = await served.has_condition(seconds=120.0)
            yield Seen(
                stack=stack,
                guest=served,
                address=found["spec"]["ipaddress"],
                commands=Commands(kubeconfig=stack.plane.admin_kubeconfig),
            )
