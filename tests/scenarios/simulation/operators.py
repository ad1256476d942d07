"""The product's own reconcilers, driven step by step over the API server in memory: a SIMULATION.

Reconcilers, claims, the protocol of reservations, books, stores and routing are the product's. The queue, the watch
and the clock are ours, for the driver to decide by `chance`: which round goes on, which event arrives, who crashes.
"""

from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import fields
from random import Random
from typing import Any, cast

from fipop.api.parsing import parse_reservation
from fipop.control.workqueue import RetryAfter, WorkQueue
from fipop.errors import FipopError
from fipop.kube.client import KubeClient
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IP_RESERVATIONS, FLOATING_IPS, Resource
from fipop.operator.addresses.quarantine import QuarantineReconciler, Surroundings
from fipop.operator.addresses.reconciler import Callbacks, FloatingIPReconciler
from fipop.operator.addresses.reservations import ReservationStore
from fipop.operator.addresses.view_building import ViewBuilder
from fipop.operator.routing import Key, Kind, Router
from fipop.state.cache import ClusterCache
from fipop.state.gate import AllocationGate
from fipop.state.guests import GuestDirectory
from tests.harness.history import Change
from tests.harness.memory import Json, Memory, MemoryClient

RESOURCES: dict[str, Resource] = {
    resource.plural: resource for resource in (FLOATING_IP_RANGES, FLOATING_IPS, FLOATING_IP_RESERVATIONS)
}
ROUNDS_AT_ONCE = 4


class Pending:
    """Stands where the work queue does: keys that wait, each once, in their order."""

    def __init__(self) -> None:
        self.keys: dict[Key, None] = {}

    def add(self, key: Key, **_: object) -> None:
        self.keys[key] = None


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
        self.cache = ClusterCache()
        self._build()
        for key, obj in sorted(
            self._memory.objects.items(), key=lambda item: int(item[1]["metadata"]["resourceVersion"])
        ):
            self.cache.observe(RESOURCES[key[0]], obj)
        for floating_ip in self.cache.floating_ips.all():
            self.router.add_floating_ip(floating_ip.meta.key)
        for reservation in self.cache.reservations.all():
            self.router.add_reservation(reservation)

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
        metadata: Json = {"name": change.name, "resourceVersion": str(change.revision)}
        if change.namespace:
            metadata["namespace"] = change.namespace
        gone = self.cache.store_of(resource).delete({"metadata": metadata})
        if gone is not None:
            self.cache._take(resource, gone)

    def begin(self) -> None:
        key = next(key for key in self.pending.keys if key not in self.running)
        del self.pending.keys[key]
        round_ = (
            self._floating_ips.reconcile((key.namespace, key.name))
            if key.kind is Kind.FLOATING_IP
            else self._releaser.reconcile(key.name)
            if key.kind is Kind.RESERVATION
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
        cache, client = self.cache, cast("KubeClient", self.client)
        self.router = Router(
            cache=cache,
            work=cast("WorkQueue[Key]", self.pending),
            passes=cast("WorkQueue[str]", Pending()),
        )
        cache.on_change = self.router.route
        cache.monotonic = lambda: self._memory.now.timestamp()
        guests = GuestDirectory(cache=cache, client=client)
        reservation_store = ReservationStore(
            client=client,
            lookup=lambda name: cache.reservations.get("", name),
            observe=self._observe,
            forget=lambda gone: cache.forget(FLOATING_IP_RESERVATIONS, gone),
            now=client.server_now,
            monotonic=cache.monotonic,
        )
        silent = {each.name: _ignore for each in fields(Callbacks)}
        told = {"gone": self.router.add_reservation, "waiting": self.router.note_waiting}
        self._releaser = QuarantineReconciler(
            client=client,
            cache=cache,
            reservation_store=reservation_store,
            guests=guests,
            surroundings=Surroundings(
                **{
                    **{each.name: _ignore for each in fields(Surroundings)},
                    "may_release": lambda _: True,
                    "look_at_conflicts": _nobody,
                    "owner_changed": self.router.add_floating_ip,
                }
            ),
            now=client.server_now,
        )
        self._floating_ips = FloatingIPReconciler(
            client=client,
            cache=cache,
            reservation_store=reservation_store,
            views=ViewBuilder(
                cache=cache,
                reservation_store=reservation_store,
                gate=AllocationGate(adopted=True, looked=True),
                guests=guests,
                carrier_of=self._releaser.carrier_of,
            ),
            callbacks=Callbacks(**{**silent, **told}),
        )

    def _observe(self, answer: Json) -> Any:
        self.cache.observe(FLOATING_IP_RESERVATIONS, answer)
        return parse_reservation(answer)


async def _nobody(*_: object) -> None:
    return None


def _ignore(*_: object) -> None:
    """Nobody listens."""
