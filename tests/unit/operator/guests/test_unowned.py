"""What guests carry and nobody owns is kept from others."""

from fipop.errors import ApiServerError
from tests.harness.objects import build_floating_ip, build_range, build_reservation, cache_of
from tests.harness.virtual_time import in_virtual_time
from tests.unit.operator.guests.scans import Looking, pool_world

BUSY = ApiServerError(verb="get", kind="Secret", name="x", status=500)


@in_virtual_time
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
    assert start.scan.gate.is_open()


async def test_trouble_of_our_own_api_server_leaves_no_guest_out(looking: type[Looking]) -> None:
    start = looking(pool_world(), {"c-m-1": "10.0.0.8/32,10.0.0.9/32"})
    start.troubles = [BUSY] * 5
    await start.first()
    assert start.troubles == []
    assert start.quarantined() == {"default.10.0.0.8", "default.10.0.0.9"}


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
    assert (found.owner.namespace, found.owner.name, found.owner.cluster) == ("c-m-1", "own", "c-m-1")


async def test_what_a_guest_holds_in_another_space_is_not_kept_from_others(looking: type[Looking]) -> None:
    cache = pool_world(reservations=[build_reservation("10.0.0.8", space="blue", range_name="blue")])
    start = looking(cache, {"c-m-1": "10.0.0.8/32"})
    await start.first()
    assert start.quarantined() == set()
