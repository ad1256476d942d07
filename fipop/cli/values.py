"""`fipop values`: what a guest cluster gets for kube-vip, and what a change of the options would change."""

from __future__ import annotations

import json
from pathlib import Path

import click

from fipop.cli.reading import (
    EXIT_CODES,
    EXIT_INCOMPLETE,
    Reading,
    end,
    fail,
    read_once,
    reading_options,
    run_reading,
    show_unread,
)
from fipop.rancher.objects import ProvisioningCluster
from fipop.report.rendering import count_of
from fipop.report.snapshot import Snapshot
from fipop.report.values import build_order, find_changes, read_manifest, trace_values
from fipop.settings.options import parse_settings
from fipop.settings.yaml import RefusedError
from fipop.texts import clean

_LONGEST = 200


@click.command(short_help="Values of kube-vip, and what a change would do.", epilog=EXIT_CODES)
@click.argument("cluster", required=False)
@click.option(
    "--diff",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Show what this manifest of kube-fip-config would change, and where.",
)
@reading_options
def values(*, reading: Reading, cluster: str | None, diff: Path | None) -> None:
    """Show the chart versions and values that CLUSTER gets, and the option or override that each key is from.

    With --diff, show what changes in CLUSTER, or in all guest clusters that opted in. You need the right to read
    ConfigMap kube-fip-config.
    """
    if cluster is None and diff is None:
        raise click.UsageError("Name a CLUSTER, or use --diff.")
    snapshot = run_reading(lambda: read_once(reading))
    if not snapshot.installation.has_settings:
        show_unread(snapshot.unread)
        fail("the options are not known: ConfigMap kube-fip-config could not be read", EXIT_INCOMPLETE)
    clusters = _choose(snapshot, cluster)
    if diff is None:
        lines = [
            each
            for one in clusters
            for each in trace_values(build_order(snapshot.installation.settings), one)
        ]
        rows = ((each.chart, each.key, _show(each.value), each.origin) for each in lines)
        reading.show({"values": lines}, ("CHART", "KEY", "VALUE", "FROM"), rows)
    else:
        _show_changes(reading, snapshot, clusters, diff)
    show_unread(snapshot.unread)
    end(is_wrong=False, unread=snapshot.unread)


def _choose(snapshot: Snapshot, name: str | None) -> list[ProvisioningCluster]:
    found = snapshot.cache.clusters.all()
    if name is None:
        installs = snapshot.installation.settings.kubevip_guest_install
        return [each for each in found if each.cluster_name and installs.includes(opted_in=each.opted_in)]
    chosen = [each for each in found if each.is_meant_by(name)]
    if not chosen:
        fail(f'no guest cluster has the id or name "{name}". Run fipop status -o wide to see all')
    return chosen


def _show_changes(
    reading: Reading, snapshot: Snapshot, clusters: list[ProvisioningCluster], diff: Path
) -> None:
    before = snapshot.installation.settings
    try:
        after, bad = parse_settings(read_manifest(diff.read_text(encoding="utf-8")), before)
    except (RefusedError, UnicodeDecodeError) as error:
        fail(f"{diff} {error}")
    if bad:
        fail(f"{diff}: option {bad[0].option} {bad[0].reason}")
    changes = find_changes(build_order(before), build_order(after), clusters)
    rows = (
        (
            count_of(len(each.clusters), "guest cluster"),
            one.chart,
            one.key,
            _show(one.before),
            _show(one.after),
        )
        for each in changes
        for one in each.keys
    )
    if reading.show({"changes": changes}, ("WHERE", "CHART", "KEY", "BEFORE", "AFTER"), rows):
        if not changes:
            click.echo("No guest cluster changes.")
        for each in changes:
            names = ", ".join(each.clusters)
            click.echo(clean(f"{count_of(len(each.clusters), 'guest cluster')}: {names}", 4096))


def _show(value: object) -> str:
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value, default=dict)
    return clean(text, _LONGEST)
