"""What is read with the reader's own rights: what is refused is named, and the rest is told."""

from collections.abc import Sequence
from typing import Any

import pytest

from fipop.errors import ApiError, UnavailableError
from fipop.jsons import Json
from fipop.kube.resources import (
    DEPLOYMENTS,
    FLOATING_IP_RANGES,
    FLOATING_IPS,
    PROVISIONING_CLUSTERS,
    Listing,
    Resource,
)
from fipop.report.reading import NotManagementClusterError, read_leadership, read_snapshot, read_workload
from fipop.report.snapshot import Snapshot
from tests.harness.answering_client import AnsweringClient
from tests.harness.objects import NOW, build_floating_ip


async def read(
    errors: dict[Resource, Exception],
    objects: dict[str, Any] | None = None,
    *,
    deployments: Sequence[Json] = (),
    **options: Any,
) -> Snapshot:
    async def find(resource: Resource, *_: object, **__: object) -> None:
        if resource in errors:
            raise errors[resource]

    async def list_all(resource: Resource, *, project: Any = None, **__: object) -> Any:
        await find(resource)
        items = {FLOATING_IPS: [build_floating_ip("web")], DEPLOYMENTS: deployments}.get(resource, ())
        return Listing(items=tuple(map(project, items) if project else items), resource_version=9)

    async def get(resource: Resource, name: str, **__: object) -> Any:
        await find(resource)
        return (objects or {}).get(name)

    client = AnsweringClient(list=list_all, get=get, now=NOW)
    return await read_snapshot(client, namespace="kube-fip", **options)


def error(kind: type[ApiError], status: int = 0) -> ApiError:
    return kind("list X", status=status)


async def test_a_server_that_does_not_know_us_or_is_in_trouble_is_told_too() -> None:
    found = await read({FLOATING_IPS: error(ApiError, 404)}, about_operator=False)
    assert [(each.forbidden, "floatingips" in each.problem) for each in found.unread] == [(False, True)]
    found = await read({FLOATING_IPS: error(UnavailableError, 500)}, about_operator=False)
    assert "500" in found.unread[0].problem


async def test_a_cluster_with_neither_rancher_nor_fipop_is_not_the_management_cluster() -> None:
    unknown = dict.fromkeys((FLOATING_IP_RANGES, FLOATING_IPS, PROVISIONING_CLUSTERS), error(ApiError, 404))
    with pytest.raises(NotManagementClusterError, match="is it the management cluster"):
        await read(dict(unknown), about_operator=False)
    del unknown[PROVISIONING_CLUSTERS]
    assert (await read(dict(unknown), about_operator=False)).unread, "Rancher is there, fipop not yet"


@pytest.mark.parametrize("failure", [error(UnavailableError), error(ApiError, 401)])
async def test_without_any_access_there_is_nothing_to_tell(failure: ApiError) -> None:
    with pytest.raises(ApiError):
        await read({FLOATING_IPS: failure}, about_operator=False)


async def test_the_options_are_read_as_the_operator_reads_them() -> None:
    found = await read({}, {"kube-fip-config": {"data": {"logLevel": "Shout"}}})
    assert found.installation.has_settings
    assert [each.option for each in found.installation.bad_options] == ["logLevel"]


@pytest.mark.parametrize(
    ("wanted", "status", "found"),
    [
        (1, {"replicas": 1, "readyReplicas": 1}, "kube-fip/kube-fip-operator"),
        (0, {"replicas": 1}, "kube-fip/kube-fip-operator"),
        (0, {}, ""),
    ],
)
async def test_the_predecessor_runs_for_commands_as_long_as_it_does_for_the_operator(
    wanted: int, status: Json, found: str
) -> None:
    """A pod that is not ready, and ends, keeps the operator idle, too."""
    metadata = {"namespace": "kube-fip", "name": "kube-fip-operator"}
    deployment = {"metadata": metadata, "spec": {"replicas": wanted}, "status": status}
    snapshot = await read({}, deployments=[deployment])
    assert snapshot.installation.running_predecessor == found


def test_objects_of_any_shape_are_read_as_nothing() -> None:
    assert read_leadership({"spec": "x"}).holder == ""
    for text, waits in (("a.\nb.", ("a.", "b.")), ("", ()), (7, ())):
        annotations = {"kubefip.k8s.binbash.org/waits": text}
        assert read_leadership({"metadata": {"annotations": annotations}}).waits == waits
    assert read_workload({"spec": {"replicas": "many", "template": []}, "status": None}).wanted == 0
