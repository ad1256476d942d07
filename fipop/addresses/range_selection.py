"""Which range serves a floating IP."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fipop.addresses.claims import address_of, read_addresses
from fipop.addresses.inventory import Inventory
from fipop.addresses.request import AddressRequest, Blocker, describe_stranger
from fipop.api import names
from fipop.api.objects import FloatingIP, FloatingIPRange, FloatingIPReservation
from fipop.ipam.addresses import Address, Family
from fipop.rancher.matching import (
    Guest,
    NoRange,
    describe_misfit,
    find_name_hint,
    is_allowed,
    is_on_network,
    match_ranges,
    would_be_chosen,
)
from fipop.texts import suggest

MOST_NAMED = 3
"""How many ranges that do not serve a guest cluster a message names."""

ANY_ADDRESS = AddressRequest(static={})
"""What a new floating IP asks for."""


def choose_for_guest(
    inventory: Inventory, guest: Guest, request: AddressRequest = ANY_ADDRESS
) -> list[tuple[FloatingIPRange, NoRange | None]]:
    """Order the ranges for a guest and what its floating IP asks for, each with why it gives no address now.

    For a guest that has as many addresses of a range as it can have, that range is full.
    """
    ranges = {each.name: each for each in inventory.ranges.all() if not each.is_deleting}

    def is_full(range_name: str) -> bool:
        families = _families(inventory, range_name, request)
        if range_name in inventory.problems:
            return True
        room = sum(isinstance(inventory.next_free(range_name, each), Address) for each in families)
        limit = ranges[range_name].spec.max_per_guest
        if limit is not None:
            room = min(room, limit - len(inventory.shares(guest.id, range_name)))
        return room < (1 if request.is_flexible else len(families))

    return match_ranges(guest, [*ranges.values()], is_full=is_full)


def find_range(
    inventory: Inventory,
    floating_ip: FloatingIP,
    held: Collection[FloatingIPReservation],
    guest: Guest | None,
    request: AddressRequest,
    had_from: Collection[str],
) -> FloatingIPRange | Blocker:
    """Find the range that serves a floating IP.

    The one that it names; else the one that its address comes from, and no other where that is missing; else one is
    chosen as for a new guest, rather one that assigns the addresses and has the families of the request, and then one
    from which it can get an address back (`had_from`), full or not. `guest` is None as long as not all is known that a
    range is chosen by: a choice is for good.
    """
    if floating_ip.range is not None:
        named = inventory.ranges.get("", floating_ip.range)
        if named is None:
            like = suggest(floating_ip.range, (each.name for each in inventory.ranges.all()))
            message = f'Range "{floating_ip.range[:253]}" does not exist{like}. Create it, or name another.'
            return Blocker(reason="RangeNotFound", message=message)
        return named
    status = floating_ip.status
    has = read_addresses(status.addresses)
    reserved = sorted(held, key=lambda each: address_of(each) not in has)  # what it has comes first
    earlier = [name for name in (*(each.spec.range for each in reserved), status.range) if name]
    for name in earlier:
        known = inventory.ranges.get("", name)
        if known is not None:
            return known
    if earlier and (held or floating_ip.status.addresses):
        # Another range would give another address. The missing one may return, or not have been seen here yet.
        remedy = f"Create it again, or name another in annotation {names.ANNOTATION_RANGE}."
        message = f'Range "{earlier[0][:253]}" of this address does not exist. {remedy}'
        return Blocker(reason="RangeNotFound", message=message)
    if guest is None and not inventory.guest_clusters(floating_ip.namespace):
        return describe_stranger(floating_ip, inventory.clusters.all())
    if guest is None:
        record = inventory.records.get(floating_ip.namespace)
        why = (record.problem if record is not None else "") or "The guest cluster is not known yet."
        message = f"Annotation {names.ANNOTATION_RANGE} names no range, and none can be chosen. {why}"
        return Blocker(reason="GuestUnresolved", message=message)
    choice = choose_for_guest(inventory, guest, request)
    full = [each for each, why in choice if why is NoRange.FULL]
    serving = [each for each, why in choice if why is None] + full
    if serving:
        return min(
            serving, key=lambda each: (not _suits(inventory, each.name, request), each.name not in had_from)
        )
    if any(why is NoRange.DRAINING for _, why in choice):
        message = f"The ranges for guest cluster {guest.shown} are draining. Create another one."
        return Blocker(reason=NoRange.DRAINING.value, message=message)
    message = describe_misfits(inventory, guest, [each for each, _ in choice])
    return Blocker(reason=NoRange.OTHER_NETWORK.value if choice else "NoMatchingRange", message=message)


def describe_misfits(inventory: Inventory, guest: Guest, nearest: Sequence[FloatingIPRange] = ()) -> str:
    """Return, as sentences, that no range serves a guest, and what of some of them differs, the nearest first."""
    by_nearness = sorted(
        inventory.ranges.all(),
        key=lambda each: (
            not each.harvester_cluster and each.match_labels is None,
            each.harvester_cluster != guest.harvester_cluster_name,
        ),
    )
    named = [
        f'Range "{each.name}" {describe_misfit(each, guest)}.'
        for each in (nearest or by_nearness)[:MOST_NAMED]
    ]
    remedy = "Create one, or correct one of these." if named else "Create one."
    return " ".join([f"No range serves guest cluster {guest.shown}.", *named, remedy])


def find_restriction(found: FloatingIPRange, guest: Guest | None) -> Blocker | None:
    """Return why a range assigns nothing to a guest: it is not chosen for it, or does not list it.

    If it limits guest clusters, it serves only them: each other namespace would have a limit of its own.
    """
    spec = found.spec
    restricts = spec.restrict_to_matching, spec.allowed_workspaces, spec.allowed_clusters
    if not any((*restricts, spec.max_per_guest, spec.per_guest)):
        return None
    if guest is None:
        message = (
            f'Range "{found.name}" serves only guest clusters, and this namespace belongs to none. Create the '
            "FloatingIP in the namespace of a guest cluster."
        )
        return Blocker(reason="GuestNotFound", message=message)
    if is_allowed(found, guest) and (not spec.restrict_to_matching or would_be_chosen(found, guest)):
        return None
    option = "restrictToMatching" if is_allowed(found, guest) else "allowedWorkspaces and allowedClusters"
    hint = find_name_hint(guest, spec.allowed_clusters).replace(":", " there:")
    message = (
        f'Range "{found.name}" does not serve this guest cluster: see its {option}{hint}. Use another range.'
    )
    return Blocker(reason="RangeRestricted", message=message)


def describe_mismatch(inventory: Inventory, guest: Guest | None, range_name: str) -> str:
    """Return that a range is of another network than the guest's; "" if it is not, or if one of both is not known."""
    found = inventory.ranges.get("", range_name)
    network = found.harvester_network if found is not None else None
    if guest is None or not guest.networks or not network or is_on_network(guest, network):
        return ""
    return (
        f'Range "{range_name}" is of network {network}, and the guest cluster is on {", ".join(guest.networks)}. '
        "The FloatingIP keeps its address, which is probably not reachable there. Correct the network of the machines "
        f"or of the range, or empty spec.ipaddress and name a range of the right network in annotation "
        f"{names.ANNOTATION_RANGE}."
    )


def _suits(inventory: Inventory, range_name: str, request: AddressRequest) -> bool:
    """Return whether a range assigns the addresses and has the families that a floating IP asks for, free or not."""
    ranges = inventory.pools
    found = ranges.get(range_name)
    return (
        found is not None
        and set(_families(inventory, range_name, request)).issubset(found.pool.families)
        and all(ranges.refusal(range_name, address) is None for address in request.static.values())
    )


def _families(inventory: Inventory, range_name: str, request: AddressRequest) -> tuple[Family, ...]:
    """Return the families that a floating IP which holds nothing yet would want from a range."""
    found = inventory.pools.get(range_name)
    return request.wanted(frozenset(found.pool.families if found else ()), frozenset())
