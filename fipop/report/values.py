"""What guest clusters get for kube-vip and its cloud provider, from where each key comes, and what a change changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from fipop.guest.helm.charts import Role, Target, wanted_charts, wanted_overrides, wanted_values
from fipop.rancher.objects import ProvisioningCluster
from fipop.settings.options import Settings
from fipop.settings.yaml import RefusedError, parse_yaml_mapping

VERSION = "(chart version)"
NEWEST = "(newest)"
_MAX_BYTES = 1024 * 1024
"""Of a manifest: as much as the API server stores."""
_OPTIONS = {Role.KUBE_VIP: "kubevipChartValues", Role.CLOUD_PROVIDER: "kubevipCloudProviderChartValues"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueLine:
    """One key of the values for a chart, in a guest cluster."""

    chart: str
    key: str
    value: object
    origin: str
    """The option, the override, or fipop itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyChange:
    """How one key changes; None for a key that is not there."""

    chart: str
    key: str
    before: object
    after: object


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueChange:
    """What changes in the same way in some guest clusters."""

    clusters: tuple[str, ...]
    keys: tuple[KeyChange, ...]


def build_order(settings: Settings) -> Target:
    """Return what the options ask for. A version without a value is the newest one."""
    return Target(
        charts=wanted_charts(settings), values=wanted_values(settings), overrides=wanted_overrides(settings)
    )


def trace_values(order: Target, cluster: ProvisioningCluster) -> tuple[ValueLine, ...]:
    """Return all that a guest cluster gets, with the origin of each key: what set it last."""
    own, lines = order.for_guest(cluster), []
    for role in Role:
        layers = {_OPTIONS[role]: _flatten(order.values[role])}
        versions = {_OPTIONS[role].replace("Values", "Version"): order.charts[role].version}
        for each in order.overrides.get(role, ()):
            if each.fits(cluster.namespace, cluster.name, cluster.labels):
                layers[f"override {each.name}"] = _flatten(each.values)
                versions |= {f"override {each.name}": each.chart_version} if each.chart_version else {}
        origin = list(versions)[-1]
        version = own.charts[role].version or NEWEST
        lines.append(ValueLine(chart=role.value, key=VERSION, value=version, origin=origin))
        for key, value in _flatten(own.values[role]).items():
            setters = [name for name, layer in layers.items() if key in layer]
            origin = setters[-1] if setters else "fipop"
            lines.append(ValueLine(chart=role.value, key=key, value=value, origin=origin))
    return tuple(lines)


def find_changes(
    before: Target, after: Target, clusters: Iterable[ProvisioningCluster]
) -> tuple[ValueChange, ...]:
    """Return what changes between two orders; guest clusters in which the same changes come together."""
    found: dict[str, ValueChange] = {}
    for one in clusters:
        old, new = (
            {(each.chart, each.key): each.value for each in trace_values(order, one)}
            for order in (before, after)
        )
        keys = tuple(
            KeyChange(chart=each[0], key=each[1], before=old.get(each), after=new.get(each))
            for each in dict.fromkeys((*old, *new))
            if old.get(each) != new.get(each)
        )
        known = found.get(repr(keys), ValueChange(clusters=(), keys=keys))
        found[repr(keys)] = replace(known, clusters=(*known.clusters, f"{one.namespace}/{one.name}"))
    return tuple(each for each in found.values() if each.keys)


def find_unfitting(settings: Settings, clusters: Iterable[ProvisioningCluster]) -> Iterator[str]:
    """Yield a clause for each override that fits no guest cluster."""
    known = list(clusters)
    for role, entries in wanted_overrides(settings).items():
        for each in entries:
            if not any(each.fits(one.namespace, one.name, one.labels) for one in known):
                yield f'entry "{each.name}" of {_OPTIONS[role]}Overrides fits no guest cluster'


def read_manifest(text: str) -> dict[str, str]:
    """Return the data of a manifest of kube-fip-config. Raises RefusedError."""
    data = parse_yaml_mapping(text, max_bytes=_MAX_BYTES).get("data")
    if not isinstance(data, Mapping):
        raise RefusedError("must be a manifest of ConfigMap kube-fip-config, with data")
    texts = {key: value for key, value in data.items() if isinstance(value, str)}
    for each in data.keys() - texts.keys():
        raise RefusedError(f"must have a text as data.{each}")
    return texts


def _flatten(values: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Return values by their paths; lists stay as they are, as helm replaces them as a whole."""
    found: dict[str, object] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            found |= _flatten(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found
