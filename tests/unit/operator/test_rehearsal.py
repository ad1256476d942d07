"""The API as it would be: our objects in memory, where writes go; everything else is read where it is."""

import pytest

from fipop.errors import ApiAlreadyExistsError, ApiConflictError, ApiNotFoundError
from fipop.kube.client import Listing
from fipop.kube.resources import FLOATING_IPS, SECRETS
from fipop.operator.rehearsal import RehearsalClient
from tests.harness.answering_client import AnsweringClient
from tests.harness.objects import NOW, Json, build_floating_ip

WEB = build_floating_ip("web")
VERSION = int(WEB["metadata"]["resourceVersion"])


def rehearsal() -> RehearsalClient:
    async def get(_resource: object, name: str, **_: object) -> Json:
        return {"metadata": {"name": name, "real": True}}

    real = AnsweringClient(get=get, now=NOW)
    return RehearsalClient(real, {FLOATING_IPS: Listing(items=(WEB,), resource_version=VERSION)})


async def test_what_is_not_ours_is_read_where_it_is() -> None:
    client = rehearsal()
    found = await client.get(SECRETS, "kubeconfig", namespace="fleet-default")
    assert found == {"metadata": {"name": "kubeconfig", "real": True}}
    assert await client.get(FLOATING_IPS, "web", namespace="c-m-1") == WEB
    assert await client.get(FLOATING_IPS, "other", namespace="c-m-1") is None


async def test_what_is_created_is_there_from_then_on_and_nowhere_else() -> None:
    client = rehearsal()
    body = {"metadata": {"name": "new", "namespace": "c-m-1"}, "spec": {}}
    made = await client.create(FLOATING_IPS, body)
    assert int(made["metadata"]["resourceVersion"]) > VERSION
    assert await client.get(FLOATING_IPS, "new", namespace="c-m-1") == made
    assert client.writes == 1
    with pytest.raises(ApiAlreadyExistsError):
        await client.create(FLOATING_IPS, body)


async def test_a_patch_merges_and_a_change_of_the_spec_is_another_generation() -> None:
    client = rehearsal()
    told = await client.merge_patch(
        FLOATING_IPS, "web", {"status": {"range": "pool"}}, namespace="c-m-1", subresource="status"
    )
    assert (told["status"], told["metadata"]["generation"]) == ({"range": "pool"}, 1)
    changed = await client.merge_patch(
        FLOATING_IPS, "web", {"spec": {"ipaddress": "10.0.0.1"}, "status": {"range": None}}, namespace="c-m-1"
    )
    assert (changed["spec"], changed["status"], changed["metadata"]["generation"]) == (
        *({"ipaddress": "10.0.0.1"}, {}),
        2,
    )


async def test_a_write_at_an_older_version_or_of_another_object_conflicts() -> None:
    client = rehearsal()
    await client.merge_patch(FLOATING_IPS, "web", {"status": {}}, namespace="c-m-1", subresource="status")
    with pytest.raises(ApiConflictError):
        await client.replace(FLOATING_IPS, WEB)
    stranger = {"metadata": {"uid": "another"}}
    with pytest.raises(ApiConflictError):
        await client.merge_patch(FLOATING_IPS, "web", stranger, namespace="c-m-1")
    with pytest.raises(ApiNotFoundError):
        await client.merge_patch(FLOATING_IPS, "gone", {}, namespace="c-m-1")


async def test_a_replaced_status_leaves_the_rest_and_what_is_deleted_is_gone() -> None:
    client = rehearsal()
    told = await client.replace(
        FLOATING_IPS,
        {**WEB, "spec": {"ipaddress": "lost"}, "status": {"range": "pool"}},
        subresource="status",
    )
    assert (told["spec"], told["status"]) == (WEB["spec"], {"range": "pool"})
    assert await client.delete(FLOATING_IPS, "web", namespace="c-m-1")
    assert not await client.delete(FLOATING_IPS, "web", namespace="c-m-1")
    assert await client.get(FLOATING_IPS, "web", namespace="c-m-1") is None
