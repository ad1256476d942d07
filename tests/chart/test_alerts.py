"""The alerts of the chart in situations that operators meet: which of them fire, and that no other does."""

import copy
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from fipop.metrics import counters
from localfleet.assets import ensure
from tests.chart.rendering import ROOT, Chart
from tests.unit.metrics.samples import Scraped

JOB = 'job="fipop",namespace="kube-fip"'
RUNBOOKS = ROOT / "docs" / "runbooks" / "alerts.md"
PARTS = ("Impact", "Diagnosis", "Fix", "Recovery")
"""What each runbook has."""

Series = dict[str, str]
"""Samples of each series as promtool writes them; `xN` lasts to the end of the situation, `S` is a step in seconds."""


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert that fires, with the labels that it has beside its severity."""

    name: str
    labels: dict[str, str]


def alert(name: str, **labels: str) -> Alert:
    return Alert(name, labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What Prometheus has scraped for `minutes`, and which alerts fire then. Where none does, none ever did.

    `step`: a sample and an evaluation every so many minutes.
    """

    series: Series
    fires: tuple[Alert, ...] = ()
    minutes: int = 40
    step: int = 1
    shows: dict[str, int] = field(default_factory=dict)
    """Values of expressions without labels at the end."""


def one(name: str, values: str, **labels: str) -> Series:
    more = "".join(f',{key}="{value}"' for key, value in labels.items())
    return {f"{name}{{{JOB}{more}}}": values}


def addresses(
    used: str,
    free: str,
    quarantined: str = "0xN",
    *,
    name: str = "vlan",
    family: str = "IPv4",
    harvester: str = "harv1",
    network: str = "vlan10",
    space: str = "default",
) -> Series:
    """Return what both replicas show of a range."""
    states = {"used": used, "free": free, "quarantined": quarantined}
    place = {"harvester_cluster": harvester, "harvester_network": network, "address_space": space}
    found: Series = {}
    for pod in "ab":
        found |= one("fipop_range_info", "1xN", pod=pod, range=name, **place)
        for state, values in states.items():
            found |= one("fipop_range_addresses", values, pod=pod, range=name, family=family, state=state)
    return found


def of_network(
    alerted: str,
    network: str = "vlan10",
    *,
    family: str = "IPv4",
    harvester: str = "harv1",
    space: str = "default",
) -> Alert:
    """Return an alert about a network."""
    labels = {"network": network, "address_space": space, "family": family}
    return alert(alerted, **labels, **({"harvester_cluster": harvester} if harvester else {}))


def ready(values: str = "1xN", *, name: str = "vlan", reason: str = "Ready") -> Series:
    found: Series = {}
    for pod in "ab":
        found |= one("fipop_range_ready", values, pod=pod, range=name, reason=reason)
    return found


def status(values: str, guest: str = "demo", harvester: str = "harv1") -> Series:
    labels = {"guestclustername": guest, "harvesterclustername": harvester}
    return one("kubefipoperator_guestcluster_status", values, pod="a", **labels)


def floating_ips(well: str, *, failed: str = "0xN", unknown: str = "0xN") -> Series:
    verdicts = {"True": well, "False": failed, "Unknown": unknown}
    found: Series = {}
    for verdict, values in verdicts.items():
        found |= one("fipop_floating_ips", values, pod="a", ready=verdict)
    return found


def announced(values: str, verdict: str = "False", reason: str = "NotTaken") -> Series:
    return one("fipop_floating_ips_announced", values, pod="a", verdict=verdict, reason=reason)


def heard(values: str = "0+SxN", *, pod: str = "a") -> Series:
    return one("fipop_api_last_answer_timestamp_seconds", values, pod=pod)


LEADER: Series = (
    one("fipop_leader", "1xN", pod="a")
    | one("fipop_allocation_open", "1xN", pod="a")
    | one("fipop_predecessor_running", "0xN", pod="a")
    | heard()
)
STANDBY: Series = one("fipop_leader", "0xN", pod="b") | heard(pod="b")
WELL: Series = (
    LEADER
    | STANDBY
    | addresses("60xN", "36xN", "4xN")
    | ready()
    | status("1xN")
    | floating_ips("60xN")
    | one("fipop_settings_bad_options", "0xN", pod="a")
)
"""Two replicas, of which one leads, one range and one guest cluster, and nothing is wrong."""
SPACIOUS: Series = addresses("10xN", "18446744073709551606xN", family="IPv6")

SITUATIONS: dict[str, Situation] = {
    # The life of an installation
    "nothing is scraped": Situation(series={}, fires=(alert("FipopWithoutLeader"),)),
    "install: the image takes minutes, and there is no range yet": Situation(
        series=one("fipop_leader", "_x3 0 1xN", pod="a")
        | one("fipop_leader", "_x4 0xN", pod="b")
        | one("fipop_allocation_open", "_x4 0 0 1xN", pod="a")
        | one("fipop_predecessor_running", "_x4 0xN", pod="a")
        | heard("_x4 240+60xN")
        | heard("_x4 240+60xN", pod="b")
    ),
    "a quiet day": Situation(
        series=WELL
        | SPACIOUS
        | addresses("60x140 61x60 60xN", "36x140 35x60 36xN", "4xN")
        | status("1x40 0x1 1xN")
        | floating_ips("60xN", failed="0x40 1x1 0xN", unknown="0x140 1x1 0xN"),
        minutes=1440,
        step=5,
    ),
    "kube-fip-operator still runs": Situation(
        series=STANDBY
        | one("fipop_leader", "1xN", pod="a")
        | one("fipop_predecessor_running", "1xN", pod="a")
        | heard()
        | addresses("60xN", "36xN", "4xN")
        | ready(),
        fires=(alert("FipopPredecessorRunning"),),
    ),
    "kube-fip-operator is scaled down after ten minutes": Situation(
        series=WELL
        | one("fipop_predecessor_running", "1x10 0xN", pod="a")
        | one("fipop_allocation_open", "_x11 0 0 1xN", pod="a")
    ),
    # Who leads
    "a leader change: the standby follows": Situation(
        series=WELL
        | one("fipop_leader", "1x25 0xN", pod="a")
        | one("fipop_leader", "0x26 1xN", pod="b")
        | one("fipop_allocation_open", "1x25 stale", pod="a")
        | one("fipop_allocation_open", "_x27 0 0 1xN", pod="b")
    ),
    "a leader change: the node of the leader is gone": Situation(
        series=STANDBY
        | one("fipop_leader", "1x25 stale", pod="a")
        | heard("0+60x25 stale")
        | one("fipop_leader", "0x26 1xN", pod="b")
        | one("fipop_allocation_open", "_x27 0 0 1xN", pod="b")
    ),
    "the leader ends and no replica follows": Situation(
        series=WELL | one("fipop_leader", "1x25 0xN", pod="a"), fires=(alert("FipopWithoutLeader"),)
    ),
    "a standby that hears nothing of the API server": Situation(
        series=WELL | heard("60xN", pod="b"), fires=(alert("FipopOperatorBlind", pod="b"),)
    ),
    "a leader that hears nothing of the API server": Situation(
        series=WELL | heard("60xN"), fires=(alert("FipopOperatorBlind", pod="a"),)
    ),
    "a leader that does not come to the end of its first scan": Situation(
        series=WELL | one("fipop_allocation_open", "0xN", pod="a"),
        fires=(alert("FipopOperatorBlind", pod="a"),),
    ),
    # Guest clusters
    "guest clusters are being provisioned": Situation(
        series=WELL
        | one("fipop_guests", "3xN", pod="a", state="unknown")
        | floating_ips("60xN", unknown="3xN")
    ),
    "a guest cluster is not up an hour after it was made": Situation(
        series=WELL | status("_x60 0xN", "new"),
        fires=(alert("FipopGuestUnreachable", guestclustername="new", harvesterclustername="harv1"),),
        minutes=80,
    ),
    "a guest cluster restarts": Situation(series=WELL | status("1x20 0x10 1xN")),
    "a guest cluster is gone": Situation(
        series=WELL | status("1x20 0xN"),
        fires=(alert("FipopGuestUnreachable", guestclustername="demo", harvesterclustername="harv1"),),
    ),
    "two Harvesters, and of two namesakes one is gone": Situation(
        series=WELL | status("1xN", harvester="harv1") | status("0xN", harvester="harv2"),
        fires=(alert("FipopGuestUnreachable", guestclustername="demo", harvesterclustername="harv2"),),
    ),
    "two Harvesters, and both namesakes are up": Situation(
        series=WELL | status("1xN", harvester="harv1") | status("1xN", harvester="harv2")
    ),
    "floating IPs are not ready": Situation(
        series=WELL | floating_ips("58xN", failed="2xN"),
        fires=(alert("FipopFloatingIPNotReady", ready="False"),),
    ),
    # Ranges
    "a range below three quarters": Situation(series=WELL | addresses("70xN", "26xN", "4xN")),
    "a range above three quarters": Situation(
        series=WELL | addresses("70xN", "24xN", "6xN"),
        fires=(of_network("FipopNetworkFilling"),),
    ),
    "a range above nine tenths": Situation(
        series=WELL | addresses("90xN", "10xN"),
        fires=(of_network("FipopNetworkNearlyFull"),),
    ),
    "a range with one free address": Situation(
        series=WELL | addresses("99xN", "1xN"),
        fires=(of_network("FipopNetworkNearlyFull"),),
    ),
    "a range that is full, for a part in quarantine": Situation(
        series=WELL | addresses("60xN", "0xN", "40xN"),
        fires=(of_network("FipopNetworkFull"),),
    ),
    "a range that is full for a minute": Situation(
        series=WELL | addresses("60x10 96x1 60xN", "36x10 0x1 36xN", "4xN")
    ),
    "dual stack: no IPv4 address is free beside a /64": Situation(
        series=LEADER | SPACIOUS | ready() | addresses("10xN", "0xN"),
        fires=(of_network("FipopNetworkFull"),),
    ),
    "dual stack: no IPv6 address is free": Situation(
        series=WELL | addresses("60xN", "0xN", family="IPv6"),
        fires=(of_network("FipopNetworkFull", family="IPv6"),),
    ),
    "dual stack: IPv4 fills beside a /64": Situation(
        series=LEADER | SPACIOUS | ready() | addresses("80xN", "20xN"),
        fires=(of_network("FipopNetworkFilling"),),
    ),
    "a range of another network all of whose addresses are an older one's": Situation(
        series=WELL | addresses("0xN", "0xN", name="younger", network="vlan20") | ready(name="younger"),
        fires=(of_network("FipopNetworkFull", "vlan20"),),
    ),
    # Ranges of one network
    "a full range beside an empty one of the same network": Situation(
        series=WELL
        | addresses("96xN", "0xN", "4xN")
        | addresses("0xN", "100xN", name="more")
        | ready(name="more")
    ),
    "a nearly full range beside an empty one that is a third as large": Situation(
        series=WELL | addresses("95xN", "5xN") | addresses("0xN", "25xN", name="more") | ready(name="more"),
        fires=(of_network("FipopNetworkFilling"),),
    ),
    "all ranges of a network are full": Situation(
        series=WELL
        | addresses("96xN", "0xN", "4xN")
        | addresses("50xN", "0xN", name="more")
        | ready(name="more"),
        fires=(of_network("FipopNetworkFull"),),
    ),
    "a full range beside an empty one of the same network in another address space": Situation(
        series=WELL
        | addresses("96xN", "0xN", "4xN")
        | addresses("0xN", "100xN", name="lab", space="lab")
        | ready(name="lab"),
        fires=(of_network("FipopNetworkFull"),),
    ),
    "a full range beside an empty one of a network of the same name on another Harvester": Situation(
        series=WELL
        | addresses("0xN", "100xN")
        | addresses("100xN", "0xN", name="far", harvester="harv2")
        | ready(name="far"),
        fires=(of_network("FipopNetworkFull", harvester="harv2"),),
    ),
    "a range without a network is a network of its own": Situation(
        series=WELL
        | addresses("100xN", "0xN", name="edge", harvester="", network="")
        | ready(name="edge")
        | addresses("0xN", "100xN", name="lab", harvester="", network="")
        | ready(name="lab"),
        fires=(of_network("FipopNetworkFull", "edge", harvester=""),),
    ),
    "an empty range that drains beside a full one": Situation(
        series=WELL
        | addresses("96xN", "0xN", "4xN")
        | addresses("0xN", "100xN", name="old")
        | ready("0xN", name="old", reason="Draining"),
        fires=(of_network("FipopNetworkFull"),),
    ),
    "a range that cannot be read any more beside one that has room": Situation(
        series=WELL | addresses("0xN", "100xN", name="odd") | ready("0xN", name="odd", reason="Invalid"),
        fires=(alert("FipopRangeInvalid", range="odd", reason="Invalid"),),
    ),
    "the only other range cannot be read any more": Situation(
        series=WELL
        | addresses("96xN", "0xN", "4xN")
        | addresses("0xN", "100xN", name="odd")
        | ready("0xN", name="odd", reason="Invalid"),
        fires=(
            alert("FipopRangeInvalid", range="odd", reason="Invalid"),
            of_network("FipopNetworkFull"),
        ),
    ),
    "dual stack: one range has the IPv4 addresses, another one the IPv6 addresses": Situation(
        series=WELL
        | addresses("60xN", "36xN", "4xN")
        | addresses("1xN", "18446744073709551606xN", name="six", family="IPv6")
        | ready(name="six")
    ),
    "another network is given to a range, and one replica is scraped before the other": Situation(
        series=WELL
        | {
            f'fipop_range_info{{{JOB},pod="b",range="vlan",harvester_cluster="harv1",'
            'harvester_network="vlan20",address_space="default"}': "_x20 1xN"
        }
    ),
    "a draining range": Situation(
        series=LEADER | addresses("90xN", "0xN", "10xN") | ready("0xN", reason="Draining")
    ),
    "a draining range beside one that is full": Situation(
        series=WELL
        | addresses("90xN", "0xN", "10xN", name="old")
        | ready("0xN", name="old", reason="Draining")
        | addresses("96xN", "0xN", "4xN"),
        fires=(of_network("FipopNetworkFull"),),
    ),
    "a full range that drains for an hour, then assigns again": Situation(
        series=LEADER
        | addresses("90xN", "0xN", "10xN")
        | ready("0x60 stale", reason="Draining")
        | ready("_x61 1xN"),
        fires=(of_network("FipopNetworkFull"),),
        minutes=90,
    ),
    "a range that cannot be read": Situation(
        series=LEADER | ready("0xN", reason="Invalid"),
        fires=(alert("FipopRangeInvalid", range="vlan", reason="Invalid"),),
    ),
    "a range that will be full in days": Situation(
        series=LEADER | addresses("600+0.3xN", "400-0.3xN") | ready(),
        fires=(of_network("FipopNetworkFullSoon"),),
        minutes=3600,
        step=10,
    ),
    "dual stack: IPv4 will be full in days": Situation(
        series=LEADER | SPACIOUS | addresses("600+0.3xN", "400-0.3xN") | ready(),
        fires=(of_network("FipopNetworkFullSoon"),),
        minutes=3600,
        step=10,
    ),
    "two ranges of a network, of which one fills: 982 of 1,100 addresses are left, at 7.2 a day": Situation(
        series=LEADER
        | addresses("100+0.05xN", "900-0.05xN")
        | ready()
        | addresses("0xN", "100xN", name="more")
        | ready(name="more"),
        minutes=3600,
        step=10,
        shows={
            "sum(round(fipop:network_addresses_used:sum))": 118,
            "sum(round(fipop:network_addresses:days_left))": 136,
        },
    ),
    "a network that does not fill": Situation(
        series=WELL, shows={"sum(fipop:network_addresses:days_left)": 36 * 365}
    ),
    "a range that fills at the same pace and is nearly empty": Situation(
        series=LEADER | addresses("100+0.3xN", "900-0.3xN") | ready(), minutes=3600, step=10
    ),
    "two guest clusters use an address": Situation(
        series=WELL | one("fipop_address_conflicts", "1xN", pod="a"),
        fires=(alert("FipopAddressConflict"),),
    ),
    "addresses are not announced": Situation(
        series=WELL
        | announced("58xN", "True", "Announced")
        | announced("2xN")
        | announced("1xN", reason="NoLeader"),
        fires=(
            alert("FipopAddressNotAnnounced", reason="NotTaken"),
            alert("FipopAddressNotAnnounced", reason="NoLeader"),
        ),
    ),
    "an address is not announced for some minutes, and others are not used": Situation(
        series=WELL | announced("0x10 1x9 0xN") | announced("3xN", "Unknown", "NoEndpoints")
    ),
    "a guest cluster has no address": Situation(
        series=WELL | one("fipop_guests_without_address", "1xN", pod="a"),
        fires=(alert("FipopGuestWithoutAddress"),),
    ),
    "a new guest cluster has no address for some minutes": Situation(
        series=WELL | one("fipop_guests_without_address", "0x10 1x10 0xN", pod="a")
    ),
    "a range of a Harvester cluster that Rancher does not know": Situation(
        series=LEADER | addresses("10xN", "50xN") | ready(reason="HarvesterNotFound"),
        fires=(alert("FipopHarvesterUnknown", range="vlan"),),
    ),
    "a chart cannot be fetched": Situation(
        series=WELL | one("fipop_rollout_blocked", "1xN", pod="a"), fires=(alert("FipopRolloutBlocked"),)
    ),
    "Services of a guest cluster wait for floating IPs that it cannot have": Situation(
        series=WELL
        | one(
            "fipop_guest_demand_met", "1xN", pod="a", guest="c-m-1", guest_cluster="demo", reason="DemandMet"
        )
        | one(
            "fipop_guest_demand_met",
            "0xN",
            pod="a",
            guest="c-m-2",
            guest_cluster="shop",
            reason="LimitReached",
        ),
        fires=(alert("FipopDemandUnmet", guest="c-m-2", guest_cluster="shop", reason="LimitReached"),),
    ),
    "a policy refuses the status of a floating IP: it has none, and so no condition that is False": Situation(
        series=WELL
        | floating_ips("60xN", unknown="1xN")
        | one("fipop_reconcile_errors_total", "_x3 8+2xN", pod="a", kind="floatingip"),
        fires=(alert("FipopReconcileFailing", kind="floatingip"),),
    ),
    "an API server refuses writes for ten minutes, and now and then one that was overtaken": Situation(
        series=WELL
        | one("fipop_reconcile_errors_total", "0x5 8+2x10 30x60", pod="a", kind="floatingip")
        | one("fipop_reconcile_errors_total", "0+1xN", pod="a", kind="reservation"),
        minutes=60,
    ),
    "a rollout goes on": Situation(
        series=WELL | one("fipop_rollout_info", "1xN", pod="a", target="c0ffee", state="Progressing")
    ),
    "a rollout stopped": Situation(
        series=WELL | one("fipop_rollout_info", "1xN", pod="a", target="c0ffee", state="Stopped"),
        fires=(alert("FipopRolloutStopped", target="c0ffee"),),
    ),
    "an option is bad": Situation(
        series=WELL | one("fipop_settings_bad_options", "1xN", pod="a"), fires=(alert("FipopBadOptions"),)
    ),
}


@pytest.fixture(scope="module")
def rules(chart: Chart) -> dict[str, Any]:
    rendered = chart.render({"prometheusRule": {"enabled": True}})
    found: dict[str, Any] = rendered.only("PrometheusRule")["spec"]
    return found


@pytest.fixture(scope="module")
def alerts(rules: dict[str, Any]) -> dict[str, Any]:
    return {rule["alert"]: rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule}


def test_each_alert_has_a_situation_in_which_it_fires(alerts: dict[str, Any]) -> None:
    """In the others it is silent, as promtool finds below."""
    assert {each.name for situation in SITUATIONS.values() for each in situation.fires} == set(alerts)


def test_the_situations_have_only_series_that_the_operator_shows() -> None:
    shown: dict[str, set[frozenset[str]]] = {}
    fleet = Scraped()
    counters.RECONCILE_ERRORS.labels("floatingip").inc()
    for family in text_string_to_metric_families(fleet.render()):
        for sample in family.samples:
            shown.setdefault(sample.name, set()).add(frozenset(sample.labels))
    for situation in SITUATIONS.values():
        for series in situation.series:
            name, labels = series.removesuffix("}").split("{")
            found = {label.partition("=")[0] for label in labels.split(",")} - {"job", "namespace", "pod"}
            assert found in shown[name], series


def test_in_each_situation_those_alerts_fire_and_no_other(
    rules: dict[str, Any], alerts: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "full.yaml").write_text(yaml.safe_dump(rules))
    # The sentences are not compared: no condition depends on them.
    bare = copy.deepcopy(rules)
    for group in bare["groups"]:
        for rule in group["rules"]:
            rule.pop("annotations", None)
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(bare))
    steps = sorted({each.step for each in SITUATIONS.values()})
    for step in steps:
        tests = [
            {
                "name": name,
                "interval": f"{step}m",
                "input_series": list(_input_series(situation)),
                "alert_rule_test": list(_expectations(situation, alerts)),
                "promql_expr_test": [
                    {
                        "expr": expr,
                        "eval_time": f"{situation.minutes}m",
                        "exp_samples": [{"labels": "{}", "value": value}],
                    }
                    for expr, value in situation.shows.items()
                ],
            }
            for name, situation in SITUATIONS.items()
            if situation.step == step
        ]
        content = {"rule_files": ["rules.yaml"], "evaluation_interval": f"{step}m", "tests": tests}
        (tmp_path / f"every-{step}m.yaml").write_text(yaml.safe_dump(content))
    promtool = ensure("promtool")
    files = [f"every-{step}m.yaml" for step in steps]
    for command in (("check", "rules", "full.yaml"), ("test", "rules", *files)):
        done = subprocess.run(
            [str(promtool), *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def _input_series(situation: Situation) -> Iterator[dict[str, str]]:
    samples, seconds = str(situation.minutes // situation.step), str(situation.step * 60)
    for series, values in situation.series.items():
        yield {"series": series, "values": values.replace("N", samples).replace("S", seconds)}


def _expectations(situation: Situation, alerts: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, rule in alerts.items():
        severity = rule["labels"]["severity"]
        expected = [
            {"exp_labels": {"severity": severity, **each.labels}}
            for each in situation.fires
            if each.name == name
        ]
        # An alert that comes and goes would be missed at the end alone.
        every = 10 * situation.step
        times = [situation.minutes] if situation.fires else range(every, situation.minutes + 1, every)
        for minute in times:
            yield {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": expected}


def test_every_alert_is_named_and_told_as_the_conventions_ask(
    alerts: dict[str, Any], rules: dict[str, Any]
) -> None:
    page = RUNBOOKS.read_text()
    for name, rule in alerts.items():
        assert re.fullmatch(r"Fipop([A-Z][A-Za-z]+)+", name)
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert set(rule["annotations"]) == {"summary", "description"}
        assert rule["annotations"]["summary"].endswith(".")
        runbook = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert [part for part in PARTS if f"**{part}.**" in runbook] == list(PARTS), f"runbook of {name}"
        # What several replicas show is made one.
        assert "fipop:network_" in rule["expr"] or "max" in rule["expr"]
    assert {each.partition("## ")[2] for each in page.splitlines() if each.startswith("## Fipop")} == set(
        alerts
    )
    assert all(JOB in rule["expr"] or "fipop:" in rule["expr"] for rule in alerts.values())
    records = [rule["record"] for rule in rules["groups"][0]["rules"] if "record" in rule]
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    assert re.findall(r"^\| `(fipop:\S+)` \|", page, re.MULTILINE) == records


@pytest.mark.parametrize("base", ["https://wiki.example/fipop", "https://wiki.example/fipop/"])
def test_each_alert_links_to_its_runbook_where_the_installation_has_them(chart: Chart, base: str) -> None:
    rules = alerting_rules(chart, {"prometheusRule": {"enabled": True, "runbookUrlBase": base}})
    assert {each["alert"]: each["annotations"]["runbook_url"] for each in rules} == {
        each["alert"]: f"https://wiki.example/fipop#{each['alert'].lower()}" for each in rules
    }


def test_without_a_place_of_the_runbooks_no_alert_has_a_link(chart: Chart) -> None:
    rules = alerting_rules(chart, {"prometheusRule": {"enabled": True, "runbookUrlBase": ""}})
    assert [each["alert"] for each in rules if "runbook_url" in each["annotations"]] == []


def alerting_rules(chart: Chart, values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the alerts of the rendered PrometheusRule, at least one."""
    groups = chart.render(values).only("PrometheusRule")["spec"]["groups"]
    found = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    assert found
    return found


def test_the_metrics_of_the_alerts_are_those_of_the_page(alerts: dict[str, Any]) -> None:
    known = set(
        re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "reference" / "metrics.md").read_text(), re.MULTILINE)
    )
    used = {
        name
        for rule in alerts.values()
        for name in re.findall(r"\b(?:fipop|kubefipoperator)_\w+", rule["expr"])
    }
    assert used <= known
