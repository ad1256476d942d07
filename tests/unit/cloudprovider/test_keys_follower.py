"""The kubevip ConfigMap as it is followed: what its keys say, and which cannot be read."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from fipop.cloudprovider.keys_follower import KeysFollower
from fipop.cloudprovider.pools import PoolKeys
from fipop.kube.client import Listing, WatchEvent
from tests.harness.answering_client import AnsweringClient
from tests.harness.background import running
from tests.harness.recorded_events import RecordedEvents


class Followed:
    """A guest whose ConfigMap a test writes."""

    def __init__(self, data: object = None) -> None:
        self.object: Any = None
        if data is not None:
            metadata = {"name": "kubevip", "namespace": "kube-system", "uid": "u", "resourceVersion": "1"}
            self.object = {"metadata": metadata, "data": data}
        self.created: list[dict[str, Any]] = []
        self.taken: list[PoolKeys] = []
        self.events = RecordedEvents()
        self.follower = KeysFollower(
            client=AnsweringClient(get=self.read, create=self.create),
            events=self.events,
            namespace="kube-system",
            name="kubevip",
            take=self.taken.append,
        )

    async def read(self, *_: object, **__: object) -> Any:
        return self.object

    async def create(self, _resource: object, body: dict[str, Any]) -> Any:
        self.created.append(body)
        return {**body, "metadata": {**body["metadata"], "uid": "u", "resourceVersion": "1"}}


async def test_one_that_is_missing_is_made_empty() -> None:
    followed = Followed()
    await followed.follower.load()
    assert [each["data"] for each in followed.created] == [{}]
    assert len(followed.taken) == 1


async def test_what_it_says_is_handed_on() -> None:
    followed = Followed({"cidr-shop": "10.0.0.0/30"})
    await followed.follower.load()
    found = followed.taken[0].pool_of("shop")
    assert found is not None
    assert found.key == "cidr-shop"
    assert followed.follower.keys is followed.taken[0]


async def test_a_key_that_cannot_be_read_is_told_once_and_again_when_it_is_wrong_in_another_way() -> None:
    followed = Followed({"cidr-shop": "nonsense"})
    for _ in range(3):
        await followed.follower.load()
    assert len(followed.events.all) == 1
    assert "cidr-shop" in followed.events.all[0].message
    followed.object["data"] = {"cidr-shop": "10.0.0.0/99"}
    await followed.follower.load()
    assert len(followed.events.all) == 2


async def test_data_of_any_shape_is_taken() -> None:
    followed = Followed(["no", "mapping"])
    await followed.follower.load()
    assert followed.taken[0].problems() == {}


async def test_between_versions_that_come_at_once_others_have_their_turn() -> None:
    """Each may take milliseconds: hundreds in a row would keep everybody from an answer."""
    followed = Followed({})

    async def list_all(*_: object, **__: object) -> Any:
        return Listing(items=(), resource_version=1)

    class Watching(AnsweringClient):
        async def watch(self, *_: object, **__: object) -> AsyncGenerator[WatchEvent, None]:
            for version in range(2, 52):
                metadata = followed.object["metadata"] | {"resourceVersion": str(version)}
                yield WatchEvent(type="MODIFIED", object={"metadata": metadata, "data": {"a": str(version)}})
            await asyncio.Event().wait()

    follower = KeysFollower(
        client=Watching(get=followed.read, create=followed.create, list=list_all),
        events=followed.events,
        namespace="kube-system",
        name="kubevip",
        take=followed.taken.append,
    )
    turns = 0
    async with running(follower.follow()):
        while len(followed.taken) < 50:
            turns += 1
            await asyncio.sleep(0)
    assert turns >= 50
