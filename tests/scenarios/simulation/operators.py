"""The product's own leader's term, driven step by step over the API server in memory: a SIMULATION.

Its parts are put together by the product. The queue, the watch and the clock are ours, for the driver to decide by
`chance`: which round goes on, which event arrives, who crashes.
"""

from collections import deque
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from fipop.api.models import FloatingIP, Meta
from fipop.errors import FipopError
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IP_RESERVATIONS, FLOATING_IPS, Resource
from fipop.operator.addresses.waiting import request_floating_ip, request_reservation
from fipop.operator.queues import Event, Key, Kind
from fipop.runtime.workqueue import RetryAfter
from fipop.state.cache import ClusterCache
from tests.harness.history import Change
from tests.harness.memory import Memory, MemoryClient
from tests.harness.terms import Listener, Pending, build_manager, queues_of

RESOURCES: dict[str, Resource] = {
    resource.plural: resource for resource in (FLOATING_IP_RANGES, FLOATING_IPS, FLOATING_IP_RESERVATIONS)
}
ROUNDS_AT_ONCE = 4


class SimulatedOperator:
    """One operator: its view of the world, the events on their way to it, its rounds that are under way."""

    def __init__(self, memory: Memory, chance: Random, *, trouble: float) -> None:
        self._memory = memory
        self._chance = chance
        self.client = MemoryClient(memory, chance, trouble=trouble)
        memory.listeners.append(self._hear)
        self.start()

    def start(self) -> None:
        """Begin, after a crash as well: nothing is remembered, everything is listed."""
        self.inbox: deque[Change] = deque()
        self.running: dict[Key, Coroutine[Any, Any, RetryAfter | None]] = {}
        self.timers: dict[Key, float] = {}
        self.pending = Pending()
        self.cache = ClusterCache(monotonic=lambda: self._memory.now.timestamp())
        self._build()
        for key, obj in sorted(
            self._memory.objects.items(), key=lambda item: int(item[1]["metadata"]["resourceVersion"])
        ):
            self.cache.observe(RESOURCES[key[0]], obj)
        for floating_ip in self.cache.floating_ips.all():
            self._queues.add(request_floating_ip(self.cache, floating_ip.meta.key))
        for reservation in self.cache.reservations.all():
            self._queues.add(request_reservation(reservation))

    def crash(self) -> None:
        for round_ in self.running.values():
            round_.close()
        self.start()

    def steps(self) -> list[Callable[[], None]]:
        """What could happen next in this operator."""
        possible: list[Callable[[], None]] = []
        if self.inbox:
            possible.append(self.deliver)
        if self.running:
            possible.append(self.go_on)
        if len(self.running) < ROUNDS_AT_ONCE and any(key not in self.running for key in self.pending.keys):
            possible.append(self.begin)
        return possible

    def deliver(self) -> None:
        change = self.inbox.popleft()
        resource = RESOURCES[change.plural]
        if change.obj is not None:
            self.cache.observe(resource, change.obj)
            return
        meta = Meta(namespace=change.namespace, name=change.name, uid="", resource_version=change.revision)
        self.cache.forget(resource, FloatingIP(meta=meta))

    def begin(self) -> None:
        key = next(key for key in self.pending.keys if key not in self.running)
        del self.pending.keys[key]
        round_ = (
            self._floating_ips.reconcile((key.namespace, key.name))
            if key.kind is Kind.FLOATING_IP
            else self._quarantine.reconcile(key.name)
            if key.kind is Kind.RESERVATION
            else self._quarantine.check(key.name)
            if key.kind is Kind.QUARANTINE
            else None
        )
        if round_ is not None:
            self._step(key, round_)

    def go_on(self) -> None:
        key = self._chance.choice(sorted(self.running))
        self._step(key, self.running[key])

    def wake(self) -> bool:
        """Put what is due into the queue; whether anything was."""
        now = self._memory.now.timestamp()
        due = [key for key, at in self.timers.items() if at <= now]
        for key in due:
            del self.timers[key]
            self.pending.add(key)
        return bool(due)

    def _step(self, key: Key, round_: Coroutine[Any, Any, RetryAfter | None]) -> None:
        try:
            round_.send(None)
        except StopIteration as stop:
            self.running.pop(key, None)
            if isinstance(stop.value, RetryAfter):
                self.timers[key] = self._memory.now.timestamp() + stop.value.seconds
        except FipopError:
            self.running.pop(key, None)
            self.pending.add(key)
        else:
            self.running[key] = round_

    def _hear(self, change: Change) -> None:
        self.inbox.append(change)

    def _build(self) -> None:
        self._queues = queues_of(self.pending)
        manager = build_manager(self.cache, self.client, self._queues)
        # There are no guests to be looked at.
        manager.gate.adopted, manager.gate.is_shut = True, False
        self._floating_ips, self._quarantine = manager.floating_ips, manager.quarantine
        controllers = (manager.floating_ips, manager.quarantine)

        def enqueue(resource: Resource, change: Any) -> None:
            for each in controllers:
                self._queues.add(*each.watches(Event(resource, change)))

        self.cache.listener = Listener(on_change=enqueue)
