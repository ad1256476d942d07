"""How far the word of a guest reaches that says it carries addresses which are not its own."""

from datetime import timedelta

import pytest

from fipop.errors import AddressConflictError
from tests.harness.small_operator import SmallOperator

A, B, C = "c-m-a", "c-m-b", "c-m-c"
X, Y = "10.0.0.10", "10.0.0.11"
WIDE = "10.1.0.0/22"


def build(*guest_ids: str, **spec: object) -> SmallOperator:
    operator = SmallOperator()
    operator.add_range(**spec)  # type: ignore[arg-type]
    for guest_id in guest_ids:
        operator.add_guest(guest_id)
    return operator


async def quarantined_by(operator: SmallOperator, guest_id: str, *addresses: str) -> set[str]:
    operator.carried.services[guest_id] = ",".join(addresses)
    await operator.start()
    return operator.quarantined()


async def test_one_service_does_not_starve_a_range_that_was_never_meant_for_its_guest() -> None:
    """One Service with 1,024 addresses in its annotation took 1,016 addresses of any range."""
    operator = build(A, B, clusterSelector={"matchLabels": {"net": "blue"}}, iprange=WIDE)
    every = [f"10.1.{third}.{last}" for third in range(4) for last in range(1, 255)]
    assert await quarantined_by(operator, A, *every) == set()


async def test_in_a_range_that_could_serve_it_the_word_of_a_guest_counts_for_sixty_four_addresses() -> None:
    operator = build(A, iprange=WIDE)
    every = [f"10.1.{third}.{last}" for third in range(4) for last in range(1, 255)]
    found = await quarantined_by(operator, A, *every)
    assert found == {f"default.10.1.0.{last}" for last in range(1, 65)}, "the lowest"
    assert operator.manager.reported.count_ignored() == len(every) - 64


async def test_those_sixty_four_are_no_others_at_the_next_look() -> None:
    """Else whoever changes the annotation from look to look has 64 more each time."""
    operator = build(A, iprange=WIDE)
    first = await quarantined_by(operator, A, *(f"10.1.0.{last}" for last in range(1, 100)))
    operator.carried.services[A] = ",".join(f"10.1.2.{last}" for last in range(1, 100))
    await operator.look_again()
    assert operator.quarantined() == first


async def test_what_administrators_wrote_to_a_config_map_counts_before_services() -> None:
    operator = build(A, iprange=WIDE)
    operator.carried.config_maps[A] = "10.1.3.200/32"
    found = await quarantined_by(operator, A, *(f"10.1.0.{last}" for last in range(1, 100)))
    assert "default.10.1.3.200" in found
    assert len(found) == 64


@pytest.mark.parametrize("reason", ["fits", "named", "reserved", "history"])
async def test_a_range_that_could_have_given_it_an_address_believes_the_guest(reason: str) -> None:
    operator = build(A, B, clusterSelector={"matchLabels": {"net": "blue"}})
    if reason == "fits":
        operator.label_guest(A, net="blue")
    elif reason == "named":
        operator.ask(A)
    elif reason == "reserved":
        operator.reserve(Y, A, until=operator.memory.now + timedelta(hours=1))
    else:
        operator.reserve(Y, B, before=A, until=operator.memory.now + timedelta(hours=1))
    assert f"default.{X}" in await quarantined_by(operator, A, X)


async def test_a_claim_to_what_its_owner_carries_is_told_and_blocks_nobody() -> None:
    """A guest that named a neighbour's address blocked all writes to the neighbour."""
    operator = build(A, B)
    operator.ask(A, has=X)
    operator.reserve(X, A)
    operator.carried.services[B] = X
    operator.carried.config_maps[A] = f"{X}/32"
    await operator.start()
    await operator.may_write(X)
    reservation = operator.cache.reservations.get("", f"default.{X}")
    assert reservation is not None
    assert operator.manager.reported.reporters(reservation, but=A) == (B,)
    operator.carried.config_maps[A] = ""
    with pytest.raises(AddressConflictError) as caught:
        await operator.may_write(X)
    assert B in caught.value.carrier


async def test_a_claim_from_beyond_the_range_does_not_count() -> None:
    operator = build(A, B, clusterSelector={"matchLabels": {"net": "blue"}})
    operator.label_guest(A, net="blue")
    operator.ask(A, has=X)
    operator.reserve(X, A)
    operator.carried.services[B] = X
    await operator.start()
    await operator.may_write(X)


async def test_an_admin_may_say_that_a_claim_is_wrong() -> None:
    operator = build(A, B, C)
    operator.ask(A, has=X)
    operator.reserve(X, A)
    operator.carried.services[B] = operator.carried.services[C] = X
    await operator.start()
    operator.ignore_claims(A, B)
    with pytest.raises(AddressConflictError) as caught:
        await operator.may_write(X)
    assert C in caught.value.carrier
    assert "ignore-claim" in str(caught.value), "the annotation that helps is named"
    operator.ignore_claims(A, B, C)
    await operator.may_write(X)


async def test_a_claimant_that_cannot_be_asked_is_named() -> None:
    operator = build(A, B)
    operator.ask(A, has=X)
    operator.reserve(X, A)
    operator.carried.services[B] = X
    await operator.start()
    operator.carried.silent.add(B)
    with pytest.raises(AddressConflictError) as caught:
        await operator.may_write(X)
    assert B in caught.value.carrier


async def test_a_claim_in_one_address_space_does_not_block_the_same_address_in_another() -> None:
    """B can be served from the space lab only, so it says nothing about the network of the space default."""
    operator = build(A, B, C, clusterSelector={"matchLabels": {"net": "blue"}})
    operator.label_guest(A, net="blue")
    operator.add_range("lab", addressSpace="lab")
    operator.ask(A, has=X)
    operator.reserve(X, A)
    operator.ask(C, has=X, space="lab")
    operator.ask_for_range(C, "lab")
    operator.reserve(X, C, space="lab", range_name="lab")
    operator.carried.services[B] = X
    await operator.start()
    await operator.may_write(X)
    with pytest.raises(AddressConflictError):
        await operator.may_write(X, space="lab")
