"""Sequences of what people do to ranges and floating IPs, drawn by a seed, and what must be left in the end.

Whatever the way there, the end must be that of the same objects created afresh: `Model` keeps what they are.
"""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from localfleet.faultproxy import Do, On, Rule, Schedule
from localfleet.waiting import eventually
from tests.faults.lane import Lane, Operator
from tests.faults.plans import Plan
from tests.faults.runner import NO_ELECTION, RESYNC, SILENCE_SECONDS, Result, quiet_for, tail, unrest
from tests.harness.history import FLOATING_IPS, RANGES, RESERVATIONS, Json
from tests.harness.oracles import Setting, allocations, replay
from tests.harness.stored import condition, is_held

GENERATED = "generated"
GUESTS = 4
FIPS = 8
SETTLE_SECONDS = 120.0
POOLS = {"r1": "10.8.0.10-10.8.0.60", "r2": "10.8.1.10-10.8.1.60"}
SMALL = {"r1": "10.8.0.10-10.8.0.12", "r2": "10.8.1.10-10.8.1.12"}
OVERLAPPING = {"r1": "10.8.0.10-10.8.1.20", "r2": "10.8.0.50-10.8.1.60"}
CONTESTED = {"r1": "10.8.0.29", "r2": "10.8.1.29"}
"""Everybody may ask for it on the way, and nobody in the end: what one had, is not free before a quarantine is over."""
INVALID = {"r1": "224.0.8.0/28", "r2": "224.0.9.0/28"}
"""Pools that the API server takes and fipop cannot read."""


@dataclass(slots=True)
class Fip:
    """A floating IP as people want it: `static` is 0 for any address, else the n-th of its own in the range."""

    range: str
    static: int = 0
    emptied: int = 0


@dataclass(slots=True)
class Model:
    """What people want in the end."""

    fips: dict[int, Fip] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Operations:
    """Counts what changes what people want: an edit that says what was said before does not.

    Only people's words are compared, and not what the operator made of them, so that the same seed counts the same.
    """

    count: int = 0
    _said: dict[str, Json] = field(default_factory=dict)

    def create(self, name: str, **said: Any) -> None:
        self.count += 1
        self._said[name] = said

    def edit(self, name: str, **said: Any) -> None:
        """An edit of some fields; one that was never named counts as empty."""
        before = self._said[name]
        self.count += any(before.get(key, type(value)()) != value for key, value in said.items())
        before.update(said)

    def delete(self, name: str) -> None:
        self.count += 1
        del self._said[name]


def static_address(fip: int, range_name: str, number: int) -> str:
    """An address that no other floating IP asks for in the end, out of the way of chosen ones."""
    return f"10.8.{0 if range_name == 'r1' else 1}.{30 + fip * 2 + number}"


def guest_of(fip: int) -> str:
    return f"c-m-steady{fip % GUESTS:02d}"


class Writer:
    """Draws operations, does them, and keeps the model true."""

    def __init__(self, lane: Lane, seed: int) -> None:
        self.lane = lane
        self.model = Model()
        self.done = Operations()
        self._random = Random(seed)

    async def begin(self) -> None:
        for number in range(GUESTS):
            await self.lane.guest(number)
        for name in POOLS:
            await self.create_range(name)
        self.done.count = 0

    async def write(self, operations: int) -> None:
        """Do that many that change anything, some at once and some with a little time between."""
        while self.done.count < operations:
            kind = self._random.choices(
                (self.touch_fip, self.touch_range, self.burst), weights=(6, 3, 1), k=1
            )[0]
            await kind()
            if self._random.random() < 0.5:
                await asyncio.sleep(self._random.random() * 0.5)

    async def finish(self) -> None:
        """Let the last word on every object be one that can be had."""
        for name, pool in POOLS.items():
            if name in self.model.missing:
                await self.create_range(name)
            await self.edit_range(name, iprange=pool, draining=False)
        for number, fip in self.model.fips.items():
            await self.set_fip(number, fip, fip.static)

    async def create_afresh(self) -> None:
        """The same objects, made at once."""
        for name, pool in POOLS.items():
            await self.lane.create_range(name, pool)
        for number, fip in self.model.fips.items():
            await self.create_fip(number, fip)

    async def create_range(self, name: str) -> None:
        self.model.missing.discard(name)
        await self.lane.create_range(name, POOLS[name])
        self.done.create(name, iprange=POOLS[name])

    async def edit_range(self, name: str, **spec: Any) -> None:
        await self.lane.edit_range(name, **spec)
        self.done.edit(name, **spec)

    async def create_fip(self, number: int, fip: Fip) -> None:
        address: Json = {}
        if fip.static:
            address["ipaddress"] = static_address(number, fip.range, fip.static)
        await self.lane.create_fip(
            guest_of(number), f"f{number}", range_name=fip.range, serviceNamespace=f"n{number}", **address
        )
        self.done.create(f"f{number}", fiprange=fip.range, **address)

    async def edit_fip(self, number: int, range_name: str = "", **spec: Any) -> None:
        """Edit the spec, and the range where one is named."""
        noted = {"fiprange": range_name} if range_name else {}
        await self.lane.edit_fip(guest_of(number), f"f{number}", annotations=noted, **spec)
        self.done.edit(f"f{number}", **noted, **spec)

    async def set_fip(self, number: int, fip: Fip, static: int) -> None:
        fip.static = static
        address = {"ipaddress": static_address(number, fip.range, static)} if static else {}
        await self.edit_fip(number, fip.range, **address)

    async def touch_fip(self) -> None:
        number = self._random.randrange(FIPS)
        fip = self.model.fips.get(number)
        if fip is None:
            fip = self.model.fips[number] = Fip(
                range=self._random.choice(sorted(POOLS)), static=self._random.randrange(3)
            )
            await self.create_fip(number, fip)
            return
        match self._random.randrange(6):
            case 0:
                await self.delete_fip(number)
            case 1 | 2:
                fip.range = self._random.choice(sorted(POOLS))
                await self.set_fip(number, fip, 1 + self._random.randrange(2))
            case 3:
                # What another one may have, or what no range gives: if it is refused, it is put right in the end.
                wrong = self._random.choice((CONTESTED[fip.range], "10.99.0.1"))
                fip.static = fip.static or 1
                await self.edit_fip(number, ipaddress=wrong)
            case 4 if not fip.emptied:
                fip.emptied, fip.static = 1, 0
                await self.edit_fip(number, ipaddress="")
            case _:
                await self.set_fip(number, fip, 1)

    async def touch_range(self) -> None:
        name = self._random.choice(sorted(POOLS))
        if name in self.model.missing:
            await self.create_range(name)
            return
        match self._random.randrange(6):
            case 0:
                await self.edit_range(name, iprange=INVALID[name])
            case 1:
                await self.edit_range(name, iprange=SMALL[name])
            case 2:
                await self.edit_range(name, iprange=OVERLAPPING[name])
            case 3:
                await self.edit_range(name, draining=self._random.random() < 0.5)
            case 4:
                self.model.missing.add(name)
                await self.lane.delete_range(name)
                self.done.delete(name)
            case _:
                await self.edit_range(name, iprange=POOLS[name])

    async def burst(self) -> None:
        """Several go, or come, at once."""
        numbers = self._random.sample(range(FIPS), 3)
        for number in numbers:
            if number in self.model.fips:
                await self.delete_fip(number)
            else:
                fip = self.model.fips[number] = Fip(range=self._random.choice(sorted(POOLS)))
                await self.create_fip(number, fip)

    async def delete_fip(self, number: int) -> None:
        del self.model.fips[number]
        await self.lane.delete_fip(guest_of(number), f"f{number}")
        self.done.delete(f"f{number}")


def picture(lane: Lane, model: Model) -> Json:
    """What is to be the same however it came about: of chosen addresses how many, of asked-for ones which."""
    now = lane.recorder.now
    held = Counter(
        f"{obj['spec']['space']} {obj['spec']['range']}"
        for key, obj in now.items()
        # How long a released address waits depends on the range that was there when it was released.
        if key[0] == RESERVATIONS and is_held(obj)
    )
    fips = {}
    for number, fip in sorted(model.fips.items()):
        obj = lane.fip(guest_of(number), f"f{number}")
        status = obj.get("status") or {}
        named = status.get("addresses") or []
        fips[f"f{number}"] = {
            "addresses": named if fip.static else len(named),
            "spec names them": (obj.get("spec") or {}).get("ipaddress", "") in _said(fip, named),
            "range": status.get("range"),
            "space": status.get("addressSpace"),
            "ready": condition(obj, "Ready"),
            "carried": set(named) <= lane.guests[guest_of(number)].addresses(),
        }
    ranges = {
        key[2]: {"ready": condition(obj, "Ready"), "conflict": condition(obj, "Conflict")}
        for key, obj in now.items()
        if key[0] == RANGES
    }
    others = [key for key in now if key[0] == FLOATING_IPS and int(key[2][1:]) not in model.fips]
    return {"reservations": dict(sorted(held.items())), "fips": fips, "ranges": ranges, "others": others}


def _said(fip: Fip, named: list[str]) -> set[str]:
    """What the spec can say of the addresses that a status names: an emptied one stays so, and keeps its address."""
    return {",".join(named), ""} if fip.emptied and not fip.static else {",".join(named)}


async def run_generated(lane: Lane, plan: Plan) -> Result:
    """A sequence against the running operator, then the same objects afresh; both must come to the same."""
    result = Result(plan=plan)
    began = time.monotonic()
    operator = await lane.operator("free-0", RESYNC, NO_ELECTION)
    writer = Writer(lane, plan.seed)
    try:
        await lane.reset()
        await writer.begin()
        await operator.start(Schedule(plan.rules, seed=plan.seed))
        await eventually(operator.process.is_ready, seconds=60, what="the operator to be ready")
        await writer.write(plan.size)
        await writer.finish()
        result.operations = writer.done.count
        result.struck, operator.proxy.schedule = operator.proxy.schedule.struck, Schedule()
        await _settle(lane, result)
        found = picture(lane, writer.model)
        result.killed, result.writes = operator.killed, len(operator.proxy.writes())
        await close(lane, operator, result)
        await lane.reset()
        await operator.start(Schedule())
        await writer.create_afresh()
        await _settle(lane, result)
        wanted = picture(lane, writer.model)
        if found != wanted:
            result.violations.append(
                f"I4: the end is not that of a fresh create: {found} instead of {wanted}"
            )
        await close(lane, operator, result)
    finally:
        await operator.stop()
    if not result.violations:
        result.log = result.history = ""
    result.seconds = time.monotonic() - began
    return result


async def close(lane: Lane, operator: Operator, result: Result) -> None:
    """End one half and judge it: the next start of the operator, and the next reset of the lane, forget it."""
    await operator.stop()
    if operator.ended:
        result.violations.append(f"{operator.name} ended by itself with {operator.ended}")
    await lane.recorder.catch_up()
    history = lane.recorder.history
    result.violations += [str(each) for each in replay(history, Setting(clusters=lane.clusters))]
    result.allocations += allocations(history)
    result.history += "\n".join(repr(step)[:1500] for step in history.steps()) + "\n"
    result.log += tail(operator.process.process.log)


async def _settle(lane: Lane, result: Result) -> None:
    def problems() -> list[str]:
        unready = [
            f"{key[1]}/{key[2]} is not ready: {condition(obj, 'Ready')}"
            for key, obj in lane.recorder.now.items()
            if key[0] == FLOATING_IPS and condition(obj, "Ready")[0] != "True"
        ]
        return unrest(lane) + unready

    if not await lane.wait(
        lambda: quiet_for(lane) >= SILENCE_SECONDS and not problems(), seconds=SETTLE_SECONDS
    ):
        result.violations += [f"I4: {problem}" for problem in problems()[:8]] or ["I4: there is no silence"]


def generated(seeds: int, operations: int) -> list[Plan]:
    """Sequences of so many operations each, every second one with an operator that is killed and loses answers."""
    harm = (
        Rule(on=On.WRITE, do=Do.KILL_AFTER, rate=0.02),
        Rule(on=On.WRITE, do=Do.CUT_AFTER, rate=0.05),
    )
    return [
        Plan(
            scenario=GENERATED,
            family="spec operations, harmed" if seed % 2 else "spec operations",
            rules=harm if seed % 2 else (),
            seed=seed,
            size=operations,
        )
        for seed in range(seeds)
    ]
