import asyncio
import gzip
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime

import pytest
from aiohttp import web

from fipop.errors import (
    ApiAnswerError,
    ApiConflictError,
    ApiGoneError,
    ApiInvalidError,
    ApiNotFoundError,
    ApiServerError,
    ApiUnreachableError,
    NotLeadingError,
)
from fipop.kube.client import KubeClient, RequestRecord
from fipop.kube.limits import ReadLimits
from fipop.kube.resources import CONFIG_MAPS, FLOATING_IPS, NAMESPACES, SECRETS

from .conftest import FakeServer, status_object

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "a"}}


def page(names: list[str], *, version: str = "7", token: str = "") -> dict:
    items = [{"metadata": {"name": name}} for name in names]
    return {"kind": "List", "metadata": {"resourceVersion": version, "continue": token}, "items": items}


async def test_a_call_carries_what_the_api_server_needs(server, client):
    server.says(CONFIG_MAP)
    assert await client.get(CONFIG_MAPS, "x", namespace="a") == CONFIG_MAP
    request = server.requests[0]
    assert (request.method, request.path) == ("GET", "/api/v1/namespaces/a/configmaps/x")
    assert request.headers["Authorization"] == "Bearer t0ken"
    assert request.headers["Accept"] == "application/json"
    assert request.headers["User-Agent"] == "fipop"


async def test_a_client_for_the_leader_reads_always_and_writes_only_while_that_leads(server, client):
    leads = True
    guarded = client.for_leader(lambda: leads)
    server.says(CONFIG_MAP)
    await guarded.create(CONFIG_MAPS, CONFIG_MAP)
    leads = False
    assert await guarded.get(CONFIG_MAPS, "x", namespace="a") == CONFIG_MAP
    for write in (
        guarded.create(CONFIG_MAPS, CONFIG_MAP),
        guarded.replace(CONFIG_MAPS, CONFIG_MAP),
        guarded.merge_patch(CONFIG_MAPS, "x", {}, namespace="a"),
        guarded.delete(CONFIG_MAPS, "x", namespace="a"),
    ):
        with pytest.raises(NotLeadingError, match="this replica does not lead"):
            await write
    await client.create(CONFIG_MAPS, CONFIG_MAP)
    assert [request.method for request in server.requests] == ["POST", "GET", "POST"]


async def test_a_lead_that_ends_while_a_write_waits_for_its_connection_ends_the_write(server):
    """Between the question and the connection the process may have slept for longer than its lease."""
    answers = iter([True, False])
    async with KubeClient(server.connection()) as client:
        with pytest.raises(NotLeadingError):
            await client.for_leader(lambda: next(answers)).create(CONFIG_MAPS, CONFIG_MAP)
        assert server.requests == []
        server.says(CONFIG_MAP)
        await client.create(CONFIG_MAPS, CONFIG_MAP)
        answers = iter([True, False])
        with pytest.raises(NotLeadingError):
            await client.for_leader(lambda: next(answers)).delete(CONFIG_MAPS, "x", namespace="a")
        assert len(server.requests) == 1
        await client.create(CONFIG_MAPS, CONFIG_MAP)


async def test_nor_is_it_sent_when_the_lead_ended_between_the_connection_and_the_body(server):
    server.says(CONFIG_MAP)
    async with KubeClient(server.connection()) as client:
        answers = iter([True, True, False])
        with pytest.raises((NotLeadingError, ApiUnreachableError)):
            await client.for_leader(lambda: next(answers)).replace(CONFIG_MAPS, CONFIG_MAP)
        assert await client.get(CONFIG_MAPS, "x", namespace="a") == CONFIG_MAP
    assert [request.method for request in server.requests] == ["GET"]


async def test_a_path_prefix_of_the_server_is_kept(server):
    server.says(CONFIG_MAP)
    async with KubeClient(server.connection(server=f"{server.url}/k8s/clusters/c-m-x/")) as client:
        await client.get(CONFIG_MAPS, "x", namespace="a")
    assert server.requests[0].path == "/k8s/clusters/c-m-x/api/v1/namespaces/a/configmaps/x"


async def test_metadata_only_leaves_the_server_no_choice_to_send_a_secret_whole(server, client):
    server.says(page([]))
    await client.list(SECRETS, metadata_only=True)
    server.says(CONFIG_MAP)
    await client.get(SECRETS, "x", namespace="a", metadata_only=True)
    accepted = [request.headers["Accept"] for request in server.requests]
    assert "PartialObjectMetadataList" in accepted[0]
    assert "PartialObjectMetadata;" in accepted[1]
    assert not [text for text in accepted if "," in text]


async def test_a_missing_object_is_none(server, client):
    server.refuses(404, "NotFound", name="x")
    assert await client.get(CONFIG_MAPS, "x", namespace="a") is None
    assert await client.delete(CONFIG_MAPS, "x", namespace="a") is False


async def test_a_404_of_a_proxy_is_an_error_and_never_means_gone(server, client):
    server.says(b"404 page not found", status=404)
    with pytest.raises(ApiNotFoundError):
        await client.get(CONFIG_MAPS, "x", namespace="a")
    with pytest.raises(ApiNotFoundError):
        await client.delete(CONFIG_MAPS, "x", namespace="a")
    with pytest.raises(ApiNotFoundError):
        await client.list(FLOATING_IPS)


async def test_a_patch_of_a_missing_object_raises(server, client):
    server.refuses(404, "NotFound", name="x")
    with pytest.raises(ApiNotFoundError):
        await client.merge_patch(FLOATING_IPS, "x", {}, namespace="a", subresource="status")


async def test_writes_say_what_they_are(server, client):
    server.says(CONFIG_MAP)
    await client.create(CONFIG_MAPS, CONFIG_MAP)
    await client.replace(FLOATING_IPS, CONFIG_MAP, subresource="status")
    await client.merge_patch(CONFIG_MAPS, "x", {"data": {"k": None}}, namespace="a")
    await client.delete(
        CONFIG_MAPS, "x", namespace="a", uid="u", resource_version=7, propagation="Background"
    )
    seen = [(request.method, request.path, request.content_type) for request in server.requests]
    assert seen == [
        ("POST", "/api/v1/namespaces/a/configmaps", "application/json"),
        (
            "PUT",
            "/apis/kubefip.k8s.binbash.org/v1/namespaces/a/floatingips/x/status",
            "application/json",
        ),
        ("PATCH", "/api/v1/namespaces/a/configmaps/x", "application/merge-patch+json"),
        ("DELETE", "/api/v1/namespaces/a/configmaps/x", "application/json"),
    ]
    assert {request.query.get("fieldManager") for request in server.requests[:3]} == {"fipop"}
    assert json.loads(server.bodies[2]) == {"data": {"k": None}}
    assert json.loads(server.bodies[3]) == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "propagationPolicy": "Background",
    }


async def test_a_delete_without_a_name_is_never_sent(server, client):
    server.says({})
    with pytest.raises(ApiInvalidError):
        await client.delete(CONFIG_MAPS, "", namespace="a")
    assert server.requests == []


async def test_a_list_follows_all_pages_and_asks_for_them_by_token(server):
    pages = {"": page(["a", "b"], token="t&1"), "t&1": page(["c"], token="t2"), "t2": page(["d"])}

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(pages[request.query.get("continue", "")])

    server.answer = answer
    async with KubeClient(server.connection(), limits=ReadLimits(page_items=2)) as client:
        listing = await client.list(NAMESPACES, label_selector="a=b", field_selector="metadata.name!=z")
    assert [item["metadata"]["name"] for item in listing.items] == ["a", "b", "c", "d"]
    assert listing.resource_version == 7
    assert {request.query["limit"] for request in server.requests} == {"2"}
    assert {request.query["labelSelector"] for request in server.requests} == {"a=b"}
    assert {request.query["fieldSelector"] for request in server.requests} == {"metadata.name!=z"}


async def test_a_list_that_breaks_on_a_later_page_is_no_list(server, client):
    async def answer(request: web.Request) -> web.Response:
        if "continue" in request.query:
            return web.json_response(status_object(410, "Expired"), status=410)
        return web.json_response(page(["a"], token="t"))

    server.answer = answer
    with pytest.raises(ApiGoneError):
        await client.list(NAMESPACES)


async def test_a_list_cuts_its_objects_down_page_by_page(server, client):
    server.says(page(["a", "b"]))
    listing = await client.list(NAMESPACES, project=lambda item: {"n": item["metadata"]["name"]})
    assert listing.items == ({"n": "a"}, {"n": "b"})


async def test_an_empty_list_may_be_null(server, client):
    server.says(page([]) | {"items": None})
    assert (await client.list(NAMESPACES)).items == ()


@pytest.mark.parametrize(
    "body",
    [
        page([]) | {"items": {}},
        {"metadata": {"resourceVersion": "7"}},
        page([]) | {"items": [1]},
        page([]) | {"items": [{"metadata": None}]},
        page([], version="x"),
        {"items": []},
    ],
)
async def test_a_list_of_another_shape_is_an_answer_error(server, client, body):
    server.says(body)
    with pytest.raises(ApiAnswerError):
        await client.list(NAMESPACES)


async def test_pages_without_end_run_into_the_cap(server):
    server.says(page(["a" * 50_000], token="again"))
    async with KubeClient(
        server.connection(), limits=ReadLimits(answer_bytes=500_000, list_bytes=500_000)
    ) as client:
        with pytest.raises(ApiAnswerError) as caught:
            await client.list(NAMESPACES)
    assert caught.value.reason == "TooLarge"
    assert len(server.requests) <= 11


async def test_pages_without_end_run_into_the_deadline(server):
    async def answer(_: web.Request) -> web.Response:
        await asyncio.sleep(0.05)
        return web.json_response(page(["a"], token="again"))

    server.answer = answer
    async with KubeClient(server.connection(), timeout_seconds=0.5) as client:
        started = time.monotonic()
        with pytest.raises(ApiUnreachableError, match="Timeout"):
            await client.list(NAMESPACES)
        assert time.monotonic() - started < 2


async def test_an_answer_beyond_the_cap_is_refused(server):
    server.says(b'{"metadata":{"name":"' + b"x" * 2_000_000 + b'"}}')
    async with KubeClient(
        server.connection(), limits=ReadLimits(answer_bytes=1_000_000, list_bytes=1_000_000)
    ) as client:
        with pytest.raises(ApiAnswerError) as caught:
            await client.get(CONFIG_MAPS, "x", namespace="a")
        assert caught.value.reason == "TooLarge"
        server.says(CONFIG_MAP)
        assert await client.get(CONFIG_MAPS, "x", namespace="a") == CONFIG_MAP


async def test_compression_is_not_asked_for_and_a_bomb_is_not_unpacked(server, client):
    server.says(gzip.compress(b" " * 50_000_000), headers={"Content-Encoding": "gzip"})
    with pytest.raises(ApiAnswerError) as caught:
        await client.get(CONFIG_MAPS, "x", namespace="a")
    assert caught.value.reason == "Compressed"
    assert server.requests[0].headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_a_redirect_is_an_error_and_not_followed(server, client, code):
    server.says(b"", status=code, headers={"Location": f"{server.url}/elsewhere"})
    with pytest.raises(ApiAnswerError) as caught:
        await client.get(CONFIG_MAPS, "x", namespace="a")
    assert (caught.value.status, caught.value.reason) == (code, "Redirect")
    assert len(server.requests) == 1


async def test_cookies_are_not_kept(server):
    server.says(CONFIG_MAP, headers={"Set-Cookie": "a=b; Path=/"})
    by_name = server.connection(
        server=server.url.replace("127.0.0.1", "localhost"), tls_server_name="api.test"
    )
    async with KubeClient(by_name) as client:
        await client.get(CONFIG_MAPS, "x", namespace="a")
        await client.get(CONFIG_MAPS, "x", namespace="a")
    assert "Cookie" not in server.requests[1].headers


async def test_a_server_that_is_silent_costs_no_more_than_the_deadline(server, client):
    async def answer(_: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    server.answer = answer
    started = time.monotonic()
    with pytest.raises(ApiUnreachableError) as caught:
        await client.get(CONFIG_MAPS, "x", namespace="a", timeout_seconds=0.2)
    assert time.monotonic() - started < 1
    assert (caught.value.reason, caught.value.status, caught.value.outcome_unknown) == ("Timeout", 0, True)


async def test_a_body_of_one_byte_at_a_time_does_not_stretch_the_deadline(server, client):
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for byte in b'{"metadata": {}}' * 100:
            await response.write(bytes([byte]))
            await asyncio.sleep(0.05)
        return response

    server.answer = answer
    started = time.monotonic()
    with pytest.raises(ApiUnreachableError, match="Timeout"):
        await client.get(CONFIG_MAPS, "x", namespace="a", timeout_seconds=0.3)
    assert time.monotonic() - started < 1


async def test_a_refused_connection_is_told_and_leaves_no_doubt(unused_url):
    async with KubeClient(unused_url) as client:
        with pytest.raises(ApiUnreachableError) as caught:
            await client.create(CONFIG_MAPS, CONFIG_MAP)
    assert caught.value.reason == "ConnectionRefused"
    assert not caught.value.outcome_unknown


@pytest.fixture
async def unused_url(server):
    listener = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    listener.close()
    await listener.wait_closed()
    return server.connection(server=f"https://127.0.0.1:{port}")


async def test_a_name_that_no_resolver_takes_is_told(server):
    async with KubeClient(server.connection(server=f"https://{'a' * 64}.example")) as client:
        with pytest.raises(ApiUnreachableError) as caught:
            await client.create(CONFIG_MAPS, {"metadata": {"name": "x"}}, namespace="a")
    assert (caught.value.reason, caught.value.outcome_unknown) == ("NameResolution", False)


async def test_a_name_that_nobody_knows_is_told(server):
    async with KubeClient(server.connection(server="https://nobody.invalid")) as client:
        with pytest.raises(ApiUnreachableError) as caught:
            await client.get(CONFIG_MAPS, "x", namespace="a", timeout_seconds=20)
    assert caught.value.reason in ("NameResolution", "Timeout")


@asynccontextmanager
async def cutting(server: FakeServer, good_answers: int) -> AsyncIterator[list[str]]:
    """Let the server answer so often, then cut every connection once it has read the request."""
    methods: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        methods.append(request.method)
        if len(methods) > good_answers:
            assert request.transport is not None
            request.transport.abort()
        return web.json_response(CONFIG_MAP)

    server.answer = answer
    yield methods


@pytest.mark.parametrize(
    "write",
    [
        lambda client: client.create(CONFIG_MAPS, CONFIG_MAP),
        lambda client: client.replace(CONFIG_MAPS, CONFIG_MAP),
        lambda client: client.merge_patch(CONFIG_MAPS, "x", {}, namespace="a"),
        lambda client: client.delete(CONFIG_MAPS, "x", namespace="a"),
    ],
)
async def test_a_write_whose_answer_is_cut_is_unknown_and_never_sent_twice(
    server, client, write: Callable[[KubeClient], Awaitable[object]]
):
    async with cutting(server, good_answers=1) as methods:
        await client.get(CONFIG_MAPS, "x", namespace="a")
        with pytest.raises(ApiUnreachableError) as caught:
            await write(client)
        assert caught.value.outcome_unknown
        assert caught.value.reason == "ConnectionCut"
        assert len(methods) == 2


async def test_an_error_names_the_call_and_hides_what_the_remote_wrote(server, client):
    server.refuses(409, "Conflict")
    with pytest.raises(ApiConflictError) as caught:
        await client.replace(CONFIG_MAPS, CONFIG_MAP)
    assert str(caught.value) == "cannot replace ConfigMap a/x: 409 Conflict"


async def test_the_clock_is_the_server_s(server, client):
    with pytest.raises(ApiUnreachableError, match="NoAnswerYet"):
        client.server_now()
    server.says(CONFIG_MAP, headers={"Date": "Sun, 01 Mar 2099 12:00:00 GMT"})
    await client.get(CONFIG_MAPS, "x", namespace="a")
    noon = datetime(2099, 3, 1, 12, 0, 0, tzinfo=UTC)
    assert 0 <= (client.server_now() - noon).total_seconds() < 2


async def test_only_answers_of_a_working_server_count_as_good(server, client):
    server.refuses(503, "ServiceUnavailable")
    with pytest.raises(ApiServerError):
        await client.get(CONFIG_MAPS, "x", namespace="a")
    assert client.last_good_answer_at is None
    server.refuses(404, "NotFound")
    await client.get(CONFIG_MAPS, "x", namespace="a")
    good = client.last_good_answer_at
    assert good is not None
    assert time.monotonic() - good < 5


async def test_every_request_is_told_without_body_query_or_token(server):
    records: list[RequestRecord] = []
    async with KubeClient(server.connection(), on_request=records.append, timeout_seconds=0.5) as client:
        server.says(CONFIG_MAP)
        await client.create(CONFIG_MAPS, CONFIG_MAP)
        server.refuses(409, "Conflict")
        with pytest.raises(ApiConflictError):
            await client.replace(CONFIG_MAPS, CONFIG_MAP)
        async with cutting(server, good_answers=0):
            with pytest.raises(ApiUnreachableError):
                await client.delete(CONFIG_MAPS, "x", namespace="a")
    seen = [(record.method, record.verb, record.kind, record.path, record.status) for record in records]
    assert seen == [
        ("POST", "create", "ConfigMap", "/api/v1/namespaces/a/configmaps", 200),
        ("PUT", "replace", "ConfigMap", "/api/v1/namespaces/a/configmaps/x", 409),
        ("DELETE", "delete", "ConfigMap", "/api/v1/namespaces/a/configmaps/x", 0),
    ]
    assert all(record.duration_seconds >= 0 for record in records)
    assert records[2].reason == "ConnectionCut"


async def test_the_version_can_be_read(server, client):
    server.says({"gitVersion": "v1.36.3"})
    assert (await client.version())["gitVersion"] == "v1.36.3"
    server.says(b"not ready", status=500)
    with pytest.raises(ApiServerError):
        await client.version()


async def test_a_closed_client_sends_nothing_more(server):
    client = KubeClient(server.connection())
    server.says(CONFIG_MAP)
    await client.get(CONFIG_MAPS, "x", namespace="a")
    await client.close()
    await client.close()
    with pytest.raises(RuntimeError):
        await client.get(CONFIG_MAPS, "x", namespace="a")


def streaming(*chunks: bytes, hold: bool = False) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if hold:
            await asyncio.sleep(30)
        return response

    return answer


def line(kind: str, item: object) -> bytes:
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


async def test_a_watch_yields_events_until_the_server_ends_it(server, client):
    whole = line("ADDED", CONFIG_MAP) + line("BOOKMARK", {"metadata": {"resourceVersion": "9"}})
    server.answer = streaming(whole[:20], whole[20:], line("DELETED", CONFIG_MAP))
    events = [event async for event in client.watch(CONFIG_MAPS, namespace="a", resource_version=7)]
    assert [event.type for event in events] == ["ADDED", "BOOKMARK", "DELETED"]
    assert events[0].object == CONFIG_MAP
    query = server.requests[0].query
    assert (query["watch"], query["resourceVersion"], query["timeoutSeconds"]) == ("1", "7", "60")


async def test_a_watch_that_is_too_old_is_gone_whichever_way_it_is_told(server, client):
    server.answer = streaming(line("ERROR", status_object(410, "Expired")))
    with pytest.raises(ApiGoneError):
        [event async for event in client.watch(CONFIG_MAPS, resource_version=1)]
    server.refuses(410, "Expired")
    with pytest.raises(ApiGoneError):
        [event async for event in client.watch(CONFIG_MAPS, resource_version=1)]


async def test_an_event_is_delivered_while_the_stream_stays_open(server, client):
    server.answer = streaming(line("ADDED", CONFIG_MAP), hold=True)
    async with aclosing(client.watch(CONFIG_MAPS)) as events:
        async with asyncio.timeout(2):
            event = await anext(events)
    assert event.type == "ADDED"


async def test_a_silent_watch_is_unreachable_after_its_time(server, client, monkeypatch):
    monkeypatch.setattr("fipop.kube.reader.WATCH_GRACE_SECONDS", 0.2)
    server.answer = streaming(hold=True)
    with pytest.raises(ApiUnreachableError, match="Timeout"):
        [event async for event in client.watch(CONFIG_MAPS, timeout_seconds=0)]


async def test_a_watch_that_is_cut_is_unreachable(server, client):
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(line("ADDED", CONFIG_MAP))
        await asyncio.sleep(0.05)
        assert request.transport is not None
        request.transport.abort()
        return response

    server.answer = answer
    async with aclosing(client.watch(CONFIG_MAPS)) as events:
        assert (await anext(events)).type == "ADDED"
        with pytest.raises(ApiUnreachableError, match="ConnectionCut"):
            await anext(events)


@pytest.mark.parametrize(
    "junk", [b"no json\n", b"[]\n", b'{"type":"ADDED"}\n', b'{"type":"ADDED","object":{}}\n']
)
async def test_a_watch_of_another_shape_is_an_answer_error(server, client, junk):
    server.answer = streaming(junk)
    with pytest.raises(ApiAnswerError):
        [event async for event in client.watch(CONFIG_MAPS)]


async def test_a_line_without_end_runs_into_the_cap(server):
    server.answer = streaming(*[b"x" * 65_536] * 20, hold=True)
    async with KubeClient(
        server.connection(), limits=ReadLimits(answer_bytes=100_000, list_bytes=100_000)
    ) as client:
        with pytest.raises(ApiAnswerError) as caught:
            [event async for event in client.watch(CONFIG_MAPS)]
    assert caught.value.reason == "TooLarge"


async def test_cancelling_a_call_gives_its_connection_back(server):
    asked = asyncio.Event()

    async def answer(_: web.Request) -> web.Response:
        asked.set()
        await asyncio.sleep(30)
        return web.Response()

    server.answer = answer
    async with KubeClient(server.connection(), max_connections=1) as client:
        call = asyncio.create_task(client.get(CONFIG_MAPS, "x", namespace="a"))
        await asyncio.wait_for(asked.wait(), 2)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        server.says(CONFIG_MAP)
        assert await client.get(CONFIG_MAPS, "x", namespace="a", timeout_seconds=2) == CONFIG_MAP
