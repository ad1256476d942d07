"""Releases: helm installs to the target, retries, repairs; removal is asked for each guest cluster alone."""

import pytest

from fipop.api import names
from tests.harness.fleet import FLOATING_IPS, Fleet, build_fleet

A, B = "c-m-a", "c-m-b"
X = "10.0.0.10"
BOTH = {"kube-vip": "deployed", "kube-vip-cloud-provider": "deployed"}
VISITED = 150
"""Every guest cluster was visited twice in that time."""


async def installed(*guest_ids: str) -> Fleet:
    """Have opted-in guest clusters with both releases, which have succeeded."""
    fleet = Fleet()
    fleet.set_options(
        operateGuestClusterInterval="60",
        kubevipRolloutCanaries="9",
        kubevipRolloutMaxConcurrency="9",
        kubevipRolloutMinSuccessTime="0",
    )
    fleet.add_range(iprange="10.0.0.10-10.0.0.29")
    for each in guest_ids:
        fleet.add_guest(each)
        fleet.opt_in(each)
    await fleet.start(leader_election=False)
    for each in guest_ids:
        fleet.ask(each)
    await fleet.pass_time(60)
    assert [fleet.guests[each].releases for each in guest_ids] == [BOTH] * len(guest_ids)
    return fleet


async def test_no_chart_is_fetched_until_a_guest_cluster_is_opted_in() -> None:
    fleet = build_fleet(A)
    fleet.ask(A)
    await fleet.start(leader_election=False)
    await fleet.pass_time(60)
    assert (fleet.helm.runs, fleet.guests[A].addresses, fleet.guests[A].releases) == ([], {X}, {})
    fleet.opt_in(A)
    await fleet.pass_time(60)
    assert fleet.guests[A].releases == BOTH


async def test_an_opted_in_guest_cluster_gets_both_releases_once_it_has_a_floating_ip() -> None:
    fleet = build_fleet(A)
    fleet.opt_in(A)
    await fleet.start(leader_election=False)
    await fleet.pass_time(60)
    assert fleet.guests[A].releases == {}
    fleet.ask(A)
    await fleet.pass_time(30)
    assert fleet.guests[A].releases == BOTH
    assert fleet.condition(A, "KubeVipReady") == ("True", "Ready")
    assert fleet.condition(A, "Ready")[0] == "True"


async def test_a_guest_cluster_whose_floating_ip_is_paused_is_only_read() -> None:
    fleet = build_fleet(A)
    fleet.opt_in(A)
    await fleet.start(leader_election=False)
    fleet.ask(A)
    fleet.pause(A)
    version = fleet.guests[A].version
    await fleet.pass_time(60)
    assert (fleet.addresses(A), fleet.guests[A].version) == ([X], version)
    fleet.annotate((FLOATING_IPS, A, "web"), {names.ANNOTATION_PAUSED: "false"})
    await fleet.pass_time(60)
    assert (fleet.guests[A].addresses, fleet.guests[A].releases) == ({X}, BOTH)


WORKLOADS = [
    ("daemonsets", "kube-system", "kube-vip"),
    ("deployments", "kube-system", "kube-vip-cloud-provider"),
]


@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
async def test_a_release_without_its_workload_is_repaired_if_it_may_be_changed_and_reported_else(
    workload: tuple[str, str, str],
) -> None:
    fleet = await installed(A)
    guest, kind = fleet.guests[A], "KubeVipReady" if workload[2] == "kube-vip" else "CloudProviderReady"
    guest.remove(workload)
    await fleet.pass_time(VISITED)
    assert fleet.condition(A, kind) == ("False", "NotReady")
    fleet.set_options(kubevipUpdate="true")
    await fleet.pass_time(VISITED)
    assert workload in guest.objects
    assert fleet.condition(A, kind) == ("True", "Ready")


# Removal


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {names.LABEL_OPT_IN: "false"},
        {names.LABEL_OPT_IN: "flase"},
        {names.LABEL_REMOVE: "true"},
        {names.LABEL_OPT_IN: "false", names.LABEL_REMOVE: "ture"},
    ],
    ids=str,
)
async def test_opting_out_alone_removes_nothing(labels: dict[str, str]) -> None:
    fleet = await installed(A)
    fleet.label_guest(A, **labels)
    await fleet.pass_time(VISITED)
    assert (fleet.guests[A].releases, fleet.guests[A].addresses) == (BOTH, {X})
    await fleet.restart(leader_election=False, seconds=VISITED)
    assert fleet.guests[A].releases == BOTH


@pytest.mark.parametrize("value", ["disabled", "diabled", None])
async def test_an_option_that_changes_for_the_fleet_removes_no_release(value: str | None) -> None:
    fleet = await installed(A, B)
    fleet.set_options(kubevipGuestInstall=value)  # type: ignore[arg-type]
    await fleet.pass_time(VISITED)
    assert [fleet.guests[each].releases for each in (A, B)] == [BOTH, BOTH]


async def test_the_releases_of_one_guest_cluster_are_removed_when_its_labels_ask_for_it() -> None:
    fleet = await installed(A, B)
    fleet.label_guest(A, **{names.LABEL_OPT_IN: "false", f"{names.GROUP}/remove": "true"})
    await fleet.pass_time(VISITED)
    assert fleet.guests[A].releases == {}
    assert fleet.guests[A].of_kind("daemonsets") == {}
    assert fleet.guests[A].addresses == {X}, "its floating IP and its ConfigMap stay"
    assert fleet.guests[B].releases == BOTH
    removed = [
        message for what, reason, message in fleet.events(f"cluster-{A}") if reason == "ReleaseRemoved"
    ]
    assert len(removed) == 2
    assert "kube-system/kube-vip" in removed[-1]
    fleet.opt_in(A)
    await fleet.pass_time(VISITED)
    assert fleet.guests[A].releases == BOTH


@pytest.mark.parametrize("interval", ["60", pytest.param("480", marks=pytest.mark.slow)])
async def test_nobody_misses_a_deadline_because_many_guest_clusters_opt_in(interval: str) -> None:
    """What has begun comes first in the queue of helm, which is busy for half an hour with new guest clusters.

    Those wait there for longer than the deadline, and get what the rollout that ends meanwhile made stable.
    """
    opted_in = 20
    canaries = [f"c-m-canary-{number}" for number in range(2)]
    fleet = await installed(*canaries)
    fleet.add_range("more", "10.0.4.0/22")
    fleet.helm.seconds = 1800.0 / opted_in
    fleet.set_options(
        operateGuestClusterInterval=interval,
        kubevipUpdate="true",
        kubevipRolloutCanaries="2",
        kubevipRolloutMinSuccessTime="30",
        kubevipChartValues="env: {vip_interface: eth7}\n",
        kubevipCloudProviderChartValues="replicas: 2\n",
    )
    since = len(fleet.helm.runs)
    while len(fleet.helm.runs) == since:
        await fleet.pass_time(1)
    for number in range(opted_in):
        fleet.add_guest(f"c-m-{number}")
        fleet.ask(f"c-m-{number}", range_name="more")
        fleet.opt_in(f"c-m-{number}")
    await fleet.pass_time(600)
    upgraded = [url.rpartition("/")[2] for verb, url in fleet.helm.runs[since:] if verb == "upgrade"]
    assert [upgraded.count(each) for each in canaries] == [2, 2]
    assert any(not each.releases for each in fleet.guests.values()), "helm still has work"
    assert sum(len(each.releases) == 1 for each in fleet.guests.values()) <= 2, (
        "each is finished before the next"
    )
    await fleet.pass_time(2400)
    reasons = [reason for _, reason, _ in fleet.events(names.SETTINGS_CONFIG_MAP)]
    assert "RolloutStopped" not in reasons
    assert all(each.releases == BOTH for each in fleet.guests.values())


async def test_a_new_guest_cluster_that_gets_only_one_release_for_hours_stops_no_completed_rollout() -> None:
    """It gets the stable target, which is proven elsewhere."""
    fleet = await installed(A)
    fleet.set_options(operateGuestClusterInterval="60", kubevipUpdate="true")
    fleet.helm.seconds = 10.0
    fleet.add_guest(B)
    fleet.ask(B)
    fleet.opt_in(B)
    while not fleet.guests[B].releases:
        await fleet.pass_time(1)
    fleet.helm.failures["upgrade"] = ["Error: something"] * 99
    await fleet.pass_time(3 * 3600)
    assert fleet.guests[B].releases == {"kube-vip": "deployed"}
    assert "RolloutStopped" not in [reason for _, reason, _ in fleet.events(names.SETTINGS_CONFIG_MAP)]
    assert fleet.condition(B, "CloudProviderReady")[0] == "False"
    fleet.helm.failures.clear()
    await fleet.pass_time(3600)
    assert fleet.guests[B].releases == BOTH
