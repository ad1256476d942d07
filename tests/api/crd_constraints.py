"""Every constraint of our CRDs, with values that the API server takes and values that it refuses."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from localfleet.client import Json

ROOT = Path(__file__).parents[2]
GROUP = "/apis/kubefip.k8s.binbash.org/v1"
API_VERSION = "kubefip.k8s.binbash.org/v1"
NAMESPACE = "crd-tests"
TIME = "2026-08-20T08:00:02Z"
LABEL_63 = "a" * 63

RANGE: Json = {
    "apiVersion": API_VERSION,
    "kind": "FloatingIPRange",
    "metadata": {"name": "probe"},
    "spec": {"iprange": "10.0.0.0/24"},
}
FLOATING_IP: Json = {
    "apiVersion": API_VERSION,
    "kind": "FloatingIP",
    "metadata": {"name": "probe", "namespace": NAMESPACE},
    "spec": {},
}
RESERVATION: Json = {
    "apiVersion": API_VERSION,
    "kind": "FloatingIPReservation",
    "metadata": {"name": "default.10.0.0.1"},
    "spec": {
        "address": "10.0.0.1",
        "space": "default",
        "range": "guest-vlan",
        "requested": "dynamic",
        "since": TIME,
        "owner": {"namespace": "c-m-ngd5hs2r", "name": "demo-vip", "uid": "1", "cluster": "demo"},
    },
}
REPORTED: Json = {"address": "10.0.0.1", "guest": "c-m-ngd5hs2r"}
BASES = {obj["kind"]: obj for obj in (RANGE, FLOATING_IP, RESERVATION)}
PLACES = {
    "FloatingIPRange": f"{GROUP}/floatingipranges",
    "FloatingIP": f"{GROUP}/namespaces/{NAMESPACE}/floatingips",
    "FloatingIPReservation": f"{GROUP}/floatingipreservations",
}

ADDRESS = "spec.ipaddress"
POOLS_TAKEN = (
    "10.135.10.192/26",
    "10.0.0.200/24",
    "10.0.0.10-10.0.0.20",
    "10.0.0.1",
    " 10.0.0.0/24 , 10.0.1.5 - 10.0.1.9,\n10.0.2.1 ",
    "2001:db8::/64,2001:DB8:1::10-2001:db8:1::20,::1,::ffff:10.0.0.1",
    "0.0.0.0/0,::/0",
    "10.0.0.0/32",
    "fd00:12::/64, 1::, 1:2:3:4:5:6:7::, 1:2:3:4:5:6:7:8/128, 64:ff9b::10.0.0.1, ::ffff:10.0.0.0/120",
    "10.0.0.1-10.0.0.1,9.255.255.255 - 10.0.0.0,fd00::9-fd00::10",
)
POOLS_REFUSED = (
    "guest-vlan",
    "10.0.0.0/24;10.0.1.0/24",
    "10.0.0.0/24,",
    ",10.0.0.1",
    "10.0.0.0/24 10.0.1.0/24",
    "10.0.0.256",
    "10.0.0",
    "10.0.0.01",
    "10.0.0.0/",
    "10.0.0.0/1000",
    "10.0.0.1-",
    "10.0.0.1-9",
    "fe80::1%eth0",
    "10.0.0.1\x00",
)
PARTS_REFUSED = (
    *(
        "fd00:12:::/64",
        "1::2::3",
        "12345::",
        "1:2:3",
        "1:2:3:4:5:6:7:8:9",
        ":1",
        "1::2:",
        "10.0.0.1, fd00:1/64",
    ),
    *("10.0.0.0/33", "10.0.0.0/024", "10.0.0.1, 10.0.0.0 / 99", "::/129", "::/200"),
    *("10.0.0.1-::1", "::1-10.0.0.1"),
)
BACKWARDS = (
    *("10.0.0.9-10.0.0.1", "10.0.1.1-10.0.0.9", "10.0.0.1, 10.1.0.1 - 10.0.9.9", "11.0.0.0-10.255.255.255"),
    "10.0.0.1," * 14 + "10.0.0.9-10.0.0.1",
)
"""Ranges of IPv4 among the first 15 parts: what fipop refuses beside these, no rule can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A keyword of a schema at a place (`[]`: of an item, `{}`: of a map's value), with values for that place.

    `says` must stand in the refusal; for a rule it is the message of the rule, if that has a fixed one.
    """

    taken: tuple[Any, ...]
    refused: tuple[Any, ...]
    says: str = ""


def of(taken: Any, refused: Any, says: str = "") -> Constraint:
    """Build a constraint; what is not a tuple is the only value."""
    return Constraint(
        taken=taken if isinstance(taken, tuple) else (taken,),
        refused=refused if isinstance(refused, tuple) else (refused,),
        says=says,
    )


def longest(length: int) -> Constraint:
    return of("a" * length, "a" * (length + 1), "Too long")


def pool_of(length: int) -> str:
    """A pool whose text has that length."""
    return ("10.0.0.1," * (length // 9 - 1) + "10.0.0.1").ljust(length)


CONDITION = {"type": "Ready", "status": "True"}


def conditions() -> dict[str, Constraint]:
    place = "status.conditions"
    return {
        f"{place}[] required": of(CONDITION, ({"type": "Ready"}, {"status": "True"}), "Required"),
        f"{place} list-map": of(
            [CONDITION, CONDITION | {"type": "Conflict"}], [CONDITION, CONDITION], "Duplicate"
        ),
        f"{place}[].type maxLength": longest(316),
        f"{place}[].status enum": of(("True", "False", "Unknown"), ("true", ""), "Unsupported"),
        f"{place}[].reason maxLength": longest(1024),
        f"{place}[].reason pattern": of(("InUse", ""), ("in use", "9", "Used:"), "should match"),
        f"{place}[].message maxLength": longest(32768),
        f"{place}[].lastTransitionTime format": of(TIME, ("yesterday", "2026-08-20"), "date-time"),
        f"{place}[].observedGeneration minimum": of(0, -1, "greater than or equal to 0"),
        "status.observedGeneration minimum": of(0, -1, "greater than or equal to 0"),
    }


def capacity() -> dict[str, Constraint]:
    return {
        f"status.capacity.{family}{count} minimum": of((0, 2**63 - 1), -1, "greater than or equal to 0")
        for family in ("", "ipv4.", "ipv6.")
        for count in ("total", "used", "free", "quarantined", "outOfRange")
    } | {f"status.capacity.{name} maxLength": longest(63) for name in ("freeIPv4", "freeIPv6")}


def per_guest() -> dict[str, Constraint]:
    place, least, most = "spec.perGuest", "greater than or equal to", "less than or equal to"
    return {
        f"{place}.minAllocate minimum": of(0, -1, f"{least} 0"),
        f"{place}.minAllocate maximum": of(1, 1025, f"{most} 1024"),
        f"{place}.preAllocate minimum": of(0, -1, f"{least} 0"),
        f"{place}.preAllocate maximum": of(1, 1025, f"{most} 1024"),
        f"{place}.maxAllocate minimum": of(1, 0, f"{least} 1"),
        f"{place}.maxAllocate maximum": of(1024, 1025, f"{most} 1024"),
        f"{place}.releaseAfterSeconds minimum": of(10, 9, f"{least} 10"),
        f"{place}.releaseAfterSeconds maximum": of(31536000, 31536001, f"{most} 31536000"),
        f"{place} rule 0": of(
            (
                {},
                {"minAllocate": 2, "preAllocate": 1, "maxAllocate": 4},
                {"maxAllocate": 1, "preAllocate": 1},
            ),
            ({"minAllocate": 2}, {"minAllocate": 3, "maxAllocate": 2}, {"preAllocate": 3, "maxAllocate": 2}),
            "must be at most maxAllocate",
        ),
    }


TWO_FIELDS = of((), ())
"""Takes two fields, or two versions of an object: tested one by one in test_crd_reservations.py."""

MANY = [f"a{number}" for number in range(64)]
LABEL_REFUSED = ("Default", "a.b", "-a", "a-", "a_b", "")

CONSTRAINTS: dict[str, dict[str, Constraint]] = {
    "FloatingIPRange": {
        "spec.iprange maxLength": of(pool_of(65536), pool_of(65537), "Too long"),
        " rule 0": TWO_FIELDS,
        "spec.iprange rule 0": of(POOLS_TAKEN, POOLS_REFUSED),
        "spec.iprange rule 1": of(
            ("0.0.0.0/8", "10.0.0.0/32", "10.0.0.0"),
            ("0.0.0.0/32", "0.0.0.0", "10.0.0.1, 0.0.0.0 / 32"),
        ),
        "spec.iprange rule 2": of(POOLS_TAKEN, PARTS_REFUSED),
        "spec.iprange rule 3": of(POOLS_TAKEN, BACKWARDS),
        "spec.region maxLength": longest(253),
        "spec.exclude maxItems": of([pool_of(512)] * 256, ["10.0.0.1"] * 257, "Too many"),
        "spec.exclude[] maxLength": of(pool_of(512), pool_of(513), "Too long"),
        "spec.exclude[] rule 0": of(POOLS_TAKEN, ("", *POOLS_REFUSED)),
        "spec.exclude[] rule 1": of(POOLS_TAKEN, PARTS_REFUSED),
        "spec.exclude[] rule 2": of(POOLS_TAKEN, BACKWARDS),
        "spec.searchOrder enum": of(("asc", "desc"), ("ascending", "ASC", ""), "Unsupported"),
        "spec.addressSpace maxLength": longest(63),
        "spec.addressSpace pattern": of(("default", "a", "0-a", LABEL_63), LABEL_REFUSED, "should match"),
        "spec.addressSpace rule 0": TWO_FIELDS,
        "spec.clusterSelector rule 0": of(
            (
                {"matchLabels": {}},
                {"matchLabels": {"net": "blue"}},
                {"matchLabels": {}, "matchExpressions": []},
            ),
            # A misspelled field is pruned: what is left must not select every guest cluster.
            ({}, {"matchLabel": {"net": "blue"}}, {"matchExpressions": []}),
            "must have matchLabels",
        ),
        "spec.clusterSelector.matchExpressions rule 0": of(
            [], [{"key": "net", "operator": "Exists"}], "matchExpressions must be empty"
        ),
        "spec.clusterSelector.matchLabels maxProperties": of(
            {f"key{number}": "" for number in range(64)},
            {f"key{number}": "" for number in range(65)},
            "Too many",
        ),
        "spec.clusterSelector.matchLabels{} maxLength": longest(63),
        "spec.clusterSelector.matchLabels{} pattern": of(
            ("", "a", "A_b.c-1"), ("a b", "-a", "a."), "should match"
        ),
        "spec.quarantineSeconds minimum": of(1, (0, -1), "greater than or equal to 1"),
        "spec.quarantineSeconds maximum": of(31536000, 31536001, "less than or equal to 31536000"),
        "spec.allowedWorkspaces maxItems": of(["a"] * 256, ["a"] * 257, "Too many"),
        "spec.allowedWorkspaces[] minLength": of("a", "", "at least 1 chars"),
        "spec.allowedWorkspaces[] maxLength": longest(63),
        "spec.allowedClusters maxItems": of(["a"] * 256, ["a"] * 257, "Too many"),
        "spec.allowedClusters[] minLength": of("a", "", "at least 1 chars"),
        "spec.allowedClusters[] maxLength": longest(253),
        "status.reported maxItems": of([REPORTED] * 1024, [REPORTED] * 1025, "Too many"),
        "status.reported[].address maxLength": longest(45),
        "status.reported[].guest maxLength": longest(63),
        "status.reportedCount minimum": of((0, 2**63 - 1), -1, "greater than or equal to 0"),
        "spec.maxPerGuest minimum": of(1, (0, -1), "greater than or equal to 1"),
        "spec.maxPerGuest maximum": of(2**31 - 1, 2**31, "less than or equal to 2147483647"),
        "spec.interface maxLength": longest(15),
        "spec.interface pattern": of(
            ("", "enp1s0", "bond0.100", "eth0:1"), ("eth 0", "eth/0"), "should match"
        ),
        **per_guest(),
        **capacity(),
        **conditions(),
    },
    "FloatingIP": {
        "spec.ipaddress maxLength": of("10.0.0.1" + " " * 120, "10.0.0.1" + " " * 121, "Too long"),
        "spec.ipaddress rule 0": of(
            (
                "",
                " ",
                "10.135.10.200",
                " 10.135.10.200\n",
                "2001:db8::5",
                "::ffff:10.0.0.1",
                "10.0.0.1,2001:db8::5",
                "2001:DB8::5 , 10.0.0.1",
            ),
            (
                "demo",
                "10.0.0.0/24",
                "10.0.0.1-10.0.0.2",
                "10.0.0.256",
                "10.0.0.01",
                "10.0.0.1,",
                "10.0.0.1,10.0.0.2",
                "::1,::2",
                "10.0.0.1,::1,::2",
                "fe80::1%eth0",
                "10.0.0.1 ::1",
            ),
            ADDRESS,
        ),
        "spec.ipFamilyPolicy enum": of(
            ("SingleStack", "PreferDualStack", "RequireDualStack"),
            ("DualStack", "singlestack", ""),
            "Unsupported",
        ),
        "spec.ipFamilyPolicy maxLength": of("RequireDualStack", "RequireDualStacks", "Too long"),
        "spec.ipFamilies maxItems": of(["IPv6", "IPv4"], ["IPv4", "IPv6", "IPv4"], "Too many"),
        "spec.ipFamilies list-set": of(["IPv4"], ["IPv4", "IPv4"], "Duplicate"),
        "spec.ipFamilies[] enum": of(("IPv4", "IPv6"), ("ipv4", "4", ""), "Unsupported"),
        "spec.ipFamilies[] maxLength": of("IPv4", "IPv46", "Too long"),
        "spec.serviceNamespace maxLength": longest(63),
        "spec.serviceNamespace pattern": of(("", "default", "team-a"), LABEL_REFUSED[:-1], "should match"),
        "spec.pool maxLength": longest(63),
        "spec.pool pattern": of(("", "default", "team-a"), LABEL_REFUSED[:-1], "should match"),
        "spec.pool rule 0": of(("", "globals", "dmz"), "global"),
        "spec.poolNamespaces maxItems": of(MANY, [*MANY, "more"], "Too many"),
        "spec.poolNamespaces list-set": of(["a", "*"], ["a", "*", "a"], "Duplicate"),
        "spec.poolNamespaces[] maxLength": longest(63),
        "spec.poolNamespaces[] pattern": of(
            ("*", "default", "team-a"), ("**", "a*", "a,b", *LABEL_REFUSED), "should match"
        ),
        "spec.interface maxLength": longest(15),
        "spec.interface pattern": of(
            ("", "enp1s0", "bond0.100", "eth0:1"), ("eth 0", "eth/0"), "should match"
        ),
        "spec rule 0": of(
            (
                {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6"], "ipaddress": "::1"},
                {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"]},
                {"ipFamilyPolicy": "RequireDualStack", "ipaddress": "10.0.0.1,::1"},
                {"ipFamilies": ["IPv6", "IPv4"], "ipaddress": "10.0.0.1,::1"},
            ),
            (
                {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6", "IPv4"]},
                {"ipFamilyPolicy": "SingleStack", "ipaddress": "10.0.0.1,::1"},
            ),
        ),
        "spec rule 1": of(
            ({"pool": "dmz"}, {"pool": "dmz", "serviceNamespace": ""}, {"pool": "", "serviceNamespace": "a"}),
            {"pool": "dmz", "serviceNamespace": "dmz"},
        ),
        "spec rule 2": of(
            ({"pool": "dmz", "poolNamespaces": ["a", "*"]}, {"poolNamespaces": []}),
            ({"poolNamespaces": ["a"]}, {"pool": "", "poolNamespaces": ["*"]}),
        ),
        "status.addresses maxItems": of(["10.0.0.1"] * 16, ["10.0.0.1"] * 17, "Too many"),
        "status.addresses[] maxLength": longest(64),
        "status.range maxLength": longest(253),
        "status.addressSpace maxLength": longest(63),
        "status.guest.cluster maxLength": longest(253),
        "status.guest.id maxLength": longest(253),
        "status.guest.releases maxItems": of([{"name": "a"}] * 16, [{"name": "a"}] * 17, "Too many"),
        **{
            f"status.guest.releases[].{name} maxLength": longest(length)
            for name, length in (
                *(("name", 253), ("namespace", 253), ("digest", 253), ("version", 253)),
                *(("role", 63), ("status", 63)),
            )
        },
        "status.services.names maxItems": of(["a/b"] * 8, ["a/b"] * 9, "Too many"),
        "status.services.names[] maxLength": longest(512),
        "status.services.count minimum": of(0, -1, "greater than or equal to 0"),
        "status.waiting.services maxItems": of([{"name": "a/b"}] * 16, [{"name": "a/b"}] * 17, "Too many"),
        "status.waiting.services[].name maxLength": longest(512),
        "status.waiting.services[].since format": of(TIME, "then", "date-time"),
        "status.waiting.count minimum": of(0, -1, "greater than or equal to 0"),
        "status.unused required": of({"since": TIME, "until": TIME}, {"since": TIME}, "Required value"),
        "status.unused.since format": of(TIME, "then", "date-time"),
        "status.unused.until format": of(TIME, "then", "date-time"),
        "status.lastAnnounced format": of(TIME, "then", "date-time"),
        **conditions(),
    },
    "FloatingIPReservation": {
        " required": TWO_FIELDS,
        " rule 0": TWO_FIELDS,
        "spec required": TWO_FIELDS,
        "spec rule 0": TWO_FIELDS,
        "spec.address rule 0": TWO_FIELDS,
        "spec.space rule 0": TWO_FIELDS,
        "spec.address maxLength": of("10.0.0.1", ":".join(["0000"] * 8) + "0", "Too long"),
        "spec.address pattern": of(
            "10.0.0.1",
            ("10.0.0.01", "10.0.0.256", "2001:db8::1", "2001:0DB8:" + "0000:" * 5 + "0001", "", "a"),
            "should match",
        ),
        "spec.address rule 1": of(
            "10.0.0.1",
            "0000:0000:0000:0000:0000:ffff:0a00:0001",
        ),
        "spec.space maxLength": of("default", "a" * 64, "Too long"),
        "spec.space pattern": of("default", LABEL_REFUSED, "should match"),
        "spec.range maxLength": longest(253),
        "spec.owner required": of(
            {"namespace": "a", "name": "b", "uid": "c"},
            ({"name": "b", "uid": "c"}, {"namespace": "a", "uid": "c"}, {"namespace": "a", "name": "b"}),
            "Required",
        ),
        "spec.owner.namespace minLength": of("a", "", "at least 1"),
        "spec.owner.namespace maxLength": longest(63),
        "spec.owner.name minLength": of("a", "", "at least 1"),
        "spec.owner.name maxLength": longest(253),
        "spec.owner.uid minLength": of("a", "", "at least 1"),
        "spec.owner.uid maxLength": longest(63),
        "spec.owner.cluster maxLength": longest(253),
        "spec.owner.workspace maxLength": longest(63),
        "spec.owner.displayName maxLength": longest(253),
        "spec.requested enum": of(("static", "dynamic"), ("Static", ""), "Unsupported"),
        "spec.since format": of(("2026-08-20T08:00:02.123456Z", TIME), ("today", "2026-08-20"), "date-time"),
        "spec.quarantinedUntil format": of(TIME, ("tomorrow", ""), "date-time"),
        "spec.guestGoneSince format": of(TIME, ("tomorrow", ""), "date-time"),
        "spec.history maxItems": of(
            [{"namespace": "a", "releasedAt": TIME}] * 5,
            [{"namespace": "a", "releasedAt": TIME}] * 6,
            "Too many",
        ),
        "spec.history[] required": of(
            {"namespace": "a", "releasedAt": TIME}, ({"namespace": "a"}, {"releasedAt": TIME}), "Required"
        ),
        "spec.history[].namespace maxLength": longest(63),
        "spec.history[].name maxLength": longest(253),
        "spec.history[].cluster maxLength": longest(253),
        "spec.history[].releasedAt format": of(TIME, "then", "date-time"),
    },
}


@cache
def crds() -> dict[str, Json]:
    found = (yaml.safe_load(file.read_text()) for file in (ROOT / "crds").iterdir())
    return {crd["spec"]["names"]["kind"]: crd for crd in found}


def schema_of(kind: str) -> Json:
    (version,) = crds()[kind]["spec"]["versions"]
    schema: Json = version["schema"]["openAPIV3Schema"]
    return schema


def places_of(schema: Json, place: str = "") -> Iterator[tuple[str, Json]]:
    """Every schema within a schema, by its place."""
    yield place, schema
    for name, part in schema.get("properties", {}).items():
        yield from places_of(part, f"{place}.{name}" if place else name)
    if "items" in schema:
        yield from places_of(schema["items"], place + "[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from places_of(schema["additionalProperties"], place + "{}")


def message_of(kind: str, place: str, number: int) -> str:
    """Return what the rule of that number at a place of a schema says when it refuses."""
    rule = dict(places_of(schema_of(kind)))[place]["x-kubernetes-validations"][number]
    message: str = rule["message"]
    return message


def constraint_of(kind: str, key: str) -> Constraint:
    """Return a constraint; if it is a rule without words of its own, with the message of the schema."""
    constraint = CONSTRAINTS[kind][key]
    place, is_rule, number = key.rpartition(" rule ")
    if not is_rule or constraint.says or not constraint.taken:
        return constraint
    return replace(constraint, says=message_of(kind, place, int(number)))
