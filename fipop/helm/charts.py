"""Which charts and values a guest cluster gets: the two releases of a target, and the digest that tells them apart."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeAlias

from fipop.api import names
from fipop.rancher.objects import ProvisioningCluster
from fipop.settings.options import Settings
from fipop.settings.overrides import ENTRIES, Override, merge_values

Values: TypeAlias = Mapping[str, Any]

DIGEST_LENGTH = 32
"""In hex digits. A label's value takes 63 characters."""
NAME_LENGTH = 12
"""Of the name of a target, in hex digits."""


class Role(StrEnum):
    """What a release is for; the value is also the name of its chart, and its label on the release."""

    KUBE_VIP = "kube-vip"
    CLOUD_PROVIDER = "kube-vip-cloud-provider"


CHART_OPTIONS = {Role.KUBE_VIP: "kubevipChart", Role.CLOUD_PROVIDER: "kubevipCloudProviderChart"}
"""How the names of the options for a chart begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart of a source: a repository (`https://…`), a registry (`oci://…`) or a mounted archive (`file://…`).

    As an order, an empty version means the newest, and an empty sha256 any archive. As an answer, both are set.
    """

    role: Role
    url: str
    version: str = ""
    sha256: str = ""

    def __str__(self) -> str:
        return f"{self.url}/{self.role.value}" if self.url.startswith("http") else self.url

    def at(self, version: str, digest: str) -> Chart:
        """Return the chart of the same source with a version and a digest as the options have them."""
        return replace(self, version=version.removeprefix("v"), sha256=digest.removeprefix("sha256:"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Both charts with the values for them: of all guest clusters, with what some of them get instead, or of one.

    Its name is a digest: the same charts and values have the same name. That of a guest cluster with overrides is
    `<name of the target of all>.<digest>`.
    """

    charts: Mapping[Role, Chart]
    values: Mapping[Role, Values] = field(repr=False)
    overrides: Mapping[Role, tuple[Override, ...]] = field(default_factory=dict, repr=False)
    """By role, if there are any. A version in them has its digest."""
    part_of: str = ""
    """The name of the target of all guest clusters, if this one is of one guest cluster."""
    entries: frozenset[str] = frozenset()
    """The overrides in the target of one guest cluster, by their names and what they bring."""
    digests: Mapping[Role, str] = field(init=False)
    """By role, what changes with its chart or values, and with nothing else. A label of each release shows it."""
    name: str = field(init=False)
    """The digest of all, by which administrators know the target."""
    _merged: dict[tuple[tuple[Role, str], ...], Target] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        """Name it once: every visit compares."""
        digests = {
            role: _digest([one.version, one.sha256, complete_values(role, self.values[role])])
            for role, one in self.charts.items()
        }
        what: list[object] = [digests[role] for role in Role]
        what += [[role, _write(entries)] for role, entries in sorted(self.overrides.items())]
        object.__setattr__(self, "digests", digests)
        name = _digest(what)[:NAME_LENGTH]
        if self.part_of:
            name = f"{self.part_of}.{name}" if self.entries else self.part_of
        object.__setattr__(self, "name", name)

    @property
    def archives(self) -> tuple[Chart, ...]:
        """The charts of all versions."""
        others = (
            self.charts[role].at(each.chart_version, each.chart_digest)
            for role, entries in self.overrides.items()
            for each in entries
            if each.chart_version
        )
        return tuple(dict.fromkeys((*self.charts.values(), *others)))

    def for_guest(self, cluster: ProvisioningCluster) -> Target:
        """Return the target of one guest cluster, with the overrides that fit it merged in their order."""
        fitting = [
            (role, each)
            for role, entries in self.overrides.items()
            for each in entries
            if each.fits(cluster.namespace, cluster.name, cluster.labels)
        ]
        names = tuple((role, each.name) for role, each in fitting)
        return self._merged.get(names) or self._merged.setdefault(names, self._merge(fitting))

    def _merge(self, fitting: Iterable[tuple[Role, Override]]) -> Target:
        charts, values, entries = dict(self.charts), dict(self.values), set()
        for role, each in fitting:
            values[role] = merge_values(values[role], each.values)
            if each.chart_version:
                charts[role] = charts[role].at(each.chart_version, each.chart_digest)
            brings = _digest([each.chart_version, each.chart_digest, each.values])
            entries.add(f"{role.value}/{each.name}/{brings}")
        return Target(
            charts=charts,
            values={role: complete_values(role, each) for role, each in values.items()},
            part_of=self.name,
            entries=frozenset(entries),
        )


def wanted_charts(settings: Settings) -> dict[Role, Chart]:
    """Return the charts that the options ask for."""
    refs = {
        Role.KUBE_VIP: (
            settings.kubevip_chart_ref,
            settings.kubevip_chart_version,
            settings.kubevip_chart_digest,
        ),
        Role.CLOUD_PROVIDER: (
            settings.kubevip_cloud_provider_chart_ref,
            settings.kubevip_cloud_provider_chart_version,
            settings.kubevip_cloud_provider_chart_digest,
        ),
    }
    return {
        role: Chart(role=role, url=ref or settings.kubevip_chart_repo_url.rstrip("/")).at(version, digest)
        for role, (ref, version, digest) in refs.items()
    }


def wanted_values(settings: Settings) -> dict[Role, Values]:
    """Return the values of the options for all guest clusters."""
    return {
        Role.KUBE_VIP: settings.kubevip_chart_values.values,
        Role.CLOUD_PROVIDER: settings.kubevip_cloud_provider_chart_values.values,
    }


def wanted_overrides(settings: Settings) -> dict[Role, tuple[Override, ...]]:
    """Return what the options have for some guest clusters, by role."""
    found = {
        Role.KUBE_VIP: settings.kubevip_chart_values_overrides.entries,
        Role.CLOUD_PROVIDER: settings.kubevip_cloud_provider_chart_values_overrides.entries,
    }
    return {role: entries for role, entries in found.items() if entries}


def complete_values(role: Role, admin: Values) -> dict[str, Any]:
    """Return an admin's values with what the charts need to work with fipop; what the admin sets stays.

    `config.vip_interface` has named no interface since 2021: it is copied to `env.vip_interface`, which does.
    Variables of an environment are texts, whatever YAML took them for.
    """
    values = dict(admin)
    env = values.get("env")
    if role is Role.KUBE_VIP:
        config = values.get("config")
        interface = config.get("vip_interface") if isinstance(config, Mapping) else None
        if interface not in (None, "") and isinstance(env, Mapping | None):
            env = {"vip_interface": interface, **(env or {})}
    else:
        values["configMapName"] = values.get("configMapName") or names.GUEST_CONFIG_MAP
    if isinstance(env, Mapping):
        values["env"] = {name: _as_env(value) for name, value in env.items()}
    return values


def same_values(role: Role, deployed: Values, wanted: Values) -> bool:
    """Whether two sets of values are the same but for what kube-fip-operator or fipop adds to the admin's."""
    both = (complete_values(role, each) for each in (deployed, wanted))
    first, second = ({**each, "nameOverride": ""} for each in both)
    return _digest(first) == _digest(second)


def hide_values(text: str, values: Values) -> str:
    """Return a text with each scalar of values that occurs in it replaced: they can be secrets."""
    for each in sorted(set(_iterate_scalars(values)), key=len, reverse=True):
        text = text.replace(each, "…")
    return text


def _iterate_scalars(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for each in value.values():
            yield from _iterate_scalars(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _iterate_scalars(each)
    elif value not in (None, "") and not isinstance(value, bool):
        yield str(value)


def render_target(target: Target | None) -> str:
    """Return a target as the text that a ConfigMap keeps."""
    if target is None:
        return ""
    return json.dumps(
        {
            role.value: [
                *(chart.url, chart.version, chart.sha256, target.values[role]),
                *([_write(target.overrides[role])] if role in target.overrides else []),
            ]
            for role, chart in target.charts.items()
        },
        default=dict,
    )


def parse_target(text: str) -> Target | None:
    """Read what `render_target` wrote; None for anything else."""
    try:
        found = {Role(role): parts for role, parts in json.loads(text).items()}
        return Target(
            charts={
                role: Chart(role=role, url=url, version=version, sha256=sha256)
                for role, (url, version, sha256, *_) in found.items()
            },
            values={role: parts[3] for role, parts in found.items()},
            overrides={
                role: ENTRIES.validate_python(parts[4]) for role, parts in found.items() if len(parts) > 4
            },
        )
    except (ValueError, TypeError, AttributeError, LookupError):
        return None


def _write(entries: tuple[Override, ...]) -> object:
    return ENTRIES.dump_python(entries, mode="json", by_alias=True, exclude_defaults=True)


def _digest(what: object) -> str:
    text = json.dumps(what, sort_keys=True, separators=(",", ":"), default=dict)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]


def _as_env(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value
