"""The alerts of the chart, tried by promtool: each fires when it should, and is silent when it should be."""

import copy
import json
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from localfleet.assets import ensure
from tests.chart.rendering import ROOT, Chart

KNOWN = "monitoring.coreos.com/v1/PrometheusRule"
JOB = 'job="fipop",namespace="kube-fip"'
RUNBOOKS = ROOT / "docs" / "alerts.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Series of one sample a minute, and whether an alert fires after `minutes`, with which labels."""

    alert: str
    fires: bool
    series: dict[str, str]
    minutes: int = 30
    labels: dict[str, str] = field(default_factory=dict)


def addresses(used: str, free: str, quarantined: str = "0x5000", *, pod: str = "a") -> dict[str, str]:
    return {
        f'fipop_range_addresses{{{JOB},pod="{pod}",range="vlan",state="{state}"}}': values
        for state, values in (("used", used), ("free", free), ("quarantined", quarantined))
    }


def one(name: str, values: str, **labels: str) -> dict[str, str]:
    more = "".join(f',{key}="{value}"' for key, value in labels.items())
    return {f"{name}{{{JOB}{more}}}": values}


LEADS = one("fipop_leader", "1x5000", pod="a")
RANGE = {"range": "vlan"}
CASES = (
    Case(alert="FipopRangeFilling", fires=True, series=addresses("70x60", "24x60", "6x60"), labels=RANGE),
    Case(alert="FipopRangeFilling", fires=False, series=addresses("74x60", "26x60")),
    Case(alert="FipopRangeFilling", fires=False, series=addresses("92x60", "8x60")),
    Case(alert="FipopRangeNearlyFull", fires=True, series=addresses("90x60", "10x60"), labels=RANGE),
    # Two replicas show the same: it is one range, not two halves of one.
    Case(
        alert="FipopRangeNearlyFull",
        fires=True,
        series=addresses("90x60", "10x60") | addresses("90x60", "10x60", pod="b"),
        labels=RANGE,
    ),
    Case(alert="FipopRangeNearlyFull", fires=False, series=addresses("89x60", "11x60")),
    Case(alert="FipopRangeFull", fires=True, series=addresses("60x60", "0x60", "40x60"), labels=RANGE),
    Case(alert="FipopRangeFull", fires=False, series=addresses("99x60", "1x60")),
    Case(
        alert="FipopRangeFullSoon",
        fires=True,
        series=addresses("600+0.03x4000", "400-0.03x4000"),
        minutes=3600,
        labels=RANGE,
    ),
    Case(alert="FipopRangeFullSoon", fires=False, series=addresses("600x4000", "400x4000"), minutes=3600),
    Case(
        alert="FipopRangeFullSoon",
        fires=False,
        series=addresses("100+0.03x4000", "900-0.03x4000"),
        minutes=3600,
    ),
    Case(
        alert="FipopGuestUnreachable",
        fires=True,
        series=one("kubefipoperator_guestcluster_status", "0x60", guestclustername="demo"),
        labels={"guestclustername": "demo"},
    ),
    Case(
        alert="FipopGuestUnreachable",
        fires=False,
        series=one("kubefipoperator_guestcluster_status", "0x10 1x50", guestclustername="demo"),
    ),
    Case(
        alert="FipopFloatingIPNotReady",
        fires=True,
        series=one("fipop_floating_ips", "2x60", ready="False"),
        labels={"ready": "False"},
    ),
    Case(
        alert="FipopFloatingIPNotReady",
        fires=False,
        series=one("fipop_floating_ips", "0x60", ready="False")
        | one("fipop_floating_ips", "9x60", ready="True"),
    ),
    Case(
        alert="FipopRolloutStopped",
        fires=True,
        series=one("fipop_rollout_info", "1x60", target="c0ffee", state="Stopped"),
        labels={"target": "c0ffee"},
    ),
    Case(
        alert="FipopRolloutStopped",
        fires=False,
        series=one("fipop_rollout_info", "1x60", target="c0ffee", state="Wave"),
    ),
    Case(alert="FipopWithoutLeader", fires=True, series=one("fipop_leader", "0x60", pod="a")),
    Case(alert="FipopWithoutLeader", fires=True, series={}),
    Case(alert="FipopWithoutLeader", fires=False, series=LEADS | one("fipop_leader", "0x60", pod="b")),
    # A leader that goes is no alarm where another comes in time.
    Case(
        alert="FipopWithoutLeader",
        fires=False,
        series=one("fipop_leader", "1x25 0x30", pod="a") | one("fipop_leader", "0x27 1x30", pod="b"),
    ),
    Case(
        alert="FipopOperatorBlind",
        fires=True,
        series=one("fipop_api_last_answer_timestamp_seconds", "60x60", pod="a"),
        labels={"pod": "a"},
    ),
    Case(
        alert="FipopOperatorBlind",
        fires=True,
        series=one("fipop_allocation_open", "0x60", pod="a"),
        labels={"pod": "a"},
    ),
    Case(
        alert="FipopOperatorBlind",
        fires=False,
        series=one("fipop_api_last_answer_timestamp_seconds", "0+60x60", pod="a")
        | one("fipop_allocation_open", "1x60", pod="a"),
    ),
    Case(alert="FipopReleasesWithheld", fires=True, series=one("fipop_withheld_releases", "40x60")),
    Case(alert="FipopReleasesWithheld", fires=False, series=one("fipop_withheld_releases", "0x60")),
    Case(alert="FipopBadOptions", fires=True, series=one("fipop_settings_bad_options", "1x60")),
    Case(alert="FipopBadOptions", fires=False, series=one("fipop_settings_bad_options", "0x60")),
    Case(alert="FipopPredecessorRunning", fires=True, series=one("fipop_predecessor_running", "1x60")),
    Case(alert="FipopPredecessorRunning", fires=False, series=one("fipop_predecessor_running", "0x60")),
)


@pytest.fixture(scope="module")
def rules(chart: Chart) -> dict[str, Any]:
    rendered = chart.render({"prometheusRule": {"enabled": True}})
    found: dict[str, Any] = rendered.only("PrometheusRule")["spec"]
    return found


@pytest.fixture(scope="module")
def alerts(rules: dict[str, Any]) -> dict[str, Any]:
    return {rule["alert"]: rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule}


def test_each_alert_has_a_firing_and_a_silent_case(alerts: dict[str, Any]) -> None:
    assert {case.alert for case in CASES if case.fires} == set(alerts)
    assert {case.alert for case in CASES if not case.fires} == set(alerts)


def test_promtool_agrees_with_every_case(
    rules: dict[str, Any], alerts: dict[str, Any], tmp_path: Path
) -> None:
    promtool = ensure("promtool")
    (tmp_path / "full.yaml").write_text(yaml.safe_dump(rules))
    # The sentences are not compared: they are nobody's condition.
    bare = copy.deepcopy(rules)
    for group in bare["groups"]:
        for rule in group["rules"]:
            rule.pop("annotations", None)
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(bare))
    tests = []
    for number, case in enumerate(CASES):
        severity = alerts[case.alert]["labels"]["severity"]
        fires = [{"exp_labels": {"severity": severity, **case.labels}}]
        check = {
            "eval_time": f"{case.minutes}m",
            "alertname": case.alert,
            "exp_alerts": fires if case.fires else [],
        }
        tests.append(
            {
                "name": f"case {number} of {case.alert}",
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
                "alert_rule_test": [check],
            }
        )
    (tmp_path / "tests.yaml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests})
    )
    for command in (("check", "rules", "full.yaml"), ("test", "rules", "tests.yaml")):
        done = subprocess.run(
            [str(promtool), *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_named_and_told_as_the_conventions_ask(
    alerts: dict[str, Any], rules: dict[str, Any]
) -> None:
    page = RUNBOOKS.read_text()
    for name, rule in alerts.items():
        assert re.fullmatch(r"Fipop([A-Z][A-Za-z]+)+", name)
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["annotations"]["runbook_url"].endswith(f"docs/alerts.md#{name.lower()}")
        assert f"## {name}\n" in page, f"{name} has no runbook"
        # What several replicas show is made one.
        assert "fipop:range_used:ratio" in rule["expr"] or "max" in rule["expr"]
    assert {each.partition("## ")[2] for each in page.splitlines() if each.startswith("## Fipop")} == set(
        alerts
    )
    assert all(JOB in rule["expr"] or "fipop:" in rule["expr"] for rule in alerts.values())
    assert rules["groups"][0]["rules"][0]["record"] == "fipop:range_used:ratio"


def test_the_runbooks_are_where_the_installation_says(chart: Chart) -> None:
    values = {"prometheusRule": {"enabled": True, "runbookUrlBase": "https://wiki.example/fipop/"}}
    text = json.dumps(chart.render(values).only("PrometheusRule"))
    assert "https://wiki.example/fipop#fipoprangefull" in text
    assert "fipop.example" not in text


@pytest.mark.parametrize(
    ("enabled", "known", "expected"),
    [("auto", (), False), ("auto", (KNOWN,), True), (True, (), True), (False, (KNOWN,), False)],
)
def test_the_alerts_are_there_when_asked_for_or_when_the_cluster_knows_their_kind(
    chart: Chart, enabled: Any, known: tuple[str, ...], expected: bool
) -> None:
    rendered = chart.render({"prometheusRule": {"enabled": enabled}}, known=known)
    assert bool(rendered.of_kind("PrometheusRule")) is expected


def test_the_metrics_of_the_alerts_are_those_of_the_page(alerts: dict[str, Any]) -> None:
    known = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE))
    used = {
        name
        for rule in alerts.values()
        for name in re.findall(r"\b(?:fipop|kubefipoperator)_\w+", rule["expr"])
    }
    assert used <= known
