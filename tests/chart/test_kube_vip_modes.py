"""The examples of kube-vip's modes: rendered by the chart, read back as kube-vip's environment."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from fipop.helm.charts import Chart as GuestChart
from fipop.helm.charts import Role, Target, complete_values, wanted_overrides, wanted_values
from fipop.rancher.objects import parse_provisioning_cluster
from fipop.settings.options import DEFAULTS, parse_settings, warnings
from tests.chart.rendering import ROOT, Chart

EXAMPLES = sorted((ROOT / "examples").glob("kube-vip-*.yaml"))
KUBE_VIP = ROOT / "localfleet" / "charts" / "kube-vip"
ON = {
    "kube-vip-arp": {"vip_arp"},
    "kube-vip-arp-per-service": {"vip_arp", "svc_election"},
    "kube-vip-bgp": {"bgp_enable"},
    "kube-vip-routing-table": {"vip_routingtable"},
}
MODES = {"vip_arp", "bgp_enable", "vip_routingtable", "vip_wireguard", "svc_election"}


@pytest.fixture(scope="module")
def kube_vip(chart: Chart, tmp_path_factory: pytest.TempPathFactory) -> Chart:
    return Chart(helm=chart.helm, folder=KUBE_VIP, home=tmp_path_factory.mktemp("kube-vip"))


def environment_of(kube_vip: Chart, example: Path) -> dict[str, Any]:
    """What the container of kube-vip would have, with the values that fipop makes of an example."""
    settings, bad = parse_settings({"kubevipChartValues": example.read_text()}, DEFAULTS)
    assert bad == ()
    assert warnings(settings) == ()
    values = complete_values(Role.KUBE_VIP, settings.kubevip_chart_values.values)
    (container,) = kube_vip.render(values).only("DaemonSet")["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_each_example_switches_on_its_mode_and_no_other(kube_vip: Chart, example: Path) -> None:
    found = environment_of(kube_vip, example)
    assert {name for name in MODES if found.get(name) == "true"} == ON[example.stem]
    assert found["svc_enable"] == "true"
    assert found["cp_enable"] == "false", "the control plane's address is none of fipop's"
    assert all(isinstance(value, str | dict) for value in found.values())


def test_the_password_of_bgp_comes_from_a_secret(kube_vip: Chart) -> None:
    example = ROOT / "examples" / "kube-vip-bgp.yaml"
    found = environment_of(kube_vip, example)
    assert found["bgp_peerpass"] == {"secretKeyRef": {"name": "kube-vip-bgp", "key": "password"}}
    for peer in found["bgp_peers"].split(","):
        assert re.fullmatch(r"[0-9.]+:[0-9]+::(true|false)", peer), (
            "address:AS:password:multihop, without a password"
        )


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, {"vip_interface": "enp1s0", "vip_arp": "true"}),
        ({"rack": "a"}, {"vip_interface": "enp1s0", "vip_arp": "false", "bgp_as": "65101"}),
        ({"rack": "b"}, {"vip_interface": "eth1", "vip_arp": "false", "bgp_as": "65102"}),
    ],
)
def test_each_rack_of_the_example_has_its_own_bgp(
    kube_vip: Chart, labels: dict[str, str], expected: dict[str, str]
) -> None:
    example = yaml.safe_load((ROOT / "examples" / "racks-bgp.yaml").read_text())
    settings, bad = parse_settings(example["data"], DEFAULTS)
    assert bad == ()
    charts = {role: GuestChart(role=role, url="https://charts.example", version="0.9.9") for role in Role}
    target = Target(charts=charts, values=wanted_values(settings), overrides=wanted_overrides(settings))
    metadata = {"name": "shop", "namespace": "fleet-default", "labels": labels}
    own = target.for_guest(parse_provisioning_cluster({"metadata": metadata}))
    rendered = kube_vip.render(own.values[Role.KUBE_VIP]).only("DaemonSet")
    (container,) = rendered["spec"]["template"]["spec"]["containers"]
    found = {each["name"]: each.get("value") for each in container["env"]}
    assert found.items() >= expected.items()


def test_the_page_names_every_example() -> None:
    page = (ROOT / "docs" / "how-to" / "announce-addresses.md").read_text()
    for example in EXAMPLES:
        assert f"examples/{example.name}" in page
    assert set(ON) == {example.stem for example in EXAMPLES}
    assert all(yaml.safe_load(example.read_text())["env"] for example in EXAMPLES)
