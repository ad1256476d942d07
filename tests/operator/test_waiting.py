"""A floating IP that waits is served as soon as it can be, and its conditions say what it waits for."""

from collections.abc import Callable
from typing import Any

import pytest

from fipop.interfaces import ApiRequest
from tests.harness.fleet import RESERVATIONS, Fleet, build_fleet

A, B, C = "c-m-a", "c-m-b", "c-m-c"
X, Y, Z = "10.0.0.10", "10.0.0.11", "10.0.0.12"
QUARANTINE = 600


async def with_one_that_waits(**spec: Any) -> Fleet:
    """Have A hold the only address of the range, and B wait for one."""
    fleet = build_fleet(A, B, **{"iprange": f"{X}-{X}", **spec})
    await fleet.start(leader_election=False)
    fleet.ask(A)
    await fleet.settle()
    fleet.ask(B)
    await fleet.pass_time(5)
    assert (fleet.addresses(A), fleet.addresses(B), fleet.condition(B)) == ([X], [], ("False", "RangeFull"))
    return fleet


async def release_by_hand(fleet: Fleet) -> None:
    """Have the owner gone, and its address out of quarantine by an administrator."""
    fleet.give_up(A)
    await fleet.pass_time(5)
    fleet.remove_reservation(f"default.{X}")


async def more_addresses(fleet: Fleet) -> None:
    fleet.change_range(iprange=f"{X}-{Y}")


async def another_range(fleet: Fleet) -> None:
    fleet.ask_for_range(B, "other")


async def another_space(fleet: Fleet) -> None:
    fleet.move_to_space(B, iprange=f"{X}-{X}")


FREEING = {
    "the range has more addresses": more_addresses,
    "the owner is gone, and its reservation is deleted": release_by_hand,
    "it names another range": another_range,
    "another address space has the address": another_space,
}


@pytest.mark.parametrize("what", FREEING)
async def test_a_floating_ip_that_waits_gets_an_address_within_seconds_when(what: str) -> None:
    fleet = await with_one_that_waits()
    fleet.add_range("other", f"{Z}-{Z}", clusterSelector={"matchLabels": {"net": "other"}})
    await FREEING[what](fleet)
    await fleet.pass_time(5)
    assert len(fleet.addresses(B)) == 1
    assert fleet.guests[B].addresses == set(fleet.addresses(B))
    assert fleet.condition(B) == ("True", "Allocated")


LIMITS: dict[str, tuple[dict[str, object], Callable[[Fleet], None]]] = {
    "the range stops to drain": ({"draining": True}, lambda fleet: fleet.change_range(draining=False)),
    "its labels match a range that serves only such": (
        {"restrictToMatching": True, "clusterSelector": {"matchLabels": {"net": "blue"}}},
        lambda fleet: fleet.label_guest(B, net="blue"),
    ),
    "the range allows its workspace": (
        {"allowedWorkspaces": ["other"]},
        lambda fleet: fleet.change_range(allowedWorkspaces=["fleet-default"]),
    ),
}


@pytest.mark.parametrize("what", LIMITS)
async def test_a_floating_ip_that_its_range_refused_gets_an_address_within_seconds_when(what: str) -> None:
    limits, change = LIMITS[what]
    fleet = build_fleet(B, **limits)
    await fleet.start(leader_election=False)
    fleet.ask(B)
    await fleet.pass_time(5)
    assert (fleet.addresses(B), fleet.condition(B)[0]) == ([], "False")
    change(fleet)
    await fleet.pass_time(5)
    assert fleet.addresses(B) == [X]


async def test_an_address_that_a_floating_ip_names_in_vain_goes_to_another_one() -> None:
    fleet = Fleet()
    fleet.add_range(iprange=f"{X}-{X}")
    fleet.add_range("other", "10.1.0.1-10.1.0.2")
    for each in (A, B):
        fleet.add_guest(each)
    await fleet.start(leader_election=False)
    fleet.ask(A, X, range_name="other")
    fleet.ask(B)
    await fleet.pass_time(70)
    assert (fleet.condition(A), fleet.addresses(B)) == (("False", "AddressOutOfRange"), [X])


async def test_an_address_whose_claim_failed_goes_to_another_one_when_its_claimant_is_gone() -> None:
    fleet = build_fleet(A, B, iprange=f"{X}-{X}")
    await fleet.start(leader_election=False)
    fleet.link.refuse = refuse_reservations_of(A)
    fleet.ask(A)
    await fleet.settle()
    fleet.give_up(A)
    fleet.ask(B)
    await fleet.pass_time(70)
    assert fleet.addresses(B) == [X]


async def test_a_free_address_that_one_floating_ip_may_not_have_goes_to_another_one() -> None:
    fleet = await with_one_that_waits()
    fleet.add_guest(C)
    fleet.ask(C)
    await fleet.settle()
    fleet.link.refuse = refuse_reservations_of(B)
    await release_by_hand(fleet)
    await fleet.pass_time(70)
    assert fleet.addresses(C) == [X]


def refuse_reservations_of(guest_id: str) -> Callable[[str, Any, ApiRequest], bool]:
    """Have an admission policy refuse every reservation for a guest cluster."""

    def refuse(verb: str, target: Any, request: ApiRequest) -> bool:
        is_claim = (verb, target.plural) == ("create", RESERVATIONS)
        return is_claim and request.body["spec"]["owner"]["namespace"] == guest_id

    return refuse


# What a floating IP of kube-fip-operator names


async def test_the_address_of_a_floating_ip_from_before_fipop_is_its_own_though_its_range_is_missing() -> (
    None
):
    fleet = Fleet()
    install = fleet.take_away(("customresourcedefinitions", "", f"{RESERVATIONS}.kubefip.k8s.binbash.org"))
    fleet.add_range(iprange=f"{X}-{X}")
    for each in (A, B):
        fleet.add_guest(each)
    fleet.ask(A, X, range_name="gone")
    await fleet.pass_time(60)
    install()
    await fleet.start(leader_election=False)
    fleet.ask(B)
    await fleet.pass_time(120)
    assert fleet.addresses(B) == []
    fleet.give_up(A)
    await fleet.pass_time(2 * QUARANTINE)
    assert fleet.addresses(B) == [X]
