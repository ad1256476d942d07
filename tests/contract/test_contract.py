"""What fipop and its tests may rely on in an API server, asked of the real one and of the two that replace it in tests.

Every case runs against every side. What a side lacks is declared in `sides.NOT_OFFERED`.
"""

from __future__ import annotations

import copy

import pytest

from fipop.errors import (
    ApiError,
    ConflictError,
    NamespaceTerminatingError,
    NotFoundError,
)
from fipop.kube.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    FLOATING_IP_RANGES,
    FLOATING_IP_RESERVATIONS,
    FLOATING_IPS,
    NAMESPACES,
    SECRETS,
    SERVICES,
)
from tests.contract import bodies
from tests.contract.bodies import Sample, build, build_config_map, build_held
from tests.contract.sides import (
    FEATURES,
    LIST,
    MISSING,
    NOT_OFFERED,
    OWN_KINDS,
    WATCH,
    Outcome,
    Side,
)

pytestmark = pytest.mark.xdist_group("management")

CONFLICT = (409, "Conflict", ConflictError)
EXISTS = (409, "AlreadyExists", ConflictError)
NOT_FOUND = (404, "NotFound", NotFoundError)
NOT_SERVED = (404, "NotFound", ApiError)
"""A namespace, a kind or a subresource is missing: nothing is said of the object."""
INVALID = (422, "Invalid", ApiError)

STATUSED = [pytest.param(each, id=each.resource.kind) for each in (bodies.FLOATING_IP, bodies.DEPLOYMENT)]
SAMPLES = [
    pytest.param(each, id=f"{each.resource.kind}-{each.resource.group or 'core'}")
    for each in (
        bodies.CONFIG_MAP,
        bodies.SECRET,
        bodies.SERVICE,
        bodies.POD,
        bodies.DEPLOYMENT,
        bodies.DAEMON_SET,
        bodies.NODE,
        bodies.NAMESPACE,
        bodies.FLOATING_IP,
        bodies.RANGE,
        bodies.PROVISIONING_CLUSTER,
        bodies.MANAGEMENT_CLUSTER,
    )
]


def require(side: Side, feature: str) -> None:
    """Skip the case if the side is declared not to have the feature."""
    reason = NOT_OFFERED[side.name].get(feature)
    if reason is not None:
        pytest.skip(f"{side.name} has no {feature}: {reason}")


def require_kind(side: Side, sample: Sample) -> None:
    if sample.is_custom:
        require(side, OWN_KINDS)


async def made(side: Side, home: str, **fields: object) -> Outcome:
    """Create a ConfigMap "one"."""
    outcome = await side.create(CONFIG_MAPS, build_config_map(home, **fields))
    assert outcome.error is None, outcome
    return outcome


async def patched(side: Side, home: str, patch: dict) -> Outcome:
    outcome = await side.merge_patch(CONFIG_MAPS, "one", patch, namespace=home)
    assert outcome.error is None, outcome
    return outcome


# What a side offers


@pytest.mark.parametrize("feature", FEATURES)
async def test_what_a_side_does_not_offer_is_declared(side: Side, feature: str) -> None:
    assert await side.offers(feature) is (feature not in NOT_OFFERED[side.name])


# Create


async def test_a_created_object_has_what_the_server_adds(side: Side, home: str) -> None:
    first = await made(side, home, labels={"a": "b"})
    assert (first.metadata["name"], first.metadata["namespace"]) == ("one", home)
    assert first.metadata["uid"]
    assert first.metadata["creationTimestamp"].endswith("Z")
    assert first.version > 0
    assert first.metadata["labels"] == {"a": "b"}
    assert first.body["data"] == {"a": "1"}
    again = await side.get(CONFIG_MAPS, "one", namespace=home)
    assert again.body == first.body


async def test_an_existing_name_is_refused_and_the_object_is_left(side: Side, home: str) -> None:
    first = await made(side, home)
    outcome = await side.create(CONFIG_MAPS, build_config_map(home, data={"b": "2"}))
    assert outcome.refusal == EXISTS
    assert (await side.get(CONFIG_MAPS, "one", namespace=home)).body == first.body


async def test_the_uid_and_the_time_of_creation_are_the_servers(side: Side, home: str) -> None:
    first = await made(side, home, uid="of-the-client", creationTimestamp="2001-01-01T00:00:00Z")
    assert first.metadata["uid"] != "of-the-client"
    assert not first.metadata["creationTimestamp"].startswith("2001")


async def test_nothing_is_created_in_a_missing_namespace(side: Side) -> None:
    assert (await side.create(CONFIG_MAPS, build_config_map("nowhere"))).refusal == NOT_SERVED


async def test_nothing_is_created_in_a_namespace_that_is_being_deleted(side: Side, home: str) -> None:
    await made(side, home, finalizers=["example.test/hold"])
    assert (await side.delete(NAMESPACES, home)).error is None
    outcome = await side.create(CONFIG_MAPS, build_config_map(home, "two"))
    assert outcome.refusal == (403, "NamespaceTerminating", NamespaceTerminatingError)
    assert (await side.get(NAMESPACES, home)).metadata["deletionTimestamp"]


# Read


async def test_a_missing_object_is_none_and_is_deleted_already(side: Side, home: str) -> None:
    assert await side.get(CONFIG_MAPS, "one", namespace=home) == MISSING
    assert await side.get(CONFIG_MAPS, "one", namespace="nowhere") == MISSING
    assert await side.get(NAMESPACES, "nowhere") == MISSING
    assert await side.delete(CONFIG_MAPS, "one", namespace=home) == MISSING
    assert await side.delete(CONFIG_MAPS, "one", namespace=home, uid="x", resource_version="1") == MISSING


async def test_a_missing_object_cannot_be_changed(side: Side, home: str) -> None:
    assert (await side.replace(CONFIG_MAPS, build_config_map(home))).refusal == NOT_FOUND
    assert (await side.merge_patch(CONFIG_MAPS, "one", {}, namespace=home)).refusal == NOT_FOUND
    stale = {"metadata": {"resourceVersion": "1", "uid": "x"}}
    assert (await side.merge_patch(CONFIG_MAPS, "one", stale, namespace=home)).refusal == NOT_FOUND


async def test_a_changed_answer_changes_nothing_in_the_store(side: Side, home: str) -> None:
    body = build_config_map(home)
    outcome = await side.create(CONFIG_MAPS, body)
    before = copy.deepcopy(outcome.body)
    for each in (body, outcome.body, (await patched(side, home, {})).body):
        each["data"]["a"] = "changed"
        each["metadata"]["name"] = "changed"
    got = (await side.get(CONFIG_MAPS, "one", namespace=home)).body
    assert got == before
    got["data"]["a"] = "changed"
    assert (await side.get(CONFIG_MAPS, "one", namespace=home)).body == before


# Merge patch


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"a": None}, {"b": "2"}),
        ({"absent": None}, {"a": "1", "b": "2"}),
        ({"c": "3"}, {"a": "1", "b": "2", "c": "3"}),
        ({"a": "9", "b": None, "c": "3"}, {"a": "9", "c": "3"}),
        ({"a": None, "b": None}, None),
        (None, None),
        ({}, {"a": "1", "b": "2"}),
    ],
)
async def test_a_merge_patch_changes_the_named_keys_and_null_removes(
    side: Side, home: str, patch: dict | None, expected: dict | None
) -> None:
    await made(side, home, data={"a": "1", "b": "2"})
    outcome = await patched(side, home, {"data": patch})
    assert (outcome.body.get("data") or None) == expected
    assert (await side.get(CONFIG_MAPS, "one", namespace=home)).body == outcome.body


async def test_a_patch_without_effect_changes_no_version(side: Side, home: str) -> None:
    first = await made(side, home, labels={"a": "b"})
    same = {"metadata": {"labels": {"a": "b", "c": None}}, "data": {"a": "1", "z": None}}
    await patched(side, home, same)
    # The first patch may note that a client owns a field, which is a change.
    second = await patched(side, home, same)
    assert second.version == (await patched(side, home, {})).version
    assert second.version == (await patched(side, home, same)).version
    assert second.metadata["uid"] == first.metadata["uid"]


@pytest.mark.parametrize("which", ["labels", "annotations"])
async def test_labels_and_annotations_are_merged(side: Side, home: str, which: str) -> None:
    first = await made(side, home, **{which: {"a": "1", "b": "2"}})
    outcome = await patched(side, home, {"metadata": {which: {"a": None, "c": "3"}}})
    assert outcome.metadata[which] == {"b": "2", "c": "3"}
    assert outcome.version > first.version
    outcome = await patched(side, home, {"metadata": {which: None}})
    assert not outcome.metadata.get(which)
    assert outcome.body["data"] == {"a": "1"}


async def test_a_patch_of_what_is_the_servers_changes_nothing(side: Side, home: str) -> None:
    first = await made(side, home)
    for metadata in ({"creationTimestamp": "2001-01-01T00:00:00Z"}, {"generation": 7}, {"uid": None}):
        outcome = await side.merge_patch(CONFIG_MAPS, "one", {"metadata": metadata}, namespace=home)
        assert outcome.body == first.body, metadata
    deleted = {"metadata": {"deletionTimestamp": "2001-01-01T00:00:00Z"}}
    assert (await side.merge_patch(CONFIG_MAPS, "one", deleted, namespace=home)).refusal == INVALID
    assert (await side.get(CONFIG_MAPS, "one", namespace=home)).body == first.body


# Preconditions


async def test_a_stale_version_is_a_conflict_and_changes_nothing(side: Side, home: str) -> None:
    first = await made(side, home)
    second = await patched(side, home, {"data": {"a": "2"}})
    stale = first.metadata["resourceVersion"]
    outcome = await side.merge_patch(
        CONFIG_MAPS, "one", {"metadata": {"resourceVersion": stale}, "data": {"a": "3"}}, namespace=home
    )
    assert outcome.refusal == CONFLICT
    assert (await side.replace(CONFIG_MAPS, first.body)).refusal == CONFLICT
    assert (await side.delete(CONFIG_MAPS, "one", namespace=home, resource_version=stale)).refusal == CONFLICT
    assert (await side.get(CONFIG_MAPS, "one", namespace=home)).body == second.body


async def test_a_stale_version_is_a_conflict_without_a_change_too(side: Side, home: str) -> None:
    first = await made(side, home)
    await patched(side, home, {"data": {"a": "2"}})
    stale = {"metadata": {"resourceVersion": first.metadata["resourceVersion"]}}
    outcome = await side.merge_patch(CONFIG_MAPS, "one", stale, namespace=home)
    assert outcome.refusal == CONFLICT


@pytest.mark.parametrize("sample", STATUSED)
async def test_another_uid_is_refused_and_changes_nothing(side: Side, home: str, sample: Sample) -> None:
    require_kind(side, sample)
    resource = sample.resource
    first = await side.create(resource, sample.build(home))
    other = {"uid": "11111111-2222-3333-4444-555555555555"}
    replaced = {**first.body, "metadata": {**first.metadata, **other}}
    assert (await side.replace(resource, replaced)).refusal == CONFLICT
    assert (await side.replace(resource, replaced, subresource="status")).refusal == CONFLICT
    patch = {"metadata": other, **sample.change}
    # For a patch the uid is a field like another one, and no precondition.
    assert (await side.merge_patch(resource, "one", patch, namespace=home)).refusal == INVALID
    assert (await side.delete(resource, "one", namespace=home, **other)).refusal == CONFLICT
    assert (await side.get(resource, "one", namespace=home)).body == first.body


@pytest.mark.parametrize("sample", STATUSED)
async def test_a_patch_for_a_former_object_of_the_name_is_a_conflict(
    side: Side, home: str, sample: Sample
) -> None:
    require_kind(side, sample)
    resource = sample.resource
    former = await side.create(resource, sample.build(home))
    await side.delete(resource, "one", namespace=home)
    heir = await side.create(resource, sample.build(home))
    known = {each: former.metadata[each] for each in ("uid", "resourceVersion")}
    for subresource in (None, "status"):
        outcome = await side.merge_patch(
            resource, "one", {"metadata": known, "status": {}}, namespace=home, subresource=subresource
        )
        assert outcome.refusal == CONFLICT
    assert (await side.get(resource, "one", namespace=home)).body == heir.body


async def test_a_patch_of_the_status_of_a_custom_kind_does_not_look_at_the_uid(side: Side, home: str) -> None:
    require(side, OWN_KINDS)
    await side.create(FLOATING_IPS, bodies.FLOATING_IP.build(home))
    patch = {"metadata": {"uid": "11111111-2222-3333-4444-555555555555"}, "status": {"observedGeneration": 5}}
    outcome = await side.merge_patch(FLOATING_IPS, "one", patch, namespace=home, subresource="status")
    assert outcome.body["status"] == {"observedGeneration": 5}


async def test_preconditions_that_hold_let_the_write_through(side: Side, home: str) -> None:
    first = await made(side, home)
    known = {each: first.metadata[each] for each in ("uid", "resourceVersion")}
    second = await patched(side, home, {"metadata": known, "data": {"a": "2"}})
    replaced = await side.replace(CONFIG_MAPS, {**second.body, "data": {"a": "3"}})
    assert replaced.body["data"] == {"a": "3"}
    outcome = await side.delete(
        CONFIG_MAPS, "one", namespace=home, uid=known["uid"], resource_version=str(replaced.version)
    )
    assert outcome.status == 200
    assert await side.get(CONFIG_MAPS, "one", namespace=home) == MISSING


# Replace


async def test_a_replace_leaves_nothing_of_the_former_object(side: Side, home: str) -> None:
    first = await made(side, home, data={"a": "1", "b": "2"}, labels={"a": "b"}, annotations={"c": "d"})
    body = build_config_map(home, data={"c": "3"}, resourceVersion=first.metadata["resourceVersion"])
    outcome = await side.replace(CONFIG_MAPS, body)
    assert outcome.body["data"] == {"c": "3"}
    assert not outcome.metadata.get("labels")
    assert not outcome.metadata.get("annotations")
    assert outcome.version > first.version
    for field in ("uid", "creationTimestamp", "name", "namespace"):
        assert outcome.metadata[field] == first.metadata[field], field


async def test_a_replace_by_the_same_changes_no_version(side: Side, home: str) -> None:
    first = await made(side, home)
    outcome = await side.replace(CONFIG_MAPS, first.body)
    again = await side.replace(CONFIG_MAPS, outcome.body)
    assert again.body == outcome.body


async def test_a_replace_of_a_missing_object_is_not_found_but_makes_a_service(side: Side, home: str) -> None:
    for sample in (bodies.CONFIG_MAP, bodies.DEPLOYMENT):
        first = await side.create(sample.resource, sample.build(home))
        renamed = {**first.body, "metadata": {**first.metadata, "name": "two"}}
        assert (await side.replace(sample.resource, renamed)).refusal == NOT_FOUND
        assert await side.get(sample.resource, "two", namespace=home) == MISSING
    first = await side.create(SERVICES, bodies.SERVICE.build(home))
    renamed = {**first.body, "metadata": {**first.metadata, "name": "two"}}
    assert (await side.replace(SERVICES, renamed)).refusal == CONFLICT, "the uid is of another object"
    assert (await side.replace(SERVICES, renamed, subresource="status")).refusal == CONFLICT
    assert (await side.replace(SERVICES, bodies.SERVICE.build(home, "two"))).error is None
    assert (await side.get(SERVICES, "two", namespace=home)).metadata["uid"] != first.metadata["uid"]


@pytest.mark.parametrize("sample", SAMPLES)
async def test_only_a_replace_of_a_custom_kind_needs_a_version(side: Side, home: str, sample: Sample) -> None:
    require_kind(side, sample)
    first = await side.create(sample.resource, sample.build(home, f"{home}-one"))
    body = copy.deepcopy(first.body)
    del body["metadata"]["resourceVersion"]
    outcome = await side.replace(sample.resource, body)
    assert outcome.refusal == (INVALID if sample.is_custom else (200, "", None))


async def test_a_patch_that_takes_the_version_away_is_refused_for_a_custom_kind(
    side: Side, home: str
) -> None:
    patch = {"metadata": {"resourceVersion": None}}
    await made(side, home)
    assert (await side.merge_patch(CONFIG_MAPS, "one", patch, namespace=home)).error is None
    require(side, OWN_KINDS)
    await side.create(FLOATING_IPS, bodies.FLOATING_IP.build(home))
    assert (await side.merge_patch(FLOATING_IPS, "one", patch, namespace=home)).refusal == INVALID


# Status


@pytest.mark.parametrize("sample", SAMPLES)
async def test_the_generation_grows_with_the_spec_only_where_a_kind_counts_it(
    side: Side, home: str, sample: Sample
) -> None:
    require_kind(side, sample)
    name, resource = f"{home}-one", sample.resource
    place = {"namespace": home} if resource.namespaced else {}
    seen = [await side.create(resource, sample.build(home, name, generation=7))]
    for patch in (
        {"metadata": {"labels": {"a": "1"}}},
        dict(sample.change),
        {},
        {"metadata": {"annotations": {"a": "1"}}},
    ):
        seen.append(await side.merge_patch(resource, name, patch, **place))
        assert seen[-1].error is None, seen[-1]
    assert tuple(each.generation for each in seen) == sample.generations


@pytest.mark.parametrize("sample", SAMPLES)
async def test_only_some_kinds_have_the_status_subresource(side: Side, home: str, sample: Sample) -> None:
    require_kind(side, sample)
    name, resource = f"{home}-one", sample.resource
    place = {"namespace": home} if resource.namespaced else {}
    first = await side.create(resource, sample.build(home, name))
    metadata = {"labels": {"a": "1"}, "annotations": {"a": "1"}}
    outcome = await side.merge_patch(resource, name, {"metadata": metadata}, subresource="status", **place)
    replaced = await side.replace(resource, first.body, subresource="status")
    if not sample.has_status:
        # Of custom kinds a real API server names the object all the same: only the code counts here.
        assert {outcome.refusal[:2], replaced.refusal[:2]} == {NOT_SERVED[:2]}
        return
    found = {each: (outcome.metadata.get(each) or {}).get("a") == "1" for each in metadata}
    # Written with the status are the metadata of built-in kinds, except the labels of a Deployment.
    assert found == {
        "labels": not sample.is_custom and resource is not DEPLOYMENTS,
        "annotations": not sample.is_custom,
    }
    assert outcome.generation in (None, 1, sample.generations[-1] - 1)
    assert replaced.error in (None, ConflictError)


@pytest.mark.parametrize("sample", STATUSED)
async def test_a_created_object_has_no_status_of_the_client(side: Side, home: str, sample: Sample) -> None:
    require_kind(side, sample)
    body = sample.build(home) | {"status": {"observedGeneration": 7}}
    outcome = await side.create(sample.resource, body)
    assert not outcome.body.get("status")
    assert outcome.body.get("status", {}) == (
        await side.get(sample.resource, "one", namespace=home)
    ).body.get("status", {})


@pytest.mark.parametrize("sample", STATUSED)
async def test_status_and_the_rest_are_written_apart(side: Side, home: str, sample: Sample) -> None:
    require_kind(side, sample)
    resource = sample.resource
    await side.create(resource, sample.build(home))
    both = {**sample.change, "status": {"observedGeneration": 5}, "metadata": {"labels": {"a": "b"}}}
    outcome = await side.merge_patch(resource, "one", both, namespace=home, subresource="status")
    assert outcome.body["status"] == {"observedGeneration": 5}
    assert outcome.generation == 1
    before = outcome
    outcome = await side.merge_patch(
        resource, "one", {"status": {"observedGeneration": 6}, **sample.change}, namespace=home
    )
    assert outcome.body["status"] == {"observedGeneration": 5}
    assert outcome.generation == 2
    assert outcome.body["spec"] != before.body["spec"]
    again = await side.merge_patch(resource, "one", {"status": {"observedGeneration": 8}}, namespace=home)
    assert again.body == outcome.body
    outcome = await side.merge_patch(resource, "one", {"status": None}, namespace=home)
    assert outcome.body["status"] == {"observedGeneration": 5}
    outcome = await side.merge_patch(resource, "one", {"status": None}, namespace=home, subresource="status")
    assert not outcome.body.get("status")


@pytest.mark.parametrize("sample", STATUSED)
async def test_a_replace_of_either_half_leaves_the_other(side: Side, home: str, sample: Sample) -> None:
    require_kind(side, sample)
    resource = sample.resource
    first = await side.create(resource, sample.build(home))
    body = copy.deepcopy(first.body) | {
        "status": {"observedGeneration": 5},
        "spec": {**first.body["spec"], **sample.change["spec"]},
    }
    second = await side.replace(resource, body, subresource="status")
    assert second.body["status"] == {"observedGeneration": 5}
    assert second.body["spec"] == first.body["spec"]
    assert second.generation == 1
    body["metadata"]["resourceVersion"] = second.metadata["resourceVersion"]
    body["status"] = {"observedGeneration": 6}
    third = await side.replace(resource, body)
    assert third.body["status"] == {"observedGeneration": 5}
    assert third.generation == 2
    for subresource in (None, "status"):
        assert (await side.replace(resource, second.body, subresource=subresource)).refusal == CONFLICT
    del third.body["status"]
    fourth = await side.replace(resource, third.body)
    assert fourth.body["status"] == {"observedGeneration": 5}


async def test_a_kind_without_the_subresource_has_no_status_to_write(side: Side, home: str) -> None:
    first = await made(side, home)
    outcome = await side.merge_patch(CONFIG_MAPS, "one", {"status": {}}, namespace=home, subresource="status")
    assert outcome.refusal == NOT_SERVED
    outcome = await side.replace(CONFIG_MAPS, first.body, subresource="status")
    assert outcome.refusal == NOT_SERVED
    for subresource in (None, "status"):
        outcome = await side.merge_patch(
            DEPLOYMENTS, "one", {"status": {}}, namespace=home, subresource=subresource
        )
        assert outcome.refusal == NOT_FOUND


async def test_an_empty_subresource_is_the_object_itself(side: Side, home: str) -> None:
    require(side, OWN_KINDS)
    await side.create(FLOATING_IPS, bodies.FLOATING_IP.build(home))
    patch = dict(bodies.FLOATING_IP.change)
    outcome = await side.merge_patch(FLOATING_IPS, "one", patch, namespace=home, subresource="")
    assert (outcome.body["spec"], outcome.generation) == (patch["spec"], 2)


async def test_a_reservation_has_no_status_subresource(side: Side) -> None:
    require(side, OWN_KINDS)
    made = await side.create(FLOATING_IP_RESERVATIONS, build_held("10.9.0.1"))
    assert made.generation == 1
    name = made.metadata["name"]
    outcome = await side.merge_patch(FLOATING_IP_RESERVATIONS, name, {"status": {}}, subresource="status")
    assert outcome.refusal[:2] == NOT_SERVED[:2]
    later = "2026-01-02T00:00:00Z"
    outcome = await side.merge_patch(FLOATING_IP_RESERVATIONS, name, {"spec": {"quarantinedUntil": later}})
    assert outcome.generation == 2
    outcome = await side.merge_patch(FLOATING_IP_RESERVATIONS, name, {"spec": {"quarantinedUntil": None}})
    assert "quarantinedUntil" not in outcome.body["spec"]
    await side.delete(FLOATING_IP_RESERVATIONS, name)


# Defaults


async def test_a_floating_ip_without_a_spec_has_an_empty_one(side: Side, home: str) -> None:
    require(side, OWN_KINDS)
    outcome = await side.create(FLOATING_IPS, build(FLOATING_IPS, home, "one", {}))
    assert outcome.body["spec"] == {}
    outcome = await side.merge_patch(FLOATING_IPS, "one", {"spec": None}, namespace=home)
    assert outcome.body["spec"] == {}
    assert outcome.generation == 1
    assert (await side.get(FLOATING_IPS, "one", namespace=home)).body["spec"] == {}


async def test_a_range_has_the_defaults_of_its_schema(side: Side, home: str) -> None:
    require(side, OWN_KINDS)
    body = build(FLOATING_IP_RANGES, "", home, {"spec": {"iprange": "10.8.0.0/24", "searchOrder": "desc"}})
    outcome = await side.create(FLOATING_IP_RANGES, body)
    defaults = {
        "addressSpace": "default",
        "avoidBuggyIPs": True,
        "draining": False,
        "quarantineSeconds": 600,
        "restrictToMatching": False,
        "skipEndIPs": True,
    }
    assert outcome.body["spec"] == {"iprange": "10.8.0.0/24", "searchOrder": "desc", **defaults}
    outcome = await side.merge_patch(FLOATING_IP_RANGES, home, {"spec": {"searchOrder": None}})
    assert outcome.body["spec"]["searchOrder"] == "asc"
    await side.delete(FLOATING_IP_RANGES, home)


# Delete


async def test_a_deleted_object_is_gone_and_its_name_is_free(side: Side, home: str) -> None:
    first = await made(side, home)
    assert (await side.delete(CONFIG_MAPS, "one", namespace=home)).status == 200
    assert await side.get(CONFIG_MAPS, "one", namespace=home) == MISSING
    assert await side.delete(CONFIG_MAPS, "one", namespace=home) == MISSING
    again = await made(side, home)
    assert again.metadata["uid"] != first.metadata["uid"]
    assert again.version > first.version


async def test_an_object_with_a_finalizer_stays_until_the_finalizer_is_gone(side: Side, home: str) -> None:
    first = await made(side, home, finalizers=["example.test/hold"])
    assert (await side.delete(CONFIG_MAPS, "one", namespace=home)).status == 200
    held = await side.get(CONFIG_MAPS, "one", namespace=home)
    assert held.metadata["deletionTimestamp"]
    assert held.version > first.version
    assert (await side.delete(CONFIG_MAPS, "one", namespace=home)).status == 200
    again = await side.get(CONFIG_MAPS, "one", namespace=home)
    assert again.body == held.body, "a second delete changes nothing"
    assert (await side.create(CONFIG_MAPS, build_config_map(home))).refusal == EXISTS
    changed = await patched(side, home, {"data": {"a": "2"}})
    assert changed.metadata["deletionTimestamp"] == held.metadata["deletionTimestamp"]
    more = {"metadata": {"finalizers": ["example.test/hold", "example.test/more"]}}
    assert (await side.merge_patch(CONFIG_MAPS, "one", more, namespace=home)).refusal == INVALID
    last = await patched(side, home, {"metadata": {"finalizers": []}})
    assert last.metadata["uid"] == first.metadata["uid"]
    assert await side.get(CONFIG_MAPS, "one", namespace=home) == MISSING


async def test_a_deletion_that_waits_is_a_new_generation(side: Side, home: str) -> None:
    body = bodies.DEPLOYMENT.build(home, finalizers=["example.test/hold"])
    first = await side.create(DEPLOYMENTS, body)
    await side.delete(DEPLOYMENTS, "one", namespace=home)
    held = await side.get(DEPLOYMENTS, "one", namespace=home)
    assert (first.generation, held.generation) == (1, 2)
    body = {**held.body, "metadata": {**held.metadata, "finalizers": []}}
    outcome = await side.replace(DEPLOYMENTS, body)
    assert outcome.error is None
    assert await side.get(DEPLOYMENTS, "one", namespace=home) == MISSING


# Versions


async def test_versions_grow_with_every_write_to_the_store(side: Side, home: str) -> None:
    versions = [
        (await made(side, home)).version,
        (await side.create(SECRETS, build(SECRETS, home, "one", {}))).version,
        (await patched(side, home, {"data": {"a": "2"}})).version,
    ]
    await side.delete(SECRETS, "one", namespace=home)
    versions.append((await side.create(SECRETS, build(SECRETS, home, "one", {}))).version)
    assert versions == sorted(set(versions))
    assert versions[3] > versions[2] + 1, "a deletion has a version too"


# Lists


async def test_a_list_has_the_objects_of_its_namespace(side: Side, home: str) -> None:
    require(side, LIST)
    await side.make_namespace(f"{home}-other")
    for place, name in ((home, "b"), (home, "a"), (f"{home}-other", "c")):
        await side.create(CONFIG_MAPS, build_config_map(place, name))
    found, version = await side.list(CONFIG_MAPS, namespace=home)
    names = [each["metadata"]["name"] for each in found if each["metadata"]["name"] != "kube-root-ca.crt"]
    assert names == ["a", "b"]
    assert version >= max(int(each["metadata"]["resourceVersion"]) for each in found)
    everywhere, _ = await side.list(CONFIG_MAPS)
    assert {(home, "a"), (home, "b"), (f"{home}-other", "c")} <= {
        (each["metadata"]["namespace"], each["metadata"]["name"]) for each in everywhere
    }
    assert (await side.list(CONFIG_MAPS, namespace="nowhere"))[0] == []


async def test_the_version_of_a_list_grows_with_the_store(side: Side, home: str) -> None:
    require(side, LIST)
    await made(side, home)
    _, before = await side.list(CONFIG_MAPS, namespace=home)
    await side.delete(CONFIG_MAPS, "one", namespace=home)
    _, after = await side.list(CONFIG_MAPS, namespace=home)
    assert after > before


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("a=1", ["x"]),
        ("a==1", ["x"]),
        ("a!=1", ["y", "z"]),
        ("a", ["x", "y"]),
        ("!a", ["z"]),
        ("a in (1, 2)", ["x", "y"]),
        ("a notin (1)", ["y", "z"]),
        ("a=1,b=2", []),
        ("a,b=3", ["y"]),
        ("", ["x", "y", "z"]),
    ],
)
async def test_a_label_selector_chooses(side: Side, home: str, selector: str, expected: list[str]) -> None:
    require(side, LIST)
    for name, labels in (("x", {"a": "1"}), ("y", {"a": "2", "b": "3"}), ("z", {})):
        await side.create(SECRETS, build(SECRETS, home, name, {}, labels=labels))
    found, _ = await side.list(SECRETS, namespace=home, label_selector=selector)
    assert [each["metadata"]["name"] for each in found] == expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("metadata.name=x", ["x"]),
        ("metadata.name!=x", ["y"]),
        ("spec.type=LoadBalancer", ["y"]),
        ("metadata.name=x,spec.type=LoadBalancer", []),
    ],
)
async def test_a_field_selector_chooses(side: Side, home: str, selector: str, expected: list[str]) -> None:
    require(side, LIST)
    for name, kind in (("x", "ClusterIP"), ("y", "LoadBalancer")):
        await side.create(
            SERVICES, build(SERVICES, home, name, {"spec": {"type": kind, "ports": [{"port": 80}]}})
        )
    found, _ = await side.list(SERVICES, namespace=home, field_selector=selector)
    assert [each["metadata"]["name"] for each in found] == expected


async def test_a_field_that_a_kind_cannot_select_by_is_refused(side: Side, home: str) -> None:
    require(side, LIST)
    for selector in ("spec.type=LoadBalancer", "data.a=1"):
        with pytest.raises(ApiError) as caught:
            await side.list(CONFIG_MAPS, namespace=home, field_selector=selector)
        assert (caught.value.status, caught.value.reason) == (400, "BadRequest")


async def test_a_list_of_metadata_has_nothing_else(side: Side, home: str) -> None:
    require(side, LIST)
    first = await made(side, home, labels={"a": "b"})
    found, _ = await side.list(CONFIG_MAPS, namespace=home, metadata_only=True, label_selector="a=b")
    assert [each["metadata"] for each in found] == [first.metadata]
    assert set(found[0]) <= {"metadata", "kind", "apiVersion"}


# Watches


async def test_a_watch_has_every_change_in_its_order(side: Side, home: str) -> None:
    require(side, WATCH)
    start = (await side.get(NAMESPACES, home)).version
    async with side.watch(SECRETS, home, start) as events:
        first = await side.create(SECRETS, build(SECRETS, home, "one", {}))
        second = await side.merge_patch(SECRETS, "one", {"data": {"a": "MQ=="}}, namespace=home)
        await side.merge_patch(SECRETS, "one", {"data": {"a": "MQ=="}}, namespace=home)
        await side.create(SECRETS, build(SECRETS, home, "two", {}))
        await side.delete(SECRETS, "one", namespace=home)
        third = await side.create(SECRETS, build(SECRETS, home, "one", {}))
        found = await events.take(5)
    assert [(each.type, each.name) for each in found] == [
        ("ADDED", "one"),
        ("MODIFIED", "one"),
        ("ADDED", "two"),
        ("DELETED", "one"),
        ("ADDED", "one"),
    ]
    assert (found[0].version, found[1].version, found[4].version) == (
        first.version,
        second.version,
        third.version,
    )
    versions = [each.version for each in found]
    assert versions == sorted(set(versions)), "a deletion has a version of its own"


async def test_a_watch_shows_a_deletion_that_waits_as_a_change(side: Side, home: str) -> None:
    require(side, WATCH)
    start = (await side.get(NAMESPACES, home)).version
    async with side.watch(SECRETS, home, start) as events:
        await side.create(SECRETS, build(SECRETS, home, "one", {}, finalizers=["example.test/hold"]))
        await side.delete(SECRETS, "one", namespace=home)
        await side.merge_patch(SECRETS, "one", {"metadata": {"finalizers": None}}, namespace=home)
        found = await events.take(3)
    assert [each.type for each in found] == ["ADDED", "MODIFIED", "DELETED"]
    versions = [each.version for each in found]
    assert versions == sorted(set(versions))
