"""What guest clusters get for kube-vip and its cloud provider, from where each key comes, and what a change changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fipop.api import names
from fipop.helm.charts import CHART_OPTIONS, Target, wanted_charts, wanted_overrides, wanted_values
from fipop.jsons import as_mapping
from fipop.rancher.objects import ProvisioningCluster
from fipop.report.snapshot import Snapshot
from fipop.settings.options import Settings, find_changed, parse_settings, settings_data
from fipop.settings.yaml import RefusedError, parse_yaml_mapping

_SOURCE, _VERSION, _DIGEST = "(chart)", "(chart version)", "(chart digest)"
_MAX_BYTES = 1024 * 1024
"""Of a manifest: as much as the API server stores."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What the next step with a file of options changes."""

    file: str
    """`patch`: options that it lacks stay as they are; `manifest`: they get their default."""
    options: tuple[str, ...]
    """The options that change."""
    changes: tuple[ValueChange, ...]
    joining: tuple[str, ...]
    """The guest clusters in which fipop begins to install releases."""
    leaving: tuple[str, ...]
    """Those in which it ends to change them."""
    keeps_releases: bool
    """Whether releases that exist stay as they are, because `kubevipUpdate` is false."""


def build_order(settings: Settings) -> Target:
    """Return what the options ask for. A version without a value is the newest one."""
    return Target(
        charts=wanted_charts(settings), values=wanted_values(settings), overrides=wanted_overrides(settings)
    )


def trace_values(order: Target, cluster: ProvisioningCluster) -> tuple[ValueLine, ...]:
    """Return all that a guest cluster gets, with the origin of each key: what set it last."""
    own, lines = order.for_guest(cluster), []
    for role, option in CHART_OPTIONS.items():
        chart, is_in_repository = own.charts[role], own.charts[role].url.startswith("http")
        layers: dict[str, Collection[str]] = {
            "kubevipChartRepoUrl" if is_in_repository else f"{option}Ref": (_SOURCE,),
            f"{option}Version": (_VERSION,),
            f"{option}Digest": (_DIGEST,),
            f"{option}Values": _flatten(order.values[role]),
        }
        for each in order.overrides.get(role, ()):
            if each.fits(cluster.namespace, cluster.name, cluster.labels):
                versions = (_VERSION, _DIGEST) if each.chart_version else ()
                layers[f"override {each.name}"] = (*_flatten(each.values), *versions)
        got = {_SOURCE: str(chart), _VERSION: chart.version or "(newest)", _DIGEST: chart.sha256 or "(any)"}
        for key, value in (got | _flatten(own.values[role])).items():
            origin = [name for name, layer in layers.items() if key in layer][-1:]
            lines.append(ValueLine(chart=role.value, key=key, value=value, origin="".join(origin) or "fipop"))
    return tuple(lines)


def preview_change(text: str, snapshot: Snapshot, clusters: Sequence[ProvisioningCluster] = ()) -> Preview:
    """Return what a file of options changes in some clusters; without any, in all in which fipop installs.

    Raises RefusedError.
    """
    before, show = snapshot.installation.settings, snapshot.show_cluster
    is_patch, data = _read_file(text, before)
    after, bad = parse_settings(data, before)
    if bad:
        raise RefusedError(f"has a bad value: {bad[0]}")
    every = clusters or snapshot.list_guest_clusters()
    had, gets = (
        {each.key: each for each in every if each.cluster_name and installs.includes(opted_in=each.opted_in)}
        for installs in (before.kubevip_guest_install, after.kubevip_guest_install)
    )
    chosen = clusters or [had[each] for each in had if each in gets]
    return Preview(
        file="patch" if is_patch else "manifest",
        options=tuple(find_changed(before, after)),
        changes=_find_changes(build_order(before), build_order(after), chosen, show),
        joining=tuple(show(gets[each]) for each in sorted(gets.keys() - had.keys())),
        leaving=tuple(show(had[each]) for each in sorted(had.keys() - gets.keys())),
        keeps_releases=not after.kubevip_update,
    )


def _find_changes(
    before: Target,
    after: Target,
    clusters: Iterable[ProvisioningCluster],
    show: Callable[[ProvisioningCluster], str],
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
        found[repr(keys)] = replace(known, clusters=(*known.clusters, show(one)))
    return tuple(each for each in found.values() if each.keys)


def find_unfitting(settings: Settings, clusters: Iterable[ProvisioningCluster]) -> Iterator[str]:
    """Yield a clause for each override that fits no guest cluster."""
    known = list(clusters)
    for role, entries in wanted_overrides(settings).items():
        for each in entries:
            if not any(each.fits(one.namespace, one.name, one.labels) for one in known):
                yield f'entry "{each.name}" of {CHART_OPTIONS[role]}ValuesOverrides fits no guest cluster'


def list_names(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield each name of a cluster in an override, with what names the override."""
    for role, entries in wanted_overrides(settings).items():
        for each in entries:
            for name in each.clusters:
                yield f'entry "{each.name}" of {CHART_OPTIONS[role]}ValuesOverrides', name


def _read_file(text: str, live: Settings) -> tuple[bool, dict[str, str]]:
    """Return whether a file is a patch of kube-fip-config, and the options once it is applied.

    A manifest is the whole. A file without `kind` is a merge patch over the live options, in which null removes one.
    """
    found = parse_yaml_mapping(text, max_bytes=_MAX_BYTES)
    kind, data = found.get("kind"), found.get("data")
    name = as_mapping(found.get("metadata")).get("name", names.SETTINGS_CONFIG_MAP)
    is_ours = kind in (None, "ConfigMap") and name == names.SETTINGS_CONFIG_MAP
    if not is_ours or not isinstance(data, Mapping):
        raise RefusedError("must be a manifest of ConfigMap kube-fip-config, or a patch of it, with data")
    for key, value in data.items():
        if not isinstance(value, str) and (kind or value is not None):
            raise RefusedError(f"must have a text as data.{key}")
    after = {**(settings_data(live) if kind is None else {}), **data}
    return kind is None, {key: value for key, value in after.items() if isinstance(value, str)}


def _flatten(values: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Return values by their paths; lists stay as they are, as helm replaces them as a whole."""
    found: dict[str, object] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            found |= _flatten(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found
