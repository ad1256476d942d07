"""Addresses in the texts of a guest cluster: what is outside the grammar says nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.ipam.addresses import Address, Family, format_address, parse_address
from fipop.ipam.pool import Part, parse_leniently


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
def test_an_address_a_network_and_a_range_are_parts(text: str, first: str, last: str) -> None:
    (part,) = parse_leniently(text)
    low, high = Address(part.family, part.first), Address(part.family, part.last)
    assert (format_address(low), format_address(high)) == (first, last)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "eth0",
        "true",
        "0.0.0.0/32",
        "0.0.0.0",
        "::/128",
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
    assert parse_leniently(text) == ()


def test_a_list_is_read_part_by_part() -> None:
    assert len(parse_leniently("10.0.0.1/32, junk,fd00::1/128,,10.0.0.4-10.0.0.5")) == 3


def test_a_part_holds_its_ends_and_what_is_between_of_its_own_family() -> None:
    (part,) = parse_leniently("10.0.0.1-10.0.0.3")
    texts = ("10.0.0.0", "10.0.0.1", "10.0.0.3", "10.0.0.4")
    assert [text for text in texts if part.holds(parse_address(text))] == ["10.0.0.1", "10.0.0.3"]
    assert not part.holds(Address(Family.IPV6, part.first))


# 0.0.0.0 is no address of a part, however it is written.
@given(st.ip_addresses().filter(lambda address: int(address) not in {0, 0xFFFF << 32}))
def test_every_address_is_read_as_a_part_of_one(address: object) -> None:
    family, value = parse_address(str(address))
    assert parse_leniently(str(address)) == (Part(family, value, value),)


@given(st.text(max_size=60))
def test_any_text_is_read_without_an_error(text: str) -> None:
    parse_leniently(text)
