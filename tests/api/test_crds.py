"""Our three kinds as a real API server enforces them: each constraint by values that it takes and that it refuses.

`CONSTRAINTS` names every constraint of the schemas; a test compares it with the files in `crds/`, so that none is
added, loosened or removed unseen.
"""

import copy
from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus
from typing import Any

import pytest
import pytest_asyncio

from localfleet.client import Json
from localfleet.controlplane import ControlPlane
from localfleet.errors import ApiError
from tests.api.crd_constraints import (
    BASES,
    CONDITION,
    CONSTRAINTS,
    FLOATING_IP,
    GROUP,
    NAMESPACE,
    PLACES,
    RANGE,
    RESERVATION,
    TIME,
    Constraint,
    constraint_of,
    crds,
    message_of,
    places_of,
    schema_of,
)

pytestmark = pytest.mark.xdist_group("management")

CASES = [
    pytest.param(
        kind,
        *key.rsplit(" ", 2 if " rule " in key else 1)[:1],
        constraint_of(kind, key),
        id=f"{kind} {key}",
    )
    for kind, constraints in CONSTRAINTS.items()
    for key, constraint in constraints.items()
    if constraint.taken
]


# What an item or an object at a place needs beside the field that is tried.
SURROUNDINGS: dict[str, Json] = {
    "clusterSelector": {"matchLabels": {}},
    "conditions": CONDITION,
    "owner": {"namespace": "a", "name": "b", "uid": "c"},
    "unused": {"since": TIME, "until": TIME},
    "history": {"namespace": "a", "releasedAt": TIME},
}


# What a field needs beside it.
BESIDE: dict[str, Json] = {"poolNamespaces": {"pool": "dmz"}}


def with_value(base: Json, place: str, value: Any) -> Json:
    """Give a copy of `base` with `value` at `place`."""
    changed = copy.deepcopy(base)
    *parents, last = place.split(".")
    target: Any = changed
    for part in parents:
        name = part.removesuffix("[]")
        if part.endswith("[]"):
            target[name] = [copy.deepcopy(SURROUNDINGS.get(name, {}))]
            target = target[name][0]
        else:
            target = target.setdefault(name, copy.deepcopy(SURROUNDINGS.get(name, {})))
    target |= BESIDE.get(last.removesuffix("[]"), {})
    if last.endswith("[]"):
        target[last.removesuffix("[]")] = [value]
    elif last.endswith("{}"):
        target[last.removesuffix("{}")] = {"key": value}
    else:
        target[last] = value
    return changed


def keywords_of(schema: Json) -> Iterator[str]:
    """Name the constraints of one schema, without those within it."""
    bounds = ("maxLength", "minLength", "minimum", "maximum", "maxItems", "maxProperties")
    yield from (keyword for keyword in (*bounds, "pattern", "enum", "required") if keyword in schema)
    if schema.get("format", "int64") != "int64":
        yield "format"
    if "x-kubernetes-list-type" in schema:
        yield f"list-{schema['x-kubernetes-list-type']}"
    for number, _ in enumerate(schema.get("x-kubernetes-validations", [])):
        yield f"rule {number}"


@pytest_asyncio.fixture(scope="module")
async def server(management: ControlPlane) -> AsyncIterator[ControlPlane]:
    """The shared management cluster with a range and a floating IP whose status can be tried."""
    await management.create_namespace(NAMESPACE)
    for obj in (RANGE, FLOATING_IP):
        await management.client.create(PLACES[obj["kind"]], obj)
    yield management
    for obj in (RANGE, FLOATING_IP):
        await management.client.delete(f"{PLACES[obj['kind']]}/probe")
    await management.client.delete(f"/api/v1/namespaces/{NAMESPACE}")


async def try_to_have(server: ControlPlane, kind: str, place: str, value: Any) -> Json:
    """Try an object with `value` at `place`, without keeping it."""
    collection = PLACES[kind]
    if place.startswith("status"):
        body = with_value({}, place, value)
        return await server.client.patch(f"{collection}/probe/status?dryRun=All", body)
    fresh = with_value(BASES[kind], place, value)
    if kind != "FloatingIPReservation":
        fresh["metadata"]["name"] = "fresh"
    return await server.client.create(f"{collection}?dryRun=All", fresh)


def value_at(obj: Json, place: str) -> Any:
    """What `with_value` put there."""
    found: Any = obj
    for part in place.split("."):
        found = found[part.removesuffix("[]").removesuffix("{}")]
        if part.endswith("[]"):
            found = found[0]
        elif part.endswith("{}"):
            found = found["key"]
    return found


async def refusal(server: ControlPlane, kind: str, place: str, value: Any) -> str:
    with pytest.raises(ApiError) as refused:
        await try_to_have(server, kind, place, value)
    assert (refused.value.status, refused.value.reason) == (HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid")
    return refused.value.message


@pytest.mark.parametrize("kind", CONSTRAINTS)
def test_every_constraint_of_the_schema_is_tried_here(kind: str) -> None:
    found = [
        f"{place} {keyword}"
        for place, schema in places_of(schema_of(kind))
        for keyword in keywords_of(schema)
    ]
    assert sorted(found) == sorted(CONSTRAINTS[kind])


@pytest.mark.parametrize(("kind", "place", "constraint"), CASES)
async def test_the_api_server_takes_what_fits_and_refuses_what_does_not(
    server: ControlPlane, kind: str, place: str, constraint: Constraint
) -> None:
    for value in constraint.taken:
        kept = await try_to_have(server, kind, place, value)
        if isinstance(value, dict):
            assert value.items() <= value_at(kept, place).items()
        else:
            assert value_at(kept, place) == value
    for value in constraint.refused:
        assert constraint.says in await refusal(server, kind, place, value), value
    assert constraint.says
    assert constraint.refused


# The rules of our first two kinds must leave old objects alone.


@pytest.mark.parametrize("kind", ["FloatingIPRange", "FloatingIP"])
def test_nothing_is_required_at_the_root_or_in_the_spec_of_what_people_write(kind: str) -> None:
    schema = schema_of(kind)
    assert all(rule["optionalOldSelf"] for rule in schema.get("x-kubernetes-validations", []))
    assert "required" not in schema
    assert "required" not in schema["properties"]["spec"]
    assert schema["properties"]["spec"]["default"] == {}


@pytest.mark.parametrize("kind", CONSTRAINTS)
def test_every_string_of_a_spec_is_bounded_so_that_rules_may_read_it(kind: str) -> None:
    unbounded = [
        place
        for place, schema in places_of(schema_of(kind)["properties"]["spec"])
        if schema.get("type") == "string" and not {"maxLength", "enum", "format"} & set(schema)
    ]
    assert unbounded == []


@pytest.mark.parametrize("spec", [None, {}, {"iprange": ""}, {"iprange": " \n"}])
async def test_a_range_without_addresses_is_refused(server: ControlPlane, spec: Json | None) -> None:
    """An older one that is empty stays: test_objects_of_the_old_crds_keep_working."""
    place, told = PLACES["FloatingIPRange"], message_of("FloatingIPRange", "", 0)
    fresh = {**RANGE, "metadata": {"name": "fresh"}, "spec": spec}
    with pytest.raises(ApiError, match=told):
        await server.client.create(f"{place}?dryRun=All", fresh)
    emptied = {"spec": {"iprange": (spec or {}).get("iprange")}}
    with pytest.raises(ApiError, match=told):
        await server.client.patch(f"{place}/probe?dryRun=All", emptied)


async def test_the_address_space_of_a_range_never_changes(server: ControlPlane) -> None:
    path = f"{PLACES['FloatingIPRange']}/probe?dryRun=All"
    with pytest.raises(ApiError) as refused:
        await server.client.patch(path, {"spec": {"addressSpace": "lab"}})
    assert message_of("FloatingIPRange", "spec.addressSpace", 0) in refused.value.message
    await server.client.patch(path, {"spec": {"addressSpace": "default", "draining": True}})


def test_every_crd_carries_its_revision_for_the_operators_update() -> None:
    for crd in crds().values():
        assert int(crd["metadata"]["annotations"]["kubefip.k8s.binbash.org/schema-revision"]) >= 1


async def table(server: ControlPlane, what: str, *arguments: str) -> tuple[list[str], list[list[str]]]:
    """The columns and rows that kubectl prints."""
    lines = (await server.kubectl("get", what, *arguments)).splitlines()
    return lines[0].split(), [line.split() for line in lines[1:]]


async def test_kubectl_shows_the_documented_columns_under_the_short_names(
    server: ControlPlane, namespace: str
) -> None:
    client = server.client
    ranges, reservations = PLACES["FloatingIPRange"], PLACES["FloatingIPReservation"]
    floating_ips = f"{GROUP}/namespaces/{namespace}/floatingips"
    ready = [{"type": "Conflict", "status": "False"}, CONDITION]
    capacity = {"total": 62, "used": 1, "freeIPv4": "60/62", "freeIPv6": "2^64/2^64"}
    try:
        await client.create(
            ranges,
            {**RANGE, "metadata": {"name": "columns"}, "spec": {"iprange": "10.135.10.192/26,fd00::/64"}},
        )
        await client.patch(
            f"{ranges}/columns/status", {"status": {"capacity": capacity, "conditions": ready}}
        )
        await client.create(
            floating_ips, {**FLOATING_IP, "metadata": {"name": "vip"}, "spec": {"ipaddress": "10.0.0.1"}}
        )
        status = {
            "range": "columns",
            "addresses": ["10.0.0.2", "fd00::2"],
            "guest": {"cluster": "demo"},
            "conditions": ready,
        }
        await client.patch(f"{floating_ips}/vip/status", {"status": status})
        await client.create(reservations, RESERVATION)
        for name in ("fiprange", "fipranges", "floatingiprange"):
            head, rows = await table(server, name, "columns")
            assert head == ["NAME", "RANGE", "FREE-IPV4", "FREE-IPV6", "USED", "READY", "AGE"]
            assert rows[0][1:-1] == ["10.135.10.192/26,fd00::/64", "60/62", "2^64/2^64", "1", "True"]
        for name in ("fip", "fips", "floatingip"):
            head, rows = await table(server, name, "--namespace", namespace)
            assert head == ["NAME", "CLUSTER", "RANGE", "ADDRESS", "READY", "AGE"]
            assert rows[0][:-1] == ["vip", "demo", "columns", "10.0.0.2", "True"], "the address that it holds"
        head, rows = await table(server, "fip", "--namespace", namespace, "--output", "wide")
        assert head[6:] == ["SECOND-ADDRESS", "WANTED", "REASON", "ANNOUNCED"]
        assert rows[0][6:8] == ["fd00::2", "10.0.0.1"]
        head, rows = await table(server, "fipres", "default.10.0.0.1")
        assert head == [
            "NAME",
            "ADDRESS",
            "SPACE",
            "RANGE",
            "NAMESPACE",
            "OWNER",
            "SINCE",
            "QUARANTINED-UNTIL",
        ]
        assert rows[0][:6] == [
            "default.10.0.0.1",
            "10.0.0.1",
            "default",
            "guest-vlan",
            "c-m-ngd5hs2r",
            "demo-vip",
        ]
    finally:
        await client.delete(f"{ranges}/columns")
        await client.delete(f"{reservations}/default.10.0.0.1")
