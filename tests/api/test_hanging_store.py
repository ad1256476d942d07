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
async def test_no_replica_is_ready_or_restarted_while_etcd_is_away(
    fleet: LocalFleet, is_paused: bool
) -> None:
    async with open_stack(fleet, f"store-{'paused' if is_paused else 'stopped'}") as stack:
        replicas = [await stack.start_operator() for _ in range(2)]
        etcd = stack.plane.etcd
        began = time.monotonic()
        if is_paused:
            etcd.process.pause()
        else:
            await etcd.stop()
        ready_at = [0.0, 0.0]
        while (passed := time.monotonic() - began) < OUTAGE_SECONDS:
            for number, replica in enumerate(replicas):
                if await replica.is_ready():
                    ready_at[number] = passed
                assert await replica.is_live(), f"replica {number} is to be restarted after {passed:.0f} s"
            await asyncio.sleep(1)
        assert max(ready_at) < NOT_READY_SECONDS

        if is_paused:
            etcd.process.resume()
        else:
            await etcd.start()
        for replica in replicas:
            await eventually(replica.is_ready, seconds=BACK_SECONDS, what="a replica to be ready")
