"""How often a new guest cluster is handled from its Cluster to its installed releases: counted over one life."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fipop.runtime.queues import FLOATING_IP, Key
from fipop.runtime.workqueue import WorkQueue
from tests.harness.fleet import EVERY_GUEST, FLOATING_IPS, Fleet

FIRST, NEW = "c-m-first", "c-m-new"
BOTH = {"kube-vip": "deployed", "kube-vip-cloud-provider": "deployed"}
TRIPS, SESSIONS = 5, 3


async def test_a_new_cluster_has_its_releases_after_five_trips_through_queues_and_three_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A trip is a run over a key of the guest cluster; one over its floating IP counts if it writes something."""
    fleet, trips = Fleet(), list[Key]()
    work = WorkQueue.run

    def find_version(key: Key) -> str:
        found = fleet.memory.objects.get((FLOATING_IPS, key.namespace, key.name)) or {"metadata": {}}
        return str(found["metadata"].get("resourceVersion"))

    async def run(queue: WorkQueue[Key], handle: Callable[[Key], Any], *, concurrency: int) -> None:
        async def count(key: Key) -> Any:
            before, is_object = find_version(key), key.kind == FLOATING_IP
            if not is_object:
                trips.append(key)
            answer = await handle(key)
            if is_object and find_version(key) != before:
                trips.append(key)
            return answer

        await work(queue, count, concurrency=concurrency)

    monkeypatch.setattr(WorkQueue, "run", run)
    fleet.add_range(clusterSelector=EVERY_GUEST)
    fleet.add_guest(FIRST, is_served=True)
    fleet.opt_in(FIRST)
    await fleet.start(seconds=400, leader_election=False)
    assert fleet.guests[FIRST].releases == BOTH
    trips.clear()
    fleet.add_guest(NEW, is_served=True)
    fleet.opt_in(NEW)
    async with asyncio.timeout(60):
        while fleet.guests[NEW].releases != BOTH:
            await fleet.pass_time(0.1)
    own = [key for key in trips if NEW in (key.namespace, key.name)]
    assert len(own) <= TRIPS, list(map(str, own))
    assert fleet.sessions[NEW] <= SESSIONS
