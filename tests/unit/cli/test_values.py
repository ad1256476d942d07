"""`fipop values`: what a guest cluster gets, from where each key is, and what a change would change."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from fipop.helm.charts import Target, wanted_charts, wanted_overrides, wanted_values
from fipop.kube.resources import MANAGEMENT_CLUSTERS
from fipop.report.snapshot import Snapshot, Unread
from fipop.report.status import report_status
from fipop.rollout.plan import Rollout
from fipop.settings.options import DEFAULTS, parse_settings
from tests.harness.releases import TARGET
from tests.unit.report.snapshots import build_cluster, build_harvester, healthy_installation, snapshot

OVERRIDES = """\
- name: second
  clusters: [second]
  chartVersion: 0.6.4
  values: {env: {vip_interface: eth2}, image: {pullPolicy: }}
- name: nobody
  clusters: [fourth]
  values: {}
"""
DATA = {
    "kubevipChartValues": "env: {vip_interface: eth1}\nimage: {tag: v1.2.3}\n",
    "kubevipChartValuesOverrides": OVERRIDES,
}


def build(**changes: Any) -> Snapshot:
    settings, bad = parse_settings(DATA, DEFAULTS)
    assert bad == ()
    clusters = [build_cluster(name, f"c-m-{name}") for name in ("first", "second", "third")]
    clusters.append(build_cluster("other", "c-m-other", opted_in=False))
    return snapshot(clusters=clusters, installation=healthy_installation(settings=settings, **changes))


@pytest.fixture
def run(run_over: Callable[..., Result]) -> Callable[..., Result]:
    def start(*arguments: str, found: Snapshot | None = None) -> Result:
        return run_over([found or build()], "values", *arguments)

    return start


def rows(result: Result) -> set[tuple[str, str, str]]:
    found = json.loads(result.stdout)["values"]
    return {(each["key"], each["value"], each["origin"]) for each in found if each["chart"] == "kube-vip"}


@pytest.mark.parametrize("name", ["second", "c-m-second", "fleet-default/second"])
def test_each_key_is_shown_with_its_origin(run: Callable[..., Result], name: str) -> None:
    assert rows(run(name, "-o", "json")) == {
        ("(chart)", "https://kube-vip.io/helm-charts/kube-vip", "kubevipChartRepoUrl"),
        ("(chart version)", "0.6.4", "override second"),
        ("(chart digest)", "(any)", "override second"),
        ("env.vip_interface", "eth2", "override second"),
        ("image.tag", "v1.2.3", "kubevipChartValues"),
        ("image.pullPolicy", None, "override second"),
    }
    assert ("env.vip_interface", "eth1", "kubevipChartValues") in rows(run("first", "-o", "json"))
    shown = run(name).stdout
    assert "configMapName" in shown
    assert "fipop" in shown


def manifest(folder: Path, **changes: str | None) -> str:
    """Write the whole ConfigMap, as `kubectl apply` takes it; None leaves an option out."""
    data = {key: value for key, value in {**DATA, **changes}.items() if value is not None}
    return write(folder, {"kind": "ConfigMap", "metadata": {"name": "kube-fip-config"}, "data": data})


def write(folder: Path, content: object) -> str:
    path = folder / f"new-{len(list(folder.iterdir()))}.yaml"
    path.write_text(yaml.safe_dump(content))
    return str(path)


CHANGED = "env: {vip_interface: eth7}\nimage: {tag: v1.2.4}\n"


def test_a_change_is_shown_with_the_guest_clusters_in_which_it_is_the_same(
    run: Callable[..., Result], tmp_path: Path
) -> None:
    new = manifest(tmp_path, kubevipChartValues=CHANGED)
    found = json.loads(run("--diff", new, "-o", "json").stdout)["changes"]
    assert [each["clusters"] for each in found] == [
        ["fleet-default/first", "fleet-default/third"],
        ["fleet-default/second"],
    ]
    assert found[1]["keys"] == [
        {"chart": "kube-vip", "key": "image.tag", "before": "v1.2.3", "after": "v1.2.4"}
    ]
    shown = run("--diff", new).stdout
    assert "2 guest clusters: fleet-default/first, fleet-default/third" in shown
    rows = [line.split()[0] for line in shown.splitlines() if " kube-vip " in line]
    assert rows == ["fleet-default/first", "fleet-default/first", "fleet-default/second"]
    assert "second" not in run("first", "--diff", new).stdout


@pytest.mark.parametrize(
    "patch",
    [
        {"kubevipChartValues": CHANGED},
        {"kubevipChartValuesOverrides": None},
        {"kubevipChartValues": None, "kubevipChartVersion": "0.11.0", "kubevipUpdate": "true"},
        {},
    ],
)
def test_a_file_without_kind_changes_what_merging_it_changes(
    run: Callable[..., Result], tmp_path: Path, patch: dict[str, str | None]
) -> None:
    """`kubectl patch --type merge --patch-file` is the next step: what the file lacks stays, null removes."""
    merged, as_patch = (
        json.loads(run("--diff", file, "-o", "json").stdout)
        for file in (manifest(tmp_path, **patch), write(tmp_path, {"data": patch}))
    )
    assert (merged.pop("file"), as_patch.pop("file")) == ("manifest", "patch")
    assert as_patch == merged
    assert sorted(patch) == as_patch["options"]


def test_the_output_says_what_the_file_is_and_which_options_change(
    run: Callable[..., Result], tmp_path: Path
) -> None:
    whole = run("--diff", manifest(tmp_path, kubevipChartValuesOverrides=None)).stdout
    assert whole.endswith(
        "kubevipUpdate is false: releases that exist stay as they are.\n"
        "Options that change: kubevipChartValuesOverrides\n"
        "The file is a manifest: options that it lacks get their default.\n"
    )
    patched = run("--diff", write(tmp_path, {"data": {"logLevel": "Debug"}}))
    assert patched.exit_code == 0
    assert patched.stdout.endswith(
        "No guest cluster changes.\n"
        "Options that change: logLevel\n"
        "The file is a patch: options that it lacks stay as they are.\n"
    )


@pytest.mark.parametrize(
    ("install", "said"),
    [
        ("enabled", "fipop begins to install in 1 guest cluster: fleet-default/other"),
        ("disabled", "fipop no longer changes 3 guest clusters: fleet-default/first, fleet-default/second"),
    ],
)
def test_guest_clusters_that_join_or_leave_are_named(
    run: Callable[..., Result], tmp_path: Path, install: str, said: str
) -> None:
    shown = run("--diff", write(tmp_path, {"data": {"kubevipGuestInstall": install}})).stdout
    assert said in shown
    assert "No guest cluster changes" not in shown


def test_a_cluster_that_is_none_of_the_guest_clusters_neither_changes_nor_joins(
    run: Callable[..., Result], tmp_path: Path
) -> None:
    settings, _ = parse_settings(DATA, DEFAULTS)
    clusters = [build_cluster("first", "c-m-first"), build_cluster("local", "local", namespace="fleet-local")]
    clusters += [build_cluster("rack", "c-rack"), build_cluster("barn", "c-barn", opted_in=False)]
    found = snapshot(
        clusters=clusters, harvesters=("rack", "barn"), installation=healthy_installation(settings=settings)
    )
    for each in map(build_harvester, ("rack", "barn")):
        found.inventory.observe(MANAGEMENT_CLUSTERS, each)
    new = {"kubevipGuestInstall": "enabled", "kubevipChartValues": CHANGED}
    shown = run("--diff", write(tmp_path, {"data": new}), found=found).stdout
    assert "fleet-default/first" in shown
    for other in ("local", "rack", "barn", "begins to install"):
        assert other not in shown
    result = run("rack", found=found)
    assert (result.exit_code, 'guest cluster "rack" does not exist' in result.stderr.lower()) == (1, True)


def test_another_source_or_digest_of_a_chart_is_a_change(run: Callable[..., Result], tmp_path: Path) -> None:
    new = {"kubevipChartRef": "oci://registry.lan/kube-vip", "kubevipChartDigest": "sha256:" + "a" * 64}
    shown = json.loads(run("third", "--diff", write(tmp_path, {"data": new}), "-o", "json").stdout)
    [change] = shown["changes"]
    assert [each["key"] for each in change["keys"]] == ["(chart)", "(chart digest)"]


def test_a_long_value_is_shown_whole_and_pads_no_other_line(run: Callable[..., Result]) -> None:
    settings, _ = parse_settings({"kubevipChartValues": f"peers: {'x' * 3000}\nshort: 1\n"}, DEFAULTS)
    found = snapshot(
        clusters=[build_cluster("first", "c-m-first")], installation=healthy_installation(settings=settings)
    )
    lines = run("first", found=found).stdout.splitlines()
    assert any(each.endswith("x" * 3000) for each in lines)
    assert all(len(each) < 150 and each == each.rstrip() for each in lines if "peers" not in each)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (OVERRIDES.replace("[second]", "[]"), 'entry "second", line 2'),
        (OVERRIDES.replace("pullPolicy", "repository"), 'entry "second", line 4: values must keep the'),
        ("- &a [*a]", "must not have a YAML alias (line 1)"),
        (OVERRIDES + "x" * 256 * 1024, "must have at most 65536 bytes"),
    ],
)
def test_a_manifest_that_would_not_be_taken_is_refused(
    run: Callable[..., Result], tmp_path: Path, text: str, said: str
) -> None:
    result = run("--diff", manifest(tmp_path, kubevipChartValuesOverrides=text))
    assert (result.exit_code, said in result.stderr) == (1, True)


def test_what_cannot_be_shown_is_said(run: Callable[..., Result], tmp_path: Path) -> None:
    assert run().exit_code == 2
    assert run("nobody").exit_code == 1
    forbidden = build(has_settings=None)
    forbidden.unread = (Unread(what="the options", problem="missing right: get configmaps"),)
    result = run("first", found=forbidden)
    assert (result.exit_code, "missing right" in result.stderr) == (4, True)
    bad = tmp_path / "bad.yaml"
    for text, said in (
        ("[", "must be YAML (line 2, column 1)"),
        ("kind: List\n", "must be a manifest of ConfigMap kube-fip-config, or a patch"),
        ("kubevipUpdate: 'true'\n", "with data"),
        ("kind: ConfigMap\nmetadata: {name: other}\ndata: {}\n", "of ConfigMap kube-fip-config"),
        ("kind: ConfigMap\ndata: {kubevipUpdate: }\n", "a text as data.kubevipUpdate"),
        ("data: {kubevipUpdate: perhaps}\n", "option kubevipUpdate must be true or false: it is 'perhaps'"),
        ("data: {kubevipChartValuesOverrides: [{name: a}]}", "a text as data.kubevipChartValuesOverrides"),
    ):
        bad.write_text(text)
        refused = run("--diff", str(bad))
        assert (refused.exit_code, said in refused.stderr) == (1, True), refused.stderr


def test_an_override_that_fits_nobody_is_a_finding() -> None:
    found = [each.message for each in report_status(build()).findings if each.reason == "OverrideUnused"]
    assert found == ['Entry "nobody" of kubevipChartValuesOverrides fits no guest cluster.']


def test_the_options_of_the_stable_target_are_a_patch(run: Callable[..., Result], tmp_path: Path) -> None:
    """Whatever the options ask for now."""
    former = {
        "kubevipChartVersion": "0.9.9",
        "kubevipChartValues": "env: {on: 'off', port: '1e3'}\nlist: [1]\n",
    }
    settings, _ = parse_settings({**DATA, **former}, DEFAULTS)
    charts = {role: replace(each, sha256="0" * 64) for role, each in wanted_charts(settings).items()}
    stable = Target(charts=charts, values=wanted_values(settings))
    found = build(rollout=Rollout(target=TARGET, stable=stable))
    result = run("--stable", found=found)
    assert result.exit_code == 0
    options = yaml.safe_load(result.stdout)["data"]
    assert options == json.loads(run("--stable", "-o", "json", found=found).stdout)["data"]
    asked, bad = parse_settings({**DATA, **options}, DEFAULTS)
    assert (bad, wanted_values(asked), wanted_overrides(asked)) == ((), wanted_values(settings), {})
    assert {each.version for each in wanted_charts(asked).values()} == {"0.9.9", ""}
    patch = tmp_path / "stable.yaml"
    patch.write_text(result.stdout)
    assert "kubevipChartVersion" in run("--diff", str(patch), found=found).stdout
    assert (run("--stable").exit_code, run("--stable", "first").exit_code) == (1, 2)
