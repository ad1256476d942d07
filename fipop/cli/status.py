"""`fipop status`: the ranges, their usage, and all problems."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime

import click

from fipop.api.conditions import ConditionType
from fipop.cli.reading import (
    EXIT_CODES,
    Output,
    ReadingOptions,
    all_option,
    end,
    read_once,
    reading_options,
    run_reading,
    show_ambiguity,
    wait_option,
    wait_until,
    watch,
)
from fipop.report.findings import summarize
from fipop.report.fleet import FloatingIPReport
from fipop.report.ranges import RangeReport
from fipop.report.rendering import age, moment, table
from fipop.report.snapshot import Installation
from fipop.report.status import Counts, StatusReport, report_status
from fipop.rollout.plan import describe_change
from fipop.texts import clean

_RANGES = ("RANGE", "SPACE", "FAMILY", "FULL", "USED", "QUARANTINED", "FREE", "TOTAL", "STATE")
_FLOATING_IPS = ("NAMESPACE", "NAME", "CLUSTER", "ADDRESSES", "RANGE", "READY", "REASON", "AGE")


@click.command(short_help="Ranges, problems with their causes, health of the operator.", epilog=EXIT_CODES)
@click.option("-n", "--namespace", help="Show only the problems of the guest cluster with this id or name.")
@wait_option
@click.option("--watch", "is_watched", is_flag=True, help="At a terminal, then show each change.")
@all_option
@reading_options
def status(
    *, reading: ReadingOptions, namespace: str | None, wait: float, is_watched: bool, all_each: bool
) -> None:
    """Show the usage of the ranges, problems with their causes, and the health of the operator."""

    async def read() -> StatusReport:
        return report_status(await read_once(reading), namespace)

    found = run_reading(lambda: wait_until(read, _name_awaited, wait))
    show_ambiguity(found.snapshot, namespace)
    if reading.show(found, _RANGES, (row for each in found.ranges for row in _range_rows(each))):
        for line in _lines(found):
            click.echo(line)
        if found.healthy is not False:
            unknown = "Nothing is known to be wrong. Not everything could be read."
            click.echo("All is well." if found.healthy else unknown)
        for each in found.problems if all_each else summarize(found.problems):
            reading.show_finding(each)
        if reading.output is Output.WIDE:
            only, every = found.only, found.floating_ips
            shown = (each for each in every if only is None or each.floating_ip.namespace in only)
            rows = (_wide_row(each, found.snapshot.now) for each in shown)
            click.echo("\n" + table(_FLOATING_IPS, rows))
    if is_watched and sys.stderr.isatty():
        run_reading(lambda: watch(read, _describe_problems, lambda _: False))
    end(found.snapshot.unread, is_wrong=found.healthy is False)


def _describe_problems(found: StatusReport) -> dict[str, str]:
    return {f"{each.subject} {each.reason}": each.message for each in found.problems}


def _name_awaited(found: StatusReport) -> str:
    """Describe the worst that is wrong or pending; "" if nothing is."""
    awaited = [
        f"{each.subject.name} {each.reason}"
        for each in found.problems
        if each.is_wrong or (each.condition == ConditionType.READY and each.reason != "Paused")
    ]
    return f"{awaited[0]}, {len(awaited)} in all" if awaited else ""


def _lines(found: StatusReport) -> Iterator[str]:
    installation = found.snapshot.installation
    yield ""
    yield f"Floating IPs    {_counts(found.count_floating_ips(), 'ready', 'not ready', 'unknown')}"
    yield f"Guest clusters  {_counts(found.count_guests(), 'reachable', 'unreachable', 'unknown')}"
    yield f"Operator        {_operator(found)}"
    if installation.rollout is not None:
        yield f"Rollout         {clean(describe_rollout(installation))}"
    for role, versions in found.count_versions().items():
        spread = ", ".join(f"{version or 'unknown'} in {number}" for version, number in versions.items())
        yield f"Versions        {clean(f'{role} {spread}')}"
    yield ""


def _counts(counts: Counts, *words: str) -> str:
    whole, *parts = counts.values()
    if whole is None:
        return "not known"
    return ", ".join([f"{whole} in all", *(f"{n} {word}" for n, word in zip(parts, words, strict=True))])


def describe_rollout(found: Installation) -> str:
    """Return the charts, the phase and the counts of the current rollout."""
    assert found.rollout is not None
    paused = ", paused" if found.rollout_paused else ""
    guests = [f"{number} {standing}" for standing, number in found.rollout_guests.items() if number]
    began = f", began {moment(found.rollout.began)}" if found.rollout.began else ""
    return ", ".join([describe_change(found.rollout), f"{found.rollout.phase.value}{paused}{began}", *guests])


def _operator(found: StatusReport) -> str:
    lease, workload = found.snapshot.installation.leadership, found.snapshot.installation.workload
    if lease is None and workload is None:
        return "unknown"
    leads = lease is not None and lease.holds(found.snapshot.now)
    parts = [f"leader {clean(lease.holder)}" if leads and lease is not None else "no leader"]
    if workload is not None:
        parts += [f"{workload.ready} of {workload.wanted} pods ready", f"image {clean(workload.image)}"]
    return ", ".join(parts)


def _range_rows(each: RangeReport) -> Iterator[tuple[str, ...]]:
    """Yield a row for each family of a range, and one for a range whose usage is not known."""
    state = f"{each.state}, Overlap" if each.conflict else each.state
    name, space = each.range.name, each.range.spec.address_space
    for family, usage, free, total in each.families:
        full = f"{usage.percent:g} %"
        yield name, space, family, full, str(usage.used), str(usage.quarantined), free, total, state
    if not each.families:
        yield name, space, *[""] * 6, state


def _wide_row(each: FloatingIPReport, now: datetime) -> tuple[str, ...]:
    found = each.floating_ip
    return (
        *(found.namespace, found.name, each.shown, ",".join(found.status.addresses)),
        *(found.status.range or found.range or "", each.ready.status.value, each.ready.reason),
        age((now - found.created).total_seconds()),
    )
