"""`fipop status`: what there is, how full it is, and what is wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

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
from fipop.operator.rollout.progress import Phase
from fipop.report.facts import Facts
from fipop.report.fleet import FloatingIPReport, report_floating_ips
from fipop.report.picture import Picture
from fipop.report.ranges import RangeReport
from fipop.report.reading import read_facts
from fipop.report.rendering import Output, age, bar, table
from fipop.report.rollout import RolloutReport
from fipop.report.status import StatusReport, report_status
from fipop.texts import clean

_HEADER = ("RANGE", "SPACE", "FULL", "", "USED", "QUARANTINED", "FREE", "TOTAL", "FULL IN", "STATE")
_CSV_HEADER = (
    *("range", "space", "pool", "percent", "used", "quarantined", "free", "total", "outOfRange"),
    *("growthPerDay", "fullInDays", "reason", "conflict"),
)
_WIDE_HEADER = ("NAMESPACE", "NAME", "CLUSTER", "ADDRESSES", "RANGE", "READY", "REASON", "AGE")


@click.command(short_help="Ranges, what is not ready and why, the operator's health.", epilog=EXIT_CODES)
@click.option("-n", "--namespace", help="Show only what is wrong with the floating IPs of this guest.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Show those of all guests (the default).")
@wait_option
@reading_options
def status(*, reading: Reading, namespace: str | None, all_namespaces: bool, wait: float) -> None:
    """Show how full the ranges are, what is not ready and why, and how the operator is."""
    if namespace and all_namespaces:
        raise click.UsageError("-n and -A exclude each other")
    picture, found = run_reading(lambda: _read(reading, namespace, wait))
    if reading.output in {Output.JSON, Output.YAML}:
        reading.tell(found, (), ())
    elif reading.output is Output.CSV:
        reading.tell(found, _CSV_HEADER, [_csv_row(each) for each in found.ranges])
    else:
        lines = _problems(reading, found) if reading.output is Output.SHORT else _lines(reading, found)
        for line in lines:
            click.echo(line)
        if reading.output is Output.WIDE:
            floating_ips = report_floating_ips(picture)
            shown = [each for each in floating_ips if namespace in (None, each.namespace)]
            rows = [_wide_row(picture.facts, each) for each in shown]
            click.echo()
            click.echo(table(_WIDE_HEADER, rows), nl=False)
    tell_unread(found.unread)
    if not found.healthy:
        sys.exit(EXIT_WRONG)
    if found.unread:
        sys.exit(EXIT_INCOMPLETE)


async def _read(reading: Reading, namespace: str | None, wait_seconds: float) -> tuple[Picture, StatusReport]:
    async def read() -> tuple[Picture, StatusReport]:
        facts = await look(reading, lambda client: read_facts(client, namespace=reading.operator_namespace))
        picture = Picture(facts)
        found = report_status(picture)
        return picture, found if namespace is None else _only(found, namespace)

    def waits_for(seen: tuple[Picture, StatusReport]) -> str:
        awaited = [
            f"{each.name} {each.reason}"
            for each in seen[1].problems
            if each.is_wrong or (each.kind == "FloatingIP" and each.reason != "Paused")
        ]
        return f"{awaited[0]}, {len(awaited)} in all" if awaited else ""

    return await wait_until(read, waits_for, wait_seconds)


def _only(found: StatusReport, namespace: str) -> StatusReport:
    problems = tuple(
        each for each in found.problems if each.kind != "FloatingIP" or each.name.startswith(f"{namespace}/")
    )
    return replace(found, problems=problems, healthy=not any(each.is_wrong for each in problems))


def _lines(reading: Reading, found: StatusReport) -> Iterator[str]:
    yield table(_HEADER, [_row(each) for each in found.ranges]).rstrip("\n")
    yield ""
    yield "Floating IPs  {inAll} in all, {ready} ready, {notReady} not ready, {unknown} unknown".format(
        **found.floating_ips
    )
    yield "Guests        {inAll} in all, {reachable} reachable, {unreachable} unreachable, {unknown} unknown".format(
        **found.guests
    )
    yield f"Operator      {_operator(found)}"
    if found.rollout is not None:
        yield f"Rollout       {_rollout(found.rollout)}"
    yield ""
    yield from _problems(reading, found)


def _problems(reading: Reading, found: StatusReport) -> Iterator[str]:
    if not found.problems:
        yield reading.paint("All is well.", "ok")
    for each in found.problems:
        name = f" {each.name}" if each.name else ""
        word = reading.paint(each.severity.value, each.severity.value)
        yield f"{word}: {clean(f'{each.kind}{name}: {each.reason}: {each.message}')}"
        if each.advice:
            yield f"  -> {clean(each.advice)}"


def _rollout(found: RolloutReport) -> str:
    parts = [f"target {clean(found.target)}", found.phase]
    if found.phase != Phase.COMPLETED.value:
        guests = ", ".join(f"{number} {step}" for step, number in found.guests.items())
        parts += [f"wave {found.wave} of {found.size} guests" + (f" ({guests})" if guests else "")]
        parts += [f"stable {clean(found.stable)}" if found.stable else "no stable target yet"]
    return ", ".join(parts)


def _operator(found: StatusReport) -> str:
    operator = found.operator
    parts = [f"leader {clean(operator.leader)}" if operator.leading else "no leader"]
    if operator.pods_wanted is not None:
        parts.append(f"{operator.pods_ready} of {operator.pods_wanted} pods ready")
    if operator.image:
        parts.append(f"image {clean(operator.image)}")
    if operator.leading is None and operator.pods_wanted is None:
        return "unknown"
    return ", ".join(parts)


def _row(each: RangeReport) -> tuple[str, ...]:
    state = each.reason if not each.conflict else f"{each.reason}, Overlap"
    return (
        each.name,
        each.space,
        bar(each.percent),
        f"{each.percent:g} %",
        str(each.whole.used),
        str(each.whole.quarantined),
        str(each.whole.free),
        str(each.whole.total),
        f"{each.full_in_days:g} d" if each.full_in_days is not None else "",
        state,
    )


def _csv_row(each: RangeReport) -> tuple[str, ...]:
    whole = each.whole
    numbers = (whole.used, whole.quarantined, whole.free, whole.total, whole.out_of_range)
    days = "" if each.full_in_days is None else f"{each.full_in_days:g}"
    return (
        *(each.name, each.space, each.pool, f"{each.percent:g}", *map(str, numbers)),
        *(f"{each.growth_per_day:g}", days, each.reason, each.conflict),
    )


def _wide_row(facts: Facts, each: FloatingIPReport) -> tuple[str, ...]:
    return (
        each.namespace,
        each.name,
        each.cluster,
        ",".join(each.addresses),
        each.range,
        each.ready,
        each.reason,
        age((facts.now - each.created).total_seconds()),
    )
