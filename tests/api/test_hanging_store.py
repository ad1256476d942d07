"""The etcd of the management cluster hangs or is gone for minutes, while its kube-apiserver stays up."""

import asyncio
import time

import pytest

from localfleet.fleet import LocalFleet
from localfleet.stack import open_stack
from localfleet.waiting import eventually

NOT_READY_SECONDS = 60.0
OUTAGE_SECONDS = 240.0
"""Longer than any watch may be silent: a kubelet would have restarted every replica."""
BACK_SECONDS = 90.0


@pytest.mark.slow
@pytest.mark.timeout(2 * (OUTAGE_SECONDS + BACK_SECONDS))
@pytest.mark.parametrize("is_paused", [pytest.param(False, id="stopped"), pytest.param(True, id="paused")])
async def test_while_etcd_is_away_no_replica_is_ready_the_leader_ends_once_and_no_standby_ends(
    fleet: LocalFleet, is_paused: bool
) -> None:
    async with open_stack(fleet, f"store-{'paused' if is_paused else 'stopped'}") as stack:
        leader, standby = replicas = [await stack.start_operator() for _ in range(2)]
        etcd = stack.plane.etcd
        began = time.monotonic()
        if is_paused:
            etcd.process.pause()
        else:
            await etcd.stop()
        ready_at, pids = [0.0, 0.0], {leader.process.pid}
        while (passed := time.monotonic() - began) < OUTAGE_SECONDS:
            for number, replica in enumerate(replicas):
                if await replica.is_ready():
                    ready_at[number] = passed
            assert await standby.is_live(), f"the standby is to be restarted after {passed:.0f} s"
            await asyncio.sleep(1)
            pids |= {leader.process.pid} if leader.process.is_running else set()
        assert (max(ready_at) < NOT_READY_SECONDS, len(pids)) == (True, 2)
        assert await leader.is_live()

        if is_paused:
            etcd.process.resume()
        else:
            await etcd.start()
        for replica in replicas:
            await eventually(replica.is_ready, seconds=BACK_SECONDS, what="a replica to be ready")
