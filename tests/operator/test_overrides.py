"""Overrides on a whole operator: who gets what, who is touched, and what a bad entry does."""

import base64
import json
from collections.abc import Sequence
from typing import Any

import pytest

from fipop.api import names
from tests.harness.fleet import NAMESPACE, Fleet

A, B, C, D, E = GUESTS = ("c-m-a", "c-m-b", "c-m-c", "c-m-d", "c-m-e")
WEST, EAST = (A, B, C), (D,)
"""By their label; E has none."""
BASE = "env: {vip_interface: enp1s0}\n"
ROLLED_OUT = 300


def entry(name: str, interface: str, more: str = "") -> str:
    return (
        f"- name: {name}\n  clusterSelector: {{matchLabels: {{rack: {name}}}}}\n"
        f"  values: {{env: {{vip_interface: {interface}}}}}\n{more}"
    )


def record(fleet: Fleet, guest_id: str, release: str = "kube-vip") -> Any:
    """Return the newest record of a release; None without one."""
    found = [
        each
        for each in fleet.guests[guest_id].of_kind("secrets").values()
        if (each["metadata"].get("labels") or {}).get("name") == release
    ]
    return max(found, key=lambda each: int(each["metadata"]["labels"]["version"]), default=None)


def interface(fleet: Fleet, guest_id: str) -> str:
    data = json.loads(base64.b64decode(record(fleet, guest_id)["data"]["release"]))
    return str(data["values"]["env"]["vip_interface"])


def interfaces(fleet: Fleet) -> list[str]:
    return [interface(fleet, each) for each in fleet.guests]


def upgraded(fleet: Fleet, since: int) -> set[str]:
    """Return the guest clusters that helm changed."""
    return {url.rpartition("/")[2] for verb, url in fleet.helm.runs[since:] if verb == "upgrade"}


async def served(
    overrides: str = entry("west", "eth1") + entry("east", "eth2"),
    guests: Sequence[str] = GUESTS,
    **options: str,
) -> Fleet:
    """Have five guest clusters with their releases: three with label west, one with label east."""
    fleet = Fleet()
    fleet.set_options(
        kubevipUpdate="true",
        kubevipChartValues=BASE,
        kubevipChartValuesOverrides=overrides,
        kubevipRolloutCanaries="1",
        kubevipRolloutMaxConcurrency="9",
        kubevipRolloutMinSuccessTime="30",
        kubevipRolloutProgressDeadline="200",
        **options,
    )
    fleet.add_range(iprange="10.0.0.10-10.0.0.29")
    for each in guests:
        fleet.add_guest(each)
        label = {"rack": "west"} if each in WEST else {"rack": "east"} if each in EAST else {}
        fleet.opt_in(each, **label)
    await fleet.start(leader_election=False)
    for each in guests:
        fleet.ask(each)
    await fleet.pass_time(ROLLED_OUT)
    return fleet


def reasons(fleet: Fleet) -> list[str]:
    return [reason for _, reason, _ in fleet.events(names.SETTINGS_CONFIG_MAP)]


async def test_each_guest_cluster_gets_what_fits_it_and_a_change_touches_one_group() -> None:
    fleet = await served()
    assert interfaces(fleet) == ["eth1", "eth1", "eth1", "eth2", "enp1s0"]
    since = len(fleet.helm.runs)
    fleet.set_options(kubevipChartValuesOverrides=entry("west", "eth7") + entry("east", "eth2"))
    await fleet.pass_time(ROLLED_OUT)
    assert interfaces(fleet) == ["eth7", "eth7", "eth7", "eth2", "enp1s0"]
    assert upgraded(fleet, since) == set(WEST)
    assert reasons(fleet)[-1] == "RolloutCompleted"
    fleet.set_options(kubevipChartValuesOverrides="")
    await fleet.pass_time(ROLLED_OUT)
    assert interfaces(fleet) == ["enp1s0"] * 5


async def test_a_bad_override_stops_at_its_canary_and_is_rolled_back() -> None:
    fleet = await served()
    fleet.helm.unready.add("no-such-nic")
    since = len(fleet.helm.runs)
    fleet.set_options(
        kubevipChartValues="env: {vip_interface: enp2s0}\n",
        kubevipChartValuesOverrides=entry("west", "eth1") + entry("east", "no-such-nic"),
    )
    await fleet.pass_time(2 * ROLLED_OUT)
    assert reasons(fleet)[-1] == "RolloutStopped"
    assert interfaces(fleet) == ["eth1", "eth1", "eth1", "eth2", "enp1s0"]
    assert upgraded(fleet, since) <= {D, E}
    assert D in upgraded(fleet, since)
    told = [text for _, reason, text in fleet.events(names.SETTINGS_CONFIG_MAP) if reason == "RolloutStopped"]
    assert "no guest cluster of override kube-vip/east succeeded" in told[0]


REST = """\
- name: rest
  clusterSelector: {matchExpressions: [{key: rack, operator: DoesNotExist}]}
  values: {env: {vip_interface: enp1s0}}
"""
SAME = {
    "another order": (BASE, entry("east", "eth2") + entry("west", "eth1")),
    "another name": (
        BASE,
        (entry("west", "eth1") + entry("east", "eth2")).replace("- name: ", "- name: rack-"),
    ),
    "an entry in place of the base": (
        BASE.replace("enp1s0", "none"),
        entry("west", "eth1") + entry("east", "eth2") + REST,
    ),
}


@pytest.mark.parametrize("what", SAME)
async def test_an_edit_that_gives_nobody_other_values_runs_no_helm(what: str) -> None:
    fleet = await served()
    since, (base, overrides) = len(fleet.helm.runs), SAME[what]
    fleet.set_options(kubevipChartValues=base, kubevipChartValuesOverrides=overrides)
    await fleet.pass_time(ROLLED_OUT)
    assert upgraded(fleet, since) == set()
    assert reasons(fleet)[-2:] == ["RolloutStarted", "RolloutCompleted"]


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_an_entry_that_is_corrected_while_its_canary_runs_has_no_victim(*, is_deleted: bool) -> None:
    """It is deleted, or it is again what it was before: then only its canary changes."""
    fleet = await served()
    fleet.helm.unready.add("no-such-nic")
    since = len(fleet.helm.runs)
    fleet.set_options(kubevipChartValuesOverrides=entry("west", "no-such-nic") + entry("east", "eth2"))
    await fleet.pass_time(60)
    [canary] = upgraded(fleet, since)
    west = "" if is_deleted else entry("west", "eth1")
    fleet.set_options(kubevipChartValuesOverrides=west + entry("east", "eth2"))
    await fleet.pass_time(ROLLED_OUT)
    assert interfaces(fleet) == ["enp1s0" if is_deleted else "eth1"] * 3 + ["eth2", "enp1s0"]
    assert upgraded(fleet, since) == (set(WEST) if is_deleted else {canary})
    assert reasons(fleet)[-1] == "RolloutCompleted"


async def test_an_override_of_one_chart_leaves_the_release_of_the_other_as_it_is() -> None:
    fleet = await served()
    fleet.set_options(
        kubevipCloudProviderChartValuesOverrides=entry("west", "eth1", "  chartVersion: 0.2.9\n")
    )
    await fleet.pass_time(ROLLED_OUT)
    revisions = [
        [record(fleet, each, release)["metadata"]["labels"]["version"] for each in fleet.guests]
        for release in ("kube-vip", "kube-vip-cloud-provider")
    ]
    assert revisions == [["1"] * 5, ["2"] * 3 + ["1"] * 2]


async def test_a_new_guest_cluster_gets_its_overrides_at_its_first_installation() -> None:
    fleet = await served()
    fleet.add_guest("c-m-new")
    fleet.opt_in("c-m-new", rack="east")
    fleet.ask("c-m-new")
    await fleet.pass_time(60)
    assert interface(fleet, "c-m-new") == "eth2"
    assert record(fleet, "c-m-new")["metadata"]["labels"]["version"] == "1"


async def test_a_label_that_is_corrected_reaches_a_guest_cluster_whose_first_installation_is_not_ready() -> (
    None
):
    fleet = await served(entry("east", "eth2") + entry("nowhere", "no-such-nic"))
    fleet.helm.unready.add("no-such-nic")
    fleet.add_guest("c-m-new")
    fleet.opt_in("c-m-new", rack="nowhere")
    fleet.ask("c-m-new")
    await fleet.pass_time(ROLLED_OUT)
    assert interface(fleet, "c-m-new") == "no-such-nic"
    fleet.opt_in("c-m-new", rack="east")
    await fleet.pass_time(ROLLED_OUT)
    assert interface(fleet, "c-m-new") == "eth2"
    assert fleet.condition("c-m-new", "KubeVipReady") == ("True", "Ready")


async def test_a_label_moves_one_guest_cluster() -> None:
    fleet = await served()
    since = len(fleet.helm.runs)
    fleet.opt_in(E, rack="east")
    await fleet.pass_time(ROLLED_OUT)
    assert interface(fleet, E) == "eth2"
    assert upgraded(fleet, since) == {E}
    fleet.set_options(kubevipUpdate="false")
    await fleet.pass_time(60)
    fleet.opt_in(E, rack="west")
    await fleet.pass_time(ROLLED_OUT)
    assert interface(fleet, E) == "eth2"
    assert fleet.condition(E, "KubeVipReady") == ("True", "Drift")


async def test_a_moved_guest_cluster_in_which_the_override_fails_goes_no_further() -> None:
    fleet = await served()
    fleet.helm.unready.add("eth2")
    fleet.opt_in(A, rack="east")
    fleet.opt_in(B, rack="east")
    await fleet.pass_time(2 * ROLLED_OUT)
    assert reasons(fleet)[-1] == "RolloutStopped"
    assert interface(fleet, C) == "eth1"
    assert fleet.condition(D, "KubeVipReady")[0] == "True"


async def test_the_version_of_an_override_is_installed_once_its_archive_is_there() -> None:
    fleet = await served("")
    fleet.helm.failures["pull"] = ["chart not found"] * 2
    fleet.set_options(
        kubevipChartValuesOverrides=entry("west", "eth1", "  chartVersion: 0.6.4\n") + entry("east", "eth2")
    )
    since = len(fleet.helm.runs)
    await fleet.pass_time(20)
    assert reasons(fleet)[-1] == "RolloutBlocked"
    assert upgraded(fleet, since) == set()
    await fleet.pass_time(2 * ROLLED_OUT)
    versions = [
        record(fleet, each)["metadata"]["labels"][f"{names.GROUP}/chart-version"] for each in fleet.guests
    ]
    assert versions == ["0.6.4"] * 3 + ["1.0.0"] * 2
    since, told = len(fleet.helm.runs), reasons(fleet)
    await fleet.restart(leader_election=False, seconds=ROLLED_OUT)
    assert upgraded(fleet, since) == set()
    assert reasons(fleet) == told, "the next leader knows the rollout"


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_bad_entry_keeps_the_last_good_list_as_a_whole(*, is_restarted: bool) -> None:
    fleet = await served()
    since = len(fleet.helm.runs)
    fleet.set_options(kubevipChartValuesOverrides=entry("west", "eth9") + "- name: z\n  clusters: []\n")
    await fleet.pass_time(10)
    if is_restarted:
        await fleet.restart(leader_election=False)
    await fleet.pass_time(ROLLED_OUT)
    assert upgraded(fleet, since) == set()
    told = [text for _, reason, text in fleet.events(names.SETTINGS_CONFIG_MAP) if reason == "BadOption"]
    assert 'entry "z", line 5: clusters must be a list of names, and must not be empty' in told[0]
    assert interfaces(fleet) == ["eth1", "eth1", "eth1", "eth2", "enp1s0"]


async def test_a_restart_with_overrides_changes_nothing() -> None:
    fleet = await served()
    versions = [each.version for each in fleet.guests.values()]
    since = len(fleet.helm.runs)
    await fleet.restart(leader_election=False, seconds=ROLLED_OUT)
    assert [each.version for each in fleet.guests.values()] == versions
    assert upgraded(fleet, since) == set()


async def test_an_upgrade_of_fipop_with_releases_of_before_runs_no_helm() -> None:
    fleet = await served("")
    kept = fleet.memory.objects[("configmaps", NAMESPACE, names.ROLLOUT_CONFIG_MAP)]["data"]
    # What an operator that knew no overrides has kept: the values with all that fipop adds.
    target = json.loads(kept["target"])
    assert [len(each) for each in target.values()] == [4, 4]
    target["kube-vip-cloud-provider"][3]["configMapName"] = "kubevip"
    key = ("configmaps", NAMESPACE, names.ROLLOUT_CONFIG_MAP)
    text = json.dumps(target)
    fleet.write(key, {**fleet.memory.objects[key], "data": {**kept, "target": text, "stable": text}})
    since = len(fleet.helm.runs)
    await fleet.restart(leader_election=False, seconds=ROLLED_OUT)
    assert upgraded(fleet, since) == set()


def runs_in(fleet: Fleet, guest_id: str) -> int:
    """Return how often helm changed a guest cluster."""
    return sum(verb == "upgrade" and url.endswith(f"/{guest_id}") for verb, url in fleet.helm.runs)


@pytest.mark.parametrize("rollout_type", ["Progressive", "All"])
async def test_labels_that_change_again_and_again_have_a_bound_and_a_condition(rollout_type: str) -> None:
    """A controller and GitOps fight about a label of one guest cluster, every 20 s."""
    fleet = await served(guests=(A, E), kubevipRolloutType=rollout_type, operateGuestClusterInterval="60")
    began = runs_in(fleet, E)
    for number in range(180):
        fleet.opt_in(E, rack=("west", "east")[number % 2])
        await fleet.pass_time(20)
        if number == 14:
            assert 1 <= runs_in(fleet, E) - began <= 5
    # In an hour: at once, and after 30 s, 1, 2, 4, 8, 16 and 30 minutes.
    assert runs_in(fleet, E) - began <= 9
    assert fleet.condition(E, "KubeVipReady", name="web") == ("True", "LabelsChange")
    assert "Stop the program that changes them" in fleet.message(E, "KubeVipReady")
    assert fleet.condition(A, "KubeVipReady") == ("True", "Ready")
    fleet.opt_in(E, rack="east")
    await fleet.pass_time(1800 + ROLLED_OUT)
    assert interface(fleet, E) == "eth2"
    await fleet.pass_time(1800)
    assert fleet.condition(E, "KubeVipReady") == ("True", "Ready")
    began = runs_in(fleet, E)
    fleet.opt_in(E, rack="west")
    await fleet.pass_time(60)
    assert (interface(fleet, E), runs_in(fleet, E) - began) == ("eth1", 1), (
        "a label that changes once acts at once"
    )


async def test_restless_labels_of_one_guest_cluster_hold_no_rollout_up() -> None:
    fleet = await served(operateGuestClusterInterval="30")
    for number in range(15):
        fleet.opt_in(E, rack=("west", "east")[number % 2])
        await fleet.pass_time(20)
    fleet.set_options(kubevipCloudProviderChartValues="image: {tag: v2}\n")
    for number in range(60):
        fleet.opt_in(E, rack=("west", "east")[number % 2])
        await fleet.pass_time(20)
    assert reasons(fleet)[-1] == "RolloutCompleted"


async def test_labels_that_come_back_after_the_deadline_give_the_guest_cluster_another_one() -> None:
    """What the first labels made is still there: it does not show when helm began again."""
    fleet = await served()
    for rack, expected in (("west", "eth1"), ("east", "eth2"), ("west", "eth1")):
        fleet.opt_in(E, rack=rack)
        await fleet.pass_time(ROLLED_OUT)  # longer than kubevipRolloutProgressDeadline
        assert interface(fleet, E) == expected
    assert "RolloutStopped" not in reasons(fleet)
