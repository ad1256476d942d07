"""A look at guests that a test plays."""

import asyncio
import itertools

from fipop.backoff import Backoff
from fipop.errors import FipopError, GuestUnreadableError
from fipop.guest.in_use import InUseAddresses, addresses_in
from fipop.kube.resources import (
    FLOATING_IP_RESERVATIONS,
    MANAGEMENT_CLUSTERS,
    NAMESPACES,
    PROVISIONING_CLUSTERS,
    Resource,
)
from fipop.operator.addresses.reservations import ReservationStore
from fipop.operator.guests.reported import ClaimScope, ReportedAddresses
from fipop.operator.guests.scan import GuestScan
from fipop.state.cache import ClusterCache
from fipop.state.gate import AllocationGate
from fipop.state.guests import GuestDirectory
from tests.harness.objects import NOW, Json, build_range, cache_of
from tests.harness.reservation_store import Reservations, look_never


class Looking:
    """Looks over `world`; `carried` gives the values of each guest's ConfigMap, None for one that is away.

    `troubles` are raised by the next questions to our own API server, one each.
    """

    def __init__(self, cache: ClusterCache, carried: dict[str, str | None]) -> None:
        self.cache = cache
        self.api = Reservations()
        self.opened = asyncio.Event()
        self.carried = carried
        self._versions = itertools.count(5)
        self.looked_at: list[str] = []
        self.troubles: list[FipopError] = []
        for guest_id in carried:
            self.add(guest_id)
        create = self.api.create

        async def create_or_fail(*arguments: object) -> Json:
            self._trouble()
            return await create(*arguments)  # type: ignore[arg-type]

        self.api.create = create_or_fail  # type: ignore[method-assign]
        guests = GuestDirectory(cache=cache, client=self.api)  # type: ignore[arg-type]
        scope = ClaimScope(guests)
        self.over_limit: list[tuple[str, int]] = []
        self.scan = GuestScan(
            gate=AllocationGate(scope.could_serve, adopted=True),
            reported=ReportedAddresses(
                guests=guests,
                reader=self,  # type: ignore[arg-type] # the call that a scan makes
                reservation_store=ReservationStore(
                    client=self.api,  # type: ignore[arg-type] # the four calls that a store makes
                    known=cache,
                    now=lambda: NOW,
                    look_again=look_never,
                ),
                scope=scope,
                over_limit=lambda guest_id, count: self.over_limit.append((guest_id, count)),
                backoff=Backoff(first_seconds=0.0, limit_seconds=0.0),
            ),
            guests=guests,
            opened=self.opened.set,
        )
        self.task = asyncio.create_task(self.scan.run())

    def _trouble(self) -> None:
        if self.troubles:
            raise self.troubles.pop(0)

    async def read_in_use(self, guest_id: str) -> InUseAddresses:
        self._trouble()
        self.looked_at.append(guest_id)
        value = self.carried[guest_id]
        if value is None:
            raise GuestUnreadableError(guest_id=guest_id, cause="no answer")
        metadata = {"name": "kubevip", "namespace": "kube-system"}
        return addresses_in([{"metadata": metadata, "data": {"cidr-global": value}}], [])

    async def first(self) -> None:
        """Have the look at a start."""
        self.scan.require_rescan()
        await asyncio.wait_for(self.opened.wait(), 600)
        self.opened.clear()

    async def change_range(self, name: str = "pool") -> None:
        """Have what a changed range waits for."""
        self.looked_at.clear()
        self.scan.note_range(name)
        await asyncio.wait_for(self.opened.wait(), 600)
        self.opened.clear()

    def free(self, name: str) -> None:
        """Have a reservation gone, as it is when a quarantine ended."""
        reservation = self.cache.reservations.get("", name)
        assert reservation is not None
        self.cache.forget(FLOATING_IP_RESERVATIONS, reservation)

    def add(self, guest_id: str) -> None:
        """Have a guest in Rancher."""
        self._observe(NAMESPACES, guest_id)
        self._observe(PROVISIONING_CLUSTERS, guest_id, "fleet-default", status={"clusterName": guest_id})
        self.connect(guest_id)

    def connect(self, guest_id: str, *, connected: bool = True) -> None:
        """Have Rancher connected to a guest, or not."""
        conditions = [{"type": "Connected", "status": str(connected)}]
        self._observe(MANAGEMENT_CLUSTERS, guest_id, status={"provider": "rke2", "conditions": conditions})

    def _observe(self, resource: Resource, name: str, namespace: str = "", **parts: Json) -> None:
        version = str(next(self._versions))
        metadata = {"name": name, "namespace": namespace, "uid": name, "resourceVersion": version}
        self.cache.observe(resource, {"metadata": metadata, "spec": {}, **parts})

    def remove(self, guest_id: str) -> None:
        """Take a guest out of Rancher: nobody answers for it any more."""
        (cluster,) = self.cache.guest_clusters(guest_id)
        management = self.cache.management.get("", guest_id)
        assert management is not None
        self.cache.forget(PROVISIONING_CLUSTERS, cluster)
        self.cache.forget(MANAGEMENT_CLUSTERS, management)
        self.scan.guests.drop(guest_id)
        self.scan.note_guest(guest_id)
        self.carried[guest_id] = None

    def quarantined(self) -> set[str]:
        return {each.name for each in self.cache.reservations.all() if not each.is_held}

    async def comes_to_quarantine(self, name: str) -> None:
        async with asyncio.timeout(600):
            while name not in self.quarantined():  # noqa: ASYNC110 - the store has no event for that
                await asyncio.sleep(0.01)


def pool_world(**more: list[Json]) -> ClusterCache:
    return cache_of(ranges=[build_range("pool", "10.0.0.0/24")], **more)
