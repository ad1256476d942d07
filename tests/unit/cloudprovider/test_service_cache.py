"""The Services as they are known: by a list, and by the answers of our own reads and writes."""

from typing import Any

from fipop.cloudprovider.service_cache import ServiceCache, ServiceDoor
from fipop.kube.client import Listing
from fipop.kube.resources import SERVICES
from tests.harness.answering_client import AnsweringClient
from tests.unit.cloudprovider.services import build


def cache(**calls: Any) -> tuple[ServiceCache, list[str]]:
    found = ServiceCache(AnsweringClient(**calls))
    heard: list[str] = []
    found.listeners.append(lambda change: heard.append(change.latest.version))
    return found, heard


def test_every_change_is_told_and_what_is_older_is_none() -> None:
    found, heard = cache()
    found.take(build())
    found.take(build(meta={"resourceVersion": "9"}))
    found.take(build(meta={"resourceVersion": "8"}))
    assert heard == ["7", "9"]
    assert not found.is_loaded, "answers are no list"


async def test_a_live_list_is_known_from_then_on() -> None:
    async def list_all(_resource: object, **_: object) -> Any:
        return Listing(items=(build(),), resource_version=9)

    found, heard = cache(list=list_all)
    (live,) = await found.list_live()
    assert live.name == "web"
    assert heard == ["7"]


async def test_what_is_read_and_written_through_the_door_is_known_at_once() -> None:
    async def get(*_: object, **__: object) -> Any:
        return build()

    async def replace(_resource: object, body: dict[str, Any], **_: object) -> Any:
        return {**body, "metadata": {**body["metadata"], "resourceVersion": "8"}}

    found, heard = cache()
    door = ServiceDoor(AnsweringClient(get=get, replace=replace), found)
    live = await door.get(SERVICES, "web", namespace="shop")
    assert live is not None
    await door.replace(SERVICES, live)
    assert heard == ["7", "8"]


async def test_managed_fields_are_neither_sent_nor_kept_and_what_was_read_has_them() -> None:
    """The API server keeps them. Of a Service with thousands of ports they are most of its megabyte."""
    sent: list[Any] = []

    async def replace(_resource: object, body: dict[str, Any], **_: object) -> Any:
        sent.append(body)
        return {**body, "metadata": {**body["metadata"], "managedFields": [{"manager": "kubectl"}]}}

    found, _ = cache()
    live = build(meta={"managedFields": [{"manager": "kubectl"}]})
    made = await ServiceDoor(AnsweringClient(replace=replace), found).replace(SERVICES, live)
    assert "managedFields" not in sent[0]["metadata"]
    assert "managedFields" not in made["metadata"]
    assert live["metadata"]["managedFields"] == [{"manager": "kubectl"}]


async def test_a_service_that_is_gone_is_none() -> None:
    async def get(*_: object, **__: object) -> None:
        return None

    found, heard = cache()
    assert await ServiceDoor(AnsweringClient(get=get), found).get(SERVICES, "web") is None
    assert heard == []


async def test_of_a_list_nothing_is_kept_that_is_not_read() -> None:
    """Users write large Services: a list of them must not stand in memory."""
    large = build(
        ",".join(["10.0.0.1", *["10.0.0.2"] * 20_000]),
        annotations={"example.org/large": "x" * 200_000},
        labels={f"label-{number}": "y" for number in range(1000)},
    )
    kept: list[Any] = []

    async def list_all(_resource: object, *, project: Any, **_: object) -> Any:
        kept.extend(project(build_large(large, number)) for number in range(3))
        return Listing(items=tuple(kept), resource_version=99)

    found, heard = cache(list=list_all)
    assert [each.name for each in await found.list_live()] == ["s0", "s1", "s2"]
    assert heard == ["10", "11", "12"]
    assert all(len(repr(each)) < 4096 for each in kept)
    assert found.store.get("shop", "s1") is not None


def build_large(large: dict[str, Any], number: int) -> dict[str, Any]:
    meta = {"name": f"s{number}", "uid": f"u{number}", "resourceVersion": str(10 + number)}
    return {**large, "metadata": {**large["metadata"], **meta}}
