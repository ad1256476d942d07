"""Fleets that have an object in each state that there is, by the types of the product and the reasons of the page."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fipop.api.conditions import ConditionType, Verdict
from fipop.helm.charts import Role
from fipop.helm.releases import Status
from fipop.report.snapshot import Kind, Snapshot, Unread
from fipop.rollout.member import RolloutStatus
from fipop.rollout.parts import Part
from fipop.rollout.plan import Phase, Rollout
from tests.harness.documentation import DOCS
from tests.harness.objects import NOW, Json, build_floating_ip, build_range, build_reservation, held_by
from tests.harness.releases import OTHER, TARGET
from tests.unit.report.snapshots import build_cluster, healthy_installation, snapshot
from tests.unit.report.unhappy_week import build_unhappy_week

UNKNOWN_TYPE = "FromTomorrow"
SINCE = "2026-02-28T12:00:00Z"
SECTION = re.compile(r"^## FloatingIP(?:Range)?: (.+?)\n(.*?)(?=^## )", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Case:
    """A condition of a floating IP or of a range, in a namespace and with a message of its own."""

    number: int
    type: str
    status: str
    reason: str

    @property
    def guest(self) -> str:
        return f"c-m-{self.number}"

    @property
    def message(self) -> str:
        return f"Message {self.number} has the remedy."

    @property
    def is_good(self) -> bool:
        if self.type == "Announced":  # most addresses that no Service uses are not announced
            return self.status != "False"
        return self.status == ("False" if self.type == "Conflict" else "True") and self.type != UNKNOWN_TYPE

    def build(self) -> Json:
        fields = {"type": self.type, "status": self.status, "reason": self.reason, "message": self.message}
        return fields | ({"lastTransitionTime": SINCE} if self.number % 2 else {})


def read_reasons() -> dict[str, set[str]]:
    """Return the reasons of each type of condition, as its page has them."""
    found: dict[str, set[str]] = {UNKNOWN_TYPE: {"Tomorrow", ""}}
    for types, body in SECTION.findall((DOCS / "reference" / "conditions-and-events.md").read_text()):
        for each in types.split(", "):
            found.setdefault(each, set()).update(re.findall(r"^\| `(\w+)` \|", body, re.MULTILINE))
    found["Ready"] |= set[str]().union(*found.values())
    assert found.keys() == {*ConditionType, UNKNOWN_TYPE}
    return found


def _list_cases() -> Iterator[Case]:
    number = 0
    for kind, reasons in read_reasons().items():
        for reason in sorted(reasons):
            for verdict in Verdict:
                number += 1
                yield Case(number, kind, verdict.value, reason)


CASES = tuple(_list_cases())
RANGE_CASES = tuple(each for each in CASES if each.type == UNKNOWN_TYPE)


def _build_floating_ip(case: Case) -> Json:
    statuses = [{"name": "shop/api", "since": SINCE}, {"name": f"shop/api-{case.number}"}]
    release = [
        {"role": role.value, "name": role.value, "namespace": "kube-system", "status": status.value}
        for role in Role
        for status in Status
    ]
    ready = {"type": "Ready", "status": "True", "reason": "Ready"}
    return build_floating_ip(
        "web",
        namespace=case.guest,
        status={
            **(held_by([f"10.9.{case.number // 250}.{case.number % 250}"]) if case.number % 3 else {}),
            "guest": {
                "cluster": f"demo-{case.number}",
                "id": case.guest,
                "reachable": (True, False, None)[case.number % 3],
                "releases": release,
            },
            "services": {"names": ["shop/web"], "count": 9},
            "waiting": {"services": statuses, "count": 3} if case.type == "DemandMet" else None,
            "conditions": [case.build(), *([ready] if case.type != "Ready" else [])],
        },
    )


def build_conditions(cases: Iterable[Case]) -> Snapshot:
    """Return a fleet with a floating IP for each case, and ranges with conditions."""
    return snapshot(
        ranges=[
            build_range(f"range-{each.number}", f"10.8.{each.number}.0/24")
            | {"status": {"conditions": [each.build()], "observedGeneration": 1}}
            for each in RANGE_CASES
        ],
        floating_ips=[_build_floating_ip(each) for each in cases],
    )


CONDITIONS = build_conditions(CASES)

_OVERLAP = build_range("overlap", "10.0.0.0/28", created="2026-02-01T00:00:00Z")
_REPORTED = build_range("states", "10.0.0.0/24", exclude=["10.0.0.200"]) | {
    "status": {"reported": [{"address": "10.0.0.9", "guest": "c-m-1"}]}
}
ADDRESSES = snapshot(
    ranges=[
        _REPORTED,
        _OVERLAP,
        build_range("outside", "10.2.0.0-10.2.0.9"),
        build_range("full", "10.3.0.1"),
        build_range("nearly", "10.3.1.1-10.3.1.10"),
        build_range("invalid", "nonsense"),
        build_range("draining", "10.4.0.0/24", draining=True),
        build_range("misplaced", "10.255.0.0/16", annotations={"harvesterClusterName": "nowhere"}),
        build_range("six", "fd00::/64"),
        build_range("dual", "10.6.0.0/12,fd01::/64", addressSpace="lab"),
    ],
    floating_ips=[
        build_floating_ip("web", status=held_by(["10.0.0.5"])),
        build_floating_ip("twin", namespace="c-m-2", status=held_by(["10.0.0.5"])),
        build_floating_ip("named", status=held_by(["10.0.0.6"])),
        build_floating_ip("wish", namespace="c-m-3", ipaddress="10.0.0.5"),
    ],
    reservations=[
        build_reservation("10.0.0.5", range_name="states"),
        build_reservation("10.0.0.7", "old", range_name="states", quarantined_until="2026-04-01T00:00:00Z"),
        build_reservation("10.0.0.8", "plain", namespace="c-m-4", range_name="states"),
        build_reservation("10.2.0.20", "out", range_name="outside"),
        build_reservation("10.2.0.0", "end", range_name="outside"),
        build_reservation("10.0.0.200", "withheld", range_name="states"),
        build_reservation("10.3.0.1", "full", range_name="full"),
        build_reservation("fd00::1", "six", range_name="six"),
        build_reservation("10.7.7.7", "lost", range_name="gone"),
        *(build_reservation(f"10.3.1.{each}", f"n-{each}", range_name="nearly") for each in range(1, 10)),
    ],
    clusters=[build_cluster("demo", "c-m-1"), build_cluster("without", "c-m-5")],
)

PHASES = {
    f"rollout {phase.value}": snapshot(
        installation=healthy_installation(
            rollout=Rollout(
                target=TARGET, stable=OTHER, phase=phase, reason="why", failed={"c-m-1": TARGET.name}
            ),
            rollout_parts={
                f"c-m-{number}": Part(
                    status=each, is_canary=number % 2 == 0, since=NOW, reason=f"Why {each.value}."
                )
                for number, each in enumerate((*RolloutStatus, *RolloutStatus))
            },
            rollout_waits="" if phase is Phase.COMPLETED else "It waits.",
        ),
        clusters=[build_cluster("demo", "c-m-1"), build_cluster("shop", "c-m-2")],
    )
    for phase in Phase
}
_BLIND = healthy_installation(leadership=None, workload=None, schemas={}, has_settings=None)
FLEETS: dict[str, Snapshot] = {
    "conditions": CONDITIONS,
    "addresses": ADDRESSES,
    **PHASES,
    "an unhappy week": build_unhappy_week(),
    "nothing": snapshot(),
    "range that changed": snapshot(
        ranges=[
            build_range("pool", "10.0.0.0/24")
            | {"status": {"conditions": [CASES[0].build()], "observedGeneration": 7}}
        ]
    ),
    "no range": snapshot(
        floating_ips=[_build_floating_ip(CASES[0])], clusters=[build_cluster("demo", "c-m-1")]
    ),
    **{
        f"without {kind.value}": snapshot(
            unread=(Unread(what=kind, problem="missing right", forbidden=True),)
        )
        for kind in Kind
    },
    "nothing readable": snapshot(
        installation=_BLIND, unread=tuple(Unread(what=kind, problem="missing right") for kind in Kind)
    ),
    "unread beside ranges": snapshot(
        ranges=[build_range("pool", "10.0.0.0/24")],
        reservations=[build_reservation("10.0.0.7", quarantined_until=None)],
        unread=(Unread(what=Kind.FLOATING_IPS, problem="missing right"),),
    ),
}
ASKED = (
    *("10.0.0.5", "10.0.0.6", "10.0.0.7", "10.0.0.9", "10.0.0.99", "10.0.0.200", "10.4.0.1", "192.0.2.1"),
    *("c-m-1", "c-m-2", "demo", "without", "nobody", "states", "draining", "shop/web", "shop/api", "fd00::1"),
)
"""Names and addresses that fleets have, and some that they do not."""
