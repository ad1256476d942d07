"""What a new leader looks at once: what happened while nobody looked causes no event."""

from __future__ import annotations

from dataclasses import dataclass

from fipop.operator.addresses.values import is_settled
from fipop.operator.queues import Key, Kind, WorkQueues
from fipop.operator.routing import Router
from fipop.runtime.workqueue import Priority
from fipop.state.cache import ClusterCache


@dataclass(slots=True, kw_only=True)
class FirstRounds:
    """Enqueues everything once, in two parts.

    What is as it should be waits until the gate opens, so that it does not come before what is new. So do passes: no
    guest is written before.
    """

    cache: ClusterCache
    queues: WorkQueues
    router: Router
    _is_settled_left: bool = False

    def enqueue_unsettled(self) -> None:
        """Enqueue what may want something, and leave the rest for later."""
        for each in self.cache.ranges.all():
            self.queues.objects.add(Key(Kind.RANGE, "", each.name))
        for floating_ip in self.cache.floating_ips.all():
            if not is_settled(floating_ip, self.cache.reservations_of(floating_ip.meta.key)):
                self.router.add_floating_ip(floating_ip.meta.key)
        for owner in self.cache.allocations.claimants():
            # A claim of before whose floating IP is gone by now: nobody else would give its address free.
            self.router.add_floating_ip(owner)
        for reservation in self.cache.reservations.all():
            self.router.add_reservation(reservation)
        self.enqueue_unserved()
        self._is_settled_left = True

    def enqueue_unserved(self) -> None:
        """Enqueue the guests without a floating IP: they may get one."""
        for cluster in self.cache.clusters.all():
            if cluster.cluster_name and not self.cache.floating_ips_of(cluster.cluster_name):
                self.queues.objects.add(Key(Kind.GUEST, "", cluster.cluster_name))

    def enqueue_settled(self) -> None:
        """Enqueue what was left for later, once."""
        if not self._is_settled_left:
            return
        self._is_settled_left = False
        for floating_ip in self.cache.floating_ips.all():
            if is_settled(floating_ip, self.cache.reservations_of(floating_ip.meta.key)):
                self.router.add_floating_ip(floating_ip.meta.key)
        for cluster in self.cache.clusters.all():
            if not cluster.cluster_name:
                continue
            if self.cache.floating_ips_of(cluster.cluster_name):
                key = Key(Kind.GUEST, "", cluster.cluster_name)
                self.queues.objects.add(key, priority=Priority.BACKGROUND)
            self.router.add_routine_pass(cluster.cluster_name)
