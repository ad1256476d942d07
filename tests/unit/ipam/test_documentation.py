"""The tables of docs/reference/pool-syntax.md, row by row."""

from __future__ import annotations

from pathlib import Path

import pytest

from fipop.cloudprovider.allocate import ServiceRequest, allocate
from fipop.cloudprovider.pools import PoolKeys
from fipop.cloudprovider.usage import Usage, User
from fipop.ipam.addresses import Address, Family, format_address
from fipop.ipam.errors import IpamError
from fipop.ipam.pool import parse_pool
from tests.unit.ipam.naive import capacity_of

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "pool-syntax.md").read_text(encoding="utf-8")


def table(header: str) -> list[list[str]]:
    """The rows of the table whose header begins so."""
    lines = PAGE.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(header)) + 2
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            return rows
        rows.append([cell.strip().strip("`") for cell in line.strip("|").split("|")])
    return rows


@pytest.mark.parametrize("row", table("| pool | exclude |"), ids=lambda row: " ".join(row[:4]))
def test_each_pool_of_the_page_has_the_capacity_and_the_ends_it_tells(row: list[str]):
    text, exclude, skip, avoid, capacity, first, last = row
    pool = parse_pool(
        text,
        exclude=[exclude] if exclude else [],
        skip_end_ips=skip == "yes",
        avoid_buggy_ips=avoid == "yes",
    )
    assert str(capacity_of(pool)) == capacity
    families = pool.families
    ends = [
        Address(families[0], next(pool.addresses.of(families[0]).addresses())),
        Address(families[-1], next(pool.addresses.of(families[-1]).addresses(descending=True))),
    ]
    assert [format_address(end) for end in ends] == [first, last]


@pytest.mark.parametrize("row", table("| part |"), ids=lambda row: row[0])
def test_each_part_means_what_the_page_says(row: list[str]):
    part, meaning = row
    values = list(parse_pool(part).addresses.v4.addresses())
    first, last = (format_address(Address(Family.IPV4, value)) for value in (values[0], values[-1]))
    if len(values) == 1:
        assert first in (meaning.rpartition(" ")[2], part)
    elif "-" in part:
        assert part == f"{first}-{last}"
    else:
        assert f"{first} to {last}" in meaning


@pytest.mark.parametrize("row", table("| pool | message |"), ids=lambda row: row[0])
def test_each_wrong_pool_gets_the_message_that_the_page_shows(row: list[str]):
    text, message = row
    with pytest.raises(IpamError) as caught:
        parse_pool(text)
    assert str(caught.value) == message


def test_services_share_addresses_as_the_page_shows():
    usage, pool = Usage(), PoolKeys({"range-global": "10.0.0.1-10.0.0.9"}).pool_of("shop")
    rows = table("| owner | ports |")
    assert len(rows) == 6
    for owner, ports_text, expected in rows:
        pairs = (port.split("/") for port in ports_text.split())
        ports = frozenset((int(number), protocol) for number, protocol in pairs)
        user = User(uid=owner, name=owner, ports=ports, shares=True)
        answer = allocate(ServiceRequest(user=user, families=(Family.IPV4,)), pool, usage)
        assert isinstance(answer, tuple)
        usage.enter(user, answer)
        assert format_address(answer[0]) == expected
