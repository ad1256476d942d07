"""What the spec of a floating IP asks for, and why it does not get it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from fipop.addresses.claims import address_of
from fipop.addresses.inventory import Inventory
from fipop.api import names
from fipop.api.objects import FloatingIP, FloatingIPReservation
from fipop.api.service import VIP_HOST
from fipop.ipam.addresses import Address, Family, FamilyPolicy, format_address, parse_address
from fipop.ipam.errors import AddressOutOfRangeError, IpamError, UnreadableSpecError
from fipop.rancher.objects import ProvisioningCluster, show_name
from fipop.texts import find_alike, sentence

BOTH = (Family.IPV4, Family.IPV6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """Why a floating IP does not have all that it asks for."""

    reason: str
    """The reason of its condition."""
    message: str
    is_tolerable: bool = False
    """The floating IP is content with what it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressRequest:
    """What the spec of a floating IP asks for."""

    static: Mapping[Family, Address]
    """The addresses that it names."""
    families: tuple[Family, ...] = ()
    """In the order of the spec."""
    policy: FamilyPolicy | None = None

    @property
    def needs_both(self) -> bool:
        """Whether both families are required: RequireDualStack, or two families without a policy, as in a Service."""
        if self.policy is not None:
            return self.policy is FamilyPolicy.REQUIRE_DUAL_STACK
        return len(self.families) == len(BOTH) or len(self.static) == len(BOTH)

    @property
    def is_flexible(self) -> bool:
        """Whether one family is enough."""
        return self.policy is FamilyPolicy.PREFER_DUAL_STACK

    def wanted(self, available: frozenset[Family], held: frozenset[Family]) -> tuple[Family, ...]:
        """Return the families to hold an address of, IPv4 first, in a range that has `available`.

        What is `held` there stays if the spec does not name families.
        """
        if self.needs_both:
            return BOTH
        if self.is_flexible:
            return tuple(sorted(available | held | self.static.keys())) or (Family.IPV4,)
        if self.static:
            return tuple(sorted(self.static))
        if self.families:
            return self.families[:1]
        if held:
            return (min(held),) if self.policy is FamilyPolicy.SINGLE_STACK else tuple(sorted(held))
        return (min(available, default=Family.IPV4),)


def read_request(floating_ip: FloatingIP) -> AddressRequest | Blocker:
    """Read the spec, or return why it cannot be followed."""
    if floating_ip.problem:
        return describe_invalid(floating_ip.problem)
    static: dict[Family, Address] = {}
    for part in floating_ip.spec.ipaddress.split(",") if floating_ip.spec.ipaddress.strip() else ():
        try:
            address = parse_address(part)
        except IpamError as error:
            return describe_invalid(f"spec.ipaddress must hold IPv4 or IPv6 addresses: {error}")
        if address.family in static:
            text = floating_ip.spec.ipaddress[:100]
            return describe_invalid(
                f'spec.ipaddress must name at most one {address.family.label} address: it is "{text}"'
            )
        static[address.family] = address
    families = tuple(dict.fromkeys(floating_ip.spec.ip_families))
    policy = floating_ip.spec.ip_family_policy
    if policy is FamilyPolicy.SINGLE_STACK and len(static) == len(BOTH):
        return describe_invalid("spec.ipaddress must name one address if spec.ipFamilyPolicy is SingleStack")
    if len(families) == 1 and policy in {None, FamilyPolicy.SINGLE_STACK}:
        for family in static.keys() - set(families):
            return describe_invalid(
                f"spec.ipaddress must be an {families[0].label} address, as in spec.ipFamilies: it is {family.label}"
            )
    return AddressRequest(static=static, families=families, policy=policy)


def is_made_by_us(floating_ip: FloatingIP) -> bool:
    """Return whether fipop, or kube-fip-operator, made it for a new guest cluster: its address was chosen."""
    return floating_ip.name == f"{floating_ip.cluster}{names.FLOATING_IP_SUFFIX}"


# Blockers


def blocker_of(error: IpamError) -> Blocker:
    """Return the blocker for an error of the core: its class is the reason."""
    remedy = ". Choose another address or range" if isinstance(error, AddressOutOfRangeError) else ""
    return Blocker(reason=type(error).__name__.removesuffix("Error"), message=sentence(f"{error}{remedy}"))


def show_time(at: datetime) -> str:
    """Return a time as the messages of conditions show it."""
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")


def describe_invalid(problem: str) -> Blocker:
    """Return the blocker for a spec that cannot be followed."""
    return Blocker(reason="InvalidSpec", message=f"The FloatingIP is invalid: {problem}.")


def describe_holder(reservation: FloatingIPReservation, user: str = "") -> Blocker:
    """Return the blocker for an address that another floating IP holds, or held; `user` says what still uses it."""
    address, owner, until = (
        address_of(reservation),
        reservation.spec.owner,
        reservation.spec.quarantined_until,
    )
    cluster = show_name(f'"{owner.cluster}"', owner.display_name)
    holder = "/".join(owner.key) + (f" of cluster {cluster}" if owner.cluster else "")
    if until is None:
        return _describe_held(address, holder)
    message = f"Address {format_address(address)} is in quarantine until {show_time(until)} or later: "
    message += user or f"FloatingIP {holder} held it."
    return Blocker(reason="AddressQuarantined", message=message)


def describe_user(inventory: Inventory, guest_id: str, address: Address) -> str:
    """Return what uses an address in a guest cluster, as a sentence; "" if the last visit found nothing."""
    user = inventory.reports.find_user(guest_id, address)
    if user is None:
        return ""
    guest = inventory.show_guest(guest_id)
    if not user.node:
        return f"{user} in guest cluster {guest} uses it."
    return (
        f"{user} in guest cluster {guest} left type LoadBalancer, and kube-vip before v1.2.4 announces it on. "
        f"Restart kube-vip on node {user.node}, remove the address there if it stays (ip address del), and then the "
        f"annotation {VIP_HOST} of the Service."
    )


def describe_wait(inventory: Inventory, reservation: FloatingIPReservation) -> str:
    """Return what a quarantine waits for in its guest cluster, as a sentence; "" if nothing is known of that."""
    guest_id = reservation.spec.owner.namespace
    unread_since = inventory.reports.unread_since(guest_id)
    if unread_since is not None:
        return (
            f"guest cluster {inventory.show_guest(guest_id)} could not be read since {show_time(unread_since)}. "
            "Check that it answers, or choose another address."
        )
    if not inventory.was_read_after(reservation):
        return ""
    address = address_of(reservation)
    user, text = inventory.reports.find_user(guest_id, address), describe_user(inventory, guest_id, address)
    # The sentence about an address that a node may announce still has its own remedy.
    return (
        f"{text} Remove it there, or choose another address." if user is not None and not user.node else text
    )


def describe_namer(floating_ip: FloatingIP, address: Address) -> Blocker:
    """Return the blocker for an address of another floating IP, whose reservation is missing and is made again."""
    return _describe_held(address, "/".join(floating_ip.key))


def _describe_held(address: Address, holder: str) -> Blocker:
    text = format_address(address)
    message = f"Address {text} is held by FloatingIP {holder}. Choose another address, or delete that one."
    return Blocker(reason="AddressInUse", message=message)


def describe_stranger(floating_ip: FloatingIP, clusters: Iterable[ProvisioningCluster]) -> Blocker:
    """Return the blocker for a floating IP outside the namespaces of guest clusters.

    It is for the cluster that it names, or its namespace has the name of the cluster instead of its id.
    """
    named = [each for each in clusters if each.cluster_name]
    known = {each.name: each.cluster_name for each in named}
    for each in named:
        known.setdefault(each.display_name or each.name, each.cluster_name)
    like = find_alike(floating_ip.cluster or floating_ip.namespace, known)
    question = f' (did you mean "{known[like]}", that of cluster "{like}"?)' if like else ""
    message = (
        f'Namespace "{floating_ip.namespace}" belongs to no guest cluster{question}: no Cluster names it in '
        "status.clusterName. Create the FloatingIP in the namespace of a guest cluster."
    )
    return Blocker(reason="GuestNotFound", message=message)


def describe_reporter(guest: str, address: Address) -> Blocker:
    """Return the blocker for an address that another guest cluster uses; `guest` is how that is shown."""
    message = (
        f"Address {format_address(address)} is used by guest cluster {guest}. Remove it there, or set annotation "
        f"{names.ANNOTATION_IGNORE_CLAIM} to the id of that guest cluster."
    )
    return Blocker(reason="AddressInUse", message=message)


def describe_problem(name: str, problem: IpamError | None, reason: str) -> Blocker:
    """Return why a range cannot be read."""
    remedy = "it" if isinstance(problem, UnreadableSpecError) else "spec.iprange or spec.exclude"
    return Blocker(reason=reason, message=f'Range "{name}" is invalid: {problem}. Correct {remedy}.')
