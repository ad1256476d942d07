"""Targets: named after charts and values, the same for the same."""

from dataclasses import replace

from fipop.guest.helm.charts import ChartIdentity, Role, wanted_releases
from fipop.guest.helm.targets import build_target, hash_asked, parse_target, pin_versions, render_target
from fipop.settings.options import DEFAULTS, Settings, parse_settings


def charts(version: str = "0.11.0", content: str = "c0ffee") -> dict[Role, ChartIdentity]:
    return {role: ChartIdentity(name=role.value, version=version, content=content) for role in Role}


def settings(**options: str) -> Settings:
    found, bad = parse_settings(options, DEFAULTS)
    assert not bad
    return found


def test_the_same_charts_and_values_make_the_same_target_however_they_are_asked_for() -> None:
    """Release names, the interval and how the YAML is written are no reason to touch a fleet."""
    one = build_target(settings(kubevipChartValues="env: {a: '1', b: '2'}\n"), charts())
    other = build_target(
        settings(
            kubevipChartValues="env:\n  b: '2'\n  a: '1'\n",
            kubevipReleaseName="vip",
            operateGuestClusterInterval="7",
        ),
        charts(),
    )
    assert one.name == other.name
    assert len(one.name) == 12


def test_another_chart_content_or_value_makes_another_target() -> None:
    names = {
        build_target(settings(), charts()).name,
        build_target(settings(), charts(content="beef")).name,
        build_target(settings(), charts(version="0.12.0")).name,
        build_target(settings(kubevipChartValues="env: {a: '1'}\n"), charts()).name,
        build_target(settings(kubevipCloudProviderChartValues="replicasCount: 2\n"), charts()).name,
    }
    assert len(names) == 5


def test_an_empty_version_is_resolved_once_and_pinned_from_then_on() -> None:
    asked = settings()
    target = build_target(asked, charts("0.11.0"))
    pinned = pin_versions(asked, target)
    assert {one.source.version for one in wanted_releases(pinned)} == {"0.11.0"}
    assert pin_versions(settings(kubevipChartValues="env: {}\n"), target).kubevip_chart_version == ""
    assert hash_asked(asked) == target.asked


def test_a_target_brings_its_own_charts_and_values_and_leaves_the_rest_of_the_settings() -> None:
    target = build_target(settings(kubevipChartValues="env: {a: '1'}\n"), charts("0.11.0"))
    now = settings(kubevipChartValues="env: {a: '9'}\n", kubevipReleaseName="vip")
    applied = target.apply(now)
    assert applied.kubevip_chart_values.values == {"env": {"a": "1"}}
    assert applied.kubevip_chart_version == "0.11.0"
    assert applied.kubevip_release_name == "vip"


def test_what_is_kept_is_read_again_and_anything_else_is_refused() -> None:
    target = build_target(settings(), charts())
    data = render_target(target)
    assert parse_target(data) == target
    assert parse_target({}) is None
    assert parse_target(data | {"charts": "{}"}) is None
    assert parse_target(data | {"options": '{"kubevip_chart_values": "a: &x 1"}'}) is None


def test_the_credential_of_the_source_is_not_part_of_a_target() -> None:
    target = build_target(settings(), charts())
    secret = replace(settings(), kubevip_chart_secret="rotated")
    assert build_target(secret, charts()).name == target.name
    assert target.apply(secret).kubevip_chart_secret == "rotated"
