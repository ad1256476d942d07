"""`fipop values`: what a guest cluster gets for kube-vip, and what a change of the options would change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click

from fipop.cli.reading import (
    EXIT_CODES,
    EXIT_INCOMPLETE,
    Output,
    ReadingOptions,
    end,
    fail,
    fail_missing,
    read_once,
    reading_options,
    run_reading,
    show_ambiguity,
)
from fipop.report.rendering import count_of
from fipop.report.snapshot import Kind, Snapshot
from fipop.report.values import Preview, build_order, preview_change, trace_values
from fipop.rollout.targets import build_stable_options, render_patch
from fipop.settings.yaml import RefusedError
from fipop.texts import list_some

_MOST_NAMED = 10
"""The most guest clusters that a preview names: `-o json` has all."""

CHANGES = ("GUEST CLUSTER", "CHART", "KEY", "BEFORE", "AFTER")


@click.command(short_help="Values of kube-vip, and what a change would do.", epilog=EXIT_CODES)
@click.argument("cluster", required=False)
@click.option(
    "--diff",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Show what this patch or manifest of kube-fip-config would change, and where.",
)
@click.option("--stable", is_flag=True, help="Print the options of the stable target, as a patch.")
@reading_options
def values(*, reading: ReadingOptions, cluster: str | None, diff: Path | None, stable: bool) -> None:
    """Show the chart versions and values that CLUSTER gets, and the option or override that each key is from.

    With --diff, show what changes in CLUSTER, or in all guest clusters that opted in. You need the right to read
    ConfigMap kube-fip-config.
    """
    if stable and (cluster is not None or diff is not None):
        raise click.UsageError("Use --stable without CLUSTER and --diff: it prints the options of the fleet.")
    if cluster is None and diff is None and not stable:
        raise click.UsageError("Name a CLUSTER, or use --diff or --stable.")
    snapshot = run_reading(lambda: read_once(reading))
    if not snapshot.installation.has_settings:
        message = "the options are not known: ConfigMap kube-fip-config could not be read"
        fail(message, EXIT_INCOMPLETE, snapshot.unread)
    for bad in snapshot.installation.bad_options:
        click.echo(f"Bad {bad}. Its default is shown; the operator uses the last valid value.", err=True)
    if stable:
        _show_stable(reading, snapshot)
        return
    guests = snapshot.list_guest_clusters()
    chosen = [each for each in snapshot.find_clusters(cluster or "") if each in guests]
    if cluster is not None and not chosen:
        fail_missing(snapshot, "guest cluster", cluster, snapshot.list_cluster_names(), Kind.CLUSTERS)
    show_ambiguity(snapshot, cluster)
    if diff is None:
        order = build_order(snapshot.installation.settings)
        lines = [each for one in chosen for each in trace_values(order, one)]
        rows = ((each.chart, each.key, each.origin, _show(each.value)) for each in lines)
        reading.show({"values": lines}, ("CHART", "KEY", "FROM", "VALUE"), rows)
    else:
        try:
            found = preview_change(diff.read_text(encoding="utf-8"), snapshot, chosen)
        except (RefusedError, UnicodeDecodeError) as error:
            fail(f"file {diff} {error}")
        reading.show(found, CHANGES, list_changes(found), describe_preview(found))
    end(snapshot.unread)


def _show_stable(reading: ReadingOptions, snapshot: Snapshot) -> None:
    rollout = snapshot.installation.rollout
    if rollout is None or rollout.stable is None:
        fail("there is no stable target: no rollout was completed yet", unread=snapshot.unread)
    options = build_stable_options(rollout, snapshot.installation.settings, is_whole=True)
    if reading.output is Output.JSON:
        click.echo(json.dumps({"data": options}, indent=2))
    else:
        click.echo(render_patch(options))
    end(snapshot.unread)


def list_changes(found: Preview) -> Iterator[tuple[str, ...]]:
    """Yield a row for each key that changes."""
    for each in found.changes:
        for one in each.keys:
            yield list_some(each.clusters, 1), one.chart, one.key, _show(one.before), _show(one.after)


def describe_preview(found: Preview) -> Iterator[str]:
    """Yield what a table of changes does not say."""
    groups = [("", each.clusters) for each in found.changes if len(each.clusters) > 1]
    groups += [("fipop begins to install in ", found.joining), ("fipop no longer changes ", found.leaving)]
    for what, clusters in groups:
        if clusters:
            yield f"{what}{count_of(len(clusters), 'guest cluster')}: {list_some(clusters, _MOST_NAMED)}"
    if not (found.changes or found.joining or found.leaving):
        yield "No guest cluster changes."
    elif found.changes and found.keeps_releases:
        yield "kubevipUpdate is false: releases that exist stay as they are."
    yield f"Options that change: {', '.join(found.options) or 'none'}"
    rest = "stay as they are" if found.file == "patch" else "get their default"
    yield f"The file is a {found.file}: options that it lacks {rest}."


def _show(value: object) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, default=dict)
