"""The product's own reconcilers, driven step by step over the API server in memory: a SIMULATION.

Reconcilers, claims, the protocol of reservations, books, stores and routing are the product's. The queue, the watch
and the clock are ours, for the driver to decide by `chance`: which round goes on, which event arrives, who crashes.
"""

import itertools
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, fields
from random import Random
from typing import Any, cast

from fipop.api.parsing import parse_floating_ip, parse_reservation
from fipop.control.workqueue import RetryAfter, WorkQueue
from fipop.errors import FipopError
from fipop.ipam.addresses import Family, parse_address
from fipop.kube.client import KubeClient
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IP_RESERVATIONS, FLOATING_IPS, Resource
from fipop.operator.floatingips import Callbacks, FloatingIPReconciler
from fipop.operator.gates import Gates
from fipop.operator.guests import GuestDirectory
from fipop.operator.release import Releaser, Surroundings
from fipop.operator.request import SpecError, read_request, wanted_families
from fipop.operator.reservations import ReservationDesk
from fipop.operator.routing import Key, Kind, Router
from fipop.operator.world import World
from tests.faults.ends import unsettled
from tests.faults.history import Change
from tests.faults.stored import is_held, is_seen, owner_of, slot_of, slots_named_by
from tests.unit.simulation.memory import Json, Memory, MemoryClient

RESOURCES: dict[str, Resource] = {
    resource.plural: resource for resource in (FLOATING_IP_RANGES, FLOATING_IPS, FLOATING_IP_RESERVATIONS)
}
ROUNDS_AT_ONCE = 4
NAMESPACE = "crowd"
POLICIES = ("SingleStack", "PreferDualStack", "RequireDualStack")


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
        self.world = World()
        self._build()
        for key, obj in sorted(
            self._memory.objects.items(), key=lambda item: int(item[1]["metadata"]["resourceVersion"])
        ):
            self.world.observe(RESOURCES[key[0]], obj)
        for floating_ip in self.world.floating_ips.all():
            self.router.add_floating_ip(floating_ip.meta.key)
        for reservation in self.world.reservations.all():
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
            self.world.observe(resource, change.obj)
            return
        metadata: Json = {"name": change.name, "resourceVersion": str(change.revision)}
        if change.namespace:
            metadata["namespace"] = change.namespace
        gone = self.world.store_of(resource).delete({"metadata": metadata})
        if gone is not None:
            self.world._take(resource, gone)

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
        world, client = self.world, cast("KubeClient", self.client)
        self.router = Router(
            world=world,
            work=cast("WorkQueue[Key]", self.pending),
            passes=cast("WorkQueue[str]", Pending()),
        )
        world.on_change = self.router.route
        world.monotonic = lambda: self._memory.now.timestamp()
        guests = GuestDirectory(world=world, client=client)
        desk = ReservationDesk(
            client=client,
            lookup=lambda name: world.reservations.get("", name),
            observe=self._observe,
            forget=lambda gone: world.forget(FLOATING_IP_RESERVATIONS, gone),
            now=client.server_now,
        )
        silent = {each.name: _ignore for each in fields(Callbacks)}
        told = {"gone": self.router.add_reservation, "waiting": self.router.note_waiting}
        self._releaser = Releaser(
            client=client,
            world=world,
            desk=desk,
            guests=guests,
            surroundings=Surroundings(
                **{
                    **{each.name: _ignore for each in fields(Surroundings)},
                    "may_release": lambda _: True,
                    "look_at_rivals": _nobody,
                    "owner_changed": self.router.add_floating_ip,
                }
            ),
            now=client.server_now,
        )
        self._floating_ips = FloatingIPReconciler(
            client=client,
            world=world,
            desk=desk,
            gates=Gates(adopted=True, looked=True),
            guests=guests,
            callbacks=Callbacks(**{**silent, **told}),
            carrier_of=self._releaser.carrier_of,
        )

    def _observe(self, answer: Json) -> Any:
        self.world.observe(FLOATING_IP_RESERVATIONS, answer)
        return parse_reservation(answer)


async def _nobody(*_: object) -> None:
    return None


def _ignore(*_: object) -> None:
    """Nobody listens."""


@dataclass(slots=True)
class Simulation:
    """Operators, people who make, change and delete floating IPs, and `chance`, who decides everything."""

    chance: Random
    trouble: float = 0.03
    crashes: float = 0.002
    vandalism: float = 0.05
    population: int = 12
    size: int = 2
    memory: Memory = field(default_factory=Memory)
    operators: list[SimulatedOperator] = field(default_factory=list)
    _names: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.memory.put(
            (FLOATING_IP_RANGES.plural, "", "pool"),
            {
                "metadata": {"name": "pool"},
                "spec": {"iprange": "10.0.0.10-10.0.0.25,fd00::10-fd00::15", "quarantineSeconds": 2},
            },
        )
        self.operators = [
            SimulatedOperator(self.memory, self.chance, trouble=self.trouble) for _ in range(self.size)
        ]

    def run(self, allocations: int) -> None:
        """Go on until so many addresses were given out, or an invariant broke."""
        while self.memory.allocations < allocations and not self.memory.judge.found:
            self._happen()

    def settle(self) -> list[str]:
        """Let the trouble end, and everything come to rest; what is not as it should be then."""
        for operator in self.operators:
            operator.client.trouble = 0.0
        for _ in range(200_000):
            possible = [step for operator in self.operators for step in operator.steps()]
            if possible:
                self.chance.choice(possible)()
            elif any(operator.timers for operator in self.operators):
                self.memory.pass_time(1.0)
                for operator in self.operators:
                    operator.wake()
            else:
                break
        state = {key: obj for key, obj in self.memory.objects.items() if key[0] != FLOATING_IP_RANGES.plural}
        waiting = [key[2] for key, obj in state.items() if (obj["spec"] or {}).get("quarantinedUntil")]
        return unsettled(state, {}) + [f"{name} still waits" for name in waiting]

    def _happen(self) -> None:
        draw = self.chance.random()
        if draw < self.crashes:
            self.chance.choice(self.operators).crash()
            return
        if draw < 0.06:
            self._people()
            return
        if draw < 0.08:
            self.memory.pass_time(1.0)
            for operator in self.operators:
                operator.wake()
        possible = [step for operator in self.operators for step in operator.steps()]
        if possible:
            self.chance.choice(possible)()
        else:
            self._people()
            self.memory.pass_time(1.0)
            for operator in self.operators:
                operator.wake()

    def _people(self) -> None:
        keys = sorted(key for key in self.memory.objects if key[0] == FLOATING_IPS.plural)
        if len(keys) < self.population and self.chance.random() < 0.6:
            name = (
                f"f{next(self._names)}" if self.chance.random() < 0.7 else f"again{self.chance.randrange(4)}"
            )
            key = (FLOATING_IPS.plural, NAMESPACE, name)
            if key not in self.memory.objects:
                self.memory.put(key, self._build(name))
            return
        if not keys:
            return
        if self.chance.random() < self.vandalism:
            self._delete_reservation()
            return
        key = self.chance.choice(keys)
        if self.chance.random() < 0.6:
            self.memory.remove(key)
            return
        found = self.memory.objects[key]
        spec = dict(found.get("spec") or {})
        if self.chance.random() < 0.3:
            spec["ipFamilyPolicy"] = self.chance.choice(POLICIES)
        else:
            spec["ipaddress"] = self._address() if self.chance.random() < 0.8 else ""
        self.memory.put(key, {**found, "spec": spec})

    def _delete_reservation(self) -> None:
        """An admin deletes a reservation that nobody is just about to get, or to give up: that cannot be stopped.

        What its owner wants no more a status on its way may leave out, and who deletes it then has it freed. Where two
        operators are at work, one may not have heard who has the address, and nothing else would tell it.
        """
        if len(self.operators) > 1:
            return
        named = set().union(*(slots_named_by(obj) for obj in self.memory.objects.values() if is_seen(obj)))
        held = sorted(
            key
            for key, obj in self.memory.objects.items()
            if key[0] == FLOATING_IP_RESERVATIONS.plural
            and is_held(obj)
            and slot_of(obj) in named
            and not self._is_asked_for(obj)
            and not self._is_spare(obj)
        )
        if held:
            self.memory.remove(self.chance.choice(held), by_people=True)

    def _is_asked_for(self, reservation: Json) -> bool:
        """Whether another's claim for the address is under way, or its outcome open."""
        books = self.operators[0].world.books
        wanted = parse_address(reservation["spec"]["address"])
        return any(
            books.unsettled(owner, "pool", wanted.family) == wanted
            for owner in books.claimants()
            if owner != owner_of(reservation)
        )

    def _is_spare(self, reservation: Json) -> bool:
        """Whether its owner wants no address of that family any more."""
        found = self.memory.objects.get((FLOATING_IPS.plural, *owner_of(reservation)))
        try:
            request = read_request(parse_floating_ip(found)) if found is not None else None
        except SpecError:
            return False
        if request is None:
            return False
        family = parse_address(reservation["spec"]["address"]).family
        return family not in wanted_families(request, frozenset(Family), frozenset(Family))

    def _build(self, name: str) -> Json:
        spec = {"ipaddress": self._address()} if self.chance.random() < 0.3 else {}
        if self.chance.random() < 0.3:
            spec["ipFamilyPolicy"] = self.chance.choice(POLICIES)
        metadata = {"name": name, "namespace": NAMESPACE, "annotations": {"fiprange": "pool"}}
        return {"metadata": metadata, "spec": spec}

    def _address(self) -> str:
        return f"10.0.0.{self.chance.randrange(10, 26)}"
