"""What is wrong with an installation, and how wrong."""

from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from fipop.api.conditions import format_time
from fipop.report.facts import SCHEMA_REVISIONS, Leadership, Unread, Workload
from fipop.report.maps import draw_map
from fipop.report.status import report_status
from fipop.settings.options import BadOption
from tests.harness.objects import NOW, Json, build_floating_ip, build_range, build_reservation, held_by
from tests.harness.steps import count_steps
from tests.unit.report.pictures import build_cluster, healthy_installation, picture


def condition(status: str, reason: str, *, since_minutes: float = 60) -> Json:
    since = format_time(NOW - timedelta(minutes=since_minutes))
    return {"type": "Ready", "status": status, "reason": reason, "message": "m", "lastTransitionTime": since}


def floating(name: str, *conditions: Json, **status: object) -> Json:
    return build_floating_ip(name, status={**held_by(["10.0.0.5"]), "conditions": list(conditions), **status})


POOL = build_range("pool", "10.0.0.1-10.0.0.10")
WEB = floating("web", condition("True", "Ready"))


def problems(**objects: object) -> dict[str, str]:
    found = report_status(picture(**objects))  # type: ignore[arg-type]
    return {each.reason: each.severity.value for each in found.problems}


def test_a_healthy_installation_has_no_problem() -> None:
    found = report_status(
        picture(
            ranges=[POOL],
            floating_ips=[WEB],
            reservations=[build_reservation("10.0.0.5")],
            clusters=[build_cluster("demo", "c-m-1")],
        )
    )
    assert found.healthy
    assert not found.problems
    assert found.floating_ips == {"inAll": 1, "ready": 1, "notReady": 0, "unknown": 0}
    assert found.guests["inAll"] == 1
    assert found.operator.leading


@pytest.mark.parametrize(
    ("changes", "reason", "severity"),
    [
        ({"leadership": None}, "NoLeader", "critical"),
        (
            {"leadership": Leadership(holder="x", renewed=NOW - timedelta(minutes=5), duration_seconds=15.0)},
            "NoLeader",
            "critical",
        ),
        ({"leadership": Leadership(holder="", renewed=NOW, duration_seconds=15.0)}, "NoLeader", "critical"),
        (
            {"workload": Workload(image="i", service_account="s", wanted=2, ready=1)},
            "PodsNotReady",
            "warning",
        ),
        ({"schemas": dict.fromkeys(SCHEMA_REVISIONS, 0)}, "OldSchema", "critical"),
        ({"schemas": dict.fromkeys(SCHEMA_REVISIONS)}, "OldSchema", "critical"),
        (
            {"predecessor": Workload(image="i", service_account="s", wanted=1, ready=1)},
            "PredecessorRuns",
            "critical",
        ),
        (
            {"bad_options": (BadOption(option="logLevel", value="x", reason="is bad"),)},
            "BadOption",
            "warning",
        ),
        ({"unwise_options": ("v1.0.1 loses addresses",)}, "UnwiseOption", "info"),
    ],
)
def test_what_is_wrong_with_the_operator(changes: dict[str, object], reason: str, severity: str) -> None:
    found = problems(ranges=[POOL], installation=healthy_installation(**changes))
    assert found == {reason: severity}


@pytest.mark.parametrize(("status", "told"), [("True", "RolloutBlocked"), ("False", "ChartDigestMismatch")])
def test_a_chart_that_cannot_be_had_is_told_also_of_guests_that_run(status: str, told: str) -> None:
    kube_vip = {**condition(status, "ChartDigestMismatch"), "type": "KubeVipReady"}
    ready = condition(status, "Ready" if status == "True" else "ChartDigestMismatch")
    found = problems(ranges=[POOL], floating_ips=[floating("web", ready, kube_vip)])
    assert found[told] == "warning"


def test_what_could_not_be_read_is_no_problem_of_the_installation() -> None:
    blind = healthy_installation(leadership=None, workload=None, schemas={})
    unread = tuple(Unread(what=what, problem="missing right") for what in ("the operator's Lease",))
    found = report_status(picture(ranges=[POOL], installation=blind, unread=unread))
    assert found.healthy
    assert found.operator.leading is None
    assert found.unread == unread


def test_ranges_that_are_full_overlap_or_cannot_be_read() -> None:
    nine = [build_reservation(f"10.0.0.{number}", f"f{number}") for number in range(1, 10)]
    assert problems(ranges=[POOL], reservations=nine) == {"NearlyFull": "warning"}
    assert problems(ranges=[POOL], reservations=[*nine, build_reservation("10.0.0.10", "ten")]) == {
        "Full": "critical"
    }
    assert problems(ranges=[build_range("pool", "nonsense")]) == {"Invalid": "critical"}
    assert problems(ranges=[]) == {"NoRange": "info"}
    twin = build_range("twin", "10.0.0.1-10.0.0.12", created="2026-02-01T00:00:00Z")
    assert problems(ranges=[POOL, twin]) == {"Overlap": "warning"}
    draining = build_range("pool", "10.0.0.1", draining=True)
    assert problems(ranges=[draining], reservations=[build_reservation("10.0.0.1")]) == {}


def test_an_address_with_two_owners_is_critical() -> None:
    twin = build_floating_ip(
        "twin",
        namespace="c-m-2",
        status={**held_by(["10.0.0.5"]), "conditions": [condition("True", "Ready")]},
    )
    found = problems(ranges=[POOL], floating_ips=[WEB, twin], reservations=[build_reservation("10.0.0.5")])
    assert found == {"Duplicate": "critical"}
    # Who only asks for it has not got it.
    wish = build_floating_ip(
        "wish",
        namespace="c-m-3",
        ipaddress="10.0.0.5",
        status={"observedGeneration": 1, "conditions": [condition("False", "AddressInUse")]},
    )
    found = problems(ranges=[POOL], floating_ips=[WEB, wish], reservations=[build_reservation("10.0.0.5")])
    assert found == {"AddressInUse": "warning"}


@pytest.mark.parametrize(
    ("conditions", "severity"),
    [
        ([condition("False", "RangeFull")], "warning"),
        ([condition("Unknown", "Pending", since_minutes=1)], "info"),
        ([condition("Unknown", "Pending", since_minutes=10)], "warning"),
    ],
)
def test_a_floating_ip_that_is_not_ready(conditions: list[Json], severity: str) -> None:
    found = problems(ranges=[POOL], floating_ips=[floating("web", *conditions)])
    assert list(found.values()) == [severity]


def test_a_paused_floating_ip_is_nobodys_fault() -> None:
    paused = floating("web", condition("Unknown", "Paused"))
    paused["metadata"]["annotations"]["kubefip.k8s.binbash.org/paused"] = "true"
    assert problems(ranges=[POOL], floating_ips=[paused]) == {"Paused": "info"}


def test_an_unreachable_guest() -> None:
    away = floating(
        "web",
        condition("True", "Ready"),
        guest={"cluster": "demo", "id": "c-m-1", "reachable": False, "releases": []},
    )
    found = report_status(picture(ranges=[POOL], floating_ips=[away]))
    assert [(each.kind, each.name, each.reason) for each in found.problems] == [
        ("Guest", "demo", "Unreachable")
    ]
    assert found.guests["unreachable"] == 1


def test_the_worst_comes_first() -> None:
    found = report_status(
        picture(
            ranges=[POOL, build_range("broken", "x")],
            floating_ips=[floating("web", condition("False", "No"))],
        )
    )
    assert [each.severity.value for each in found.problems] == ["critical", "warning"]


def count_report_steps(floating_ips: int) -> int:
    fields = [(f"10.10.{number // 250}.{number % 250 + 1}", f"f{number}") for number in range(floating_ips)]
    found = picture(
        ranges=[build_range("pool", "10.10.0.0-10.20.255.255")],
        floating_ips=[build_floating_ip(name, status=held_by([address])) for address, name in fields],
        reservations=[build_reservation(address, name) for address, name in fields],
    )
    assert report_status(found).floating_ips["inAll"] == floating_ips
    return count_steps(lambda: (report_status(found), draw_map(found, "pool")))


def test_the_work_of_a_report_grows_with_the_floating_ips_and_not_faster() -> None:
    """A bound against blow-up; bench.look measures ten thousand of them."""
    assert count_report_steps(2_000) < 15 * count_report_steps(200)


def test_the_revisions_that_this_version_knows_are_those_of_its_crds() -> None:
    found = {}
    for path in Path(__file__).parents[3].joinpath("crds").iterdir():
        metadata = yaml.safe_load(path.read_text())["metadata"]
        found[metadata["name"]] = int(metadata["annotations"]["kubefip.k8s.binbash.org/schema-revision"])
    assert found == SCHEMA_REVISIONS
