"""The objects before and the two of now decide the same, on random histories, the named faults apart."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, cast

import pytest

from fipop.backoff import Backoff
from fipop.errors import GuestUnreadableError
from fipop.guest.in_use import InUseAddresses, addresses_in
from fipop.kube.resources import (
    FLOATING_IP_RANGES,
    FLOATING_IP_RESERVATIONS,
    FLOATING_IPS,
    PROVISIONING_CLUSTERS,
)
from fipop.operator.addresses.reservations import ReservationStore
from fipop.operator.guests.reported import ClaimScope, ReportedAddresses
from fipop.operator.guests.scan import GuestScan
from fipop.state.cache import ClusterCache
from fipop.state.gate import AllocationGate
from fipop.state.guests import GuestDirectory
from tests.harness.answering_client import AnsweringClient
from tests.harness.objects import NOW, build_floating_ip, build_range, build_reservation
from tests.harness.reservation_store import Reservations, look_never
from tests.harness.virtual_time import in_virtual_time
from tests.unit.operator.guests.before.conflicts import AddressConflicts
from tests.unit.operator.guests.before.reach import Reach
from tests.unit.operator.guests.before.scan import GuestScan as OldScan
from tests.unit.operator.guests.before.unowned import UnownedAddresses

GUESTS = [f"c-m-{n}" for n in range(6)]
RANGES = ["pool", "lab", "blue", "wide"]
ADDRESSES = [f"10.0.{third}.{last}" for third in range(3) for last in range(1, 9)]
AT_ONCE = Backoff(first_seconds=0.0, limit_seconds=0.0)


class Side:
    """One operator's memory of reports, over a cache of its own."""

    def __init__(self, *, is_old: bool, world: World) -> None:
        self.cache, self.api, self.world = ClusterCache(), Reservations(), world
        self.opened = 0
        guests = GuestDirectory(cache=self.cache, client=cast("Any", AnsweringClient()))
        store = ReservationStore(
            client=cast("Any", self.api),
            known=self.cache,
            now=lambda: NOW,
            monotonic=lambda: 0.0,
            look_again=look_never,
        )
        self.is_old = is_old
        self.scan: Any
        if is_old:
            reach = Reach(cache=self.cache, guests=guests)
            self.gate = AllocationGate(reach.could_serve, adopted=True)
            conflicts = AddressConflicts(
                cache=self.cache, guests=guests, inspector=cast("Any", self), reach=reach
            )
            unowned = UnownedAddresses(
                cache=self.cache, reservation_store=store, reach=reach, backoff=AT_ONCE
            )
            self.scan = OldScan(
                cache=self.cache,
                gate=self.gate,
                unowned=unowned,
                conflicts=conflicts,
                guests=guests,
                inspector=cast("Any", self),
                opened=self._open,
                backoff=AT_ONCE,
            )
            self.reporters = conflicts.claimants
            self.ask_carriers = conflicts.begin_check
            self.check = conflicts.check
        else:
            scope = ClaimScope(cache=self.cache, guests=guests)
            self.gate = AllocationGate(scope.could_serve, adopted=True)
            reported = ReportedAddresses(
                cache=self.cache,
                guests=guests,
                reader=cast("Any", self),
                reservation_store=store,
                scope=scope,
                backoff=AT_ONCE,
            )
            self.scan = GuestScan(
                cache=self.cache, gate=self.gate, guests=guests, reported=reported, opened=self._open
            )
            self.reporters = reported.reporters
            self.ask_carriers = reported.begin_check
            self.check = reported.check

    def _open(self) -> None:
        self.opened += 1

    def asking_once(self) -> Side:
        return self

    async def can_be_asked(self, guest_id: str) -> bool:
        return guest_id not in self.world.unconnected

    async def read_in_use(self, guest_id: str) -> InUseAddresses:
        if guest_id in self.world.silent:
            raise GuestUnreadableError(guest_id=guest_id, cause="no answer")
        metadata = {"name": "kubevip", "namespace": "kube-system"}
        text = ",".join(f"{each}/32" for each in self.world.used[guest_id])
        return addresses_in([{"metadata": metadata, "data": {"cidr-global": text}}], [])

    async def find_carrier(self, guest_id: str, address: Any) -> str | None:
        carrier = (await self.read_in_use(guest_id)).carrier_of(address)
        return f"{carrier} in guest cluster {guest_id} uses {address}" if carrier else None

    async def carries(self, guest_id: str, address: Any) -> bool:
        return await self.find_carrier(guest_id, address) is not None

    async def state(self) -> dict[str, object]:
        reservations = self.cache.reservations.all()
        checks = {}
        for each in reservations:
            if each.is_held:
                try:
                    await self.check(each)
                    checks[each.name] = ""
                except Exception as error:  # noqa: BLE001 - compared as it is
                    checks[each.name] = type(error).__name__
        carriers = {}
        for each in reservations:
            try:
                carriers[each.name] = sorted(
                    await self.ask_carriers()(each, GUESTS[:2] if self.world.asks else ())
                )
            except Exception as error:  # noqa: BLE001 - compared as it is
                carriers[each.name] = [type(error).__name__]
        return {
            "quarantined": sorted(
                (each.name, each.owner.namespace) for each in reservations if not each.is_held
            ),
            "contested": {each.name: self.reporters(each, but=each.owner.namespace) for each in reservations},
            "open": {name: self.gate.is_open(name) for name in RANGES},
            "writable": {each.name: self.gate.may_write(each) for each in reservations},
            "checks": checks,
            "carriers": carriers,
        }


class World:
    """What both sides see."""

    def __init__(self, seed: int) -> None:
        self.random, self.version = Random(seed), 1_000
        # What such a question found was forgotten at each edit of any range (F-G6).
        self.asks = seed % 2 == 1
        self.used: dict[str, list[str]] = {each: [] for each in GUESTS}
        self.silent: set[str] = set()
        self.unconnected: set[str] = set()
        self.there: set[str] = set()
        self.owners: dict[str, str] = {}
        self.sides = [Side(is_old=True, world=self), Side(is_old=False, world=self)]

    def put(self, resource: Any, body: dict[str, Any]) -> None:
        self.version += 1
        metadata = body["metadata"] | {"resourceVersion": str(self.version)}
        for side in self.sides:
            side.cache.observe(resource, {**body, "metadata": metadata})

    def gone(self, resource: Any, namespace: str, name: str) -> None:
        for side in self.sides:
            found = side.cache.store_of(resource).get(namespace, name)
            if found is not None:
                side.cache.forget(resource, found)

    def cluster(self, guest_id: str) -> None:
        label = self.random.choice(["blue", "red", ""])
        metadata = {"name": guest_id, "namespace": "fleet-default", "uid": guest_id, "labels": {"net": label}}
        self.put(
            PROVISIONING_CLUSTERS, {"metadata": metadata, "spec": {}, "status": {"clusterName": guest_id}}
        )
        self.there.add(guest_id)
        for side in self.sides:
            side.scan.note_guest(guest_id, may_carry=guest_id not in self.unconnected)

    def range(self, name: str) -> None:
        spec: dict[str, object] = {"draining": self.random.random() < 0.2}
        if name == "lab":
            spec["addressSpace"] = "lab"
        if name == "blue":
            spec["clusterSelector"] = {"matchLabels": {"net": self.random.choice(["blue", "red"])}}
        text = {"pool": "10.0.0.0/24", "lab": "10.0.1.0/24", "blue": "10.0.1.0/24", "wide": "10.0.0.0/22"}[
            name
        ]
        self.put(FLOATING_IP_RANGES, build_range(name, text, **spec))  # type: ignore[arg-type]
        self.sides[0].scan.note_ranges()
        self.sides[1].scan.note_range(name)

    def step(self) -> str:
        guest_id, address = self.random.choice(GUESTS), self.random.choice(ADDRESSES)
        what = self.random.choice(
            [
                "use",
                "use",
                "use",
                "drop",
                "reserve",
                "reserve",
                "release",
                "fip",
                "range",
                "cluster",
                "gone",
                "silent",
                "rescan",
            ]
        )
        match what:
            case "use":
                self.used[guest_id] = self.random.sample(ADDRESSES, self.random.randint(0, 4))
            case "drop":
                self.used[guest_id] = []
            case "reserve":
                space = self.random.choice(["default", "lab"])
                until = self.random.choice([None, None, "2026-03-01T13:00:00Z"])
                body = build_reservation(
                    address,
                    namespace=guest_id,
                    space=space,
                    range_name=self.random.choice(RANGES),
                    quarantined_until=until,
                )
                self.put(FLOATING_IP_RESERVATIONS, body)
            case "release":
                for space in ("default", "lab"):
                    self.gone(FLOATING_IP_RESERVATIONS, "", f"{space}.{address}")
            case "fip":
                annotations = {"fiprange": self.random.choice(RANGES)}
                self.put(
                    FLOATING_IPS,
                    build_floating_ip("web", namespace=guest_id, annotations=annotations, ipaddress=address),
                )
                for side in self.sides:
                    side.scan.note_guest(guest_id, may_carry=False)
            case "range" if not self.asks:
                self.range(self.random.choice(RANGES))
            case "cluster":
                self.cluster(guest_id)
            case "gone":
                self.gone(PROVISIONING_CLUSTERS, "fleet-default", guest_id)
                for side in self.sides:
                    side.scan.forget(guest_id)
            case "silent":
                self.silent ^= {guest_id}
            case "rescan":
                for side in self.sides:
                    side.scan.require_rescan()
        return f"{what} {guest_id} {address}"


@pytest.mark.parametrize("seed", range(120))
@in_virtual_time
async def test_both_decide_the_same(seed: int) -> None:
    world = World(seed)
    for name in RANGES:
        world.range(name)
    for guest_id in GUESTS[:-1]:
        world.cluster(guest_id)
    for side in world.sides:
        side.scan.require_rescan()
    tasks = [asyncio.create_task(side.scan.run()) for side in world.sides]
    history: list[str] = []
    try:
        for _ in range(40):
            history.extend(world.step() for _ in range(world.random.randint(1, 3)))
            if world.random.random() < 0.5:
                for side in world.sides:
                    side.scan.require_rescan()
                history.append("rescan")
            await asyncio.sleep(world.random.choice([1, 5, 70]))
            before, now = [await side.state() for side in world.sides]
            assert now == before, history
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
