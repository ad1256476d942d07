"""What the status of a floating IP says."""

from dataclasses import replace
from datetime import timedelta

import pytest

from fipop.api import names
from fipop.api.conditions import Condition, ConditionType, Verdict
from fipop.api.objects import FloatingIP, FloatingIPStatus, Owner, ReleaseStatus, Requested
from fipop.guest.findings import Finding, GuestObservation, unreachable
from fipop.guest.helm.charts import Role
from fipop.ipam.addresses import parse_address
from fipop.kube.resources import PROVISIONING_CLUSTERS
from fipop.operator.addresses.decision import Decision
from fipop.operator.addresses.request import Blocker
from fipop.operator.addresses.status import StatusBuilder
from fipop.state.cache import ClusterCache
from fipop.state.claims import Claim
from fipop.state.guests import GuestDirectory
from tests.harness.objects import NOW, Json, floating_ip

DEMO: Json = {
    "metadata": {"name": "demo", "namespace": "fleet-default", "uid": "uid-demo", "resourceVersion": "1"},
    "status": {"clusterName": "c-m-1"},
}
PAUSED_DEMO = {**DEMO, "metadata": {**DEMO["metadata"], "annotations": {names.ANNOTATION_PAUSED: "true"}}}
HELD = ("10.0.0.1",)
FULL = Blocker(reason="RangeFull", message="full")
GOOD = Finding(verdict=Verdict.TRUE, reason="Configured")
BAD = Finding(verdict=Verdict.FALSE, reason="NotReady", message="0 of 3 pods")
RELEASE = ReleaseStatus(
    role="kube-vip",
    name="kube-vip",
    namespace="kube-system",
    revision=1,
    digest="d",
    version="1",
    status="deployed",
)


def status(
    before: FloatingIP | None = None,
    *,
    held: tuple[str, ...] = HELD,
    blockers: tuple[Blocker, ...] = (),
    cluster: Json | None = DEMO,
    observation: GuestObservation | None = None,
    later: int = 0,
) -> FloatingIPStatus:
    cache = ClusterCache(monotonic=lambda: 0.0)
    if cluster is not None:
        cache.observe(PROVISIONING_CLUSTERS, cluster)
    guests = GuestDirectory(cache=cache, client=None)  # type: ignore[arg-type]
    guests.state("c-m-1").visits.observation = observation
    builder = StatusBuilder(cache=cache, guests=guests, now=lambda: NOW + timedelta(seconds=later))
    decision = Decision(holds=tuple(map(claim, held)), blockers=blockers)
    return builder.build(before or floating_ip(), decision)


def claim(text: str) -> Claim:
    owner = Owner(namespace="c-m-1", name="web", uid="uid-c-m-1-web", cluster="demo")
    return Claim(
        space="default",
        address=parse_address(text),
        range="pool",
        owner=owner,
        requested=Requested.DYNAMIC,
    )


def seen(*, addresses: tuple[str, ...] = ("10.0.0.1",), **findings: Finding) -> GuestObservation:
    return GuestObservation(
        reachable=True,
        configured={("c-m-1", "web"): GOOD},
        served={("c-m-1", "web"): addresses},
        releases=(RELEASE,),
        conditions={Role(name.replace("_", "-")): found for name, found in findings.items()},
    )


def told(found: FloatingIPStatus) -> dict[str, str]:
    return {each.type: f"{each.status.value} {each.reason}" for each in found.conditions}


def of_type(found: FloatingIPStatus, kind: ConditionType) -> Condition:
    return next(each for each in found.conditions if each.type == kind)


def test_what_is_held_is_in_the_status_with_range_and_space() -> None:
    found = status(held=("10.0.0.1", "fd00::1"))
    assert (found.addresses, found.range, found.address_space) == (("10.0.0.1", "fd00::1"), "pool", "default")


def test_ready_is_what_the_first_condition_that_is_not_true_says() -> None:
    assert told(status(observation=seen(kube_vip=GOOD, kube_vip_cloud_provider=BAD))) == {
        "Ready": "False NotReady",
        "Allocated": "True Allocated",
        "GuestConfigured": "True Configured",
        "KubeVipReady": "True Configured",
        "CloudProviderReady": "False NotReady",
    }
    assert told(status(observation=seen()))["Ready"] == "True Ready"
    assert told(status(blockers=(FULL,), observation=seen()))["Ready"] == "False RangeFull"


def test_an_obstacle_is_told_together_with_what_stays() -> None:
    allocated = of_type(status(blockers=(FULL, FULL)), ConditionType.ALLOCATED)
    assert (allocated.status, allocated.reason) == (Verdict.FALSE, "RangeFull")
    assert allocated.message.count(FULL.message) == 1
    assert "10.0.0.1" in allocated.message


@pytest.mark.parametrize(("held", "verdict"), [(HELD, Verdict.TRUE), ((), Verdict.FALSE)])
def test_an_obstacle_that_is_tolerable_is_a_note_where_there_is_an_address(
    held: tuple[str, ...], verdict: Verdict
) -> None:
    tolerable = Blocker(reason="RangeFull", message="no IPv6 left", is_tolerable=True)
    allocated = of_type(status(held=held, blockers=(tolerable,)), ConditionType.ALLOCATED)
    assert allocated.status is verdict
    assert tolerable.message in allocated.message


def test_without_a_guest_or_an_address_the_guest_is_not_configured_and_says_why() -> None:
    assert told(status(cluster=None))["GuestConfigured"] == "False GuestNotFound"
    assert status(cluster=None).guest is None
    assert told(status(held=(), blockers=(FULL,)))["GuestConfigured"] == "False NoAddress"


def test_before_the_first_pass_of_this_process_what_was_found_earlier_stays() -> None:
    earlier = status(observation=seen(kube_vip=BAD))
    after_a_restart = status(floating_ip_with(earlier), later=99)
    assert after_a_restart == earlier
    assert told(status())["GuestConfigured"] == "Unknown Pending"


def test_of_a_guest_that_is_not_reached_the_releases_are_those_that_were_seen_last() -> None:
    earlier = status(observation=seen())
    found = status(
        floating_ip_with(earlier), observation=unreachable("GuestUnreachable", "timeout", installs=False)
    )
    assert found.guest is not None
    assert (found.guest.reachable, found.guest.releases) == (False, (RELEASE,))
    assert told(found)["GuestConfigured"] == "False GuestUnreachable"


def test_a_condition_keeps_its_time_while_its_verdict_stays_and_the_same_facts_make_the_same_status() -> None:
    first = status(blockers=(FULL,))
    again = status(floating_ip_with(first), blockers=(FULL,), later=60)
    assert again == first
    other = status(
        floating_ip_with(first), blockers=(Blocker(reason="RangeDraining", message="x"),), later=60
    )
    assert of_type(other, ConditionType.ALLOCATED).last_transition_time == NOW, (
        "another reason, the same verdict"
    )
    better = status(floating_ip_with(first), later=60)
    assert of_type(better, ConditionType.ALLOCATED).last_transition_time == NOW + timedelta(seconds=60)


def floating_ip_with(found: FloatingIPStatus) -> FloatingIP:
    return replace(floating_ip(), status=found)


def test_a_guest_that_is_paused_from_the_start_says_so_until_a_pass_is_made() -> None:
    paused = status(cluster=PAUSED_DEMO)
    assert told(paused)["GuestConfigured"] == "Unknown Paused"
    assert status(floating_ip_with(paused), cluster=PAUSED_DEMO) == paused
    assert told(status(floating_ip_with(paused)))["GuestConfigured"] == "Unknown Pending"
    served = status(observation=seen(kube_vip=BAD))
    assert told(status(floating_ip_with(served), cluster=PAUSED_DEMO)) == told(served), (
        "what a pass found stays told"
    )


def test_a_guest_that_was_told_of_another_address_is_not_configured_with_this_one() -> None:
    """A move looked ready at once, while the guest still had the old address."""
    found = told(status(observation=seen(addresses=("10.0.0.9",))))
    assert (found["GuestConfigured"], found["Ready"]) == ("Unknown Pending", "Unknown Pending")
    assert told(status(observation=seen()))["Ready"] == "True Ready"


def test_what_an_earlier_process_found_of_another_address_does_not_stay() -> None:
    configured = status(observation=seen())
    moved = status(floating_ip_with(configured), held=("10.0.0.2",))
    assert told(moved)["Ready"] == "Unknown Pending"
