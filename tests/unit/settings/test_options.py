"""kube-fip-config as admins write it: defaults, live values, bad values."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.settings.options import (
    DEFAULTS,
    NOTHING_KNOWN,
    BadOption,
    Settings,
    find_unknown,
    parse_settings,
    settings_data,
    warnings,
)
from fipop.settings.values import Amount, FailureStrategy, GuestInstall, LogLevel, RolloutType
from tests.harness.steps import count_steps

OPTIONS = sorted(settings_data(DEFAULTS))
ODD_TEXTS = st.text(max_size=200) | st.sampled_from(
    [
        "",
        " ",
        "0",
        "-1",
        "1e9",
        "8081",
        "8080",
        "true",
        "T",
        "[",
        "{",
        "- a",
        "a: b",
        "&a [*a]",
        "oci://",
        "\ud800",
    ]
)


def parse_one(
    option: str, text: str, last_good: Settings = DEFAULTS
) -> tuple[Settings, tuple[BadOption, ...]]:
    return parse_settings({option: text}, last_good)


def taken(option: str, text: str) -> Settings:
    settings, bad = parse_one(option, text)
    assert bad == ()
    return settings


def refused(option: str, text: str) -> BadOption:
    settings, bad = parse_one(option, text)
    assert settings == DEFAULTS
    assert [each.option for each in bad] == [option]
    return bad[0]


def test_the_option_table_in_the_documentation_has_every_option_with_its_default() -> None:
    table = Path(__file__).parents[3].joinpath("docs/reference/options.md").read_text()

    for option, default in settings_data(DEFAULTS).items():
        shown = "see below" if option.endswith("Values") else f"`{default}`" if default else "none"
        assert re.search(rf"^\| `{option}` \| [^|]+ \| {re.escape(shown)} \|", table, re.MULTILINE), option
        if option.endswith("Values"):
            assert f"# {option}\n{default}" in table


@pytest.mark.parametrize(
    ("option", "text", "field", "value"),
    [
        ("logLevel", "Trace", "log_level", LogLevel.TRACE),
        ("logLevel", " debug ", "log_level", LogLevel.DEBUG),
        ("logLevel", "Panic", "log_level", LogLevel.PANIC),
        ("operateGuestClusterInterval", "1", "operate_guest_cluster_interval_seconds", 1),
        ("operateGuestClusterInterval", "0900\n", "operate_guest_cluster_interval_seconds", 900),
        ("metricsPort", "65535", "metrics_port", 65535),
        ("traceIpamData", "T", "trace_ipam_data", True),
        ("traceIpamData", "0", "trace_ipam_data", False),
        ("kubevipGuestInstall", "enabled", "kubevip_guest_install", GuestInstall.ENABLED),
        ("kubevipGuestInstall", "disabled", "kubevip_guest_install", GuestInstall.DISABLED),
        ("kubevipUpdate", "TRUE", "kubevip_update", True),
        ("kubevipNamespace", "vip-system", "kubevip_namespace", "vip-system"),
        ("kubevipReleaseName", "edge", "kubevip_release_name", "edge"),
        ("kubevipChartRepoUrl", "http://[::1]:8879/charts", "kubevip_chart_repo_url", "http://[::1]:8879/charts"),
        ("kubevipChartRef", "oci://reg.example:5000/a/b_c/kube-vip", "kubevip_chart_ref",
         "oci://reg.example:5000/a/b_c/kube-vip"),
        ("kubevipChartVersion", "v0.11.0-rc.1+build.5", "kubevip_chart_version", "v0.11.0-rc.1+build.5"),
        ("kubevipCloudProviderReleaseName", "ccm", "kubevip_cloud_provider_release_name", "ccm"),
        ("kubevipCloudProviderChartRef", "", "kubevip_cloud_provider_chart_ref", ""),
        ("helmConcurrency", "64", "helm_concurrency", 64),
        ("guestRequestsPerSecond", "10000", "guest_requests_per_second", 10_000),
        ("serviceVisitSeconds", "60", "service_visit_seconds", 60),
        ("kubevipRolloutType", "all", "kubevip_rollout_type", RolloutType.ALL),
        ("kubevipRolloutCanaries", "5%", "kubevip_rollout_canaries", Amount(5, is_percent=True)),
        ("kubevipRolloutMaxConcurrency", "100%", "kubevip_rollout_max_concurrency", Amount(100, is_percent=True)),
        ("kubevipRolloutMinSuccessTime", "0", "kubevip_rollout_min_success_seconds", 0),
        ("kubevipRolloutProgressDeadline", "900", "kubevip_rollout_progress_deadline_seconds", 900),
        ("kubevipRolloutMaxFailures", "3", "kubevip_rollout_max_failures", Amount(3)),
        ("kubevipRolloutFailureStrategy", "stop", "kubevip_rollout_failure_strategy", FailureStrategy.STOP),
        ("kubevipRolloutPaused", "true", "kubevip_rollout_paused", True),
        ("kubevipCloudProviderChartVersion", "0.2.10", "kubevip_cloud_provider_chart_version", "0.2.10"),
    ],
)  # fmt: skip
def test_a_good_value_is_taken(option: str, text: str, field: str, value: object) -> None:
    assert taken(option, text) == replace(DEFAULTS, **{field: value})


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("logLevel", ""),
        ("operateGuestClusterInterval", "-5"),
        ("operateGuestClusterInterval", "8m"),
        ("operateGuestClusterInterval", "4.5"),
        ("operateGuestClusterInterval", "4.0"),
        ("operateGuestClusterInterval", "1_000"),
        ("operateGuestClusterInterval", "٣"),
        ("operateGuestClusterInterval", "9" * 5000),
        ("metricsPort", "08081"),
        ("metricsPort", "65536"),
        ("metricsPort", "http"),
        ("traceIpamData", "yes"),
        ("kubevipUpdate", ""),
        ("helmConcurrency", "0"),
        ("helmConcurrency", "65"),
        ("kubevipRolloutCanaries", "0"),
        ("kubevipRolloutCanaries", "101%"),
        ("kubevipRolloutMaxFailures", "-1"),
        ("kubevipRolloutMaxConcurrency", "a tenth"),
        ("kubevipRolloutMinSuccessTime", "2m"),
        ("kubevipGuestInstall", "label"),
        ("kubevipNamespace", "Kube-System"),
        ("kubevipNamespace", "a.b"),
        ("kubevipNamespace", "../../secrets"),
        ("kubevipNamespace", "n" * 64),
        ("guestRequestsPerSecond", "0"),
        ("guestRequestsPerSecond", "10001"),
        ("serviceVisitSeconds", "0"),
        ("kubevipReleaseName", "r" * 54),
        ("kubevipReleaseName", "--kube-insecure-skip-tls-verify"),
        ("kubevipChartRepoUrl", "ftp://example.org/charts"),
        ("kubevipChartRepoUrl", "https://"),
        ("kubevipChartRepoUrl", "https://example.org:99999/"),
        ("kubevipChartRepoUrl", "https://[::1/"),
        ("kubevipChartRepoUrl", "https://[::]]9"),
        ("kubevipChartRepoUrl", "https://charts.example\\stable"),
        ("kubevipChartRepoUrl", "https://example.org/a b"),
        ("kubevipChartRepoUrl", "--post-renderer=/bin/sh"),
        ("kubevipChartRepoUrl", "https://kube-vip.github.io/helm-charts/index.yaml"),
        ("kubevipChartRef", "https://example.org/kube-vip"),
        ("kubevipChartRef", "oci://example.org"),
        ("kubevipChartRef", "oci://example.org:75000/charts/kube-vip"),
        ("kubevipCloudProviderChartRef", "oci://example.org:0/charts/kube-vip"),
        ("kubevipChartRef", "oci://example.org/kube-vip:0.9.9"),
        ("kubevipChartRef", "oci://user:word@example.org/kube-vip"),
        ("kubevipChartRef", "oci://example.org/../kube-vip"),
        ("kubevipChartVersion", "0.9"),
        ("kubevipChartVersion", ">=0.9.0"),
        ("kubevipChartVersion", "0.9.9 --debug"),
        ("kubevipChartVersion", "1.0.0-" + "a" * 200),
        ("kubevipChartValues", "text"),
        ("kubevipChartValues", "a: [1, 2"),
        ("kubevipChartValues", "a: " + "x" * 70_000),
    ],
)
def test_a_bad_value_is_reported_and_the_default_stays_where_nothing_better_was_known(
    option: str, text: str
) -> None:
    bad = refused(option, text)

    assert bad.reason
    assert len(bad.value) <= 101


GOOD_AND_BAD = {
    "logLevel": ("Debug", "Loud"),
    "operateGuestClusterInterval": ("60", "0"),
    "metricsPort": ("9100", "8081"),
    "traceIpamData": ("true", "perhaps"),
    "kubevipGuestInstall": ("enabled", "always"),
    "kubevipUpdate": ("true", "2"),
    "kubevipNamespace": ("vip-system", "Vip_System"),
    "kubevipReleaseName": ("vip", "x" * 54),
    "kubevipChartRepoUrl": ("http://127.0.0.1:1/charts", "ftp://127.0.0.1/charts"),
    "kubevipChartRef": ("oci://127.0.0.1:1/charts/kube-vip", "127.0.0.1:1/charts/kube-vip"),
    "kubevipChartVersion": ("0.9.9", "newest"),
    "kubevipChartValues": ("env: {vip_interface: eth7}", "- a list"),
    "kubevipChartValuesOverrides": ("- {name: a, clusters: [b]}", "- {name: a}"),
    "kubevipCloudProviderReleaseName": ("provider", "-provider"),
    "kubevipCloudProviderChartRef": (
        "oci://127.0.0.1:1/charts/provider",
        "oci://127.0.0.1:1/charts/provider:v1",
    ),
    "kubevipCloudProviderChartVersion": ("0.2.9", "0.2"),
    "kubevipCloudProviderChartValues": ("replicasCount: 2", "image: ["),
    "kubevipCloudProviderChartValuesOverrides": ("- {name: a, clusterSelector: {}}", "a: b"),
}


@pytest.mark.parametrize("option", GOOD_AND_BAD)
def test_a_bad_value_keeps_the_last_good_one_of_its_option_and_the_others_are_taken(option: str) -> None:
    good, bad = GOOD_AND_BAD[option]
    before = taken(option, good)
    assert before != DEFAULTS

    after, reported = parse_settings({option: bad, "helmConcurrency": "7"}, before)

    assert after == replace(before, helm_concurrency=7), "the other options are taken"
    assert [each.option for each in reported] == [option]


def test_an_option_that_is_taken_away_is_its_default_again_whatever_was_good_before() -> None:
    before, _ = parse_settings({"metricsPort": "9100"}, DEFAULTS)

    assert parse_settings({}, before) == (DEFAULTS, ())


def test_every_bad_option_is_named_at_once() -> None:
    data = {option: bad for option, (_, bad) in GOOD_AND_BAD.items()}

    settings, bad = parse_settings(data, NOTHING_KNOWN)

    assert [each.option for each in bad] == list(GOOD_AND_BAD)
    assert settings.unknown_options == GOOD_AND_BAD.keys()
    assert all(each.reason.startswith("must ") for each in bad), bad


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("kubevipUpdates", "kubevipUpdate"),
        ("kubevipUpdat", "kubevipUpdate"),
        ("kubevip_Update", "kubevipUpdate"),
        ("kubevipuqdate", "kubevipUpdate"),
        ("logLevl", "logLevel"),
        ("loqLevel", "logLevel"),
        ("metricsport", "metricsPort"),
        ("createFloatingIps", "createFloatingIPs"),
        ("kubevipChartValue", "kubevipChartValues"),
        ("mark", ""),
        ("kubevip", ""),
    ],
)
def test_an_unknown_name_blocks_nothing_and_is_warned_of_with_the_option_that_it_is_like(
    name: str, like: str
) -> None:
    data = {name: "bgp_peerpass: hunter2"}

    assert parse_settings(data, DEFAULTS) == (DEFAULTS, ())
    [clause] = find_unknown(data)
    assert f'"{name}"' in clause
    assert "hunter2" not in clause
    assert ("did you mean" in clause) is bool(like)
    assert f'"{like}"' in clause or not like


def test_a_known_name_is_not_warned_of() -> None:
    assert find_unknown(settings_data(DEFAULTS)) == ()


@pytest.mark.parametrize(
    ("option", "text"),
    [
        *(
            ("kubevipChartValues", each)
            for each in ("env: {bgp_peerpass: hunter2", "env: !!hunter2 x", "hunter2", "? [hunter2]\n: a")
        ),
        *(
            ("kubevipChartRepoUrl", f"https://{each}")
            for each in ("me:hunter2@example.org/charts", "a?hunter2")
        ),
        *(("kubevipChartRepoUrl", f"ftp://a{each}") for each in ("/charts?token=hunter2", "/charts#hunter2")),
        # A token in the query was taken, and shown in conditions, in logs and on helm's command line.
        *(
            ("kubevipChartRepoUrl", f"https://example.org/charts{each}")
            for each in ("?token=hunter2", "?", "#hunter2", "#")
        ),
    ],
)
def test_a_bad_value_never_shows_what_it_may_hide(option: str, text: str) -> None:
    bad = refused(option, text)

    assert "hunter2" not in bad.value + bad.reason


def test_settings_show_no_chart_values_when_they_are_printed() -> None:
    settings = taken("kubevipChartValues", "env: {bgp_peerpass: hunter2}")

    assert settings.kubevip_chart_values.values == {"env": {"bgp_peerpass": "hunter2"}}
    assert "hunter2" not in repr(settings)


def test_the_repository_may_be_empty_only_while_both_charts_come_from_elsewhere() -> None:
    refs = {
        "kubevipChartRef": "oci://example.org/kube-vip",
        "kubevipCloudProviderChartRef": "oci://example.org/kube-vip-cloud-provider",
    }

    without, bad = parse_settings({**refs, "kubevipChartRepoUrl": ""}, DEFAULTS)
    assert (without.kubevip_chart_repo_url, bad) == ("", ())

    again, bad = parse_settings({"kubevipChartRepoUrl": ""}, without)
    assert again.unknown_options == {"kubevipChartRepoUrl"}
    assert [each.option for each in bad] == ["kubevipChartRepoUrl"]


OWN_REGISTRY = {
    "kubevipChartRef": "oci://registry.example/charts/kube-vip",
    "kubevipCloudProviderChartRef": "oci://registry.example/charts/kube-vip-cloud-provider",
    "kubevipChartRepoUrl": "",
    "kubevipChartSecret": "chart-registry",
}


@pytest.mark.parametrize("mistyped", ["kubevipChartRef", "kubevipCloudProviderChartRef"])
@pytest.mark.parametrize("before", [OWN_REGISTRY, {}, {"kubevipChartRepoUrl": ""}, None])
def test_without_a_repository_and_with_one_reference_mistyped_no_chart_comes_from_the_public_default(
    mistyped: str, before: dict[str, str] | None
) -> None:
    """The charts of kube-vip.io were installed, and the registry's password was allowed to go there."""
    last_good = NOTHING_KNOWN
    if before is not None:
        last_good, _ = parse_settings(before, DEFAULTS)
    data = {("mistyped" if option == mistyped else option): text for option, text in OWN_REGISTRY.items()}

    settings, bad = parse_settings(data, last_good)
    again, _ = parse_settings(data, settings)

    assert "kubevipChartRepoUrl" in [each.option for each in bad]
    for each in (settings, again):
        assert each.unknown_options == {"kubevipChartRepoUrl"}
        assert each.kubevip_chart_repo_url == ""
    mended, bad = parse_settings(OWN_REGISTRY, again)
    assert (mended.unknown_options, bad) == (frozenset(), ())


def test_an_emptied_repository_keeps_the_last_one_that_the_admin_set_while_a_chart_needs_it() -> None:
    good = taken("kubevipChartRepoUrl", "https://charts.example/stable")

    settings, bad = parse_settings({"kubevipChartRepoUrl": ""}, good)

    assert settings == good
    assert [each.option for each in bad] == ["kubevipChartRepoUrl"]


def test_empty_chart_values_are_none() -> None:
    assert taken("kubevipChartValues", "\n# nothing\n").kubevip_chart_values.values == {}


def test_values_that_differ_only_in_type_are_different_settings() -> None:
    assert taken("kubevipChartValues", "a: true") != taken("kubevipChartValues", "a: 1")


def test_the_data_of_settings_gives_the_same_settings_again() -> None:
    settings, _ = parse_settings(
        {
            "logLevel": "Trace",
            "traceIpamData": "1",
            "kubevipChartValues": "env: {vip_arp: 'false'}",
            "kubevipChartVersion": "0.9.9",
        },
        DEFAULTS,
    )

    for each in (DEFAULTS, settings):
        data = settings_data(each)
        assert all(isinstance(text, str) for text in data.values())
        assert parse_settings(data, DEFAULTS) == (each, ())


IN_OVERRIDE = "- name: rack-a\n  clusters: [one]\n  values: {{{}}}\n"


def cloud_provider_image(tag: str, namespace: str) -> Settings:
    settings, bad = parse_settings(
        {"kubevipCloudProviderChartValues": f"image: {{tag: {tag}}}", "kubevipNamespace": namespace}, DEFAULTS
    )
    assert bad == ()
    return settings


def test_a_cloud_provider_that_reads_only_kube_system_is_warned_of_elsewhere() -> None:
    assert warnings(DEFAULTS) == ()
    assert warnings(cloud_provider_image("v0.0.9", "vips")) == ()
    assert warnings(cloud_provider_image("main", "vips")) == ()
    for tag in ("v0.0.7", "0.0.4"):
        assert "kube-system" in warnings(cloud_provider_image(tag, "vips"))[0]
    assert "default" in warnings(cloud_provider_image("v0.0.8", "kube-system"))[0]


RIGHT_KUBE_VIP = 'Use v1.2.4 or newer, or v1.1.2 with svc_election "false"'
CHART_IMAGE = f"chart kube-vip %s without image.tag runs kube-vip %s, which loses addresses. {RIGHT_KUBE_VIP}"
ELECTION = "env: {svc_election: %s}, image: {tag: %s}"


@pytest.mark.parametrize(
    ("values", "chart_version", "said"),
    [
        ("image: {tag: v1.0.0}", "", ()),
        ("image: {tag: v1.0.1}", "", (f"kube-vip v1.0.1 loses addresses. {RIGHT_KUBE_VIP}",)),
        ("image: {tag: v1.0.3}", "", (f"kube-vip v1.0.3 loses addresses. {RIGHT_KUBE_VIP}",)),
        ("image: {tag: v1.0.4}", "", ()),
        ("image: {tag: v1.2.0}", "", (f"kube-vip v1.2.0 loses addresses. {RIGHT_KUBE_VIP}",)),
        ("image: {tag: 1.2.3}", "", (f"kube-vip v1.2.3 loses addresses. {RIGHT_KUBE_VIP}",)),
        ("image: {tag: v1.2.4}", "0.11.1", ()),
        ("image: {tag: v2.0.0}", "0.11.1", ()),
        ("image: {tag: main}", "0.11.1", ()),
        (ELECTION % ("'false'", "v1.1.2"), "0.11.1", ()),
        ("image: {tag: v1.1.2}", "", ()),
        (
            ELECTION % ("'true'", "v1.1.2"),
            "",
            (f'kube-vip v1.1.2 with svc_election "true" loses addresses. {RIGHT_KUBE_VIP}',),
        ),
        (
            ELECTION % ("true", "1.1.0"),
            "",
            (f'kube-vip v1.1.0 with svc_election "true" loses addresses. {RIGHT_KUBE_VIP}',),
        ),
        (ELECTION % ("'1'", "v1.0.4"), "", ()),
        (ELECTION % ("'true'", "v1.2.4"), "", ()),
        (
            "",
            "0.11.0",
            (CHART_IMAGE % ("0.11.0", "v1.2.2"),),
        ),
        (
            "image: {tag: ''}",
            "v0.11.1",
            (CHART_IMAGE % ("0.11.1", "v1.2.3"),),
        ),
        ("", "0.9.9", ()),
        ("", "", ()),
    ],
)
def test_a_kube_vip_that_loses_addresses_is_warned_of(
    values: str, chart_version: str, said: tuple[str, ...]
) -> None:
    data = {"kubevipChartValues": f"{{{values}}}", "kubevipChartVersion": chart_version}
    found, bad = parse_settings(data, DEFAULTS)
    assert bad == ()
    assert warnings(found) == said


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("values: {image: {tag: v1.2.4}}", ""),
        ("values: {image: {tag: v1.0.1}}", "kube-vip v1.0.1 loses addresses"),
        ("values: {env: {svc_election: 'true'}}", 'kube-vip v1.1.2 with svc_election "true" loses addresses'),
        ("values: {image: {tag: null}}, chartVersion: 0.11.1", "chart kube-vip 0.11.1 without image.tag"),
        ("values: {image: {tag: null}}", "chart kube-vip 0.11.0 without image.tag"),
        ("chartVersion: 0.11.1", ""),
    ],
)
def test_an_override_is_judged_with_what_it_is_merged_over(entry: str, said: str) -> None:
    data = {
        "kubevipChartValues": "image: {tag: v1.1.2}",
        "kubevipChartVersion": "0.11.0",
        "kubevipChartValuesOverrides": f"- {{name: rack-a, clusters: [one], {entry}}}\n",
    }
    found, bad = parse_settings(data, DEFAULTS)
    assert bad == ()
    assert [each.startswith(f'override "rack-a": {said}') for each in warnings(found)] == (
        [True] if said else []
    )


def test_what_all_get_is_not_warned_of_again_for_each_override() -> None:
    data = {
        "kubevipChartValues": "image: {tag: v1.2.3}",
        "kubevipChartValuesOverrides": IN_OVERRIDE.format("env: {vip_interface: eth1}"),
    }
    found, _ = parse_settings(data, DEFAULTS)
    assert warnings(found) == (f"kube-vip v1.2.3 loses addresses. {RIGHT_KUBE_VIP}",)


def test_what_an_override_sets_is_warned_of_like_what_all_get() -> None:
    for values, said in (
        ("image: {tag: v0.0.8}", "it reads default only"),
        ("cm: {data: {cidr-global: 10.0.0.1/32}}", "no program reads"),
    ):
        found = taken("kubevipCloudProviderChartValuesOverrides", IN_OVERRIDE.format(values))
        [warning] = warnings(found)
        assert warning.startswith('override "rack-a": ')
        assert said in warning


def test_a_config_map_of_the_chart_that_nobody_reads_is_warned_of() -> None:
    assert warnings(taken("kubevipCloudProviderChartValues", "cm: {data: {}}")) == ()
    (found,) = warnings(taken("kubevipCloudProviderChartValues", "cm: {data: {cidr-global: 10.0.0.1/32}}"))
    assert "no program reads" in found


@given(st.dictionaries(st.sampled_from(OPTIONS) | st.text(max_size=20), ODD_TEXTS, max_size=8))
def test_whatever_stands_in_the_config_map_settings_come_out(data: dict[str, str]) -> None:
    settings, bad = parse_settings(data, DEFAULTS)

    again, still_bad = parse_settings(settings_data(settings), DEFAULTS)
    assert again == settings
    assert {each.option for each in still_bad} == settings.unknown_options
    assert {each.option for each in bad} <= {*data, "kubevipChartRepoUrl"}
    assert all(clause.isprintable() for clause in find_unknown(data))
    for each in bad:
        assert each.value.isprintable()
        assert each.reason


@pytest.mark.parametrize(
    "text",
    [
        "[" * 60_000,
        "{" * 60_000,
        "- " * 30_000,
        "a: &a [x]\n" + "b: *a\n" * 5000,
        "x" * 1_000_000,
        "?" * 60_000,
    ],
    ids=["lists", "mappings", "dashes", "aliases", "long", "marks"],
)
def test_hostile_chart_values_are_refused_in_no_time(text: str) -> None:
    assert count_steps(lambda: refused("kubevipChartValues", text)) < 10_000
