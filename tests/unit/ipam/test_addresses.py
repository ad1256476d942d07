from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.ipam.addresses import (
    MAPPED_FIRST,
    MAPPED_LAST,
    Address,
    Family,
    address_key,
    explode_address,
    format_address,
    parse_address,
    to_ip,
)
from fipop.ipam.errors import AddressSyntaxError

V4 = st.integers(0, 2**32 - 1).map(lambda value: Address(Family.IPV4, value))
V6 = (
    (st.integers(0, 2**128 - 1) | st.integers(MAPPED_FIRST - 3, MAPPED_LAST + 3))
    .filter(lambda value: not MAPPED_FIRST <= value <= MAPPED_LAST)
    .map(lambda value: Address(Family.IPV6, value))
)


@given(V4 | V6)
def test_every_spelling_of_an_address_is_read_back_as_the_same_address(address: Address):
    assert parse_address(format_address(address)) == address
    assert parse_address(f"  {explode_address(address).upper()}\t") == address


@given(V6)
def test_the_key_of_an_ipv6_address_is_its_exploded_text_without_colons(address: Address):
    assert address_key(address) == explode_address(address).replace(":", "")


@given(st.integers(0, 2**32 - 1))
def test_ipv4_mapped_ipv6_is_the_ipv4_address_in_every_spelling(value: int):
    expected = Address(Family.IPV4, value)
    mapped = IPv6Address(MAPPED_FIRST + value)
    for text in (
        str(mapped),
        mapped.exploded,
        f"::ffff:{IPv4Address(value)}",
        f"0:0:0:0:0:FFFF:{IPv4Address(value)}",
    ):
        assert parse_address(text) == expected


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("10.0.0.1", "10.0.0.1"),
        (" 10.0.0.1\n", "10.0.0.1"),
        ("2001:DB8:0:0::1", "2001:db8::1"),
        ("2001:0db8:0000:0000:0000:0000:0000:0001", "2001:db8::1"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("::", "::"),
        ("64:ff9b::192.0.2.1", "64:ff9b::c000:201"),
    ],
)
def test_addresses_are_written_canonically(text: str, canonical: str):
    assert format_address(parse_address(text)) == canonical
    assert str(parse_address(text)) == canonical


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is not an IPv4 or IPv6 address"),
        ("10.0.0", "is not an"),
        ("10.0.0.256", "is not an"),
        ("10.0.0.1/32", "is not an"),
        ("1.2.3.4.5", "is not an"),
        ("0x0a.0.0.1", "is not an"),
        ("167772161", "is not an"),
        ("٣.0.0.1", "is not an"),
        ("10.0.0.1 2", "is not an"),
        ("2001:db8::1::2", "is not an"),
        ("2001:db8::12345", "is not an"),
        ("10.0.0.01", "leading zeros"),
        ("010.0.0.1", "leading zeros"),
        ("::ffff:010.0.0.1", "leading zeros"),
        ("fe80::1%eth0", "zone id"),
        ("fe80::1%", "zone id"),
        ("::ffff:1.2.3.4%1", "zone id"),
        ("1" * 1_000_000, "is not an"),
    ],
)
def test_what_is_no_address_is_refused_with_the_text_and_the_problem(text: str, problem: str):
    with pytest.raises(AddressSyntaxError) as caught:
        parse_address(text)
    assert problem in caught.value.problem
    assert caught.value.text == text
    assert len(str(caught.value)) < 200, "a message is a sentence, however long the text was"


def test_ipv4_sorts_before_ipv6_and_by_value():
    texts = ["2001:db8::1", "10.0.0.10", "::1", "10.0.0.9"]
    assert [str(each) for each in sorted(map(parse_address, texts))] == [
        "10.0.0.9",
        "10.0.0.10",
        "::1",
        "2001:db8::1",
    ]


def test_families_know_their_names_and_bits():
    assert [(family.label, family.bits) for family in Family] == [("IPv4", 32), ("IPv6", 128)]
    assert to_ip(parse_address("10.0.0.1")) == ip_address("10.0.0.1")


@given(st.text() | st.text(alphabet="0123456789abcdef:.%/- ", max_size=60))
def test_any_text_is_an_address_or_an_error(text: str):
    try:
        address = parse_address(text)
    except AddressSyntaxError:
        return
    assert parse_address(format_address(address)) == address
