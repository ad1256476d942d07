"""Who has an address, and which addresses a guest has."""

import pytest

from fipop.ipam.addresses import parse_address
from fipop.report.addresses import (
    AddressReport,
    describe_services,
    find_namespaces,
    report_address,
    report_holdings,
    search,
)
from fipop.report.snapshot import Snapshot
from tests.harness.objects import build_floating_ip, build_range, build_reservation, held_by
from tests.unit.report.snapshots import build_cluster, snapshot

PAST = [
    {"namespace": "c-m-8", "name": "old", "cluster": "eight", "releasedAt": "2026-02-02T00:00:00Z"},
    {"namespace": "c-m-7", "name": "older", "cluster": "seven", "releasedAt": "2026-01-02T00:00:00Z"},
]


def ask(found: Snapshot, text: str) -> AddressReport:
    (answer,) = report_address(found, parse_address(text))
    return answer


def test_the_address_of_an_imported_cluster_that_is_gone_says_why_it_waits_longer() -> None:
    waiting = build_reservation("10.0.0.5", quarantined_until="2026-03-02T12:00:00Z")
    waiting["spec"]["guestGoneSince"] = "2026-03-01T12:00:00Z"
    answer = ask(snapshot(ranges=[build_range("pool", "10.0.0.0/24")], reservations=[waiting]), "10.0.0.5")
    assert "gone from Rancher at 2026-03-01 12:00:00Z" in answer.remark
    assert "24 h" in answer.remark


def test_an_address_whose_quarantine_outlasts_its_time_says_for_which_guest_cluster_it_waits() -> None:
    waiting = build_reservation("10.0.0.5", cluster="demo", quarantined_until="2026-02-28T12:00:00Z")
    answer = ask(snapshot(ranges=[build_range("pool", "10.0.0.0/24")], reservations=[waiting]), "10.0.0.5")
    assert "fipop waits until it can read guest cluster demo" in answer.remark


def test_an_address_names_the_services_that_use_it_and_is_found_by_them() -> None:
    services = {"names": ["shop/web", "shop/api"], "count": 3}
    status = {**held_by(["10.0.0.5"]), "services": services}
    found = snapshot(
        ranges=[build_range("pool", "10.0.0.0/24")],
        floating_ips=[build_floating_ip("web", status=status)],
        reservations=[build_reservation("10.0.0.5")],
    )
    (answer,) = search(found, "shop/api")
    assert (answer.address, describe_services(answer)) == ("10.0.0.5", "shop/web,shop/api,1 more")
    assert search(found, "shop/other") == ()
    assert describe_services(ask(found, "10.0.0.6")) == ""


@pytest.mark.parametrize("name", ["demo", "fleet-default/demo", "c-m-1", "web", "c-m-1/web"])
def test_a_guest_is_found_by_any_of_its_names(name: str) -> None:
    found = snapshot(
        ranges=[build_range("pool", "10.0.0.0/24")],
        floating_ips=[build_floating_ip("web", status=held_by(["10.0.0.5"]))],
        reservations=[build_reservation("10.0.0.5"), build_reservation("10.0.0.6", "more")],
        clusters=[build_cluster("demo", "c-m-1"), build_cluster("other", "c-m-2")],
    )
    assert find_namespaces(found, name) == ("c-m-1",)
    assert [each.address for each in report_holdings(found, ["c-m-1"])] == ["10.0.0.5", "10.0.0.6"]


def test_namesakes_in_two_workspaces_are_both_found() -> None:
    found = snapshot(
        clusters=[build_cluster("demo", "c-m-1"), build_cluster("demo", "c-m-2", namespace="fleet-two")]
    )
    assert find_namespaces(found, "demo") == ("c-m-1", "c-m-2")


def test_a_guest_that_is_gone_is_found_by_its_past() -> None:
    found = snapshot(reservations=[build_reservation("10.0.0.5", history=PAST)])
    assert find_namespaces(found, "seven") == ("c-m-7",)
    (had,) = report_holdings(found, ["c-m-7"])
    assert [each.cluster for each in had.past_owners if each.until is not None] == ["eight", "seven"]


def test_an_annotation_of_a_tenant_makes_no_address_anothers() -> None:
    found = snapshot(
        ranges=[build_range("pool", "10.0.0.0/24")],
        floating_ips=[
            build_floating_ip("web", status=held_by(["10.0.0.5"])),
            build_floating_ip(
                "web",
                namespace="c-m-2",
                annotations={"clustername": "demo"},
                status=held_by(["10.0.0.6"]),
            ),
        ],
        reservations=[
            build_reservation("10.0.0.5", cluster="demo"),
            build_reservation("10.0.0.6", namespace="c-m-2", cluster="other"),
        ],
        clusters=[build_cluster("demo", "c-m-1"), build_cluster("other", "c-m-2")],
    )
    namespaces = find_namespaces(found, "demo")
    assert [each.address for each in report_holdings(found, namespaces)] == ["10.0.0.5"]


# Free addresses


def test_an_address_that_its_owner_asked_for_is_static() -> None:
    found = snapshot(reservations=[build_reservation("10.0.0.5", requested="static")])
    assert ask(found, "10.0.0.5").static


def test_an_address_that_only_guest_clusters_use_names_them() -> None:
    reported = [{"address": "10.0.0.1", "guest": guest} for guest in ("c-m-1", "c-m-2")]
    found = snapshot(
        ranges=[build_range("pool", "10.0.0.1-10.0.0.3") | {"status": {"reported": reported}}],
        clusters=[build_cluster("demo", "c-m-1")],
    )
    answer = ask(found, "10.0.0.1")
    assert answer.owner is not None
    assert (answer.owner.namespace, answer.owner.name, answer.owner.cluster) == ("c-m-1", "", "demo")
    assert [each.namespace for each in answer.contenders] == ["c-m-2"]
