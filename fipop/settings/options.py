"""kube-fip-config: the ConfigMap's texts -> checked Settings.

The options, their values and built-in defaults are those of kube-fip-operator. Parsing never fails: an option
that is absent has its default, one with a bad value keeps the last good one and is reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from fipop.settings.values import (
    REPO_URL_REASON,
    Amount,
    ChartValues,
    FailureStrategy,
    GuestInstall,
    LogLevel,
    RolloutType,
    SettingsError,
    parse_amount,
    parse_bool,
    parse_chart_ref,
    parse_chart_values,
    parse_choice,
    parse_concurrency,
    parse_digest,
    parse_interval,
    parse_namespace,
    parse_object_name,
    parse_port,
    parse_rate,
    parse_release_name,
    parse_repo_url,
    parse_seconds,
    parse_version,
)

MAX_SHOWN = 100

_IMAGE_TAG = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})\.([0-9]{1,4})")
_LOSES_ADDRESSES = (((1, 0, 1), (1, 0, 3)), ((1, 2, 0), (1, 2, 2)))


@dataclass(frozen=True, slots=True, kw_only=True)
class BadOption:
    """An option whose value was not taken; `value` is cut and cleaned, or hidden if it can be a secret."""

    option: str
    value: str
    reason: str


CANARIES, MAX_CONCURRENCY, NO_FAILURES = Amount(2), Amount(10, is_percent=True), Amount(0)
"""Of rollouts, by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every option of kube-fip-config.

    `unknown_options` names those with a bad value of which no good one is known: they have their default, the
    repository none, and while one of them shapes releases nothing is installed, upgraded or removed.
    """

    log_level: LogLevel
    operate_guest_cluster_interval_seconds: int
    metrics_port: int
    trace_ipam_data: bool
    kubevip_guest_install: GuestInstall
    kubevip_update: bool
    kubevip_namespace: str
    kubevip_release_name: str
    kubevip_chart_repo_url: str
    kubevip_chart_ref: str
    kubevip_chart_version: str
    kubevip_chart_values: ChartValues
    kubevip_cloud_provider_release_name: str
    kubevip_cloud_provider_chart_ref: str
    kubevip_cloud_provider_chart_version: str
    kubevip_cloud_provider_chart_values: ChartValues
    kubevip_chart_secret: str = ""
    kubevip_chart_ca: str = ""
    kubevip_chart_digest: str = ""
    kubevip_cloud_provider_chart_digest: str = ""
    helm_concurrency: int = 2
    guest_requests_per_second: int = 70
    create_floating_ips: bool = True
    kubevip_rollout_type: RolloutType = RolloutType.PROGRESSIVE
    kubevip_rollout_canaries: Amount = CANARIES
    kubevip_rollout_max_concurrency: Amount = MAX_CONCURRENCY
    kubevip_rollout_min_success_seconds: int = 120
    kubevip_rollout_progress_deadline_seconds: int = 600
    kubevip_rollout_max_failures: Amount = NO_FAILURES
    kubevip_rollout_failure_strategy: FailureStrategy = FailureStrategy.ROLLBACK
    kubevip_rollout_paused: bool = False
    unknown_options: frozenset[str] = frozenset()

    @property
    def unknown_release_options(self) -> frozenset[str]:
        """Those of `unknown_options` that shape releases."""
        found = frozenset(each for each in self.unknown_options if each.startswith("kubevip"))
        return found - self.unknown_rollout_options

    @property
    def unknown_rollout_options(self) -> frozenset[str]:
        """Those of `unknown_options` that shape rollouts."""
        return frozenset(each for each in self.unknown_options if each.startswith("kubevipRollout"))

    @property
    def may_create_floating_ips(self) -> bool:
        """Whether guest clusters without a floating IP get one; not while the option has an unknown value."""
        return self.create_floating_ips and "createFloatingIPs" not in self.unknown_options


_KUBEVIP_VALUES = """\
config:
  vip_interface: enp1s0
image:
  repository: plndr/kube-vip
  tag: v0.6.4
env:
  prometheus_server: ':8080'
nodeSelector:
  node-role.kubernetes.io/master: 'true'
"""
_CLOUD_PROVIDER_VALUES = """\
image:
  repository: kubevip/kube-vip-cloud-provider
  tag: v0.0.7
"""

DEFAULTS = Settings(
    log_level=LogLevel.INFO,
    operate_guest_cluster_interval_seconds=480,
    metrics_port=8080,
    trace_ipam_data=False,
    kubevip_guest_install=GuestInstall.CLUSTER_LABEL,
    kubevip_update=False,
    kubevip_namespace="kube-system",
    kubevip_release_name="kube-vip",
    kubevip_chart_repo_url="https://kube-vip.io/helm-charts",
    kubevip_chart_ref="",
    kubevip_chart_version="",
    kubevip_chart_values=parse_chart_values(_KUBEVIP_VALUES),
    kubevip_cloud_provider_release_name="kube-vip-cloud-provider",
    kubevip_cloud_provider_chart_ref="",
    kubevip_cloud_provider_chart_version="",
    kubevip_cloud_provider_chart_values=parse_chart_values(_CLOUD_PROVIDER_VALUES),
)
"""The documented built-in defaults."""


def parse_settings(data: Mapping[str, str], last_good: Settings) -> tuple[Settings, tuple[BadOption, ...]]:
    """Read the ConfigMap's data; a bad value keeps that of `last_good`, an absent option has its default.

    An unknown option of `last_good` stays unknown while its value is bad.
    Bad options come in the order of the option table, unknown ones after them by name.
    """
    values: dict[str, Any] = {}
    bad = []
    for option in _OPTIONS:
        text = data.get(option.name)
        if text is None:
            continue
        try:
            values[option.field] = option.parse(text)
        except SettingsError as error:
            values[option.field] = getattr(last_good, option.field)
            bad.append(BadOption(option=option.name, value=_shown(option, text), reason=str(error)))
    settings = replace(DEFAULTS, **values)
    unknown = last_good.unknown_options
    if not settings.kubevip_chart_repo_url and not _needs_no_repository(settings):
        # Who leaves it empty wants nothing from the public default, be it that it served until now.
        known = {last_good.kubevip_chart_repo_url} - {DEFAULTS.kubevip_chart_repo_url, ""}
        settings = replace(settings, kubevip_chart_repo_url="".join(known))
        reason = f"{REPO_URL_REASON} while a chart has no reference"
        bad.append(BadOption(option="kubevipChartRepoUrl", value="", reason=reason))
        unknown |= frozenset() if known else {"kubevipChartRepoUrl"}
    unknown &= {each.option for each in bad}
    known = {option.name for option in _OPTIONS}
    bad += [
        BadOption(option=_clean(name), value=_withheld(data[name]), reason=_no_option(name, known))
        for name in sorted(set(data) - known)
    ]
    return replace(settings, unknown_options=unknown), tuple(bad)


def parse_last_good(data: Mapping[str, str]) -> Settings:
    """Read what `settings_data` made of settings in force; missing or bad options are unknown."""
    unknown = frozenset(option.name for option in _OPTIONS)
    settings, _ = parse_settings(data, replace(DEFAULTS, unknown_options=unknown))
    return replace(settings, unknown_options=settings.unknown_options | (unknown - data.keys()))


def _no_option(name: str, known: Collection[str]) -> str:
    meant = [option for option in known if option.lower() == name.strip().lower()]
    return "must be an option of fipop" + (f", such as {meant[0]}" if meant else "")


def settings_data(settings: Settings) -> dict[str, str]:
    """Return the settings as the data of a ConfigMap, one text for every option; parsing it restores them."""
    return {option.name: _as_text(getattr(settings, option.field)) for option in _OPTIONS}


def warnings(settings: Settings) -> tuple[str, ...]:
    """Return a clause for each valid choice that does not work as an admin expects."""
    found = []
    namespace = settings.kubevip_namespace
    cloud_provider = _image_version(settings.kubevip_cloud_provider_chart_values)
    if cloud_provider is not None and cloud_provider <= (0, 0, 7) and namespace != "kube-system":
        found.append(
            f'image v0.0.7 of the cloud provider cannot read its ConfigMap in kubevipNamespace "{namespace}": it reads '
            "kube-system only. Use v0.0.9 or newer"
        )
    if cloud_provider == (0, 0, 8) and namespace != "default":
        found.append(
            f'image v0.0.8 of the cloud provider cannot read its ConfigMap in kubevipNamespace "{namespace}": it reads '
            "default only. Use v0.0.9 or newer"
        )
    kube_vip = _image_version(settings.kubevip_chart_values)
    if kube_vip is not None and any(first <= kube_vip <= last for first, last in _LOSES_ADDRESSES):
        version = ".".join(str(part) for part in kube_vip)
        found.append(f"kube-vip v{version} loses addresses. Use v1.2.3 or newer")
    config_map = settings.kubevip_cloud_provider_chart_values.values.get("cm")
    if isinstance(config_map, Mapping) and config_map.get("data"):
        found.append(
            "cm.data in kubevipCloudProviderChartValues makes a ConfigMap that no program reads. Write the keys into "
            "ConfigMap kubevip of the guest cluster"
        )
    soak, deadline = (
        settings.kubevip_rollout_min_success_seconds,
        settings.kubevip_rollout_progress_deadline_seconds,
    )
    if soak >= deadline:
        found.append(
            f"kubevipRolloutMinSuccessTime must be below kubevipRolloutProgressDeadline {deadline}: it is {soak}, so "
            "no guest cluster can succeed in time"
        )
    return tuple(found)


class _Option(NamedTuple):
    """One line of the option table: its name, the field of Settings, and how its text is read."""

    name: str
    field: str
    parse: Callable[[str], object]
    secret: bool = False


def _image_version(values: ChartValues) -> tuple[int, ...] | None:
    image = values.values.get("image")
    tag = image.get("tag") if isinstance(image, Mapping) else None
    match = _IMAGE_TAG.fullmatch(tag) if isinstance(tag, str) else None
    return tuple(int(part) for part in match.groups()) if match else None


def _needs_no_repository(settings: Settings) -> bool:
    return bool(settings.kubevip_chart_ref and settings.kubevip_cloud_provider_chart_ref)


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.text if isinstance(value, ChartValues) else str(value)


def _shown(option: _Option, text: str) -> str:
    # A URL may carry a password before its @ and a token after its ? or #.
    return _withheld(text) if option.secret or any(mark in text for mark in "@?#") else _clean(text)


def _withheld(text: str) -> str:
    return f"({len(text)} characters)"


def _clean(text: str) -> str:
    shown = "".join(char if char.isprintable() else "?" for char in text[:MAX_SHOWN])
    return shown + ("…" if len(text) > MAX_SHOWN else "")


_OPTIONS = (
    _Option("logLevel", "log_level", parse_choice(LogLevel)),
    _Option("operateGuestClusterInterval", "operate_guest_cluster_interval_seconds", parse_interval),
    _Option("metricsPort", "metrics_port", parse_port),
    _Option("traceIpamData", "trace_ipam_data", parse_bool),
    _Option("kubevipGuestInstall", "kubevip_guest_install", parse_choice(GuestInstall)),
    _Option("kubevipUpdate", "kubevip_update", parse_bool),
    _Option("kubevipNamespace", "kubevip_namespace", parse_namespace),
    _Option("kubevipReleaseName", "kubevip_release_name", parse_release_name),
    _Option("kubevipChartRepoUrl", "kubevip_chart_repo_url", parse_repo_url),
    _Option("kubevipChartRef", "kubevip_chart_ref", parse_chart_ref),
    _Option("kubevipChartVersion", "kubevip_chart_version", parse_version),
    _Option("kubevipChartValues", "kubevip_chart_values", parse_chart_values, secret=True),
    _Option("kubevipCloudProviderReleaseName", "kubevip_cloud_provider_release_name", parse_release_name),
    _Option("kubevipCloudProviderChartRef", "kubevip_cloud_provider_chart_ref", parse_chart_ref),
    _Option("kubevipCloudProviderChartVersion", "kubevip_cloud_provider_chart_version", parse_version),
    _Option(
        "kubevipCloudProviderChartValues",
        "kubevip_cloud_provider_chart_values",
        parse_chart_values,
        secret=True,
    ),
    _Option("kubevipChartSecret", "kubevip_chart_secret", parse_object_name),
    _Option("kubevipChartCA", "kubevip_chart_ca", parse_object_name),
    _Option("kubevipChartDigest", "kubevip_chart_digest", parse_digest),
    _Option("kubevipCloudProviderChartDigest", "kubevip_cloud_provider_chart_digest", parse_digest),
    _Option("helmConcurrency", "helm_concurrency", parse_concurrency),
    _Option("guestRequestsPerSecond", "guest_requests_per_second", parse_rate),
    _Option("createFloatingIPs", "create_floating_ips", parse_bool),
    _Option("kubevipRolloutType", "kubevip_rollout_type", parse_choice(RolloutType)),
    _Option("kubevipRolloutCanaries", "kubevip_rollout_canaries", parse_amount(1)),
    _Option("kubevipRolloutMaxConcurrency", "kubevip_rollout_max_concurrency", parse_amount(1)),
    _Option("kubevipRolloutMinSuccessTime", "kubevip_rollout_min_success_seconds", parse_seconds),
    _Option("kubevipRolloutProgressDeadline", "kubevip_rollout_progress_deadline_seconds", parse_interval),
    _Option("kubevipRolloutMaxFailures", "kubevip_rollout_max_failures", parse_amount(0)),
    _Option(
        "kubevipRolloutFailureStrategy", "kubevip_rollout_failure_strategy", parse_choice(FailureStrategy)
    ),
    _Option("kubevipRolloutPaused", "kubevip_rollout_paused", parse_bool),
)
