"""One round over a reservation: who lost its floating IP waits, and who waited is free once nobody carries it."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from fipop.api.models import Reservation
from fipop.api.parsing import parse_reservation
from fipop.errors import ApiConflictError, GuestUnreadableError
from fipop.kube.resources import FLOATING_IPS
from fipop.operator.addresses.quarantine import GUARDED_RETRY_SECONDS, QuarantineReconciler
from fipop.operator.queues import Kind
from fipop.runtime.workqueue import RetryAfter
from fipop.state.cache import ClusterCache
from fipop.state.gate import AllocationGate
from tests.harness.objects import (
    Json,
    build_floating_ip,
    build_range,
    build_reservation,
    cache_of,
)
from tests.harness.terms import Pending, queues_of

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
A = "10.0.0.9"
NAME = f"default.{A}"


class Store:
    """Takes down what is done with reservations."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.held: set[str] = set()
        self.offered: list[str] = []
        self.conflicts = False
        self.live: Json | None = None
        self.cache: ClusterCache | None = None
        self.time = NOW

    def now(self) -> datetime:
        return self.time

    async def find_owner(self, _reservation: Reservation) -> bool:
        if self.live is not None and self.cache is not None:
            self.cache.observe(FLOATING_IPS, self.live)
        return self.live is not None

    async def quarantine(self, reservation: Reservation, *, seconds: int) -> None:
        if self.conflicts:
            raise ApiConflictError(verb="replace", kind="FloatingIPReservation", status=409)
        self.done.append(f"quarantine {reservation.name} {seconds}")

    async def free(self, reservation: Reservation) -> bool:
        self.done.append(f"free {reservation.name}")
        return True

    def offer(self, reservation: Reservation, guest_id: str) -> None:
        self.offered.append(f"{reservation.name} to {guest_id}")

    async def is_held_by(self, name: str, _owner: object) -> bool:
        return name in self.held


class Guard:
    """Lets go what a test says."""

    def __init__(self, world: "World") -> None:
        self.world = world

    def may_release(self, _reservation: Reservation) -> bool:
        return self.world.may_release


class World:
    """A round over one reservation; `carrier` answers for the former owner's guest, `other` for those in conflict."""

    def __init__(self, reservation: Json, *others: Json, live: Json | None = None) -> None:
        ranges = [build_range("pool", "10.0.0.0/24", quarantineSeconds=300)]
        self.cache: ClusterCache = cache_of(ranges=ranges, reservations=[reservation, *others])
        self.store = Store()
        self.guests: set[str] = {"c-m-1"}
        self.may_release = True
        self.carrier: str | Exception | None = None
        self.other: str | None = None
        self.objects, self.visits = Pending(), Pending()
        self.store.cache, self.store.live = self.cache, live
        self.reconciler = QuarantineReconciler(
            cache=self.cache,
            reservation_store=self.store,
            guests=cast("Any", self),
            gate=AllocationGate(lambda *_: False, is_shut=False),
            guard=Guard(self),  # type: ignore[arg-type]
            begin_check=lambda: self._look,
            queues=queues_of(self.objects, self.visits),
        )

    def exists(self, guest_id: str) -> bool:
        return guest_id in self.guests

    async def round(self) -> RetryAfter | None:
        """Do one round over the reservation, and the check that it requests."""
        again = await self.reconciler.reconcile(NAME)
        for key in [each for each in self.objects.keys if each.kind is Kind.QUARANTINE]:
            del self.objects.keys[key]
            again = await self.reconciler.check(key.name)
        return again

    def wait(self, name: str) -> None:
        """Have a floating IP of another guest wait for an address."""
        conditions = [{"type": "Allocated", "status": "False", "reason": "RangeFull"}]
        status: Json = {"observedGeneration": 1, "conditions": conditions}
        self.cache.observe(FLOATING_IPS, build_floating_ip(name, namespace="c-m-2", status=status))

    @property
    def cleaned(self) -> list[str]:
        """The guests whose visit was requested."""
        return [key.name for key in self.visits.keys]

    @property
    def woken(self) -> list[tuple[str, str]]:
        """The floating IPs that were requested."""
        return [(each.namespace, each.name) for each in self.objects.keys if each.kind is Kind.FLOATING_IP]

    async def _look(self, *_: object) -> dict[str, str]:
        if isinstance(self.carrier, Exception):
            raise self.carrier
        found = {"c-m-1": self.carrier, "c-m-9": self.other}
        return {guest_id: carrier for guest_id, carrier in found.items() if carrier is not None}


def waiting(*, ended_seconds: float = 1.0, imported: bool = False, **fields: Any) -> Json:
    until = (NOW - timedelta(seconds=ended_seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    history = [{"namespace": "c-m-1", "name": "web", "releasedAt": "2026-03-01T11:00:00Z"}]
    found = build_reservation(A, quarantined_until=until, history=history, **fields)
    found["spec"]["owner"]["imported"] = imported
    return found


async def test_a_held_address_without_its_floating_ip_waits_as_long_as_its_range_says() -> None:
    world = World(build_reservation(A))
    assert await world.round() == RetryAfter(300)
    assert world.store.done == [f"quarantine {NAME} 300"]
    assert world.cleaned == ["c-m-1"]


async def test_the_store_suspects_and_the_live_read_decides() -> None:
    world = World(build_reservation(A), live=build_floating_ip("web"))
    assert await world.round() is None
    assert world.store.done == []
    assert world.woken == [("c-m-1", "web")]
    assert world.cache.floating_ips.get("c-m-1", "web") is not None


async def test_many_at_once_are_held_back() -> None:
    world = World(build_reservation(A))
    world.may_release = False
    assert await world.round() == RetryAfter(GUARDED_RETRY_SECONDS)
    assert world.store.done == []


async def test_who_wrote_meanwhile_is_looked_at_again_at_once() -> None:
    world = World(build_reservation(A))
    world.store.conflicts = True
    assert await world.round() == RetryAfter(0.0)


async def test_it_is_free_when_its_time_has_passed_and_nobody_carries_it() -> None:
    world = World(waiting(ended_seconds=-40))
    assert await world.round() == RetryAfter(40)
    world.store.time += timedelta(seconds=41)
    assert await world.round() is None
    assert world.store.done == [f"free {NAME}"]


@pytest.mark.parametrize(
    ("carrier", "told"),
    [
        ("Service shop/web in guest c-m-1 carries it", "Service shop/web"),
        (GuestUnreadableError(guest_id="c-m-1", cause="no answer"), "no answer"),
    ],
)
async def test_who_carries_it_or_cannot_be_asked_keeps_it_from_others(
    carrier: str | Exception, told: str
) -> None:
    world = World(waiting(ended_seconds=10))
    world.carrier = carrier
    world.wait("waits")
    assert await world.round() == RetryAfter(10)
    assert world.store.done == []
    assert told in (world.reconciler.carrier_of(NAME) or "")
    assert (world.cleaned, world.woken) == (["c-m-1"], [("c-m-2", "waits")])
    world.objects.keys.clear()
    await world.round()
    assert world.woken == [], "what was reported is not reported again"
    world.carrier = None
    assert await world.round() is None
    assert world.reconciler.carrier_of(NAME) is None


async def test_another_guest_that_was_seen_with_it_counts_as_well() -> None:
    world = World(waiting())
    world.other = "guest c-m-9 was seen to carry it"
    assert await world.round() is not None
    assert world.store.done == []


async def test_an_imported_guest_that_left_may_carry_it_for_a_day() -> None:
    world = World(waiting(imported=True))
    world.guests.clear()
    assert await world.round() == RetryAfter(24 * 3600)
    world.store.time += timedelta(hours=24)
    assert await world.round() is None


async def test_a_guest_that_has_it_in_another_space_carries_it_by_right() -> None:
    held = build_reservation(A, space="lab")
    world = World(waiting(), held)
    world.carrier = "ConfigMap kube-system/kubevip in guest c-m-1 carries it"
    assert await world.round() is not None, "the store alone is not believed"
    world.store.held = {f"lab.{A}"}
    assert await world.round() is None
    assert world.store.done == [f"free {NAME}"]


async def test_nothing_is_left_of_a_reservation_that_is_gone() -> None:
    world = World(waiting())
    world.carrier = "somebody"
    await world.round()
    found = world.cache.reservations.get("", NAME)
    assert found is not None
    assert parse_reservation(waiting()).name == found.name
    world.reconciler.cache = cache_of()
    assert await world.round() is None
    assert world.reconciler.carrier_of(NAME) is None
