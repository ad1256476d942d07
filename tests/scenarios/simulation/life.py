"""One life of a simulation: operators, people, and `chance`, who decides what happens next."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from fipop.ipam.addresses import Address
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IP_RESERVATIONS, FLOATING_IPS
from fipop.operator.addresses.reconciler import WAITING_SECONDS
from fipop.operator.queues import Kind
from tests.harness.ends import unsettled
from tests.harness.memory import Json, Key, Memory
from tests.harness.stored import Owner, condition, is_held, of_kind, owner_of, slot_of, slots_named_by
from tests.scenarios.simulation.operators import SimulatedOperator
from tests.scenarios.simulation.people import RANGES, People

MOST_STEPS = 200_000
"""Until everything is at rest; who is not by then goes round in a circle."""


@dataclass(slots=True)
class Simulation:
    """Operators, people who make, change and delete floating IPs, and `chance`, who decides everything."""

    chance: Random
    trouble: float = 0.03
    crashes: float = 0.002
    vandalism: float = 0.05
    edits: float = 0.03
    population: int = 12
    size: int = 2
    memory: Memory = field(default_factory=Memory)
    operators: list[SimulatedOperator] = field(default_factory=list)
    people: People = field(init=False)
    _written_at: float = 0.0

    def __post_init__(self) -> None:
        self.people = People(
            memory=self.memory,
            chance=self.chance,
            population=self.population,
            vandalism=self.vandalism,
            edits=self.edits,
            asks_for=self._asks_for if self.size == 1 else None,
        )
        self.memory.listeners.append(self._note_write)
        self.people.begin()
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
        self._come_to_rest()
        state = {key: obj for key, obj in self.memory.objects.items() if key[0] != FLOATING_IP_RANGES.plural}
        waiting = [key[2] for key, obj in state.items() if (obj["spec"] or {}).get("quarantinedUntil")]
        return [
            *unsettled(state, {}),
            *(f"{name} still waits" for name in waiting),
            *self._shared(),
            *self._waiting_in_vain(),
            *self._changed_by_restart(),
        ]

    def _come_to_rest(self) -> None:
        for _ in range(MOST_STEPS):
            possible = self._steps()
            if possible:
                self.chance.choice(possible)()
            elif self._may_go_on():
                self._pass_a_second()
            else:
                return

    def _may_go_on(self) -> bool:
        """Return whether more may happen by itself: whoever waits on asks again and again, and changes nothing."""
        timers = [key for operator in self.operators for key in operator.timers]
        is_asked_again = self._now() <= self._written_at + WAITING_SECONDS + 1.0
        return bool(timers) and (is_asked_again or any(key.kind is not Kind.FLOATING_IP for key in timers))

    def _note_write(self, _change: object) -> None:
        self._written_at = self._now()

    def _now(self) -> float:
        return self.memory.now.timestamp()

    def _shared(self) -> list[str]:
        """Addresses of one range that two hold, each in another space: they are of one network.

        Of two operators one may not have heard who has an address in the other space, and nothing else would tell it.
        """
        owners: dict[tuple[str, str], set[Owner]] = defaultdict(set)
        for each in self._held() if self.size == 1 else ():
            owners[each["spec"]["range"], slot_of(each)[1]].add(owner_of(each))
        return [f"{which} is held by {sorted(them)}" for which, them in owners.items() if len(them) > 1]

    def _waiting_in_vain(self) -> list[str]:
        """Who waits for an address that another has though any would do."""
        own: dict[Owner, list[Json]] = defaultdict(list)
        for each in self._held():
            own[owner_of(each)].append(each)
        found = []
        for floating_ip in of_kind(self.memory.objects, FLOATING_IPS.plural):
            owner = (floating_ip["metadata"]["namespace"], floating_ip["metadata"]["name"])
            named = set(filter(None, (floating_ip["spec"].get("ipaddress") or "").split(",")))
            is_chosen = all(each["spec"]["requested"] == "dynamic" for each in own[owner])
            has_all = named <= {slot_of(each)[1] for each in own[owner]}
            if is_chosen and has_all and condition(floating_ip, "Allocated")[1] == "AddressInUse":
                found.append(f"{owner} waits for what another has, and named none: {floating_ip['status']}")
        return found

    def _changed_by_restart(self) -> list[str]:
        """What an operator that starts anew does not leave as it is: nothing told the former one of it."""
        before = self._plain()
        for operator in self.operators:
            operator.crash()
        self._come_to_rest()
        after = self._plain()
        changed = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
        return [f"{key} is changed by a restart: {before.get(key)} to {after.get(key)}" for key in changed]

    def _plain(self) -> dict[Key, tuple[Any, ...]]:
        """What counts of every object; of several obstacles one may come to be, and wake nobody who waits anyway."""
        plain: dict[Key, tuple[Any, ...]] = {}
        for key, obj in self.memory.objects.items():
            verdict, _ = condition(obj, "Allocated")
            plain[key] = obj["spec"], slots_named_by(obj), verdict
        return plain

    def _held(self) -> list[Json]:
        reservations = of_kind(self.memory.objects, FLOATING_IP_RESERVATIONS.plural)
        return [each for each in reservations if is_held(each)]

    def _asks_for(self, owner: Owner, address: Address) -> bool:
        allocations = self.operators[0].cache.allocations
        return any(
            allocations.unsettled(each, name, address.family) == address
            for each in allocations.claimants()
            for name in RANGES
            if each != owner
        )

    def _happen(self) -> None:
        draw = self.chance.random()
        if draw < self.crashes:
            self.chance.choice(self.operators).crash()
            return
        if draw < 0.06:
            self.people.act()
            return
        if draw < 0.08:
            self._pass_a_second()
        possible = self._steps()
        if possible:
            self.chance.choice(possible)()
        else:
            self.people.act()
            self._pass_a_second()

    def _steps(self) -> list[Callable[[], None]]:
        return [step for operator in self.operators for step in operator.steps()]

    def _pass_a_second(self) -> None:
        self.memory.pass_time(1.0)
        for operator in self.operators:
            operator.wake()
