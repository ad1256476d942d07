"""The thin whole: the packaged chart's RBAC, the real program, a guest that appears and gets its address."""

from collections.abc import AsyncIterator

import pytest_asyncio

from localfleet.controlplane import ControlPlane
from localfleet.fleet import LocalFleet
from localfleet.proxy import upstream_of
from localfleet.stack import RANGES, Stack, build_range, condition, floating_ips, open_stack
from localfleet.waiting import eventually


@pytest_asyncio.fixture(scope="module")
async def stack(fleet: LocalFleet) -> AsyncIterator[Stack]:
    async with open_stack(fleet, "basics") as stack:
        await stack.start_operator()
        await stack.client.create(
            RANGES,
            build_range("guest-vlan", "10.135.10.192/26", harvester="harvester-cluster1", network="vlan10"),
        )
        yield stack


async def test_a_new_guest_gets_an_address_in_its_config_map(
    stack: Stack, second_guest: ControlPlane
) -> None:
    guest = await stack.player.create_guest(stack.player.plan_guest("first"), upstream_of(second_guest))

    async def is_ready() -> bool:
        found = await stack.client.get(f"{floating_ips(guest.cluster_id)}/first-kubevip")
        return condition(found, "Ready").get("status") == "True"

    await eventually(is_ready, seconds=15)
    config_map = await second_guest.client.get("/api/v1/namespaces/kube-system/configmaps/kubevip")
    assert config_map["data"] == {"cidr-global": "10.135.10.193/32"}
    assert await stack.held() == {"default.10.135.10.193": f"{guest.cluster_id}/first-kubevip"}
