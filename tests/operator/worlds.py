"""Random worlds of one operator and its guest clusters: a SIMULATION. The invariants are judged as everywhere.

Beside them, at each rest nobody waits in vain, and a fresh operator changes nothing.
`python -m tests.operator.worlds 2000 --seed 7` runs many; each world is one number, which replays it.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from fipop.api import names
from tests.harness.api_in_memory import Commit, Json
from tests.harness.crashes import crashes
from tests.harness.fleet import Fleet, services_of
from tests.harness.history import FLOATING_IPS, RANGES, RESERVATIONS
from tests.harness.invariants.rest import unmatched, waiting_in_vain
from tests.harness.stored import canonical, condition, is_held, of_kind, owner_of, slot_of, slots_named_by
from tests.harness.virtual_time import run_virtually

GUESTS = ("c-m-a", "c-m-b", "c-m-c")
NAMES = ("pool", "other", "third")
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
EDITS = (25, 45)
EDITS_BEFORE_A_REST = 20
REST_SECONDS = 505.0
"""Longer than any quarantine of these ranges, and than what lies between two visits of a guest cluster."""


@dataclass
class World:
    """What administrators, guest clusters and Rancher do to one operator."""

    chance: Random
    fleet: Fleet = field(default_factory=Fleet)
    spaces: dict[str, str] = field(default_factory=dict)
    """The address space of each range, also of one that is made again."""
    problems: list[str] = field(default_factory=list)
    has_lease: bool = False
    """Whether one operator hands over to the next by the Lease."""

    async def live(self) -> list[str]:
        """Run one world to its end; return what was wrong at a rest."""
        await self._begin()
        for number in range(1, self.chance.randint(*EDITS) + 1):
            await self._edit()
            if number % EDITS_BEFORE_A_REST == 0 and (problems := await self._rest()):
                return problems
        return await self._rest()

    async def _begin(self) -> None:
        for guest_id, labels in zip(GUESTS, LABELS, strict=True):
            self.fleet.add_guest(guest_id, is_served=self.chance.random() < 0.5, labels=labels)
        for name in NAMES[:2]:
            self._make_range(name)
        self.fleet.memory.listeners.append(self._judge_reported)
        self.has_lease = self.chance.random() < 0.5
        await self.fleet.start(leader_election=self.has_lease)

    async def _edit(self) -> None:
        """Do one thing, and let the operator act on it, as long as it may."""
        self._act()
        draw = self.chance.random()
        if draw < 0.6:
            await self.fleet.settle()
        if draw < 0.1:
            await self.fleet.pass_time(self.chance.choice((1.0, 10.0, 90.0)))
        elif draw < 0.18:
            await self._change_leader()

    async def _change_leader(self) -> None:
        """End the operator, and start another one; things happen in between, and before it has read everything."""
        is_stopped = self.chance.random() < 0.5
        await (self.fleet.stop() if is_stopped else self.fleet.kill())
        for _ in range(self.chance.choice((0, 0, 1, 3))):
            self._act()
        seconds = self.chance.choice((1.0, 3.0, 10.0))
        if self.has_lease and not is_stopped:
            seconds += 17.0  # until the Lease is over
        await self.fleet.start(leader_election=self.has_lease, seconds=seconds)

    def _act(self) -> None:
        """Do one thing."""
        acts = (
            *(self._ask,) * 5,
            *(self._change,) * 6,
            *(self._delete,) * 3,
            *(self._edit_range,) * 4,
            *(self._use,) * 2,
            self._remove_reservation,
            self._label,
            self._silence,
            self._connect,
        )
        self.chance.choice(acts)()

    async def _rest(self) -> list[str]:
        """Let everything come to rest; return what is wrong then."""
        fleet = self.fleet
        for guest in fleet.guests.values():
            guest.silent = False
            fleet.connect(guest.id)
        # The end of one quarantine can be what another one waits for.
        await fleet.pass_time(2 * REST_SECONDS)
        before, version = self._plain(), fleet.memory.version
        await fleet.pass_time(REST_SECONDS)
        if written := fleet.commits_since(version):
            self.problems.append(f"a quiet fleet is written: {[each.key for each in written[:3]]}")
        await fleet.restart(leader_election=self.has_lease, seconds=60)
        if (after := self._plain()) != before:
            self.problems.append(f"a fresh operator finds {_difference(before, after)}")
        used = {each.id: services_of(each) for each in fleet.guests.values()}
        return [
            *fleet.problems,
            *self.problems,
            *unmatched(fleet.memory.objects),
            *waiting_in_vain(fleet.memory.objects, used),
        ]

    def _judge_reported(self, commit: Commit) -> None:
        """Judge a new reservation: what the status of a range shows of a guest cluster goes to no other one."""
        if commit.key[0] != RESERVATIONS or commit.before is not None or commit.obj is None:
            return
        (space, text), owner = slot_of(commit.obj), owner_of(commit.obj)
        floating_ip = self.fleet.memory.objects.get((FLOATING_IPS, *owner)) or {}
        if (space, text) in slots_named_by(floating_ip):
            return  # it has it already: its reservation was deleted
        for found in of_kind(self.fleet.memory.objects, RANGES):
            if found["spec"].get("addressSpace", SPACES[0]) != space:
                continue
            for entry in (found.get("status") or {}).get("reported") or ():
                user = self.fleet.guests[entry["guest"]]
                if entry["guest"] != owner[0] and canonical(entry["address"]) == text in services_of(user):
                    self.problems.append(
                        f"{text} goes to {owner}, and range {found['metadata']['name']} shows it"
                    )

    def _plain(self) -> dict[object, object]:
        """Return what counts of every object: who holds what, which address each names, and whether it was refused."""
        plain: dict[object, object] = {}
        for key, each in self.fleet.memory.objects.items():
            if key[0] == RESERVATIONS and is_held(each):
                plain[key] = owner_of(each)
            elif key[0] == FLOATING_IPS:
                plain[key] = each["spec"], slots_named_by(each), condition(each, "Allocated")[0]
        return plain

    # What people do

    def _ask(self) -> None:
        guest_id, name = self.chance.choice(GUESTS), self.chance.choice(("web", "api"))
        if (FLOATING_IPS, guest_id, name) in self.fleet.memory.objects:
            return
        spec: Json = {"ipaddress": self._address() if self.chance.random() < 0.4 else ""}
        if policy := self.chance.choice(POLICIES):
            spec["ipFamilyPolicy"] = policy
        range_name = self.chance.choice((*NAMES, NAMES[0], ""))
        self.fleet.ask(guest_id, name=name, range_name=range_name, **spec)

    def _change(self) -> None:
        found = self._any(FLOATING_IPS)
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
            range_name = self.chance.choice((*NAMES, ""))
            metadata["annotations"] = {names.ANNOTATION_RANGE: range_name} if range_name else {}
        key = (FLOATING_IPS, metadata["namespace"], metadata["name"])
        spec = {
            name: value for name, value in spec.items() if value is not None
        }  # as an API server stores it
        self.fleet.write(key, {**found, "metadata": metadata, "spec": spec})

    def _delete(self) -> None:
        found = self._any(FLOATING_IPS)
        if found is not None:
            self.fleet.give_up(found["metadata"]["namespace"], found["metadata"]["name"])

    def _address(self) -> str:
        named = f"10.0.0.{self.chance.randrange(10, 20)}", f"fd00::1{self.chance.randrange(6)}"
        return self.chance.choice((named[0], named[0], named[1], ",".join(named)))

    def _make_range(self, name: str) -> None:
        space = self.chance.choice((SPACES[0], SPACES[0], SPACES[1]))
        spec: Json = {
            "iprange": self.chance.choice(POOLS[:-1]),
            "quarantineSeconds": self.chance.choice((0, 5, 60)),
            # For another network a range with another name is made, as the CRD says.
            "addressSpace": self.spaces.setdefault(name, space),
        }
        if name == LIMITED:
            spec["maxPerGuest"] = self.chance.choice((1, 2, 3))
        if self.chance.random() < 0.6:
            spec["clusterSelector"] = {"matchLabels": self.chance.choice(LABELS)}
        self.fleet.add_range(name, **spec)

    def _edit_range(self) -> None:
        name = self.chance.choice(NAMES)
        found = self.fleet.memory.objects.get((RANGES, "", name))
        draw = self.chance.random()
        if found is None:
            self._make_range(name)
        elif draw < 0.15:
            self.fleet.memory.remove((RANGES, "", name))
        elif draw < 0.5:
            self.fleet.change_range(name, iprange=self.chance.choice(POOLS))
        elif draw < 0.7:
            self.fleet.change_range(name, draining=self.chance.random() < 0.5)
        elif draw < 0.85:
            self.fleet.change_range(name, restrictToMatching=self.chance.random() < 0.5)
        else:
            self.fleet.change_range(name, searchOrder=self.chance.choice(("asc", "desc")))

    def _use(self) -> None:
        """Have a Service of a guest cluster use an address, or none."""
        guest = self.fleet.guests[self.chance.choice(GUESTS)]
        if self.chance.random() < 0.6:
            guest.add_service(self._address().partition(",")[0])
        elif ("services", "default", "web") in guest.objects:
            guest.remove_service()

    def _silence(self) -> None:
        guest = self.fleet.guests[self.chance.choice(GUESTS)]
        guest.silent = not guest.silent

    def _connect(self) -> None:
        """Have the agent of a guest cluster lose Rancher, or find it again."""
        guest = self.fleet.guests[self.chance.choice(GUESTS)]
        if guest.silent:
            self.fleet.connect(guest.id)
        else:
            self.fleet.disconnect(guest.id)
        guest.silent = not guest.silent

    def _remove_reservation(self) -> None:
        """Delete a reservation by hand whose floating IP names it."""
        objects = self.fleet.memory.objects
        named = {slot for each in of_kind(objects, FLOATING_IPS) for slot in slots_named_by(each)}
        held = [each for each in of_kind(objects, RESERVATIONS) if slot_of(each) in named]
        if held:
            found = self.chance.choice(held)
            self.fleet.remove_reservation(found["metadata"]["name"])
            self.fleet.judge.free_by_hand(slot_of(found)[1])

    def _label(self) -> None:
        self.fleet.label_guest(self.chance.choice(GUESTS), **self.chance.choice(LABELS))

    def _any(self, plural: str) -> Json | None:
        found = of_kind(self.fleet.memory.objects, plural)
        return self.chance.choice(found) if found else None


def _difference(before: dict[object, object], after: dict[object, object]) -> str:
    changed = sorted((key for key in {*before, *after} if before.get(key) != after.get(key)), key=str)
    return "; ".join(f"{key}: {before.get(key)} → {after.get(key)}" for key in changed)


def run_world(seed: int) -> list[str]:
    """Run the world with this number; return what was wrong."""

    async def live() -> list[str]:
        return await World(Random(seed)).live()

    with crashes() as found:
        return run_virtually(live()) + found


def main(arguments: Sequence[str]) -> int:
    """Run worlds; return 1 if one of them was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.operator.worlds", description=__doc__)
    parser.add_argument("worlds", type=int, nargs="?", default=2_000, help="default: 2000")
    parser.add_argument("--seed", type=int, default=1, help="of the first world; the next has the next")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    wrong = 0
    for seed in range(options.seed, options.seed + options.worlds):
        if problems := run_world(seed):
            wrong += 1
            sys.stdout.write(f"--seed {seed}: {problems[0]}\n")
    sys.stdout.write(f"worlds (in memory, no API server): worlds={options.worlds} violations={wrong}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
