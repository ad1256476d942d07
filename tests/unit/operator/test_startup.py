"""What happens before new addresses are given out, with guests that tell what they carry."""

import asyncio

from fipop.control.events import EventType
from fipop.errors import ApiUnreachableError
from fipop.guest.carried import CarriedAddresses, addresses_in
from fipop.kube.client import Listing
from fipop.kube.resources import FLOATING_IP_RESERVATIONS, PROVISIONING_CLUSTERS
from fipop.operator.gates import Gates
from fipop.operator.reservations import ReservationDesk
from fipop.operator.startup import Startup
from fipop.operator.world import World
from tests.unit.operator.objects import NOW, Json, build_floating_ip, build_range, build_reservation, world_of
from tests.unit.operator.reservation_store import Reservations


class Start:
    """A start over `world`; `carried` gives the values of each guest's ConfigMap, None for one that is away."""

    def __init__(self, world: World, carried: dict[str, str | None] | None = None) -> None:
        self.world = world
        self.api = Reservations()
        self.adopted: list[str] = []
        self.seen: dict[str, CarriedAddresses] = {}
        self.opened = asyncio.Event()
        self.carried = carried or {}
        for number, guest_id in enumerate(self.carried):
            metadata = {"name": f"cluster-{number}", "namespace": "fleet-default", "uid": guest_id}
            world.observe(
                PROVISIONING_CLUSTERS,
                {
                    "metadata": metadata | {"resourceVersion": "5"},
                    "spec": {},
                    "status": {"clusterName": guest_id},
                },
            )
        self.startup = Startup(
            world=world,
            gates=Gates(),
            desk=ReservationDesk(
                client=self.api,  # type: ignore[arg-type] # the four calls that a desk makes
                lookup=lambda name: world.reservations.get("", name),
                observe=self._observe,
                forget=lambda gone: world.forget(FLOATING_IP_RESERVATIONS, gone),
                now=lambda: NOW,
            ),
            adopt=self._adopt,
            discover=self._discover,
            look=self._look,
            seen=self.seen.update,
            opened=self._open,
        )

    def _observe(self, answer: Json):  # type: ignore[no-untyped-def]
        self.world.observe(FLOATING_IP_RESERVATIONS, answer)
        return self.world.reservations.get("", answer["metadata"]["name"])

    async def _adopt(self, key: tuple[str, str]) -> None:
        self.adopted.append(key[1])
        if key[1] == "broken":
            raise ApiUnreachableError(verb="create", kind="FloatingIPReservation")

    async def _discover(self, _guest_id: str) -> bool:
        return True

    async def _look(self, guest_id: str) -> CarriedAddresses:
        value = self.carried[guest_id]
        if value is None:
            raise ApiUnreachableError(verb="list", kind="ConfigMap")
        config_map = {
            "metadata": {"name": "kubevip", "namespace": "kube-system"},
            "data": {"cidr-global": value},
        }
        return addresses_in([config_map], [])

    def _open(self) -> None:
        self.opened.set()


async def test_who_has_an_address_claims_it_oldest_first_and_one_that_fails_stops_nobody() -> None:
    world = world_of(
        floating_ips=[
            build_floating_ip("younger", created="2026-02-02T00:00:00Z", ipaddress="10.0.0.1"),
            build_floating_ip("broken", created="2026-02-01T00:00:00Z", ipaddress="10.0.0.2"),
            build_floating_ip("oldest", created="2026-01-02T00:00:00Z", ipaddress="10.0.0.1"),
            build_floating_ip("held", created="2026-03-01T00:00:00Z", status={"addresses": ["10.0.0.3"]}),
            build_floating_ip("without"),
        ]
    )
    start = Start(world)
    await start.startup.adopt_all()
    assert start.adopted == ["oldest", "broken", "younger", "held"]
    assert start.startup.gates.adopted
    assert not start.startup.gates.are_open


async def test_what_guests_carry_and_nobody_owns_goes_to_quarantine_before_new_addresses() -> None:
    world = world_of(
        ranges=[build_range("pool", "10.0.0.0/24"), build_range("drained", "10.0.1.0/24", draining=True)],
        reservations=[build_reservation("10.0.0.7")],
    )
    start = Start(world, {"c-m-1": "10.0.0.7/32,10.0.0.8/32,10.0.1.9/32,192.168.0.1/32", "c-m-2": None})
    await start.startup.look_at_guests()
    found = {each.name: each for each in world.reservations.all() if not each.is_held}
    assert set(found) == {"default.10.0.0.8", "default.10.0.1.9"}
    owner = found["default.10.0.0.8"].owner
    assert (owner.namespace, owner.name, owner.imported) == ("c-m-1", "", True)
    assert start.opened.is_set()


async def test_a_reservation_that_only_a_list_shows_to_be_gone_closes_the_gate_before_its_address_is_free() -> (
    None
):
    """A store that was restored lacks it, and the guest that has it since carries it."""
    gone = build_reservation("10.0.0.8")
    world = world_of(ranges=[build_range("pool", "10.0.0.0/24")], reservations=[gone])
    start = Start(world, {"c-m-1": "10.0.0.8/32"})
    seen: list[bool] = []
    world.on_loss = start.startup.doubt
    world.on_change = lambda *_: seen.append(start.startup.gates.looked)
    start.startup.gates.looked = True
    looking = asyncio.create_task(start.startup.look_when_in_doubt())
    feed = world.feed(FLOATING_IP_RESERVATIONS)
    feed.take_list(Listing(items=(), resource_version=1_000_000), seen_before=feed.store.highest_version)
    assert seen == [False]
    await asyncio.wait_for(start.opened.wait(), 5)
    assert [(each.name, each.is_held) for each in world.reservations.all()] == [("default.10.0.0.8", False)]
    looking.cancel()


async def test_one_that_an_event_shows_to_be_gone_was_deleted_by_somebodys_will() -> None:
    gone = build_reservation("10.0.0.8")
    world = world_of(ranges=[build_range("pool", "10.0.0.0/24")], reservations=[gone])
    lost: list[str] = []
    world.on_loss = lambda: lost.append("lost")
    world.feed(FLOATING_IP_RESERVATIONS).take_event(
        EventType.DELETED, {**gone, "metadata": {**gone["metadata"], "resourceVersion": "1000000"}}
    )
    assert world.reservations.all() == ()
    assert lost == []


async def test_doubt_that_comes_up_during_a_look_leaves_the_gate_closed_for_another() -> None:
    world = world_of(ranges=[build_range("pool", "10.0.0.0/24")])
    start = Start(world, {"c-m-1": "10.0.0.8/32"})
    start.startup.doubt()
    await start.startup.look_at_guests()
    assert not start.startup.gates.looked
    assert not start.opened.is_set()
