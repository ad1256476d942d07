"""`fipop who`, `fipop history`, `fipop free`: questions about single addresses."""

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
    look,
    reading_options,
    run_reading,
    tell_unread,
)
from fipop.ipam.addresses import Family
from fipop.report.addresses import (
    AddressReport,
    AddressState,
    Ownership,
    Tenure,
    build_log_query,
    find_namespaces,
    report_free,
    report_history,
    search,
)
from fipop.report.guests import GuestReport, list_unread, read_guests
from fipop.report.reading import read_snapshot
from fipop.report.rendering import Output, age, moment
from fipop.report.snapshot import ClusterSnapshot, Kind, Unread, read_address
from fipop.texts import clean

_MAX_COUNT = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WhoReport:
    """The state of an address, or of all addresses of a guest cluster or range; `guests` if they were read.

    `log_query` finds owners of before in the operator's log, whose reservations ended with their quarantine.
    """

    asked: str
    addresses: tuple[AddressReport, ...]
    guests: tuple[GuestReport, ...]
    unread: tuple[Unread, ...]
    log_query: str


@click.command(short_help="Owner of an address, or addresses of a cluster or range.", epilog=EXIT_CODES)
@click.argument("asked", metavar="ADDRESS|CLUSTER|RANGE")
@click.option(
    "--guest", is_flag=True, help="Also read the guest cluster, with your access to its kubeconfig Secret."
)
@reading_options
def who(*, reading: Reading, asked: str, guest: bool) -> None:
    """Show the owner of ADDRESS, since when, its range and space, and its former owners.

    With the name or id of a CLUSTER, or the name of a floating IP: the same for each of its addresses. With the name
    of a RANGE: the same for each address that is held from it.
    """
    snapshot, found = run_reading(lambda: _find(reading, asked, guest))
    reading.tell(found, _header(reading), [_row(reading, snapshot, each) for each in found.addresses])
    if reading.output in {Output.TABLE, Output.WIDE}:
        for each in found.addresses:
            _tell_more(each)
        if all(each.owner is None for each in found.addresses):
            _tell_log(found.log_query)
        for report in found.guests:
            _tell_guest(report)
    tell_unread(found.unread)
    if all(each.state is AddressState.UNKNOWN for each in found.addresses) and not found.unread:
        fail(_describe_unknown(snapshot, asked, f"no owner of {asked} is known"))
    if found.unread:
        sys.exit(EXIT_INCOMPLETE)


def _describe_unknown(snapshot: ClusterSnapshot, asked: str, otherwise: str) -> str:
    """Return `otherwise`, unless no object of this name is there."""
    is_address = read_address(asked) is not None
    if is_address or find_namespaces(snapshot, asked) or snapshot.cache.ranges.get("", asked) is not None:
        return otherwise
    return (
        f'"{asked}" was not found: it is not an IP address, and no cluster, floating IP or range has this name. '
        "Run fipop status to see the ranges"
    )


async def _find(reading: Reading, asked: str, ask_guest: bool) -> tuple[ClusterSnapshot, WhoReport]:
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
        unread=(*snapshot.unread, *list_unread(guests)),
        log_query=build_log_query(snapshot, asked),
    )


_NARROW = (Output.TABLE, Output.SHORT)


def _header(reading: Reading) -> tuple[str, ...]:
    header = ("ADDRESS", "STATE", "CLUSTER", "FLOATING IP", "RANGE", "SINCE")
    return (*header, "SPACE", "HOW", "UNTIL") if reading.output not in _NARROW else header


def _row(reading: Reading, snapshot: ClusterSnapshot, each: AddressReport) -> tuple[str, ...]:
    owner = each.owner
    since = owner.since if owner is not None else None
    shown = moment(since) if reading.output is Output.CSV else _ago(snapshot, owner)
    row = (
        *(each.address, each.state.value, owner.cluster if owner else "", _name(owner), each.range, shown),
    )
    if reading.output in _NARROW:
        return row
    how = ("static" if each.static else "chosen") if each.state in _RESERVED else ""
    return (*row, each.space, how, moment(each.quarantined_until))


_RESERVED = (AddressState.HELD, AddressState.QUARANTINED)


def _ago(snapshot: ClusterSnapshot, owner: Ownership | None) -> str:
    if owner is None or owner.since is None:
        return ""
    return f"{age((snapshot.now - owner.since).total_seconds())} ago"


def _name(owner: Ownership | None) -> str:
    return f"{owner.namespace}/{owner.name}".strip("/") if owner is not None else ""


def _tell_more(each: AddressReport) -> None:
    """Print about an address what has no column."""
    how = "requested by name" if each.static else "chosen by fipop"
    if each.state is AddressState.HELD:
        _say(
            each, f"space {each.space}, {how}, held since {moment(each.owner.since if each.owner else None)}"
        )
    elif each.state is AddressState.QUARANTINED:
        _say(
            each, f"space {each.space}, {how}, in quarantine until {moment(each.quarantined_until)} or later"
        )
    else:
        _say(each, f"space {each.space}, {each.remark or each.state.value}")
    if each.out_of_range:
        _say(each, f'range "{each.range}" no longer assigns it')
    for other in each.contenders:
        _say(each, f"also named by {_name(other)} of cluster {other.cluster or '?'}")
    for past in each.past_owners:
        _say(each, f"held by {_name(past)} of cluster {past.cluster or '?'} until {moment(past.until)}")


def _say(each: AddressReport, text: str) -> None:
    click.echo(clean(f"{each.address}: {text}"))


def _tell_log(query: str) -> None:
    click.echo(clean(f"Find owners whose quarantine has ended in the log of the operator: {query}"))


def _tell_guest(found: GuestReport) -> None:
    if found.problem:
        click.echo(clean(f"guest {found.guest}: {found.problem}"))
        return
    for key, value in sorted(found.config_map.items()):
        click.echo(clean(f"guest {found.guest}: ConfigMap {key} = {value}"))
    for service in found.services:
        click.echo(clean(f"guest {found.guest}: Service {service.name} has {', '.join(service.addresses)}"))


# history


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryReport:
    """Who had an address, or which addresses guests had; `log_query` finds those that are no longer remembered."""

    asked: str
    tenures: tuple[Tenure, ...]
    unread: tuple[Unread, ...]
    log_query: str


_TENURES = ("ADDRESS", "SPACE", "RANGE", "CLUSTER", "FLOATING IP", "FROM", "UNTIL")


@click.command(short_help="Owners of an address over time, or addresses of a cluster.", epilog=EXIT_CODES)
@click.argument("asked", metavar="ADDRESS|CLUSTER")
@reading_options
def history(*, reading: Reading, asked: str) -> None:
    """Show the owners of ADDRESS and when they had it, the latest first, or the addresses that a CLUSTER had.

    A reservation remembers five owners, until its quarantine ends. Older ones are in the log of the operator:
    docs/reference/cli.md has the query.
    """
    snapshot = run_reading(lambda: look(reading))
    found = HistoryReport(
        asked=asked,
        tenures=report_history(snapshot, asked),
        unread=snapshot.unread,
        log_query=build_log_query(snapshot, asked),
    )
    reading.tell(found, _TENURES, list(map(_tenure_row, found.tenures)))
    if reading.output in {Output.TABLE, Output.WIDE}:
        _tell_log(found.log_query)
    tell_unread(found.unread)
    if not found.tenures and not found.unread:
        fail(_describe_unknown(snapshot, asked, f"no reservation has an owner of {asked}"))
    if found.unread:
        sys.exit(EXIT_INCOMPLETE)


def _tenure_row(each: Tenure) -> tuple[str, ...]:
    found, owner = each.reservation, each.owner
    return (
        *(each.address, found.spec.space, found.spec.range, owner.cluster, _name(owner)),
        *(moment(owner.since) or "?", moment(owner.until) or "now"),
    )


# free


@click.command(short_help="The next addresses that a range assigns.", epilog=EXIT_CODES)
@click.argument("range_name", metavar="RANGE")
@click.option(
    "--count", type=click.IntRange(1, _MAX_COUNT), default=10, show_default=True, help="Number of addresses."
)
@click.option(
    "--family", type=click.Choice(["IPv4", "IPv6"]), help="Default: IPv4 if the range has any, else IPv6."
)
@reading_options
def free(*, reading: Reading, range_name: str, count: int, family: str | None) -> None:
    """Show the next addresses that RANGE assigns, in its order, and why it does not assign the others.

    A former owner of an address in quarantine gets that address again.
    """
    snapshot = run_reading(lambda: look(reading))
    wanted = next((each for each in Family if each.label == family), None)
    asked = snapshot.cache.ranges.get("", range_name)
    if asked is None:
        tell_unread(snapshot.unread)
        if not snapshot.is_read(Kind.RANGES):
            fail(
                f'FloatingIPRange "{range_name}" is not known: the ranges could not be read', EXIT_INCOMPLETE
            )
        fail(f'FloatingIPRange "{range_name}" does not exist. Run fipop status to see all')
    found = report_free(snapshot, asked, wanted, count)
    reading.tell(found, ("ADDRESS",), [(each,) for each in found.addresses])
    if reading.output in {Output.TABLE, Output.WIDE} and found.free is not None:
        more = "".join(f", {number} {why}" for why, number in found.withheld.items())
        click.echo(f"{found.free} free, {found.used} used, {found.quarantined} in quarantine{more}")
    tell_unread(found.unread)
    if found.problem:
        fail(found.problem, EXIT_WRONG if found.free is not None else EXIT_INCOMPLETE)
    if found.unread:
        sys.exit(EXIT_INCOMPLETE)
