"""The rule "decision" with IPv4 and IPv6: a floating IP moves with all addresses that it asks for, or with none."""

import pytest

from tests.harness.fleet import EVERY_GUEST, Fleet

A, B, C = "c-m-a", "c-m-b", "c-m-c"
X, Y = "10.0.0.10", "10.0.0.11"
V6 = "fd00::10"
BOTH = f"{X}-10.0.0.13,{V6}-fd00::13"
ELSEWHERE = "10.0.9.10-10.0.9.13,fd09::10-fd09::13"
RETRY = 65
AFTER_QUARANTINE = 1200


async def started(*pools: str) -> Fleet:
    """Have a range of each pool, the oldest first, that matches every guest cluster."""
    fleet = Fleet()
    for number, pool in enumerate(pools):
        fleet.add_range(f"range-{number}", pool, clusterSelector=EVERY_GUEST)
        await fleet.pass_time(10)
    for guest_id in (A, B, C):
        fleet.add_guest(guest_id)
    await fleet.start(leader_election=False)
    return fleet


async def holding_both(**spec: object) -> Fleet:
    """Have the floating IP of A hold X and V6, by RequireDualStack if the spec does not differ."""
    fleet = await started(BOTH)
    fleet.ask(A, range_name="range-0", **{"ipFamilyPolicy": "RequireDualStack", **spec})
    await fleet.settle()
    assert fleet.addresses(A) == [X, V6]
    assert (fleet.asked_for(A), fleet.guests[A].addresses) == (f"{X},{V6}", {X, V6})
    return fleet


def owners_of(fleet: Fleet, *addresses: str) -> list[set[str]]:
    return [fleet.holders(each) for each in addresses]


# Selection


@pytest.mark.parametrize(
    ("pools", "asked", "held"),
    [
        ((X, "fd00::1"), {"ipFamilies": ["IPv6"]}, ["fd00::1"]),
        ((X, "fd00::1"), {"ipFamilies": ["IPv6"], "ipFamilyPolicy": "SingleStack"}, ["fd00::1"]),
        ((X, "fd00::1"), {}, [X]),
        (("fd00::1", X), {}, ["fd00::1"]),
        ((X, f"{Y},fd00::1"), {"ipFamilyPolicy": "RequireDualStack"}, [Y, "fd00::1"]),
        ((X, f"{Y},fd00::1"), {"ipFamilies": ["IPv6", "IPv4"]}, [Y, "fd00::1"]),
        ((X, f"{Y},fd00::1"), {"ipFamilyPolicy": "PreferDualStack"}, [X]),
        ((X, Y), {"ipFamilyPolicy": "RequireDualStack"}, []),
    ],
)
async def test_the_first_range_that_has_the_families_asked_for_is_selected(
    pools: tuple[str, ...], asked: dict[str, object], held: list[str]
) -> None:
    fleet = await started(*pools)
    fleet.ask(A, range_name="", **asked)
    await fleet.settle()
    assert fleet.addresses(A) == held
    assert fleet.condition(A)[0] == ("True" if held else "False")
    assert len(fleet.held()) == len(held)


async def test_a_range_that_is_full_in_one_family_serves_the_other() -> None:
    fleet = await started(f"{X},fd00::1-fd00::2", "10.0.9.1,fd00::9")
    fleet.ask(B, X, range_name="range-0")
    fleet.ask(A, range_name="", ipFamilies=["IPv6"])
    await fleet.settle()
    assert (fleet.addresses(A), fleet.addresses(B)) == (["fd00::1"], [X])


async def test_a_floating_ip_that_waits_for_a_family_gets_it_once_it_is_free() -> None:
    fleet = await started(X, f"{Y},fd00::1")
    fleet.ask(B, "fd00::1", range_name="range-1")
    await fleet.settle()
    fleet.ask(A, range_name="", ipFamilies=["IPv6"])
    await fleet.settle()
    assert (fleet.addresses(A), fleet.condition(A)[0]) == ([], "False")
    fleet.give_up(B)
    await fleet.pass_time(AFTER_QUARANTINE)
    assert fleet.addresses(A) == ["fd00::1"]
    assert fleet.problems == []


# Changes of the policy


async def test_a_second_family_is_added_and_taken_away_by_the_policy_while_the_first_stays() -> None:
    fleet = await started(BOTH)
    fleet.ask(A, range_name="range-0")
    await fleet.settle()
    assert fleet.addresses(A) == [X]
    fleet.change(A, ipFamilyPolicy="PreferDualStack")
    await fleet.settle()
    assert fleet.addresses(A) == [X, V6]
    fleet.change(A, ipFamilyPolicy="SingleStack", ipaddress=X)
    await fleet.settle()
    assert fleet.addresses(A) == [X]
    assert owners_of(fleet, X, V6) == [{A}, set()]
    assert len(fleet.quarantined()) == 1
    assert fleet.problems == []


async def test_a_floating_ip_that_prefers_both_families_is_content_with_one_and_gets_the_second_once_it_is_free() -> (
    None
):
    fleet = await started(f"{X}-{Y},{V6}")
    fleet.ask(B, V6, range_name="range-0")
    await fleet.settle()
    fleet.ask(A, range_name="range-0", ipFamilyPolicy="PreferDualStack")
    await fleet.settle()
    assert (fleet.addresses(A), fleet.condition(A)[0]) == ([X], "True")
    fleet.give_up(B)
    await fleet.pass_time(AFTER_QUARANTINE)
    assert fleet.addresses(A) == [X, V6]
    assert fleet.problems == []


async def test_a_family_that_is_not_asked_for_any_more_stays_until_a_range_can_serve_the_new_request() -> (
    None
):
    fleet = await holding_both()
    fleet.move(A, "missing", ipaddress="", ipFamilyPolicy="SingleStack", ipFamilies=["IPv6"])
    await fleet.settle()
    await fleet.pass_time(RETRY)
    assert fleet.addresses(A) == [X, V6]
    fleet.add_range("missing", "10.0.8.9,fd00::99")
    await fleet.settle()
    await fleet.pass_time(RETRY)
    assert fleet.addresses(A) == ["fd00::99"]
    assert fleet.problems == []


# Moves as a whole


@pytest.mark.parametrize("space", ["default", "lab"])
async def test_both_families_move_to_another_range_as_a_whole(space: str) -> None:
    fleet = await holding_both()
    fleet.add_range("other", ELSEWHERE, addressSpace=space)
    fleet.move(A, "other", ipaddress="")
    await fleet.pass_time(RETRY)
    assert fleet.addresses(A) == ["10.0.9.10", "fd09::10"]
    assert fleet.status(A)["addressSpace"] == space
    assert owners_of(fleet, X, V6) == [set(), set()]
    assert len(fleet.quarantined()) == 2
    assert fleet.guests[A].addresses == {"10.0.9.10", "fd09::10"}
    assert fleet.problems == []


@pytest.mark.parametrize("space", ["default", "lab"])
@pytest.mark.parametrize(
    "obstacle",
    ["the range lacks a family", "a family is full", "the quota is one address", "it is restricted"],
)
async def test_neither_family_moves_to_a_range_that_cannot_serve_both(obstacle: str, space: str) -> None:
    """Both stay where they are, and both move once the obstacle is gone."""
    spec: dict[str, object] = {"iprange": ELSEWHERE}
    match obstacle:
        case "the range lacks a family":
            spec = {"iprange": "10.0.9.10-10.0.9.13"}
        case "a family is full":
            spec = {"iprange": "10.0.9.10-10.0.9.13,fd09::10"}
        case "the quota is one address":
            spec |= {"maxPerGuest": 1}
        case _:
            spec |= {"restrictToMatching": True}
    fleet = await holding_both()
    fleet.add_range("other", addressSpace=space, **spec)
    if obstacle == "a family is full":
        fleet.ask(B, "fd09::10", range_name="other")
    await fleet.settle()
    fleet.move(A, "other", ipaddress="")
    await fleet.pass_time(RETRY)
    version = fleet.memory.version
    await fleet.pass_time(600)
    assert fleet.commits_since(version) == []
    assert fleet.addresses(A) == [X, V6]
    assert fleet.status(A)["addressSpace"] == "default"
    assert owners_of(fleet, X, V6, "10.0.9.10") == [{A}, {A}, set()]
    assert fleet.condition(A)[0] == "False"
    assert fleet.guests[A].addresses == {X, V6}
    fleet.change_range("other", iprange=ELSEWHERE, maxPerGuest=None, restrictToMatching=False)
    await fleet.pass_time(RETRY)
    second = "fd09::11" if obstacle == "a family is full" else "fd09::10"
    assert fleet.addresses(A) == ["10.0.9.10", second]
    assert fleet.problems == []


async def test_a_family_that_is_only_preferred_is_not_given_up_for_a_move_while_the_range_has_that_family() -> (
    None
):
    fleet = await holding_both(ipFamilyPolicy="PreferDualStack")
    fleet.add_range("lab", "10.0.9.10-10.0.9.13,fd09::10", addressSpace="lab")
    fleet.ask(B, "fd09::10", range_name="lab")
    await fleet.settle()
    fleet.move(A, "lab", ipaddress="")
    await fleet.pass_time(RETRY)
    assert fleet.addresses(A) == [X, V6]
    assert owners_of(fleet, X, V6, "10.0.9.10") == [{A}, {A}, set()]
    fleet.change_range("lab", iprange=ELSEWHERE)
    await fleet.pass_time(RETRY)
    assert fleet.addresses(A) == ["10.0.9.10", "fd09::11"]
    assert fleet.problems == []


async def test_one_family_moves_though_a_second_one_that_is_only_preferred_is_not_available() -> None:
    fleet = await started(f"{X}-{Y}")
    fleet.add_range("lab", f"{X}-{Y}", addressSpace="lab")
    fleet.ask(A, range_name="range-0", ipFamilyPolicy="PreferDualStack")
    await fleet.settle()
    fleet.move(A, "lab", ipaddress="")
    await fleet.settle()
    assert fleet.held() == {f"lab.{X}": A}
    assert fleet.condition(A)[0] == "True"


@pytest.mark.parametrize("gap", [0, 31, 300])
async def test_a_floating_ip_that_names_both_families_gets_both_whenever_each_becomes_free(gap: int) -> None:
    """Until then it holds neither."""
    fleet = await started(BOTH)
    fleet.ask(A, X, range_name="range-0")
    fleet.ask(C, V6, range_name="range-0")
    await fleet.settle()
    fleet.ask(B, f"{X},{V6}", range_name="range-0", ipFamilyPolicy="RequireDualStack")
    await fleet.settle()
    fleet.give_up(A)
    await fleet.pass_time(gap)
    fleet.give_up(C)
    await fleet.pass_time(600 - RETRY)
    assert B not in fleet.held().values()
    await fleet.pass_time(AFTER_QUARANTINE)
    assert owners_of(fleet, X, V6) == [{B}, {B}]
    assert fleet.condition(B) == ("True", "Allocated")
    assert fleet.problems == []


async def test_both_families_come_back_to_a_floating_ip_that_is_created_again() -> None:
    fleet = await holding_both()
    fleet.give_up(A)
    await fleet.pass_time(60)
    assert fleet.held() == {}
    fleet.ask(B, range_name="range-0", ipFamilyPolicy="RequireDualStack")
    fleet.ask(A, range_name="range-0", ipFamilyPolicy="RequireDualStack")
    await fleet.settle()
    assert (fleet.addresses(A), fleet.addresses(B)) == ([X, V6], [Y, "fd00::11"])
    assert fleet.problems == []
