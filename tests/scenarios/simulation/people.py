"""People of a simulation: they make, change and delete floating IPs, edit their range, and delete reservations."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from fipop.api.parsing import parse_floating_ip
from fipop.ipam.addresses import Address, Family, parse_address
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IP_RESERVATIONS, FLOATING_IPS
from fipop.operator.addresses.values import SpecError, read_request, wanted_families
from tests.harness.memory import Json, Key, Memory
from tests.harness.stored import Owner, is_held, is_seen, owner_of, slot_of, slots_named_by

RANGES = ("pool", "other")
NAMESPACE = "crowd"
POLICIES = ("SingleStack", "PreferDualStack", "RequireDualStack", None)
FAMILIES = (("IPv4",), ("IPv6",), ("IPv6", "IPv4"), None)
POOLS = (
    "10.0.0.10-10.0.0.25,fd00::10-fd00::15",
    "10.0.0.10-10.0.0.17,fd00::10-fd00::12",
    "10.0.0.18-10.0.0.31,fd00::13-fd00::18",
    "10.0.0.10-10.0.0.25",
    "10.0.0.25-10.0.0.10",  # cannot be read
)
SPACES = ("default", "lab")


@dataclass(slots=True)
class People:
    """Whose acts `chance` chooses; `asks_for` tells whether another's claim for somebody's address is under way.

    Where there is none to ask, nobody deletes reservations: two operators may not have heard who has the address, and
    nothing else would tell them.
    """

    memory: Memory
    chance: Random
    population: int
    vandalism: float
    edits: float
    asks_for: Callable[[Owner, Address], bool] | None
    _names: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def begin(self) -> None:
        """Make the ranges; the younger one overlaps the older."""
        for name, pool in zip(RANGES, (POOLS[0], POOLS[2]), strict=True):
            self._define(name, {"iprange": pool, "quarantineSeconds": 2})

    def act(self) -> None:
        """Do one thing."""
        if self.chance.random() < self.edits:
            self._edit_range()
            return
        keys = sorted(key for key in self.memory.objects if key[0] == FLOATING_IPS.plural)
        if len(keys) < self.population and self.chance.random() < 0.6:
            self._make()
        elif not keys:
            return
        elif self.chance.random() < self.vandalism:
            self._delete_reservation()
        else:
            self._change(self.chance.choice(keys))

    def _make(self) -> None:
        chance = self.chance
        name = f"f{next(self._names)}" if chance.random() < 0.7 else f"again{chance.randrange(4)}"
        key = (FLOATING_IPS.plural, NAMESPACE, name)
        if key in self.memory.objects:
            return
        spec = {"ipaddress": self._address()} if chance.random() < 0.3 else {}
        if chance.random() < 0.3:
            spec["ipFamilyPolicy"] = chance.choice(POLICIES)
        annotations = {"fiprange": RANGES[chance.random() < 0.3]}
        metadata = {"name": name, "namespace": NAMESPACE, "annotations": annotations}
        self.memory.put(key, {"metadata": metadata, "spec": spec})

    def _change(self, key: Key) -> None:
        draw = self.chance.random()
        if draw < 0.6:
            self.memory.remove(key)
            return
        if draw < 0.7:
            self._move(key)
            return
        found = self.memory.objects[key]
        spec = dict(found.get("spec") or {})
        draw = self.chance.random()
        if draw < 0.3:
            spec["ipFamilyPolicy"] = self.chance.choice(POLICIES)
        elif draw < 0.4:
            spec["ipFamilies"] = self.chance.choice(FAMILIES)
        else:
            spec["ipaddress"] = self._address() if self.chance.random() < 0.8 else ""
        self.memory.put(key, {**found, "spec": spec})

    def _address(self) -> str:
        named = f"10.0.0.{self.chance.randrange(10, 32)}", f"fd00::1{self.chance.randrange(9)}"
        return self.chance.choice((named[0], named[0], named[1], ",".join(named)))

    def _move(self, key: Key) -> None:
        """Have a floating IP name another range, the same, or none."""
        found = self.memory.objects[key]
        name = self.chance.choice((*RANGES, ""))
        metadata = {**found["metadata"], "annotations": {"fiprange": name} if name else {}}
        self.memory.put(key, {**found, "metadata": metadata})

    def _edit_range(self) -> None:
        """Change one thing of a range, make it as the first was, or take it away, finalizer or not."""
        name = self.chance.choice(RANGES)
        found = self.memory.objects.get(_range_key(name))
        draw = self.chance.random()
        if found is None or draw < 0.25:
            # Nobody can change the space of a range that is there.
            space = found["spec"].get("addressSpace", SPACES[0]) if found else self.chance.choice(SPACES)
            self._define(name, {"iprange": POOLS[0], "quarantineSeconds": 2, "addressSpace": space})
            return
        if draw < 0.5:
            self.memory.remove(_range_key(name))
            return
        spec = dict(found["spec"])
        if draw < 0.8:
            spec["iprange"] = self.chance.choice(POOLS)
        elif draw < 0.9:
            spec["draining"] = not spec.get("draining", False)
        else:
            spec["quarantineSeconds"] = self.chance.randrange(4)
        self._define(name, spec)

    def _define(self, name: str, spec: Json) -> None:
        found = self.memory.objects.get(_range_key(name), {"metadata": {"name": name}})
        self.memory.put(_range_key(name), {**found, "spec": spec})

    def _delete_reservation(self) -> None:
        """An admin deletes a reservation that nobody is just about to get, or to give up: that cannot be stopped.

        What its owner wants no more a status on its way may leave out, and who deletes it then has it freed.
        """
        if self.asks_for is None:
            return
        named = set().union(*(slots_named_by(obj) for obj in self.memory.objects.values() if is_seen(obj)))
        held = sorted(
            key
            for key, obj in self.memory.objects.items()
            if key[0] == FLOATING_IP_RESERVATIONS.plural
            and is_held(obj)
            and slot_of(obj) in named
            and not self.asks_for(owner_of(obj), parse_address(obj["spec"]["address"]))
            and not self._is_spare(obj)
        )
        if held:
            self.memory.remove(self.chance.choice(held), by_people=True)

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


def _range_key(name: str) -> Key:
    return FLOATING_IP_RANGES.plural, "", name
