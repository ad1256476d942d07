from __future__ import annotations

import re
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.ipam.addresses import Address, Family, format_address, parse_address
from fipop.ipam.errors import IpamError, quote
from fipop.ipam.pool import MAX_PARTS, MAX_TEXT_LENGTH, Pool, parse_pool
from tests.harness.steps import count_steps
from tests.unit.ipam.naive import UNIVERSE, capacity_of, naive_pool, parts


def addresses(pool: Pool) -> list[str]:
    return [
        format_address(Address(family, value))
        for family in Family
        for value in pool.addresses.of(family).addresses()
    ]


@given(
    texts=st.lists(parts(), min_size=1, max_size=5),
    exclude=st.lists(parts(), max_size=3),
    skip=st.booleans(),
    avoid=st.booleans(),
)
def test_a_pool_is_the_enumerated_set_of_its_parts(
    texts: list[str], exclude: list[str], skip: bool, avoid: bool
):
    pool = parse_pool(" ,\t".join(texts), exclude=exclude, skip_end_ips=skip, avoid_buggy_ips=avoid)
    expected = naive_pool(texts, exclude, skip_end_ips=skip, avoid_buggy_ips=avoid)
    assert addresses(pool) == [format_address(each) for each in sorted(expected)]
    assert capacity_of(pool) == len(expected)
    for family in Family:
        assert capacity_of(pool, family) == sum(each.family is family for each in expected)
    for address in UNIVERSE:
        assert (address in pool) == (address in expected) == (pool.why_withheld(address) is None)


@given(texts=st.lists(parts(), min_size=1, max_size=4), others=st.lists(parts(), min_size=1, max_size=4))
def test_pools_overlap_where_their_enumerations_do(texts: list[str], others: list[str]):
    pool, other = parse_pool(",".join(texts), avoid_buggy_ips=True), parse_pool(",".join(others))
    expected = naive_pool(texts, avoid_buggy_ips=True) & naive_pool(others)
    assert (pool.addresses & other.addresses) == (other.addresses & pool.addresses)
    assert bool(pool.addresses & other.addresses) == bool(expected)
    assert sum((pool.addresses & other.addresses).of(family).count for family in Family) == len(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.7", ["10.0.0.7"]),
        ("10.0.0.7/32", ["10.0.0.7"]),
        ("10.0.0.6/31", ["10.0.0.6", "10.0.0.7"]),
        ("10.0.0.0/30", ["10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3"]),
        ("10.0.0.1-10.0.0.3", ["10.0.0.1", "10.0.0.2", "10.0.0.3"]),
        (" 10.0.0.1 - 10.0.0.2 ,\n 10.0.0.9 ", ["10.0.0.1", "10.0.0.2", "10.0.0.9"]),
        ("10.0.0.1 / 32", ["10.0.0.1"]),
        ("10.0.0.9,10.0.0.1,10.0.0.1-10.0.0.2", ["10.0.0.1", "10.0.0.2", "10.0.0.9"]),
        ("2001:db8::1,10.0.0.1", ["10.0.0.1", "2001:db8::1"]),
        ("2001:DB8::0:1-2001:db8::2", ["2001:db8::1", "2001:db8::2"]),
        ("::ffff:10.0.0.1", ["10.0.0.1"]),
        ("::ffff:10.0.0.1-10.0.0.2", ["10.0.0.1", "10.0.0.2"]),
        ("::ffff:10.0.0.0/127", ["10.0.0.0", "10.0.0.1"]),
        ("192.168.0.210/29", [f"192.168.0.{last}" for last in range(208, 216)]),
    ],
)
def test_the_grammar_reads_what_people_write(text: str, expected: list[str]):
    pool = parse_pool(text)
    assert addresses(pool) == expected
    assert pool.text == text


@pytest.mark.parametrize(
    ("text", "part", "position", "problem"),
    [
        ("", "", 1, "must not be empty"),
        ("10.0.0.1,", "", 2, "must not be empty"),
        ("10.0.0.1, ,10.0.0.2", "", 2, "must not be empty"),
        ("10.0.0.1,nonsense", "nonsense", 2, "is not an IPv4 or IPv6 address"),
        ("10.0.0.1,10.0.0.300/24", "10.0.0.300/24", 2, 'has "10.0.0.300", which is not an'),
        ("10.0.0.0/33", "10.0.0.0/33", 1, "from 0 to 32"),
        ("2001:db8::/129", "2001:db8::/129", 1, "from 0 to 128"),
        ("::ffff:10.0.0.0/95", "::ffff:10.0.0.0/95", 1, "from 96 to 128"),
        ("::ffff:10.0.0.0/24", "::ffff:10.0.0.0/24", 1, "from 96 to 128"),
        ("10.0.0.0/-1", "10.0.0.0/-1", 1, 'has "10.0.0.0/", which'),
        ("10.0.0.0/024", "10.0.0.0/024", 1, "decimal number"),
        ("10.0.0.0/255.255.255.0", "10.0.0.0/255.255.255.0", 1, "decimal number"),
        ("10.0.0.0/", "10.0.0.0/", 1, "decimal number"),
        ("10.0.0.0/٢٤", "10.0.0.0/٢٤", 1, "decimal number"),
        ("10.0.0.0/24/25", "10.0.0.0/24/25", 1, "decimal number"),
        ("/24", "/24", 1, 'has "", which is not an'),
        ("10.0.0.9-10.0.0.1", "10.0.0.9-10.0.0.1", 1, "must not end below its first"),
        ("10.0.0.1-2001:db8::1", "10.0.0.1-2001:db8::1", 1, "must not mix IPv4 and IPv6"),
        ("10.0.0.1-", "10.0.0.1-", 1, 'has "", which'),
        ("10.0.0.1-10.0.0.2-10.0.0.3", "10.0.0.1-10.0.0.2-10.0.0.3", 1, 'has "10.0.0.2-10.0.0.3"'),
        ("10.0.0.1-20", "10.0.0.1-20", 1, 'has "20", which'),
        ("10.0.0.0/24-10.0.1.0/24", "10.0.0.0/24-10.0.1.0/24", 1, 'has "10.0.0.0/24"'),
        ("fe80::1%eth0/64", "fe80::1%eth0/64", 1, "zone id"),
        ("010.0.0.1", "010.0.0.1", 1, "leading zeros"),
        ("10.0.0.1;10.0.0.2", "10.0.0.1;10.0.0.2", 1, "must be separated by commas"),
        ("0.0.0.0/32", "0.0.0.0/32", 1, "DHCP"),
        ("224.0.5.0/28", "224.0.5.0/28", 1, "multicast"),
        ("10.0.0.1,239.255.255.255", "239.255.255.255", 2, "multicast"),
        ("127.0.5.0/28", "127.0.5.0/28", 1, "loopback"),
        ("169.254.1.1-169.254.1.9", "169.254.1.1-169.254.1.9", 1, "link-local"),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1", 1, "loopback"),
        ("ff02::/120", "ff02::/120", 1, "multicast"),
        ("::1", "::1", 1, "loopback"),
        ("fe80::/64", "fe80::/64", 1, "link-local"),
        ("::/128", "::/128", 1, "unspecified"),
    ],
)
def test_a_wrong_part_is_quoted_with_its_position(text: str, part: str, position: int, problem: str):
    with pytest.raises(IpamError) as caught:
        parse_pool(text)
    assert str(caught.value).startswith(f'part {position} of the pool, "{part}", ')
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["126.0.0.1", "128.0.0.1", "169.253.0.1", "223.255.255.255", "240.0.0.1", "::2", "fec0::1", "fd00::1"],
)
def test_addresses_beside_those_for_other_purposes_can_be_assigned(text: str):
    assert addresses(parse_pool(text)) == [text]


def test_a_wrong_exclusion_is_told_by_its_number_and_part():
    with pytest.raises(IpamError, match='part 2 of exclusion 3, "x"'):
        parse_pool("10.0.0.0/24", exclude=["10.0.0.1", "10.0.0.2", "10.0.0.3,x"])


def test_a_message_stays_short_and_printable_whatever_was_written():
    with pytest.raises(IpamError) as caught:
        parse_pool("\x1b[31m" + "x" * 200_000)
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()


# Host bits


def test_host_bits_are_masked_and_said_so():
    """kube-fip-operator took 10.0.0.200/24 for the 55 addresses from .200 on, and its metric said 254."""
    pool = parse_pool("10.9.0.1, 10.0.0.200/24, ::ffff:10.1.0.9/120", skip_end_ips=True)
    assert capacity_of(pool) == 1 + 254 + 254
    assert pool.masked == (
        "10.0.0.200/24 means 10.0.0.0/24",
        "::ffff:10.1.0.9/120 means 10.1.0.0/24",
    )


def test_a_network_address_is_no_masked_part():
    assert parse_pool("10.0.0.0/24,2001:db8::/64,10.0.0.1/32,10.0.0.1").masked == ()


# IPv6


def test_no_ipv6_pool_holds_addresses_that_are_read_as_ipv4():
    pool = parse_pool("::fffe:ffff:ffff-::1:0:0:0")
    assert capacity_of(pool) == 2
    assert addresses(pool) == ["::fffe:ffff:ffff", "::1:0:0:0"]
    assert parse_address("::ffff:1.2.3.4") not in parse_pool("::/0")


# Size


@pytest.mark.parametrize(
    ("text", "capacity"),
    [
        ("0.0.0.0/0", 2**32),
        ("10.0.0.0/8", 2**24),
        ("2001:db8::/64", 2**64 - 1),
        ("2001:db8::/32", 2**96 - 1),
        # without the anycast address :: and the IPv4-mapped ones
        ("::/0", 2**128 - 1 - 2**32),
        ("::/0,0.0.0.0/0", 2**128 - 1),
    ],
)
def test_huge_pools_are_counted_exactly_in_constant_memory(text: str, capacity: int):
    tracemalloc.start()
    try:
        assert capacity_of(parse_pool(text)) == capacity
        assert tracemalloc.get_traced_memory()[1] < 64 * 1024
    finally:
        tracemalloc.stop()


def many_parts(count: int) -> str:
    return ",".join(f"10.{number >> 8}.{number & 255}.8/30" for number in range(count))


def test_as_many_parts_as_allowed_are_read_and_one_more_is_refused():
    assert capacity_of(parse_pool(many_parts(MAX_PARTS))) == 4 * MAX_PARTS
    problem = f"must have at most {MAX_PARTS} parts: it has {MAX_PARTS + 1}"
    with pytest.raises(IpamError, match=f"the pool {problem}"):
        parse_pool(many_parts(MAX_PARTS + 1))
    with pytest.raises(IpamError, match=f"the exclusions {problem}"):
        parse_pool("10.0.0.0/8", exclude=[many_parts(MAX_PARTS), "10.0.0.1"])


def test_as_much_text_as_allowed_is_read_and_more_is_refused():
    padded = "10.0.0.1".rjust(MAX_TEXT_LENGTH)
    assert capacity_of(parse_pool(padded)) == 1
    problem = f"must have at most {MAX_TEXT_LENGTH} characters"
    with pytest.raises(IpamError, match=f"the pool {problem}: it has {MAX_TEXT_LENGTH + 1}"):
        parse_pool(padded + " ")
    with pytest.raises(IpamError, match=f"the exclusions {problem}"):
        parse_pool("10.0.0.1", exclude=[padded, padded])


def read_whatever(text: str) -> None:
    with suppress(IpamError):
        parse_pool(text, skip_end_ips=True, avoid_buggy_ips=True)


def count_bytes(text: str) -> int:
    tracemalloc.start()
    try:
        read_whatever(text)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "text",
    [
        "x" * MAX_TEXT_LENGTH,
        ":" * MAX_TEXT_LENGTH,
        "-" * MAX_TEXT_LENGTH,
        "/" * MAX_TEXT_LENGTH,
        " " * MAX_TEXT_LENGTH,
        "1." * (MAX_TEXT_LENGTH // 2),
        "10.0.0.0/" + "9" * (MAX_TEXT_LENGTH - 10),
        "," * (MAX_PARTS - 1),
        "," * MAX_TEXT_LENGTH,
        "x" * 2**20,
        "::/0," * 5_000 + "::/0",
        ",".join(["0.0.0.0/0"] * 10_000),
    ],
    ids=lambda text: f"{text[:9]}x{len(text)}",
)
def test_hostile_texts_are_answered_at_once_and_in_little_memory(text: str):
    assert count_steps(lambda: read_whatever(text)) < 200 * MAX_PARTS, "so much for each part, and no more"
    assert count_bytes(text) < 16 * 2**20


PIECES = st.sampled_from(
    [
        "10.0.0.0/8",
        "10.0.0.1",
        "-",
        "/",
        ",",
        " ",
        "::",
        "::/0",
        "ffff",
        ".",
        "%",
        "0",
        "255",
        "/33",
        "1-2",
        "é",
        "\n",
    ]
)


@given(st.text() | st.lists(PIECES, max_size=12).map("".join), st.booleans(), st.booleans())
def test_any_text_is_a_pool_or_an_error_that_names_a_part(text: str, skip: bool, avoid: bool):
    problem = ""
    try:
        pool = parse_pool(text, skip_end_ips=skip, avoid_buggy_ips=avoid)
    except IpamError as error:
        problem = str(error)
    if problem:
        named = re.match(r"part (\d+) of the pool, ", problem)
        assert named is not None
        part = text.split(",")[int(named[1]) - 1].strip()
        assert problem.removeprefix(named[0]).startswith(f"{quote(part)}, ")
        return
    assert parse_pool(pool.text, skip_end_ips=skip, avoid_buggy_ips=avoid) == pool
    assert capacity_of(pool) >= 0
