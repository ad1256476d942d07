"""`fipop values`: what a guest cluster gets, from where each key is, and what a change would change."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from fipop.report.snapshot import Snapshot, Unread
from fipop.report.status import report_status
from fipop.settings.options import DEFAULTS, parse_settings
from tests.unit.report.snapshots import build_cluster, healthy_installation, snapshot

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
        ("(chart version)", "0.6.4", "override second"),
        ("env.vip_interface", "eth2", "override second"),
        ("image.tag", "v1.2.3", "kubevipChartValues"),
        ("image.pullPolicy", None, "override second"),
    }
    assert ("env.vip_interface", "eth1", "kubevipChartValues") in rows(run("first", "-o", "json"))
    shown = run(name).stdout
    assert "configMapName" in shown
    assert "fipop" in shown


def manifest(folder: Path, **changes: str) -> str:
    path = folder / "new.yaml"
    path.write_text(yaml.safe_dump({"kind": "ConfigMap", "data": {**DATA, **changes}}))
    return str(path)


def test_a_change_is_shown_with_the_guest_clusters_in_which_it_is_the_same(
    run: Callable[..., Result], tmp_path: Path
) -> None:
    new = manifest(tmp_path, kubevipChartValues="env: {vip_interface: eth7}\nimage: {tag: v1.2.4}\n")
    found = json.loads(run("--diff", new, "-o", "json").stdout)["changes"]
    assert [each["clusters"] for each in found] == [
        ["fleet-default/first", "fleet-default/third"],
        ["fleet-default/second"],
    ]
    assert found[1]["keys"] == [
        {"chart": "kube-vip", "key": "image.tag", "before": "v1.2.3", "after": "v1.2.4"}
    ]
    assert "2 guest clusters: fleet-default/first, fleet-default/third" in run("--diff", new).stdout
    assert "second" not in run("first", "--diff", new).stdout


def test_a_manifest_that_changes_nothing_says_so(run: Callable[..., Result], tmp_path: Path) -> None:
    result = run("--diff", manifest(tmp_path, logLevel="Debug"))
    assert (result.exit_code, "No guest cluster changes" in result.stdout) == (0, True)


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
        ("kind: List\n", "must be a manifest of ConfigMap kube-fip-config"),
        ("data: {kubevipChartValuesOverrides: [{name: a}]}", "a text as data.kubevipChartValuesOverrides"),
    ):
        bad.write_text(text)
        refused = run("--diff", str(bad))
        assert (refused.exit_code, said in refused.stderr) == (1, True), refused.stderr


def test_an_override_that_fits_nobody_is_a_finding() -> None:
    found = [each.message for each in report_status(build()).findings if each.reason == "OverrideUnused"]
    assert found == ['Entry "nobody" of kubevipChartValuesOverrides fits no guest cluster.']
