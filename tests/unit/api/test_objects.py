"""Objects are read as the CRDs have them, and written as they were read; what does not fit says so."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from fipop.api import names
from fipop.api.codec import UnreadableError, format_time, read, write, write_patch
from fipop.api.conditions import Condition, ConditionType, Verdict
from fipop.api.objects import (
    EPOCH,
    INT64_MAX,
    FloatingIP,
    FloatingIPRange,
    FloatingIPReservation,
    FloatingIPStatus,
    GuestStatus,
    LabelSelector,
    Metadata,
    RangeSpec,
    RangeStatus,
    ReleaseStatus,
    Reported,
    SearchOrder,
    build_body,
    build_capacity,
    read_object,
)
from fipop.ipam.addresses import Family, FamilyPolicy
from fipop.ipam.ranges import AddressCounts, RangeUsage
from localfleet.crds import OUR_CRDS
from tests.harness.objects import (
    build_floating_ip,
    build_range,
    build_reservation,
    floating_ip,
    reservation,
)

Json = dict[str, Any]

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
READY = Condition(
    type=ConditionType.READY, status=Verdict.TRUE, reason="Ready", message="m", last_transition_time=NOW
)
KINDS = (FloatingIPRange, FloatingIP, FloatingIPReservation)
UNREAD = {"region", "matchExpressions"}
"""Fields that fipop does not read: texts of an administrator, and what must be empty."""


def _schemas() -> dict[str, Json]:
    crds = [yaml.safe_load(path.read_text()) for path in OUR_CRDS.glob("*.yaml")]
    return {
        each["spec"]["names"]["kind"]: each["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for each in crds
    }


SCHEMAS = _schemas()


def _resolve(schema: Json, definitions: Json) -> Json:
    """A schema of pydantic without references and without null."""
    parts = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    found = parts[0]
    return definitions[found["$ref"].rpartition("/")[2]] if "$ref" in found else found


def _differences(place: str, crd: Json, ours: Json, definitions: Json) -> list[str]:
    ours = _resolve(ours, definitions)
    if crd["type"] == "array":
        return _differences(f"{place}[]", crd["items"], ours["items"], definitions)
    if crd["type"] != "object" or "properties" not in crd:
        return []
    theirs, mine = set(crd["properties"]) - UNREAD, set(ours["properties"])
    found = [f"{place}.{name}" for name in theirs ^ mine]
    found += [
        f"required: {place}.{name}" for name in set(ours.get("required", ())) - set(crd.get("required", ()))
    ]
    for name in theirs & mine:
        found += _differences(
            f"{place}.{name}", crd["properties"][name], ours["properties"][name], definitions
        )
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_classes_have_the_fields_of_the_schemas_and_require_no_more(kind: type[Any]) -> None:
    ours = TypeAdapter(kind).json_schema(mode="validation")
    for part in ("spec", "status"):
        crd = SCHEMAS[kind.__name__]["properties"].get(part)
        if crd is not None:
            assert _differences(part, crd, ours["properties"][part], ours["$defs"]) == []


def of_schema(schema: Json) -> st.SearchStrategy[Any]:
    """Whatever has the types of a schema: patterns and rules allow less."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("format") == "date-time":
        return st.integers(0, 1 << 32).map(lambda each: format_time(EPOCH + timedelta(seconds=each)))
    match schema["type"]:
        case "string":
            return st.text(max_size=5)
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(schema.get("minimum", -INT64_MAX), schema.get("maximum", INT64_MAX))
        case "array":
            return st.lists(of_schema(schema["items"]), max_size=2)
    if "additionalProperties" in schema:
        return st.dictionaries(st.text(max_size=5), of_schema(schema["additionalProperties"]), max_size=2)
    fields = {name: of_schema(each) for name, each in schema.get("properties", {}).items()}
    required = schema.get("required", ())
    return st.fixed_dictionaries(
        {name: fields[name] for name in required},
        optional={name: each for name, each in fields.items() if name not in required},
    )


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
def test_what_a_schema_accepts_is_read_and_written_as_it_was_read(
    kind: type[Any], data: st.DataObject
) -> None:
    parts = SCHEMAS[kind.__name__]["properties"]
    obj = {name: data.draw(of_schema(parts[name])) for name in ("spec", "status") if name in parts}
    spec = obj.get("spec", {})
    spec.pop(
        "serviceNamespace" if spec.get("pool") else "poolNamespaces", None
    )  # rules that the class has, too
    obj["metadata"] = {
        "name": "a",
        "uid": "u",
        "resourceVersion": "7",
        "creationTimestamp": "2026-03-01T12:00:00Z",
    }
    found = read(kind, obj)
    written = {name: write(getattr(found, name)) for name in ("spec", "status") if name in parts}
    assert read(kind, {**obj, **written}) == read_object(kind, obj) == found


# What does not fit


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"ipaddress": 7}, "spec.ipaddress must be a valid string"),
        ({"ipFamilies": ["IPv5"]}, "spec.ipFamilies.0 must be IPv4 or IPv6"),
        ({"interface": {}}, "spec.interface must be a valid string"),
        ({"pool": "a", "serviceNamespace": "b"}, "spec must not have both pool and serviceNamespace"),
        ({"pool": "global"}, "spec must not have pool global, which is the key of all Services"),
        ({"poolNamespaces": ["a"]}, "spec must have a pool for poolNamespaces"),
        ({"allowShare": "perhaps"}, "spec.allowShare must be a valid boolean, unable to interpret input"),
        ("text", "spec must be a dictionary or an instance of FloatingIPSpec"),
    ],
)
def test_a_spec_that_does_not_fit_counts_as_an_empty_one_and_says_why(spec: Any, problem: str) -> None:
    found = read_object(
        FloatingIP, {**build_floating_ip("web", status={"addresses": ["10.0.0.1"]}), "spec": spec}
    )
    assert (found.problem, found.spec) == (problem, FloatingIP(metadata=Metadata()).spec)
    assert found.status.addresses == ("10.0.0.1",), "what it has stays"


def test_a_status_that_does_not_fit_counts_as_none() -> None:
    """kube-fip-operator's CRDs allowed anything there."""
    obj = build_floating_ip(
        "web", ipaddress="10.0.0.1", status={"addresses": "10.0.0.1", "conditions": "none"}
    )
    found = read_object(FloatingIP, obj)
    assert (found.spec.ipaddress, found.status, found.problem) == ("10.0.0.1", FloatingIPStatus(), "")


@pytest.mark.parametrize(
    "change",
    [
        {"requested": "perhaps"},
        {"since": "yesterday"},
        {"owner": None},
        {"quarantinedUntil": "2026-03-01T12:00:00"},
    ],
)
def test_a_reservation_that_does_not_fit_cannot_be_read(change: Json) -> None:
    body = build_reservation("10.0.0.9")
    with pytest.raises(UnreadableError, match=rf"^spec\.{next(iter(change))} must be "):
        read_object(FloatingIPReservation, {**body, "spec": {**body["spec"], **change}})


# Ranges


def test_a_range_that_says_nothing_has_the_defaults_of_the_schema() -> None:
    properties = SCHEMAS["FloatingIPRange"]["properties"]["spec"]["properties"]
    defaults = {name: each["default"] for name, each in properties.items() if "default" in each}
    found = read_object(FloatingIPRange, {"metadata": {"name": "r"}, "spec": defaults})
    assert found == FloatingIPRange(metadata=Metadata(name="r"))
    assert found.match_labels is None, "no selector is not an empty one, which selects all"


def test_a_range_is_read_with_all_that_it_says() -> None:
    annotations = {names.ANNOTATION_HARVESTER_CLUSTER: "harv", names.ANNOTATION_HARVESTER_NETWORK: ""}
    spec = {"exclude": ["10.0.0.1"], "searchOrder": "desc", "skipEndIPs": False, "maxPerGuest": 3}
    selector = {"matchLabels": {}}
    found = read_object(
        FloatingIPRange,
        build_range("r", "10.0.0.0/24", annotations=annotations, clusterSelector=selector, **spec),
    )
    assert found.spec == RangeSpec(
        iprange="10.0.0.0/24",
        exclude=("10.0.0.1",),
        search_order=SearchOrder.DESC,
        skip_end_ips=False,
        max_per_guest=3,
        cluster_selector=LabelSelector(match_labels={}),
    )
    assert (found.harvester_cluster, found.harvester_network) == ("harv", None)


def test_counts_fit_into_a_status_however_wide_the_range() -> None:
    wide = AddressCounts(used=3, free=(1 << 128) - 3)
    found = build_capacity(RangeUsage(whole=wide, ipv4=AddressCounts(), ipv6=wide))
    assert (found.total, found.used, found.ipv6.free) == (INT64_MAX, 3, INT64_MAX)
    assert found.ipv4.total == 0
    assert (found.free_ipv4, found.free_ipv6) == (None, "2^128/2^128")


def test_the_status_of_a_range_is_a_merge_patch_that_leaves_no_old_value() -> None:
    counts = AddressCounts(used=3, free=4, quarantined=2, out_of_range=1)
    status = RangeStatus(
        capacity=build_capacity(RangeUsage(whole=counts, ipv4=counts, ipv6=AddressCounts())),
        reported=(Reported("10.0.0.1", "c-m-9"), Reported("fd00::1", "c-m-8")),
        reported_count=3,
        conditions=(READY,),
        observed_generation=7,
    )
    patch = write_patch(status)
    assert (
        read_object(FloatingIPRange, {**build_range("pool", "10.0.0.0/28"), "status": patch}).status == status
    )
    assert patch["capacity"]["ipv6"] == {"total": 0, "used": 0, "free": 0, "quarantined": 0, "outOfRange": 0}
    empty = write_patch(RangeStatus())
    assert [name for name, value in empty.items() if value is None] == [
        *("capacity", "reported", "reportedCount", "conditions"),
    ]


# Floating IPs


@pytest.mark.parametrize(
    ("text", "is_true"), [("true", True), ("1", True), ("T", True), ("yes", False), ("", False)]
)
def test_switches_in_annotations_are_booleans_as_go_reads_them(text: str, is_true: bool) -> None:
    assert floating_ip(annotations={names.ANNOTATION_PAUSED: text}).paused is is_true


def test_a_floating_ip_of_the_predecessor_has_no_spec() -> None:
    found = read_object(FloatingIP, {"metadata": {"name": "web", "namespace": "c-m-a"}})
    assert found == FloatingIP(metadata=Metadata(namespace="c-m-a", name="web"))


def test_families_are_those_of_the_core() -> None:
    found = floating_ip(ipFamilies=["IPv6", "IPv4"], ipFamilyPolicy="PreferDualStack")
    assert found.spec.ip_families == (Family.IPV6, Family.IPV4)
    assert found.spec.ip_family_policy is FamilyPolicy.PREFER_DUAL_STACK


def test_claims_that_are_to_be_ignored_are_a_list_of_guests() -> None:
    found = floating_ip(annotations={names.ANNOTATION_IGNORE_CLAIM: " c-m-x, ,c-m-y"})
    assert found.ignored_claims == {"c-m-x", "c-m-y"}


def test_annotations_of_other_programs_are_not_kept() -> None:
    ours = {"clustername": "demo", names.ANNOTATION_PAUSED: "true"}
    found = floating_ip(annotations={**ours, "kubectl.kubernetes.io/last-applied-configuration": "{}"})
    assert found.metadata.annotations == ours


def test_the_status_of_a_floating_ip_is_a_merge_patch_that_leaves_no_old_value() -> None:
    release = ReleaseStatus(
        role="kube-vip", name="v", namespace="n", revision=3, digest="d", version="1", status="deployed"
    )
    full = FloatingIPStatus(
        addresses=("10.0.0.1",),
        range="pool",
        address_space="default",
        guest=GuestStatus(cluster="demo", id="c-m-1", reachable=True, releases=(release,)),
        conditions=(READY,),
        observed_generation=4,
    )
    assert read_object(FloatingIP, build_floating_ip("web", status=write_patch(full))).status == full
    left = write_patch(FloatingIPStatus(guest=GuestStatus(cluster="demo", id="c-m-1")))
    assert left == {
        "addresses": None,
        "range": None,
        "addressSpace": None,
        "guest": {"cluster": "demo", "id": "c-m-1", "reachable": None, "releases": None},
        "services": None,
        "waiting": None,
        "unused": None,
        "lastAnnounced": None,
        "conditions": None,
        "observedGeneration": 0,
    }


def test_an_object_is_known_by_its_uid_and_its_name_by_its_key() -> None:
    first, again = floating_ip("web", uid="a"), floating_ip("web", uid="b")
    assert first.key == again.key == ("c-m-1", "web")
    assert first.uid != again.uid


# Reservations


def test_a_reservation_is_held_until_it_says_how_long_it_waits() -> None:
    assert reservation("10.0.0.9").is_held
    past = {"namespace": "c-m-1", "name": "web", "releasedAt": "2026-03-01T11:00:00Z"}
    found = reservation("10.0.0.9", quarantined_until="2026-03-01T12:00:00Z", history=[past])
    assert (found.is_held, found.spec.quarantined_until) == (False, NOW)
    assert [(each.name, each.released_at) for each in found.spec.history] == [
        ("web", NOW - timedelta(hours=1))
    ]


def test_a_reservation_is_written_whole_without_what_is_not_known() -> None:
    found = reservation("10.0.0.9")
    body: Mapping[str, Any] = build_body(found)
    assert body["metadata"] == {
        "name": "default.10.0.0.9",
        "uid": found.uid,
        "resourceVersion": str(found.resource_version),
    }
    assert body["spec"] == {
        "address": "10.0.0.9",
        "space": "default",
        "range": "pool",
        "owner": {"namespace": "c-m-1", "name": "web", "uid": "uid-c-m-1-web"},
        "requested": "dynamic",
        "since": "2026-01-01T00:00:00Z",
    }
    new = FloatingIPReservation(metadata=Metadata(name="default.10.0.0.9"), spec=found.spec)
    assert build_body(new)["metadata"] == {"name": "default.10.0.0.9"}
