"""Floating IPs from the manifest to the guest cluster; tests/operator and tests/golden state what each one gets."""

from pathlib import Path

import pytest

from localfleet.simulated import SimulatedGuest
from localfleet.stack import (
    Stack,
    condition,
    floating_ips,
)
from localfleet.waiting import eventually
from tests.api.tenant import Tenant

pytestmark = pytest.mark.xdist_group("default")

EXAMPLES = Path(__file__).parents[2] / "examples"


async def test_the_manifests_of_the_runbooks_do_what_they_say_each_before_its_guest_exists(
    stack: Stack,
) -> None:
    kubectl = stack.plane.kubectl
    await stack.plane.create_namespace("c-m-ngd5hs2r")
    await kubectl("create", "-f", str(EXAMPLES / "floatingip-static.yaml"))
    await kubectl("create", "-f", str(EXAMPLES / "range.yaml"))
    runbook = Tenant(stack=stack, number=0, namespace="c-m-ngd5hs2r")
    assert await runbook.served("demo-vip") == ["10.135.10.200"]
    found = await runbook.read("demo-vip")
    assert condition(found, "Ready")["reason"] == "GuestNotFound"

    inside = SimulatedGuest()
    guest = await stack.player.create_guest(
        stack.player.plan_guest("demo", cluster_id="c-m-ngd5hs2r"), inside
    )

    async def is_ready() -> bool:
        return condition(await runbook.read("demo-vip"), "Ready").get("status") == "True"

    await eventually(is_ready, seconds=15)
    config_map = inside.get("configmaps", "kube-system", "kubevip") or {}
    assert config_map["data"]["cidr-global"] == "10.135.10.200/32"
    assert len(await stack.client.items(floating_ips("c-m-ngd5hs2r"))) == 1, "it has one: it gets no second"

    await kubectl("delete", "-f", str(EXAMPLES / "floatingip-static.yaml"))
    await kubectl("create", "-f", str(EXAMPLES / "floatingip-dynamic.yaml"))
    # The same floating IP of the same cluster and range: what it had comes back to it.
    assert await runbook.served("demo-vip") == ["10.135.10.200"]
    await stack.player.delete_guest(guest)
