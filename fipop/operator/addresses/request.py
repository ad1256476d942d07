"""What a FloatingIP asks for, read from its spec: families, addresses, policy. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fipop.api.models import FloatingIP
from fipop.errors import FipopError, IpamError
from fipop.ipam.addresses import Address, Family, FamilyPolicy, parse_address

BOTH = (Family.IPV4, Family.IPV6)


class SpecError(FipopError):
    """The spec of a floating IP asks for what cannot be; the message quotes the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The wish of a floating IP: the addresses that it names, by family; families in the order of the spec."""

    static: Mapping[Family, Address]
    families: tuple[Family, ...]
    policy: FamilyPolicy | None


def read_request(floating_ip: FloatingIP) -> Request:
    """Read the spec; SpecError where it holds no address or contradicts itself."""
    static = _read_addresses(floating_ip.ipaddress)
    families = tuple(Family(number) for number in dict.fromkeys(floating_ip.ip_families))
    policy = floating_ip.ip_family_policy
    if policy is FamilyPolicy.SINGLE_STACK and len(static) == len(BOTH):
        raise SpecError("spec.ipaddress must name one address if spec.ipFamilyPolicy is SingleStack")
    if len(families) == 1 and policy in {None, FamilyPolicy.SINGLE_STACK}:
        for family in static.keys() - set(families):
            raise SpecError(
                f"spec.ipaddress must be an {families[0].label} address, as in spec.ipFamilies: it is {family.label}"
            )
    return Request(static=static, families=families, policy=policy)


def _read_addresses(text: str) -> dict[Family, Address]:
    found: dict[Family, Address] = {}
    for part in text.split(",") if text.strip() else ():
        try:
            address = parse_address(part)
        except IpamError as error:
            raise SpecError(f"spec.ipaddress must hold IPv4 or IPv6 addresses: {error}") from error
        if address.family in found:
            raise SpecError(
                f'spec.ipaddress must name at most one {address.family.label} address: it is "{text[:100]}"'
            )
        found[address.family] = address
    return found


def needs_every_family(request: Request) -> bool:
    """Whether one family without the other will not do: RequireDualStack, which two named families mean too.

    A Service without a policy is read the same way.
    """
    if request.policy is not None:
        return request.policy is FamilyPolicy.REQUIRE_DUAL_STACK
    return len(request.families) == len(BOTH) or len(request.static) == len(BOTH)


def wanted_families(
    request: Request, available: frozenset[Family], held: frozenset[Family]
) -> tuple[Family, ...]:
    """Give the families to hold an address of, IPv4 first; the range has addresses of `available`.

    What is held stays where the spec does not speak of families.
    """
    if needs_every_family(request):
        return BOTH
    if request.policy is FamilyPolicy.PREFER_DUAL_STACK:
        return tuple(sorted(available | held | request.static.keys())) or (Family.IPV4,)
    if request.static:
        return tuple(sorted(request.static))
    if request.families:
        return request.families[:1]
    if held:
        single = request.policy is FamilyPolicy.SINGLE_STACK
        return (min(held),) if single else tuple(sorted(held))
    return (min(available, default=Family.IPV4),)


def in_order(request: Request, addresses: Mapping[Family, Address]) -> tuple[Address, ...]:
    """Put addresses in the order of `ipFamilies`; IPv4 first where it does not say."""
    first = request.families[0] if request.families else Family.IPV4
    return tuple(
        addresses[family] for family in sorted(addresses, key=lambda family: (family != first, family))
    )
