"""What becomes of keepalived's ConfigMap."""

import pytest

from fipop.cloudprovider.keepalived import (
    Held,
    KeepalivedOptions,
    Method,
    Plan,
    parse_network,
    read_held,
    render,
)
from fipop.ipam.addresses import Address, format_address, parse_address


@pytest.mark.parametrize(
    ("cidr", "first", "last"),
    [
        ("10.210.38.100/26", "10.210.38.65", "10.210.38.126"),
        ("10.0.0.9/32", "10.0.0.9", "10.0.0.9"),
        ("10.0.0.0/31", "10.0.0.0", "10.0.0.1"),
        ("10.0.0.0/8", "10.0.0.1", "10.255.255.254"),
        ("2001:db8::/126", "2001:db8::1", "2001:db8::2"),
    ],
)
def test_a_network_is_assigned_without_its_first_and_last_address(cidr: str, first: str, last: str) -> None:
    found = parse_network(cidr)
    ends = (format_address(Address(found.family, value)) for value in (found.first, found.last))
    assert tuple(ends) == (first, last)


def test_what_is_held_is_read_as_it_was_written() -> None:
    held = Held(uid="u", address=parse_address("10.0.0.1"), namespace="a", name="b", method=Method.DR)
    body = render({"metadata": {}}, Plan(options=KeepalivedOptions(), by_uid={"u": held}, foreign={}))
    assert read_held(body) == (held,)
