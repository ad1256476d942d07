"""Floating IPs and guests as people see them."""

from typing import Any

from fipop.report.fleet import Problem, Severity, report_floating_ips, report_guests
from tests.harness.objects import build_floating_ip, held_by
from tests.unit.report.pictures import build_cluster, picture

SINCE = "2026-02-01T00:00:00Z"


def condition(status: str, reason: str) -> dict[str, Any]:
    return {"type": "Ready", "status": status, "reason": reason, "message": "m", "lastTransitionTime": SINCE}


def floating(
    name: str, *conditions: dict[str, Any], reachable: bool | None = True, **fields: Any
) -> dict[str, Any]:
    status = {**held_by(["10.0.0.5"]), "conditions": list(conditions)}
    if reachable is not None:
        status["guest"] = {"cluster": "demo", "id": "c-m-1", "reachable": reachable}
    return build_floating_ip(name, status=status, **fields)


WELL, ILL = condition("True", "Ready"), condition("False", "RangeFull")


def test_a_floating_ip_that_nobody_looked_at_says_so() -> None:
    (found,) = report_floating_ips(picture(floating_ips=[build_floating_ip("web", ipaddress="10.0.0.9")]))
    assert (found.ready, found.reason, found.asked_for, found.guest_reachable) == (
        *("Unknown", "NoStatus", "10.0.0.9"),
        None,
    )


def test_a_floating_ip_is_told_as_its_status_has_it() -> None:
    (found,) = report_floating_ips(picture(floating_ips=[floating("web", ILL)]))
    assert (found.cluster, found.addresses, found.range, found.ready, found.reason) == (
        *("demo", ("10.0.0.5",)),
        *("pool", "False", "RangeFull"),
    )


def test_of_a_guest_the_worst_of_its_floating_ips_is_told() -> None:
    out = build_cluster("out", "c-m-3", opted_in=False)
    clusters = [build_cluster("demo", "c-m-1"), build_cluster("idle", "c-m-2"), out]
    found = report_guests(picture(floating_ips=[floating("a", WELL), floating("b", ILL)], clusters=clusters))
    assert [(each.cluster, each.ready, each.reason, each.floating_ips) for each in found] == [
        ("demo", "False", "RangeFull", 2),
        ("idle", "Unknown", "NoFloatingIP", 0),
    ]


def test_a_guest_is_reachable_when_all_that_was_told_says_so() -> None:
    def reachable(*told: bool | None) -> bool | None:
        listed = [floating(f"f{number}", WELL, reachable=each) for number, each in enumerate(told)]
        (guest,) = report_guests(picture(floating_ips=listed))
        return guest.reachable

    assert reachable(True, None) is True
    assert reachable(True, False) is False
    assert reachable(None) is None


def test_what_is_only_information_is_nothing_wrong() -> None:
    told = [
        Problem(severity=each, kind="Guest", name="g", reason="r", message="m").is_wrong for each in Severity
    ]
    assert told == [True, True, False]
