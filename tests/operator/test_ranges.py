"""The rule "range": which range serves a floating IP, and that edits and deletions of ranges move no address."""

import pytest

from tests.harness.fleet import EVERY_GUEST, Fleet
from tests.harness.history import RANGES
from tests.harness.stored import condition

A, B, C = "c-m-a", "c-m-b", "c-m-c"
BLUE = {"matchLabels": {"net": "blue"}}
X, Y = "10.0.0.10", "10.0.0.11"
RETRY = 65
AFTER_QUARANTINE = 1200


async def started(**ranges: dict[str, object]) -> Fleet:
    """Have ranges with these specs, the oldest first, and three guest clusters of which B has the label net=blue."""
    fleet = Fleet()
    for name, spec in ranges.items():
        fleet.add_range(name, **spec)
        await fleet.pass_time(10)
    for guest_id in (A, B, C):
        fleet.add_guest(guest_id, labels={"net": "blue"} if guest_id == B else None)
    await fleet.start(leader_election=False)
    return fleet


async def holding(range_name: str = "first", ipaddress: str = "", **spec: object) -> Fleet:
    """Have A hold X of the range "first", while "second" matches it as well; B holds the second address."""
    fleet = await started(
        first={"iprange": "10.0.0.10-10.0.0.13", "clusterSelector": EVERY_GUEST, **spec},
        second={"iprange": "10.2.0.10-10.2.0.13", "clusterSelector": EVERY_GUEST},
    )
    fleet.ask(A, ipaddress, range_name=range_name)
    await fleet.settle()
    fleet.ask(B, range_name=range_name)
    await fleet.settle()
    assert (fleet.addresses(A), fleet.addresses(B)) == ([X], [Y])
    return fleet


def counted(fleet: Fleet, name: str) -> tuple[int, int]:
    """Total and free addresses of a range, by its status."""
    capacity = fleet.memory.objects[RANGES, "", name]["status"]["capacity"]
    return capacity["total"], capacity["free"]


def range_condition(fleet: Fleet, name: str, kind: str) -> tuple[str, str]:
    return condition(fleet.memory.objects[RANGES, "", name], kind)


# Selection


async def test_a_range_that_the_annotation_names_serves_though_another_matches() -> None:
    fleet = await started(
        first={"iprange": X, "clusterSelector": EVERY_GUEST},
        named={"iprange": "10.2.0.10", "clusterSelector": BLUE},
    )
    fleet.ask(A, range_name="named")
    await fleet.settle()
    assert fleet.addresses(A) == ["10.2.0.10"]


async def test_an_address_that_the_spec_names_selects_its_range() -> None:
    fleet = await started(
        first={"iprange": X, "clusterSelector": EVERY_GUEST},
        second={"iprange": "10.2.0.10-10.2.0.12", "clusterSelector": EVERY_GUEST},
    )
    fleet.ask(A, "10.2.0.12", range_name="")
    await fleet.settle()
    assert (fleet.addresses(A), fleet.status(A)["range"]) == (["10.2.0.12"], "second")


async def test_a_range_serves_the_guest_clusters_that_its_selector_matches() -> None:
    fleet = await started(
        blue={"iprange": X, "clusterSelector": BLUE},
        rest={"iprange": "10.2.0.10", "clusterSelector": EVERY_GUEST},
    )
    fleet.ask(A, range_name="")
    fleet.ask(B, range_name="")
    await fleet.settle()
    assert (fleet.addresses(A), fleet.addresses(B)) == (["10.2.0.10"], [X])


@pytest.mark.parametrize(
    ("obstacle", "reason"),
    [
        ({"iprange": "10.0.0.11-10.0.0.10"}, "RangeInvalid"),
        ({"draining": True}, "RangeDraining"),
        ({"exclude": ["10.0.0.0/24"]}, ""),
    ],
    ids=["cannot be read", "drains", "has no free address"],
)
async def test_a_floating_ip_that_the_first_matching_range_cannot_serve_gets_an_address_of_the_next(
    obstacle: dict[str, object], reason: str
) -> None:
    fleet = await started(first={"iprange": f"{X}-{Y}", "clusterSelector": EVERY_GUEST, **obstacle})
    fleet.ask(A, range_name="")
    await fleet.settle()
    status, found = fleet.condition(A)
    assert status == "False"
    if reason == "RangeInvalid":
        assert found == reason
        assert range_condition(fleet, "first", "Ready") == ("False", "Invalid")
    fleet.add_range("second", "10.2.0.10", clusterSelector=EVERY_GUEST)
    await fleet.pass_time(RETRY)
    assert fleet.addresses(A) == ["10.2.0.10"]


async def test_a_floating_ip_without_a_matching_range_waits_for_one() -> None:
    fleet = await started(blue={"iprange": X, "clusterSelector": BLUE})
    fleet.ask(A, range_name="")
    fleet.ask(C, range_name="late")
    fleet.ask(C, name="typo", range_name="bleu")
    await fleet.settle()
    assert fleet.condition(A)[0] == "False"
    assert fleet.condition(C) == fleet.condition(C, name="typo") == ("False", "RangeNotFound")
    assert 'Range "bleu" does not exist (did you mean "blue"?).' in fleet.message(C, name="typo")
    fleet.give_up(C, "typo")
    fleet.label_guest(A, net="blue")
    fleet.add_range("late", "10.2.0.10")
    await fleet.settle()
    await fleet.pass_time(RETRY)
    assert (fleet.addresses(A), fleet.addresses(C)) == ([X], ["10.2.0.10"])


@pytest.mark.parametrize("former", ["is at rest", "was created again"])
async def test_a_restart_changes_no_range_and_no_address(former: str) -> None:
    """The address belongs to a range that matches, but would not be the first choice."""
    fleet = await started(second={"iprange": "10.2.0.10-10.2.0.13", "clusterSelector": EVERY_GUEST})
    fleet.ask(A, range_name="")
    await fleet.settle()
    fleet.add_range("first", f"{X}-{Y}", clusterSelector=BLUE)
    fleet.label_guest(A, net="blue")
    await fleet.pass_time(RETRY)
    if former == "was created again":
        fleet.replace(A)
    version = fleet.memory.version
    await fleet.restart(leader_election=False)
    await fleet.pass_time(RETRY)
    assert fleet.addresses(A) == ["10.2.0.10"]
    assert former == "was created again" or not fleet.commits_since(version)


# Edits


@pytest.mark.parametrize(
    "edit",
    [
        {"iprange": "10.0.0.12-10.0.0.13"},
        {"exclude": [X, Y]},
        {"iprange": "10.0.0.13-10.0.0.12"},
        {"draining": True},
        {"clusterSelector": {"matchLabels": {"net": "red"}}, "restrictToMatching": True},
        {"allowedClusters": ["another"]},
        {"allowedWorkspaces": ["another"]},
        {"skipEndIPs": True},
    ],
    ids=lambda edit: ",".join(edit),
)
@pytest.mark.parametrize("range_name", ["first", ""], ids=["named", "selected"])
async def test_an_edit_of_a_range_moves_no_address(edit: dict[str, object], range_name: str) -> None:
    fleet = await holding(range_name)
    fleet.change_range("first", **edit)
    await fleet.settle()
    await fleet.pass_time(RETRY)
    await fleet.restart(leader_election=False)
    await fleet.pass_time(RETRY)
    assert (fleet.addresses(A), fleet.addresses(B)) == ([X], [Y])
    assert fleet.held() == {f"default.{X}": A, f"default.{Y}": B}
    assert fleet.guests[A].addresses == {X}
    assert fleet.problems == []


async def test_new_addresses_follow_an_edit_of_the_range() -> None:
    fleet = await holding()
    fleet.change_range("first", iprange="10.0.0.10-10.0.0.20", exclude=["10.0.0.12/30"])
    await fleet.settle()
    fleet.ask(C, range_name="first")
    await fleet.settle()
    assert fleet.addresses(C) == ["10.0.0.16"]
    await fleet.pass_time(RETRY)
    assert counted(fleet, "first") == (7, 4)


async def test_a_draining_range_assigns_nothing_and_lets_its_addresses_go() -> None:
    fleet = await holding()
    fleet.change_range("first", draining=True)
    fleet.ask(C, range_name="first")
    await fleet.settle()
    assert fleet.condition(C) == ("False", "RangeDraining")
    fleet.move(A, "second", ipaddress="")
    await fleet.settle()
    assert fleet.addresses(A) == ["10.2.0.10"]
    fleet.change_range("first", draining=False)
    await fleet.settle()
    assert fleet.addresses(C) == ["10.0.0.12"]
    assert fleet.problems == []


# Moves to another range


async def test_a_floating_ip_that_is_sent_to_another_range_gets_an_address_there() -> None:
    fleet = await holding()
    fleet.ask_for_range(A, "second")
    await fleet.settle()
    assert (fleet.addresses(A), fleet.status(A)["range"]) == (["10.2.0.10"], "second")
    assert fleet.quarantined() == {f"default.{X}"}
    assert fleet.problems == []


async def test_an_emptied_spec_moves_to_another_range_as_soon_as_that_exists() -> None:
    fleet = await holding(ipaddress=X)
    fleet.move(A, "late", ipaddress="")
    await fleet.settle()
    await fleet.pass_time(RETRY)
    assert (fleet.addresses(A), fleet.condition(A)) == ([X], ("False", "RangeNotFound"))
    fleet.add_range("late", "10.7.0.10")
    await fleet.settle()
    assert fleet.addresses(A) == ["10.7.0.10"]
    assert fleet.problems == []


async def test_an_address_that_an_owner_asked_for_by_name_is_not_exchanged_by_a_move() -> None:
    """The other range does not have it, and the spec still names it."""
    fleet = await holding(ipaddress=X)
    fleet.ask_for_range(A, "second")
    await fleet.settle()
    await fleet.pass_time(RETRY)
    assert (fleet.addresses(A), fleet.condition(A)) == ([X], ("False", "AddressOutOfRange"))
    fleet.change(A, ipaddress="")
    await fleet.settle()
    assert fleet.addresses(A) == ["10.2.0.10"]


# Deletions


@pytest.mark.parametrize("range_name", ["first", ""], ids=["named", "selected"])
@pytest.mark.parametrize("ipaddress", ["", X], ids=["dynamic", "static"])
@pytest.mark.parametrize("reservation", ["stays", "is deleted"])
async def test_a_floating_ip_keeps_its_address_while_its_range_is_deleted(
    range_name: str, ipaddress: str, reservation: str
) -> None:
    fleet = await holding(range_name, ipaddress)
    fleet.remove_range("first")
    if reservation == "is deleted":
        fleet.remove_reservation(f"default.{X}")
    await fleet.settle()
    await fleet.pass_time(RETRY)
    assert (fleet.addresses(A), fleet.condition(A)) == ([X], ("False", "RangeNotFound"))
    assert fleet.guests[A].addresses == {X}
    assert fleet.held() == {f"default.{X}": A, f"default.{Y}": B}
    fleet.add_range("first", f"{X}-10.0.0.13", clusterSelector=EVERY_GUEST)
    await fleet.settle()
    assert (fleet.addresses(A), fleet.condition(A)) == ([X], ("True", "Allocated"))
    assert fleet.quarantined() == set()
    assert fleet.problems == []


async def test_a_floating_ip_whose_range_is_deleted_moves_once_its_owner_names_another() -> None:
    fleet = await holding("")
    fleet.remove_range("first")
    await fleet.settle()
    fleet.ask_for_range(A, "second")
    await fleet.settle()
    assert fleet.addresses(A) == ["10.2.0.10"]
    assert fleet.held()["default.10.2.0.10"] == A


async def test_nothing_new_is_assigned_from_a_range_that_is_deleted() -> None:
    fleet = await holding()
    fleet.remove_range("first")
    fleet.ask(C, range_name="first")
    await fleet.settle()
    assert fleet.condition(C) == ("False", "RangeNotFound")
    fleet.change(A, ipaddress="10.0.0.13")
    await fleet.settle()
    assert fleet.addresses(A) == [X]


async def test_an_address_whose_range_the_status_does_not_name_belongs_to_the_range_that_has_it() -> None:
    fleet = Fleet()
    fleet.add_range("second", "10.2.0.10-10.2.0.13", clusterSelector=EVERY_GUEST)
    fleet.add_guest(A)
    fleet.ask(A, range_name="", has="10.2.0.12")
    status = {"addresses": ["10.2.0.12"], "addressSpace": "default", "observedGeneration": 1}
    fleet.memory.put(("floatingips", A, "web"), {**fleet.floating_ip(A), "status": status})
    await fleet.start(leader_election=False)
    await fleet.pass_time(RETRY)
    assert (fleet.addresses(A), fleet.condition(A)) == (["10.2.0.12"], ("True", "Allocated"))
    assert fleet.held() == {"default.10.2.0.12": A}


# Overlap and address spaces


async def test_an_address_in_two_ranges_has_one_owner_and_counts_in_the_older_range() -> None:
    fleet = await started(first={"iprange": f"{X}-{Y}"}, second={"iprange": f"{X}-10.0.0.12"})
    await fleet.pass_time(RETRY)
    assert range_condition(fleet, "second", "Conflict")[0] == "True"
    assert range_condition(fleet, "first", "Conflict")[0] == "False"
    assert (counted(fleet, "first"), counted(fleet, "second")) == ((2, 2), (1, 1))
    fleet.ask(A, range_name="first")
    fleet.ask(B, range_name="second")
    await fleet.settle()
    assert (fleet.addresses(A), fleet.addresses(B)) == ([X], ["10.0.0.12"])
    assert fleet.problems == []


async def test_a_range_that_replaces_another_of_the_same_addresses_assigns_them_once_they_are_free() -> None:
    fleet = await started(first={"iprange": X})
    fleet.ask(A, range_name="first")
    await fleet.settle()
    fleet.add_range("second", X)
    fleet.ask(B, range_name="second")
    await fleet.settle()
    fleet.remove_range("first")
    await fleet.pass_time(RETRY)
    assert (fleet.holders(X), fleet.addresses(B)) == ({A}, [])
    fleet.give_up(A)
    await fleet.pass_time(AFTER_QUARANTINE)
    assert fleet.holders(X) == {B}
    assert counted(fleet, "second") == (1, 0)
    assert fleet.problems == []


async def test_an_address_is_assigned_once_in_each_address_space() -> None:
    fleet = await started(first={"iprange": X}, lab={"iprange": X, "addressSpace": "lab"})
    fleet.ask(A, range_name="first")
    fleet.ask(B, range_name="lab")
    await fleet.settle()
    assert fleet.held() == {f"default.{X}": A, f"lab.{X}": B}
    assert fleet.guests[A].addresses == fleet.guests[B].addresses == {X}
    assert fleet.problems == []


async def test_a_move_to_another_address_space_takes_the_same_address_if_it_is_free_there_and_else_another() -> (
    None
):
    fleet = await holding()
    fleet.move_to_space(A, iprange=f"{X}-10.0.0.12")
    await fleet.settle()
    assert fleet.held() == {f"lab.{X}": A, f"default.{Y}": B}
    fleet.ask(C, Y, range_name="lab")
    await fleet.settle()
    fleet.ask_for_range(B, "lab")
    await fleet.settle()
    assert fleet.held() == {f"lab.{X}": A, f"lab.{Y}": C, "lab.10.0.0.12": B}
    assert fleet.quarantined() == {f"default.{X}", f"default.{Y}"}
    assert fleet.problems == []
