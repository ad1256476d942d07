"""The defaults that the chart mounts for a missing kube-fip-config."""

from typing import Any

import pytest
import yaml

from fipop.api.names import SETTINGS_CONFIG_MAP
from fipop.settings.options import DEFAULTS, Settings, parse_settings, settings_data, warnings
from tests.chart.rendering import Chart


def defaults_of(chart: Chart, values: dict[str, Any] | None = None) -> dict[str, str]:
    data: dict[str, str] = chart.render(values).only("ConfigMap")["data"]
    return data


def settings_of(chart: Chart, values: dict[str, Any] | None = None) -> Settings:
    settings, bad = parse_settings(defaults_of(chart, values), DEFAULTS)
    assert bad == ()
    return settings


def test_kube_fip_config_itself_is_no_part_of_the_chart(chart: Chart) -> None:
    names = {config_map["metadata"]["name"] for config_map in chart.render().of_kind("ConfigMap")}
    assert SETTINGS_CONFIG_MAP not in names


def test_every_option_is_there_and_is_one_that_the_operator_takes(chart: Chart) -> None:
    assert set(defaults_of(chart)) == set(settings_data(DEFAULTS))
    assert warnings(settings_of(chart)) == ()


def test_they_name_what_works_today(chart: Chart) -> None:
    settings = settings_of(chart)
    kube_vip: Any = settings.kubevip_chart_values.values
    assert kube_vip["image"]["tag"] == "v1.2.3"
    assert kube_vip["env"]["vip_interface"] == "enp1s0"
    assert all(isinstance(value, str) for value in kube_vip["env"].values())
    (term,) = kube_vip["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchExpressions"] == [
        {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}
    ]
    assert {"key": "node-role.kubernetes.io/etcd", "operator": "Exists", "effect": "NoExecute"} in kube_vip[
        "tolerations"
    ]
    cloud_provider: Any = settings.kubevip_cloud_provider_chart_values.values
    assert cloud_provider["image"]["tag"] == "v0.0.12"


def test_they_are_mounted_where_the_operator_is_told_to_read_them(chart: Chart) -> None:
    rendered = chart.render()
    (volume,) = (volume for volume in rendered.pod["spec"]["volumes"] if "configMap" in volume)
    assert volume["configMap"]["name"] == rendered.only("ConfigMap")["metadata"]["name"]
    (mount,) = (m for m in rendered.container["volumeMounts"] if m["name"] == volume["name"])
    assert f"--settings-defaults={mount['mountPath']}" in rendered.container["args"]


@pytest.mark.parametrize("seconds", [1, 999_999, 1_000_000, 2**31 - 1])
def test_large_numbers_stay_whole(chart: Chart, seconds: int) -> None:
    settings = settings_of(chart, {"settings": {"operateGuestClusterInterval": seconds}})
    assert settings.operate_guest_cluster_interval_seconds == seconds


def test_chart_values_may_be_given_as_a_text(chart: Chart) -> None:
    text = "# the admin's own\nimage:\n  tag: 'v1.2.4'\nlist:\n- \"a\\tb\"\n"
    data = defaults_of(chart, {"settings": {"kubevipChartValues": text}})
    assert data["kubevipChartValues"] == text


def test_chart_values_may_be_added_to(chart: Chart) -> None:
    data = defaults_of(chart, {"settings": {"kubevipChartValues": {"env": {"vip_interface": "eth0"}}}})
    values = yaml.safe_load(data["kubevipChartValues"])
    assert values["env"]["vip_interface"] == "eth0"
    assert values["image"]["tag"] == "v1.2.3"
