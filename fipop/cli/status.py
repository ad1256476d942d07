"""`fipop status`: the ranges, their usage, and all problems."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime

import click

from fipop.cli.reading import (
    EXIT_CODES,
    EXIT_INCOMPLETE,
    EXIT_WRONG,
    Reading,
    look,
    reading_options,
    run_reading,
    tell_unread,
    wait_option,
    wait_until,
)
from fipop.operator.rollout.controller import describe_change
from fipop.operator.rollout.plan import Rollout
from fipop.report.fleet import FloatingIPReport
from fipop.report.ranges import RANGE_COLUMNS, RangeReport, range_row
from fipop.report.rendering import Output, age, bar, table
from fipop.report.status import Counts, StatusReport, report_status
from fipop.texts import clean

_HEADER = ("RANGE", "SPACE", "FULL", "", "USED", "QUARANTINED", "FREE", "TOTAL", "FULL IN", "STATE")
_WIDE_HEADER = ("NAMESPACE", "NAME", "CLUSTER", "ADDRESSES", "RANGE", "READY", "REASON", "AGE")


@click.command(short_help="Ranges, problems with their causes, health of the operator.", epilog=EXIT_CODES)
@click.option("-n", "--namespace", help="Show only the problems of floating IPs in this namespace.")
@click.option(
    "-A", "--all-namespaces", is_flag=True, help="Show the problems of all namespaces (the default)."
)
@wait_option
@reading_options
def status(*, reading: Reading, namespace: str | None, all_namespaces: bool, wait: float) -> None:
    """Show the usage of the ranges, problems with their causes, and the health of the operator."""
    if namespace and all_namespaces:
        raise click.UsageError("Use -n or -A, not both.")

    async def read() -> StatusReport:
        return report_status(await look(reading, about_operator=True), namespace)

    found = run_reading(lambda: wait_until(read, _name_awaited, wait))
    if reading.output in {Output.JSON, Output.YAML}:
        reading.tell(found, (), ())
    elif reading.output is Output.CSV:
        reading.tell(found, RANGE_COLUMNS, list(map(range_row, found.ranges)))
    else:
        lines = _problems(reading, found) if reading.output is Output.SHORT else _lines(reading, found)
        for line in lines:
            click.echo(line)
        if reading.output is Output.WIDE:
            shown = [
                each
                for each in found.floating_ips
                if found.only is None or each.floating_ip.namespace in found.only
            ]
            rows = [_wide_row(each, found.snapshot.now) for each in shown]
            click.echo()
            click.echo(table(_WIDE_HEADER, rows), nl=False)
    tell_unread(found.snapshot.unread)
    if found.healthy is False:
        sys.exit(EXIT_WRONG)
    if found.snapshot.unread:
        sys.exit(EXIT_INCOMPLETE)


def _name_awaited(found: StatusReport) -> str:
    """Describe the worst that is wrong or pending; "" if nothing is."""
    awaited = [
        f"{each.subject.name} {each.reason}"
        for each in found.problems
        if each.is_wrong or (each.subject.kind == "FloatingIP" and each.reason != "Paused")
    ]
    return f"{awaited[0]}, {len(awaited)} in all" if awaited else ""


def _lines(reading: Reading, found: StatusReport) -> Iterator[str]:
    yield table(_HEADER, [_row(each) for each in found.ranges]).rstrip("\n")
    yield ""
    yield f"Floating IPs  {_counts(found.count_floating_ips(), 'ready', 'not ready', 'unknown')}"
    yield f"Guests        {_counts(found.count_guests(), 'reachable', 'unreachable', 'unknown')}"
    yield f"Operator      {_operator(found)}"
    if (rollout := found.snapshot.installation.rollout) is not None:
        yield f"Rollout       {_rollout(found, rollout)}"
    yield ""
    yield from _problems(reading, found)


def _counts(counts: Counts, *words: str) -> str:
    whole, *parts = counts.values()
    if whole is None:
        return "not known"
    told = (f"{number} {word}" for number, word in zip(parts, words, strict=True))
    return ", ".join([f"{whole} in all", *told])


def _problems(reading: Reading, found: StatusReport) -> Iterator[str]:
    if not found.problems and found.healthy:
        yield reading.paint("All is well.", "ok")
    elif found.healthy is None:
        yield reading.paint("Nothing is known to be wrong. Not everything could be read.", "warning")
    for each in found.problems:
        word = reading.paint(each.severity.value, each.severity.value)
        yield f"{word}: {clean(f'{each.subject}: {each.reason}: {each.message}')}"
        if each.advice:
            yield f"  -> {clean(each.advice)}"


def _rollout(found: StatusReport, rollout: Rollout) -> str:
    installation = found.snapshot.installation
    paused = ", paused" if installation.rollout_paused else ""
    guests = [f"{number} {standing}" for standing, number in installation.rollout_guests.items() if number]
    target = f"target {rollout.target.name} ({describe_change(rollout)})"
    return ", ".join([clean(target), f"{rollout.phase.value}{paused}", *map(clean, guests)])


def _operator(found: StatusReport) -> str:
    lease, workload = found.snapshot.installation.leadership, found.snapshot.installation.workload
    if lease is None and workload is None:
        return "unknown"
    leads = lease is not None and lease.holds(found.snapshot.now)
    parts = [f"leader {clean(lease.holder)}" if leads and lease is not None else "no leader"]
    if workload is not None:
        parts += [f"{workload.ready} of {workload.wanted} pods ready", f"image {clean(workload.image)}"]
    return ", ".join(parts)


def _row(each: RangeReport) -> tuple[str, ...]:
    return (
        each.name,
        each.space,
        bar(each.percent) if each.percent is not None else "",
        f"{each.percent:g} %" if each.percent is not None else "",
        *range_row(each)[4:8],
        f"{each.full_in_days:g} d" if each.full_in_days is not None else "",
        each.state if not each.conflict else f"{each.state}, Overlap",
    )


def _wide_row(each: FloatingIPReport, now: datetime) -> tuple[str, ...]:
    found = each.floating_ip
    return (
        *(found.namespace, found.name, each.cluster, ",".join(found.status.addresses)),
        *(found.status.range or found.range or "", each.ready.status.value, each.ready.reason),
        age((now - found.created).total_seconds()),
    )
