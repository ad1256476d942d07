"""Events as `kubectl describe` and people see them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import pytest_asyncio

from fipop.api.parsing import parse_meta
from fipop.kube.client import KubeClient, connection_from_kubeconfig
from fipop.kube.events import EventRecorder, EventType, ObjectReference, reference_to
from fipop.kube.resources import CONFIG_MAPS, EVENTS, FLOATING_IP_RANGES
from localfleet.controlplane import ControlPlane
from localfleet.waiting import eventually

pytestmark = pytest.mark.xdist_group("management")


@pytest_asyncio.fixture
async def kube(management: ControlPlane) -> AsyncIterator[KubeClient]:
    async with KubeClient(connection_from_kubeconfig(management.admin_kubeconfig)) as client:
        await client.version()
        yield client


@asynccontextmanager
async def running(recorder: EventRecorder) -> AsyncIterator[EventRecorder]:
    task = asyncio.create_task(recorder.run())
    try:
        yield recorder
        await asyncio.wait_for(recorder.flush(), 60)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def events_about(kube: KubeClient, namespace: str, name: str) -> list[dict]:
    listing = await kube.list(EVENTS, namespace=namespace, field_selector=f"involvedObject.name={name}")
    return list(listing.items)


async def test_an_event_shows_in_kubectl_describe(kube, management, namespace):
    made = await kube.create(CONFIG_MAPS, {"metadata": {"name": "one", "namespace": namespace}})
    async with running(EventRecorder(kube)) as recorder:
        recorder.record(
            reference_to(CONFIG_MAPS, parse_meta(made)),
            EventType.WARNING,
            "BadValue",
            'metricsPort "x" is no port',
        )
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
    async with running(EventRecorder(kube)) as recorder:
        recorder.record(about, EventType.NORMAL, "Ready", "62 addresses")
    assert len(await events_about(kube, "default", f"range-{namespace}")) == 1


async def test_what_is_told_again_is_counted_and_a_restart_after_some_time_counts_on(kube, namespace):
    about = ObjectReference(api_version="v1", kind="ConfigMap", name="one", namespace=namespace, uid="u-2")
    async with running(EventRecorder(kube)) as recorder:
        for _ in range(5):
            recorder.record(about, EventType.WARNING, "Full", "the range is full")
            await recorder.flush()
    [event] = await events_about(kube, namespace, "one")
    assert event["count"] == 1
    async with running(EventRecorder(kube, repeat_seconds=0.0)) as recorder:
        recorder.record(about, EventType.WARNING, "Full", "the range is full")
        recorder.record(about, EventType.WARNING, "Full", "another range is full")
    events = await events_about(kube, namespace, "one")
    assert sorted((event["message"], event["count"]) for event in events) == [
        ("another range is full", 1),
        ("the range is full", 2),
    ]


async def test_what_is_told_again_while_it_is_written_is_written_once(
    kube: KubeClient, namespace: str
) -> None:
    about = ObjectReference(
        api_version="v1", kind="ConfigMap", name="one", namespace=namespace, uid=f"u-{namespace}-once"
    )
    async with running(EventRecorder(kube)) as recorder:
        recorder.record(about, EventType.WARNING, "Full", "the range is full")
        # Turns of the loop, in which the request begins: its answer takes a thousand of them.
        for _ in range(5):
            await asyncio.sleep(0)
        recorder.record(about, EventType.WARNING, "Full", "the range is full")
        await recorder.flush()
    (found,) = await events_about(kube, namespace, "one")
    assert found["count"] == 1


async def test_a_restart_right_after_an_event_was_told_writes_nothing(kube, namespace):
    about = ObjectReference(api_version="v1", kind="ConfigMap", name="one", namespace=namespace, uid="u-2")
    versions = set()
    for _ in range(2):
        async with running(EventRecorder(kube)) as recorder:
            recorder.record(about, EventType.WARNING, "Full", "the range is full")
        [event] = await events_about(kube, namespace, "one")
        versions.add(event["metadata"]["resourceVersion"])
    assert len(versions) == 1


async def test_the_count_of_a_lasting_trouble_is_written_from_time_to_time(kube, namespace):
    now = [0.0]
    about = ObjectReference(api_version="v1", kind="ConfigMap", name="one", namespace=namespace)
    recorder = EventRecorder(kube, repeat_seconds=600, monotonic=lambda: now[0])
    async with running(recorder):
        for minute in range(11):
            now[0] = minute * 60.0
            recorder.record(about, EventType.WARNING, "Full", "full")
            await recorder.flush()
    [event] = await events_about(kube, namespace, "one")
    assert event["count"] == 11


async def test_a_long_message_with_control_characters_is_cut_and_cleaned(kube, namespace):
    about = ObjectReference(api_version="v1", kind="ConfigMap", name="one", namespace=namespace)
    async with running(EventRecorder(kube)) as recorder:
        recorder.record(about, EventType.NORMAL, "Long", "a\nb\x1b[31m" + "ü" * 2000)
    [event] = await events_about(kube, namespace, "one")
    assert event["message"].startswith("a b [31mü")
    assert 1000 < len(event["message"].encode()) <= 1024


async def test_events_that_cannot_be_written_trouble_nobody(kube):
    about = ObjectReference(api_version="v1", kind="ConfigMap", name="one", namespace="nowhere")
    recorder = EventRecorder(kube)
    async with running(recorder):
        recorder.record(about, EventType.NORMAL, "Lost", "nobody will read this")
        await recorder.flush()
        assert recorder.dropped == 1
        recorder.record(about, EventType.NORMAL, "Lost", "nobody will read this")
    assert recorder.dropped == 2


async def test_a_flood_is_paced_and_what_does_not_fit_is_dropped(kube, namespace):
    about = ObjectReference(api_version="v1", kind="ConfigMap", name="one", namespace=namespace)
    recorder = EventRecorder(kube, queue_size=10, burst=10, per_second=50)
    for number in range(40):
        recorder.record(about, EventType.WARNING, "Flood", f"number {number}")
    assert recorder.dropped == 30
    async with running(recorder):
        pass
    assert len(await events_about(kube, namespace, "one")) == 10


async def test_what_is_well_leaves_room_for_warnings_and_waits_behind_them(kube, namespace):
    about = ObjectReference(api_version="v1", kind="ConfigMap", name="one", namespace=namespace)
    recorder = EventRecorder(kube, queue_size=10, burst=1, per_second=5)
    for number in range(40):
        recorder.record(about, EventType.NORMAL, "Well", f"number {number}")
    recorder.record(about, EventType.WARNING, "Trouble", "listen")
    assert recorder.dropped == 35
    async with running(recorder):
        await eventually(lambda: events_about(kube, namespace, "one"))
    in_order = sorted(
        await events_about(kube, namespace, "one"), key=lambda each: int(each["metadata"]["resourceVersion"])
    )
    assert [each["reason"] for each in in_order] == ["Trouble", *["Well"] * 5]
