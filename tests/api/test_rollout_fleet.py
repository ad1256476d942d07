"""Rollouts over a fleet by a running operator: real guests with real helm, and simulated ones with a stand-in for it.

A few guests and the two main stories here; `make night PART=rollouts` runs all with many guests, some of them real.
"""

import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from fipop.guests.release_plan import GRACE_SECONDS
from localfleet.fleet import LocalFleet
from localfleet.helm import PUBLISHED
from localfleet.routes import Fault
from localfleet.simulated import SimulatedGuest
from localfleet.stack import condition
from localfleet.waiting import eventually
from tests.api.served_guest import split_passes
from tests.harness.rollout_fleet import CANARIES, Fleet, Member, open_fleet

IS_WHOLE = "FIPOP_ROLLOUT_SIMULATED" in os.environ
SIMULATED = int(os.environ.get("FIPOP_ROLLOUT_SIMULATED", "7"))
REAL = int(os.environ.get("FIPOP_ROLLOUT_REAL", "1"))
SECONDS = 120.0 + 4.0 * (SIMULATED + REAL)
SHORT_DEADLINE_SECONDS = 12
WITH_REPAIR_SECONDS = SECONDS + GRACE_SECONDS
"""For a change that all guests can follow: neither a killed leader nor a slow machine may make it stop.

A leader that is killed in the middle of an upgrade leaves a record that the next one deletes once helm must be dead.
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(int(15 * SECONDS))]


@pytest_asyncio.fixture(scope="module")
async def fleet_of(fleet: LocalFleet, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    folder = tmp_path_factory.mktemp("rollout-fleet")
    async with open_fleet(
        fleet,
        "rollout-fleet",
        folder,
        seconds=WITH_REPAIR_SECONDS,
        deadline_seconds=int(WITH_REPAIR_SECONDS),
    ) as everybody:
        await everybody.stack.start_operator(f"--helm={everybody.helm}")
        planes = [await fleet.guest(f"rollout-{number}", nodes=1) for number in range(REAL)]
        simulated = [SimulatedGuest(latency_seconds=0.01) for _ in range(SIMULATED)]
        await everybody.come_up([*planes, *simulated])
        yield everybody
        for plane in planes:
            await fleet.remove(plane)


async def kill_and_start(everybody: Fleet) -> None:
    """End the leader at once, and have another."""
    await everybody.stack.operators[-1].process.stop(grace_seconds=0)
    await everybody.stack.start_operator(f"--helm={everybody.helm}")


async def test_a_change_reaches_all_also_past_killed_leaders(fleet_of: Fleet) -> None:
    before, revisions = await fleet_of.stable(), await fleet_of.revisions()
    target = await fleet_of.change("v1.0.0")
    for number in (1, 4):
        await fleet_of.reached(number, target, before)
        await kill_and_start(fleet_of)
    await fleet_of.until("Completed", target)
    after = await fleet_of.stable()
    assert after != before
    # One revision for each guest, whoever led: nothing was done twice.
    assert await fleet_of.revisions() == {name: number + 1 for name, number in revisions.items()}


async def are_known_to_be_out_of_reach(everybody: Fleet, lost: list[Member]) -> None:
    async def are_known() -> bool:
        found = [
            await everybody.stack.floating_ip(each.guest.cluster_id, f"{each.guest.name}-kubevip")
            for each in lost
        ]
        return all(condition(each, "GuestConfigured")["status"] == "False" for each in found)

    await eventually(are_known, seconds=SECONDS, what="the guests to be known to be out of reach")


async def visit_everybody(everybody: Fleet) -> None:
    """Wait until a visit of each guest has begun and ended."""
    proxy = everybody.stack.proxy
    proxy.forget_requests()

    async def are_visited() -> bool:
        return all(len(split_passes(proxy.requests_of(each))) > 1 for each in everybody.members)

    await eventually(are_visited, seconds=SECONDS, what="a visit of each guest")


whole = pytest.mark.skipif(not IS_WHOLE, reason="of make night PART=rollouts")


@pytest.mark.parametrize("harm", ["unready", pytest.param("refuse", marks=whole)])
async def test_a_bad_change_never_reaches_more_than_the_canaries(fleet_of: Fleet, harm: str) -> None:
    before, revisions = await fleet_of.stable(), await fleet_of.revisions()
    await fleet_of.stack.set_options(kubevipRolloutProgressDeadline=str(SHORT_DEADLINE_SECONDS))
    target = await fleet_of.change(f"v6.6.6-{harm}", **{harm: True})
    await fleet_of.until("Stopped", target)
    await fleet_of.failed(CANARIES)
    await fleet_of.stack.set_options(kubevipRolloutProgressDeadline=str(int(WITH_REPAIR_SECONDS)))
    await kill_and_start(fleet_of)
    await fleet_of.agree(fleet_of.digests, before)
    changed = {name for name, number in (await fleet_of.revisions()).items() if number != revisions[name]}
    assert len(changed) <= CANARIES
    # Another target begins with canaries.
    target = await fleet_of.change(f"v1.0.1-{harm}")
    await fleet_of.until("Completed", target)
    assert await fleet_of.stable() != before


@whole
async def test_guests_out_of_reach_follow_when_they_are_back(fleet_of: Fleet) -> None:
    before = await fleet_of.stable()
    lost = [each for each in fleet_of.members.values() if each.api is None][:: max(SIMULATED // 20, 5)]
    routes = [fleet_of.stack.proxy.guests[each.guest.cluster_id] for each in lost]
    for route in routes:
        route.fault = Fault(refuse=True)
    await are_known_to_be_out_of_reach(fleet_of, lost)
    target = await fleet_of.change("v1.1.0")
    await fleet_of.until("Completed", target)
    found = await fleet_of.digests()
    assert {found[each.guest.cluster_id] for each in lost} == {before}
    for route in routes:
        route.fault = None
    assert await fleet_of.stable() != before


@whole
async def test_a_source_of_charts_that_goes_away_in_the_middle_and_a_pause(fleet_of: Fleet) -> None:
    before = await fleet_of.stable()
    target = await fleet_of.change("v1.2.0")
    await fleet_of.reached(1, target, before)
    await fleet_of.stack.set_options(kubevipRolloutPaused="true")
    await visit_everybody(fleet_of)  # what was under way when the pause began has ended
    found = await fleet_of.digests()
    await visit_everybody(fleet_of)
    assert await fleet_of.digests() == found
    await fleet_of.stack.set_options(kubevipRolloutPaused="false")
    for chart in PUBLISHED:
        fleet_of.charts.retract(chart.name, chart.version)
    await fleet_of.until("Completed", target)
    assert await fleet_of.stable() != before
