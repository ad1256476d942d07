"""`fipop adopt --dry-run`: what fipop will do with an installation of kube-fip-operator; nothing is written."""

from __future__ import annotations

from collections.abc import Iterator

import click

from fipop.cli.reading import EXIT_CODES, ReadingOptions, end, reading_options, run_reading, show_unread
from fipop.operator.crds import find_our_age
from fipop.operator.dry_run import DryRun
from fipop.report.adoption import AdoptionReport, report_adoption
from fipop.report.guests import GuestReport, read_guests
from fipop.report.reading import SnapshotReader, read_snapshot
from fipop.report.snapshot import Kind

_HEADER = ("FLOATING IP", "CLUSTER", "FATE", "BEFORE", "AFTER", "RANGE", "WHY")


@click.command(
    short_help="What fipop will do with the objects of kube-fip-operator.",
    epilog=EXIT_CODES.replace(
        "something is wrong or was not found", "check the report before the switch"
    ).replace(", 4 all is well as far as your rights go", ""),
)
@click.option("--dry-run", is_flag=True, help="Required: the operator adopts automatically when it starts.")
@click.option(
    "--guests",
    is_flag=True,
    help="Also read the guest clusters, with your access to their kubeconfig Secrets.",
)
@reading_options
def adopt(*, reading: ReadingOptions, dry_run: bool, guests: bool) -> None:
    """Show what the operator will do with each floating IP when it starts here.

    Nothing is written. If it does not read the guest clusters, an address that only one of them uses counts as free.
    """
    if not dry_run:
        raise click.UsageError("Add --dry-run: the operator adopts automatically, without this command.")
    found = run_reading(lambda: _find(reading, guests))
    reading.show(found, _HEADER, _rows(found), _lines(found))
    end((), is_wrong=found.needs_attention)


async def _find(reading: ReadingOptions, ask_guests: bool) -> AdoptionReport:
    async with reading.connect() as client:
        _show_progress("Reading the management cluster")
        before = await read_snapshot(client, namespace=reading.operator_namespace, about_operator=False)
        asked: list[GuestReport] = []
        if ask_guests:
            _show_progress("Reading the guest clusters")
            guests = {each.cluster_name for each in before.inventory.clusters.all()} - {""}
            asked = await read_guests(client, before, sorted(guests))
        carried = {each.guest: sorted(each.in_use()) for each in asked}
        reader = SnapshotReader(client)
        installation = await reader.read_installation(reading.operator_namespace)
        show_unread([each for each in reader.unread if each.what == Kind.OPTIONS])
        creates = installation.settings.may_create_floating_ips
        after = await DryRun(client, await find_our_age(client), creates=creates).run(carried, _show_progress)
    known = {each.namespace for each in before.inventory.floating_ips.all()}
    return report_adoption(
        before, after, [each for each in asked if each.guest in known], asked_guests=ask_guests
    )


def _show_progress(step: str) -> None:
    click.echo(f"{step} …", err=True)


def _rows(found: AdoptionReport) -> Iterator[tuple[str, ...]]:
    for each in found.floating_ips:
        yield (
            *(f"{each.namespace}/{each.name}", each.cluster, each.fate.value, ",".join(each.before)),
            *(",".join(each.after), each.range, each.problem),
        )


def _lines(found: AdoptionReport) -> Iterator[str]:
    yield ""
    counts = ", ".join(f"{number} {fate}" for fate, number in found.counts.items() if number)
    yield counts or "Nothing to adopt."
    for each in found.broken_ranges:
        yield f"Range {each.range} cannot be used: {each.message}"
    for each in found.overlaps:
        yield f"Range {each.range}: {each.message}"
    for guest in found.guests:
        name = f"Guest cluster {guest.cluster or guest.guest}"
        if guest.problem:
            yield f"{name} could not be read: {guest.problem}"
        if guest.surplus:
            yield f"{name} uses {', '.join(guest.surplus)}, which the operator will not assign to it"
        if guest.missing:
            yield f"{name} gets {', '.join(guest.missing)} in its ConfigMap"
        if guest.releases:
            yield f"{name} keeps {', '.join(guest.releases)}"
    if not found.asked_guests:
        yield "The guest clusters were not read (--guests)."
