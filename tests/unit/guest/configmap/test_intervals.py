"""Addresses in other people's texts."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.guest.configmap.intervals import Interval, parse_address, parse_hosts, parse_intervals


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("10.0.0.1", "10.0.0.1", "10.0.0.1"),
        (" 10.0.0.1/32 ", "10.0.0.1", "10.0.0.1"),
        ("10.0.0.9/29", "10.0.0.8", "10.0.0.15"),
        ("10.0.0.1-10.0.0.3", "10.0.0.1", "10.0.0.3"),
        ("10.0.0.1 - 10.0.0.3", "10.0.0.1", "10.0.0.3"),
        ("fd00::1", "fd00::1", "fd00::1"),
        ("fd00::/64", "fd00::", "fd00::ffff:ffff:ffff:ffff"),
        ("::ffff:10.0.0.1", "10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1/128", "10.0.0.1", "10.0.0.1"),
        ("::/0", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("0.0.0.0/0", "0.0.0.0", "255.255.255.255"),
    ],
)
def test_an_address_a_network_and_a_range_are_spans(text: str, first: str, last: str) -> None:
    assert parse_intervals(text) == (Interval(ip_address(first), ip_address(last)),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "eth0",
        "true",
        "0.0.0.0/32",
        "0.0.0.0",
        "/32",
        "10.0.0.1/33",
        "10.0.0.3-10.0.0.1",
        "10.0.0.1-fd00::1",
        "fe80::1%eth0",
        "fe80::1%eth0/64",
        "10.0.0.1/-1",
        "10.0.0.1/²",
        "10.0.0.1/99999999999",
        "1-2-3",
        "9" * 200,
    ],
)
def test_what_is_no_address_says_nothing(text: str) -> None:
    assert parse_intervals(text) == ()


def test_a_list_is_read_part_by_part() -> None:
    assert len(parse_intervals("10.0.0.1/32, junk,fd00::1/128,,10.0.0.4-10.0.0.5")) == 3


def test_a_span_holds_its_ends_and_what_is_between_of_its_own_family() -> None:
    (span,) = parse_intervals("10.0.0.1-10.0.0.3")
    held = [text for text in ("10.0.0.0", "10.0.0.1", "10.0.0.3", "10.0.0.4") if span.holds(ip_address(text))]
    assert held == ["10.0.0.1", "10.0.0.3"]
    assert not span.holds(IPv6Address(int(IPv4Address("10.0.0.2"))))


def test_hosts_are_single_addresses_and_nothing_else() -> None:
    assert parse_hosts("10.0.0.1/32, fd00::1") == {ip_address("10.0.0.1"), ip_address("fd00::1")}
    for text in ("10.0.0.0/31", "10.0.0.1/32,eth0", "", "/32", "0.0.0.0/32"):
        assert parse_hosts(text) is None


@given(st.ip_addresses())
def test_every_address_is_read_back_as_itself(address: IPv4Address | IPv6Address) -> None:
    parsed = parse_address(str(address))
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    assert parsed == (None if address.is_unspecified else address)


@given(st.text(max_size=60))
def test_any_text_is_read_without_an_error(text: str) -> None:
    parse_address(text)
    parse_hosts(text)
    parse_intervals(text)
