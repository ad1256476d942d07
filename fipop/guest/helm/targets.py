"""What a rollout brings to the fleet: both charts and their values, before anything of one guest is added.

A target is named after what it is: the same charts and values make the same target, whoever computes it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fipop.guest.helm.charts import ChartIdentity, Role, wanted_releases
from fipop.settings.options import Settings
from fipop.settings.values import SettingsError, parse_chart_values

NAME_LENGTH = 12
"""In hex digits."""

_FIELDS = (
    "kubevip_chart_repo_url",
    "kubevip_chart_ref",
    "kubevip_chart_version",
    "kubevip_chart_digest",
    "kubevip_cloud_provider_chart_ref",
    "kubevip_cloud_provider_chart_version",
    "kubevip_cloud_provider_chart_digest",
)
_VALUES = ("kubevip_chart_values", "kubevip_cloud_provider_chart_values")
_VERSIONS = {
    Role.KUBE_VIP: "kubevip_chart_version",
    Role.CLOUD_PROVIDER: "kubevip_cloud_provider_chart_version",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Charts by role, as they were found, and the texts of the options that asked for them.

    `asked` is what the options said, `options` the same with the versions that were found: an empty version is
    resolved once for each target.
    """

    name: str
    charts: Mapping[Role, ChartIdentity]
    options: Mapping[str, str] = field(repr=False)
    asked: str

    def apply(self, settings: Settings) -> Settings:
        """Return the settings with this target's charts and values in place of theirs."""
        texts: dict[str, Any] = {option: self.options[option] for option in _FIELDS}
        values: dict[str, Any] = {option: parse_chart_values(self.options[option]) for option in _VALUES}
        return replace(settings, **texts, **values)


def hash_asked(settings: Settings) -> str:
    """Return what tells whether the options ask for something else than before."""
    return _hash(_texts(settings))


def pin_versions(settings: Settings, target: Target | None) -> Settings:
    """Return the settings with the versions that a target of the same options has resolved; mounted files have none."""
    if target is None or target.asked != hash_asked(settings):
        return settings
    return replace(settings, **_resolve(settings, target.charts))


def build_target(settings: Settings, charts: Mapping[Role, ChartIdentity]) -> Target:
    """Name what the settings ask for, with the charts that were found for it."""
    found = [
        [charts[one.role].name, charts[one.role].version, charts[one.role].content, one.values]
        for one in wanted_releases(settings)
    ]
    return Target(
        name=_hash(found)[:NAME_LENGTH],
        charts=dict(charts),
        options=_texts(settings) | _resolve(settings, charts),
        asked=hash_asked(settings),
    )


def render_target(target: Target) -> dict[str, str]:
    """Return the data of the ConfigMap that keeps a target."""
    charts = {
        role.value: {"name": chart.name, "version": chart.version, "content": chart.content}
        for role, chart in target.charts.items()
    }
    return {
        "name": target.name,
        "charts": json.dumps(charts, sort_keys=True),
        "options": json.dumps(dict(target.options), sort_keys=True),
        "asked": target.asked,
    }


def parse_target(data: Mapping[str, Any]) -> Target | None:
    """Read what `render_target` wrote; None for anything else."""
    try:
        charts = {Role(role): ChartIdentity(**chart) for role, chart in json.loads(data["charts"]).items()}
        options = json.loads(data["options"])
        for option in _VALUES:
            parse_chart_values(options[option])
        if set(charts) != set(Role) or not all(isinstance(options[option], str) for option in _FIELDS):
            return None
        return Target(name=data["name"], charts=charts, options=options, asked=str(data["asked"]))
    except (KeyError, TypeError, ValueError, AttributeError, SettingsError):
        return None


def _resolve(settings: Settings, charts: Mapping[Role, ChartIdentity]) -> dict[str, Any]:
    """Return the versions that were found where none was asked for."""
    return {
        _VERSIONS[one.role]: charts[one.role].version
        for one in wanted_releases(settings)
        if not (one.source.version or one.source.file)
    }


def _texts(settings: Settings) -> dict[str, str]:
    texts = {option: str(getattr(settings, option)) for option in _FIELDS}
    return texts | {option: getattr(settings, option).text for option in _VALUES}


def _hash(what: object) -> str:
    text = json.dumps(what, sort_keys=True, separators=(",", ":"), default=dict)
    return hashlib.sha256(text.encode()).hexdigest()
