"""What a pass is to do in a guest, of all that its floating IPs say."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from fipop.operator.guests.tasks import build_wanted, judge_urgency, reported_releases, text_of
from fipop.runtime.workqueue import Priority
from tests.harness.objects import build_floating_ip, cache_of, floating_ip, held_by, reservation


def test_only_what_was_granted_is_written_into_a_guest() -> None:
    asking = floating_ip(
        "web", status=held_by(["10.0.0.1", "10.0.0.2"]), serviceNamespace="shop", allowShare=True
    )
    found = build_wanted(asking, frozenset({"10.0.0.2", "10.0.0.3"}))
    assert found is not None
    assert (found.addresses, found.service_namespace, found.allow_share) == (("10.0.0.2",), "shop", True)
    assert found.floating_ip == ("c-m-1", "web")


def test_who_was_granted_nothing_wants_no_key() -> None:
    assert build_wanted(floating_ip("web", status=held_by(["10.0.0.1"])), frozenset()) is None


@pytest.mark.parametrize(
    ("going_back", "revisions", "urgency"),
    [
        (object(), (0, 0), Priority.URGENT),
        (None, (3, 0), Priority.NORMAL),
        (None, (3, 4), Priority.BACKGROUND),
    ],
)
def test_going_back_comes_before_new_guests_and_those_before_upgrades(
    going_back: object, revisions: tuple[int, int], urgency: Priority
) -> None:
    task = SimpleNamespace(gate=SimpleNamespace(going_back=going_back))
    report = SimpleNamespace(releases=[SimpleNamespace(deployed_revision=number) for number in revisions])
    assert judge_urgency(cast("Any", task), cast("Any", report)) is urgency


def test_addresses_are_told_as_guests_write_them() -> None:
    assert text_of([reservation("10.0.0.1"), reservation("fd00::1")]) == {"10.0.0.1", "fd00::1"}


def test_the_status_of_all_floating_ips_of_a_guest_tells_its_releases_and_that_of_no_other_guest() -> None:
    floating_ips = []
    for namespace, name, release in (
        ("c-m-a", "web", "networking/vip"),
        ("c-m-a", "lab", "kube-system/provider"),
        ("c-m-a", "new", ""),
        ("c-m-b", "web", "tenant/kube-vip"),
    ):
        place, _, called = release.partition("/")
        guest = {"guest": {"id": namespace, "releases": [{"namespace": place, "name": called}]}}
        floating_ips.append(build_floating_ip(name, namespace=namespace, status=guest if release else None))
    found = reported_releases(cache_of(floating_ips=floating_ips), "c-m-a")
    assert found == {("networking", "vip"), ("kube-system", "provider")}
