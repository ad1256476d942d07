"""Events: one for each text, bounded, and never in the way of anything."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fipop.kube.client import KubeClient
from fipop.kube.events import EventRecorder, EventType, ObjectReference
from tests.harness.api_in_memory import ApiInMemory, Json, Link
from tests.harness.virtual_time import in_virtual_time, virtual_now

ABOUT = ObjectReference(
    api_version="v1", kind="ConfigMap", name="kube-fip-config", namespace="kube-fip", uid="u"
)
WRITTEN_SECONDS = 300.0
"""Virtual seconds by which all that a recorder keeps is written."""


@asynccontextmanager
async def recording(link: Link, *, instance: str = "one") -> AsyncIterator[EventRecorder]:
    async with KubeClient(link) as client:
        recorder = EventRecorder(client, now=virtual_now, instance=instance)
        task = asyncio.create_task(recorder.run())
        try:
            yield recorder
        finally:
            task.cancel()
            await asyncio.wait({task})


def build_link() -> Link:
    server = ApiInMemory()
    server.put(("namespaces", "", "kube-fip"), {"metadata": {"name": "kube-fip"}})
    return Link(server)


def events_of(link: Link) -> list[Json]:
    return list(link.server.of_kind("events").values())


@in_virtual_time
async def test_a_restart_repeats_nothing() -> None:
    link = build_link()
    for instance in ("one", "two"):
        async with recording(link, instance=instance) as recorder:
            recorder.record(ABOUT, EventType.WARNING, "BadOption", "a")
            recorder.record(ABOUT, EventType.WARNING, "BadOption", "a")
            recorder.record(ABOUT, EventType.WARNING, "BadOption", instance)
            await asyncio.sleep(WRITTEN_SECONDS)
    assert sorted(each["message"] for each in events_of(link)) == ["a", "one", "two"]


@in_virtual_time
async def test_what_a_retry_repeats_is_not_sent_again_within_the_hour() -> None:
    link = build_link()
    async with recording(link) as recorder:
        for _ in range(70):
            recorder.record(ABOUT, EventType.WARNING, "WriteRefused", "a")
            await asyncio.sleep(60.0)
    assert link.requests["create", "events"] == 2


@in_virtual_time
async def test_events_of_a_rollout_that_returns_to_a_target_are_never_merged() -> None:
    link = build_link()
    async with recording(link) as recorder:
        for _ in range(2):
            recorder.record(ABOUT, EventType.NORMAL, "RolloutCompleted", "a", is_repeated=True)
        await asyncio.sleep(WRITTEN_SECONDS)
    assert len(events_of(link)) == 2


@in_virtual_time
async def test_an_api_server_that_refuses_events_delays_nothing() -> None:
    link = build_link()
    async with recording(link) as recorder:
        link.failures["create"] = 1
        recorder.record(ABOUT, EventType.NORMAL, "A", "lost")
        for number in range(5000):
            recorder.record(ABOUT, EventType.NORMAL, "A", str(number))
        await asyncio.sleep(WRITTEN_SECONDS)
    assert 0 < len(events_of(link)) <= 1000


@in_virtual_time
async def test_an_event_is_written_when_the_api_server_is_back() -> None:
    link = build_link()
    async with recording(link) as recorder:
        link.is_cut = True
        recorder.record(ABOUT, EventType.WARNING, "RolloutStopped", "a")
        await asyncio.sleep(60)
        link.is_cut = False
        await asyncio.sleep(WRITTEN_SECONDS)
    assert [each["message"] for each in events_of(link)] == ["a"]


@in_virtual_time
async def test_a_long_text_is_cut_and_made_printable() -> None:
    link = build_link()
    async with recording(link) as recorder:
        recorder.record(ABOUT, EventType.NORMAL, "R" * 500, "ü\x00\n" * 2000)
        await asyncio.sleep(WRITTEN_SECONDS)
    (event,) = events_of(link)
    assert len(event["message"].encode()) <= 1024
    assert event["message"].isprintable()
    assert len(event["reason"]) <= 128


@pytest.mark.parametrize("name", ["x" * 253, "a." * 100])
@in_virtual_time
async def test_the_name_of_an_event_is_valid_whatever_it_is_about(name: str) -> None:
    link = build_link()
    about = ObjectReference(api_version="v1", kind="Node", name=name)
    async with recording(link) as recorder:
        recorder.record(about, EventType.NORMAL, "A", "a")
        await asyncio.sleep(WRITTEN_SECONDS)
    (event,) = events_of(link)
    assert event["metadata"]["namespace"] == "default"
    assert len(event["metadata"]["name"]) <= 253
    assert ".." not in event["metadata"]["name"]
