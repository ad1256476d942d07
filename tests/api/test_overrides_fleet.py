"""Overrides by real helm in real guest clusters: who is touched, where a bad one stops, how a new one starts."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from localfleet.client import ApiClient
from localfleet.fleet import LocalFleet
from localfleet.waiting import eventually
from tests.harness.rollout_fleet import Fleet, open_fleet

SECONDS = 180.0
"""Until a rollout over three guest clusters is over, on a busy machine."""
SHORT_DEADLINE_SECONDS, LONG_DEADLINE_SECONDS = 12, 600
DAEMON_SETS = "/apis/apps/v1/namespaces/kube-system/daemonsets"
RELEASES = ("kube-vip", "kube-vip-cloud-provider")
RACKS = {"west-1": "west", "west-2": "west", "east-1": "east"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def build_overrides(**values: dict[str, Any]) -> str:
    """Return an entry for each rack."""
    return json.dumps(
        [
            {"name": rack, "clusterSelector": {"matchLabels": {"rack": rack}}, "values": each}
            for rack, each in values.items()
        ]
    )


def nic(name: str) -> dict[str, Any]:
    return {"env": {"vip_interface": name}}


@pytest_asyncio.fixture(scope="module")
async def racks(fleet: LocalFleet, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    """Two guest clusters in rack west and one in rack east, each with its interface."""
    folder = tmp_path_factory.mktemp("overrides-fleet")
    async with open_fleet(
        fleet, "overrides-fleet", folder, seconds=SECONDS, deadline_seconds=LONG_DEADLINE_SECONDS
    ) as everybody:
        await everybody.stack.start_operator(f"--helm={everybody.helm}")
        await everybody.stack.set_options(
            kubevipChartValuesOverrides=build_overrides(west=nic("eth1"), east=nic("eth2")),
            kubevipRolloutCanaries="1",
            kubevipRolloutMaxConcurrency="100%",
        )
        planes = [await fleet.guest(name, nodes=1) for name in RACKS]
        for plane, rack in zip(planes, RACKS.values(), strict=True):
            await everybody.bring_up(plane.name, plane, rack=rack)
        await eventually(lambda: are_installed(everybody), seconds=SECONDS, what="both releases everywhere")
        await everybody.until("Completed")
        yield everybody
        for plane in planes:
            await fleet.remove(plane)


async def are_installed(everybody: Fleet) -> bool:
    return all([await each.records(release) for each in everybody.members.values() for release in RELEASES])


async def interface_in(api: ApiClient | None) -> str:
    """Return the interface of kube-vip as its DaemonSet has it."""
    assert api is not None
    [found] = [each for each in await api.items(DAEMON_SETS) if "kube-vip" in each["metadata"]["name"]]
    env = found["spec"]["template"]["spec"]["containers"][0]["env"]
    return next(str(each["value"]) for each in env if each["name"] == "vip_interface")


async def interfaces(everybody: Fleet) -> dict[str, str]:
    return {each.guest.name: await interface_in(each.api) for each in everybody.members.values()}


async def revisions(everybody: Fleet) -> dict[str, int]:
    """Return how many revisions there are of both releases."""
    return {
        each.guest.name: sum([int((await each.records(release))[-1]["version"]) for release in RELEASES])
        for each in everybody.members.values()
    }


def written(everybody: Fleet) -> set[str]:
    """Return the guest clusters in which anything was written, or helm asked anything."""
    return {
        each.guest.name
        for guest_id, each in everybody.members.items()
        for one in everybody.stack.proxy.requests_of(guest_id)
        if one.is_write or one.user_agent.startswith("Helm")
    }


async def begin(everybody: Fleet, **values: dict[str, Any]) -> str:
    """Set overrides, and return the name of the target once its rollout has begun."""
    before = (await everybody.state())["target"]
    everybody.stack.proxy.forget_requests()
    await everybody.stack.set_options(kubevipChartValuesOverrides=build_overrides(**values))

    async def has_begun() -> str | None:
        target: str = (await everybody.state())["target"]
        return target if target != before else None

    return await eventually(has_begun, seconds=SECONDS, what="another target")


async def test_a_changed_override_changes_its_group_and_touches_no_other(racks: Fleet) -> None:
    assert await interfaces(racks) == {"west-1": "eth1", "west-2": "eth1", "east-1": "eth2"}
    before = await revisions(racks)
    target = await begin(racks, west=nic("eth7"), east=nic("eth2"))
    await racks.until("Completed", target)
    assert await interfaces(racks) == {"west-1": "eth7", "west-2": "eth7", "east-1": "eth2"}
    assert await revisions(racks) == {name: number + (name != "east-1") for name, number in before.items()}
    assert written(racks) == {"west-1", "west-2"}


async def test_a_bad_override_stops_at_its_canary_and_the_reason_names_it(racks: Fleet) -> None:
    before = await interfaces(racks), await revisions(racks)
    await racks.stack.set_options(kubevipRolloutProgressDeadline=str(SHORT_DEADLINE_SECONDS))
    bad = {**nic("eth8"), "nodeSelector": {"no-such-node": "true"}}
    target = await begin(racks, west=bad, east=nic("eth2"))
    head = await racks.until("Stopped", target)
    assert "no guest cluster of override kube-vip/west succeeded" in head["reason"]

    async def is_back() -> bool:
        return await interfaces(racks) == before[0]

    await eventually(is_back, seconds=SECONDS, what="the canary to be rolled back")
    [canary] = written(racks)
    after = await revisions(racks)
    assert {name for name, number in after.items() if number != before[1][name]} == {canary}
    assert canary in ("west-1", "west-2")
    await racks.stack.set_options(kubevipRolloutProgressDeadline=str(LONG_DEADLINE_SECONDS))


async def test_a_new_guest_cluster_starts_with_the_values_of_its_group(
    racks: Fleet, fleet: LocalFleet
) -> None:
    target = await begin(racks, west=nic("eth7"), east=nic("eth3"))
    await racks.until("Completed", target)
    plane = await fleet.guest("east-2", nodes=1)
    member = await racks.bring_up("east-2", plane, rack="east")

    async def is_installed() -> bool:
        return bool(await member.digest())

    await eventually(is_installed, seconds=SECONDS, what="kube-vip in the new guest cluster")
    assert await interface_in(member.api) == "eth3"
    assert [each["version"] for each in await member.records()] == ["1"]
    await fleet.remove(plane)
