"""The fake guest API answers as a real one would in what it knows at all."""

import json
from typing import Any

import pytest

from localfleet.simulated import SimulatedGuest, merge_patch

MAPS = "/api/v1/namespaces/kube-system/configmaps"


@pytest.fixture
def guest() -> SimulatedGuest:
    return SimulatedGuest(latency_seconds=0.0)


async def ask(
    guest: SimulatedGuest,
    method: str,
    path: str,
    body: Any = None,
    *,
    accept: str = "application/json",
    content_type: str = "application/merge-patch+json",
    **query: str,
) -> tuple[int, dict[str, Any]]:
    payload = json.dumps(body).encode() if body is not None else b""
    answer = await guest.answer(method, path, query, accept, content_type, payload)
    return answer.status, answer.body


async def test_a_created_object_has_uid_and_version_and_a_second_create_is_409(guest: SimulatedGuest) -> None:
    manifest = {"metadata": {"name": "kubevip"}, "data": {"a": "1"}}
    status, made = await ask(guest, "POST", MAPS, manifest)
    assert status == 201
    assert made["metadata"]["uid"]
    assert made["metadata"]["namespace"] == "kube-system"
    assert (await ask(guest, "POST", MAPS, manifest))[0] == 409


async def test_a_stale_patch_is_409_and_a_patch_without_effect_keeps_the_version(
    guest: SimulatedGuest,
) -> None:
    _, made = await ask(guest, "POST", MAPS, {"metadata": {"name": "kubevip"}, "data": {"a": "1"}})
    patch = {
        "metadata": {"resourceVersion": made["metadata"]["resourceVersion"]},
        "data": {"a": "2", "b": None},
    }
    status, moved = await ask(guest, "PATCH", f"{MAPS}/kubevip", patch)
    assert (status, moved["data"]) == (200, {"a": "2"})
    assert moved["metadata"]["uid"] == made["metadata"]["uid"]
    assert (await ask(guest, "PATCH", f"{MAPS}/kubevip", patch))[0] == 409
    _, same = await ask(guest, "PATCH", f"{MAPS}/kubevip", {"data": {"a": "2"}})
    assert same["metadata"]["resourceVersion"] == moved["metadata"]["resourceVersion"]


async def test_a_list_can_be_of_metadata_only_selected_and_across_namespaces(guest: SimulatedGuest) -> None:
    for name, role in (("one", "kube-vip"), ("two", "other")):
        guest.put(
            "secrets", {"metadata": {"name": name, "namespace": name, "labels": {"role": role}}, "data": {}}
        )
    status, found = await ask(
        guest,
        "GET",
        "/api/v1/secrets",
        accept="application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        labelSelector="role in (kube-vip, kube-vip-cloud-provider),!gone",
    )
    assert (status, found["kind"]) == (200, "PartialObjectMetadataList")
    assert [one["metadata"]["name"] for one in found["items"]] == ["one"]
    assert "data" not in found["items"][0]


async def test_a_list_keeps_its_kind_and_group(guest: SimulatedGuest) -> None:
    _, found = await ask(guest, "GET", "/apis/apps/v1/daemonsets")
    assert (found["apiVersion"], found["kind"], found["items"]) == ("apps/v1", "DaemonSetList", [])


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("a=1", ["x"]),
        ("a==1", ["x"]),
        ("a!=1", ["y", "z"]),
        ("a", ["x", "y"]),
        ("!a", ["z"]),
        ("a notin (1)", ["y", "z"]),
        ("a=1,b", []),
    ],
)
async def test_selectors_choose_as_in_kubernetes(
    guest: SimulatedGuest, selector: str, names: list[str]
) -> None:
    for name, labels in (("x", {"a": "1"}), ("y", {"a": "2"}), ("z", {})):
        guest.put("nodes", {"metadata": {"name": name, "labels": labels}})
    _, found = await ask(guest, "GET", "/api/v1/nodes", labelSelector=selector)
    assert [one["metadata"]["name"] for one in found["items"]] == names


async def test_what_it_does_not_know_is_refused_not_guessed(guest: SimulatedGuest) -> None:
    assert (await ask(guest, "GET", "/apis/batch/v1/jobs"))[0] == 404
    guest.put("configmaps", {"metadata": {"name": "kubevip", "namespace": "kube-system"}})
    assert (await ask(guest, "PATCH", f"{MAPS}/kubevip", {}, content_type="application/apply-patch+yaml"))[
        0
    ] == 415


async def test_deleted_is_gone(guest: SimulatedGuest) -> None:
    guest.put("configmaps", {"metadata": {"name": "kubevip", "namespace": "kube-system"}})
    assert (await ask(guest, "DELETE", f"{MAPS}/kubevip"))[0] == 200
    assert (await ask(guest, "GET", f"{MAPS}/kubevip"))[0] == 404


def test_a_merge_patch_follows_the_standards_examples() -> None:
    assert merge_patch({"a": "b", "c": {"d": "e", "f": "g"}}, {"a": "z", "c": {"f": None}}) == {
        "a": "z",
        "c": {"d": "e"},
    }
    assert merge_patch({"a": [1]}, {"a": {"b": {"c": None}}}) == {"a": {"b": {}}}
    assert merge_patch("text", {"a": 1}) == {"a": 1}
