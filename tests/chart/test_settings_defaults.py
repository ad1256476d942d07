"""The defaults that the chart mounts for a missing kube-fip-config."""

from typing import Any

import pytest
import yaml

from fipop.settings.options import DEFAULTS, Settings, parse_settings, settings_data, warnings
from tests.chart.rendering import Chart


def defaults_of(chart: Chart, values: dict[str, Any] | None = None) -> dict[str, str]:
    data: dict[str, str] = chart.render(values).only("ConfigMap")["data"]
    return data


def settings_of(chart: Chart, values: dict[str, Any] | None = None) -> Settings:
    settings, bad = parse_settings(defaults_of(chart, values), DEFAULTS)
    assert bad == ()
    return settings


def test_every_option_is_there_and_is_one_that_the_operator_takes(chart: Chart) -> None:
    assert set(defaults_of(chart)) == set(settings_data(DEFAULTS))
    assert warnings(settings_of(chart)) == ()


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
    assert values["image"]["tag"] == "v1.2.4"
    assert values["envValueFrom"]["vip_nodename"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
