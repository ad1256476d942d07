"""The client: what it sends, which error each answer is, and that no answer is unbounded."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import pytest
from aiohttp import web

from fipop.errors import (
    ApiError,
    ConflictError,
    ForbiddenError,
    NamespaceTerminatingError,
    NotFoundError,
    TokenRefusedError,
    UnavailableError,
)
from fipop.kube.client import KubeClient, RequestRecord
from fipop.kube.resources import CONFIG_MAPS, FLOATING_IPS, SECRETS

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "a"}}


def page(names: list[str], *, version: str = "7", token: str = "") -> dict[str, object]:
    items = [{"metadata": {"name": name, "managedFields": []}} for name in names]
    return {"kind": "List", "metadata": {"resourceVersion": version, "continue": token}, "items": items}


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


# Requests


async def test_requests_say_what_they_are(server, client):
    server.says(CONFIG_MAP)
    await client.get(SECRETS, "x", namespace="a", metadata_only=True)
    await client.create(CONFIG_MAPS, {"metadata": {"name": "x", "namespace": "a"}})
    await client.replace(FLOATING_IPS, CONFIG_MAP, subresource="status")
    await client.merge_patch(CONFIG_MAPS, "x", {"data": {"k": None}}, namespace="a")
    await client.delete(CONFIG_MAPS, "x", namespace="a", uid="u", resource_version=7)
    seen = [(request.method, request.path, request.content_type) for request in server.requests[1:]]
    assert seen == [
        ("POST", "/api/v1/namespaces/a/configmaps", "application/json"),
        ("PUT", "/apis/kubefip.k8s.binbash.org/v1/namespaces/a/floatingips/x/status", "application/json"),
        ("PATCH", "/api/v1/namespaces/a/configmaps/x", "application/merge-patch+json"),
        ("DELETE", "/api/v1/namespaces/a/configmaps/x", "application/json"),
    ]
    assert {request.query.get("fieldManager") for request in server.requests[1:4]} == {"fipop"}
    # A server that cannot reduce a Secret to its metadata must refuse, not send it whole.
    assert "as=PartialObjectMetadata;" in server.requests[0].headers["Accept"]
    assert "," not in server.requests[0].headers["Accept"]
    assert server.requests[0].headers["Authorization"] == "Bearer t0ken"
    created, _, patched, deleted = map(json.loads, server.bodies[1:])
    assert (created["kind"], created["apiVersion"]) == ("ConfigMap", "v1")
    assert patched == {"data": {"k": None}}
    assert deleted["preconditions"] == {"uid": "u", "resourceVersion": "7"}


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a%2fb"])
async def test_a_name_that_would_address_another_object_is_never_sent(server, client, name):
    server.says({})
    with pytest.raises(ApiError):
        await client.delete(CONFIG_MAPS, name, namespace="a")
    assert server.requests == []


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
        with pytest.raises(UnavailableError) as caught:
            await write
        assert caught.value.is_unsent
    assert [request.method for request in server.requests] == ["POST", "GET"]


# Answers that are no success


@pytest.mark.parametrize(
    ("status", "reason", "name", "kind"),
    [
        (404, "NotFound", "x", NotFoundError),
        (404, "NotFound", "other", ApiError),
        (404, "NotFound", "", ApiError),
        (409, "Conflict", "x", ConflictError),
        (409, "AlreadyExists", "x", ConflictError),
        (403, "Forbidden", "x", ForbiddenError),
        (401, "Unauthorized", "", ApiError),
        (410, "Expired", "", ApiError),
        (422, "Invalid", "x", ApiError),
        (408, "", "", UnavailableError),
        (429, "TooManyRequests", "", UnavailableError),
        (500, "InternalError", "x", UnavailableError),
        (503, "", "", UnavailableError),
    ],
)
async def test_each_answer_is_the_error_that_callers_tell_apart(server, client, status, reason, name, kind):
    server.refuses(status, reason, name=name)
    with pytest.raises(ApiError) as caught:
        await client.merge_patch(CONFIG_MAPS, "x", {}, namespace="a")
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.reason) == (status, reason)
    assert "secret text of the remote" not in str(caught.value)


async def test_only_the_api_server_says_that_an_object_does_not_exist(server, client):
    server.refuses(404, "NotFound")
    assert await client.get(CONFIG_MAPS, "x", namespace="a") is None
    assert await client.delete(CONFIG_MAPS, "x", namespace="a") is False
    for answer in ("404 page not found", {"kind": "Status", "details": {"name": "y"}}, {"message": "x"}):
        server.says(answer, status=404)
        with pytest.raises(ApiError):
            await client.get(CONFIG_MAPS, "x", namespace="a")
        with pytest.raises(ApiError):
            await client.delete(CONFIG_MAPS, "x", namespace="a")


async def test_a_namespace_that_is_being_deleted_has_an_error_of_its_own(server, client):
    server.refuses(403, "Forbidden", causes=[{"reason": "NamespaceTerminating"}])
    with pytest.raises(NamespaceTerminatingError, match="NamespaceTerminating"):
        await client.create(CONFIG_MAPS, CONFIG_MAP)


@pytest.mark.parametrize(
    ("status", "text", "refuser"),
    [
        (
            422,
            "x is forbidden: ValidatingAdmissionPolicy 'pinned' with binding",
            "ValidatingAdmissionPolicy pinned",
        ),
        (400, 'admission webhook "a.b.example" denied the request: words', "webhook a.b.example"),
        (500, 'failed calling webhook "fail.kyverno.svc": no endpoints', "webhook fail.kyverno.svc"),
        (
            500,
            'failed calling webhook "rancher.cattle.io.namespaces.create-non-kubesystem": failed to call webhook',
            "webhook rancher.cattle.io.namespaces.create-non-kubesystem",
        ),
        (409, 'admission webhook "a.b" denied the request', "webhook a.b"),
        (403, 'webhook "A\x1b[31m" denied', ""),
        (403, f'webhook "{"a" * 99}" denied', ""),
        (403, 'User "webhook" cannot update', ""),
    ],
)
async def test_a_refusal_names_the_policy_or_webhook_and_quotes_nothing_else(
    server, client, status, text, refuser
):
    body = {"kind": "Status", "code": status, "reason": "R", "message": text}
    server.says(body, status=status)
    with pytest.raises(ApiError) as caught:
        await client.replace(CONFIG_MAPS, CONFIG_MAP)
    by = f" by {refuser}" if refuser else ""
    assert str(caught.value) == f"could not replace ConfigMap a/x: {status} R{by}"
    assert caught.value.is_refusal
    assert type(caught.value) is not ConflictError


async def test_rancher_refuses_a_token_in_words_of_its_own(server, client):
    server.says("must authenticate", status=401, headers={"X-Api-Cattle-Auth": "false"})
    with pytest.raises(TokenRefusedError, match="does not accept the token"):
        await client.get(CONFIG_MAPS, "x", namespace="a")


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), ("9999", 60.0), ("soon", 1.0), (None, 1.0)])
async def test_a_throttled_request_says_when_to_come_again(server, client, header, seconds):
    server.says("", status=429, headers={"Retry-After": header} if header else None)
    with pytest.raises(UnavailableError) as caught:
        await client.create(CONFIG_MAPS, CONFIG_MAP)
    assert (caught.value.retry_after, caught.value.is_unsent) == (seconds, True)


@pytest.mark.parametrize("verb", ["create", "replace", "patch", "delete"])
async def test_a_write_is_sent_once_and_its_outcome_is_unknown_without_an_answer(server, client, verb):
    async def cut(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    server.says(CONFIG_MAP)
    await client.get(
        CONFIG_MAPS, "x", namespace="a"
    )  # aiohttp would send again on a connection that was kept
    server.answer = cut
    writes = {
        "create": lambda: client.create(CONFIG_MAPS, CONFIG_MAP),
        "replace": lambda: client.replace(CONFIG_MAPS, CONFIG_MAP),
        "patch": lambda: client.merge_patch(CONFIG_MAPS, "x", {}, namespace="a"),
        "delete": lambda: client.delete(CONFIG_MAPS, "x", namespace="a"),
    }
    with pytest.raises(UnavailableError) as caught:
        await writes[verb]()
    assert (caught.value.reason, caught.value.is_unsent) == ("ConnectionCut", False)
    assert len(server.requests) == 2


async def test_a_refused_connection_sends_nothing(server):
    server.url = "https://127.0.0.1:1"
    async with server.client() as client:
        with pytest.raises(UnavailableError) as caught:
            await client.create(CONFIG_MAPS, CONFIG_MAP)
    assert (caught.value.reason, caught.value.is_unsent) == ("ConnectionRefused", True)


async def test_a_server_of_another_authority_is_not_trusted(server):
    server.ca_pem = ""
    async with server.client() as client:
        with pytest.raises(UnavailableError, match="certificate of the server is not trusted"):
            await client.get(CONFIG_MAPS, "x", namespace="a")


async def test_a_redirect_is_not_followed_and_gets_no_token(server, client):
    for status in (302, 307):
        server.says("", status=status, headers={"Location": f"{server.url}/elsewhere"})
        with pytest.raises(UnavailableError, match="redirected the request"):
            await client.get(CONFIG_MAPS, "x", namespace="a")
    assert [request.path.rpartition("/")[2] for request in server.requests] == ["x", "x"]


@pytest.mark.parametrize("body", ["", "{", "[]", "null", "1", '{"a": 1}', '{"metadata": 1}', "[" * 100_000])
async def test_what_is_no_kubernetes_object_is_unavailable(server, client, body):
    server.says(body)
    with pytest.raises(UnavailableError):
        await client.get(CONFIG_MAPS, "x", namespace="a")


# Bounds


async def test_an_answer_has_a_bound_in_bytes(server):
    async with server.client(answer_bytes=1000) as client:
        for answer in (streaming(b" " * 1001, hold=True), streaming(*[b" " * 100] * 11, hold=True)):
            server.answer = answer
            with pytest.raises(UnavailableError, match="larger than fipop reads"):
                await client.get(CONFIG_MAPS, "x", namespace="a")


async def test_an_answer_has_a_deadline_also_if_it_arrives_byte_by_byte(server):
    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.02)

    server.answer = drip
    async with server.client(timeout_seconds=0.3) as client:
        with pytest.raises(UnavailableError, match="did not answer in time"):
            await client.get(CONFIG_MAPS, "x", namespace="a")
        with pytest.raises(UnavailableError, match="did not answer in time"):
            await client.list(CONFIG_MAPS, namespace="a", timeout_seconds=0.1)


async def test_what_was_compressed_is_refused(server, client):
    server.says(b"x", headers={"Content-Encoding": "br"})
    with pytest.raises(UnavailableError):
        await client.get(CONFIG_MAPS, "x", namespace="a")


async def test_a_list_comes_in_pages_and_ends(server):
    async def endless(request: web.Request) -> web.StreamResponse:
        return web.json_response(page([f"n{len(server.requests)}"], token="more"))

    server.answer = endless
    async with server.client(page_items=3, pages=4) as client:
        with pytest.raises(UnavailableError, match="more pages than fipop reads"):
            await client.list(CONFIG_MAPS)
    assert [request.query["limit"] for request in server.requests] == ["3"] * 4


async def test_a_list_is_complete_and_has_a_version(server, client):
    pages = iter([page(["a", "b"], token="next"), page(["c"], version="9")])

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response(next(pages))

    server.answer = answer
    found = await client.list(
        CONFIG_MAPS,
        namespace="a",
        label_selector="l=1",
        field_selector="f=2",
        project=lambda item: item["metadata"]["name"],
    )
    assert (found.items, found.resource_version) == (("a", "b", "c"), 9)
    first, second = server.requests
    assert (first.query["labelSelector"], first.query["fieldSelector"]) == ("l=1", "f=2")
    assert second.query["continue"] == "next"


async def test_null_is_an_empty_list_as_go_writes_it(server, client):
    server.says('{"metadata": {"resourceVersion": "1"}, "items": null}')
    assert (await client.list(CONFIG_MAPS)).items == ()


@pytest.mark.parametrize(
    "items",
    ["", ', "items": {}', ', "items": ""', ', "items": "x"', ', "items": [1]', ', "items": [{"kind": "x"}]'],
)
async def test_a_list_of_anything_else_is_unavailable(server, client, items):
    server.says(f'{{"metadata": {{"resourceVersion": "1"}}{items}}}')
    with pytest.raises(UnavailableError):
        await client.list(CONFIG_MAPS)


# Watches


def event(kind: str, name: str) -> bytes:
    return json.dumps({"type": kind, "object": {"metadata": {"name": name}}}).encode() + b"\n"


async def watch(client: KubeClient) -> list[tuple[str, str]]:
    async with aclosing(client.watch(CONFIG_MAPS, resource_version=3, timeout_seconds=2)) as events:
        return [(each.type, each.object["metadata"]["name"]) async for each in events]


async def test_a_watch_yields_events_until_the_server_ends_it(server, client):
    added = event("ADDED", "x")
    server.answer = streaming(added[:7], added[7:] + event("MODIFIED", "x"), event("BOOKMARK", ""))
    assert await watch(client) == [("ADDED", "x"), ("MODIFIED", "x"), ("BOOKMARK", "")]
    query = server.requests[0].query
    assert (query["watch"], query["resourceVersion"], query["timeoutSeconds"]) == ("1", "3", "2")


@pytest.mark.parametrize(
    ("chunks", "status"),
    [
        ([b'{"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}\n'], 410),
        ([b"no json\n"], 200),
        ([b'{"type": "ADDED", "object": 1}\n'], 200),
    ],
)
async def test_a_watch_that_shows_an_error_ends_with_it(server, client, chunks, status):
    server.answer = streaming(*chunks)
    with pytest.raises(ApiError) as caught:
        await watch(client)
    assert caught.value.status == status


async def test_a_watch_that_is_refused_raises(server, client):
    server.refuses(403, "Forbidden")
    with pytest.raises(ForbiddenError):
        await watch(client)


async def test_a_line_of_a_watch_has_a_bound(server):
    async with server.client(answer_bytes=100) as client:
        server.answer = streaming(b"x" * 200, hold=True)
        with pytest.raises(UnavailableError, match="larger than fipop reads"):
            await watch(client)


# What is told of requests


async def test_each_request_is_recorded_with_how_it_ended(server):
    seen: list[RequestRecord] = []
    async with server.client(on_request=seen.append) as client:
        server.says(CONFIG_MAP)
        await client.get(CONFIG_MAPS, "x", namespace="a")
        server.says("", status=500)
        with pytest.raises(UnavailableError):
            await client.list(CONFIG_MAPS)
    server.url = "https://127.0.0.1:1"
    async with server.client(on_request=seen.append) as client:
        with pytest.raises(UnavailableError):
            await client.get(CONFIG_MAPS, "x", namespace="a")
    assert [(each.verb, each.status) for each in seen] == [("get", 200), ("list", 500), ("get", 0)]
    assert seen[0].path == "/api/v1/namespaces/a/configmaps/x"


async def test_the_server_s_time_is_that_of_its_last_answer(server, client):
    with pytest.raises(UnavailableError):
        client.server_now()
    server.says(CONFIG_MAP, headers={"Date": "Thu, 01 Jan 2026 00:00:00 GMT"})
    await client.get(CONFIG_MAPS, "x", namespace="a")
    assert client.server_now().isoformat().startswith("2026-01-01T00:00:0")
    server.says(CONFIG_MAP, headers={"Date": "gibberish"})
    await client.get(CONFIG_MAPS, "x", namespace="a")
    assert client.server_now().year == 2026
