"""Who had which address when, as far as reservations remember."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime

from fipop.api.models import EPOCH, Owner, PastOwner, Reservation
from fipop.ipam.addresses import Address
from fipop.report.picture import Picture


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenure:
    """Somebody had an address for a time; `until` None: still."""

    address: str
    space: str
    range: str
    namespace: str
    name: str
    cluster: str
    since: datetime | None
    until: datetime | None


def history_of_address(picture: Picture, address: Address) -> tuple[Tenure, ...]:
    """Tell who had an address, the latest first."""
    return tuple(
        tenure
        for space in picture.spaces()
        if (found := picture.by_address.get((space, address))) is not None
        for tenure in tenures(found)
    )


def history_of_guests(picture: Picture, name: str, namespaces: Collection[str]) -> tuple[Tenure, ...]:
    """Tell which addresses guests had, by their ids or by the name of a cluster or floating IP, the latest first."""
    found = [
        tenure
        for each in picture.facts.reservations
        for tenure in tenures(each)
        if tenure.namespace in namespaces or name in (tenure.cluster, tenure.name)
    ]
    latest = picture.facts.now
    return tuple(sorted(found, key=lambda each: (each.until or latest, each.since or EPOCH), reverse=True))


def tenures(found: Reservation) -> Iterator[Tenure]:
    """Tell who had an address, the latest first."""
    last = None if found.is_held else found.history[0].released_at if found.history else found.since
    owners: list[tuple[Owner | PastOwner, datetime | None, datetime | None]]
    owners = [(found.owner, found.since, last)]
    # Whose tenure was the last one stands in the history, too, once it ended.
    owners += [(past, None, past.released_at) for past in found.history[0 if found.is_held else 1 :]]
    for owner, since, until in owners:
        yield Tenure(
            address=found.address,
            space=found.space,
            range=found.range,
            namespace=owner.namespace,
            name=owner.name,
            cluster=owner.cluster,
            since=since,
            until=until,
        )
