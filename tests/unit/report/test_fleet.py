"""Floating IPs and guests as people see them."""

from typing import Any

from fipop.report.fleet import GuestSummary, report_floating_ips, report_guests
from fipop.report.snapshot import Snapshot
from tests.harness.objects import build_floating_ip, held_by
from tests.unit.report.snapshots import build_cluster, snapshot
from tests.unit.report.test_findings import condition


def floating(
    name: str, *conditions: dict[str, Any], reachable: bool | None = True, **fields: Any
) -> dict[str, Any]:
    status = {**held_by(["10.0.0.5"]), "conditions": list(conditions)}
    if reachable is not None:
        status["guest"] = {"cluster": "demo", "id": "c-m-1", "reachable": reachable}
    return build_floating_ip(name, status=status, **fields)


WELL, ILL = condition("True", "Ready"), condition("False", "RangeFull")


def guests(found: Snapshot) -> tuple[GuestSummary, ...]:
    return report_guests(found, report_floating_ips(found))


def test_a_floating_ip_that_nobody_looked_at_says_so() -> None:
    (found,) = report_floating_ips(snapshot(floating_ips=[build_floating_ip("web", ipaddress="10.0.0.9")]))
    assert (found.ready.status.value, found.ready.reason) == ("Unknown", "NoStatus")


def test_guest_clusters_are_those_with_floating_ips_and_those_that_are_opted_in() -> None:
    out = build_cluster("out", "c-m-3", opted_in=False)
    clusters = [build_cluster("demo", "c-m-1"), build_cluster("idle", "c-m-2"), out]
    listed = [floating("a", WELL), floating("b", ILL)]
    demo, idle = guests(snapshot(floating_ips=listed, clusters=clusters))
    assert (demo.cluster, len(demo.floating_ips)) == ("demo", 2)
    assert (idle.cluster, idle.floating_ips) == ("idle", ())


def test_a_guest_is_reachable_when_all_that_was_told_says_so() -> None:
    def reachable(*told: bool | None) -> bool | None:
        listed = [floating(f"f{number}", WELL, reachable=each) for number, each in enumerate(told)]
        (guest,) = guests(snapshot(floating_ips=listed))
        return guest.reachable

    assert reachable(True, None) is True
    assert reachable(True, False) is False
    assert reachable(None) is None
