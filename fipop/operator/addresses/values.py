"""The values that a decision about a floating IP is made from, and questions that values alone answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from fipop.api import names
from fipop.api.models import FloatingIP, FloatingIPStatus, Owner, Removal, Reservation
from fipop.api.names import DEFAULT_ADDRESS_SPACE
from fipop.errors import FipopError
from fipop.ipam.addresses import Address, Family, FamilyPolicy, format_address, parse_address
from fipop.ipam.errors import AddressOutOfRangeError, IpamError
from fipop.rancher.objects import ProvisioningCluster
from fipop.state.claims import read_addresses
from fipop.state.observations import GuestObservation
from fipop.texts import sentence

BOTH = (Family.IPV4, Family.IPV6)

FindCarriers = Callable[[Reservation, Iterable[str]], Awaitable[Mapping[str, str]]]
"""Returns the guest clusters that use the address of a reservation, each with a sentence.

It is also called with those whose floating IPs wait for the address.
"""


class SpecError(FipopError):
    """The spec of a floating IP contradicts itself; the message quotes the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """Why a floating IP does not have all that it asks for."""

    reason: str
    """The reason of its condition."""
    message: str
    tolerable: bool = False
    """One family is enough: the request is fulfilled as long as there is an address."""
    checked_at: datetime | None = None
    """From then on fipop checks whether it still holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestBinding:
    """The provisioning Cluster that a floating IP's namespace belongs to; None, with the reason, if there is none."""

    cluster: ProvisioningCluster | None
    blocker: Blocker | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the spec of a floating IP asks for."""

    static: Mapping[Family, Address]
    """The addresses that it names."""
    families: tuple[Family, ...]
    """In the order of the spec."""
    policy: FamilyPolicy | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """How many addresses of a range a guest cluster can have, and those that it has or asks for, by reservation."""

    limit: int
    reserved: frozenset[str]
    """Held, and in quarantine: else a floating IP that is created and deleted in a loop would empty the range.

    What was merely found in the guest cluster no floating IP has had, and none can free.
    """
    claimed: frozenset[str]

    @property
    def room(self) -> int:
        """How many more addresses it can have."""
        return self.limit - len(self.reserved | self.claimed)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeFacts:
    """The range that serves a floating IP."""

    name: str
    space: str
    families: frozenset[Family]
    restricted: Blocker | None
    """Why it assigns nothing to this guest cluster."""
    quota: Quota | None
    free: Mapping[Family, Address | Blocker]
    """The address to claim next, or why there is none, of each wanted family of which it does not hold all there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressFacts:
    """What is known here of one address, as far as it concerns a floating IP that names it."""

    refused: Blocker | None
    """Why the range that serves does not assign it, in use or not."""
    taken: Blocker | None
    """The reservation, or the status of another floating IP, that keeps it from this one, as far as is known here."""
    is_anothers: bool = False
    """It is in quarantine after another floating IP: this one can only have it if it asks for it by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that a decision about a floating IP rests on."""

    floating_ip: FloatingIP
    is_live: bool
    """It was just read."""
    is_inherited: bool
    """The addresses of its spec came from the predecessor."""
    owner: Owner
    """The floating IP as the owner to write."""
    own: tuple[Reservation, ...]
    """The reservations that name it as their owner, in quarantine too."""
    held: tuple[Reservation, ...]
    """Those that it holds, as the floating IP of today sees them."""
    fresh: frozenset[str]
    """The names of those that this process wrote less than NAMING_SECONDS ago."""
    unsafe_for: Mapping[str, float]
    """For how many seconds each must not be released yet, by name."""
    request: Request | Blocker
    range: RangeFacts | Blocker
    addresses: Mapping[str, AddressFacts]
    """By the name of the reservation: those that the spec or the status names, that are held or could be claimed."""
    binding: GuestBinding
    is_guest_known: bool
    """Also that there is none."""
    observation: GuestObservation | None
    removal: Removal | None
    """What the status records of the removal of the guest cluster's releases."""
    is_gate_open: bool
    written: str
    """The spec.ipaddress that this process wrote last; "" if it wrote none."""
    write_backs: int
    """How many times it was written again after another writer changed it back."""
    now: datetime


# Blockers


def blocker_of(error: IpamError) -> Blocker:
    """Return the blocker for an error of the core: its class is the reason."""
    remedy = ". Choose another address or range" if isinstance(error, AddressOutOfRangeError) else ""
    return Blocker(reason=type(error).__name__.removesuffix("Error"), message=sentence(f"{error}{remedy}"))


def format_time(at: datetime) -> str:
    """Return a time as the messages of conditions show it."""
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")


def describe_holder(reservation: Reservation, carrier: str | None = None) -> Blocker:
    """Return the blocker for an address that another has; `carrier` (a sentence) extends its quarantine."""
    text = format_address(address_of(reservation))
    holder = f"{reservation.owner.namespace}/{reservation.owner.name}".rstrip("/")
    cluster = f' of cluster "{reservation.owner.cluster}"' if reservation.owner.cluster else ""
    if reservation.quarantined_until is None:
        message = f"Address {text} is held by FloatingIP {holder}{cluster}. Choose another address, or delete that one."
        return Blocker(reason="AddressInUse", message=message)
    message = f"Address {text} is in quarantine until {format_time(reservation.quarantined_until)} or later: "
    message += sentence(carrier) if carrier else f"FloatingIP {holder}{cluster} held it."
    checked_at = None if carrier else reservation.quarantined_until
    return Blocker(reason="AddressQuarantined", message=message, checked_at=checked_at)


def describe_conflicting_owner(holder: tuple[str, str], address: Address) -> Blocker:
    """Return the blocker for another's address whose reservation is missing and will be made again."""
    message = (
        f"Address {format_address(address)} is held by FloatingIP {'/'.join(holder)}. Choose another address."
    )
    return Blocker(reason="AddressInUse", message=message)


# Requests


def read_request(floating_ip: FloatingIP) -> Request:
    """Read the spec; SpecError if it holds no address or contradicts itself."""
    static: dict[Family, Address] = {}
    for part in floating_ip.ipaddress.split(",") if floating_ip.ipaddress.strip() else ():
        try:
            address = parse_address(part)
        except IpamError as error:
            raise SpecError(f"spec.ipaddress must hold IPv4 or IPv6 addresses: {error}") from error
        if address.family in static:
            text = floating_ip.ipaddress[:100]
            raise SpecError(
                f'spec.ipaddress must name at most one {address.family.label} address: it is "{text}"'
            )
        static[address.family] = address
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


def needs_every_family(request: Request) -> bool:
    """Return whether both families are required: RequireDualStack, or two named families without a policy.

    A Service without a policy is read the same way.
    """
    if request.policy is not None:
        return request.policy is FamilyPolicy.REQUIRE_DUAL_STACK
    return len(request.families) == len(BOTH) or len(request.static) == len(BOTH)


def wanted_families(
    request: Request, available: frozenset[Family], held: frozenset[Family]
) -> tuple[Family, ...]:
    """Return the families to hold an address of, IPv4 first; the range has addresses of `available`.

    What is held stays if the spec does not name families.
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


# Owners


def is_made_by_us(floating_ip: FloatingIP) -> bool:
    """Return whether fipop, or the predecessor, made it for a new guest: its address was chosen, not asked for."""
    return floating_ip.name == f"{floating_ip.cluster}{names.FLOATING_IP_SUFFIX}"


def is_settled(floating_ip: FloatingIP, own: Iterable[Reservation]) -> bool:
    """Return whether its reservations, its status and its spec agree, so that nothing is left to claim."""
    held = [each for each in own if each.is_held]
    named = read_addresses(floating_ip.status.addresses)
    space = space_named(floating_ip.status)
    return (
        bool(held)
        and floating_ip.status.observed_generation == floating_ip.meta.generation
        and floating_ip.range in (None, floating_ip.status.range)
        and all(each.owner.uid == floating_ip.uid and each.space == space for each in held)
        and frozenset(address_of(each) for each in held) == named
        and read_addresses(floating_ip.ipaddress.split(",")) == named
    )


def is_named(floating_ip: FloatingIP, reservation: Reservation) -> bool:
    """Return whether the status of a floating IP names what is reserved."""
    status = floating_ip.status
    is_there = space_named(status) == reservation.space
    return is_there and address_of(reservation) in read_addresses(status.addresses)


def space_named(status: FloatingIPStatus) -> str:
    """Return the address space of what a status names."""
    return status.address_space or DEFAULT_ADDRESS_SPACE


def address_of(reservation: Reservation) -> Address:
    """Return the address of a reservation."""
    return parse_address(reservation.address)
