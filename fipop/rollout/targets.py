"""The target that the options ask for: its charts are found once, and its archives are on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fipop.helm.chart_store import Access, ChartStore
from fipop.helm.charts import Chart, Target, wanted_charts, wanted_overrides, wanted_values
from fipop.helm.errors import ChartError
from fipop.rollout.plan import Rollout
from fipop.settings.options import Settings
from fipop.settings.overrides import Override


async def find_target(
    rollout: Rollout | None, settings: Settings, charts: ChartStore
) -> tuple[Target, Mapping[str, str]]:
    """Return the target that the options ask for, with the orders that tell whether they ask for other charts later.

    What the current rollout has found for the same order stays: a newer version in the repository is no change. Raises
    ChartError.
    """
    wanted = wanted_charts(settings)
    orders = {role.value: _describe_order(order) for role, order in wanted.items()}
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
    version, sha256 = entry.chart_version.removeprefix("v"), entry.chart_digest.removeprefix("sha256:")
    order = replace(chart, version=version, sha256=sha256)
    found = next((each for each in known if replace(each, sha256="") == order), order)
    if not found.sha256:
        found = await charts.resolve(found, Access.of(settings))
    return replace(entry, chart_version=found.version, chart_digest=f"sha256:{found.sha256}")


def _describe_order(chart: Chart) -> str:
    return f"{chart} {chart.version} {chart.sha256}"
