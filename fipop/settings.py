"""kube-fip-config: the ConfigMap's texts -> checked Settings.

The options, their values and built-in defaults are those of kube-fip-operator. Parsing never fails: an option
that is absent has its default, one with a bad value keeps the last good one and is reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from fipop.api.names import parse_go_bool
from fipop.errors import FipopError
from fipop.yaml_input import JsonValue, YamlRefusedError, parse_yaml_mapping

HEALTH_PORT = 8081
"""Taken by the probes, hence a bad value for `metricsPort`."""

MAX_INTERVAL_SECONDS = 2**31 - 1
MAX_PORT = 65535
MAX_SHOWN = 100

_DNS_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_MAX_RELEASE_NAME = 53  # helm's own limit
_NUMBER = re.compile(r"\+?[0-9]{1,10}")
# https://semver.org, with the leading v that helm allows.
_VERSION = re.compile(
    r"v?(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?", re.ASCII
)
_MAX_VERSION = 128
# Names of repositories by the OCI distribution specification; neither tag nor digest.
_PATH_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_CHART_REF = re.compile(
    rf"oci://[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{{1,5}})?(?:/{_PATH_PART})+"
)
_MAX_URL = 2048
_REPO_URL_REASON = "must be the http:// or https:// URL of a chart repository"


class SettingsError(FipopError):
    """One value is bad; the text says what the option takes, never what stood there."""


class LogLevel(StrEnum):
    """As kube-fip-operator names them. Trace: every request too, without its body."""

    TRACE = "Trace"
    DEBUG = "Debug"
    INFO = "Info"
    WARN = "Warn"
    ERROR = "Error"
    FATAL = "Fatal"
    PANIC = "Panic"


class GuestInstall(StrEnum):
    """In which guests fipop installs: all, none, or those whose cluster carries the label."""

    ENABLED = "enabled"
    DISABLED = "disabled"
    CLUSTER_LABEL = "clusterlabel"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartValues:
    """The admin's YAML for a chart: its text, and what it says. No repr shows them: they may hold secrets."""

    text: str = field(repr=False)
    values: Mapping[str, JsonValue] = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BadOption:
    """An option whose value was not taken; `value` is cut and cleaned, or withheld if it may be a secret."""

    option: str
    value: str
    reason: str


def parse_chart_values(text: str) -> ChartValues:
    """Read a chart's values, at most 64 KiB. Raises SettingsError (its reason is fit for a log)."""
    try:
        return ChartValues(text=text, values=parse_yaml_mapping(text))
    except YamlRefusedError as error:
        raise SettingsError(error.reason) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every option of kube-fip-config."""

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
    if not settings.kubevip_chart_repo_url and not _needs_no_repository(settings):
        settings = replace(settings, kubevip_chart_repo_url=last_good.kubevip_chart_repo_url)
        bad.append(BadOption(option="kubevipChartRepoUrl", value="", reason=_REPO_URL_REASON))
    known = {option.name for option in _OPTIONS}
    bad += [
        BadOption(option=_clean(name), value=_withheld(data[name]), reason="is no option of fipop")
        for name in sorted(set(data) - known)
    ]
    return settings, tuple(bad)


def settings_data(settings: Settings) -> dict[str, str]:
    """Give the settings as the data of a ConfigMap, one text for every option; parsing it gives them back."""
    return {option.name: _as_text(getattr(settings, option.field)) for option in _OPTIONS}


def warnings(settings: Settings) -> tuple[str, ...]:
    """Give a sentence for each combination that is legal and yet will not work as an admin expects."""
    found = []
    image = settings.kubevip_cloud_provider_chart_values.values.get("image")
    tag = image.get("tag") if isinstance(image, Mapping) else None
    if tag == "v0.0.7" and settings.kubevip_namespace != "kube-system":
        found.append(
            "the cloud provider's image v0.0.7 reads its ConfigMap in kube-system only, not in "
            f'kubevipNamespace "{settings.kubevip_namespace}": use v0.0.9 or newer'
        )
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    """One line of the option table: its name, the field of Settings, and how its text is read."""

    name: str
    field: str
    parse: Callable[[str], object]
    secret: bool = False


def _needs_no_repository(settings: Settings) -> bool:
    return bool(settings.kubevip_chart_ref and settings.kubevip_cloud_provider_chart_ref)


def _parse_choice(kind: type[StrEnum]) -> Callable[[str], StrEnum]:
    def parse(text: str) -> StrEnum:
        for choice in kind:
            if text.strip().lower() == choice.value.lower():
                return choice
        raise SettingsError(f"must be one of {', '.join(choice.value for choice in kind)}")

    return parse


def _parse_bool(text: str) -> bool:
    value = parse_go_bool(text.strip())
    if value is None:
        raise SettingsError("must be true or false")
    return value


def _parse_number(text: str, largest: int) -> int:
    if not _NUMBER.fullmatch(text.strip()) or not 1 <= int(text) <= largest:
        raise SettingsError(f"must be a whole number from 1 to {largest}")
    return int(text)


def _parse_interval(text: str) -> int:
    return _parse_number(text, MAX_INTERVAL_SECONDS)


def _parse_port(text: str) -> int:
    port = _parse_number(text, MAX_PORT)
    if port == HEALTH_PORT:
        raise SettingsError(f"{HEALTH_PORT} is the port of the health probes")
    return port


def _parse_label(text: str, longest: int) -> str:
    name = text.strip()
    if len(name) > longest or not _DNS_LABEL.fullmatch(name):
        raise SettingsError(f"must be a DNS label: a-z, 0-9 and -, at most {longest} characters")
    return name


def _parse_namespace(text: str) -> str:
    return _parse_label(text, 63)


def _parse_release_name(text: str) -> str:
    return _parse_label(text, _MAX_RELEASE_NAME)


def _parse_repo_url(text: str) -> str:
    url = text.strip()
    if not url:
        return ""  # Fine where both charts come from elsewhere, which is seen when all options are read.
    try:
        parts = urlsplit(url)
        legal = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        legal = False
    if not legal or len(url) > _MAX_URL or not url.isascii() or not url.isprintable() or " " in url:
        raise SettingsError(_REPO_URL_REASON)
    if "@" in parts.netloc:
        # It would reach helm's command line, and logs on the way.
        raise SettingsError("must not hold a user or password")
    return url


def _parse_chart_ref(text: str) -> str:
    ref = text.strip()
    if ref and (len(ref) > _MAX_URL or not _CHART_REF.fullmatch(ref)):
        raise SettingsError("must be oci://<registry>/<path>/<chart> without a tag, or empty")
    return ref


def _parse_version(text: str) -> str:
    version = text.strip()
    if version and (len(version) > _MAX_VERSION or not _VERSION.fullmatch(version)):
        raise SettingsError("must be a whole version such as 0.9.9, or empty for the newest")
    return version


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.text if isinstance(value, ChartValues) else str(value)


def _shown(option: _Option, text: str) -> str:
    return _withheld(text) if option.secret or "@" in text else _clean(text)


def _withheld(text: str) -> str:
    return f"({len(text)} characters)"


def _clean(text: str) -> str:
    shown = "".join(char if char.isprintable() else "?" for char in text[:MAX_SHOWN])
    return shown + ("…" if len(text) > MAX_SHOWN else "")


_OPTIONS = (
    _Option(name="logLevel", field="log_level", parse=_parse_choice(LogLevel)),
    _Option(
        name="operateGuestClusterInterval",
        field="operate_guest_cluster_interval_seconds",
        parse=_parse_interval,
    ),
    _Option(name="metricsPort", field="metrics_port", parse=_parse_port),
    _Option(name="traceIpamData", field="trace_ipam_data", parse=_parse_bool),
    _Option(name="kubevipGuestInstall", field="kubevip_guest_install", parse=_parse_choice(GuestInstall)),
    _Option(name="kubevipUpdate", field="kubevip_update", parse=_parse_bool),
    _Option(name="kubevipNamespace", field="kubevip_namespace", parse=_parse_namespace),
    _Option(name="kubevipReleaseName", field="kubevip_release_name", parse=_parse_release_name),
    _Option(name="kubevipChartRepoUrl", field="kubevip_chart_repo_url", parse=_parse_repo_url),
    _Option(name="kubevipChartRef", field="kubevip_chart_ref", parse=_parse_chart_ref),
    _Option(name="kubevipChartVersion", field="kubevip_chart_version", parse=_parse_version),
    _Option(name="kubevipChartValues", field="kubevip_chart_values", parse=parse_chart_values, secret=True),
    _Option(
        name="kubevipCloudProviderReleaseName",
        field="kubevip_cloud_provider_release_name",
        parse=_parse_release_name,
    ),
    _Option(
        name="kubevipCloudProviderChartRef", field="kubevip_cloud_provider_chart_ref", parse=_parse_chart_ref
    ),
    _Option(
        name="kubevipCloudProviderChartVersion",
        field="kubevip_cloud_provider_chart_version",
        parse=_parse_version,
    ),
    _Option(
        name="kubevipCloudProviderChartValues",
        field="kubevip_cloud_provider_chart_values",
        parse=parse_chart_values,
        secret=True,
    ),
)
