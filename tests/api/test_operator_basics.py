"""The thin whole: the packaged chart's RBAC, the real program, a guest that appears and gets its address."""

from collections.abc import Iterator

import pytest

from localfleet.controlplane import ControlPlane
from localfleet.stack import RANGES, Stack, build_range
from tests.api.served_guest import bring_up

pytestmark = pytest.mark.xdist_group("shared-stack")


async def test_a_new_guest_gets_an_address_in_its_config_map(
    stack: Stack, second_guest: ControlPlane, numbers: Iterator[int]
) -> None:
    number = next(numbers)
    net = f"10.{number // 256}.{number % 256}."
    harvester = await stack.player.create_harvester(f"harvester-{number}")
    body = build_range(
        f"guest-vlan-{number}", f"{net}192/26", harvester=harvester.display_name, network="vlan10"
    )
    await stack.client.create(RANGES, body)
    plan = stack.player.plan_guest(f"first-{number}", harvester=harvester)
    async with bring_up(stack, second_guest, plan) as guest:
        await guest.has_condition("Ready", "True", seconds=15)
        assert await guest.data() == {"cidr-global": f"{net}193/32"}
        assert (await stack.held())[f"default.{net}193"] == f"{guest.id}/{guest.name}-kubevip"
