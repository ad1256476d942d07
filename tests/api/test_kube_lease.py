"""A Lease on a real API server: whoever races whom, one wins."""

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest
import pytest_asyncio

from fipop.kube.client import KubeClient
from fipop.kube.config import configure_from_kubeconfig
from fipop.kube.resources import LEASES
from fipop.kube.server import HttpServer
from fipop.runtime.leader_election import LeaderElector
from localfleet.controlplane import ControlPlane

pytestmark = pytest.mark.xdist_group("management")
CANDIDATES = 8
TURN_SECONDS = 0.2


@pytest_asyncio.fixture
async def kube(management: ControlPlane) -> AsyncIterator[KubeClient]:
    async with KubeClient(HttpServer(await configure_from_kubeconfig(management.admin_kubeconfig))) as client:
        await client.version()
        yield client


async def test_of_many_candidates_each_leads_once_and_never_two_at_once(
    kube: KubeClient, namespace: str
) -> None:
    led: list[str] = []
    working: set[str] = set()

    async def lead(identity: str) -> None:
        elector = LeaderElector(
            kube, namespace=namespace, name="leader", identity=identity, random=Random(identity)
        )

        async def work() -> None:
            assert not working, f"{working} and {identity} lead"
            working.add(identity)
            await asyncio.sleep(TURN_SECONDS)
            led.append(identity)
            working.discard(identity)

        await elector.lead(work)

    names = [f"candidate-{number}" for number in range(CANDIDATES)]
    async with asyncio.TaskGroup() as group:
        for each in names:
            group.create_task(lead(each))
    assert sorted(led) == sorted(names)
    lease = await kube.get(LEASES, "leader", namespace=namespace)
    assert lease is not None
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("", CANDIDATES - 1)
