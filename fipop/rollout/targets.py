"""The target that the options ask for, whose archives are on disk, and the options that ask for the stable target."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from textwrap import indent

import yaml

from fipop.helm.chart_store import Access, ChartStore
from fipop.helm.charts import (
    CHART_OPTIONS,
    Chart,
    Role,
    Target,
    wanted_charts,
    wanted_overrides,
    wanted_values,
)
from fipop.helm.errors import ChartError
from fipop.rollout.plan import Rollout
from fipop.settings.options import Settings, settings_data
from fipop.settings.overrides import ENTRIES, Override
from fipop.settings.yaml import RefusedError, parse_yaml


async def find_target(
    rollout: Rollout | None, settings: Settings, charts: ChartStore
) -> tuple[Target, Mapping[str, str]]:
    """Return the target that the options ask for, with the orders that tell whether they ask for other charts later.

    What the current rollout has found for the same order stays: a newer version in the repository is no change. Raises
    ChartError.
    """
    wanted = wanted_charts(settings)
    orders = _describe_orders(wanted)
    found = {
        role: rollout.target.charts[role]
        if rollout is not None and rollout.orders.get(role.value) == orders[role.value]
        else await charts.resolve(order, Access.of(settings))
        for role, order in wanted.items()
    }
    known = rollout.target.archives if rollout is not None else ()
    overrides = {
        role: tuple([await _pin(each, found[role], known, settings, charts) for each in entries])
        for role, entries in wanted_overrides(settings).items()
    }
    return Target(charts=found, values=wanted_values(settings), overrides=overrides), orders


def asks_for(settings: Settings, rollout: Rollout) -> bool:
    """Return whether options still ask for the target of a rollout."""
    target, wanted = rollout.target, wanted_overrides(settings)
    orders = _describe_orders(wanted_charts(settings))
    are_same = orders == dict(rollout.orders) and wanted.keys() == target.overrides.keys()
    return (
        are_same
        and all(_same_text(found, target.values[role]) for role, found in wanted_values(settings).items())
        and all(len(found) == len(target.overrides[role]) for role, found in wanted.items())
        and all(all(map(_is_pinned, found, target.overrides[role])) for role, found in wanted.items())
    )


def describe_news(settings: Settings, annotation: str, rollout: Rollout) -> str:
    """Return what options, or the annotation beside them, ask for and a rollout lacks; "" if it lacks nothing."""
    if not asks_for(settings, rollout):
        return "The options ask for another target, which fipop has not taken up yet."
    if annotation == rollout.retry_annotation != rollout.retried:
        return "fipop has not taken up the retry yet."
    return ""


def _same_text(first: object, second: object) -> bool:
    """Return whether values are the same once they are kept as JSON, which has fewer types than YAML."""
    texts = {json.dumps(each, sort_keys=True, default=dict) for each in (first, second)}
    return len(texts) == 1


def _is_pinned(entry: Override, pinned: Override) -> bool:
    """Return whether an override of a target is an entry of the options, whose version has got its digest."""
    version, digest = entry.chart_version.removeprefix("v"), entry.chart_digest.removeprefix("sha256:")
    bare = replace(pinned, chart_version=entry.chart_version, chart_digest=entry.chart_digest)
    return bare == entry and pinned.chart_version == version and pinned.chart_digest.endswith(digest)


def build_stable_options(rollout: Rollout, settings: Settings, *, is_whole: bool = False) -> dict[str, str]:
    """Return the options that ask for the stable target again, which there must be; `is_whole`: all of them.

    Else `settings` must ask for the target of the rollout, and an option is left out that asks for the same with both.
    A digest is there only if the option has one now: it would outlive the next version.
    """
    stable, data, found = rollout.stable, settings_data(settings), dict[str, str]()
    assert stable is not None, "without a stable target there is nothing to return to"
    for role, option in CHART_OPTIONS.items():
        chart, overrides = stable.charts[role], stable.overrides.get(role, ())
        if is_whole or chart != rollout.target.charts[role]:
            is_in_repository = chart.url.startswith("http")
            found |= {"kubevipChartRepoUrl": chart.url} if is_in_repository else {}
            found |= {
                f"{option}Ref": "" if is_in_repository else chart.url,
                f"{option}Version": chart.version,
            }
            found |= {f"{option}Digest": f"sha256:{chart.sha256}"} if data[f"{option}Digest"] else {}
        if is_whole or stable.values[role] != rollout.target.values[role]:
            found[f"{option}Values"] = _write(stable.values[role])
        if is_whole or overrides != rollout.target.overrides.get(role, ()):
            has_digests = "chartDigest" in data[f"{option}ValuesOverrides"]
            bare = [each if has_digests else replace(each, chart_digest="") for each in overrides]
            entries = ENTRIES.dump_python(tuple(bare), mode="json", by_alias=True, exclude_defaults=True)
            found[f"{option}ValuesOverrides"] = _write(entries) if entries else ""
    return {each: text for each, text in found.items() if is_whole or text != data[each]}


def render_patch(options: Mapping[str, str]) -> str:
    """Return options as YAML that patches their ConfigMap."""
    lines = ["data:"]
    for name, text in options.items():
        shown = f"|\n{indent(text, '    ')}".rstrip() if "\n" in text else json.dumps(text)
        lines.append(f"  {name}: {shown}")
    return "\n".join(lines)


def _write(value: object) -> str:
    """Return values as YAML, or as JSON if YAML takes a scalar of them for another one, or would be too long."""
    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    with suppress(RefusedError):
        if _same_text(parse_yaml(text), value):
            return text
    return json.dumps(value, ensure_ascii=False)


async def find_problem(target: Target, settings: Settings, charts: ChartStore) -> ChartError | None:
    """Return why an archive of a target is not on disk, and cannot be had."""
    try:
        for each in target.archives:
            await charts.resolve(each, Access.of(settings))
    except ChartError as error:
        return error
    return None


async def _pin(
    entry: Override, chart: Chart, known: tuple[Chart, ...], settings: Settings, charts: ChartStore
) -> Override:
    """Return an override with the digest of its version. Raises ChartError."""
    if not entry.chart_version:
        return entry
    order = chart.at(entry.chart_version, entry.chart_digest)
    found = next((each for each in known if replace(each, sha256="") == order), order)
    if not found.sha256:
        found = await charts.resolve(found, Access.of(settings))
    return replace(entry, chart_version=found.version, chart_digest=f"sha256:{found.sha256}")


def _describe_orders(wanted: Mapping[Role, Chart]) -> dict[str, str]:
    return {role.value: f"{chart} {chart.version} {chart.sha256}" for role, chart in wanted.items()}
