"""What two guests have a claim to after a restored backup is written to neither anew."""

import pytest

from fipop.errors import AddressConflictError
from fipop.guest.in_use import InUseAddresses, addresses_in
from fipop.kube.resources import PROVISIONING_CLUSTERS
from fipop.operator.guests.reported import ClaimScope, ReportedAddresses
from fipop.state.cache import ClusterCache
from fipop.state.guests import GuestDirectory
from tests.harness.answering_client import AnsweringClient
from tests.harness.objects import build_floating_ip, build_reservation, cache_of, held_by

OWNER, RIVAL = "c-m-owner", "c-m-rival"


class Guests:
    """Guests by what their ConfigMaps say now."""

    def __init__(self, cache: ClusterCache, **carried: str) -> None:
        self.carried = {f"c-m-{name}": value for name, value in carried.items()}
        self.asked: list[str] = []
        self.directory = GuestDirectory(cache=cache, client=AnsweringClient())  # type: ignore[arg-type]
        self.reported = ReportedAddresses(
            guests=self.directory,
            reader=self,  # type: ignore[arg-type] # it is only asked what is in use
            reservation_store=None,  # type: ignore[arg-type] # nothing is quarantined here
            scope=ClaimScope(self.directory),
        )
        for guest_id in self.carried:
            metadata = {
                "name": guest_id,
                "namespace": "fleet-default",
                "uid": guest_id,
                "resourceVersion": "5",
            }
            cluster = {"metadata": metadata, "spec": {}, "status": {"clusterName": guest_id}}
            cache.observe(PROVISIONING_CLUSTERS, cluster)
            self.learn(guest_id)

    def learn(self, guest_id: str) -> None:
        report = self.reported.report_of(guest_id)
        report.addresses = self.around(guest_id).single
        self.reported.contest(guest_id, report)

    def lose(self, guest_id: str) -> None:
        (cluster,) = self.directory.cache.guest_clusters(guest_id)
        self.directory.cache.forget(PROVISIONING_CLUSTERS, cluster)
        self.directory.drop(guest_id)

    def around(self, guest_id: str) -> InUseAddresses:
        metadata = {"name": "kubevip", "namespace": "kube-system"}
        carried = self.carried.get(guest_id, "")
        return addresses_in([{"metadata": metadata, "data": {"cidr-global": carried}}], [])

    async def read_in_use(self, guest_id: str) -> InUseAddresses:
        self.asked.append(guest_id)
        return self.around(guest_id)


def held_world(**fields: object) -> ClusterCache:
    return cache_of(reservations=[build_reservation("10.0.0.1", namespace=OWNER, **fields)])  # type: ignore[arg-type]


async def check(guests: Guests, cache: ClusterCache) -> None:
    (reservation,) = cache.reservations_of((OWNER, "web"))
    await guests.reported.check(reservation)


async def test_an_address_that_another_guest_carries_is_not_written_until_that_one_gives_it_up() -> None:
    cache = held_world()
    guests = Guests(cache, owner="10.0.0.6/32", rival="10.0.0.1/32")
    for _ in range(2):
        with pytest.raises(AddressConflictError) as caught:
            await check(guests, cache)
        assert caught.value.address == "10.0.0.1"
        assert RIVAL in caught.value.carrier
    guests.carried[RIVAL] = ""
    await check(guests, cache)
    await check(guests, cache)
    assert guests.asked == [OWNER, RIVAL] * 3, "once it is given up no guest cluster is asked any more"


async def test_one_that_its_owner_did_not_tell_of_counts_as_not_carried_by_it() -> None:
    cache = held_world()
    with pytest.raises(AddressConflictError):
        await check(Guests(cache, rival="10.0.0.1/32"), cache)


async def test_a_rival_that_left_rancher_is_asked_no_more() -> None:
    cache = held_world()
    guests = Guests(cache, owner="", rival="10.0.0.1/32")
    (rival,) = cache.guest_clusters(RIVAL)
    cache.forget(PROVISIONING_CLUSTERS, rival)
    await check(guests, cache)
    assert guests.asked == [OWNER]


async def test_what_both_carry_the_owner_keeps() -> None:
    cache = held_world()
    guests = Guests(cache, owner="10.0.0.1/32", rival="10.0.0.1/32")
    await check(guests, cache)
    assert guests.asked == [OWNER]


@pytest.mark.parametrize(
    "right",
    [
        {"reservations": [build_reservation("10.0.0.1", namespace=RIVAL, space="blue")]},
        {
            "reservations": [
                build_reservation(
                    "10.0.0.1", namespace=RIVAL, space="blue", quarantined_until="2026-03-01T00:00:00Z"
                )
            ]
        },
        {
            "floating_ips": [
                build_floating_ip("own", namespace=RIVAL, status=held_by(["10.0.0.1"], space="blue"))
            ]
        },
    ],
    ids=["held", "in quarantine", "named"],
)
async def test_the_same_address_of_another_space_is_carried_by_right(right: dict[str, list[object]]) -> None:
    own = build_reservation("10.0.0.1", namespace=OWNER)
    cache = cache_of(**{**right, "reservations": [own, *right.get("reservations", [])]})  # type: ignore[arg-type]
    guests = Guests(cache, owner="", rival="10.0.0.1/32")
    await check(guests, cache)
    assert guests.asked == []


async def test_a_later_look_replaces_what_an_earlier_one_found() -> None:
    cache = held_world()
    guests = Guests(cache, owner="", rival="10.0.0.1/32")
    guests.carried[RIVAL] = ""
    guests.learn(RIVAL)
    await check(guests, cache)
    assert guests.asked == []


async def test_a_guest_that_is_forgotten_is_asked_no_more_and_is_no_carrier_either() -> None:
    cache = held_world()
    guests = Guests(cache, owner="10.0.0.1/32", rival="10.0.0.1/32")
    guests.lose(OWNER)
    guests.carried[OWNER] = ""
    with pytest.raises(AddressConflictError):
        await check(guests, cache)
    guests.lose(RIVAL)
    await check(guests, cache)
    assert guests.asked == [OWNER, RIVAL]


async def test_a_rival_that_is_forgotten_while_it_is_asked_stands_in_nobodys_way() -> None:
    cache = held_world()
    guests = Guests(cache, owner="", rival="10.0.0.1/32")
    guests.carried[RIVAL] = ""
    look = guests.read_in_use

    async def look_and_forget(guest_id: str) -> InUseAddresses:
        guests.lose(guest_id)
        return await look(guest_id)

    guests.read_in_use = look_and_forget
    await check(guests, cache)


async def test_two_that_ask_the_same_rival_at_once_both_learn_that_it_gave_the_address_up() -> None:
    """A look that ends in between strikes the address off, which was an error in the answer of the other."""
    cache = held_world()
    guests = Guests(cache, owner="", rival="10.0.0.1/32")
    guests.carried[RIVAL] = ""
    look = guests.read_in_use

    async def look_and_learn(guest_id: str) -> InUseAddresses:
        guests.learn(guest_id)
        return await look(guest_id)

    guests.read_in_use = look_and_learn
    await check(guests, cache)
