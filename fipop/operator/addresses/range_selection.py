"""Which range serves a floating IP."""

from __future__ import annotations

from collections.abc import Callable

from fipop.api import names
from fipop.api.models import FloatingIP, FloatingIPRange, Reservation
from fipop.ipam.addresses import Family, FamilyPolicy
from fipop.operator.addresses.values import Blocker, Quota, Request, wanted_families
from fipop.rancher.matching import (
    Guest,
    NoRange,
    is_allowed,
    is_on_network,
    match_ranges,
    would_be_chosen,
)
from fipop.state.cache import BY_OWNER_NAMESPACE, ClusterCache

_NO_RANGE_MESSAGES = {
    NoRange.DRAINING: "assign addresses: those that serve it are draining. Create another range",
    NoRange.OTHER_NETWORK: "are of its network. Check harvesterNetworkName of the ranges",
}
"""What is nearest to serving comes first."""
_NO_MATCH_MESSAGE = "serve it. Check harvesterClusterName and clusterSelector of the ranges"


ANY_ADDRESS = Request(static={}, families=(), policy=None)
"""What a new floating IP asks for."""


def choose_for_guest(
    cache: ClusterCache, guest: Guest, request: Request = ANY_ADDRESS
) -> list[tuple[FloatingIPRange, NoRange | None]]:
    """Order the ranges for a guest and what its floating IP asks for, each with why it gives no address now.

    For a guest that has as many addresses of a range as it can have, that range is full.
    """
    ranges = {each.name: each for each in cache.ranges.all() if not each.meta.deleting}

    def is_full(range_name: str) -> bool:
        families = _families(cache, range_name, request)
        free = [each for each in families if not cache.allocations.ranges.is_full(range_name, each)]
        quota = read_quota(cache, ranges[range_name], guest.id)
        room = min(len(free), quota.room) if quota is not None else len(free)
        return room < (1 if request.policy is FamilyPolicy.PREFER_DUAL_STACK else len(families))

    return match_ranges(guest, [*ranges.values()], is_full=is_full)


def read_quota(cache: ClusterCache, found: FloatingIPRange, guest_id: str) -> Quota | None:
    """Return how many addresses of a range a guest can have, and which it has; None if there is no limit."""
    if found.max_per_guest is None:
        return None
    reserved = cache.reservations.by_index(BY_OWNER_NAMESPACE, guest_id)
    # What was merely found in the guest cluster was never held: it has no history.
    had = (each for each in reserved if each.is_held or each.history)
    return Quota(
        limit=found.max_per_guest,
        reserved=frozenset(each.name for each in had if each.range == found.name),
        claimed=cache.allocations.open_claims(guest_id, found.name),
    )


def find_range(
    cache: ClusterCache,
    floating_ip: FloatingIP,
    held: tuple[Reservation, ...],
    guest: Guest | None,
    request: Request,
    had_from: Callable[[FloatingIPRange], bool],
) -> FloatingIPRange | Blocker:
    """Find the range that serves a floating IP.

    The one that it names; else the one that its address comes from, and no other where that is missing; else one is
    chosen as for a new guest, rather one that assigns the addresses and has the families of the request, and then one
    from which it can get an address back (`had_from`), full or not. `guest` is None as long as not all is known that a
    range is chosen by: a choice is for good.
    """
    if floating_ip.range is not None:
        named = cache.ranges.get("", floating_ip.range)
        if named is None:
            message = f'Range "{floating_ip.range[:253]}" does not exist. Create it, or name another.'
            return Blocker(reason="RangeNotFound", message=message)
        return named
    earlier = [name for name in (*(each.range for each in held), floating_ip.status.range) if name]
    for name in earlier:
        known = cache.ranges.get("", name)
        if known is not None:
            return known
    if earlier and (held or floating_ip.status.addresses):
        # Another range would give another address. The missing one may return, or not have been seen here yet.
        remedy = f"Create it again, or name another in annotation {names.ANNOTATION_RANGE}."
        message = f'Range "{earlier[0][:253]}" of this address does not exist. {remedy}'
        return Blocker(reason="RangeNotFound", message=message)
    if guest is None:
        message = (
            f"Annotation {names.ANNOTATION_RANGE} names no range, and the guest cluster is not known yet, or its "
            "HarvesterConfig or cloud credential cannot be read."
        )
        return Blocker(reason="GuestNotFound", message=message)
    choice = choose_for_guest(cache, guest, request)
    full = [each for each, why in choice if why is NoRange.FULL]
    serving = [each for each, why in choice if why is None] + full
    if serving:
        return min(serving, key=lambda each: (not _suits(cache, each.name, request), not had_from(each)))
    reasons = {why for _, why in choice}
    nearest = ((why.value, text) for why, text in _NO_RANGE_MESSAGES.items() if why in reasons)
    reason, text = next(nearest, ("NoMatchingRange", _NO_MATCH_MESSAGE))
    message = f'No ranges for guest cluster "{guest.cluster_name}" {text}.'
    return Blocker(reason=reason, message=message)


def find_restriction(found: FloatingIPRange, guest: Guest | None) -> Blocker | None:
    """Return why a range assigns nothing to a guest: it is not chosen for it, or does not list it.

    If it limits guest clusters, it serves only them: each other namespace would have a limit of its own.
    """
    limits = found.restrict_to_matching, found.allowed_workspaces, found.allowed_clusters, found.max_per_guest
    if not any(limits):
        return None
    if guest is None:
        message = f'Range "{found.name}" serves only guest clusters, and this namespace belongs to none.'
        return Blocker(reason="GuestNotFound", message=message)
    if is_allowed(found, guest) and (not found.restrict_to_matching or would_be_chosen(found, guest)):
        return None
    option = "restrictToMatching" if is_allowed(found, guest) else "allowedWorkspaces, allowedClusters"
    message = f'Range "{found.name}" does not serve this guest cluster: see its {option}. Use another range.'
    return Blocker(reason="RangeRestricted", message=message)


def describe_mismatch(cache: ClusterCache, guest: Guest | None, range_name: str) -> str | None:
    """Return that a range is of another network than the guest's; None if it is not, or if one of both is not known."""
    found = cache.ranges.get("", range_name)
    network = found.harvester_network if found is not None else None
    if guest is None or not guest.networks or not network or is_on_network(guest, network):
        return None
    return f'Range "{range_name}" is of network {network}, and the guest cluster is on {guest.networks[0]}.'


def _suits(cache: ClusterCache, range_name: str, request: Request) -> bool:
    """Return whether a range assigns the addresses and has the families that a floating IP asks for, free or not."""
    ranges = cache.allocations.ranges
    return ranges.families(range_name).issuperset(_families(cache, range_name, request)) and all(
        ranges.why_refused(range_name, address) is None for address in request.static.values()
    )


def _families(cache: ClusterCache, range_name: str, request: Request) -> tuple[Family, ...]:
    """Return the families that a floating IP which holds nothing yet would want from a range."""
    return wanted_families(request, cache.allocations.ranges.families(range_name), frozenset())
