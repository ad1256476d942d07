"""Leadership on a real Lease: processes of their own take over from each other."""

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from fipop.control.leadership import Leadership, LeaseTimes, boottime
from fipop.kube.access import connection_from_kubeconfig
from fipop.kube.client import KubeClient
from fipop.kube.lease import LeaseClient
from localfleet.controlplane import ControlPlane

CANDIDATE = """
import asyncio, contextlib, signal, sys, time
from random import Random
from fipop.control.leadership import Leadership, LeaseTimes, boottime
from fipop.kube.access import connection_from_kubeconfig
from fipop.kube.client import KubeClient
from fipop.kube.lease import LeaseClient

async def main(kubeconfig, namespace, identity):
    async with KubeClient(connection_from_kubeconfig(kubeconfig)) as client:
        times = LeaseTimes()
        lease = LeaseClient(client, namespace=namespace, name="candidates", identity=identity,
                            duration_seconds=times.duration_seconds, monotonic=boottime)
        leadership = Leadership(lease, random=Random(identity), times=times)

        async def work():
            try:
                while True:
                    # Only what may be written to a guest counts: the look right before it.
                    if leadership.still_leading_for(1):
                        print("writes", time.time(), flush=True)
                    await asyncio.sleep(0.05)
            finally:
                print("stopped", time.time(), flush=True)

        task = asyncio.create_task(leadership.run(work))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task

asyncio.run(main(*sys.argv[1:]))
"""


class Candidate:
    """A process that stands for leader and tells what it does."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.writes: list[float] = []
        self.stops: list[float] = []
        self._news = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            word, moment = line.split()
            (self.writes if word == b"writes" else self.stops).append(float(moment))
            self._news.set()

    async def wait_writing(self, *, since: float, seconds: float) -> float:
        """Wait until it writes; the time of its first write after `since`."""
        async with asyncio.timeout(seconds):
            while not self.writes or self.writes[-1] <= since:
                self._news.clear()
                await self._news.wait()
        return next(moment for moment in self.writes if moment > since)

    async def wait_stopped(self, *, seconds: float) -> None:
        """Wait until its work was stopped."""
        async with asyncio.timeout(seconds):
            while not self.stops:
                self._news.clear()
                await self._news.wait()

    def send(self, number: signal.Signals) -> float:
        """Send a signal; the time just before."""
        moment = time.time()
        self.process.send_signal(number)
        return moment

    async def wait_ended(self) -> None:
        await self.process.wait()
        await self._reading


@asynccontextmanager
async def candidate(plane: ControlPlane, namespace: str, identity: str) -> AsyncIterator[Candidate]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        CANDIDATE,
        str(plane.admin_kubeconfig),
        namespace,
        identity,
        stdout=asyncio.subprocess.PIPE,
    )
    started = Candidate(process)
    try:
        yield started
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await started.wait_ended()


@asynccontextmanager
async def two(plane: ControlPlane, namespace: str) -> AsyncIterator[tuple[Candidate, Candidate]]:
    """The first leads, the second stands by."""
    async with candidate(plane, namespace, "first") as first:
        await first.wait_writing(since=0, seconds=30)
        async with candidate(plane, namespace, "second") as second:
            # It has looked at the lease at least once when its holder was renewed twice.
            lease = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/candidates"
            renewed = {(await plane.client.get(lease))["spec"]["renewTime"]}
            async with asyncio.timeout(30):
                while len(renewed) < 3:
                    await asyncio.sleep(0.5)
                    renewed.add((await plane.client.get(lease))["spec"]["renewTime"])
            assert second.writes == []
            yield first, second


async def test_after_a_clean_exit_the_other_writes_within_two_seconds(
    management: ControlPlane, namespace: str
) -> None:
    async with two(management, namespace) as (first, second):
        left_at = first.send(signal.SIGTERM)
        took_over_at = await second.wait_writing(since=left_at, seconds=10)
        await first.wait_ended()

        assert took_over_at - left_at < 2
        assert first.writes[-1] <= first.stops[0] <= took_over_at


async def test_after_a_kill_the_other_writes_within_twenty_seconds(
    management: ControlPlane, namespace: str
) -> None:
    async with two(management, namespace) as (first, second):
        killed_at = first.send(signal.SIGKILL)
        took_over_at = await second.wait_writing(since=killed_at, seconds=30)

        assert took_over_at - killed_at < 20


async def test_a_leader_that_was_stopped_past_its_lease_writes_nothing_when_it_goes_on(
    management: ControlPlane, namespace: str
) -> None:
    async with two(management, namespace) as (first, second):
        stopped_at = first.send(signal.SIGSTOP)
        took_over_at = await second.wait_writing(since=stopped_at, seconds=30)
        first.send(signal.SIGCONT)
        await first.wait_stopped(seconds=10)
        await second.wait_writing(since=time.time() + 1, seconds=10)

        assert first.writes[-1] < took_over_at
        lease = await management.client.get(
            f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/candidates"
        )
        assert lease["spec"]["holderIdentity"] == "second"


async def test_a_leader_without_its_api_server_stops_and_leads_again_after_its_return(
    fresh_management: ControlPlane,
) -> None:
    plane, times = fresh_management, LeaseTimes(duration_seconds=6, renew_deadline_seconds=4, renew_seconds=1)
    async with KubeClient(connection_from_kubeconfig(plane.admin_kubeconfig)) as client:
        lease = LeaseClient(
            client, namespace="default", name="lonely", identity="me", duration_seconds=6, monotonic=boottime
        )
        leadership = Leadership(lease, random=Random(1), times=times)
        working: list[bool] = []
        news = asyncio.Event()

        def tell(state: bool) -> None:
            working.append(state)
            news.set()

        async def work() -> None:
            tell(True)
            try:
                await asyncio.Event().wait()
            finally:
                tell(False)

        async def wait_for(*states: bool) -> None:
            async with asyncio.timeout(30):
                while tuple(working) != states:
                    news.clear()
                    await news.wait()

        task = asyncio.create_task(leadership.run(work))
        await wait_for(True)
        await plane.stop_api()
        await wait_for(True, False)
        assert not leadership.is_leader
        await plane.start_api()
        await wait_for(True, False, True)
        assert leadership.is_leader
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        lease_object = await plane.client.get("/apis/coordination.k8s.io/v1/namespaces/default/leases/lonely")
        assert lease_object["spec"]["holderIdentity"] == ""
