"""What a pass is to do in a guest, of all that its floating IPs say."""

from dataclasses import replace
from typing import Any, cast

import pytest

from fipop.api import names
from fipop.api.models import FloatingIP, ReleaseStatus, Reservation
from fipop.guest.release_gate import ReleaseGate
from fipop.guest.reports import ConfigMapOutcome, ConfigMapReport, PassReport, ReleaseReport
from fipop.guest.workloads import Readiness
from fipop.operator.guests.tasks import GuestAddresses, find_fleet, judge_urgency, reported_releases
from fipop.runtime.workqueue import Priority
from fipop.settings.options import DEFAULTS
from fipop.settings.values import GuestInstall
from tests.harness.objects import build_floating_ip, cache_of, floating_ip, held_by, reservation
from tests.harness.small_operator import SmallOperator
from tests.harness.tasks import build_task


def addresses_of(asked: FloatingIP, *held: Reservation) -> GuestAddresses:
    return GuestAddresses(floating_ips=(asked,), held=held, retired=frozenset())


def test_what_a_guest_is_granted_are_the_addresses_that_reservations_back() -> None:
    asking = floating_ip("web", status=held_by(["10.0.0.1", "fd00::2"]))
    addresses = addresses_of(asking, reservation("fd00::2"), reservation("10.0.0.3"))
    assert addresses.granted == {"fd00::2", "10.0.0.3"}
    assert not addresses.are_complete
    assert addresses_of(asking, reservation("fd00::2"), reservation("10.0.0.1")).are_complete


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
    release = ReleaseStatus(role="kube-vip", namespace="kube-system", name="kube-vip")
    readiness = Readiness(ready=True, message="")
    releases = [
        ReleaseReport(release=release, readiness=readiness, deployed_revision=number) for number in revisions
    ]
    task = build_task(gate=ReleaseGate(going_back=cast("Any", going_back)))
    report = PassReport(
        reachable=True,
        error=None,
        config_map=ConfigMapReport(outcome=ConfigMapOutcome.UNCHANGED),
        releases=tuple(releases),
        events=(),
        retry_after_seconds=None,
    )
    assert judge_urgency(task, report) is urgency


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


async def test_releases_are_kept_in_guest_clusters_with_an_address_that_are_opted_in_and_not_paused() -> None:
    operator = SmallOperator()
    operator.add_range()
    for guest_id in ("c-m-a", "c-m-b", "c-m-c"):
        operator.add_guest(guest_id)
    operator.label_guest("c-m-a", **{names.LABEL_OPT_IN: "true"})
    await operator.start()
    for guest_id in ("c-m-a", "c-m-b"):
        operator.ask(guest_id)
    await operator.settle()

    def fleet(install: GuestInstall) -> set[str]:
        return set(find_fleet(operator.manager.guests, replace(DEFAULTS, kubevip_guest_install=install)))

    assert fleet(GuestInstall.ENABLED) == {"c-m-a", "c-m-b"}
    assert fleet(GuestInstall.CLUSTER_LABEL) == {"c-m-a"}
    assert fleet(GuestInstall.DISABLED) == set()
    operator.pause("c-m-a")
    await operator.settle()
    assert fleet(GuestInstall.ENABLED) == {"c-m-b"}
