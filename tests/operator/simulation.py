"""Two or three operators, trouble of every kind, and administrators at work: a SIMULATION in virtual time.

In most lives all operators lead at once, which is worse than any change of leaders; in the others they share the Lease.
Requests are slow, fail, or take effect without an answer; processes freeze or are killed; watches are mute; guest
clusters do not answer. Every commit is judged. At the end the trouble stops, and everything must settle.
`python -m tests.operator.simulation 1000 --seed 7` runs many lives; each is one number, which replays it.
"""

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from fipop.api import names
from fipop.boundary import ApiRequest
from tests.harness.api_in_memory import Commit, Json, Link
from tests.harness.ends import unsettled
from tests.harness.fleet import Fleet, Guest, Running
from tests.harness.history import FLOATING_IPS, RANGES, RESERVATIONS, Carried
from tests.harness.stored import canonical, is_held, of_kind, slot_of
from tests.harness.virtual_time import run_virtually

GUESTS = ("c-m-a", "c-m-b", "c-m-c")
FLOATING_IP_NAMES = ("web", "api")
POOLS = {"pool": "10.0.0.10-10.0.0.13,fd00::10-fd00::12", "other": "10.0.0.13-10.0.0.16"}
"""The younger range overlaps the older one."""
POLICIES = ("SingleStack", "PreferDualStack", "RequireDualStack")
WATCHED = (FLOATING_IPS, RANGES, RESERVATIONS, "clusters", "namespaces")
ACTS = 60
RESYNC_SECONDS = 120.0
"""A watch that was mute has missed events for ever: so soon a list shows what happened."""
LATE_SECONDS = 12.0
"""A write whose sender gave up arrives by then."""
SETTLE_SECONDS = 900.0
"""Longer than all quarantines and back-offs, one after the other."""
QUIET_SECONDS = 305.0


@dataclass(slots=True)
class Trouble:
    """What happens to the requests of one operator to the management cluster."""

    chance: Random
    link: Link
    frozen_until: float = 0.0
    is_over: bool = False

    async def before(self, request: ApiRequest) -> None:
        """Let a request take its time, get lost, or arrive after its sender gave up."""
        if self.is_over:
            return
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._latency())
        await asyncio.sleep(max(0.0, self.frozen_until - loop.time()))
        draw = self.chance.random()
        if draw < 0.01:
            raise ConnectionError("lost on the way")
        if draw < 0.03 and request.method != "GET" and "/leases" not in request.path:
            loop.call_later(self.chance.uniform(0.0, LATE_SECONDS), self.link.server.answer, request)
            raise ConnectionError("late")

    async def after(self, _request: ApiRequest) -> None:
        """Let an answer take its time, or get lost."""
        if self.is_over:
            return
        await asyncio.sleep(self._latency())
        if self.chance.random() < 0.02:
            raise ConnectionError("the answer was lost")

    def _latency(self) -> float:
        return self.chance.uniform(2.0, 14.0) if self.chance.random() < 0.02 else self.chance.expovariate(20)


@dataclass
class Life:
    """One simulated life; `chance` decides everything."""

    chance: Random
    fleet: Fleet = field(init=False)
    trouble: dict[str, Trouble] = field(default_factory=dict)
    """By the name of the operator."""
    found: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.fleet = Fleet(chance=self.chance)
        self.all_lead = self.chance.random() < 0.7
        for guest_id in GUESTS:
            guest = self.fleet.add_guest(guest_id, is_served=guest_id == GUESTS[0])
            guest.listeners.append(partial(self._judge_guest, guest))
        self.fleet.memory.listeners.append(self._judge_assignment)
        self.fleet.add_range("pool", POOLS["pool"], quarantineSeconds=0, clusterSelector={"matchLabels": {}})

    @property
    def problems(self) -> list[str]:
        """What was wrong so far."""
        return [*self.fleet.problems, *self.found]

    async def live(self) -> list[str]:
        """Live until an invariant breaks or the end; return what was wrong."""
        for _ in range(self.chance.choice((2, 2, 3))):
            self._begin()
        await asyncio.sleep(5.0)
        self.fleet.add_range("other", POOLS["other"], quarantineSeconds=120, maxPerGuest=2)
        for _ in range(ACTS):
            draw = self.chance.random()
            if draw < 0.25:
                self._trouble()
            else:
                self._act()
            if draw > 0.6:
                continue  # and the next one at the same moment
            await asyncio.sleep(150.0 if draw < 0.02 else self.chance.expovariate(0.3))
            self._replace_the_dead()
            self._delay_events()
            if self.problems:
                return self.problems
        return await self._end()

    async def _end(self) -> list[str]:
        """Let the trouble end and one operator go on; return what is not as it must be then."""
        for each in self.trouble.values():
            each.is_over = True
            each.link.failures.clear()
        for guest in self.fleet.guests.values():
            guest.silent, guest.seconds, guest.lost_answers = False, 0.0, 0
        survivor = self.chance.choice(self._alive())
        for running in self._alive():
            if running is not survivor:
                await self.fleet.stop(running)
        self._mute(survivor, ())
        await asyncio.sleep(SETTLE_SECONDS)
        version = self.fleet.memory.version
        await asyncio.sleep(QUIET_SECONDS)
        written = [each.key for each in self.fleet.commits_since(version)]
        carried = {each: frozenset(self._written_to(self.fleet.guests[each])) for each in GUESTS}
        used = {text for each in GUESTS for text in self._services_of(each)}
        return [
            *self.problems,
            *(f"a quiet fleet is written: {key}" for key in written[:3]),
            *unsettled(self.fleet.memory.objects, carried),
            *(
                f"{slot_of(each)} stays in quarantine"
                for each in of_kind(self.fleet.memory.objects, RESERVATIONS)
                if not is_held(each) and slot_of(each)[1] not in used
            ),
        ]

    # Processes and networks

    def _begin(self) -> None:
        running = self.fleet.begin(own_lease=self.all_lead, resync_seconds=RESYNC_SECONDS)
        trouble = Trouble(Random(self.chance.random()), running.link)
        running.link.before, running.link.after = trouble.before, trouble.after
        self.trouble[running.name] = trouble

    def _alive(self) -> list[Running]:
        return [each for each in self.fleet.operators if each.is_alive]

    def _replace_the_dead(self) -> None:
        """Start another process for each that has ended, as a Deployment does."""
        for running in list(self.fleet.operators):
            if running.is_alive or running.name not in self.trouble:
                continue
            del self.trouble[running.name]
            error = None if running.task.cancelled() else running.task.exception()
            if error is not None and not type(error).__module__.startswith("fipop."):
                self.found.append(f"{running.name} ended with {error!r}")
            self._begin()

    def _delay_events(self) -> None:
        """Let the events of each resource arrive as late as this process hears of it: never in another order."""
        for running in self._alive():
            if running.watch is not None and not running.watch.delays:
                running.watch.delays = {each: self.chance.choice((0.0, 0.0, 0.3, 2.0)) for each in WATCHED}

    def _trouble(self) -> None:
        """Have one kind of trouble."""
        running = self.chance.choice(self._alive())
        guest = self.fleet.guests[self.chance.choice(GUESTS)]
        loop, draw = asyncio.get_running_loop(), self.chance.random()
        if draw < 0.1:
            running.link.is_cut = True  # as SIGKILL does: not one request arrives any more
            running.task.cancel()
        elif draw < 0.2:
            self.trouble[running.name].frozen_until = loop.time() + 30.0
        elif draw < 0.6:
            muted = self.chance.choice((WATCHED, WATCHED, (RESERVATIONS,), (FLOATING_IPS,)))
            self._mute(running, muted)
            loop.call_later(self.chance.choice((5.0, 20.0, 60.0, 200.0)), self._mute, running, ())
        elif draw < 0.7:
            verb = self.chance.choice(("create", "replace", "patch", "delete", "get", "list"))
            running.link.failures[verb] += 1
        elif draw < 0.8:
            guest.lost_answers = 1
        elif draw < 0.9:
            guest.silent = not guest.silent
        else:
            guest.seconds = self.chance.choice((0.0, 0.0, 0.5, 6.0))

    @staticmethod
    def _mute(running: Running, plurals: Sequence[str]) -> None:
        if running.watch is not None:
            running.watch.muted = set(plurals)

    # Administrators and the owners of guest clusters

    def _act(self) -> None:
        """Do one thing that an administrator or the owner of a guest cluster may do."""
        chance, fleet, draw = self.chance, self.fleet, self.chance.random()
        guest_id, name = chance.choice(GUESTS), chance.choice(FLOATING_IP_NAMES)
        key = (FLOATING_IPS, guest_id, name)
        services = self._services_of(guest_id)
        if draw < 0.35:
            if key not in fleet.memory.objects:
                spec: dict[str, object] = {}
                if chance.random() < 0.3:
                    spec["ipFamilyPolicy"] = chance.choice(POLICIES[1:])
                ipaddress = self._address() if chance.random() < 0.4 else ""
                range_name = chance.choice(("pool", "pool", "other", ""))
                fleet.ask(guest_id, ipaddress, name=name, range_name=range_name, **spec)
        elif draw < 0.5:
            if key in fleet.memory.objects:
                fleet.give_up(guest_id, name)
        elif draw < 0.7:
            if key in fleet.memory.objects:
                self._edit(fleet.memory.objects[key])
        elif draw < 0.85:
            free = self._written_to(fleet.guests[guest_id]) - services
            if free:
                text = chance.choice(sorted(free))
                fleet.guests[guest_id].add_service(text, name=_service_of(text))
        elif draw < 0.95:
            if services:
                fleet.guests[guest_id].remove_service(_service_of(chance.choice(sorted(services))))
        else:
            fleet.change_range("other", draining=chance.random() < 0.5)

    def _edit(self, found: Json) -> None:
        spec, metadata = dict(found.get("spec") or {}), dict(found["metadata"])
        draw = self.chance.random()
        if draw < 0.5:
            spec["ipaddress"] = self._address() if self.chance.random() < 0.8 else ""
        elif draw < 0.7:
            spec["ipFamilyPolicy"] = self.chance.choice(POLICIES)
        else:
            metadata["annotations"] = {names.ANNOTATION_RANGE: self.chance.choice(("pool", "other"))}
        key = (FLOATING_IPS, metadata["namespace"], metadata["name"])
        self.fleet.write(key, {**found, "metadata": metadata, "spec": spec})

    def _address(self) -> str:
        named = f"10.0.0.{self.chance.randrange(10, 17)}", f"fd00::1{self.chance.randrange(3)}"
        return self.chance.choice((named[0], named[0], named[1], ",".join(named)))

    # What must never be

    def _judge_assignment(self, commit: Commit) -> None:
        """No address is assigned while another guest cluster has it in its ConfigMap or on a Service."""
        if commit.key[0] != RESERVATIONS or commit.obj is None or not is_held(commit.obj):
            return
        text, owner = slot_of(commit.obj)[1], commit.obj["spec"]["owner"]["namespace"]
        users = [each for each in GUESTS if each != owner and text in self._used_by(each)]
        self.found += [f"{text} is held for {owner} while {each} uses it" for each in users]

    def _judge_guest(self, guest: Guest, commit: Commit) -> None:
        """No guest cluster is told an address that is not its own, or that another one uses."""
        if commit.key[0] not in {"configmaps", "services"}:
            return
        used = frozenset(self._used_by(guest.id))
        self.fleet.judge.take_carried(
            Carried(
                revision=self.fleet.memory.version,
                at=commit.at.timestamp(),
                guest=guest.id,
                addresses=used,
                by_admin=commit.key[0] == "services",
            )
        )
        for other in GUESTS:
            shared = used & self._used_by(other) if other != guest.id else set()
            self.found += [f"{each} is written to {guest.id} while {other} uses it" for each in shared]

    def _used_by(self, guest_id: str) -> set[str]:
        return self._written_to(self.fleet.guests[guest_id]) | self._services_of(guest_id)

    @staticmethod
    def _written_to(guest: Guest) -> set[str]:
        return {canonical(text) for text in guest.addresses}

    def _services_of(self, guest_id: str) -> set[str]:
        found = self.fleet.guests[guest_id].of_kind("services").values()
        return {canonical(each["status"]["loadBalancer"]["ingress"][0]["ip"]) for each in found}


def _service_of(text: str) -> str:
    return f"web-{text.replace(':', '-').replace('.', '-')}"


def run_life(seed: int) -> list[str]:
    """Run the life with this number; return what was wrong."""

    async def live() -> list[str]:
        return await Life(Random(seed)).live()

    return run_virtually(live())


def main(arguments: Sequence[str]) -> int:
    """Run lives; return 1 if one of them was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.operator.simulation")
    parser.add_argument("lives", type=int, nargs="?", default=1_000, help="default: 1000")
    parser.add_argument("--seed", type=int, default=1, help="of the first life; the next has the next")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    wrong = 0
    for seed in range(options.seed, options.seed + options.lives):
        if problems := run_life(seed):
            wrong += 1
            sys.stdout.write(f"--seed {seed}: {problems[0]}\n")
            sys.stdout.flush()
    sys.stdout.write(f"simulation (in memory, no API server): lives={options.lives} violations={wrong}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
