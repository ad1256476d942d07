"""What a new leader enqueues once: what happened while no replica led causes no event."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fipop.operator.addresses.values import is_settled
from fipop.operator.addresses.waiting import request_floating_ip, request_reservation
from fipop.operator.queues import Key, Kind, Request, WorkQueues, request_routine_visit
from fipop.runtime.workqueue import Priority
from fipop.state.cache import ClusterCache


@dataclass(slots=True, kw_only=True)
class InitialSync:
    """Enqueues everything once, in two parts.

    What is as it should be waits until the gate opens, so that it does not come before what is new. So do visits: no
    guest is written before.
    """

    cache: ClusterCache
    queues: WorkQueues
    _is_settled_left: bool = False

    def enqueue_unsettled(self) -> None:
        """Enqueue what may need something, and leave the rest for later."""
        self.queues.add(*self._find_unsettled(), *self.find_unserved())
        self._is_settled_left = True

    def enqueue_settled(self) -> None:
        """Enqueue what was left for later, once."""
        if self._is_settled_left:
            self._is_settled_left = False
            self.queues.add(*self._find_settled())

    def find_unserved(self) -> Iterator[Request]:
        """Yield the guests without a floating IP: they may get one."""
        for cluster in self.cache.clusters.all():
            if cluster.cluster_name and not self.cache.floating_ips_of(cluster.cluster_name):
                yield Request(Key(Kind.GUEST, "", cluster.cluster_name))

    def _find_unsettled(self) -> Iterator[Request]:
        for each in self.cache.ranges.all():
            yield Request(Key(Kind.RANGE, "", each.name))
        for key in self._find_floating_ips(are_settled=False):
            yield request_floating_ip(self.cache, key)
        for owner in self.cache.allocations.claimants():
            # A claim of before whose floating IP is gone by now: nothing else would free its address.
            yield request_floating_ip(self.cache, owner)
        yield from map(request_reservation, self.cache.reservations.all())

    def _find_settled(self) -> Iterator[Request]:
        for key in self._find_floating_ips(are_settled=True):
            yield request_floating_ip(self.cache, key)
        for cluster in self.cache.clusters.all():
            if not cluster.cluster_name:
                continue
            if self.cache.floating_ips_of(cluster.cluster_name):
                yield Request(Key(Kind.GUEST, "", cluster.cluster_name), Priority.BACKGROUND)
            yield request_routine_visit(cluster.cluster_name)

    def _find_floating_ips(self, *, are_settled: bool) -> Iterator[tuple[str, str]]:
        for each in self.cache.floating_ips.all():
            if is_settled(each, self.cache.reservations_of(each.meta.key)) is are_settled:
                yield each.meta.key
