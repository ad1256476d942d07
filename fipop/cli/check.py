"""`fipop check`: the needs of an installation point by point, and the remedy for each that is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import click

from fipop.cli.reading import (
    EXIT_CODES,
    Output,
    ReadingOptions,
    all_option,
    end,
    fail_missing,
    reading_options,
    run_reading,
    wait_option,
    wait_until,
)
from fipop.report.addresses import find_namespaces
from fipop.report.findings import Finding, Severity, by_section, summarize
from fipop.report.reading import read_snapshot
from fipop.report.rendering import count_of
from fipop.report.rights import judge_rights, probe_secret_rights
from fipop.report.snapshot import Kind, Unread
from fipop.report.status import report_status
from fipop.texts import clean


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """All findings, in their order."""

    passed: bool | None
    """False if a check failed, else None if not everything could be read."""
    checks: tuple[Finding, ...]
    unread: tuple[Unread, ...]


@click.command(
    short_help="What an installation needs, point by point.",
    epilog=EXIT_CODES.replace("something is wrong", "a check failed (a warning is not a failure)"),
)
@click.option("--guest", help="Of the guest clusters, check only this one, by its name or id.")
@click.option("--problems", is_flag=True, help="Show only what is not as it should be.")
@wait_option
@all_option
@reading_options
def check(*, reading: ReadingOptions, guest: str | None, problems: bool, wait: float, all_each: bool) -> None:
    """Check what fipop needs: CRDs, rights, leader, options, ranges, and each guest cluster.

    The command runs with your rights and writes nothing. Of guest clusters it shows what the operator found.
    """
    found = run_reading(lambda: wait_until(lambda: _check_once(reading, guest), _count_failed, wait))
    if reading.output is Output.JSON:
        reading.show(found, (), ())
    else:
        shown = [each for each in found.checks if not (problems and each.severity is Severity.OK)]
        _show(reading, shown if all_each else by_section(summarize(shown)))
        counts = Counter(each.severity for each in found.checks)
        if shown:
            click.echo()
        click.echo(", ".join(f"{counts[each]} {each}" for each in reversed(Severity)))
    end(found.unread, is_wrong=found.passed is False)


def _count_failed(found: CheckReport) -> str:
    failed = sum(each.severity is Severity.CRITICAL for each in found.checks)
    return f"{failed} of {count_of(len(found.checks), 'check')} failed" if failed else ""


async def _check_once(reading: ReadingOptions, guest: str | None) -> CheckReport:
    async with reading.connect() as client:
        snapshot = await read_snapshot(client, namespace=reading.operator_namespace)
        chosen = frozenset(find_namespaces(snapshot, guest)) if guest is not None else None
        if guest is not None and not chosen:
            clusters = snapshot.cache.clusters.all()
            fail_missing(snapshot, "guest cluster", guest, clusters, Kind.CLUSTERS, Kind.FLOATING_IPS)
        probed = [*judge_rights(snapshot), *await probe_secret_rights(client, snapshot)]
    found = [
        each
        for each in report_status(snapshot).findings
        if chosen is None or not each.subject.guests or chosen & each.subject.guests
    ]
    has_failed = any(each.severity is Severity.CRITICAL for each in (*probed, *found))
    return CheckReport(
        passed=False if has_failed else None if snapshot.unread else True,
        checks=tuple(by_section((*probed, *found))),
        unread=snapshot.unread,
    )


def _show(reading: ReadingOptions, shown: Iterable[Finding]) -> None:
    section = ""
    for each in shown:
        if each.subject.section != section:
            section = each.subject.section
            click.echo(f"{clean(section)}\n{'-' * len(section)}")
        reading.show_finding(each)
