"""Events as `kubectl describe` and people see them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

import pytest
import pytest_asyncio

from fipop.api.objects import read_metadata
from fipop.kube.client import KubeClient
from fipop.kube.config import configure_from_kubeconfig
from fipop.kube.events import EventRecorder, EventType, ObjectReference, reference_to
from fipop.kube.resources import CONFIG_MAPS, EVENTS, FLOATING_IP_RANGES
from fipop.kube.server import HttpServer
from localfleet.controlplane import ControlPlane
from localfleet.waiting import eventually

pytestmark = pytest.mark.xdist_group("management")


@pytest_asyncio.fixture
async def kube(management: ControlPlane) -> AsyncIterator[KubeClient]:
    async with KubeClient(HttpServer(await configure_from_kubeconfig(management.admin_kubeconfig))) as client:
        await client.version()
        yield client


def build_recorder(kube: KubeClient, *, instance: str = "fipop") -> EventRecorder:
    return EventRecorder(kube, now=lambda: datetime.now(UTC), instance=instance)


@asynccontextmanager
async def running(recorder: EventRecorder) -> AsyncIterator[EventRecorder]:
    task = asyncio.create_task(recorder.run())
    try:
        yield recorder
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def events_about(kube: KubeClient, namespace: str, name: str) -> list[dict]:
    listing = await kube.list(EVENTS, namespace=namespace, field_selector=f"involvedObject.name={name}")
    return list(listing.items)


async def written(kube: KubeClient, namespace: str, name: str, count: int) -> None:
    async def are_written() -> bool:
        return len(await events_about(kube, namespace, name)) == count

    await eventually(are_written, seconds=60, what=f"{count} events about {name}")


async def test_an_event_shows_in_kubectl_describe(kube, management, namespace):
    made = await kube.create(CONFIG_MAPS, {"metadata": {"name": "one", "namespace": namespace}})
    async with running(build_recorder(kube)) as recorder:
        recorder.record(
            reference_to(CONFIG_MAPS, read_metadata(made)),
            EventType.WARNING,
            "BadValue",
            'metricsPort "x" is no port',
        )
        await written(kube, namespace, "one", 1)
    told = await management.kubectl("describe", "configmap", "one", "-n", namespace)
    assert "Warning" in told
    assert "BadValue" in told
    assert 'metricsPort "x" is no port' in told
    assert "fipop" in told


async def test_an_event_about_a_cluster_scoped_object_is_accepted(kube, namespace):
    about = ObjectReference(
        api_version=FLOATING_IP_RANGES.api_version,
        kind="FloatingIPRange",
        name=f"range-{namespace}",
        uid="u-1",
    )
    async with running(build_recorder(kube)) as recorder:
        recorder.record(about, EventType.NORMAL, "Ready", "62 addresses")
        await written(kube, "default", f"range-{namespace}", 1)
