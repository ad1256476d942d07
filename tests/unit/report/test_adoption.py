"""What will become of each floating IP of kube-fip-operator."""

from dataclasses import replace
from typing import Any

import pytest

from fipop.report.adoption import AdoptionReport, AdoptionResult, report_adoption
from fipop.report.guests import GuestReport
from tests.harness.objects import build_floating_ip, build_range, build_reservation, held_by
from tests.unit.report.snapshots import build_cluster, snapshot

A = "10.0.0.5"
POOL = build_range("pool", "10.0.0.1-10.0.0.9")


def told(reason: str) -> dict[str, Any]:
    return {
        "type": "Allocated",
        "status": "False",
        "reason": reason,
        "message": "why",
        "lastTransitionTime": None,
    }


def report(
    before: list[dict[str, Any]],
    after: list[dict[str, Any]],
    words: tuple[GuestReport, ...] = (),
    **objects: Any,
) -> AdoptionReport:
    clusters = [build_cluster("demo", "c-m-1")]
    found = snapshot(floating_ips=before, clusters=clusters)
    then = snapshot(ranges=[POOL], floating_ips=after, clusters=clusters, **objects)
    return report_adoption(found, then.inventory, words, asked_guests=bool(words))


@pytest.mark.parametrize(
    ("before", "after", "fate"),
    [
        ({"ipaddress": A}, {"status": held_by([A])}, AdoptionResult.ADOPTED),
        ({"ipaddress": "10.0.9.9"}, {"status": held_by(["10.0.9.9"])}, AdoptionResult.OUT_OF_RANGE),
        ({"ipaddress": A}, {"status": {"conditions": [told("AddressInUse")]}}, AdoptionResult.DUPLICATE),
        ({"ipaddress": A}, {"status": {"conditions": [told("AddressNotInRange")]}}, AdoptionResult.REFUSED),
        ({}, {"status": held_by([A])}, AdoptionResult.NEW),
        ({"status": held_by([A])}, {"status": held_by([A])}, AdoptionResult.ADOPTED),
        ({}, {}, AdoptionResult.WAITING),
    ],
)
def test_what_becomes_of_it(before: dict[str, Any], after: dict[str, Any], fate: AdoptionResult) -> None:
    found = report([build_floating_ip("web", **before)], [build_floating_ip("web", **after)])
    assert [each.fate for each in found.floating_ips] == [fate]
    assert found.counts[fate.value] == 1
    assert found.needs_attention is (fate not in {AdoptionResult.ADOPTED, AdoptionResult.NEW})


def test_what_kube_fip_operator_was_asked_for_after_fipop_counts_more_than_the_status_of_then() -> None:
    before = [build_floating_ip("web", ipaddress=A, status=held_by(["10.0.0.7"]))]
    (moved,) = report(before, [build_floating_ip("web", ipaddress=A, status=held_by([A]))]).floating_ips
    assert (moved.fate, moved.before, moved.after) == (AdoptionResult.ADOPTED, (A,), (A,))
    kept = {**held_by(["10.0.0.7"]), "conditions": [told("AddressInUse")]}
    (taken,) = report(before, [build_floating_ip("web", ipaddress=A, status=kept)]).floating_ips
    assert (taken.fate, taken.before, taken.after) == (AdoptionResult.DUPLICATE, (A,), ("10.0.0.7",))


def test_one_that_the_operator_will_make_is_told_apart() -> None:
    found = report([], [build_floating_ip("demo-kubevip", status=held_by([A]))])
    assert [each.fate for each in found.floating_ips] == [AdoptionResult.CREATED]


def test_a_guest_tells_what_it_carries_too_much_and_what_it_will_be_told() -> None:
    words = GuestReport(guest="c-m-1", config_map={"kube-system/kubevip cidr-global": "10.0.0.7/32"})
    found = report([], [build_floating_ip("web", status=held_by([A]))], (words,))
    (guest,) = found.guests
    assert (guest.cluster, guest.surplus, guest.missing) == ("demo", ("10.0.0.7",), (A,))
    assert found.needs_attention
    silent = replace(words, config_map={}, problem="no answer")
    (guest,) = report([], [build_floating_ip("web", status=held_by([A]))], (silent,)).guests
    assert (guest.missing, guest.problem) == ((), "no answer")


def test_ranges_that_overlap_or_are_broken_want_a_look() -> None:
    younger = build_range("young", "10.0.0.9-10.0.0.20", created="2026-02-01T00:00:00Z")
    broken = build_range("broken", "nonsense")
    found = snapshot(ranges=[POOL, younger, broken], reservations=[build_reservation(A)])
    seen = report_adoption(snapshot(), found.inventory, (), asked_guests=False)
    assert [each.range for each in seen.overlaps] == ["young"]
    assert [each.range for each in seen.broken_ranges] == ["broken"]
    assert seen.needs_attention


def test_a_guest_that_the_operator_refuses_to_write_gets_nothing() -> None:
    refused = {
        "type": "GuestConfigured",
        "status": "False",
        "reason": "ClusterMismatch",
        "message": "no guest is written",
        "lastTransitionTime": None,
    }
    status = {**held_by([A]), "conditions": [refused]}
    found = report(
        [build_floating_ip("web", ipaddress=A)],
        [build_floating_ip("web", ipaddress=A, status=status)],
        (GuestReport(guest="c-m-1"),),
    )
    (guest,) = found.guests
    assert guest.missing == ()
    assert [each.refusal for each in found.floating_ips] == ["no guest is written"]
    assert found.needs_attention
