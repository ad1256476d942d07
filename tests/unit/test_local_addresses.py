"""Addresses to which nothing of a stranger's may lead, in every way that they are written."""

from ipaddress import IPv4Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.local_addresses import is_link_address, is_link_host, is_local_address

LOCAL = """
127.0.0.1 127.8.9.10 0.0.0.0 0.1.2.3 224.0.0.1 ::1 :: ff02::1 ::ffff:127.0.0.1 ::127.0.0.1 2002:7f00:1::
64:ff9b::7f00:1 64:ff9b:1:7f00:0:100:: ::ffff:0:127.0.0.1 2001:0:7f00:1::
"""
LINK = """
169.254.0.1 169.254.169.254 100.100.100.200 168.63.129.16 192.0.0.192 fe80::1 fd00:ec2::254 fd20:ce::254
::ffff:169.254.169.254 ::a9fe:a9fe 2002:a9fe:a9fe::1 64:ff9b::a9fe:a9fe 64:ff9b:1:a9fe:a9:fe00:: 64:ff9b:1::a9fe:a9fe
::ffff:0:a9fe:a9fe
"""
NETWORKS = """
10.43.0.1 192.168.1.1 8.8.8.8 fd00::1 2001:db8::1 ::ffff:10.0.0.1 2002:a00:1:: 64:ff9b::a00:1 64:ff9b:1:a00:0:100::
2600:1f18::1
"""
SPELLINGS = """
169.254.43518 0xa9fea9fe 2852039166 0251.0376.0251.0376 169.16689662 0xA9.254.0xa9.0376 fe80::1%eth0 169.254.169.254.
metadata.google.internal Metadata.Google.Internal.
"""


@pytest.mark.parametrize("address", [*LOCAL.split(), *LINK.split()])
def test_addresses_of_this_machine_its_link_and_metadata_services_are_local(address: str) -> None:
    assert is_local_address(ip_address(address))


@pytest.mark.parametrize("address", LINK.split())
def test_the_link_is_more_than_this_machine(address: str) -> None:
    assert is_link_address(ip_address(address))


@pytest.mark.parametrize("address", NETWORKS.split())
def test_addresses_of_networks_are_not_local(address: str) -> None:
    assert not is_local_address(ip_address(address))


@pytest.mark.parametrize("address", LOCAL.split())
def test_charts_may_come_from_this_machine(address: str) -> None:
    assert not is_link_host(address)


@pytest.mark.parametrize("host", [*LINK.split(), *SPELLINGS.split()])
def test_a_host_of_the_link_is_known_in_every_spelling(host: str) -> None:
    assert is_link_host(host)


@pytest.mark.parametrize(
    "host", ["charts.example", "10.0.0.1", "localhost", "1.2.3.4.5", "0xzz", "", "4294967296"]
)
def test_other_hosts_are_not(host: str) -> None:
    assert not is_link_host(host)


@given(st.text(max_size=80))
def test_any_text_can_be_asked_about(host: str) -> None:
    is_link_host(host)


@given(st.integers(min_value=0, max_value=2**32 - 1))
def test_an_ipv4_address_is_judged_the_same_in_every_dress(number: int) -> None:
    bare = IPv4Address(number)
    high, low = number >> 16, number & 0xFFFF
    dresses = [
        f"::ffff:{bare}",
        f"2002:{high:x}:{low:x}::",
        f"64:ff9b::{high:x}:{low:x}",
        f"64:ff9b:1::{high:x}:{low:x}",
        f"64:ff9b:1:{high:x}:{low >> 8:x}:{(low & 0xFF) << 8:x}::",
    ]
    if is_link_address(bare):
        assert all(is_link_address(ip_address(dress)) for dress in dresses)
