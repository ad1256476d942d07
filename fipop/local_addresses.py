"""Addresses that nothing of a stranger's may lead to: this machine, its link, a cloud's metadata service.

However they are written: an IPv4 address stands in IPv6 ones of six kinds, and routers or kernels unwrap each of them.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address

_METADATA = frozenset(
    ip_address(text)
    for text in ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254")
)
"""Where clouds answer with machine credentials outside 169.254.0.0/16 (Alibaba, Azure, Oracle, AWS, Google)."""
_METADATA_NAMES = frozenset({"metadata.google.internal", "metadata.goog", "instance-data"})

_COMPATIBLE = IPv6Network("::/96")
_TRANSLATED = IPv6Network("::ffff:0:0:0/96")
_NAT64 = IPv6Network("64:ff9b::/96")
_NAT64_LOCAL = IPv6Network("64:ff9b:1::/48")
_THIS_NETWORK = IPv4Network("0.0.0.0/8")


def is_local_address(address: Address) -> bool:
    """Whether an address is this machine, its link, or a cloud's metadata service, however it is written."""
    return (
        address.is_loopback
        or address.is_multicast
        or address.is_unspecified
        or (isinstance(address, IPv4Address) and address in _THIS_NETWORK)
        or is_link_address(address)
        or any(map(is_local_address, _embedded(address)))
    )


def is_link_address(address: Address) -> bool:
    """Whether an address is of the link, where metadata services live, or one of theirs elsewhere."""
    return address.is_link_local or address in _METADATA or any(map(is_link_address, _embedded(address)))


def is_link_host(host: str) -> bool:
    """Whether the host of a URL is such an address or a name of one.

    Also in the ways that only some resolvers read: a number, in octal or hexadecimal, or with fewer dots.
    """
    name = host.rstrip(".").lower()
    if name in _METADATA_NAMES:
        return True
    try:
        address: Address = ip_address(name.partition("%")[0])
    except ValueError:
        loose = _read_loosely(name)
        if loose is None:
            return False
        address = loose
    return is_link_address(address)


def _embedded(address: Address) -> tuple[IPv4Address, ...]:
    """Give the IPv4 addresses that an IPv6 address stands for, by what may be on the way."""
    if isinstance(address, IPv4Address):
        return ()
    number = int(address)
    found: list[IPv4Address | None] = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    # `::` and `::1` are addresses of their own.
    if (address in _COMPATIBLE and number > 1) or address in _TRANSLATED or address in _NAT64:
        found.append(IPv4Address(number & 0xFFFFFFFF))
    if address in _NAT64_LOCAL:
        # RFC 6052: 16 bits, 8 that are zero, 16 bits behind a /48; or the last 32 behind a /96 of it.
        found.append(IPv4Address((number >> 64 & 0xFFFF) << 16 | (number >> 40 & 0xFFFF)))
        found.append(IPv4Address(number & 0xFFFFFFFF) if number & 0xFFFFFFFF else None)
    return tuple(each for each in found if each is not None)


def _read_loosely(host: str) -> IPv4Address | None:
    """Read an address as `inet_aton` does: one to four numbers, decimal, octal (0…) or hexadecimal (0x…)."""
    parts = host.split(".")
    if len(parts) > 4 or any(not part or len(part) > 16 for part in parts):
        return None
    try:
        numbers = [
            int(part, 0 if part.startswith("0x") else 8 if part.startswith("0") else 10) for part in parts
        ]
    except ValueError:
        return None
    value = 0
    for number in numbers[:-1]:
        value = value << 8 | number
    value = value << 8 * (5 - len(parts)) | numbers[-1]
    return IPv4Address(value) if 0 <= value < 1 << 32 else None
