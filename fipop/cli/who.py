"""`fipop who`, `fipop history`, `fipop free`: questions about single addresses."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import click

from fipop.cli.reading import (
    EXIT_CODES,
    EXIT_INCOMPLETE,
    Reading,
    fail,
    look,
    loopback_option,
    reading_options,
    run_reading,
    tell_unread,
)
from fipop.errors import RangeUnknownError
from fipop.ipam.addresses import Family
from fipop.report.addresses import (
    AddressReport,
    AddressState,
    Ownership,
    find_namespaces,
    report_address,
    report_holdings,
)
from fipop.report.facts import Facts, Unread
from fipop.report.free import report_free
from fipop.report.guest_words import GuestWords, read_guest_words
from fipop.report.history import history_of_address, history_of_guests
from fipop.report.picture import Picture, read_address
from fipop.report.reading import read_facts
from fipop.report.rendering import Output, age, moment
from fipop.texts import clean

_MAX_COUNT = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WhoReport:
    """What is known of an address, or of all addresses of a guest; `guests` where they were asked."""

    asked: str
    addresses: tuple[AddressReport, ...]
    guests: tuple[GuestWords, ...]
    unread: tuple[Unread, ...]


@click.command(short_help="Who has an address, or which addresses a cluster has.", epilog=EXIT_CODES)
@click.argument("asked", metavar="ADDRESS|CLUSTER")
@click.option(
    "--guest", is_flag=True, help="Ask the guest, too, by your own access to its kubeconfig Secret."
)
@loopback_option
@reading_options
def who(*, reading: Reading, asked: str, guest: bool, allow_loopback_guests: bool) -> None:
    """Say who has ADDRESS: the holder, since when, its range and space, and who had it before.

    With the name or id of a CLUSTER, or the name of a floating IP: the same of every address that it has.
    """
    facts, found = run_reading(lambda: _find(reading, asked, guest, allow_loopback_guests))
    reading.tell(found, _header(reading), [_row(reading, facts, each) for each in found.addresses])
    if reading.output in {Output.TABLE, Output.WIDE}:
        for each in found.addresses:
            _tell_more(each)
        for words in found.guests:
            _tell_guest(words)
    tell_unread(found.unread)
    if not found.addresses or all(each.state is AddressState.UNKNOWN for each in found.addresses):
        fail(_unknown(facts, asked))
    if found.unread:
        sys.exit(EXIT_INCOMPLETE)


def _unknown(facts: Facts, asked: str) -> str:
    if read_address(asked) is not None:
        return f"nothing is known of {asked}"
    if find_namespaces(Picture(facts), asked):
        return f'no address of "{asked}" is known'
    return (
        f'nothing is known of "{asked}": it is not an IP address, and no cluster or floating IP has this name'
    )


async def _find(
    reading: Reading, asked: str, ask_guest: bool, allow_loopback: bool
) -> tuple[Facts, WhoReport]:
    async with reading.connect() as client:
        facts = await read_facts(client, namespace=reading.operator_namespace, about_operator=False)
        picture = Picture(facts)
        address = read_address(asked)
        namespaces = find_namespaces(picture, asked) if address is None else ()
        addresses = (
            report_address(picture, address)
            if address is not None
            else tuple(each for name in namespaces for each in report_holdings(picture, name))
        )
        words: tuple[GuestWords, ...] = ()
        if ask_guest:
            owners = {each.owner.namespace for each in addresses if each.owner is not None} | set(namespaces)
            words = tuple(
                [
                    await read_guest_words(client, picture, guest, allow_loopback=allow_loopback)
                    for guest in sorted(owners)
                ]
            )
    return facts, WhoReport(asked=asked, addresses=addresses, guests=words, unread=facts.unread)


_NARROW = (Output.TABLE, Output.SHORT)


def _header(reading: Reading) -> tuple[str, ...]:
    header = ("ADDRESS", "STATE", "CLUSTER", "FLOATING IP", "RANGE", "SINCE")
    return (*header, "SPACE", "HOW", "UNTIL") if reading.output not in _NARROW else header


def _row(reading: Reading, facts: Facts, each: AddressReport) -> tuple[str, ...]:
    owner = each.owner
    since = owner.since if owner is not None else None
    shown = moment(since) if reading.output is Output.CSV else _ago(facts, owner)
    row = (
        *(each.address, each.state.value, owner.cluster if owner else "", _name(owner), each.range, shown),
    )
    if reading.output in _NARROW:
        return row
    how = ("static" if each.static else "chosen") if each.state in _RESERVED else ""
    return (*row, each.space, how, moment(each.quarantined_until))


_RESERVED = (AddressState.HELD, AddressState.QUARANTINED)


def _ago(facts: Facts, owner: Ownership | None) -> str:
    if owner is None or owner.since is None:
        return ""
    return f"{age((facts.now - owner.since).total_seconds())} ago"


def _name(owner: Ownership | None) -> str:
    return f"{owner.namespace}/{owner.name}".strip("/") if owner is not None else ""


def _tell_more(each: AddressReport) -> None:
    """Say of an address what has no column."""
    how = "asked for by name" if each.static else "chosen by fipop"
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
        _say(each, f'its range "{each.range}" would not give it out any more')
    for other in each.contenders:
        _say(each, f"also named by {_name(other)} of cluster {other.cluster or '?'}")
    for past in each.past_owners:
        _say(each, f"had by {_name(past)} of cluster {past.cluster or '?'} until {moment(past.until)}")


def _say(each: AddressReport, text: str) -> None:
    click.echo(clean(f"{each.address}: {text}"))


def _tell_guest(words: GuestWords) -> None:
    if words.problem:
        click.echo(clean(f"guest {words.guest}: {words.problem}"))
        return
    for key, value in sorted(words.config_map.items()):
        click.echo(clean(f"guest {words.guest}: ConfigMap {key} = {value}"))
    for service in words.services:
        click.echo(clean(f"guest {words.guest}: Service {service.name} has {', '.join(service.addresses)}"))


# history

_TENURES = ("ADDRESS", "SPACE", "RANGE", "CLUSTER", "FLOATING IP", "FROM", "UNTIL")


@click.command(short_help="Who had an address when, or which addresses a cluster had.", epilog=EXIT_CODES)
@click.argument("asked", metavar="ADDRESS|CLUSTER")
@reading_options
def history(*, reading: Reading, asked: str) -> None:
    """Tell who had ADDRESS and when, the latest first, or which addresses a CLUSTER had.

    A reservation remembers five owners. What is older stands in the operator's log: docs/operating.md has the query.
    """
    facts = run_reading(lambda: _read_quickly(reading))
    picture, address = Picture(facts), read_address(asked)
    found = (
        history_of_address(picture, address)
        if address
        else history_of_guests(picture, asked, find_namespaces(picture, asked))
    )
    rows = [
        (
            *(each.address, each.space, each.range, each.cluster, f"{each.namespace}/{each.name}".strip("/")),
            *(moment(each.since) or "?", moment(each.until) or "now"),
        )
        for each in found
    ]
    reading.tell(found, _TENURES, rows)
    tell_unread(facts.unread)
    if not found:
        fail(f"nobody is known to have had {asked}" if address else _unknown(facts, asked))
    if facts.unread:
        sys.exit(EXIT_INCOMPLETE)


# free


@click.command(short_help="The next addresses that a range would give out.", epilog=EXIT_CODES)
@click.argument("range_name", metavar="RANGE")
@click.option(
    "--count", type=click.IntRange(1, _MAX_COUNT), default=10, show_default=True, help="How many to show."
)
@click.option("--family", type=click.Choice(["IPv4", "IPv6"]), help="Default: IPv4, where the range has any.")
@reading_options
def free(*, reading: Reading, range_name: str, count: int, family: str | None) -> None:
    """Show the next addresses that RANGE would give out, in its order, and why the rest is not.

    Somebody who had an address of the range before gets that one again, as long as it waits in quarantine.
    """
    facts = run_reading(lambda: _read_quickly(reading))
    wanted = None if family is None else Family.IPV4 if family == "IPv4" else Family.IPV6
    try:
        found = report_free(Picture(facts), range_name, wanted, count)
    except RangeUnknownError:
        tell_unread(facts.unread)
        fail(f'there is no floating IP range "{range_name}"')
    reading.tell(found, ("ADDRESS",), [(each,) for each in found.addresses])
    if reading.output in {Output.TABLE, Output.WIDE}:
        more = "".join(f", {number} {why}" for why, number in found.withheld.items())
        click.echo(f"{found.free} free, {found.used} used, {found.quarantined} in quarantine{more}")
    tell_unread(facts.unread)
    if found.problem:
        fail(found.problem)
    if facts.unread:
        sys.exit(EXIT_INCOMPLETE)


async def _read_quickly(reading: Reading) -> Facts:
    return await look(
        reading,
        lambda client: read_facts(client, namespace=reading.operator_namespace, about_operator=False),
    )
