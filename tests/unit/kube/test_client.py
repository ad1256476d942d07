"""Writes: what they say, and who may send them."""

import json

import pytest

from fipop.errors import (
    ApiInvalidError,
    ApiNotFoundError,
    ApiUnreachableError,
    NotLeadingError,
)
from fipop.kube.client import KubeClient
from fipop.kube.resources import CONFIG_MAPS, FLOATING_IPS
from tests.unit.kube.servers import CONFIG_MAP


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
        with pytest.raises(NotLeadingError):
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
