"""`fipop check`: tick by tick what an installation needs, and what to do where that is missing."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import click

from fipop.cli.reading import (
    EXIT_CODES,
    EXIT_INCOMPLETE,
    EXIT_WRONG,
    Reading,
    fail,
    loopback_option,
    reading_options,
    run_reading,
    wait_option,
    wait_until,
)
from fipop.errors import StartError
from fipop.guest.helm.runner import find_helm
from fipop.report.addresses import find_namespaces
from fipop.report.checks import (
    Check,
    CheckVerdict,
    check_operator,
    check_ranges,
    check_rights,
    check_schemas,
)
from fipop.report.facts import Facts, Unread
from fipop.report.fleet import report_guests
from fipop.report.picture import Picture
from fipop.report.probes import probe_charts, probe_credential, probe_guests, probe_secret_rights
from fipop.report.ranges import report_ranges
from fipop.report.reading import read_facts
from fipop.report.rendering import Output
from fipop.texts import clean

_SIGNS = {CheckVerdict.OK: "√", CheckVerdict.WARNING: "‼", CheckVerdict.FAILED: "×"}
_HEADER = ("SECTION", "CHECK", "VERDICT", "MESSAGE", "ADVICE")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """All checks, in their order; `passed` if none failed. Nothing is known of what is `unread`."""

    passed: bool
    checks: tuple[Check, ...]
    unread: tuple[Unread, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """What is to be checked."""

    guest: str | None
    all_guests: bool
    charts: bool
    helm: str | None
    allow_loopback: bool


@click.command(
    short_help="What an installation needs, point by point.",
    epilog=EXIT_CODES.replace("something is wrong", "a check failed (warnings are no failure)"),
)
@click.option("--guest", help="Check this guest, by cluster or id, and not the others.")
@click.option("--no-guests", is_flag=True, help="Ask no guest.")
@click.option("--no-charts", is_flag=True, help="Fetch no chart.")
@click.option(
    "--helm", envvar="FIPOP_HELM", help="The helm program to fetch charts with; default: the one on PATH."
)
@wait_option
@loopback_option
@reading_options
def check(
    *,
    reading: Reading,
    guest: str | None,
    no_guests: bool,
    no_charts: bool,
    helm: str | None,
    wait: float,
    allow_loopback_guests: bool,
) -> None:
    """Check what fipop needs: CRDs, rights, leader, options, charts, ranges, and each guest up to its ready pods.

    Everything is asked from here and with your rights; nothing is written.
    """
    wish = _Wish(
        guest=guest,
        all_guests=not no_guests,
        charts=not no_charts,
        helm=_find_helm(helm),
        allow_loopback=allow_loopback_guests,
    )
    found = run_reading(lambda: wait_until(lambda: _check_once(reading, wish), _name_failures, wait))
    is_short = reading.output is Output.SHORT
    shown = [each for each in found.checks if not (is_short and each.verdict is CheckVerdict.OK)]
    if reading.is_for_people:
        _tell(reading, shown, found)
    else:
        rows = [(each.section, each.name, each.verdict.value, each.message, each.advice) for each in shown]
        reading.tell(found, _HEADER, rows)
    if not found.passed:
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


def _name_failures(found: CheckReport) -> str:
    missed = sum(each.verdict is CheckVerdict.FAILED for each in found.checks)
    return f"{missed} of {len(found.checks)} checks fail" if missed else ""


async def _check_once(reading: Reading, wish: _Wish) -> CheckReport:
    async with reading.connect() as client:
        facts = await read_facts(client, namespace=reading.operator_namespace)
        picture = Picture(facts)
        guests = _choose_guests(picture, facts, wish)
        checks = (
            *check_rights(facts),
            *check_schemas(facts),
            *check_operator(facts),
            *await probe_secret_rights(client, facts),
            *(await probe_credential(client, facts) if wish.charts else ()),
            *(await probe_charts(facts, wish.helm) if wish.charts else ()),
            *check_ranges(report_ranges(picture)),
            *await probe_guests(client, picture, guests, allow_loopback=wish.allow_loopback),
        )
    passed = not any(each.verdict is CheckVerdict.FAILED for each in checks)
    return CheckReport(passed=passed, checks=checks, unread=facts.unread)


def _choose_guests(picture: Picture, facts: Facts, wish: _Wish) -> list[str]:
    if wish.guest is not None:
        found = find_namespaces(picture, wish.guest)
        if not found:
            fail(f'there is no guest "{wish.guest}"', EXIT_WRONG)
        return list(found)
    if not wish.all_guests:
        return []
    known = {each.cluster_name for each in facts.clusters}
    return [each.id for each in report_guests(picture) if each.id in known]


def _tell(reading: Reading, shown: list[Check], found: CheckReport) -> None:
    section = ""
    for each in shown:
        if each.section != section:
            section = each.section
            click.echo(f"{clean(section)}\n{'-' * len(section)}")
        sign = reading.paint(_SIGNS[each.verdict], each.verdict.value)
        message = f": {each.message}" if each.message else ""
        click.echo(f"{sign} {clean(each.name + message)}")
        if each.advice:
            click.echo(f"    -> {clean(each.advice)}")
    counts = [
        f"{sum(each.verdict is verdict for each in found.checks)} {verdict.value}" for verdict in CheckVerdict
    ]
    click.echo(f"{'' if not shown else chr(10)}{', '.join(counts)}")
