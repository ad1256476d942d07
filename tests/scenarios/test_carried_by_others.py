"""What a guest carries, or an owner holds, is never given to another; once it is free, it is given out."""

from datetime import timedelta

import pytest

from fipop.api.names import ANNOTATION_CONFIRM_RELEASE
from fipop.errors import AddressConflictError
from fipop.kube.resources import (
    FLOATING_IP_RANGES,
    FLOATING_IP_RESERVATIONS,
    FLOATING_IPS,
    MANAGEMENT_CLUSTERS,
    PROVISIONING_CLUSTERS,
)
from tests.harness.small_cluster import WORKSPACE
from tests.harness.small_operator import SmallOperator
from tests.harness.virtual_time import in_virtual_time

A, B, C = "c-m-a", "c-m-b", "c-m-c"
X, Y = "10.0.0.10", "10.0.0.11"
"""The first address of the range, which a new floating IP would get, and the second."""
QUARANTINE = 600
HOUR = 3600


def build(*guest_ids: str, **spec: object) -> SmallOperator:
    operator = SmallOperator()
    operator.add_range(**spec)  # type: ignore[arg-type]
    for guest_id in guest_ids:
        operator.add_guest(guest_id)
    return operator


def hold(operator: SmallOperator, guest_id: str, address: str) -> None:
    """Have a floating IP that holds an address, as the store shows it after a restart."""
    operator.ask(guest_id, has=address)
    operator.reserve(address, guest_id)


async def given_to_another(operator: SmallOperator, guest_id: str = "c-m-late") -> None:
    """X, which nobody carries any more, goes to who asks next, once its quarantine is over."""
    await operator.pass_time(2 * QUARANTINE)
    operator.ask(guest_id)
    await operator.settle()
    assert operator.holders(X) == {guest_id}


# After a restored backup


async def test_a_quarantine_that_a_backup_brought_back_lasts_as_long_as_another_guest_carries_the_address() -> (
    None
):
    """The guest of the last owner does not carry it; another one got it after the backup was made."""
    operator = build(A, B, C)
    operator.reserve(X, A, until=operator.memory.now + timedelta(seconds=60))
    operator.carried.config_maps[B] = f"{X}/32"
    await operator.start()
    await operator.pass_time(2 * QUARANTINE)
    operator.ask(C)
    await operator.settle()
    assert operator.held() == {f"default.{Y}": C}
    assert operator.quarantined() == {f"default.{X}"}
    operator.carried.config_maps[B] = ""
    await given_to_another(operator)


async def test_an_address_that_its_owner_gives_up_waits_for_the_guest_that_carries_it_without_right() -> None:
    operator = build(A, B, C)
    hold(operator, A, X)
    operator.carried.config_maps[B] = f"{X}/32"
    await operator.start()
    with pytest.raises(AddressConflictError):
        await operator.may_write(X)
    operator.give_up(A)
    await operator.settle()
    await operator.pass_time(2 * QUARANTINE)
    operator.ask(C)
    await operator.settle()
    assert operator.held() == {f"default.{Y}": C}
    operator.carried.config_maps[B] = ""
    await given_to_another(operator)
    await operator.may_write(X)


@pytest.mark.parametrize("last", [A, B, C])
async def test_nobodys_address_that_several_guests_carry_waits_for_the_last(last: str) -> None:
    operator = build(A, B, C)
    operator.carried.services.update(dict.fromkeys([A, B, C], X))
    await operator.start()
    for guest_id in {A, B, C} - {last}:
        operator.carried.services[guest_id] = ""
    await operator.pass_time(2 * QUARANTINE)
    operator.ask("c-m-new")
    await operator.settle()
    assert operator.held() == {f"default.{Y}": "c-m-new"}
    operator.carried.services[last] = ""
    await given_to_another(operator)


@in_virtual_time
async def test_a_guest_that_does_not_answer_at_a_later_look_is_still_known_to_carry_anothers_address() -> (
    None
):
    operator = build(A, B)
    hold(operator, A, X)
    operator.carried.config_maps[B] = f"{X}/32"
    await operator.start()
    operator.carried.silent.add(B)
    await operator.look_again()
    operator.carried.silent.clear()
    with pytest.raises(AddressConflictError):
        await operator.may_write(X)
    operator.carried.config_maps[B] = ""
    await operator.may_write(X)
    assert operator.holders(X) == {A}


async def test_what_two_lists_in_turn_lack_is_kept_for_the_guest_that_carries_it() -> None:
    """First the reservation is gone, then, after a look, the floating IP whose status still named the address."""
    operator = build(A, C)
    hold(operator, A, X)
    operator.carried.config_maps[A] = f"{X}/32"
    await operator.start()
    operator.miss(FLOATING_IP_RESERVATIONS, {A})
    await operator.look_until(lambda: operator.manager.gate.looked)
    operator.miss(FLOATING_IPS, {A})
    operator.ask(C)
    await operator.settle()
    assert operator.held() == {}
    await operator.look()
    assert operator.held() == {f"default.{Y}": C}
    assert operator.quarantined() == {f"default.{X}"}
    operator.carried.config_maps[A] = ""
    await given_to_another(operator)


async def test_a_list_that_lacks_many_floating_ips_releases_nothing_though_one_was_counted_just_before() -> (
    None
):
    guest_ids = [f"c-m-{number:03}" for number in range(40)]
    operator = build(*guest_ids, iprange="10.0.1.0/24")
    for number, guest_id in enumerate(guest_ids, start=1):
        hold(operator, guest_id, f"10.0.1.{number}")
    await operator.start()
    held = operator.held()
    assert len(held) == 40
    operator.miss(FLOATING_IPS, guest_ids[:1])
    await operator.settle()
    assert operator.quarantined() == {"default.10.0.1.1"}
    operator.miss(FLOATING_IPS, guest_ids)
    await operator.settle()
    await operator.look()
    await operator.pass_time(HOUR)
    held.pop("default.10.0.1.1")
    assert operator.held() == held
    assert operator.configuration.complaints == ["MassReleaseWithheld"]
    operator.configuration.annotate(ANNOTATION_CONFIRM_RELEASE, "39")
    await operator.pass_time(60)
    assert operator.held() == {}


# Trouble at the look


async def test_trouble_of_the_api_server_during_the_look_leaves_nothing_out_that_a_guest_carries() -> None:
    operator = build(B, C)
    operator.carried.config_maps[B] = f"{X}/32"
    operator.carried.services[B] = Y
    await operator.adopt()
    operator.client.failures["create"] = 1
    await operator.look()
    operator.ask(C)
    await operator.settle()
    assert operator.held() == {"default.10.0.0.12": C}
    assert operator.quarantined() == {f"default.{X}", f"default.{Y}"}
    operator.carried.config_maps[B] = ""
    await given_to_another(operator)
    assert operator.quarantined() == {f"default.{Y}"}


async def test_what_a_guest_carries_that_connects_after_the_look_is_not_given_out_from_then_on() -> None:
    operator = build(C)
    operator.add_guest(B, connected=False)
    operator.carried.config_maps[B] = f"{X}/32"
    await operator.start()
    assert operator.quarantined() == set()
    operator.connect(B)
    await operator.settle()
    await operator.look_until(lambda: bool(operator.quarantined()))
    await operator.settle()
    operator.ask(C)
    await operator.settle()
    assert operator.held() == {f"default.{Y}": C}
    operator.carried.config_maps[B] = ""
    await given_to_another(operator)


# Who is first


async def test_the_guest_that_carries_what_its_own_floating_ip_asks_for_gets_it_before_a_stranger() -> None:
    operator = build(A, B)
    operator.ask(A, X)
    await operator.pass_time(10)
    operator.ask(B, X)
    operator.carried.config_maps[B] = f"{X}/32"
    await operator.start()
    await operator.pass_time(48 * HOUR)
    assert operator.holders(X) == {B}
    operator.give_up(B)
    operator.carried.config_maps[B] = ""
    await operator.settle()
    await operator.pass_time(2 * QUARANTINE)
    assert operator.holders(X) == {A}


async def test_an_object_of_the_predecessor_inherits_what_it_named_at_the_start_and_nothing_later() -> None:
    operator = build(A, B)
    operator.ask(A)
    operator.ask(B, "10.0.0.253")
    await operator.pass_time(100)
    operator.cache.inheritance.ours_since = operator.memory.now
    await operator.pass_time(100)
    await operator.adopt()
    operator.ask_for_another(A, "10.0.0.254")
    await operator.settle()
    assert operator.held() == {"default.10.0.0.253": B}
    await operator.look()
    assert operator.held() == {"default.10.0.0.253": B}
    operator.ask_for_another(A, X)
    await operator.settle()
    assert operator.holders(X) == {A}


async def test_what_the_predecessor_made_after_fipop_came_keeps_an_address_that_its_range_assigns() -> None:
    """Who goes back to kube-fip-operator and forward again: its new objects are no older than fipop here."""
    operator = build(A, B)
    operator.cache.inheritance.ours_since = operator.memory.now
    await operator.pass_time(100)
    for guest_id, address in ((A, X), (B, "10.0.0.253")):
        operator.ask(guest_id, address)
        operator.carried.config_maps[guest_id] = f"{address}/32"
    await operator.start()
    await operator.visit(A, B)
    assert operator.held() == {f"default.{X}": A}
    assert operator.carried.config_maps == {A: f"{X}/32", B: "10.0.0.253/32"}
    status = operator.memory.objects[FLOATING_IPS.plural, B, "web"]["status"]
    assert status["conditions"][0]["reason"] == "AddressOutOfRange"


async def test_a_former_owner_does_not_get_back_what_the_range_excludes_by_now() -> None:
    operator = build(A)
    await operator.start()
    operator.ask(A)
    await operator.settle()
    operator.give_up(A)
    await operator.settle()
    operator.change_range(exclude=[X])
    operator.ask(A)
    await operator.settle()
    assert operator.held() == {f"default.{Y}": A}
    operator.change_range(exclude=[])
    await given_to_another(operator)


# Guests that Rancher knows no more, or never knew


async def test_what_an_imported_guest_was_seen_to_carry_waits_a_day_from_when_it_left_rancher() -> None:
    """Its floating IP was deleted long before: counted from there the day would be over at once."""
    operator = build()
    operator.add_guest(A, imported=True)
    await operator.start()
    operator.ask(A)
    operator.carried.services[A] = X
    await operator.settle()
    operator.give_up(A)
    await operator.settle()
    await operator.pass_time(30 * HOUR)
    operator.remove_guest(A)
    await operator.settle()
    await operator.pass_time(23 * HOUR)
    operator.ask(C)
    await operator.settle()
    assert operator.held() == {f"default.{Y}": C}
    assert operator.quarantined() == {f"default.{X}"}
    await operator.pass_time(2 * HOUR)
    await given_to_another(operator)


@pytest.mark.parametrize("named", ["local", "c-m-never"])
async def test_an_address_of_a_namespace_that_is_no_guests_is_free_after_its_quarantine(named: str) -> None:
    """Nothing was ever written for it, so there is nobody to ask."""
    operator = build()
    if named == "local":
        operator.add_guest("local", named="local")
    await operator.start()
    operator.ask(named)
    await operator.settle()
    assert operator.holders(X) == {named}
    operator.give_up(named)
    await operator.settle()
    operator.ask(C)
    await operator.settle()
    assert operator.held() == {f"default.{Y}": C}
    await given_to_another(operator)


async def test_a_guest_that_no_range_with_the_address_can_serve_any_more_keeps_it_from_nobody() -> None:
    """What was seen of it before the range was deleted counted until a restart."""
    operator = SmallOperator()
    operator.add_range(clusterSelector={"matchLabels": {"net": "blue"}}, quarantineSeconds=60)
    await operator.pass_time(10)
    operator.add_range("other", clusterSelector={"matchLabels": {}})
    operator.add_guest("c-m-a")
    operator.add_guest("c-m-b")
    await operator.start()
    operator.ask("c-m-a", "10.0.0.10")
    await operator.settle()
    operator.carried.services["c-m-b"] = "10.0.0.10"
    await operator.look_again()
    operator.give_up("c-m-a")
    await operator.settle()
    await operator.pass_time(61)
    assert operator.quarantined() == {"default.10.0.0.10"}
    operator.memory.remove((FLOATING_IP_RANGES.plural, "", "other"))
    await operator.settle()
    await operator.pass_time(400)
    assert operator.quarantined() == set()


async def test_a_cluster_that_is_made_again_does_not_get_its_address_back_from_one_that_uses_it() -> None:
    """It got it, and then its guest was not served for as long as the other used the address."""
    operator = SmallOperator()
    operator.add_range(quarantineSeconds=86400, clusterSelector={"matchLabels": {}})
    operator.add_guest("c-m-old", named="demo")
    operator.add_guest("c-m-user")
    await operator.start()
    operator.ask("c-m-old")
    await operator.settle()
    operator.give_up("c-m-old")
    operator.memory.remove((PROVISIONING_CLUSTERS.plural, WORKSPACE, "demo"))
    operator.memory.remove((MANAGEMENT_CLUSTERS.plural, "", "c-m-old"))
    operator.carried.services["c-m-user"] = "10.0.0.10"
    await operator.pass_time(1200)
    await operator.look_again()
    operator.add_guest("c-m-new", named="demo")
    operator.ask("c-m-new")
    await operator.settle()
    await operator.pass_time(100)
    assert operator.held() == {"default.10.0.0.11": "c-m-new"}
