"""What guests carry is known before new addresses are given out, and what later ones carry soon after."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from fipop.backoff import Backoff
from fipop.control.kopf.bridge import EventType
from fipop.errors import ApiServerError, FipopError, GuestUnreadableError
from fipop.guest.in_use import InUseAddresses, addresses_in
from fipop.kube.client import Listing
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IP_RESERVATIONS, PROVISIONING_CLUSTERS
from fipop.operator.addresses.reservations import ReservationStore
from fipop.operator.guests.conflicts import AddressConflicts
from fipop.operator.guests.reach import Reach
from fipop.operator.guests.scan import GuestScan
from fipop.operator.guests.unowned import UnownedAddresses
from fipop.state.cache import ClusterCache
from fipop.state.gate import AllocationGate
from fipop.state.guests import GuestDirectory
from tests.harness.objects import NOW, Json, build_floating_ip, build_range, build_reservation, cache_of
from tests.harness.reservation_store import Reservations
from tests.harness.terms import Listener

BUSY = ApiServerError(verb="get", kind="Secret", name="x", status=500)


class Looking:
    """Looks over `world`; `carried` gives the values of each guest's ConfigMap, None for one that is away.

    `troubles` are raised by the next questions to our own API server, one each.
    """

    def __init__(self, cache: ClusterCache, carried: dict[str, str | None]) -> None:
        self.cache = cache
        self.api = Reservations()
        self.opened = asyncio.Event()
        self.carried = carried
        self.unconnected: set[str] = set()
        self.looked_at: list[str] = []
        self.troubles: list[FipopError] = []
        for number, guest_id in enumerate(carried):
            metadata = {"name": f"cluster-{number}", "namespace": "fleet-default", "uid": guest_id}
            cache.observe(
                PROVISIONING_CLUSTERS,
                {
                    "metadata": metadata | {"resourceVersion": "5"},
                    "spec": {},
                    "status": {"clusterName": guest_id},
                },
            )
        create = self.api.create

        async def create_or_fail(*arguments: object) -> Json:
            self._trouble()
            return await create(*arguments)  # type: ignore[arg-type]

        self.api.create = create_or_fail  # type: ignore[method-assign]
        guests = GuestDirectory(cache=cache, client=self.api)  # type: ignore[arg-type]
        reach = Reach(cache=cache, guests=guests)
        self.over_limit: list[tuple[str, int]] = []
        conflicts = AddressConflicts(cache=cache, guests=guests, inspector=self, reach=reach)
        at_once = Backoff(first_seconds=0.0, limit_seconds=0.0)
        self.scan = GuestScan(
            cache=cache,
            gate=AllocationGate(adopted=True),
            unowned=UnownedAddresses(
                cache=cache,
                reservation_store=ReservationStore(
                    client=self.api,  # type: ignore[arg-type] # the four calls that a store makes
                    known=cache,
                    now=lambda: NOW,
                    monotonic=time.monotonic,
                ),
                conflicts=conflicts,
                reach=reach,
                over_limit=lambda guest_id, count: self.over_limit.append((guest_id, count)),
                backoff=at_once,
            ),
            conflicts=conflicts,
            guests=guests,
            inspector=self,
            opened=self.opened.set,
            backoff=at_once,
        )
        self.task = asyncio.create_task(self.scan.run())

    def _trouble(self) -> None:
        if self.troubles:
            raise self.troubles.pop(0)

    async def can_be_asked(self, guest_id: str) -> bool:
        self._trouble()
        return guest_id not in self.unconnected

    async def read_in_use(self, guest_id: str) -> InUseAddresses:
        self.looked_at.append(guest_id)
        value = self.carried[guest_id]
        if value is None:
            raise GuestUnreadableError(guest_id=guest_id, cause="no answer")
        metadata = {"name": "kubevip", "namespace": "kube-system"}
        return addresses_in([{"metadata": metadata, "data": {"cidr-global": value}}], [])

    async def find_carrier(self, guest_id: str, address: object) -> str | None:
        raise NotImplementedError

    async def carries(self, guest_id: str, address: object) -> bool:
        raise NotImplementedError

    async def first(self) -> None:
        """Have the look at a start."""
        self.scan.require_rescan()
        await asyncio.wait_for(self.opened.wait(), 5)
        self.opened.clear()

    async def change_ranges(self) -> None:
        """Have what a changed range waits for."""
        self.looked_at.clear()
        self.scan.note_ranges()
        await asyncio.wait_for(self.opened.wait(), 5)
        self.opened.clear()

    def free(self, name: str) -> None:
        """Have a reservation gone, as it is when a quarantine ended."""
        reservation = self.cache.reservations.get("", name)
        assert reservation is not None
        self.cache.forget(FLOATING_IP_RESERVATIONS, reservation)

    def remove(self, guest_id: str) -> None:
        """Take a guest out of Rancher: nobody answers for it any more."""
        (cluster,) = self.cache.guest_clusters(guest_id)
        self.cache.forget(PROVISIONING_CLUSTERS, cluster)
        self.carried[guest_id] = None

    def quarantined(self) -> set[str]:
        return {each.name for each in self.cache.reservations.all() if not each.is_held}

    async def comes_to_quarantine(self, name: str) -> None:
        async with asyncio.timeout(5):
            while name not in self.quarantined():  # noqa: ASYNC110 - the store has no event for that
                await asyncio.sleep(0.01)


@pytest.fixture
def looking() -> Iterator[type[Looking]]:
    made: list[Looking] = []

    class Kept(Looking):
        def __init__(self, cache: ClusterCache, carried: dict[str, str | None]) -> None:
            super().__init__(cache, carried)
            made.append(self)

    yield Kept
    for each in made:
        each.task.cancel()


def pool_world(**more: list[Json]) -> ClusterCache:
    return cache_of(ranges=[build_range("pool", "10.0.0.0/24")], **more)


async def test_what_guests_carry_and_nobody_owns_goes_to_quarantine_before_new_addresses(
    looking: type[Looking],
) -> None:
    cache = cache_of(
        ranges=[build_range("pool", "10.0.0.0/24"), build_range("drained", "10.0.1.0/24", draining=True)],
        reservations=[build_reservation("10.0.0.7")],
    )
    start = looking(cache, {"c-m-1": "10.0.0.7/32,10.0.0.8/32,10.0.1.9/32,192.168.0.1/32", "c-m-2": None})
    await start.first()
    found = {each.name: each for each in cache.reservations.all() if not each.is_held}
    assert set(found) == {"default.10.0.0.8", "default.10.0.1.9"}
    owner = found["default.10.0.0.8"].owner
    assert (owner.namespace, owner.name, owner.imported) == ("c-m-1", "", True)
    assert start.scan.gate.is_open


async def test_trouble_of_our_own_api_server_leaves_no_guest_out(looking: type[Looking]) -> None:
    start = looking(pool_world(), {"c-m-1": "10.0.0.8/32,10.0.0.9/32"})
    start.troubles = [BUSY] * 5
    await start.first()
    assert start.troubles == []
    assert start.quarantined() == {"default.10.0.0.8", "default.10.0.0.9"}


async def test_a_guest_that_connects_after_the_first_look_is_looked_at_then(looking: type[Looking]) -> None:
    start = looking(pool_world(), {"c-m-1": "10.0.0.8/32"})
    start.unconnected.add("c-m-1")
    await start.first()
    assert start.quarantined() == set()
    start.unconnected.clear()
    start.scan.note_guest("c-m-1")
    await start.comes_to_quarantine("default.10.0.0.8")
    assert start.scan.gate.looked, "the others need not wait for it"


async def test_a_connected_guest_that_did_not_answer_is_asked_again(
    looking: type[Looking], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fipop.operator.guests.scan.AGAIN_SECONDS", 0.01)
    start = looking(pool_world(), {"c-m-1": None})
    await start.first()
    start.carried["c-m-1"] = "10.0.0.8/32"
    await start.comes_to_quarantine("default.10.0.0.8")


async def test_what_the_guests_own_floating_ip_asks_for_waits_for_that_one(looking: type[Looking]) -> None:
    """A stranger asks for it too: nobody gets it but the one whose guest carries it."""
    wishes = [
        build_floating_ip("own", annotations={"fiprange": "pool"}, ipaddress="10.0.0.8"),
        build_floating_ip("wish", namespace="tenant", annotations={"fiprange": "pool"}, ipaddress="10.0.0.8"),
    ]
    start = looking(pool_world(floating_ips=wishes), {"c-m-1": "10.0.0.8/32"})
    await start.first()
    (found,) = start.cache.reservations.all()
    assert not found.is_held
    assert (found.owner.namespace, found.owner.name, found.owner.cluster) == ("c-m-1", "own", "cluster-0")


async def test_what_a_guest_holds_in_another_space_is_not_kept_from_others(looking: type[Looking]) -> None:
    cache = pool_world(reservations=[build_reservation("10.0.0.8", space="blue", range_name="blue")])
    start = looking(cache, {"c-m-1": "10.0.0.8/32"})
    await start.first()
    assert start.quarantined() == set()


async def test_an_object_that_only_a_list_shows_to_be_gone_closes_the_gate_before_its_address_is_free(
    looking: type[Looking],
) -> None:
    """A store that was restored lacks it, and the guest that has it since carries it."""
    cache = pool_world(reservations=[build_reservation("10.0.0.8")])
    start = looking(cache, {"c-m-1": "10.0.0.8/32"})
    await start.first()
    seen: list[bool] = []
    cache.attach(
        Listener(
            on_loss=start.scan.require_rescan,
            on_change=lambda *_: seen.append(start.scan.gate.looked),
        )
    )
    feed = cache.feed(FLOATING_IP_RESERVATIONS)
    feed.take_list(Listing(items=(), resource_version=1_000_000), seen_before=feed.store.highest_version)
    assert seen == [False]
    await asyncio.wait_for(start.opened.wait(), 5)
    assert [(each.name, each.is_held) for each in cache.reservations.all()] == [("default.10.0.0.8", False)]


async def test_one_that_an_event_shows_to_be_gone_was_deleted_by_somebodys_will() -> None:
    gone = build_reservation("10.0.0.8")
    cache = pool_world(reservations=[gone])
    lost: list[str] = []
    cache.attach(Listener(on_loss=lambda: lost.append("lost")))
    cache.feed(FLOATING_IP_RESERVATIONS).take_event(
        EventType.DELETED, {**gone, "metadata": {**gone["metadata"], "resourceVersion": "1000000"}}
    )
    assert cache.reservations.all() == ()
    assert lost == []


async def test_doubt_that_comes_up_during_a_look_leaves_the_gate_closed_for_another(
    looking: type[Looking],
) -> None:
    start = looking(pool_world(), {"c-m-1": "10.0.0.8/32"})
    asked: list[bool] = []
    discover = start.can_be_asked

    async def discover_and_doubt(guest_id: str) -> bool:
        asked.append(start.scan.gate.looked)
        if len(asked) == 1:
            start.scan.require_rescan()
        return await discover(guest_id)

    start.can_be_asked = discover_and_doubt
    await start.first()
    assert asked == [False, False]
    assert start.scan.gate.looked


async def test_what_a_guest_was_seen_to_carry_is_kept_from_others_in_a_range_that_comes_later(
    looking: type[Looking],
) -> None:
    start = looking(pool_world(), {"c-m-1": "10.0.0.8/32,10.7.0.9/32"})
    await start.first()
    assert start.quarantined() == {"default.10.0.0.8"}
    start.cache.observe(FLOATING_IP_RANGES, build_range("later", "10.7.0.0/24"))
    start.scan.note_ranges()
    assert not start.scan.gate.looked
    await asyncio.wait_for(start.opened.wait(), 5)
    assert start.quarantined() == {"default.10.0.0.8", "default.10.7.0.9"}
    assert start.scan.gate.looked


async def test_a_guest_that_connects_while_a_range_changes_is_looked_at_all_the_same(
    looking: type[Looking],
) -> None:
    start = looking(pool_world(), {"c-m-1": "10.0.0.8/32"})
    start.unconnected.add("c-m-1")
    await start.first()
    start.unconnected.clear()
    start.scan.note_guest("c-m-1")
    start.scan.note_ranges()
    await start.comes_to_quarantine("default.10.0.0.8")


async def test_a_range_that_changes_does_not_wait_for_a_late_guest_that_hangs(looking: type[Looking]) -> None:
    start = looking(pool_world(), {"c-m-1": "10.0.0.8/32", "c-m-2": "10.7.0.9/32"})
    start.unconnected.add("c-m-1")
    await start.first()
    hangs, answers = asyncio.Event(), asyncio.Event()
    look = start.read_in_use

    async def look_late(guest_id: str, **_: object) -> InUseAddresses:
        if guest_id == "c-m-1":
            hangs.set()
            await answers.wait()
        return await look(guest_id)

    start.read_in_use = look_late
    start.unconnected.clear()
    start.scan.note_guest("c-m-1")
    await asyncio.wait_for(hangs.wait(), 5)
    start.cache.observe(FLOATING_IP_RANGES, build_range("later", "10.7.0.0/24"))
    start.scan.note_ranges()
    await asyncio.wait_for(start.opened.wait(), 5)
    assert start.quarantined() == {"default.10.7.0.9"}
    answers.set()
    await start.comes_to_quarantine("default.10.0.0.8")


async def holding(looking: type[Looking]) -> Looking:
    """After a first look at two guests, each of which carries what it holds."""
    held = [build_reservation("10.0.0.7"), build_reservation("10.0.0.8", namespace="c-m-2")]
    start = looking(pool_world(reservations=held), {"c-m-1": "10.0.0.7/32", "c-m-2": "10.0.0.8/32"})
    await start.first()
    assert start.quarantined() == set()
    return start


async def test_a_changed_range_takes_no_address_of_a_guest_that_is_gone_since(looking: type[Looking]) -> None:
    """What the first look saw was kept for as long as the process led, and every edit of a range brought it up."""
    start = await holding(looking)
    start.remove("c-m-1")
    start.free("default.10.0.0.7")
    await start.change_ranges()
    assert start.quarantined() == set()
    assert start.looked_at == []


async def test_a_changed_range_takes_no_address_that_a_guest_carries_no_more(looking: type[Looking]) -> None:
    start = await holding(looking)
    start.carried["c-m-1"] = ""
    start.free("default.10.0.0.7")
    await start.change_ranges()
    assert start.quarantined() == set()
    await start.change_ranges()
    assert start.looked_at == [], "its answer is what is known of it from then on"


async def test_what_a_guest_still_carries_though_it_is_nobodys_by_now_is_kept_from_others(
    looking: type[Looking],
) -> None:
    start = await holding(looking)
    start.free("default.10.0.0.7")
    await start.change_ranges()
    assert start.quarantined() == {"default.10.0.0.7"}
    assert start.looked_at == ["c-m-1"], "of the other guest nothing would be given out"


@pytest.mark.parametrize("connected", [True, False])
async def test_what_a_guest_that_cannot_be_asked_was_seen_to_carry_is_kept_from_others(
    looking: type[Looking], connected: bool
) -> None:
    start = await holding(looking)
    start.carried["c-m-1"] = None
    if not connected:
        start.unconnected.add("c-m-1")
    start.free("default.10.0.0.7")
    await start.change_ranges()
    assert start.quarantined() == {"default.10.0.0.7"}
    await start.change_ranges()
    assert start.looked_at == [], "what is kept already needs no other look"


async def hang(_guest_id: str) -> InUseAddresses:
    await asyncio.Event().wait()
    raise AssertionError


async def test_only_the_first_look_after_another_leader_is_a_short_one(
    looking: type[Looking], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fipop.operator.guests.scan.CONTINUED_LOOK_SECONDS", 0.05)
    start = looking(pool_world(), {"c-m-1": "10.0.0.8/32"})
    start.scan.is_continued = True
    start.read_in_use = hang  # type: ignore[method-assign]
    await start.first()
    start.scan.require_rescan()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(start.opened.wait(), 0.3)


async def test_who_is_not_reached_in_a_short_look_is_looked_at_afterwards(
    looking: type[Looking], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fipop.operator.guests.scan.CONTINUED_LOOK_SECONDS", 0.05)
    monkeypatch.setattr("fipop.operator.guests.scan.LOOK_CONCURRENCY", 1)
    start = looking(pool_world(), {"c-m-1": None, "c-m-2": "10.0.0.8/32"})
    start.scan.is_continued = True
    answer = start.read_in_use

    async def read(guest_id: str) -> InUseAddresses:
        return await (hang if guest_id == "c-m-1" else answer)(guest_id)

    start.read_in_use = read  # type: ignore[method-assign]
    await start.first()
    assert start.quarantined() == set()
    await start.comes_to_quarantine("default.10.0.0.8")


async def test_a_look_that_takes_too_long_leaves_in_force_what_was_seen_before(
    looking: type[Looking], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fipop.operator.guests.scan.LOOK_SECONDS", 0.05)
    start = await holding(looking)
    start.read_in_use = hang  # type: ignore[method-assign]
    start.free("default.10.0.0.7")
    await start.change_ranges()
    assert start.quarantined() == {"default.10.0.0.7"}


async def test_the_look_for_a_changed_range_keeps_also_what_a_guest_carries_since(
    looking: type[Looking],
) -> None:
    start = await holding(looking)
    start.carried["c-m-1"] = "10.0.0.7/32,10.0.0.9/32"
    start.free("default.10.0.0.7")
    await start.change_ranges()
    assert start.quarantined() == {"default.10.0.0.7", "default.10.0.0.9"}


async def test_a_guest_that_left_and_is_back_is_looked_at_anew(looking: type[Looking]) -> None:
    start = await holding(looking)
    start.scan.forget("c-m-1")
    start.carried["c-m-1"] = "10.0.0.9/32"
    start.scan.note_guest("c-m-1")
    await start.comes_to_quarantine("default.10.0.0.9")


async def test_a_guest_that_goes_while_it_is_looked_at_is_not_remembered(looking: type[Looking]) -> None:
    """What it carried is kept for as long as a quarantine lasts: its machines may take a while to go."""
    start = looking(pool_world(), {"c-m-1": "10.0.0.8/32"})
    look = start.read_in_use

    async def look_and_lose(guest_id: str, **_: object) -> InUseAddresses:
        found = await look(guest_id)
        start.remove(guest_id)
        start.scan.forget(guest_id)
        return found

    start.read_in_use = look_and_lose
    await start.first()
    assert start.quarantined() == {"default.10.0.0.8"}
    start.read_in_use = look
    start.carried["c-m-1"] = "10.0.0.9/32"
    start.scan.note_guest("c-m-1")
    await start.comes_to_quarantine("default.10.0.0.9")
