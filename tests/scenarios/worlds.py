"""Random worlds of one operator and its guests: a SIMULATION that `chance` decides, and a naive model that judges it.

The model knows nothing of the product: it reads what is stored, with `ipaddress`, and says what may not be so.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from random import Random

from fipop.api import names
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IP_RESERVATIONS, FLOATING_IPS
from tests.harness.memory import Json
from tests.harness.small_operator import SmallOperator
from tests.harness.stored import (
    Owner,
    Slot,
    canonical,
    condition,
    is_held,
    of_kind,
    owner_of,
    slot_of,
    slots_named_by,
)

GUESTS = ("c-m-a", "c-m-b", "c-m-c")
RANGES = ("pool", "other", "third")
LIMITED = "pool"
"""The range with a quota."""
SPACES = ("default", "lab")
POOLS = (
    "10.0.0.10-10.0.0.14,fd00::10-fd00::12",
    "10.0.0.10-10.0.0.12",
    "10.0.0.13-10.0.0.17,fd00::12-fd00::15",
    "10.0.0.15-10.0.0.19",
    "fd00::10-fd00::13",
    "10.0.0.14-10.0.0.10",  # cannot be read
)
POLICIES = (None, None, "SingleStack", "PreferDualStack", "RequireDualStack")
FAMILIES = (None, None, ["IPv4"], ["IPv6"], ["IPv6", "IPv4"])
LABELS = ({"net": "blue"}, {"net": "red"}, {})
REST_SECONDS = 400.0
"""Longer than any quarantine of these ranges, and than what lies between two checks of a guest cluster."""


@dataclass
class World:
    """What people, guests and Rancher do to one operator, and the operator that leads now."""

    chance: Random
    operator: SmallOperator = field(default_factory=lambda: SmallOperator(asks_at_once=True))
    written: dict[str, set[Slot]] = field(default_factory=dict)
    """What fipop wrote to each guest last."""
    problems: list[str] = field(default_factory=list)

    async def begin(self) -> None:
        """Have guests and ranges, and an operator that leads."""
        for guest_id, labels in zip(GUESTS, LABELS, strict=True):
            self.operator.add_guest(guest_id, is_served=self.chance.random() < 0.5)
            self.operator.label_guest(guest_id, **labels)
        for name in RANGES[:2]:
            self._make_range(name)
        await self.operator.start()

    async def edit(self) -> None:
        """Do one thing, and let the operator act on it, as long as it may."""
        acts = (
            *(self._ask,) * 5,
            *(self._change,) * 6,
            *(self._delete,) * 3,
            *(self._edit_range,) * 4,
            *(self._carry,) * 2,
            self._remove_reservation,
            self._label,
        )
        self.chance.choice(acts)()
        draw = self.chance.random()
        if draw < 0.6:
            await self.operator.settle()
            self._follow_moves()
        if draw < 0.2:
            await self._visit(self.chance.choice(GUESTS))
        elif draw < 0.3:
            await self.operator.pass_time(self.chance.choice((1.0, 10.0, 90.0)))
        elif draw < 0.34:
            await self._restart()

    async def rest(self) -> list[str]:
        """Let everything come to rest; what is wrong then."""
        operator = self.operator
        await operator.settle()
        for _ in range(4):  # the end of one quarantine can be what another one waits for
            for guest_id in GUESTS:
                await self._visit(guest_id)
            await operator.pass_time(REST_SECONDS)
        before, version = self._plain(), operator.memory.version
        await operator.refresh()
        await operator.pass_time(REST_SECONDS)
        if operator.memory.version != version:
            self.problems.append("a quiet fleet is written")
        await self._restart()
        await self.operator.pass_time(REST_SECONDS)
        if (after := self._plain()) != before:
            self.problems.append(f"a fresh operator finds {_difference(before, after)}")
        # The judge does not know here what guests carry, so it cannot tell an offer from a mistake.
        judged = [
            str(each) for each in operator.memory.judge.found if "out of the quarantine" not in each.text
        ]
        return [*judged, *self.problems, *NaiveModel(operator.memory.objects).problems()]

    async def _restart(self) -> None:
        self.operator = SmallOperator(self.operator, asks_at_once=True)
        await self.operator.start()

    async def _visit(self, guest_id: str) -> None:
        """Make a pass over a guest; no address may be written to it that fipop wrote to another, which keeps it."""
        carried = self.operator.carried.config_maps
        before = carried.get(guest_id)
        await self.operator.visit(guest_id)
        if carried.get(guest_id) == before:
            return
        texts = {canonical(text.partition("/")[0]) for text in carried[guest_id].split(",") if text}
        self._follow_moves()
        now = {slot for slot in self._named_by(guest_id) if slot[1] in texts}
        for other in GUESTS:
            kept = self.written.get(other, set()) & now if other != guest_id else set()
            self.problems += [f"{slot} is in {guest_id} and in {other}" for slot in kept]
        self.written[guest_id] = now

    def _named_by(self, guest_id: str) -> set[Slot]:
        objects = of_kind(self.operator.memory.objects, FLOATING_IPS.plural)
        return {slot for each in objects if _guest(each) == guest_id for slot in slots_named_by(each)}

    def _follow_moves(self) -> None:
        """The same address of another space is another one: a guest that moved there carries it for that space."""
        for guest_id, slots in self.written.items():
            named = self._named_by(guest_id)
            moved = {text: (space, text) for space, text in named}
            self.written[guest_id] = {slot if slot in named else moved.get(slot[1], slot) for slot in slots}

    def _plain(self) -> dict[object, object]:
        """What counts of every object: who holds what, and which address each names and is refused."""
        plain: dict[object, object] = {}
        for key, each in self.operator.memory.objects.items():
            if key[0] == FLOATING_IP_RESERVATIONS.plural and is_held(each):
                plain[key] = owner_of(each)
            elif key[0] == FLOATING_IPS.plural:
                plain[key] = each["spec"], slots_named_by(each), condition(each, "Allocated")[0]
        return plain

    # What people do

    def _ask(self) -> None:
        guest_id, name = self.chance.choice(GUESTS), self.chance.choice(("web", "api"))
        if (FLOATING_IPS.plural, guest_id, name) in self.operator.memory.objects:
            return
        spec: Json = {"ipaddress": self._address() if self.chance.random() < 0.4 else ""}
        if policy := self.chance.choice(POLICIES):
            spec["ipFamilyPolicy"] = policy
        range_name = self.chance.choice((*RANGES, RANGES[0], ""))
        self.operator.ask(guest_id, name=name, range_name=range_name, **spec)

    def _change(self) -> None:
        found = self._any(FLOATING_IPS.plural)
        if found is None:
            return
        spec, metadata = dict(found.get("spec") or {}), dict(found["metadata"])
        draw = self.chance.random()
        if draw < 0.45:
            spec["ipaddress"] = self._address() if self.chance.random() < 0.8 else ""
        elif draw < 0.6:
            spec["ipFamilyPolicy"] = self.chance.choice(POLICIES)
        elif draw < 0.75:
            spec["ipFamilies"] = self.chance.choice(FAMILIES)
        else:
            range_name = self.chance.choice((*RANGES, ""))
            metadata["annotations"] = {names.ANNOTATION_RANGE: range_name} if range_name else {}
        key = (FLOATING_IPS.plural, metadata["namespace"], metadata["name"])
        self.operator.memory.put(key, {**found, "metadata": metadata, "spec": spec})

    def _delete(self) -> None:
        found = self._any(FLOATING_IPS.plural)
        if found is not None:
            self.operator.give_up(found["metadata"]["namespace"], found["metadata"]["name"])

    def _address(self) -> str:
        named = f"10.0.0.{self.chance.randrange(10, 20)}", f"fd00::1{self.chance.randrange(6)}"
        return self.chance.choice((named[0], named[0], named[1], ",".join(named)))

    def _make_range(self, name: str) -> None:
        spec: Json = {
            "iprange": self.chance.choice(POOLS[:-1]),
            "quarantineSeconds": self.chance.choice((0, 5, 60)),
            "addressSpace": self.chance.choice((SPACES[0], SPACES[0], SPACES[1])),
        }
        if name == LIMITED:
            spec["maxPerGuest"] = self.chance.choice((1, 2, 3))
        if self.chance.random() < 0.6:
            spec["clusterSelector"] = {"matchLabels": self.chance.choice(LABELS)}
        self.operator.add_range(name, **spec)

    def _edit_range(self) -> None:
        name = self.chance.choice(RANGES)
        found = self.operator.memory.objects.get((FLOATING_IP_RANGES.plural, "", name))
        draw = self.chance.random()
        if found is None:
            self._make_range(name)
        elif draw < 0.15:
            self.operator.memory.remove((FLOATING_IP_RANGES.plural, "", name))
        elif draw < 0.5:
            self.operator.change_range(name, iprange=self.chance.choice(POOLS))
        elif draw < 0.7:
            self.operator.change_range(name, draining=self.chance.random() < 0.5)
        elif draw < 0.85:
            self.operator.change_range(name, restrictToMatching=self.chance.random() < 0.5)
        else:
            self.operator.change_range(name, searchOrder=self.chance.choice(("asc", "desc")))

    def _carry(self) -> None:
        """Have a Service of a guest hold an address, or none."""
        guest_id, services = self.chance.choice(GUESTS), self.operator.carried.services
        if self.chance.random() < 0.6:
            services[guest_id] = self._address().partition(",")[0]
        else:
            services.pop(guest_id, None)

    def _remove_reservation(self) -> None:
        """Delete a reservation by hand whose floating IP names it."""
        objects = self.operator.memory.objects
        named = {slot for each in of_kind(objects, FLOATING_IPS.plural) for slot in slots_named_by(each)}
        held = [each for each in of_kind(objects, FLOATING_IP_RESERVATIONS.plural) if slot_of(each) in named]
        if held:
            found = self.chance.choice(held)
            key = (FLOATING_IP_RESERVATIONS.plural, "", found["metadata"]["name"])
            self.operator.memory.remove(key, by_people=True)
            for slots in self.written.values():  # an admin frees an address though a guest carries it
                slots.discard(slot_of(found))

    def _label(self) -> None:
        self.operator.label_guest(self.chance.choice(GUESTS), **self.chance.choice(LABELS))

    def _any(self, plural: str) -> Json | None:
        found = of_kind(self.operator.memory.objects, plural)
        return self.chance.choice(found) if found else None


@dataclass
class NaiveModel:
    """Who may hold what, told from the stored objects alone."""

    objects: dict[tuple[str, str, str], Json]

    def problems(self) -> list[str]:
        """What is not as it must be at rest."""
        return [*self._two_owners(), *self._unowned(), *self._waiting_in_vain()]

    def _two_owners(self) -> Iterator[str]:
        owners: dict[Slot, set[Owner]] = {}
        for each in self._reservations():
            if is_held(each):
                owners.setdefault(slot_of(each), set()).add(owner_of(each))
        for each in self._floating_ips():
            for slot in slots_named_by(each):
                owners.setdefault(slot, set()).add((_guest(each), each["metadata"]["name"]))
        for slot, found in owners.items():
            if len(found) > 1:
                yield f"{slot} has the owners {sorted(found)}"

    def _unowned(self) -> Iterator[str]:
        """Held reservations are the living floating IPs' addresses (I2)."""
        named = {slot for each in self._floating_ips() for slot in slots_named_by(each)}
        held = {slot_of(each) for each in self._reservations() if is_held(each)}
        for slot in held ^ named:
            yield f"{slot} is {'held, and no status names it' if slot in held else 'named, and not held'}"

    def _waiting_in_vain(self) -> Iterator[str]:
        """Whose range could serve it has an address, and the one that it names, if it is free."""
        for each in self._floating_ips():
            where = self.objects.get((FLOATING_IP_RANGES.plural, "", self._range_name(each)))
            spec = each.get("spec") or {}
            if (
                where is None
                or not self._serves_all(where)
                or spec.get("ipFamilyPolicy")
                or spec.get("ipFamilies")
            ):
                continue
            space = where["spec"].get("addressSpace", SPACES[0])
            taken = self._taken_from(each)
            free = {text for text in self._assigned(where) if (space, text) not in taken}
            held = {address for _, address in slots_named_by(each)}
            wanted = [canonical(text) for text in (spec.get("ipaddress") or "").split(",") if text]
            served = [text for text in free if ("." in text) == any("." in each for each in _pool(where))]
            if not wanted and not held and served:
                yield f"{each['metadata']} waits, though {sorted(served)} are free: {each.get('status')}"
            if len(wanted) == 1 and wanted[0] in free and wanted[0] not in held:
                yield f"{each['metadata']} does not get {wanted[0]}, which is free: {each.get('status')}"

    def _taken_from(self, floating_ip: Json) -> set[Slot]:
        owner = (_guest(floating_ip), floating_ip["metadata"]["name"])
        taken = {slot_of(each) for each in self._reservations() if owner_of(each) != owner}
        for each in self._floating_ips():
            if (_guest(each), each["metadata"]["name"]) != owner:
                taken |= slots_named_by(each)
        return taken

    def _range_name(self, floating_ip: Json) -> str:
        return str((floating_ip["metadata"].get("annotations") or {}).get(names.ANNOTATION_RANGE) or "")

    @staticmethod
    def _serves_all(where: Json) -> bool:
        limits = ("draining", "maxPerGuest", "restrictToMatching")
        ready = condition(where, "Ready")
        return not any(where["spec"].get(each) for each in limits) and ready[0] == "True"

    def _assigned(self, where: Json) -> set[str]:
        """Return the addresses that a range assigns: those of its pool that no older range of its space has."""
        found = _pool(where)
        for each in of_kind(self.objects, FLOATING_IP_RANGES.plural):
            is_near = each["spec"].get("addressSpace", SPACES[0]) == where["spec"].get(
                "addressSpace", SPACES[0]
            )
            if is_near and _age(each) < _age(where):
                found -= _pool(each)
        return found

    def _reservations(self) -> list[Json]:
        return of_kind(self.objects, FLOATING_IP_RESERVATIONS.plural)

    def _floating_ips(self) -> list[Json]:
        return of_kind(self.objects, FLOATING_IPS.plural)


def _pool(where: Json) -> set[str]:
    found: set[str] = set()
    for part in where["spec"]["iprange"].split(","):
        first, last = (ip_address(text) for text in part.split("-"))
        if int(first) > int(last):
            return set()
        found |= {str(type(first)(number)) for number in range(int(first), int(last) + 1)}
    return found


def _age(where: Json) -> tuple[str, str]:
    return where["metadata"]["creationTimestamp"], where["metadata"]["name"]


def _guest(floating_ip: Json) -> str:
    return str(floating_ip["metadata"]["namespace"])


def _difference(before: dict[object, object], after: dict[object, object]) -> str:
    changed = sorted((key for key in {*before, *after} if before.get(key) != after.get(key)), key=str)
    return "; ".join(f"{key}: {before.get(key)} → {after.get(key)}" for key in changed)
