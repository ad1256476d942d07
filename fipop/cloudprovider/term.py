"""A leader's term: all that works while this provider leads, built anew each time."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from random import Random

from fipop.backoff import Backoff
from fipop.cloudprovider.assigning import AddressAssigner, carried_by
from fipop.cloudprovider.kubevip import ServiceReconciler
from fipop.cloudprovider.ledger import Entry, Ledger
from fipop.cloudprovider.ledger_store import LedgerStore
from fipop.cloudprovider.notices import Notices
from fipop.cloudprovider.occupancy import Occupancy
from fipop.cloudprovider.pools import PoolKeys
from fipop.cloudprovider.pruning import Pruner
from fipop.cloudprovider.service_cache import ServiceCache, ServiceDoor
from fipop.cloudprovider.services import Service
from fipop.errors import FipopError
from fipop.ipam.addresses import Address, Family
from fipop.ipam.intervals import IntervalSet
from fipop.jsons import JsonView
from fipop.kube.client import KubeClient
from fipop.kube.events import EventRecorder
from fipop.metrics.services import PoolSample, ServiceMetrics, ServiceSnapshot
from fipop.runtime.store import Change, Name
from fipop.runtime.workqueue import Priority, WorkQueue

logger = logging.getLogger(__name__)

_BACKOFF = Backoff(first_seconds=0.5, limit_seconds=10.0)

MANY = 64
"""Where so many Services of a namespace lack an address, those of others come first."""
CONCURRENCY = 512
"""So many Services wait for the same write of the ledger at most; how many are written at once is an option."""


class ProviderTerm:
    """Works from `run` until cancelled; `take_keys` and `take_ledger` tell it of the two ConfigMaps meanwhile.

    `client` writes only while this provider leads; everything else outlives the term.
    """

    def __init__(
        self,
        *,
        client: KubeClient,
        services: ServiceCache,
        events: EventRecorder,
        metrics: ServiceMetrics,
        class_name: str | None,
        writes_at_once: int,
        random: Random,
    ) -> None:
        self._services = services
        self._occupancy = Occupancy(services.store)
        self._queue: WorkQueue[Name] = WorkQueue(name="services", random=random)
        self._ledger = LedgerStore(client, carried=self._list_carried, listener=self._learn_ledger)
        self._pruner = Pruner(self._ledger, services.store)
        door = ServiceDoor(client, services)
        self._assigner = AddressAssigner(
            client=door,
            ledger=self._ledger,
            occupancy=self._occupancy,
            list_live=services.list_live,
        )
        self._reconciler = ServiceReconciler(
            services=services.store,
            assigner=self._assigner,
            notices=Notices(
                client=door,
                events=events,
                occupancy=self._occupancy,
                now=client.server_now,
                look_again=self._look_again,
            ),
            metrics=metrics,
            class_name=class_name,
            writes_at_once=writes_at_once,
            suspect=self._pruner.suspect,
        )
        self._ledger_entries = 0
        self._lacking: Counter[str] = Counter()
        """How many Services of each namespace came without an address in this term."""

    async def run(self, keys: PoolKeys) -> None:
        """Work until cancelled, with these keys at first."""
        await self._services.wait_loaded()
        self._occupancy.take_keys(keys)
        self._services.listeners.append(self._service_changed)
        try:
            await self._get_ready()
            self._look_at_all()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._queue.run(self._reconciler.reconcile, concurrency=CONCURRENCY))
                group.create_task(self._pruner.run())
        finally:
            self._services.listeners.remove(self._service_changed)
            await self._reconciler.close()

    async def _get_ready(self) -> None:
        """Take possession of the ledger before anybody is served; why that cannot be done is told once."""
        told, failures = "", 0
        while True:
            try:
                return await self._assigner.get_ready()
            except FipopError as error:
                failures += 1
                if str(error) != told:
                    logger.warning("Could not read ledger", extra={"error": str(error)})
                told = str(error)
                await asyncio.sleep(_BACKOFF.step_seconds(failures))

    def take_keys(self, keys: PoolKeys) -> None:
        """Take in the ConfigMap: who waits is served at once, who has an address keeps it."""
        self._occupancy.take_keys(keys)
        self._look_at_all()

    def take_ledger(self, obj: JsonView | None) -> None:
        """Take in the ledger as a watch shows it; None: it is gone."""
        self._ledger.take(obj)

    def snapshot(self) -> ServiceSnapshot:
        """Return what the metrics show."""
        return ServiceSnapshot(
            leading=True,
            pools=tuple(self._pool_samples()),
            waiting=len(self._reconciler.waiting),
            overwritten=sum(each.is_left_alone for each in self._services.store.all()),
            bad_keys=len(self._occupancy.keys.problems()),
            ledger_entries=self._ledger_entries,
        )

    def _pool_samples(self) -> Iterable[PoolSample]:
        taken = {family: list[int]() for family in Family}
        for address in self._occupancy.sharing.addresses():
            taken[address.family].append(address.value)
        for each in self._occupancy.keys.pools():
            if each.pool is None:
                continue
            for family in Family:
                addresses = each.pool.addresses.of(family)
                if addresses:
                    used = sum(value in addresses for value in _between(taken[family], addresses))
                    yield PoolSample(key=each.key, family=family.label, total=addresses.count, used=used)

    async def _list_carried(self) -> list[tuple[Address, Entry]]:
        return carried_by(await self._services.list_live(), self._occupancy.keys)

    def _learn_ledger(self, ledger: Ledger | None) -> None:
        """Hear of every version of the ledger: who has lost an address there is looked at, and who waits for one."""
        self._ledger_entries = len(ledger.entries) if ledger is not None else 0
        lost, unknown = self._occupancy.take_ledger(ledger)
        for uid in unknown:
            self._pruner.suspect(uid)
        if lost:
            self._look_again(lost)
            self._retry_waiting()

    def _service_changed(self, change: Change[Service]) -> None:
        self._occupancy.take_service(change)
        old, new = change.old, change.new
        namespace = change.latest.namespace
        self._lacking[namespace] += _lacks(new) - _lacks(old)
        has_many = self._lacking[namespace] > MANY
        self._queue.add(change.latest.key, priority=Priority.BACKGROUND if has_many else Priority.NORMAL)
        if old is None:
            return
        is_gone = new is None or new.uid != old.uid
        if is_gone:
            self._reconciler.forget(old.uid)
        if is_gone or (new is not None and _gives_up(old, new)):
            # One that had nothing may have been chosen for: its entry is there, and no write came of it.
            self._pruner.suspect(old.uid)
            self._retry_waiting()

    def _look_again(self, uids: Iterable[str]) -> None:
        for uid in uids:
            service = self._services.store.by_uid(uid)
            if service is not None:
                self._queue.add(service.key)

    def _look_at_all(self) -> None:
        for service in self._services.store.all():
            if service.is_holder or self._occupancy.entries_of(service.uid):
                self._queue.add(service.key, priority=Priority.BACKGROUND)

    def _retry_waiting(self) -> None:
        for name in self._reconciler.waiting:
            self._queue.add(name)


def _gives_up(old: Service, new: Service) -> bool:
    """Return whether a Service left an address, or leaves others room on it."""
    is_less = (old.is_holder and not new.is_holder) or old.ports - new.ports
    return bool(old.carried - new.carried or (old.carried and is_less))


def _lacks(service: Service | None) -> bool:
    return service is not None and service.is_load_balancer and not service.has_annotation


def _between(values: Sequence[int], addresses: IntervalSet) -> Iterator[int]:
    """Yield those of sorted values that lie between the ends of an interval: few pools have many."""
    for each in addresses.intervals:
        yield from values[bisect_left(values, each.first) : bisect_right(values, each.last)]
