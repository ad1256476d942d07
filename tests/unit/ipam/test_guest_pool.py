"""What the keys of a guest's ConfigMap give out, as kube-vip-cloud-provider does; beside a naive set."""

from __future__ import annotations

from ipaddress import collapse_addresses, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.ipam.addresses import Address, Family, format_address
from fipop.ipam.errors import IpamError
from fipop.ipam.intervals import AddressSet
from fipop.ipam.pool import parse_guest_pool
from tests.unit.ipam.naive import UNIVERSE, enumerate_part, parts, text_of


def texts(pool: AddressSet, limit: int = 20) -> list[str]:
    found = [Address(family, value) for family in Family for value in _some(pool, family, limit)]
    return [format_address(each) for each in found]


def _some(pool: AddressSet, family: Family, limit: int) -> list[int]:
    values = pool.of(family).addresses()
    return [value for value, _ in zip(values, range(limit), strict=False)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.0/30", ["10.0.0.1", "10.0.0.2", "10.0.0.3"]),
        ("10.0.0.254/31,10.0.1.0/32", ["10.0.0.254", "10.0.0.255", "10.0.1.0"]),
        ("10.0.0.254-10.0.1.0", ["10.0.0.254", "10.0.0.255", "10.0.1.0"]),
        ("10.0.0.252/30", ["10.0.0.252", "10.0.0.253", "10.0.0.254"]),
        ("2001:db8::/127", ["2001:db8::", "2001:db8::1"]),
        ("2001:db8::/126", ["2001:db8::", "2001:db8::1", "2001:db8::2", "2001:db8::3"]),
        (" 10.0.0.5/32 , 10.0.0.7-10.0.0.8", ["10.0.0.5", "10.0.0.7", "10.0.0.8"]),
        ("192.168.0.210/29", [f"192.168.0.{last}" for last in range(208, 216)]),
    ],
)
def test_of_a_cidr_no_0_and_no_255_is_given_and_of_a_range_they_are(text: str, expected: list[str]) -> None:
    assert texts(parse_guest_pool(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.4/30,10.0.0.8/30", ["10.0.0.5", "10.0.0.6", "10.0.0.9", "10.0.0.10"]),
        ("10.0.0.8/30,10.0.0.12/30", [f"10.0.0.{last}" for last in range(9, 15)]),
        ("10.0.0.8/31,10.0.0.10/32", ["10.0.0.8", "10.0.0.9", "10.0.0.10"]),
        ("10.0.0.8-10.0.0.11", ["10.0.0.8", "10.0.0.9", "10.0.0.10", "10.0.0.11"]),
        ("2001:db8::/126", ["2001:db8::", "2001:db8::1", "2001:db8::2", "2001:db8::3"]),
    ],
    ids=["two networks", "one network of two parts", "too small", "a range", "IPv6"],
)
def test_ends_are_skipped_after_the_parts_were_merged(text: str, expected: list[str]) -> None:
    assert texts(parse_guest_pool(text, skip_end_ips=True)) == expected


def test_what_is_excluded_is_not_given() -> None:
    assert texts(parse_guest_pool("10.0.0.1-10.0.0.4", exclude="10.0.0.2-10.0.0.3")) == [
        "10.0.0.1",
        "10.0.0.4",
    ]
    assert texts(parse_guest_pool("10.0.0.1-10.0.0.2", exclude=" ")) == ["10.0.0.1", "10.0.0.2"]


@pytest.mark.parametrize("text", ["", "10.0.0.1,", "10.0.0.9-10.0.0.1", "nonsense"])
def test_what_cannot_be_read_is_quoted_with_its_position(text: str) -> None:
    with pytest.raises(IpamError) as caught:
        parse_guest_pool(text)
    position = text.count(",") + 1
    assert str(caught.value).startswith(
        f'part {position} of the pool, "{text.rsplit(",", maxsplit=1)[-1]}", '
    )


@given(
    written=st.lists(parts(), min_size=1, max_size=4),
    exclude=st.lists(parts(), max_size=2),
    skip=st.booleans(),
)
def test_it_agrees_with_enumerated_sets(written: list[str], exclude: list[str], skip: bool) -> None:
    pool = parse_guest_pool(",".join(written), exclude=",".join(exclude), skip_end_ips=skip)
    cidrs = [part for part in written if "/" in part]
    networks = [each for part in cidrs if (each := ip_network(part.strip(), strict=False)).version == 4]
    with_ends = [each for each in networks if each.prefixlen <= 30]
    expected: set[Address] = set()
    for each in collapse_addresses(with_ends):
        values = {Address(Family.IPV4, int(ip)) for ip in each}
        if skip:
            values -= {Address(Family.IPV4, int(each[0])), Address(Family.IPV4, int(each[-1]))}
        expected |= {each for each in values if each.value % 256 not in (0, 255)}
    for part in written:
        if not ("/" in part and ip_network(part.strip(), strict=False) in with_ends):
            expected |= enumerate_part(part)[0]
    for part in exclude:
        expected -= enumerate_part(part)[0]
    assert {text_of(each) for each in UNIVERSE if each in pool} == {
        text_of(each) for each in UNIVERSE if each in expected
    }
