"""`fipop who` and `fipop free`: questions about single addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import click

from fipop.cli.reading import (
    EXIT_CODES,
    EXIT_INCOMPLETE,
    EXIT_WRONG,
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
from fipop.guests.announced import Reason
from fipop.ipam.addresses import Family
from fipop.ipam.ranges import AddressCounts
from fipop.report.addresses import (
    AddressReport,
    AddressState,
    FreeReport,
    build_log_query,
    describe_services,
    find_namespaces,
    find_nearest,
    report_free,
    search,
)
from fipop.report.findings import Finding
from fipop.report.guests import GuestReport, list_unread, read_guests
from fipop.report.reading import read_snapshot
from fipop.report.rendering import age, moment
from fipop.report.snapshot import Kind, Snapshot, Unread, read_address
from fipop.report.status import describe_wait, find_waits
from fipop.texts import LONGEST_MESSAGE, clean, count_text

_MAX_COUNT = 10_000
_HEADER = ("ADDRESS", "STATE", "CLUSTER", "FLOATING IP", "RANGE", "SERVICES", "SINCE", "REQUESTED BY")
_WIDE = ("SPACE", "HOW", "UNTIL")
_LIKE_AN_ADDRESS = re.compile(r"[0-9./]+|.*:.*")  # no name has a colon


@dataclass(frozen=True, slots=True, kw_only=True)
class WhoReport:
    """The state of an address, or of all addresses of a guest cluster or range."""

    asked: str
    addresses: tuple[AddressReport, ...]
    guests: tuple[GuestReport, ...]
    """What the guest clusters show, if they were read."""
    waits: tuple[Finding, ...]
    """The floating IPs and Services that wait for an address."""
    unread: tuple[Unread, ...]
    log_query: str
    """Finds former owners in the operator's log, whose reservations ended with their quarantine."""


@click.command(short_help="Owner of an address, or addresses of a cluster or range.", epilog=EXIT_CODES)
@click.argument("asked", metavar="ADDRESS|CLUSTER|RANGE|SERVICE")
@click.option(
    "--guest", is_flag=True, help="Also read the guest cluster, with your access to its kubeconfig Secret."
)
@reading_options
def who(*, reading: ReadingOptions, asked: str, guest: bool) -> None:
    """Show the owner of ADDRESS, since when, its range and space, who asks for it, and its former owners.

    With the name or id of a CLUSTER, or the name of a floating IP: the same for each address that it has, had or asks
    for, and what of it waits for an address. With the name of a RANGE: the same for each address in use of it. With
    the `namespace/name` of a SERVICE: the same for each address of the floating IPs that it uses, or since when and
    why it waits.
    """
    if not asked.strip():
        raise click.UsageError("Name an address, a cluster, a range or a Service: the argument is empty.")
    snapshot, found = run_reading(lambda: _find(reading, asked, guest))
    show_ambiguity(snapshot, asked)
    is_wide = reading.output is Output.WIDE
    rows = (_row(snapshot, each, is_wide=is_wide) for each in found.addresses)
    unknown = _describe_unknown(snapshot, asked) if not (found.addresses or found.waits) else ""
    if found.addresses or found.guests or reading.output is Output.JSON:
        reading.show(found, (*_HEADER, *(_WIDE if is_wide else ())), rows, _lines(found))
    elif not (unknown or found.waits):
        click.echo(clean(f"No address of {asked} is in use."))
    for each in found.waits if reading.output is not Output.JSON else ():
        click.echo(clean(describe_wait(each), 2 * LONGEST_MESSAGE))
    if found.addresses and all(each.state is AddressState.UNKNOWN for each in found.addresses):
        unknown = f"{asked} is in no range, and no reservation or FloatingIP has it"
    if unknown and not found.unread:
        fail(unknown)
    end(found.unread, is_wrong=any(each.is_wrong for each in found.waits))


def _describe_unknown(snapshot: Snapshot, asked: str) -> str:
    """Return that no object has this name; "" for an address, and if one has."""
    has_range = snapshot.inventory.ranges.get("", asked) is not None
    is_known_guest = bool(snapshot.find_clusters(asked) or find_namespaces(snapshot, asked))
    if read_address(asked) is not None or has_range or is_known_guest:
        return ""
    if _LIKE_AN_ADDRESS.fullmatch(asked):
        return f'"{asked}" is not an IP address. Name one address, or a range, cluster or Service by its name'
    nearest = find_nearest(snapshot, asked)
    like = f' (did you mean "{nearest}"?)' if nearest else ""
    return (
        f'"{asked}" was not found{like}: no cluster, floating IP or range has this name, no Service of it uses or '
        "waits for an address of a range with perGuest, and it is no address. Run fipop status -o wide to see all names"
    )


async def _find(reading: ReadingOptions, asked: str, ask_guest: bool) -> tuple[Snapshot, WhoReport]:
    async with reading.connect() as client:
        snapshot = await read_snapshot(client, namespace=reading.operator_namespace, about_operator=ask_guest)
        addresses = search(snapshot, asked)
        guests: list[GuestReport] = []
        if ask_guest:
            owners = {each.owner.namespace for each in addresses if each.owner is not None}
            owners |= set(find_namespaces(snapshot, asked))
            guests = await read_guests(client, snapshot, sorted(owners))
    return snapshot, WhoReport(
        asked=asked,
        addresses=addresses,
        guests=tuple(guests),
        waits=find_waits(snapshot, asked),
        unread=(*snapshot.unread, *list_unread(guests)),
        log_query=build_log_query(snapshot, asked),
    )


def _row(snapshot: Snapshot, each: AddressReport, *, is_wide: bool) -> tuple[str, ...]:
    owner = each.owner
    since = owner.since if owner is not None else None
    row = (
        *(each.address, each.state.value, owner.shown if owner else "", str(owner or ""), each.range),
        describe_services(each),
        f"{age((snapshot.now - since).total_seconds())} ago" if since is not None else "",
        ",".join(map(str, each.requested_by)),
    )
    return (*row, each.space, each.how, moment(each.quarantined_until)) if is_wide else row


def _lines(found: WhoReport) -> Iterator[str]:
    """Yield what has no column."""
    for each in found.addresses:
        yield from _describe_address(each)
    if found.addresses and all(each.owner is None for each in found.addresses):
        yield f"Find owners whose quarantine has ended in the log of the operator: {found.log_query}"
    for guest in found.guests:
        if guest.problem:
            yield f"guest cluster {guest.guest}: {guest.problem}"
        for key, value in sorted(guest.config_map.items()):
            yield f"guest cluster {guest.guest}: ConfigMap {key} = {value}"
        for service in guest.services:
            yield f"guest cluster {guest.guest}: Service {service.name} has {', '.join(service.addresses)}"


def _describe_address(each: AddressReport) -> Iterator[str]:
    if each.quarantined_until is not None:
        yield f"{each.address}: in quarantine until {moment(each.quarantined_until)} or later"
    if each.announced is not None and each.announced.reason != Reason.NOT_USED:
        yield f"{each.address}: {each.announced.message}"
    if each.remark:
        yield f"{each.address}: {each.remark}"
    if each.out_of_range:
        yield f'{each.address}: range "{each.range}" no longer assigns it'
    for other in each.contenders:
        yield f"{each.address}: also used by {other} of cluster {other.shown or '?'}"
    for past in each.past_owners:
        yield (f"{each.address}: held by {past} of cluster {past.shown or '?'} until {moment(past.until)}")


@click.command(short_help="The next addresses that a range assigns.", epilog=EXIT_CODES)
@click.argument("range_name", metavar="RANGE")
@click.option(
    "--count", type=click.IntRange(1, _MAX_COUNT), default=10, show_default=True, help="Number of addresses."
)
@click.option(
    "--family",
    type=click.Choice([each.label for each in Family], case_sensitive=False),
    help="Default: IPv4 if the range has any, else IPv6.",
)
@reading_options
def free(*, reading: ReadingOptions, range_name: str, count: int, family: str | None) -> None:
    """Show the next addresses that RANGE assigns, in its order, and why it does not assign the others.

    A former owner of an address in quarantine gets that address again.
    """
    snapshot = run_reading(lambda: read_once(reading, about_operator=False))
    asked = snapshot.inventory.ranges.get("", range_name)
    if asked is None:
        known = (each.name for each in snapshot.inventory.ranges.all())
        fail_missing(snapshot, "FloatingIPRange", range_name, known, Kind.RANGES)
    wanted = next((each for each in Family if each.label == family), None)
    found = report_free(snapshot, asked, wanted, count)
    counts = _free_lines(found) if found.free is not None else ()
    if found.addresses or reading.output is Output.JSON:
        reading.show(found, ("ADDRESS",), [(each,) for each in found.addresses], counts)
    else:
        for line in counts:
            click.echo(line)
    if found.problem:
        fail(found.problem, EXIT_WRONG if found.free is not None else EXIT_INCOMPLETE, found.unread)
    end(found.unread)


def _free_lines(found: FreeReport) -> Iterator[str]:
    usages = {
        found.family: AddressCounts(found.used or 0, found.free or 0, found.quarantined or 0),
        **found.other,
    }
    for family, each in usages.items():
        parts = [f"{count_text(each.free)} free", f"{each.used} used", f"{each.quarantined} in quarantine"]
        if family == found.family:
            parts += (f"{count_text(number)} {why}" for why, number in found.withheld.items())
        yield f"{family}: {', '.join(parts)}"
