"""Whether addresses are announced: what floating IPs show of it, and what finding it out costs."""

import asyncio
from collections.abc import Callable

import pytest

from fipop.api import names
from tests.harness.fleet import Fleet
from tests.harness.history import FLOATING_IPS

A, X = "c-m-a", "10.0.0.10"
INTERVAL = 60
AGREED = 2 * INTERVAL + 50
"""Two readings that agree were made in that time."""


async def announced(*, interval: int = INTERVAL) -> Fleet:
    """Have a guest cluster with both releases, in which a Service uses its address and kube-vip announces it."""
    fleet = Fleet()
    fleet.set_options(operateGuestClusterInterval=str(interval))
    fleet.add_range(iprange=f"{X}-{X}")
    fleet.add_guest(A)
    fleet.opt_in(A)
    await fleet.start(leader_election=False)
    fleet.ask(A)
    await fleet.pass_time(60)
    fleet.guests[A].announce(X)
    await fleet.pass_time(INTERVAL + 10)
    return fleet


async def test_an_address_that_no_service_uses_costs_no_request() -> None:
    fleet = await announced()
    fleet.guests[A].remove_service()
    await fleet.pass_time(AGREED)
    assert fleet.condition(A, "Announced") == ("Unknown", "NotUsed")
    answered = fleet.guests[A].answered
    before = answered["leases"], answered["endpointslices"]
    await fleet.pass_time(AGREED)
    assert (answered["leases"], answered["endpointslices"]) == before


@pytest.mark.parametrize(
    ("node", "reason"), [("", "NoLeader"), ("n2", "OtherNode")], ids=["kube-vip dies", "it is not taken over"]
)
async def test_an_address_that_is_announced_no_more(node: str, reason: str) -> None:
    fleet = await announced()
    fleet.guests[A].leader = node
    await fleet.pass_time(AGREED)
    assert fleet.condition(A, "Announced") == ("False", reason)
    assert fleet.condition(A, "Ready") == ("True", "Ready")
    left = fleet.status(A)["lastAnnounced"]
    fleet.guests[A].leader = "n1"
    await fleet.pass_time(INTERVAL + 10)
    assert fleet.condition(A, "Announced") == ("True", "Announced")
    assert fleet.status(A)["lastAnnounced"] == left


async def test_one_reading_changes_nothing_and_is_repeated_40_s_later() -> None:
    fleet = await announced(interval=600)
    await fleet.pass_time(600)
    assert fleet.condition(A, "Announced") == ("True", "Announced")
    fleet.guests[A].leader = ""
    await fleet.pass_time(30)
    assert fleet.condition(A, "Announced") == ("True", "Announced"), "not read since"
    await fleet.pass_time(600 + 50)
    assert fleet.condition(A, "Announced") == ("False", "NoLeader")


async def test_a_kube_vip_that_died_between_two_visits_is_found_by_the_next_one() -> None:
    """It renewed its Lease after the former reading, so both readings differ."""
    fleet = await announced(interval=600)
    guest = fleet.guests[A]
    before = fleet.sessions[A]
    while fleet.sessions[A] == before:
        await fleet.pass_time(10)
    await fleet.pass_time(200)
    guest.renew_lease()
    guest.leader = ""
    await fleet.pass_time(400 + 50)
    assert fleet.condition(A, "Announced") == ("False", "NoLeader")


async def test_the_clock_of_a_node_can_be_behind() -> None:
    fleet = await announced(interval=600)
    guest = fleet.guests[A]
    guest.leader = ""
    await fleet.pass_time(1300)
    assert fleet.condition(A, "Announced") == ("False", "NoLeader")
    guest.leader, guest.clock_behind = "n1", 120
    await fleet.pass_time(600 + 50)
    assert fleet.condition(A, "Announced") == ("True", "Announced")
    for _ in range(25):
        await fleet.pass_time(30)
        assert fleet.condition(A, "Announced") == ("True", "Announced")


async def test_an_address_that_a_node_announces() -> None:
    """Also one with a long name."""
    fleet = await announced()
    name = ".".join(["n" * 60] * 4)
    fleet.guests[A].leader = name
    fleet.guests[A].announce(X, node=name)
    await fleet.pass_time(AGREED)
    assert fleet.condition(A, "Announced") == ("True", "Announced")
    assert name in fleet.message(A, "Announced")
    assert "default/web" in fleet.message(A, "Announced")
    assert "lastAnnounced" not in fleet.status(A)


async def test_another_address_is_not_called_announced_for_what_was_found_of_the_former_one() -> None:
    fleet = await announced()
    fleet.change_range(iprange=f"{X}-10.0.0.20")
    fleet.guests[A].seconds = 4.0
    fleet.change(A, ipaddress="10.0.0.20")
    await fleet.settle()
    fleet.change_range(iprange=f"{X}-10.0.0.21")
    for _ in range(AGREED):
        await fleet.pass_time(1)
        if fleet.addresses(A) == ["10.0.0.20"]:
            shown = [each for each in fleet.status(A)["conditions"] if each["type"] == "Announced"]
            assert [each["status"] for each in shown] in ([], ["Unknown"])
    assert fleet.condition(A, "Announced") == ("Unknown", "NotUsed")


async def test_a_guest_cluster_that_fails_to_answer_once_changes_nothing() -> None:
    fleet = await announced()
    fleet.guests[A].silent = True
    while fleet.condition(A, "GuestConfigured")[0] == "True":
        await fleet.pass_time(1)
    fleet.guests[A].silent = False
    for _ in range(AGREED):
        assert fleet.condition(A, "Announced")[0] == "True"
        await fleet.pass_time(1)
    assert "lastAnnounced" not in fleet.status(A)


async def test_an_address_is_not_called_announced_while_its_guest_cluster_cannot_be_reached_and_after() -> (
    None
):
    fleet = await announced()
    fleet.guests[A].silent, fleet.guests[A].leader = True, ""
    await fleet.pass_time(3600)
    assert fleet.condition(A, "Announced") == ("Unknown", "NotRead")
    fleet.guests[A].silent = False
    for _ in range(900):
        await fleet.pass_time(1)
        assert fleet.condition(A, "Announced")[0] != "True"
    assert fleet.condition(A, "Announced") == ("False", "NoLeader")


async def test_what_cannot_be_read_is_unknown() -> None:
    fleet = await announced()
    fleet.guests[A].forbidden.add("leases")
    await fleet.pass_time(AGREED)
    assert fleet.condition(A, "Announced") == ("Unknown", "NotRead")
    assert fleet.condition(A, "Ready") == ("True", "Ready")


async def test_a_guest_cluster_that_is_not_opted_in_shows_nothing() -> None:
    fleet = Fleet()
    fleet.add_range()
    fleet.add_guest(A)
    await fleet.start(leader_election=False)
    fleet.ask(A)
    fleet.guests[A].announce(X)
    await fleet.pass_time(600)
    assert fleet.addresses(A)
    assert not [each for each in fleet.status(A)["conditions"] if each["type"] == "Announced"]


HIDE: dict[str, Callable[[Fleet], None]] = {
    "is not visited any more": lambda fleet: fleet.annotate(
        (FLOATING_IPS, A, "web"), {names.ANNOTATION_CLUSTER: "another"}
    ),
    "opts out": lambda fleet: fleet.opt_in(A, **{names.LABEL_OPT_IN: "false"}),
}


@pytest.mark.parametrize("what", HIDE)
async def test_nothing_is_shown_of_a_guest_cluster_that(what: str) -> None:
    fleet = await announced()
    HIDE[what](fleet)
    await fleet.pass_time(AGREED)
    assert not [each for each in fleet.status(A)["conditions"] if each["type"] == "Announced"]


async def test_a_visit_of_a_guest_cluster_whose_addresses_are_used_takes_seven_requests() -> None:
    fleet = await announced(interval=3600)
    await fleet.skip_time(2 * 3600)  # nodes and Deployments are read in the first hour, and hourly
    fleet.set_options(operateGuestClusterInterval="600")
    await fleet.pass_time(700)
    before = fleet.guests[A].asked, fleet.sessions[A]
    while fleet.sessions[A] == before[1]:
        await fleet.pass_time(10)
    assert fleet.guests[A].asked - before[0] <= 7


async def test_a_new_leader_shows_what_the_former_one_showed_until_two_readings_agree() -> None:
    fleet = await announced(interval=100)
    fleet.guests[A].leader = ""
    await fleet.kill()
    await fleet.start(leader_election=False)
    assert fleet.condition(A, "Announced") == ("True", "Announced")
    await fleet.pass_time(150)
    assert fleet.condition(A, "Announced") == ("False", "NoLeader")


# Rollouts


async def rolled_out(min_success_seconds: int = 60) -> Fleet:
    """Have three guest clusters whose addresses are announced, with a target that was completed."""
    fleet = Fleet()
    fleet.set_options(
        operateGuestClusterInterval="60",
        kubevipUpdate="true",
        kubevipRolloutCanaries="1",
        kubevipRolloutMinSuccessTime=str(min_success_seconds),
        kubevipRolloutProgressDeadline="300",
    )
    fleet.add_range()
    for guest_id in ("c-m-a", "c-m-b", "c-m-c"):
        fleet.add_guest(guest_id)
        fleet.opt_in(guest_id)
    await fleet.start(leader_election=False)
    for guest_id, guest in fleet.guests.items():
        fleet.ask(guest_id)
        await fleet.pass_time(30)
        guest.announce(*fleet.addresses(guest_id))
    await fleet.pass_time(1200)
    return fleet


@pytest.mark.parametrize("seconds", [0.0, 4.0], ids=["at once", "while the second reading is under way"])
async def test_a_target_with_which_kube_vip_announces_nothing_stops_at_the_canary(seconds: float) -> None:
    fleet = await rolled_out()
    fleet.guests["c-m-a"].seconds = seconds
    assert {fleet.condition(each, "Announced") for each in fleet.guests} == {("True", "Announced")}
    before = {each: len(guest.of_kind("secrets")) for each, guest in fleet.guests.items()}
    fleet.helm.dark.add("blind")
    fleet.set_options(kubevipChartValues="note: blind")
    await fleet.pass_time(1200)
    changed = [each for each, guest in fleet.guests.items() if len(guest.of_kind("secrets")) > before[each]]
    assert changed == ["c-m-a"]
    await fleet.pass_time(300)
    assert fleet.condition("c-m-a", "Announced") == ("True", "Announced"), "it was rolled back"
    assert "RolloutStopped" in {reason for _, reason, _ in fleet.events("kube-fip-config")}


async def test_a_guest_cluster_does_not_succeed_while_the_first_reading_that_differs_is_under_way() -> None:
    """The visit that finds its pods ready for long enough is also the first one that finds its address dark."""
    fleet = await rolled_out(min_success_seconds=20)
    before = {each: len(guest.of_kind("secrets")) for each, guest in fleet.guests.items()}
    guest = fleet.guests["c-m-a"]
    guest.seconds = 4.0

    async def renew() -> None:
        while guest.leader:
            guest.renew_lease()
            await fleet.pass_time(2)

    renewing = asyncio.create_task(renew())
    fleet.helm.dark.add("blind")
    fleet.set_options(kubevipChartValues="note: blind")
    await fleet.pass_time(200)
    assert renewing.done(), "kube-vip renews its Lease no more"
    changed = [each for each, guest in fleet.guests.items() if len(guest.of_kind("secrets")) > before[each]]
    assert changed == ["c-m-a"]


async def test_an_address_that_was_dark_before_does_not_stop_a_rollout() -> None:
    fleet = await rolled_out()
    for guest in fleet.guests.values():
        guest.leader = ""
    await fleet.pass_time(200)
    assert {fleet.condition(each, "Announced")[0] for each in fleet.guests} == {"False"}
    before = {each: len(guest.of_kind("secrets")) for each, guest in fleet.guests.items()}
    fleet.set_options(kubevipChartValues="logLevel: 5")
    await fleet.pass_time(2400)
    assert all(len(guest.of_kind("secrets")) > before[each] for each, guest in fleet.guests.items())
