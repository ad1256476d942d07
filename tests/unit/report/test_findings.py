"""What is so with an installation, point by point: each failure with what to do about it, and nothing judged twice."""

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from fipop.api.codec import format_time
from fipop.report.findings import Finding, Severity, summarize
from fipop.report.snapshot import SCHEMA_REVISIONS, DeploymentState, Kind, LeaderLease, Snapshot, Unread
from fipop.report.status import report_status
from fipop.rollout.member import RolloutStatus
from fipop.rollout.parts import Part
from fipop.rollout.plan import Phase, Rollout
from fipop.settings.options import DEFAULTS, BadOption, parse_settings
from tests.harness.objects import NOW, Json, build_floating_ip, build_range, build_reservation, held_by
from tests.harness.releases import TARGET
from tests.unit.report.snapshots import build_cluster, healthy_installation, snapshot

CRD = next(iter(SCHEMA_REVISIONS))


def condition(status: str, reason: str, *, since_minutes: float = 60) -> Json:
    since = format_time(NOW - timedelta(minutes=since_minutes))
    return {"type": "Ready", "status": status, "reason": reason, "message": "m", "lastTransitionTime": since}


def floating(name: str, *conditions: Json, **status: object) -> Json:
    return build_floating_ip(name, status={**held_by(["10.0.0.5"]), "conditions": list(conditions), **status})


EVERY = {"matchLabels": {}}
POOL = build_range("pool", "10.0.0.1-10.0.0.10", clusterSelector=EVERY)
WEB = floating("web", condition("True", "Ready"))


def findings(found: Snapshot) -> list[Finding]:
    judged = list(report_status(found).findings)
    for each in judged:
        is_told = each.advice or each.condition  # whose message has the remedy
        assert each.severity is Severity.OK or is_told, "a problem comes with its remedy"
        assert not re.search(r"describe floatingip\b", each.advice), "it repeats the message"
        assert "docs/" not in each.advice, "whoever installed the wheel has no pages"
        assert "examples/" not in each.advice
    return judged


def problems(**objects: Any) -> dict[str, str]:
    found = findings(snapshot(**{"ranges": [POOL], **objects}))
    return {each.reason: each.severity.value for each in found if each.severity is not Severity.OK}


def test_of_a_healthy_installation_every_point_is_well() -> None:
    found = findings(
        snapshot(
            ranges=[POOL],
            floating_ips=[WEB],
            reservations=[build_reservation("10.0.0.5")],
            clusters=[build_cluster("demo", "c-m-1")],
        )
    )
    assert {each.severity for each in found} == {Severity.OK}
    assert {each.subject.kind for each in found} >= {
        "Operator",
        "CustomResourceDefinition",
        "FloatingIPRange",
    }


def pods(*, wanted: int, ready: int) -> DeploymentState:
    return DeploymentState(image="i", service_account="s", wanted=wanted, ready=ready)


@pytest.mark.parametrize(
    ("changes", "reason", "severity"),
    [
        ({"leadership": None}, "NoLeader", "critical"),
        (
            {
                "leadership": LeaderLease(
                    holder="x", renewed=NOW - timedelta(minutes=5), duration_seconds=15.0
                )
            },
            "NoLeader",
            "critical",
        ),
        ({"leadership": LeaderLease(holder="", renewed=NOW, duration_seconds=15.0)}, "NoLeader", "critical"),
        ({"leader_namespace": "elsewhere"}, "LeadsElsewhere", "critical"),
        ({"workload": pods(wanted=2, ready=1)}, "PodsNotReady", "warning"),
        ({"workload": pods(wanted=2, ready=0)}, "PodsNotReady", "critical"),
        ({"workload": pods(wanted=0, ready=0)}, "PodsNotReady", "info"),
        ({"schemas": {CRD: 0}}, "OldSchema", "critical"),
        ({"schemas": {CRD: None}}, "OldSchema", "critical"),
        ({"running_predecessor": "fip/fip-kube-fip-operator"}, "PredecessorRuns", "critical"),
        ({"has_settings": False}, "NoOptions", "critical"),
        (
            {"bad_options": (BadOption(option="logLevel", value="x", reason="is bad"),)},
            "BadOption",
            "critical",
        ),
        ({"unwise_options": ("v1.0.1 loses addresses",)}, "UnwiseOption", "info"),
    ],
)
def test_what_is_wrong_with_the_operator(changes: dict[str, object], reason: str, severity: str) -> None:
    assert problems(installation=healthy_installation(**changes)) == {reason: severity}


def rollout(phase: Phase) -> Rollout:
    return Rollout(target=TARGET, phase=phase, reason="why")


def test_a_rollout_that_stopped_or_is_paused_is_told() -> None:
    paused, _ = parse_settings({"kubevipRolloutPaused": "true"}, DEFAULTS)
    for state, settings, wanted in (
        (rollout(Phase.STOPPED), DEFAULTS, {"RolloutStopped": "warning"}),
        (rollout(Phase.PROGRESSING), paused, {"RolloutPaused": "info"}),
        (rollout(Phase.COMPLETED), paused, {}),
        (rollout(Phase.PROGRESSING), DEFAULTS, {}),
    ):
        assert problems(installation=healthy_installation(rollout=state, settings=settings)) == wanted


def test_a_rollout_that_stopped_is_told_with_the_cause() -> None:
    parts = {"c-m-1": Part(status=RolloutStatus.FAILED, reason="Too few pods.")}
    found = healthy_installation(rollout=rollout(Phase.STOPPED), rollout_parts=parts)
    judged = findings(snapshot(installation=found, clusters=[build_cluster("demo", "c-m-1")]))
    [told] = [each for each in judged if each.reason == "RolloutStopped"]
    assert told.message.endswith(" stopped: why. demo failed: Too few pods.")


@pytest.mark.parametrize(
    ("status", "told", "wanted"),
    [("True", "RolloutBlocked", "warning"), ("False", "ChartDigestMismatch", "critical")],
)
def test_a_chart_that_cannot_be_had_is_told_also_of_guests_that_run(
    status: str, told: str, wanted: str
) -> None:
    kube_vip = {**condition(status, "ChartDigestMismatch"), "type": "KubeVipReady"}
    ready = condition(status, "Ready" if status == "True" else "ChartDigestMismatch")
    assert problems(floating_ips=[floating("web", ready, kube_vip)])[told] == wanted


def test_what_could_not_be_read_is_no_problem_of_the_installation() -> None:
    blind = healthy_installation(leadership=None, workload=None, schemas={}, has_settings=None)
    unread = tuple(
        Unread(what=what, problem="missing right")
        for what in ("the operator's Lease", "the operator's Deployment", Kind.RANGES)
    )
    assert problems(ranges=[], installation=blind, unread=unread) == {}


# Ranges


def held(count: int) -> list[Json]:
    return [build_reservation(f"10.0.0.{number}", f"f{number}") for number in range(1, count + 1)]


def test_ranges_that_are_full_overlap_or_cannot_be_read() -> None:
    assert problems(reservations=held(8)) == {}
    assert problems(reservations=held(9)) == {"NearlyFull": "warning"}
    assert problems(reservations=held(10)) == {"Full": "critical"}
    assert problems(ranges=[build_range("pool", "nonsense")]) == {"Invalid": "critical"}
    assert problems(ranges=[]) == {"NoRange": "info"}
    later = {"created": "2026-02-01T00:00:00Z", "clusterSelector": EVERY}
    twin = build_range("twin", "10.0.0.1-10.0.0.12", **later)
    assert problems(ranges=[POOL, twin]) == {"Overlap": "warning"}
    draining = build_range("pool", "10.0.0.1", draining=True)
    assert problems(ranges=[draining], reservations=[build_reservation("10.0.0.1")]) == {}


def test_a_range_of_both_families_is_as_full_as_its_fullest() -> None:
    dual = build_range("pool", "10.0.0.1-10.0.0.10,fd00::/64", clusterSelector=EVERY)
    (found,) = [
        each for each in findings(snapshot(ranges=[dual], reservations=held(10))) if each.reason == "Full"
    ]
    assert found.severity is Severity.CRITICAL
    assert "10 of 10 IPv4" in found.message
    assert problems(ranges=[dual], reservations=held(8)) == {}


@pytest.mark.parametrize(
    ("pool", "spec", "cause"),
    [
        ("10.0.0.1-10.0.0.9", {"created": "2026-02-01T00:00:00Z"}, 'older ranges: "pool"'),
        ("10.9.0.1", {"exclude": ["10.9.0.0/24"]}, "all its IPv4 addresses are excluded"),
        ("10.9.0.0", {}, "end in .0 or .255"),
    ],
)
def test_a_range_without_any_address_is_full_and_not_to_be_extended(
    pool: str, spec: dict[str, Any], cause: str
) -> None:
    found = findings(snapshot(ranges=[POOL, build_range("twin", pool, clusterSelector=EVERY, **spec)]))
    (full,) = [each for each in found if each.reason == "Full"]
    assert cause in full.message.replace("All", "all")
    assert "extend" not in f"{full.message} {full.advice}".lower()
    assert not any("Extend" in each.advice for each in found)


@pytest.mark.parametrize(
    ("pool", "spec", "told"),
    [
        ("10.9.7.0/24", {"exclude": ["10.9.8.1"]}, ["10.9.8.1 is outside of spec.iprange"]),
        ("10.9.7.0/24", {"exclude": ["10.9.7.1-10.9.7.9"]}, []),
        ("10.9.7.0/24", {"exclude": ["10.9.7.5/28"]}, ["10.9.7.5/28 means 10.9.7.0/28"]),
        ("10.9.1.5/24", {}, ["10.9.1.5/24 means 10.9.1.0/24"]),
        ("10.9.1.1,fd00::1", {"exclude": ["fd00::1"]}, ["All its IPv6 addresses are excluded"]),
        ("10.9.1.1", {"maxPerGuest": 2, "perGuest": {"maxAllocate": 3}}, ["maxAllocate is 3"]),
        ("10.9.1.1", {"maxPerGuest": 3, "perGuest": {"maxAllocate": 3}}, []),
        ("10.9.1.1", {"clusterSelector": None}, ["only FloatingIPs that name it"]),
        ("10.9.1.1", {"clusterSelector": None, "restrictToMatching": True}, ["serves no guest cluster"]),
    ],
)
def test_what_of_a_range_has_no_effect_is_told_in_its_condition_and_its_findings(
    pool: str, spec: dict[str, Any], told: list[str]
) -> None:
    fields = {key: value for key, value in ({"clusterSelector": EVERY} | spec).items() if value is not None}
    found = snapshot(ranges=[build_range("pool", pool, **fields)])
    (shown,) = report_status(found).ranges
    notes = [each for each in findings(found) if each.reason == "Ineffective"]
    assert (shown.ready.is_true, len(notes), {each.severity for each in notes} - {Severity.INFO}) == (
        True,
        len(told),
        set(),
    )
    for text, note in zip(told, notes, strict=True):
        assert text in note.message
        assert note.message in shown.ready.message
        assert note.advice == "kubectl edit floatingiprange pool"


def test_a_range_whose_addresses_floating_ips_hold_needs_no_selector() -> None:
    pool = build_range("pool", "10.0.0.1-10.0.0.10")
    assert problems(ranges=[pool], floating_ips=[WEB], reservations=[build_reservation("10.0.0.5")]) == {}


def test_the_status_of_a_former_spec_says_nothing() -> None:
    changed = build_range("pool", "10.0.0.1", clusterSelector=EVERY)
    ready = {**condition("True", "Ready"), "message": "It has 9 addresses."}
    former = {"conditions": [ready], "capacity": {"total": 9}, "observedGeneration": 7}
    found = snapshot(ranges=[changed | {"status": former}])
    (shown,) = report_status(found).ranges
    assert (shown.state, shown.families, shown.to_fields()["whole"]) == ("Unknown", (), None)
    assert problems(ranges=[changed | {"status": former}]) == {"Unknown": "info"}


def test_a_harvester_cluster_that_rancher_does_not_know_is_told_with_those_it_knows() -> None:
    def told(**facts: Any) -> list[str]:
        pool = build_range("pool", "10.0.0.1-10.0.0.10", annotations={"harvesterClusterName": "harv1"})
        judged = findings(snapshot(ranges=[pool], **facts))
        return [each.message for each in judged if each.reason == "HarvesterNotFound"]

    assert told(harvesters=["harv1"]) == []
    (message,) = told(harvesters=["harvester1", "lab"])
    assert '"harv1"' in message
    assert 'it has "harvester1", "lab"' in message
    (message,) = told(harvesters=["harv2", "lab"])
    assert '"harv1" (did you mean "harv2"?): it has "harv2", "lab"' in message


def test_a_range_that_waits_for_a_guest_is_reported_while_its_leader_works() -> None:
    def reported(renewed: datetime) -> list[str]:
        lease = LeaderLease(holder="x", renewed=renewed, duration_seconds=15.0, waits=("It waits.",))
        judged = findings(snapshot(installation=healthy_installation(leadership=lease)))
        return [each.message for each in judged if each.reason == "RangeWaiting"]

    assert reported(NOW - timedelta(seconds=29)) == ["It waits."]
    assert reported(NOW - timedelta(minutes=5)) == []


def test_how_full_a_range_is_needs_no_right_to_read_reservations() -> None:
    unread = (Unread(what=Kind.RESERVATIONS, problem="missing right"),)
    assert problems(unread=unread, reservations=held(10)) == {"Full": "critical"}


# Addresses and floating IPs


def test_an_address_with_two_owners_is_critical() -> None:
    twin = build_floating_ip(
        "twin",
        namespace="c-m-2",
        status={**held_by(["10.0.0.5"]), "conditions": [condition("True", "Ready")]},
    )
    held_once = [build_reservation("10.0.0.5")]
    assert problems(floating_ips=[WEB, twin], reservations=held_once) == {"Duplicate": "critical"}
    # Who only asks for it has not got it.
    wish = build_floating_ip(
        "wish",
        namespace="c-m-3",
        ipaddress="10.0.0.5",
        status={"observedGeneration": 1, "conditions": [condition("False", "AddressInUse")]},
    )
    assert problems(floating_ips=[WEB, wish], reservations=held_once) == {"AddressInUse": "critical"}


@pytest.mark.parametrize(
    ("conditions", "severity"),
    [
        ([condition("False", "ForeignValue")], "critical"),
        ([condition("Unknown", "Pending", since_minutes=1)], "info"),
        ([condition("Unknown", "Pending", since_minutes=10)], "warning"),
    ],
)
def test_a_floating_ip_that_is_not_ready(conditions: list[Json], severity: str) -> None:
    assert list(problems(floating_ips=[floating("web", *conditions)]).values()) == [severity]


def test_a_pool_that_the_provider_ignores_is_a_warning_of_a_floating_ip_that_is_ready() -> None:
    configured = {**condition("True", "PoolIgnored"), "type": "GuestConfigured"}
    web = floating("web", condition("True", "Ready"), configured)
    assert problems(floating_ips=[web]) == {"PoolIgnored": "warning"}


def test_a_paused_floating_ip_is_nobodys_fault() -> None:
    paused = floating("web", condition("Unknown", "Paused"))
    paused["metadata"]["annotations"]["kubefip.k8s.binbash.org/paused"] = "true"
    assert problems(floating_ips=[paused]) == {"Paused": "info"}


def test_a_paused_guest_cluster_is_named() -> None:
    paused = build_cluster("demo", "c-m-1", annotations={"kubefip.k8s.binbash.org/paused": "true"})
    assert problems(floating_ips=[WEB], clusters=[paused]) == {"Paused": "info"}


def away(reason: str) -> Json:
    guest = {"cluster": "demo", "id": "c-m-1", "reachable": False, "releases": []}
    return floating("web", condition("False", reason), guest=guest)


@pytest.mark.parametrize("reason", ["GuestDisconnected", "KubeconfigMissing"])
def test_a_guest_cluster_that_is_lost_is_critical_however_new_it_is(reason: str) -> None:
    created = format_time(NOW - timedelta(minutes=59))
    clusters = [build_cluster("demo", "c-m-1", created=created)]
    found = problems(floating_ips=[away(reason)], clusters=clusters)
    assert found == {reason: "critical", "Unreachable": "critical"}


@pytest.mark.parametrize(
    "reason", ["GuestProvisioning", "GuestLeaving", "RolloutPending", "RolloutPaused", "Paused"]
)
def test_what_only_waits_is_no_problem(reason: str) -> None:
    waiting = floating("web", condition("Unknown", reason))
    assert problems(floating_ips=[waiting], clusters=[build_cluster("demo", "c-m-1")]) == {reason: "info"}


@pytest.mark.parametrize(
    ("cluster", "options", "severity"),
    [
        ({}, {}, "critical"),
        ({"created": format_time(NOW - timedelta(minutes=1))}, {}, "info"),
        ({"annotations": {"kubefip.k8s.binbash.org/floating-ip": "false"}}, {}, "warning"),
        ({"imported": True}, {}, "warning"),
        ({}, {"createFloatingIPs": "false"}, "warning"),
    ],
    ids=["wanted", "new", "unwanted", "imported", "option"],
)
def test_a_guest_cluster_that_is_opted_in_and_has_no_floating_ip(
    cluster: dict[str, Any], options: dict[str, str], severity: str
) -> None:
    settings, _ = parse_settings(options, DEFAULTS)
    found = problems(
        clusters=[build_cluster("demo", "c-m-1", **cluster)],
        installation=healthy_installation(settings=settings),
    )
    assert found == {"NoFloatingIP": severity}


def test_a_cluster_that_was_imported_and_has_no_floating_ip_may_wait_for_rancher() -> None:
    found = findings(snapshot(ranges=[POOL], clusters=[build_cluster("demo", "c-m-1", imported=True)]))
    (message,) = (each.message for each in found if each.reason == "NoFloatingIP")
    assert "Rancher has not detected its provider" in message


def test_annotations_and_labels_that_are_probably_not_meant_so_are_named() -> None:
    odd_range = build_range("pool", "10.0.0.1-10.0.0.10", annotations={"harvesterNetworkname": "vlan20"})
    odd_ip = floating("web", condition("True", "Ready"))
    odd_ip["metadata"]["annotations"]["updateConfigMap"] = "ja"
    odd_cluster = build_cluster("demo", "c-m-1")
    odd_cluster["metadata"]["labels"]["kube-vip"] = "yes"
    found = findings(snapshot(ranges=[odd_range], floating_ips=[odd_ip], clusters=[odd_cluster]))
    odd = {str(each.subject): each.severity for each in found if each.reason == "Misspelt"}
    assert not [each.message for each in found if each.message.endswith("?.")]
    assert odd == {
        "FloatingIPRange pool": "warning",
        "FloatingIP c-m-1/web": "warning",
        "Cluster fleet-default/demo": "warning",
    }


def test_many_findings_of_one_kind_are_one_line() -> None:
    def booting(number: int) -> Json:
        guest = build_floating_ip("web", namespace=f"c-m-{number}")
        return guest | {"status": {"conditions": [condition("Unknown", "GuestProvisioning")]}}

    found = report_status(snapshot(floating_ips=[booting(number) for number in range(400)]))
    (one,) = (each for each in summarize(found.problems) if each.reason == "GuestProvisioning")
    assert one.subject.name == "400 FloatingIP objects, such as c-m-0/web"
    assert len(summarize(found.findings)) < 20
    assert summarize(found.problems[:5]) == list(found.problems[:5])


def test_the_revisions_that_this_version_knows_are_those_of_its_crds() -> None:
    found = {}
    for path in Path(__file__).parents[3].joinpath("crds").iterdir():
        metadata = yaml.safe_load(path.read_text())["metadata"]
        found[metadata["name"]] = int(metadata["annotations"]["kubefip.k8s.binbash.org/schema-revision"])
    assert found == SCHEMA_REVISIONS
