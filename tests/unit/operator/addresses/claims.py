"""A reservation store over an API server in memory, and claims."""

import time
from datetime import datetime

from fipop.api.models import Owner, Requested, Reservation
from fipop.api.parsing import parse_reservation
from fipop.ipam.addresses import parse_address
from fipop.kube.resources import Resource
from fipop.operator.addresses.reservations import ReservationStore
from fipop.state.claims import Claim
from tests.harness.objects import NOW, Json
from tests.harness.reservation_store import Reservations, look_never


class Operator:
    """A desk with its own view of the store, which may be behind."""

    def __init__(self, api: Reservations, now: datetime = NOW) -> None:
        self.known: dict[str, Reservation] = {}
        self.monotonic = time.monotonic
        self.api = api
        self.reservation_store = ReservationStore(
            client=api,  # type: ignore[arg-type] # the four calls that a desk makes
            known=self,
            now=lambda: now,
            look_again=look_never,
        )

    def look(self) -> None:
        """Take in all there is, as watches do sooner or later."""
        self.known.clear()
        for name, obj in self.api.objects.items():
            self.known[name] = parse_reservation(obj)

    def get_reservation(self, name: str) -> Reservation | None:
        return self.known.get(name)

    def forget(self, _resource: Resource, gone: Reservation) -> None:
        self.known.pop(gone.name, None)

    def take_reservation(self, answer: Json) -> Reservation:
        found = parse_reservation(answer)
        self.known[found.name] = found
        return found


def owner(name: str = "web", *, namespace: str = "c-m-1", uid: str = "uid-1", cluster: str = "demo") -> Owner:
    return Owner(namespace=namespace, name=name, uid=uid, cluster=cluster)


def claim(
    who: Owner,
    address: str = "10.0.0.1",
    *,
    range_name: str = "pool",
    requested: Requested = Requested.DYNAMIC,
) -> Claim:
    return Claim(
        space="default", address=parse_address(address), range=range_name, owner=who, requested=requested
    )
