"""A ConfigMap as it is followed, in virtual time: which versions are handed over."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from fipop.kube.client import Listing, WatchEvent
from fipop.runtime.configmap import ConfigMapFollower
from tests.harness.answering_client import AnsweringClient
from tests.harness.background import running
from tests.harness.virtual_time import in_virtual_time

Json = dict[str, Any]


def version(number: int, uid: str = "u") -> Json:
    return {"metadata": {"name": "one", "namespace": "a", "uid": uid, "resourceVersion": str(number)}}


class Server(AnsweringClient):
    """Shows an object by a list and the events after it, round by round; the last watch goes on for ever."""

    def __init__(self, *rounds: tuple[Json | None, list[Json]]) -> None:
        super().__init__(list=self.list_one, get=self.get_one)
        self.rounds = list(rounds)
        self.taken: list[Any] = []
        self.follower = ConfigMapFollower(client=self, namespace="a", name="one", take=self.taken.append)

    async def get_one(self, *_: object, **__: object) -> Json | None:
        return self.rounds[0][0]

    async def list_one(self, *_: object, **__: object) -> Listing[Json]:
        found, _events = self.rounds[0]
        return Listing(items=() if found is None else (found,), resource_version=1)

    async def watch(self, *_: object, **__: object) -> AsyncGenerator[WatchEvent, None]:
        _found, events = self.rounds.pop(0)
        for event in events:
            yield WatchEvent(type="MODIFIED", object=event)
        if not self.rounds:
            await asyncio.Event().wait()


@in_virtual_time
async def test_what_was_seen_already_is_not_handed_over_again_and_another_object_of_the_name_is() -> None:
    another = version(1, uid="v")
    server = Server((version(1), [version(1), version(7)]), (version(7), []), (another, []), (None, []))
    async with running(server.follower.follow()):
        await asyncio.sleep(600)
    assert server.taken == [version(1), version(7), another, None]


@in_virtual_time
async def test_lists_that_show_nothing_new_hand_over_nothing_and_still_tell_of_life() -> None:
    server = Server(*[(version(1), []) for _ in range(20)])
    assert server.follower.last_heard_at is None
    async with running(server.follower.follow()):
        await asyncio.sleep(1)
        first_heard = server.follower.last_heard_at
        assert first_heard is not None
        await asyncio.sleep(600)
        assert not server.rounds
        last_heard = server.follower.last_heard_at
        assert last_heard is not None
        assert last_heard > first_heard
    assert server.taken == [version(1)]


@in_virtual_time
async def test_what_was_loaded_is_not_handed_over_again() -> None:
    server = Server((version(1), [version(2)]))
    await server.follower.load()
    async with running(server.follower.follow()):
        await asyncio.sleep(10)
    assert server.taken == [version(1), version(2)]


async def test_between_versions_that_come_at_once_others_have_their_turn() -> None:
    """Each may take milliseconds: hundreds in a row would keep everybody from an answer."""
    server = Server((None, [version(number) for number in range(2, 52)]))
    turns = 0
    async with running(server.follower.follow()):
        while len(server.taken) < 50:
            turns += 1
            await asyncio.sleep(0)
    assert turns >= 50
