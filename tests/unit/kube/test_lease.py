"""A Lease whose server commits and loses the answer."""

import json
from typing import Any

import pytest
from aiohttp import web

from fipop.errors import UnavailableError
from fipop.kube.client import KubeClient
from fipop.runtime.lease import LeaseLock

from .conftest import FakeServer, status_object


class LeaseStore:
    """The one Lease of an API server: versions count up, stale ones are refused, `trouble` strikes once."""

    def __init__(self, server: FakeServer) -> None:
        server.answer = self.answer
        self.lease: dict | None = None
        self.version = 0
        self.trouble = ""
        self.writes = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET" and request.path == "/version":
            return web.json_response({})
        if request.method == "GET":
            if self.lease is None:
                return self.refusal(404, "NotFound")
            return web.json_response(self.lease)
        trouble, self.trouble = self.trouble, ""
        if trouble == "fails":
            return self.refusal(500, "InternalError")
        body = json.loads(await request.read())
        if request.method == "POST" and self.lease is not None:
            return self.refusal(409, "AlreadyExists")
        if request.method == "PUT" and (
            self.lease is None or body["metadata"]["resourceVersion"] != str(self.version)
        ):
            return self.refusal(409, "Conflict")
        self.store(body)
        if trouble == "loses the answer":
            assert request.transport is not None
            request.transport.abort()
        return web.json_response(self.lease)

    def store(self, body: dict) -> None:
        self.version += 1
        self.writes += 1
        self.lease = body | {"metadata": body["metadata"] | {"resourceVersion": str(self.version)}}

    def refusal(self, code: int, reason: str) -> web.Response:
        return web.json_response(status_object(code, reason, {"name": "leader"}), status=code)


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def store(server: FakeServer) -> LeaseStore:
    return LeaseStore(server)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def mine(store: LeaseStore, client: KubeClient, clock: Clock) -> LeaseLock:
    await client.version()
    return candidate(client, "me", clock)


def candidate(client: KubeClient, identity: str, clock: Clock | None = None, **fields: Any) -> LeaseLock:
    return LeaseLock(
        client,
        namespace="a",
        name="leader",
        identity=identity,
        duration_seconds=15,
        monotonic=clock or Clock(),
        **fields,
    )


async def test_a_renewal_writes_what_the_holder_reports_beside_the_annotations_of_others(store, client):
    reported = {"waits": "a"}
    mine = candidate(client, "me", annotations=lambda: reported)
    assert await mine.try_acquire()
    store.lease["metadata"]["annotations"] = {"other": "kept"}
    assert await mine.try_acquire()
    assert store.lease["metadata"]["annotations"] == {"other": "kept", "waits": "a"}
    reported["waits"] = ""
    assert await mine.renew()
    assert store.lease["metadata"]["annotations"] == {"other": "kept", "waits": ""}


async def test_a_first_write_with_a_lost_answer_is_found_to_be_ours(store, mine):
    store.trouble = "loses the answer"
    with pytest.raises(UnavailableError):
        await mine.try_acquire()
    assert mine.valid_until is None
    assert await mine.try_acquire()
    assert mine.valid_until == 115.0


@pytest.mark.parametrize("trouble", ["loses the answer", "fails"])
async def test_a_renewal_without_an_answer_prolongs_nothing_and_the_next_one_does(
    store, mine, clock, trouble
):
    assert await mine.try_acquire()
    clock.seconds += 5
    store.trouble = trouble
    with pytest.raises(UnavailableError):
        await mine.renew()
    assert mine.valid_until == 115.0
    clock.seconds += 1
    assert await mine.renew()
    assert mine.valid_until == 121.0


async def test_a_quiet_renewal_is_one_write_and_no_read(store, mine, server):
    assert await mine.try_acquire()
    server.requests.clear()
    assert await mine.renew()
    assert [request.method for request in server.requests] == ["PUT"]


async def test_a_release_with_a_lost_answer_claims_nothing_afterwards(store, mine, client):
    assert await mine.try_acquire()
    store.trouble = "loses the answer"
    with pytest.raises(UnavailableError):
        await mine.release()
    assert mine.valid_until is None
    assert await candidate(client, "other").try_acquire()


async def test_a_lease_that_others_wrote_by_hand_is_waited_for_like_any_other(store, mine, clock):
    store.store({"metadata": {"name": "leader", "namespace": "a"}, "spec": {"holderIdentity": "hand"}})
    assert not await mine.try_acquire()
    clock.seconds += 15
    assert await mine.try_acquire()
    assert store.lease["spec"]["holderIdentity"] == "me"
