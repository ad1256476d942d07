"""`fipop rollout`: what it shows, what it writes with the rights of the user, and how it ends."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner

from fipop.cli.main import main
from fipop.helm.charts import Target, wanted_charts, wanted_overrides, wanted_values
from fipop.kube.client import KubeClient
from fipop.rollout.kept import render_rollout
from fipop.rollout.member import RolloutStatus
from fipop.rollout.parts import Part
from fipop.rollout.plan import Phase, Rollout
from fipop.settings.options import DEFAULTS, parse_settings
from tests.harness.api_in_memory import ApiInMemory, Commit, Json, Key, Link
from tests.harness.releases import OTHER, TARGET, target
from tests.unit.report.snapshots import build_cluster, build_harvester, build_management

CONFIG, KEPT = (("configmaps", "kube-fip", name) for name in ("kube-fip-config", "fipop-rollout"))
STOPPED = Rollout(
    target=TARGET, stable=OTHER, phase=Phase.STOPPED, reason="too bad", failed={"c-m-1": TARGET.name}
)
ANNOTATION = "kubefip.k8s.binbash.org/rollout"
RETRY = f"retry/{TARGET.name}"


class Server(ApiInMemory):
    """One whose clock stands still: the test itself has no loop."""

    def timestamp(self) -> str:
        return "2026-01-01T00:00:00Z"

    def committed(self, key: Key, _before: Json | None, after: Json | None) -> None:
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        for listener in list(self.listeners):
            listener(Commit(version=0, at=moment, key=key, before=None, obj=after))


@pytest.fixture
def link() -> Link:
    found = Link(Server())
    show(found, STOPPED)
    found.server.put(CONFIG, config_map("kube-fip-config", {"kubevipUpdate": "true"}))
    return found


SINCE = datetime(2025, 12, 31, 23, 56, tzinfo=UTC)
PARTS = {
    "c-m-1": Part(status=RolloutStatus.FAILED, is_canary=True, since=SINCE, reason="Too few pods."),
    "c-m-2": Part(status=RolloutStatus.PENDING, reason="It is next."),
    "c-m-3": Part(status=RolloutStatus.SKIPPED, reason="The guest cluster is paused."),
    **{
        f"c-m-{number}": Part(status=RolloutStatus.SUCCEEDED, is_canary=number == 44)
        for number in range(30, 45)
    },
}


def show(link: Link, rollout: Rollout, waits: str = "") -> None:
    """Store a rollout as the operator does."""
    link.server.put(KEPT, config_map("fipop-rollout", render_rollout(rollout, PARTS, waits)))


def config_map(name: str, data: dict[str, str], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": "kube-fip", "name": name, **metadata},
        "data": data,
    }


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, link: Link) -> Callable[..., Any]:
    @asynccontextmanager
    async def connect(_reading: object) -> AsyncIterator[KubeClient]:
        yield KubeClient(link)

    def start(*arguments: str) -> Any:
        monkeypatch.setattr("fipop.cli.reading.ReadingOptions.connect", connect)
        monkeypatch.setattr("fipop.cli.reading.POLL_SECONDS", 0.01)
        result = CliRunner().invoke(main, ["rollout", *arguments], prog_name="fipop")
        assert "Traceback" not in result.output
        return result

    return start


def option(link: Link) -> object:
    return link.server.objects[CONFIG]["data"].get("kubevipRolloutPaused")


def test_status_shows_charts_counts_and_whoever_failed_and_a_stop_is_1(run: Callable[..., Any]) -> None:
    result = run("status")
    assert result.exit_code == 1
    for shown in (
        "kube-vip 2.0.0 → 1.0.0",
        "Stopped",
        "c-m-1",
        "too bad",
        "succeeded",
        "fipop rollout retry",
    ):
        assert shown in result.stdout
    found = json.loads(run("status", "-o", "json").stdout)
    assert found["failed"] == ["c-m-1"]
    assert found["guests"] == {"failed": 1, "pending": 1, "progressing": 0, "skipped": 1, "succeeded": 15}


def test_each_guest_cluster_has_a_row_with_its_part_and_many_alike_are_counted(
    run: Callable[..., Any], link: Link
) -> None:
    link.server.put(("clusters", "fleet-default", "demo"), build_cluster("demo", "c-m-1"))
    shown = run("status").stdout
    rows = [line.split(maxsplit=5) for line in shown.splitlines()]
    assert rows[1][:4] == ["demo", "c-m-1", "failed", "yes"]
    assert rows[1][5].endswith("ago   Too few pods.")
    assert rows[2][1:3] + rows[2][-3:] == ["c-m-2", "pending", "-", "-", "It is next."]
    assert "The guest cluster is paused." in shown
    assert "c-m-44" in shown, "a canary is always shown"
    assert "c-m-43" not in shown
    assert "\n4 more succeeded: --all shows them.\n" in shown
    assert "c-m-43" in run("status", "--all").stdout
    found = json.loads(run("status", "-o", "json").stdout)["parts"]
    assert len(found) == len(PARTS)
    assert found[0] == {
        "guest": "c-m-1",
        "cluster": "demo",
        "part": "failed",
        "canary": True,
        "since": "2025-12-31T23:56:00Z",
        "reason": "Too few pods.",
    }


def test_status_says_what_the_rollout_waits_for_and_how_to_go_back(
    run: Callable[..., Any], link: Link
) -> None:
    rollout = roll_out(link, {}, CHANGES["version"])
    show(link, rollout, waits="At most 2 can be under way at a time.")
    result = run("status")
    assert (result.exit_code, "Waits: At most 2 can be under way at a time." in result.stdout) == (0, True)
    assert "run fipop rollout undo." in result.stdout
    show(link, Rollout(target=TARGET, stable=TARGET, phase=Phase.COMPLETED))
    assert "undo" not in run("status").stdout


@pytest.mark.parametrize("phase", Phase)
def test_until_a_change_of_the_options_is_taken_up_status_says_so(
    run: Callable[..., Any], link: Link, phase: Phase
) -> None:
    news = "Waits: The options ask for another target, which fipop has not taken up yet."
    rollout = replace(roll_out(link, {}, CHANGES["version"]), phase=phase)
    show(link, rollout)
    assert news not in run("status").stdout
    link.server.put(CONFIG, config_map("kube-fip-config", {"kubevipChartVersion": "0.12.0"}))
    show(link, rollout, waits="At most 2 can be under way at a time.")
    assert f"{news}\n" in run("status").stdout
    show(link, rollout, waits="It is blocked: there is no such chart.")
    assert f"{news} It is blocked: there is no such chart.\n" in run("status").stdout


def test_status_and_undo_say_when_the_rollout_began_and_whether_it_goes_back(
    run: Callable[..., Any], link: Link
) -> None:
    rollout = replace(roll_out(link, {}, CHANGES["version"]), began=SINCE)
    show(link, rollout)
    assert "Progressing, began 2025-12-31 23:56:00Z, " in run("status").stdout
    assert json.loads(run("status", "-o", "json").stdout)["began"] == "2025-12-31T23:56:00Z"
    assert rollout.stable is not None
    undone = f"From target {rollout.target.name} (the newest one, begun at 2025-12-31 23:56:00Z) "
    assert f"{undone}back to the stable target {rollout.stable.name}." in run("undo", "--dry-run").stdout
    show(link, replace(rollout, stable=rollout.target))
    assert "\nback to kube-vip 0.11.0, " in run("status").stdout
    show(link, replace(rollout, stable=rollout.target, phase=Phase.COMPLETED))
    assert "\nkube-vip 0.11.0, " in run("status").stdout


def test_until_a_retry_is_taken_up_status_says_so(run: Callable[..., Any], link: Link) -> None:
    rollout = replace(roll_out(link, {}, CHANGES["version"]), phase=Phase.STOPPED, reason="too bad")
    show(link, rollout)
    note = {"annotations": {ANNOTATION: f"retry/{rollout.target.name}"}}
    link.server.put(CONFIG, config_map("kube-fip-config", CHANGES["version"], **note))
    assert "Waits: fipop has not taken up the retry yet." in run("status").stdout
    show(link, replace(rollout, retried=f"retry/{rollout.target.name}"))
    assert "the retry" not in run("status").stdout


def test_from_the_stable_target_no_undo_is_advised(run: Callable[..., Any], link: Link) -> None:
    rollout = replace(roll_out(link, {}, CHANGES["version"]), phase=Phase.STOPPED, reason="too bad")
    show(link, rollout)
    assert "Correct the options, run fipop rollout undo, or repair" in run("status").stdout
    show(link, replace(rollout, stable=rollout.target))
    assert "Correct the options, or repair" in run("status").stdout


def test_an_undo_that_waits_for_a_pause_says_so(run: Callable[..., Any], link: Link) -> None:
    roll_out(link, {}, {**CHANGES["version"], "kubevipRolloutPaused": "true"})
    assert "once you run fipop rollout resume" in run("undo").stdout


def test_a_namespace_without_options_is_named(run: Callable[..., Any], link: Link) -> None:
    for key in (CONFIG, KEPT):
        link.server.remove(key)
    result = run("status")
    assert "ConfigMap kube-fip-config does not exist in namespace kube-fip." in result.stdout
    assert result.exit_code == 1


def test_a_change_of_values_alone_does_not_look_like_the_stable_target(
    run: Callable[..., Any], link: Link
) -> None:
    show(link, Rollout(target=TARGET, stable=target(tag="v2")))
    assert "kube-vip-cloud-provider 1.0.0 with other values, Progressing" in run("status").stdout


def test_pause_and_resume_set_the_option_alone(run: Callable[..., Any], link: Link) -> None:
    assert run("pause").exit_code == 0
    assert option(link) == "true"
    assert run("resume").exit_code == 0
    assert option(link) == "false"
    assert link.server.objects[CONFIG]["data"]["kubevipUpdate"] == "true"


@pytest.mark.parametrize("command", ["pause", "resume", "retry", "undo"])
def test_what_prints_a_sentence_takes_no_format(run: Callable[..., Any], command: str) -> None:
    result = run(command, "-o", "json")
    assert (result.exit_code, "No such option" in result.stderr) == (2, True)


def test_whoever_manages_the_options_with_gitops_is_warned(run: Callable[..., Any], link: Link) -> None:
    assert "Warning" not in run("pause").stderr
    labels = {"kustomize.toolkit.fluxcd.io/name": "platform"}
    link.server.put(CONFIG, config_map("kube-fip-config", {}, labels=labels))
    result = run("pause")
    assert (result.exit_code, "Warning: Flux applies" in result.stderr) == (0, True)


def test_a_retry_sets_the_annotation_for_the_current_target(run: Callable[..., Any], link: Link) -> None:
    assert run("retry").exit_code == 0
    assert link.server.objects[CONFIG]["metadata"]["annotations"][ANNOTATION] == RETRY


def test_a_second_retry_waits_until_the_operator_has_seen_the_first_one_go(
    run: Callable[..., Any], link: Link
) -> None:
    """The annotation acts once."""
    link.server.put(CONFIG, config_map("kube-fip-config", {}, annotations={ANNOTATION: RETRY}))
    show(link, replace(STOPPED, retried=RETRY))
    seen = []

    def operate(commit: Commit) -> None:
        if commit.key == CONFIG and commit.obj is not None:
            asked = (commit.obj["metadata"].get("annotations") or {}).get(ANNOTATION, "")
            seen.append(asked)
            if not asked:
                show(link, replace(STOPPED, retried=""))

    link.server.listeners.append(operate)
    assert run("retry").exit_code == 0
    assert seen == ["", RETRY]


def test_without_a_rollout_that_is_said(run: Callable[..., Any], link: Link) -> None:
    link.server.remove(KEPT)
    assert (run("status").exit_code, "no rollout" in run("status").stdout) == (0, True)
    for command in ("retry", "undo"):
        result = run(command)
        assert result.exit_code == 1
        assert "there is no rollout in namespace kube-fip" in result.stderr.lower()


def test_a_missing_right_is_named(run: Callable[..., Any], link: Link) -> None:
    link.refuse = lambda verb, _target, _request: verb == "patch"
    result = run("pause")
    assert (result.exit_code, "patch configmaps/kube-fip-config" in result.stderr) == (1, True)


def test_a_wrong_namespace_is_named(run: Callable[..., Any], link: Link) -> None:
    link.server.remove(CONFIG)
    result = run("pause")
    assert (result.exit_code, "--operator-namespace" in result.stderr) == (1, True)


# Back to the stable target

VALUES = "# the interface of all\nenv: {vip_interface: eth1}\n"
FORMER = {
    "kubevipChartRepoUrl": "https://charts.example",
    "kubevipChartVersion": "0.9.9",
    "kubevipChartValues": VALUES,
    "kubevipCloudProviderChartVersion": "0.2.10",
    "kubevipChartValuesOverrides": "- {name: rack, clusters: [demo], chartVersion: v0.6.4, values: {}}",
    "kubevipUpdate": "true",
}


def as_target(options: dict[str, str]) -> tuple[Target, dict[str, str]]:
    """Return what a leader makes of options, with the digests of archives, and its orders."""
    settings, bad = parse_settings(options, DEFAULTS)
    assert bad == ()
    charts = {role: replace(each, sha256="0" * 64) for role, each in wanted_charts(settings).items()}
    overrides = {
        role: tuple(
            replace(
                each, chart_version=each.chart_version.removeprefix("v"), chart_digest=f"sha256:{'1' * 64}"
            )
            if each.chart_version
            else each
            for each in entries
        )
        for role, entries in wanted_overrides(settings).items()
    }
    orders = {
        role.value: f"{each} {each.version} {each.sha256}" for role, each in wanted_charts(settings).items()
    }
    return Target(charts=charts, values=wanted_values(settings), overrides=overrides), orders


def roll_out(link: Link, before: dict[str, str], after: dict[str, str]) -> Rollout:
    """Have a rollout from the options before, which was completed, to those after."""
    (stable, _), (wanted, orders) = as_target(before), as_target(after)
    rollout = Rollout(target=wanted, stable=stable, orders=orders)
    show(link, rollout)
    link.server.put(CONFIG, config_map("kube-fip-config", after))
    return rollout


CHANGES: dict[str, dict[str, str]] = {
    "version": {"kubevipChartVersion": "0.11.0"},
    "values": {"kubevipChartValues": "env: {vip_interface: eth2}"},
    "source": {
        "kubevipChartVersion": "0.11.0",
        "kubevipChartRef": "oci://registry.example/kube-vip",
        "kubevipCloudProviderChartRef": "oci://registry.example/kube-vip-cloud-provider",
    },
    "overrides": {"kubevipChartValuesOverrides": "- {name: rack, clusters: [demo], values: {env: {a: b}}}"},
    "no overrides": {"kubevipChartValuesOverrides": ""},
    "new overrides": {
        "kubevipCloudProviderChartValuesOverrides": "- {name: rack, clusters: [demo], values: {cm: {}}}"
    },
    "digest": {"kubevipChartDigest": f"sha256:{'0' * 64}", "kubevipChartVersion": "0.11.0"},
}


@pytest.mark.parametrize("change", CHANGES)
def test_undo_writes_options_that_ask_for_the_stable_target_and_leaves_the_others_alone(
    run: Callable[..., Any], link: Link, change: str
) -> None:
    rollout = roll_out(link, FORMER, {**FORMER, **CHANGES[change]})
    result = run("undo")
    assert (result.exit_code, rollout.stable is not None) == (0, True), result.output
    written = link.server.objects[CONFIG]["data"]
    found, _ = as_target(written)
    assert rollout.stable is not None
    assert (found.digests, found.overrides) == (rollout.stable.digests, rollout.stable.overrides)
    touched = {each for each in written if written[each] != {**FORMER, **CHANGES[change]}.get(each)}
    assert touched <= {*CHANGES[change], "kubevipChartRepoUrl", "kubevipCloudProviderChartVersion"}
    assert "Options that change: " in result.stdout
    assert f"ask for the stable target {rollout.stable.name} again" in result.stdout
    assert "fipop rollout status --watch waits for the end." in result.stdout


def test_undo_shows_the_difference_first_and_a_dry_run_writes_nothing(
    run: Callable[..., Any], link: Link
) -> None:
    link.server.put(("clusters", "fleet-default", "demo"), build_cluster("demo", "c-m-1"))
    after = {**FORMER, "kubevipChartValues": "env: {vip_interface: eth2}"}
    roll_out(link, FORMER, after)
    result = run("undo", "--dry-run")
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["fleet-default/demo", "kube-vip", "env.vip_interface", "eth2", "eth1"] in lines
    assert (
        "Nothing was written. After fipop rollout undo, fipop rollout status --watch waits" in result.stdout
    )
    assert link.server.objects[CONFIG]["data"] == after


def test_undo_counts_no_cluster_that_is_none_of_the_guest_clusters(
    run: Callable[..., Any], link: Link
) -> None:
    for name, guest in (("demo", "c-m-1"), ("local", "local"), ("rack", "c-rack"), ("shed", "c-m-shed")):
        cluster = build_cluster(name, guest, opted_in=False)
        if name == "shed":  # imported in Rancher's pages as a Harvester cluster, and not connected yet
            cluster["metadata"]["labels"]["provider.cattle.io"] = "harvester"
        link.server.put(("clusters", "fleet-default", name), cluster)
    for each in (build_harvester("rack"), build_management("c-m-1", "demo")):
        link.server.put(("clusters", "", each["metadata"]["name"]), each)
    every = {**FORMER, "kubevipGuestInstall": "enabled"}
    roll_out(link, every, {**every, "kubevipChartValues": "env: {vip_interface: eth2}"})
    result = run("undo", "--dry-run")
    assert result.exit_code == 0
    assert "fleet-default/demo " in result.stdout
    for other in ("local", "rack", "shed", "more"):
        assert other not in result.stdout


def test_undo_refuses_while_the_options_ask_for_something_else_than_what_is_rolled_out(
    run: Callable[..., Any], link: Link
) -> None:
    roll_out(link, FORMER, {**FORMER, "kubevipChartVersion": "0.11.0"})
    newer = {**FORMER, "kubevipChartVersion": "0.12.0"}
    link.server.put(CONFIG, config_map("kube-fip-config", newer))
    result = run("undo")
    assert (result.exit_code, "the options were changed since" in result.stderr.lower()) == (1, True)
    assert "fipop values --stable" in result.stderr
    assert link.server.objects[CONFIG]["data"] == newer


def test_undo_refuses_what_was_changed_between_its_reading_and_its_write(
    run: Callable[..., Any], link: Link
) -> None:
    after = {**FORMER, "kubevipChartVersion": "0.11.0"}
    roll_out(link, FORMER, after)
    newer = {**after, "logLevel": "Debug"}

    def change(verb: str, _target: object, _request: object) -> bool:
        if verb == "patch":
            link.server.put(CONFIG, config_map("kube-fip-config", newer))
        return False

    link.refuse = change
    result = run("undo")
    assert (result.exit_code, "changed meanwhile" in result.stderr) == (1, True)
    assert link.server.objects[CONFIG]["data"] == newer


@pytest.mark.parametrize(
    ("stable", "why"),
    [
        (None, "no target was completed before the current one."),
        (TARGET, "the target is the stable one. See fipop rollout status."),
    ],
)
def test_without_another_target_there_is_nothing_to_undo(
    run: Callable[..., Any], link: Link, stable: Target | None, why: str
) -> None:
    show(link, Rollout(target=TARGET, stable=stable))
    result = run("undo")
    assert (result.exit_code, f"here is nothing to undo: {why}" in result.stderr) == (1, True)
