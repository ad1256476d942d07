"""What an API server refuses, by a policy or a webhook, stands in a condition or an event of the object concerned."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fipop.interfaces import ApiRequest
from localfleet.simulated import Target
from tests.harness.fleet import EVERY_GUEST, RESERVATIONS, Fleet, build_fleet
from tests.harness.history import FLOATING_IPS, RANGES
from tests.harness.provider_stand_in import ProviderStandIn

A = "c-m-a"
X = "10.0.0.10"
CAUSE = "403 Forbidden by ValidatingAdmissionPolicy pinned. Exempt fipop from it."
SOON = 60.0
"""The queue has retried by then."""
FIRST = f"cluster-{A}-kubevip"


def refuse(verb: str, plural: str, subresource: str = "") -> Callable[[str, Target, ApiRequest], bool]:
    """Have a policy refuse requests."""

    def is_refused(asked: str, target: Target, _request: ApiRequest) -> bool:
        return (asked, target.plural, target.subresource) == (verb, plural, subresource)

    return is_refused


async def allow(fleet: Fleet) -> None:
    fleet.link.refuse = lambda *_: False
    await fleet.pass_time(SOON)


def warned(fleet: Fleet, about: str) -> list[str]:
    """Return the messages of the Warnings about an object."""
    return [text for _, reason, text in fleet.events(about) if reason == "WriteRefused"]


@pytest.mark.parametrize(
    ("refused", "what"),
    [
        (refuse("create", RESERVATIONS), f"create FloatingIPReservation default.{X}"),
        (refuse("patch", FLOATING_IPS), f"patch FloatingIP {A}/web"),
    ],
    ids=["claim", "spec"],
)
async def test_a_floating_ip_whose_address_is_refused_says_so_and_gets_it_when_it_is_allowed(
    refused: Any, what: str
) -> None:
    fleet = build_fleet(A)
    await fleet.start(leader_election=False)
    fleet.link.refuse = refused
    fleet.ask(A)
    await fleet.pass_time(SOON)
    for kind in ("Allocated", "Ready"):
        assert fleet.condition(A, kind) == ("False", "WriteRefused")
        assert fleet.message(A, kind) == f"fipop could not {what}: {CAUSE}"
    assert warned(fleet, "FloatingIP/") == [f"fipop could not {what}: {CAUSE}"]
    version = fleet.memory.version
    await fleet.pass_time(600)
    assert fleet.commits_since(version) == []
    await allow(fleet)
    assert (fleet.addresses(A), fleet.condition(A)) == ([X], ("True", "Allocated"))


async def test_a_floating_ip_whose_status_is_refused_gets_an_event() -> None:
    fleet = build_fleet(A)
    await fleet.start(leader_election=False)
    fleet.link.refuse = refuse("patch", FLOATING_IPS, "status")
    fleet.ask(A)
    await fleet.pass_time(600)
    assert warned(fleet, "FloatingIP/") == [f"fipop could not patch FloatingIP {A}/web: {CAUSE}"]
    await allow(fleet)
    assert fleet.addresses(A) == [X]


async def test_an_address_that_a_floating_ip_has_stays_while_another_one_is_refused() -> None:
    fleet = build_fleet(A)
    await fleet.start(leader_election=False)
    fleet.ask(A)
    await fleet.pass_time(5)
    fleet.link.refuse = refuse("create", RESERVATIONS)
    fleet.change(A, ipaddress="10.0.0.12")
    await fleet.pass_time(SOON)
    assert (fleet.addresses(A), fleet.condition(A)) == ([X], ("False", "WriteRefused"))
    assert fleet.held() == {f"default.{X}": A}
    await allow(fleet)
    assert (fleet.addresses(A), fleet.problems) == (["10.0.0.12"], [])


async def test_a_guest_cluster_whose_floating_ip_cannot_be_created_gets_an_event_on_its_cluster() -> None:
    fleet = Fleet()
    fleet.add_range(clusterSelector=EVERY_GUEST)
    await fleet.start(leader_election=False)
    fleet.link.refuse = refuse("create", FLOATING_IPS)
    fleet.add_guest(A, is_served=True)
    await fleet.pass_time(SOON)
    assert warned(fleet, f"Cluster/cluster-{A}") == [
        f"fipop could not create FloatingIP {A}/{FIRST}: {CAUSE}"
    ]
    await allow(fleet)
    assert fleet.addresses(A, FIRST)


async def test_services_for_which_no_floating_ip_can_be_created_are_no_met_demand() -> None:
    fleet = Fleet()
    per_guest = {"minAllocate": 1, "maxAllocate": 4, "releaseAfterSeconds": 120}
    fleet.add_range(clusterSelector=EVERY_GUEST, perGuest=per_guest)
    guest = fleet.add_guest(A, is_served=True)
    asyncio.get_running_loop().create_task(ProviderStandIn(guest).run())
    await fleet.start(leader_election=False)
    await fleet.pass_time(20)
    fleet.link.refuse = refuse("create", FLOATING_IPS)
    for name in ("one", "two"):
        guest.add_service(name=name)
    await fleet.pass_time(180)
    cause = f"fipop could not create FloatingIP {A}/{FIRST}-2: {CAUSE}"
    assert fleet.condition(A, "DemandMet", FIRST) == ("False", "WriteRefused")
    assert fleet.message(A, "DemandMet", FIRST) == cause
    assert warned(fleet, f"Cluster/cluster-{A}") == [cause]
    await allow(fleet)
    await fleet.pass_time(120)
    assert fleet.condition(A, "DemandMet", FIRST) == ("True", "DemandMet")


async def change_range(fleet: Fleet) -> None:
    fleet.change_range(exclude=["10.0.0.13"])


async def release(fleet: Fleet) -> None:
    fleet.give_up(A)


@pytest.mark.parametrize(
    ("refused", "happens", "about"),
    [
        (refuse("patch", RANGES, "status"), change_range, "FloatingIPRange/pool"),
        (refuse("replace", RESERVATIONS), release, f"FloatingIPReservation/default.{X}"),
    ],
    ids=["status of a range", "release"],
)
async def test_what_else_is_refused_is_an_event_of_its_object(
    refused: Any, happens: Callable[[Fleet], Awaitable[None]], about: str
) -> None:
    fleet = build_fleet(A)
    await fleet.start(leader_election=False)
    fleet.ask(A)
    await fleet.pass_time(5)
    fleet.link.refuse = refused
    await happens(fleet)
    await fleet.pass_time(SOON)
    (text,) = warned(fleet, about)
    assert text.endswith(CAUSE)


async def test_a_rollout_whose_state_is_refused_is_an_event_of_the_options() -> None:
    fleet = build_fleet(A)
    fleet.opt_in(A)
    fleet.set_options(operateGuestClusterInterval="60")
    running = fleet.begin(leader_election=False)
    running.link.refuse = refuse("create", "configmaps")
    await fleet.pass_time(SOON)
    assert any("could not create ConfigMap" in text for text in warned(fleet, "ConfigMap/kube-fip-config"))
    assert fleet.guests[A].releases == {}
