"""Build the JSON of the objects of fipop for the API server."""

from __future__ import annotations

from fipop.api import names
from fipop.api.conditions import Condition, format_time, render_condition
from fipop.api.models import FloatingIPStatus, GuestStatus, Owner, Reported, Reservation
from fipop.ipam.ranges import RangeUsage, Usage
from fipop.jsons import Json

INT64_MAX = 2**63 - 1
"""Counts in a status are int64; a larger one is clamped, and the Ready message of the range shows that."""


def render_reservation(reservation: Reservation) -> Json:
    """Return the whole object, with the resource version if the reservation was read before."""
    metadata: Json = {"name": reservation.name}
    if reservation.uid:
        metadata |= {"uid": reservation.uid, "resourceVersion": str(reservation.resource_version)}
    spec: Json = {
        "address": reservation.address,
        "space": reservation.space,
        "range": reservation.range,
        "owner": _owner(reservation.owner),
        "requested": reservation.requested.value,
        "since": format_time(reservation.since),
    }
    if reservation.quarantined_until is not None:
        spec["quarantinedUntil"] = format_time(reservation.quarantined_until)
    if reservation.guest_gone_since is not None:
        spec["guestGoneSince"] = format_time(reservation.guest_gone_since)
    if reservation.history:
        spec["history"] = [
            {
                "namespace": past.namespace,
                "name": past.name,
                "cluster": past.cluster,
                "releasedAt": format_time(past.released_at),
            }
            for past in reservation.history
        ]
    return {
        "apiVersion": names.API_VERSION,
        "kind": "FloatingIPReservation",
        "metadata": metadata,
        "spec": spec,
    }


def _owner(owner: Owner) -> Json:
    """Return the owner with its known fields only: an address found in a guest cluster can have no floating IP."""
    texts = {"namespace": owner.namespace, "name": owner.name, "uid": owner.uid}
    texts |= {"cluster": owner.cluster, "workspace": owner.workspace}
    rendered: Json = {field: text for field, text in texts.items() if text}
    if owner.imported:
        rendered["imported"] = True
    return rendered


def render_floating_ip_status(status: FloatingIPStatus) -> Json:
    """Return the status as a merge patch: absent fields are null, so that no old value stays."""
    return {
        "addresses": list(status.addresses) or None,
        "range": status.range,
        "addressSpace": status.address_space,
        "guest": _guest(status.guest) if status.guest else None,
        "conditions": [render_condition(condition) for condition in status.conditions],
        "observedGeneration": status.observed_generation,
    }


def _guest(guest: GuestStatus) -> Json:
    return {
        "cluster": guest.cluster,
        "id": guest.id,
        "reachable": guest.reachable,
        "releases": [
            {
                "role": release.role,
                "name": release.name,
                "namespace": release.namespace,
                "revision": release.revision,
                "digest": release.digest,
                "version": release.version,
                "status": release.status,
            }
            for release in guest.releases
        ]
        or None,
    }


def render_range_status(
    capacity: Json | None,
    reported: tuple[Reported, ...],
    count: int,
    conditions: tuple[Condition, ...],
    generation: int,
) -> Json:
    """Return the status of a range as a merge patch; `capacity` is None if the pool is invalid.

    `count` of addresses are in use by reports alone, and `reported` names them, or as many as the status shows.
    """
    return {
        "capacity": capacity,
        "reported": [{"address": each.address, "guest": each.guest} for each in reported] or None,
        "reportedCount": count or None,
        "conditions": [render_condition(condition) for condition in conditions],
        "observedGeneration": generation,
    }


def render_capacity(usage: RangeUsage) -> Json:
    """Return the counts of a range as its status holds them, each at most INT64_MAX."""
    whole, ipv4, ipv6 = (
        {name: min(count, INT64_MAX) for name, count in render_usage(each).items()} for each in usage
    )
    return {**whole, "ipv4": ipv4, "ipv6": ipv6}


def render_usage(usage: Usage) -> dict[str, int]:
    """Return counts in the common JSON form."""
    return {
        "total": usage.total,
        "used": usage.used,
        "free": usage.free,
        "quarantined": usage.quarantined,
        "outOfRange": usage.out_of_range,
    }
