"""Opting out by a running operator, on a real API server: what it records there decides what is removed."""

from pathlib import Path
from typing import Any

import pytest

from localfleet.fleet import LocalFleet
from localfleet.simulated import SimulatedGuest
from localfleet.stack import condition
from localfleet.waiting import eventually
from tests.harness.rollout_fleet import Fleet, Member, open_fleet

SECONDS = 90.0
CLUSTERS = "/apis/provisioning.cattle.io/v1/namespaces/fleet-default/clusters"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(int(10 * SECONDS))]


async def label(everybody: Fleet, member: Member, value: str | None) -> None:
    labels = {"metadata": {"labels": {"kube-vip": value}}}
    await everybody.stack.client.patch(f"{CLUSTERS}/{member.guest.name}", labels)


async def floating_ip(everybody: Fleet, member: Member) -> dict[str, Any]:
    found: dict[str, Any] = await everybody.stack.floating_ip(
        member.guest.cluster_id, f"{member.guest.name}-kubevip"
    )
    return found


async def is_recorded(everybody: Fleet, member: Member, wanted: str) -> None:
    async def is_so() -> bool:
        guest = (await floating_ip(everybody, member))["status"]["guest"]
        return bool(guest.get("removal") == wanted)

    await eventually(is_so, seconds=SECONDS, what=f"the record {wanted}")


async def test_only_a_guest_that_is_opted_out_while_the_option_is_on_loses_its_releases_whoever_leads(
    fleet: LocalFleet, tmp_path: Path
) -> None:
    async with open_fleet(fleet, "opting-out", tmp_path, seconds=SECONDS) as everybody:
        stack, helm = everybody.stack, f"--helm={everybody.helm}"
        await stack.start_operator(helm)
        await everybody.come_up([SimulatedGuest(), SimulatedGuest()])
        before, while_on = everybody.members.values()
        for member in (before, while_on):
            await label(everybody, member, "true")
        await stack.set_options(kubevipGuestInstall="clusterlabel")
        await label(everybody, before, None)
        await stack.set_options(kubevipGuestRemove="true")
        await is_recorded(everybody, while_on, "OnOptOut")

        await stack.operators[-1].process.stop(grace_seconds=0)
        await label(everybody, while_on, None)
        await stack.start_operator(helm)
        await is_recorded(everybody, while_on, "Done")

        assert await while_on.records() == []
        assert condition(await floating_ip(everybody, while_on), "Ready")["status"] == "True"
        assert await before.records()
        assert "removal" not in (await floating_ip(everybody, before))["status"]["guest"]

        async def is_reported() -> bool:
            events = await stack.client.items(f"/api/v1/namespaces/{while_on.guest.cluster_id}/events")
            return {"RemovalPending", "ReleasesRemoved"} <= {each["reason"] for each in events}

        await eventually(is_reported, seconds=30, what="the events of the removal")
