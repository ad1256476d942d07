"""Rollouts of the whole operator over a few guest clusters; `test_rollout_schedules` has the rules over fleets."""

import base64
import json
import re
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from fipop.api import names
from fipop.interfaces import ApiRequest
from fipop.rollout.parts import Part, parse_parts
from fipop.rollout.plan import count
from tests.harness.fleet import NAMESPACE, RANCHER, Fleet

IDS = tuple(f"c-m-{number}" for number in range(6))
KEPT = ("configmaps", NAMESPACE, names.ROLLOUT_CONFIG_MAP)
CONFIG = ("configmaps", NAMESPACE, names.SETTINGS_CONFIG_MAP)
QUIET = 600
"""Seconds in which every guest cluster is visited ten times."""


def values(tag: str) -> str:
    return f"image:\n  tag: {tag}\n"


async def started(*ids: str, fleet: Fleet | None = None, **options: str) -> Fleet:
    """Have guest clusters that have opted in; a rollout gives each 20 s to prove itself and 200 s at most."""
    fleet = fleet or Fleet()
    fleet.add_range(iprange="10.0.0.10-10.0.0.49")
    for each in ids:
        fleet.add_guest(each)
        fleet.opt_in(each)
        fleet.ask(each)
    defaults = {
        "kubevipUpdate": "true",
        "kubevipRolloutMinSuccessTime": "20",
        "kubevipRolloutProgressDeadline": "200",
        "kubevipRolloutMaxConcurrency": "50%",
        "operateGuestClusterInterval": "60",
        "kubevipChartValues": values("v1"),
    }
    fleet.set_options(**{**defaults, **options})
    await fleet.start(leader_election=False)
    return fleet


async def settled(*ids: str, **options: str) -> Fleet:
    """Have them with a completed rollout of v1."""
    fleet = await started(*(ids or IDS), **options)
    await until(fleet, "Completed")
    return fleet


async def until(fleet: Fleet, phase: str, seconds: int = 3000) -> None:
    for _ in range(seconds // 5):
        await fleet.pass_time(5)
        if rollout(fleet).get("phase") == phase:
            return
    raise AssertionError(f"not {phase} after {seconds} s: {rollout(fleet)}")


async def until_another(fleet: Fleet) -> None:
    """Wait until the rollout of changed options has begun."""
    before = target(fleet)
    for _ in range(60):
        await fleet.pass_time(1)
        if target(fleet) != before:
            return
    raise AssertionError("no other target")


def rollout(fleet: Fleet) -> dict[str, object]:
    found = fleet.memory.objects.get(KEPT)
    return dict(json.loads(found["data"]["rollout"])) if found is not None else {}


def target(fleet: Fleet) -> str:
    """Return the name of the target."""
    return str(rollout(fleet).get("target", ""))


def tag(fleet: Fleet, guest_id: str) -> str:
    """Return which values kube-vip of a guest cluster has; "" if it is not installed."""
    records = [
        each
        for each in fleet.guests[guest_id].of_kind("secrets").values()
        if each["metadata"]["labels"].get("name") == "kube-vip"
    ]
    if not records:
        return ""
    newest = max(records, key=lambda each: int(each["metadata"]["labels"]["version"]))
    return str(json.loads(base64.b64decode(newest["data"]["release"]))["values"]["image"]["tag"])


def tags(fleet: Fleet) -> list[str]:
    return [tag(fleet, each) for each in sorted(fleet.guests)]


def reasons(fleet: Fleet) -> list[str]:
    """Return the reasons of the events about rollouts, in order."""
    return [reason for _, reason, _ in fleet.events("kube-fip-config") if reason.startswith("Rollout")]


def number_of_runs(fleet: Fleet) -> int:
    return sum(verb in ("upgrade", "rollback", "uninstall") for verb, _ in fleet.helm.runs)


async def test_a_change_reaches_labelled_canaries_first_then_all() -> None:
    fleet = await settled()
    fleet.opt_in(IDS[4], **{names.LABEL_CANARY: "true"})
    fleet.set_options(kubevipChartValues=values("v2"))
    await until_another(fleet)
    await fleet.pass_time(20)
    assert tags(fleet) == ["v2", "v1", "v1", "v1", "v2", "v1"]
    assert fleet.condition(IDS[1], "KubeVipReady") == ("True", "RolloutPending")
    await until(fleet, "Completed")
    assert tags(fleet) == ["v2"] * 6
    assert reasons(fleet) == ["RolloutStarted", "RolloutCompleted"] * 2


async def test_the_counts_that_commands_show_are_those_of_the_guest_clusters_in_each_rollout() -> None:
    """Each guest cluster is in one count, 10 s after it moved at the latest, also in the second rollout."""
    fleet = await settled()
    for version in ("v2", "v3"):
        assert counts(fleet)["succeeded"] == len(IDS)
        fleet.set_options(kubevipChartValues=values(version))
        await until_another(fleet)
        await fleet.pass_time(20)
        shown = counts(fleet)
        assert sum(shown.values()) == len(IDS)
        assert shown["pending"] == tags(fleet).count("v1" if version == "v2" else "v2")
        await until(fleet, "Completed")
    assert counts(fleet)["succeeded"] == len(IDS)


async def test_counts_that_change_twice_within_seconds_are_right_afterwards() -> None:
    fleet = await settled()
    await fleet.pass_time(60)
    for number in range(6, 8):
        fleet.add_guest(f"c-m-{number}")
        fleet.opt_in(f"c-m-{number}")
        await fleet.pass_time(6)
    await fleet.pass_time(60)
    assert (counts(fleet)["succeeded"], counts(fleet)["skipped"]) == (6, 2)
    fleet.set_options(kubevipGuestInstall="disabled")
    await fleet.pass_time(300)
    assert sum(counts(fleet).values()) == 0


async def test_a_write_whose_answer_is_lost_hides_no_event() -> None:
    fleet = await started(*IDS)
    known: set[str] = set()

    async def lose_first(request: ApiRequest) -> None:
        """Lose the answer to the first write of each target and phase."""
        if request.method == "GET" or "rollout" not in (dict(request.body or {}).get("data") or {}):
            return
        facts = json.loads(dict(request.body or {})["data"]["rollout"])
        if (what := facts["target"] + facts["phase"]) not in known:
            known.add(what)
            raise ConnectionError("the answer was lost")

    fleet.link.after = lose_first
    await until(fleet, "Completed")
    await fleet.pass_time(30)
    fleet.helm.unready.add("v2")
    fleet.set_options(kubevipChartValues=values("v2"))
    await until(fleet, "Stopped")
    await fleet.pass_time(60)
    assert reasons(fleet) == ["RolloutStarted", "RolloutCompleted", "RolloutStarted", "RolloutStopped"]


@pytest.mark.parametrize("fate", ["absent", "failed"])
async def test_a_first_value_that_was_wrong_is_corrected_although_nothing_deployed_changes(fate: str) -> None:
    fleet = Fleet()
    fleet.helm.refused["v1"] = fate
    fleet = await started(*IDS, fleet=fleet, kubevipUpdate="false")
    await until(fleet, "Stopped")
    halves = {name for name, each in fleet.guests.items() if "kube-vip-cloud-provider" in each.releases}
    assert len(halves) == 2
    fleet.set_options(kubevipChartValues=values("v2"), kubevipRolloutPaused="true")
    await fleet.pass_time(200)
    assert fleet.condition(min(halves), "CloudProviderReady") == ("True", "Ready")
    fleet.set_options(kubevipRolloutPaused="false")
    await until(fleet, "Completed")
    assert tags(fleet) == ["v2"] * 6
    assert {fleet.condition(each, "KubeVipReady") for each in IDS} == {("True", "Ready")}


async def test_what_is_missing_waits_for_its_turn_and_what_is_deployed_drifts() -> None:
    """The canary of a bad first value has one release when the values of both charts change."""
    fleet = Fleet()
    fleet.helm.refused["v1"] = "absent"
    fleet = await started(*IDS, fleet=fleet, kubevipUpdate="false", kubevipRolloutMaxConcurrency="1")
    await until(fleet, "Stopped")
    fleet.opt_in(IDS[5], **{names.LABEL_CANARY: "true"})
    fleet.set_options(kubevipChartValues=values("v2"), kubevipCloudProviderChartValues=values("v2"))
    await until_another(fleet)
    await fleet.pass_time(10)
    assert tags(fleet) == [""] * 5 + ["v2"]
    assert fleet.condition(IDS[0], "KubeVipReady") == ("False", "RolloutPending")
    assert "The rollout has not reached this guest cluster" in fleet.message(IDS[0], "KubeVipReady")
    assert fleet.condition(IDS[0], "CloudProviderReady") == ("True", "Drift")
    await fleet.pass_time(1200)
    assert tags(fleet) == ["v2"] * 6
    assert fleet.condition(IDS[0], "KubeVipReady") == ("True", "Ready")
    assert fleet.condition(IDS[0], "CloudProviderReady") == ("True", "Drift")
    assert rollout(fleet)["phase"] == "Progressing"


def counts(fleet: Fleet) -> dict[str, int]:
    """Return how many guest clusters are where, as `fipop rollout status` reads it."""
    return count(each.status for each in parts(fleet).values())


def parts(fleet: Fleet) -> dict[str, Part]:
    """Return the part of each guest cluster, as `fipop rollout status` reads it."""
    return parse_parts(fleet.memory.objects[KEPT]["data"]["guests"])


def shown(fleet: Fleet, guest_id: str) -> tuple[str, bool, str]:
    """Return the part of a guest cluster: its status, whether it is a canary, and why."""
    part = parts(fleet)[guest_id]
    return part.status.value, part.is_canary, part.reason


def waits(fleet: Fleet) -> str:
    return str(fleet.memory.objects[KEPT]["data"]["waits"])


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_each_guest_cluster_has_its_part_with_the_reason_whoever_leads(*, is_restarted: bool) -> None:
    """One canary fails, two guest clusters are skipped, one cannot be reached, and the others wait."""
    fleet = await settled()
    fleet.pause(IDS[2])
    fleet.disconnect(IDS[3])
    fleet.helm.unready.add("v2")
    fleet.set_options(kubevipChartValues=values("v2"), kubevipRolloutMaxFailures="5")
    await fleet.pass_time(100)
    assert [each.status.value for each in parts(fleet).values()] == [
        *["progressing"] * 2,
        *["pending"] * 2,
        *["skipped"] * 2,
    ]
    assert shown(fleet, IDS[0])[1] is True
    assert "pods ready" in shown(fleet, IDS[0])[2]
    assert (shown(fleet, IDS[4]), shown(fleet, IDS[5])) == (
        ("pending", False, "It is next."),
        ("pending", False, ""),
    )
    pause = f"Annotation {names.ANNOTATION_PAUSED} of FloatingIP {IDS[2]}/web pauses reconciliation."
    assert shown(fleet, IDS[2]) == ("skipped", False, f"{pause} Remove it to continue.")
    assert shown(fleet, IDS[3]) == ("skipped", False, "fipop cannot reach the guest cluster.")
    assert "when the canaries have succeeded" in waits(fleet)
    if is_restarted:
        before = parts(fleet)[IDS[0]].since
        await fleet.restart(leader_election=False)
        assert parts(fleet)[IDS[0]] == replace(parts(fleet)[IDS[0]], is_canary=True, since=before)
    await until(fleet, "Stopped")
    await fleet.pass_time(120)
    assert tags(fleet)[0] == "v1", "it was rolled back, and nothing there shows the cause any more"
    assert shown(fleet, IDS[0])[:2] == ("failed", True)
    assert "pods ready. The guest cluster was rolled back." in shown(fleet, IDS[0])[2]
    kept = fleet.memory.objects[KEPT]["metadata"]["resourceVersion"]
    await fleet.pass_time(QUIET)
    assert fleet.memory.objects[KEPT]["metadata"]["resourceVersion"] == kept, "a quiet fleet causes no write"


async def test_a_deleted_state_is_written_again_and_the_next_leader_knows_of_the_stop() -> None:
    fleet = await settled(*IDS[:3])
    fleet.helm.unready.add("v2")
    fleet.set_options(kubevipChartValues=values("v2"))
    await until_another(fleet)
    await until(fleet, "Stopped")
    await fleet.pass_time(120)
    before, since = rollout(fleet), len(fleet.helm.runs)
    fleet.memory.remove(KEPT)
    await fleet.pass_time(60)
    assert rollout(fleet) == before
    await fleet.restart(leader_election=False, seconds=QUIET)
    assert rollout(fleet) == before
    assert not {verb for verb, _ in fleet.helm.runs[since:]} & {"upgrade", "rollback", "uninstall"}


async def test_what_holds_a_rollout_up_is_said() -> None:
    fleet = await settled(*IDS[:3])
    assert waits(fleet) == ""
    fleet.set_options(kubevipRolloutPaused="true", kubevipChartValues=values("v2"))
    await fleet.pass_time(30)
    assert waits(fleet) == (
        "It is paused by ConfigMap kube-fip-config: option kubevipRolloutPaused is true. Run fipop rollout resume."
    )
    await fleet.stop()
    fleet.set_options(kubevipRolloutPaused="false", kubevipRolloutCanaries="-1")
    await fleet.start(leader_election=False)
    await fleet.pass_time(30)
    assert waits(fleet) == (
        "It is paused by ConfigMap kube-fip-config: correct kubevipRolloutCanaries, which has no known valid value."
    )
    fleet.set_options(kubevipRolloutCanaries="2")
    for each in IDS[:3]:
        fleet.disconnect(each)
    fleet.set_options(kubevipRolloutPaused="false")
    await fleet.pass_time(120)
    assert "in more than cannot be reached" in waits(fleet)


def break_pods(fleet: Fleet, guest_id: str, ready: int = 0) -> None:
    """Let so many pods of kube-vip be ready in a guest cluster."""
    guest = fleet.guests[guest_id]
    key = next(key for key in guest.objects if key[0] == "daemonsets")
    found = guest.objects[key]
    guest.put(key, {**found, "status": {**found["status"], "numberReady": ready}})


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_after_an_undo_a_guest_cluster_that_is_not_ready_has_not_succeeded_though_it_needs_no_change(
    *, is_restarted: bool
) -> None:
    fleet = await settled()
    fleet.helm.unready.add("v2")
    fleet.set_options(kubevipChartValues=values("v2"))
    await until(fleet, "Stopped")
    await fleet.pass_time(120)
    assert tags(fleet) == ["v1"] * 6
    break_pods(fleet, IDS[5])
    fleet.disconnect(IDS[4])
    await fleet.pass_time(120)
    fleet.set_options(kubevipChartValues=values("v1"))
    await until(fleet, "Completed")
    if is_restarted:
        await fleet.restart(leader_election=False)
    await fleet.pass_time(120)
    assert [shown(fleet, each)[0] for each in IDS[:4]] == ["succeeded"] * 4
    assert shown(fleet, IDS[4]) == ("skipped", False, "fipop cannot reach the guest cluster.")
    if not is_restarted:  # a new leader takes it that a former one has judged it
        assert shown(fleet, IDS[5])[0] == "skipped"
        assert "0 of 1 pods ready" in shown(fleet, IDS[5])[2]
    break_pods(fleet, IDS[5], ready=1)
    fleet.connect(IDS[4])
    await fleet.pass_time(120)
    assert counts(fleet)["succeeded"] == 6
    assert tags(fleet) == ["v1"] * 6


async def test_after_an_undo_a_guest_cluster_whose_workload_is_gone_is_still_repaired() -> None:
    fleet = await settled()
    fleet.set_options(kubevipChartValues=values("v2"), kubevipRolloutMaxConcurrency="1")
    await until_another(fleet)
    await fleet.pass_time(20)
    guest = fleet.guests[IDS[5]]
    key = next(key for key in guest.objects if key[0] == "daemonsets")
    guest.remove(key)
    fleet.set_options(kubevipChartValues=values("v1"))
    await until(fleet, "Completed")
    await fleet.pass_time(300)
    assert key in guest.objects
    assert counts(fleet)["succeeded"] == 6


async def test_who_is_under_way_says_since_when_it_is_ready_and_when_it_succeeds_at_the_earliest() -> None:
    fleet = await settled(kubevipRolloutMinSuccessTime="90")
    fleet.set_options(kubevipChartValues=values("v2"))
    await until_another(fleet)
    await fleet.pass_time(60)
    said = shown(fleet, IDS[0])[2]
    times = re.fullmatch(r"Ready since (\S+ \S+), succeeds at the earliest (\S+ \S+)\.", said)
    assert times is not None, said
    since, earliest = (datetime.strptime(each, "%Y-%m-%d %H:%M:%S%z") for each in times.groups())
    assert earliest - since == timedelta(seconds=90)
    assert abs((fleet.now - since).total_seconds() - 55) < 15
    await fleet.pass_time(20)
    assert shown(fleet, IDS[0])[2] == said, "what is about the same is not written again"
    break_pods(fleet, IDS[0])
    await fleet.pass_time(45)
    assert "0 of 1 pods ready" in shown(fleet, IDS[0])[2]


async def test_how_many_failures_are_tolerated_and_used_is_said() -> None:
    fleet = await settled(
        kubevipRolloutMaxFailures="2", kubevipRolloutCanaries="1", kubevipRolloutMaxConcurrency="1"
    )
    fleet.opt_in(IDS[5], **{names.LABEL_CANARY: "true"})
    fleet.helm.unready.add(f"{RANCHER}/k8s/clusters/{IDS[0]}")
    fleet.set_options(kubevipChartValues=values("v2"))
    await until_another(fleet)
    await fleet.pass_time(15)
    assert "Failures: 0 of 0 that are tolerated (kubevipRolloutMaxFailures)." in waits(fleet)
    for _ in range(60):
        await fleet.pass_time(10)
        if rollout(fleet)["failed"]:
            break
    await fleet.pass_time(15)
    assert "Failures: 1 of 2 that are tolerated (kubevipRolloutMaxFailures)." in waits(fleet)


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_bad_change_stops_and_goes_back_whoever_leads(*, is_restarted: bool) -> None:
    fleet = await settled()
    fleet.helm.unready.add("v2")
    fleet.set_options(kubevipChartValues=values("v2"))
    await until_another(fleet)
    await fleet.pass_time(30)
    assert tags(fleet) == ["v2", "v2", "v1", "v1", "v1", "v1"]
    if is_restarted:
        await fleet.restart(leader_election=False)
    await until(fleet, "Stopped")
    await fleet.pass_time(120)
    assert tags(fleet) == ["v1"] * 6
    assert fleet.condition(IDS[0], "KubeVipReady") == ("True", "RolledBack")
    assert reasons(fleet)[-1] == "RolloutStopped"
    said = [message for _, reason, message in fleet.events() if reason == "RolloutStopped"][-1]
    assert ' of 6 guest clusters ("cluster-c-m-' in said
    assert '" failed: DaemonSet' in said
    runs = number_of_runs(fleet)
    await fleet.restart(leader_election=False)
    await fleet.pass_time(QUIET)
    assert number_of_runs(fleet) == runs


async def test_a_long_display_name_does_not_cut_the_remedy_from_the_event_of_a_stop() -> None:
    """Whoever owns a guest cluster chooses it, and an event has 1,024 bytes. Two fail before the leader sees it."""
    fleet = await settled()
    for each in IDS:
        fleet.add_guest(each, called="店" * 63)
        fleet.opt_in(each)
    fleet.helm.unready.add("v2")
    fleet.set_options(kubevipChartValues=values("v2"))
    await until_another(fleet)
    await fleet.pass_time(60)
    await fleet.stop()
    await fleet.pass_time(180)
    await fleet.start(leader_election=False)
    await until(fleet, "Stopped")
    [said] = [message for _, reason, message in fleet.events() if reason == "RolloutStopped"]
    assert "店" in said
    assert f"{names.ANNOTATION_ROLLOUT}: retry/{target(fleet)}." in said


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_way_back_that_takes_longer_than_the_deadline_fails_nobody(*, is_restarted: bool) -> None:
    """The deadline begins with helm in each guest cluster, also where one of both releases needs no change."""
    fleet = await settled(kubevipRolloutMaxConcurrency="1", kubevipRolloutCanaries="1")
    fleet.set_options(kubevipChartValues=values("v2"))
    while tags(fleet).count("v2") < len(IDS) - 1:
        await fleet.pass_time(5)
    runs = number_of_runs(fleet)
    fleet.set_options(
        kubevipChartValues=values("v1"),
        kubevipRolloutMinSuccessTime="60",
        kubevipRolloutProgressDeadline="100",
    )
    await until_another(fleet)
    if is_restarted:
        await fleet.pass_time(70)
        await fleet.restart(leader_election=False)
    await until(fleet, "Completed")
    assert (rollout(fleet)["failed"], tags(fleet)) == ({}, ["v1"] * len(IDS))
    assert number_of_runs(fleet) - runs == len(IDS) - 1


async def test_a_retry_acts_once_for_the_target_that_it_names() -> None:
    fleet = await settled()
    fleet.helm.unready.add("v2")
    fleet.set_options(kubevipChartValues=values("v2"))
    await until(fleet, "Stopped")
    name = target(fleet)
    [said] = [message for _, reason, message in fleet.events() if reason == "RolloutStopped"]
    assert "run fipop rollout retry." in said
    assert f"{names.ANNOTATION_ROLLOUT}: retry/{name}." in said
    fleet.annotate(CONFIG, {names.ANNOTATION_ROLLOUT: "retry/0123456789ab"})
    await fleet.pass_time(30)
    assert rollout(fleet)["phase"] == "Stopped"
    fleet.helm.unready.clear()
    fleet.annotate(CONFIG, {names.ANNOTATION_ROLLOUT: f"retry/{name}"})
    await until(fleet, "Completed")
    assert tags(fleet) == ["v2"] * 6


async def test_a_pause_admits_nobody() -> None:
    fleet = await settled()
    fleet.set_options(kubevipRolloutPaused="true", kubevipChartValues=values("v2"))
    await fleet.pass_time(300)
    assert tags(fleet) == ["v1"] * 6
    assert fleet.condition(IDS[0], "KubeVipReady") == ("True", "RolloutPaused")
    fleet.set_options(kubevipRolloutPaused="false")
    await until(fleet, "Completed")
    assert tags(fleet) == ["v2"] * 6
    assert reasons(fleet)[2:] == ["RolloutStarted", "RolloutPaused", "RolloutResumed", "RolloutCompleted"]


async def test_the_way_back_to_a_former_target_waits_for_a_pause_and_begins_with_canaries() -> None:
    """What the second target left alone was made for the first one: that does not show that helm has begun."""
    fleet = await settled()
    fleet.set_options(kubevipChartValues=values("v2"))
    await until_another(fleet)
    await until(fleet, "Completed")
    fleet.set_options(kubevipRolloutPaused="true", kubevipChartValues=values("v1"))
    await fleet.pass_time(100)
    assert tags(fleet) == ["v2"] * 6
    fleet.set_options(kubevipRolloutPaused="false")
    await fleet.pass_time(20)
    assert tags(fleet) == ["v1"] * 2 + ["v2"] * 4
    await until(fleet, "Completed")
    assert tags(fleet) == ["v1"] * 6


async def test_a_chart_that_cannot_be_had_is_reported_once_and_touches_nobody() -> None:
    fleet = await settled()
    runs = number_of_runs(fleet)
    fleet.helm.failures["pull"] = ["Error: 404"] * 100
    fleet.set_options(kubevipChartVersion="9.9.9")
    await fleet.pass_time(300)
    assert reasons(fleet)[2:] == ["RolloutBlocked"]
    assert number_of_runs(fleet) == runs
    assert fleet.memory.objects[KEPT]["data"]["waits"].startswith("It is blocked: chart ")
    assert fleet.condition(IDS[0], "KubeVipReady")[0] == "True"
    fleet.helm.failures.clear()
    await until_another(fleet)
    await until(fleet, "Completed")


async def test_an_empty_version_is_looked_up_again_only_for_another_chart() -> None:
    fleet = await settled(*IDS[:2])
    fleet.helm.versions["kube-vip"] = "2.0.0"
    before = target(fleet)
    await fleet.restart(leader_election=False, seconds=300)
    assert target(fleet) == before
    fleet.set_options(kubevipChartValues=values("v2"))
    await until_another(fleet)
    assert '"1.0.0"' in fleet.memory.objects[KEPT]["data"]["target"]
    assert '"2.0.0"' not in fleet.memory.objects[KEPT]["data"]["target"]


def refs(source: str) -> dict[str, str]:
    """Return the options that have both charts from a source."""
    return {
        "kubevipChartRef": f"oci://{source}.example/kube-vip",
        "kubevipCloudProviderChartRef": f"oci://{source}.example/kube-vip-cloud-provider",
    }


async def test_charts_that_move_to_another_source_need_the_former_one_no_more() -> None:
    fleet = await settled(*IDS[:2], **refs("former"))
    runs = number_of_runs(fleet)
    fleet.set_options(**refs("other"))
    await fleet.pass_time(60)
    fleet.helm.gone.update(refs("former").values())
    await fleet.restart(leader_election=False)
    fleet.add_guest(IDS[2])
    fleet.opt_in(IDS[2])
    fleet.ask(IDS[2])
    await fleet.pass_time(120)
    assert tags(fleet) == ["v1"] * 3
    assert number_of_runs(fleet) == runs + 2


async def test_with_type_all_every_guest_cluster_gets_it_at_its_next_visit() -> None:
    fleet = await settled()
    # One after the other they would take hours.
    fleet.set_options(
        kubevipRolloutType="All", kubevipRolloutMinSuccessTime="3600", kubevipChartValues=values("v2")
    )
    await until_another(fleet)
    await fleet.pass_time(90)
    assert tags(fleet) == ["v2"] * 6


async def test_while_an_option_of_rollouts_has_no_known_value_nothing_is_admitted() -> None:
    fleet = await settled()
    fleet.set_options(kubevipRolloutCanaries="many")
    await fleet.restart(leader_election=False)
    fleet.set_options(kubevipChartValues=values("v2"))
    await fleet.pass_time(300)
    assert tags(fleet) == ["v1"] * 6


async def test_a_rollout_that_is_deleted_is_made_again_from_what_the_guest_clusters_have() -> None:
    fleet = await settled()
    runs = number_of_runs(fleet)
    fleet.memory.remove(KEPT)
    await fleet.restart(leader_election=False)
    await until(fleet, "Completed")
    assert number_of_runs(fleet) == runs
