"""kube-fip-config: the ConfigMap's texts -> checked Settings.

The options, their values and built-in defaults are those of kube-fip-operator. Parsing never fails: an option
that is absent has its default, one with a bad value keeps the last good one and is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from fipop.api.codec import describe_problem
from fipop.api.names import parse_go_bool
from fipop.settings import values
from fipop.settings.overrides import Overrides, OverridesText, merge_values
from fipop.settings.values import (
    REPO_URL_REASON,
    Amount,
    ChartValues,
    FailureStrategy,
    GuestInstall,
    LogLevel,
    RolloutType,
    parse_chart_values,
)
from fipop.texts import clean, read_version, suggest

MAX_SHOWN = 100

_LOSES_ADDRESSES = (((1, 0, 1), (1, 0, 3)), ((1, 2, 0), (1, 2, 3)))
_CHART_IMAGES = {"0.11.0": (1, 2, 2), "0.11.1": (1, 2, 3)}
"""The kube-vip that a chart brings which loses addresses, by the version of the chart."""
_RIGHT_KUBE_VIP = 'Use v1.2.4 or newer, or v1.1.2 with svc_election "false"'
_NAMES = {
    "kubevip_chart_ca": "kubevipChartCA",
    "create_floating_ips": "createFloatingIPs",
    "service_visit_seconds": "serviceVisitSeconds",
    "kubevip_rollout_min_success_seconds": "kubevipRolloutMinSuccessTime",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BadOption:
    """An option whose value was not taken; `value` is cut and cleaned, and "" if it can be a secret."""

    option: str
    value: str
    reason: str

    def __str__(self) -> str:
        """Return a clause."""
        return f"option {self.option} {self.reason}" + (f": it is {self.value!r}" if self.value else "")


_KUBEVIP_VALUES = parse_chart_values("""\
config:
  vip_interface: enp1s0
image:
  repository: plndr/kube-vip
  tag: v0.6.4
env:
  prometheus_server: ':8080'
nodeSelector:
  node-role.kubernetes.io/master: 'true'
""")
_CLOUD_PROVIDER_VALUES = parse_chart_values("""\
image:
  repository: kubevip/kube-vip-cloud-provider
  tag: v0.0.7
""")
_NO_OVERRIDES = Overrides()
_CANARIES, _MAX_CONCURRENCY, _NO_FAILURES = Amount(2), Amount(10, is_percent=True), Amount(0)


def _option_name(field: str) -> str:
    return _NAMES.get(field) or to_camel(field.removesuffix("_seconds"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every option of kube-fip-config: the field `kubevip_update` is the option `kubevipUpdate`.

    The page docs/reference/options.md has the rules of each.
    """

    __pydantic_config__: ClassVar = ConfigDict(alias_generator=_option_name, hide_input_in_errors=True)

    log_level: LogLevel = LogLevel.INFO
    """Least severe level that fipop logs."""
    operate_guest_cluster_interval_seconds: values.Seconds = 480
    """Longest time between two visits of a guest cluster."""
    metrics_port: values.Port = 8080
    """Port on which the operator serves metrics."""
    trace_ipam_data: values.Bool = False
    """Log all ranges and addresses, at level Info, each time fipop counts them."""
    kubevip_guest_install: GuestInstall = GuestInstall.CLUSTER_LABEL
    """Guest clusters in which fipop installs kube-vip and its cloud provider."""
    kubevip_update: values.Bool = False
    """Upgrade releases that differ from the options."""
    kubevip_namespace: values.NamespaceName = "kube-system"
    """Namespace of both releases and of the ConfigMap `kubevip` in the guest cluster."""
    kubevip_release_name: values.ReleaseName = "kube-vip"
    """Name of the kube-vip release."""
    kubevip_chart_repo_url: values.RepoUrl = "https://kube-vip.io/helm-charts"
    """Chart repository for both charts."""
    kubevip_chart_ref: values.ChartRef = ""
    """Reference of the kube-vip chart; it takes precedence over the repository."""
    kubevip_chart_version: values.ChartVersion = ""
    """Version of the kube-vip chart; if empty, the newest."""
    kubevip_chart_values: values.ChartValuesText = _KUBEVIP_VALUES
    """Values of the kube-vip chart."""
    kubevip_chart_values_overrides: OverridesText = _NO_OVERRIDES
    """What some guest clusters get for the kube-vip chart instead."""
    kubevip_cloud_provider_release_name: values.ReleaseName = "kube-vip-cloud-provider"
    """Name of the cloud provider's release."""
    kubevip_cloud_provider_chart_ref: values.ChartRef = ""
    """Reference of the cloud provider's chart; it takes precedence over the repository."""
    kubevip_cloud_provider_chart_version: values.ChartVersion = ""
    """Version of the cloud provider's chart; if empty, the newest."""
    kubevip_cloud_provider_chart_values: values.ChartValuesText = _CLOUD_PROVIDER_VALUES
    """Values of the cloud provider's chart."""
    kubevip_cloud_provider_chart_values_overrides: OverridesText = _NO_OVERRIDES
    """What some guest clusters get for the cloud provider's chart instead."""
    kubevip_chart_secret: values.ObjectName = ""
    """Secret in fipop's namespace with the credential for the chart source."""
    kubevip_chart_ca: values.ObjectName = ""
    """ConfigMap in fipop's namespace with the only authorities that are trusted for the chart source."""
    kubevip_chart_digest: values.ChartDigest = ""
    """SHA-256 digest that the kube-vip chart archive must have."""
    kubevip_cloud_provider_chart_digest: values.ChartDigest = ""
    """SHA-256 digest that the cloud provider's chart archive must have."""
    helm_concurrency: values.HelmConcurrency = 2
    """Number of helm processes that run at the same time in guest clusters."""
    guest_requests_per_second: values.Rate = 70
    """Requests to guest clusters that go through one Rancher in a second."""
    service_visit_seconds: values.Seconds = 30
    """Time between two lists of Services in a guest cluster whose range has `perGuest`."""
    create_floating_ips: values.Bool = True
    """Create a floating IP for each guest cluster that has none."""
    kubevip_rollout_type: RolloutType = RolloutType.PROGRESSIVE
    """How a changed chart or value reaches the fleet."""
    kubevip_rollout_canaries: values.SomeAmount = _CANARIES
    """Guest clusters that get a change first."""
    kubevip_rollout_max_concurrency: values.SomeAmount = _MAX_CONCURRENCY
    """Most guest clusters that are under way at a time."""
    kubevip_rollout_min_success_seconds: values.SecondsOrNone = 120
    """Time that a guest cluster must stay ready to count as succeeded."""
    kubevip_rollout_progress_deadline_seconds: values.Seconds = 600
    """Longest time from the start of helm in a guest cluster to its success."""
    kubevip_rollout_max_failures: values.AnyAmount = _NO_FAILURES
    """Failures that are tolerated once the canaries have succeeded."""
    kubevip_rollout_failure_strategy: FailureStrategy = FailureStrategy.ROLLBACK
    """What happens to guest clusters in which the target failed."""
    kubevip_rollout_paused: values.Bool = False
    """Admit no guest cluster, and bring none back."""
    unknown_options: frozenset[str] = frozenset()
    """No option: those with a bad value of which no good one is known. They have their default, the repository none.

    While one of them shapes releases, nothing is installed, upgraded or removed.
    """

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
    def pauses_rollouts(self) -> bool:
        """Whether nothing is admitted and nothing goes back; also while an option of rollouts has an unknown value."""
        return self.kubevip_rollout_paused or bool(self.unknown_rollout_options)

    @property
    def may_create_floating_ips(self) -> bool:
        """Whether guest clusters without a floating IP get one; not while the option has an unknown value."""
        return self.create_floating_ips and "createFloatingIPs" not in self.unknown_options


OPTIONS = {_option_name(each.name): each.name for each in fields(Settings) if each.name != "unknown_options"}
"""The field of each option, in the order of the documentation."""
DEFAULTS = Settings()
"""The documented built-in defaults."""
NOTHING_KNOWN = replace(DEFAULTS, unknown_options=frozenset(OPTIONS))
"""Before the first reading of a process."""
_ADAPTER = TypeAdapter(Settings)


def parse_settings(data: Mapping[str, str], last_good: Settings) -> tuple[Settings, tuple[BadOption, ...]]:
    """Read the ConfigMap's data; a bad value keeps that of `last_good`, an absent option has its default.

    An unknown option of `last_good` stays unknown while its value is bad. Bad options come in the order of the
    documentation. A name that is no option is ignored: `find_unknown` reports it.
    """
    texts = {name: data[name] for name in OPTIONS if name in data}
    reasons = _find_reasons(texts)
    good = _ADAPTER.validate_python({name: text for name, text in texts.items() if name not in reasons})
    settings = replace(good, **{OPTIONS[name]: getattr(last_good, OPTIONS[name]) for name in reasons})
    unknown = last_good.unknown_options
    needs_no_repository = settings.kubevip_chart_ref and settings.kubevip_cloud_provider_chart_ref
    if not settings.kubevip_chart_repo_url and not needs_no_repository:
        # Who leaves it empty wants nothing from the public default, be it that it served until now.
        known = {last_good.kubevip_chart_repo_url} - {DEFAULTS.kubevip_chart_repo_url, ""}
        settings = replace(settings, kubevip_chart_repo_url="".join(known))
        reasons["kubevipChartRepoUrl"] = f"{REPO_URL_REASON} while a chart has no reference"
        unknown |= frozenset() if known else {"kubevipChartRepoUrl"}
    bad = tuple(
        BadOption(option=name, value=_shown(name, texts.get(name, "")), reason=reasons[name])
        for name in OPTIONS
        if name in reasons
    )
    return replace(settings, unknown_options=unknown & reasons.keys()), bad


def find_unknown(data: Mapping[str, str]) -> tuple[str, ...]:
    """Return a clause for each name that is no option, with the option that it is like."""
    return tuple(
        f'option "{clean(name, MAX_SHOWN)}" is unknown{suggest(name, OPTIONS)}'
        for name in sorted(data.keys() - OPTIONS.keys())
    )


def settings_data(settings: Settings) -> dict[str, str]:
    """Return the settings as the data of a ConfigMap, one text for every option; parsing it restores them."""
    return {name: _as_text(getattr(settings, field)) for name, field in OPTIONS.items()}


def find_changed(before: Settings, after: Settings) -> list[str]:
    """Return the names of the options that differ."""
    old, new = settings_data(before), settings_data(after)
    return sorted(option for option in new if old[option] != new[option])


def warnings(settings: Settings) -> tuple[str, ...]:
    """Return a clause for each valid choice that does not work as an admin expects."""
    found = []
    namespace = settings.kubevip_namespace
    overrides = settings.kubevip_cloud_provider_chart_values_overrides
    for origin, chart in _list_values(settings.kubevip_cloud_provider_chart_values, overrides):
        version, config_map = _image_version(chart), chart.get("cm")
        reads = "default" if version == (0, 0, 8) else "kube-system"
        if version and version <= (0, 0, 8) and namespace != reads:
            found.append(
                f"{origin}image {_show(version)} of the cloud provider cannot read its ConfigMap in kubevipNamespace "
                f'"{namespace}": it reads {reads} only. Use v0.0.9 or newer'
            )
        if isinstance(config_map, Mapping) and config_map.get("data"):
            found.append(
                f"{origin}cm.data of the cloud provider makes a ConfigMap that no program reads. Write the keys into "
                "ConfigMap kubevip of the guest cluster"
            )
    found += _find_kube_vip_warnings(settings)
    soak = settings.kubevip_rollout_min_success_seconds
    deadline = settings.kubevip_rollout_progress_deadline_seconds
    if soak >= deadline:
        found.append(
            "option kubevipRolloutMinSuccessTime must be below kubevipRolloutProgressDeadline "
            f"{deadline}: it is {soak}, so no guest cluster can succeed in time"
        )
    return tuple(found)


def _find_kube_vip_warnings(settings: Settings) -> list[str]:
    """Return a clause for a kube-vip that loses addresses: for all, and for overrides with which it is another one."""
    values, chart_version = settings.kubevip_chart_values.values, settings.kubevip_chart_version
    of_all = _judge_kube_vip(values, chart_version)
    found = [of_all] if of_all else []
    for each in settings.kubevip_chart_values_overrides.entries:
        own = _judge_kube_vip(merge_values(values, each.values), each.chart_version or chart_version)
        if own not in ("", of_all):
            found.append(f'override "{each.name}": {own}')
    return found


def _judge_kube_vip(values: Mapping[str, Any], chart_version: str) -> str:
    """Return why a guest cluster with these values loses addresses; "" if it does not."""
    version, chart_version = _image_version(values), chart_version.removeprefix("v")
    problem = ""
    if any(first <= version <= last for first, last in _LOSES_ADDRESSES):
        problem = f"kube-vip {_show(version)} loses addresses"
    elif version[:2] == (1, 1) and _elects_each(values):
        problem = f'kube-vip {_show(version)} with svc_election "true" loses addresses'
    elif not _read_entry(values, "image", "tag") and chart_version in _CHART_IMAGES:
        shown = _show(_CHART_IMAGES[chart_version])
        problem = (
            f"chart kube-vip {chart_version} without image.tag runs kube-vip {shown}, which loses addresses"
        )
    return f"{problem}. {_RIGHT_KUBE_VIP}" if problem else ""


def _elects_each(values: Mapping[str, Any]) -> bool:
    return parse_go_bool(str(_read_entry(values, "env", "svc_election"))) is True


def _read_entry(values: Mapping[str, Any], name: str, key: str) -> object:
    found = values.get(name)
    return found.get(key) if isinstance(found, Mapping) else None


def _list_values(chart: ChartValues, overrides: Overrides) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the values for a chart, and those of each override, after what names the override."""
    yield "", chart.values
    for each in overrides.entries:
        yield f'override "{each.name}": ', each.values


def _find_reasons(texts: Mapping[str, str]) -> dict[str, str]:
    """Return why values are bad, by their option."""
    try:
        _ADAPTER.validate_python(texts)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        return {str(each["loc"][0]): describe_problem(each["msg"]) for each in found}
    return {}


def _show(version: tuple[int, ...]) -> str:
    return "v" + ".".join(map(str, version))


def _image_version(values: Mapping[str, Any]) -> tuple[int, ...]:
    tag = _read_entry(values, "image", "tag")
    return read_version(tag) if isinstance(tag, str) else ()


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.text if isinstance(value, ChartValues | Overrides) else str(value)


def _shown(option: str, text: str) -> str:
    # A URL may carry a password before its @ and a token after its ? or #.
    is_secret = option.endswith(("ChartValues", "Overrides")) or any(mark in text for mark in "@?#")
    return "" if is_secret else clean(text, MAX_SHOWN)
