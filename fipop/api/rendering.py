"""Write our objects as the JSON that the API server takes."""

from __future__ import annotations

from fipop.api import names
from fipop.api.conditions import Condition, format_time, render_condition
from fipop.api.models import (
    Capacity,
    FloatingIPStatus,
    GuestStatus,
    Owner,
    RangeCapacity,
    Reservation,
)
from fipop.jsons import Json


def render_reservation(reservation: Reservation) -> Json:
    """Give the whole object; the resource version stands in it where the reservation was read before."""
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
    """Give the owner without what is not known of it: an address found in a guest may be no floating IP's."""
    texts = {"namespace": owner.namespace, "name": owner.name, "uid": owner.uid, "cluster": owner.cluster}
    rendered: Json = {field: text for field, text in texts.items() if text}
    if owner.imported:
        rendered["imported"] = True
    return rendered


def render_floating_ip_status(status: FloatingIPStatus) -> Json:
    """Give the status as a merge patch: what is absent is null, so that nothing old stays behind."""
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
    capacity: RangeCapacity | None, conditions: tuple[Condition, ...], generation: int
) -> Json:
    """Give the status of a range as a merge patch; `capacity`, clamped, is None where the pool cannot be read."""
    rendered: Json | None = None
    if capacity is not None:
        rendered = _capacity(capacity.whole) | {
            "ipv4": _capacity(capacity.ipv4),
            "ipv6": _capacity(capacity.ipv6),
        }
    return {
        "capacity": rendered,
        "conditions": [render_condition(condition) for condition in conditions],
        "observedGeneration": generation,
    }


def _capacity(capacity: Capacity) -> Json:
    return {
        "total": capacity.total,
        "used": capacity.used,
        "free": capacity.free,
        "quarantined": capacity.quarantined,
        "outOfRange": capacity.out_of_range,
    }
