"""`fipop check`: the needs of an installation point by point, and the remedy for each that is missing."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass

import click

from fipop.cli.reading import (
    EXIT_CODES,
    EXIT_INCOMPLETE,
    EXIT_WRONG,
    Reading,
    fail,
    reading_options,
    run_reading,
    tell_unread,
    wait_option,
    wait_until,
)
from fipop.errors import StartError
from fipop.guest.helm.command import find_helm
from fipop.report.addresses import find_namespaces
from fipop.report.findings import Finding, Section, Severity, judge
from fipop.report.fleet import report_floating_ips, report_guests
from fipop.report.guests import list_unread, read_guests
from fipop.report.probes import judge_rights, probe_charts, probe_credential, probe_secret_rights
from fipop.report.ranges import report_ranges
from fipop.report.reading import read_snapshot
from fipop.report.rendering import Output
from fipop.report.snapshot import ClusterSnapshot, Kind, Unread
from fipop.texts import clean

_SIGNS = {"ok": "√", "warning": "‼", "failed": "×"}
_HEADER = ("SECTION", "CHECK", "VERDICT", "REASON", "MESSAGE", "ADVICE")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """All findings, in their order.

    `passed` is False if any failed, else None if not everything could be read. `unread` lists what could not.
    """

    passed: bool | None
    checks: tuple[Finding, ...]
    unread: tuple[Unread, ...]


@click.command(
    short_help="What an installation needs, point by point.",
    epilog=EXIT_CODES.replace("something is wrong", "a check failed (a warning is not a failure)"),
)
@click.option("--guest", help="Check only this guest cluster, by its name or id.")
@click.option("--no-guests", is_flag=True, help="Read no guest cluster.")
@click.option("--no-charts", is_flag=True, help="Fetch no chart.")
@click.option(
    "--helm", envvar="FIPOP_HELM", help="The helm program that fetches charts; default: that on PATH."
)
@wait_option
@reading_options
def check(
    *,
    reading: Reading,
    guest: str | None,
    no_guests: bool,
    no_charts: bool,
    helm: str | None,
    wait: float,
) -> None:
    """Check what fipop needs: CRDs, rights, leader, options, charts, ranges, and each guest cluster.

    The command runs with your rights and writes nothing.
    """
    program = _find_helm(helm)

    async def read() -> CheckReport:
        return await _check_once(
            reading,
            guest=guest,
            asks_guests=not no_guests,
            tries_charts=not no_charts,
            helm=program,
        )

    found = run_reading(lambda: wait_until(read, _count_failed, wait))
    is_short = reading.output is Output.SHORT
    shown = [each for each in found.checks if not (is_short and each.severity is Severity.OK)]
    if reading.is_for_people:
        _show(reading, shown, found)
    else:
        reading.tell(found, _HEADER, list(map(_row, shown)))
    if found.passed is False:
        sys.exit(EXIT_WRONG)
    if found.unread:
        sys.exit(EXIT_INCOMPLETE)


def _find_helm(given: str | None) -> str | None:
    try:
        return find_helm(given)
    except StartError as error:
        if given:
            raise click.BadParameter(str(error), param_hint="--helm") from error
        return None


def _count_failed(found: CheckReport) -> str:
    failed = sum(each.severity is Severity.CRITICAL for each in found.checks)
    return f"{failed} of {len(found.checks)} checks fail" if failed else ""


async def _check_once(
    reading: Reading,
    *,
    guest: str | None,
    asks_guests: bool,
    tries_charts: bool,
    helm: str | None,
) -> CheckReport:
    async with reading.connect() as client:
        snapshot = await read_snapshot(client, namespace=reading.operator_namespace)
        chosen = _find_chosen(snapshot, guest) if guest is not None else None
        summaries = report_guests(snapshot, report_floating_ips(snapshot))
        guests = [each for each in summaries if chosen is None or each.id in chosen]
        known = [each.id for each in guests if snapshot.cache.guest_clusters(each.id)]
        is_asked = asks_guests or chosen is not None
        asked = await read_guests(client, snapshot, known if is_asked else ())
        probed = [
            *judge_rights(snapshot),
            *await probe_secret_rights(client, snapshot),
            *(await probe_credential(client, snapshot) if tries_charts else ()),
            *(await probe_charts(client, snapshot, helm) if tries_charts else ()),
        ]
    by_guest = {each.guest: each for each in asked}
    found = [*probed, *judge(snapshot, report_ranges(snapshot), guests, by_guest)]
    order = {each.value: number for number, each in enumerate(Section)}
    found.sort(key=lambda each: order.get(each.subject.section, len(order)))
    unread = (*snapshot.unread, *list_unread(each for each in asked if each.step == "rights"))
    has_failed = any(each.severity is Severity.CRITICAL for each in found)
    return CheckReport(
        passed=False if has_failed else None if unread else True,
        checks=tuple(found),
        unread=unread,
    )


def _find_chosen(snapshot: ClusterSnapshot, name: str) -> frozenset[str]:
    """Return the guests that a name stands for."""
    found = frozenset(find_namespaces(snapshot, name))
    if not found:
        tell_unread(snapshot.unread)
        if not snapshot.is_read(Kind.CLUSTERS, Kind.FLOATING_IPS):
            fail(f'guest cluster "{name}" is not known: not all clusters could be read', EXIT_INCOMPLETE)
        fail(f'guest cluster "{name}" does not exist. Run fipop check for all')
    return found


def _row(each: Finding) -> tuple[str, ...]:
    subject, verdict = each.subject, each.severity.verdict
    return subject.section, str(subject), verdict, each.reason, each.message, each.advice


def _show(reading: Reading, shown: list[Finding], found: CheckReport) -> None:
    section = ""
    for each in shown:
        if each.subject.section != section:
            section = each.subject.section
            click.echo(f"{clean(section)}\n{'-' * len(section)}")
        sign = reading.paint(_SIGNS[each.severity.verdict], each.severity.verdict)
        reason = "" if each.severity is Severity.OK else f"{each.reason}: "
        click.echo(f"{sign} {clean(f'{each.subject}: {reason}{each.message}')}")
        if each.advice:
            click.echo(f"    -> {clean(each.advice)}")
    counts = Counter(each.severity.verdict for each in found.checks)
    summary = ", ".join(f"{counts[each]} {each}" for each in _SIGNS)
    click.echo(f"{'' if not shown else chr(10)}{summary}")
