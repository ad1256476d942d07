"""Reads: what is gone, what is an error, what is told of each request."""

import time
from datetime import UTC, datetime

import pytest

from fipop.errors import (
    ApiConflictError,
    ApiNotFoundError,
    ApiServerError,
    ApiUnreachableError,
)
from fipop.kube.client import KubeClient, RequestRecord
from fipop.kube.resources import CONFIG_MAPS, FLOATING_IPS, SECRETS
from tests.unit.kube.servers import CONFIG_MAP, cutting, page


async def test_a_call_carries_what_the_api_server_needs(server, client):
    server.says(CONFIG_MAP)
    assert await client.get(CONFIG_MAPS, "x", namespace="a") == CONFIG_MAP
    request = server.requests[0]
    assert (request.method, request.path) == ("GET", "/api/v1/namespaces/a/configmaps/x")
    assert request.headers["Authorization"] == "Bearer t0ken"
    assert request.headers["Accept"] == "application/json"
    assert request.headers["User-Agent"] == "fipop"


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


async def test_the_clock_is_the_server_s(server, client):
    with pytest.raises(ApiUnreachableError) as caught:
        client.server_now()
    assert caught.value.reason == "NoAnswerYet"
    server.says(CONFIG_MAP, headers={"Date": "Sun, 01 Mar 2099 12:00:00 GMT"})
    asked = time.monotonic()
    await client.get(CONFIG_MAPS, "x", namespace="a")
    noon = datetime(2099, 3, 1, 12, 0, 0, tzinfo=UTC)
    passed = (client.server_now() - noon).total_seconds()
    assert 0 <= passed <= time.monotonic() - asked


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
