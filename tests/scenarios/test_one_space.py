"""All addresses of a floating IP are of one address space: its status names but one."""

from collections.abc import Callable

import pytest

from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IP_RESERVATIONS, FLOATING_IPS
from tests.harness.memory import Json
from tests.harness.small_operator import SmallOperator

A, B = "c-m-a", "c-m-b"
X, Y = "10.0.0.10", "10.0.0.11"
V6 = "fd00::10"
BOTH = f"{X}-10.0.0.13,{V6}-fd00::13"
HOUR = 3600


KEY = (FLOATING_IPS.plural, A, "web")


def hold_again(operator: SmallOperator, name: str) -> None:
    """Have what a move left held still, as where it was cut short right before."""
    key = (FLOATING_IP_RESERVATIONS.plural, "", name)
    left = operator.memory.objects[key]
    spec = {name: value for name, value in left["spec"].items() if name != "quarantinedUntil"}
    operator.memory.put(key, {**left, "spec": spec})


def status_of(operator: SmallOperator, guest_id: str = A) -> Json:
    status: Json = operator.memory.objects[FLOATING_IPS.plural, guest_id, "web"]["status"]
    return status


def named(operator: SmallOperator, guest_id: str = A) -> tuple[str, list[str]]:
    """The space and the addresses that a status names."""
    status = status_of(operator, guest_id)
    return status["addressSpace"], status["addresses"]


def in_space(space: str, *addresses: str) -> dict[str, str]:
    """The reservations that A is to hold."""
    keys = {X: X, Y: Y, V6: "fd000000000000000000000000000010"}
    return {f"{space}.{keys[address]}": A for address in addresses}


async def started(iprange: str = BOTH, **spec: object) -> SmallOperator:
    """A's floating IP has this spec, and all that it asks for."""
    operator = SmallOperator()
    operator.add_range(iprange=iprange)
    await operator.start()
    operator.ask(A)
    operator.change(FLOATING_IPS, A, "web", dict(spec))
    await operator.settle()
    return operator


@pytest.mark.parametrize("policy", ["PreferDualStack", "RequireDualStack"])
async def test_both_families_stay_where_one_is_not_to_be_had_in_the_new_space(policy: str) -> None:
    """The other one went alone: the status then named both in the new space, where nobody held the first."""
    operator = await started(ipFamilyPolicy=policy)
    assert named(operator) == ("default", [X, V6])
    operator.move_to_space(A, iprange=f"{X}-10.0.0.13")
    await operator.settle()
    await operator.pass_time(HOUR)
    assert named(operator) == ("default", [X, V6])
    assert operator.held() == in_space("default", X, V6)
    allocated = next(each for each in status_of(operator)["conditions"] if each["type"] == "Allocated")
    assert allocated["status"] == "False", "people should know that it did not follow its range"
    operator.change_range("lab", iprange=BOTH)
    await operator.settle()
    await operator.pass_time(HOUR)
    assert named(operator) == ("lab", [X, V6])
    assert operator.held() == in_space("lab", X, V6)


async def test_a_second_family_comes_after_the_move_and_not_into_another_space() -> None:
    operator = await started()
    operator.ask_for_another(A, "10.0.0.99")
    await operator.settle()
    operator.move_to_space(A, iprange=BOTH)
    operator.change(FLOATING_IPS, A, "web", {"ipFamilyPolicy": "PreferDualStack"})
    await operator.settle()
    await operator.pass_time(HOUR)
    assert named(operator) == ("default", [X])
    assert operator.held() == in_space("default", X)
    operator.ask_for_another(A, X)
    await operator.settle()
    await operator.pass_time(HOUR)
    assert named(operator) == ("lab", [X, V6])
    assert operator.held() == in_space("lab", X, V6)


async def test_one_family_moves_though_a_second_one_that_is_only_preferred_is_not_to_be_had() -> None:
    operator = await started(f"{X}-10.0.0.13", ipFamilyPolicy="PreferDualStack")
    operator.move_to_space(A, iprange=f"{X}-10.0.0.13")
    await operator.settle()
    await operator.pass_time(HOUR)
    assert named(operator) == ("lab", [X])
    assert operator.held() == in_space("lab", X)


def spoil_the_wish(operator: SmallOperator) -> None:
    operator.change(FLOATING_IPS, A, "web", {"ipaddress": f"{X},{V6}", "ipFamilyPolicy": "SingleStack"})


def take_the_range_away(operator: SmallOperator) -> None:
    operator.memory.remove((FLOATING_IP_RANGES.plural, "", "lab"))


def ask_for_what_another_has(operator: SmallOperator) -> None:
    operator.change(FLOATING_IPS, A, "web", {"ipaddress": Y, "ipFamilyPolicy": "RequireDualStack"})


@pytest.mark.parametrize("spoil", [spoil_the_wish, take_the_range_away, ask_for_what_another_has])
async def test_who_has_moved_stays_in_the_new_space_while_the_old_reservation_is_not_given_back_yet(
    spoil: Callable[[SmallOperator], None],
) -> None:
    """The oldest of two was taken for the one that is known: the same address of the space that was left."""
    operator = await started()
    operator.ask(B, Y)
    operator.move_to_space(A, B, iprange=BOTH)
    await operator.settle()
    assert named(operator) == ("lab", [X])
    hold_again(operator, f"default.{X}")
    spoil(operator)
    spaces: set[str] = set()
    operator.memory.listeners.append(lambda _: spaces.add(status_of(operator)["addressSpace"]))
    await operator.settle()
    await operator.pass_time(HOUR)
    assert spaces == {"lab"}
    assert named(operator) == ("lab", [X])
    assert operator.held() == {**in_space("lab", X), f"lab.{Y}": B}


async def test_what_was_begun_for_both_and_another_operator_relies_on_is_decided_anew() -> None:
    """It was taken for held, beside the other family in the space that was to be left."""
    operator = await started(ipFamilyPolicy="RequireDualStack")
    operator.move_to_space(A, iprange=BOTH)
    first = operator.pending.keys.copy()
    assert first, "the round is still to come"
    operator.reserve("10.0.0.12", B)  # has nothing to do with it
    taken_by_others = iter([V6])

    def interfere(verb: str) -> None:
        """As soon as the first of two is reserved another operator writes it anew, and somebody gets the second."""
        reserved = operator.memory.objects.get((FLOATING_IP_RESERVATIONS.plural, "", f"lab.{X}"))
        if verb == "create" and reserved is not None and next(taken_by_others, None):
            key = (FLOATING_IP_RESERVATIONS.plural, "", "lab.fd000000000000000000000000000010")
            owner = {"namespace": B, "name": "web", "uid": "b", "cluster": ""}
            operator.deaf = True
            spec = {**reserved["spec"], "address": "fd00:0000:0000:0000:0000:0000:0000:0010", "owner": owner}
            operator.memory.put(key, {"metadata": {"name": key[2]}, "spec": spec})
            operator.deaf = False
            operator.memory.put((FLOATING_IP_RESERVATIONS.plural, "", f"lab.{X}"), reserved)

    operator.client.on_commit = interfere
    operator.change_range("lab", iprange=f"{X}-10.0.0.13,{V6}-{V6}")
    spaces: set[tuple[str, int]] = set()

    def look(_: object) -> None:
        space, addresses = named(operator)
        spaces.add((space, len(addresses)))
        held = operator.held()
        keys = {X: X, V6: "fd000000000000000000000000000010"}
        assert all(held.get(f"{space}.{keys[each]}") == A for each in addresses)

    operator.memory.listeners.append(look)
    await operator.settle()
    assert spaces == {("default", 2)}
    assert named(operator) == ("default", [X, V6])


async def test_what_was_begun_in_two_spaces_is_named_in_one() -> None:
    """Two operators began it, one of which had not heard of the move; then what was wished for was taken."""
    operator = SmallOperator()
    operator.add_range(iprange=BOTH)
    await operator.start()
    operator.ask(B, Y)
    operator.move_to_space(B, iprange=BOTH)
    await operator.settle()
    await operator.pass_time(HOUR)
    operator.ask(A, Y)
    operator.ask_for_range(A, "lab")
    operator.change(FLOATING_IPS, A, "web", {"ipFamilyPolicy": "PreferDualStack"})
    for address, space, name in ((X, "default", "pool"), (X, "lab", "lab"), (V6, "default", "pool")):
        operator.reserve(address, A, space=space, range_name=name)
    named_so: list[tuple[str, list[str]]] = []

    def look(_: object) -> None:
        if operator.memory.objects[FLOATING_IPS.plural, A, "web"].get("status"):
            named_so.append(named(operator))

    operator.memory.listeners.append(look)
    await operator.settle()
    await operator.pass_time(HOUR)
    assert ("lab", [X]) in named_so
    assert {space for space, _ in named_so} == {"lab"}
    assert named(operator) == ("lab", [X, V6])
    assert operator.held() == {**in_space("lab", X, V6), f"lab.{Y}": B}


async def moved_as_another_gets_its_address() -> SmallOperator:
    """B gets X in the new space before A's operator hears of it."""
    operator = await started()
    operator.move_to_space(A, iprange=BOTH)
    operator.ask(B, X)
    operator.ask_for_range(B, "lab")
    operator.deaf = True
    operator.reserve(X, B, space="lab", range_name="lab")
    operator.deaf = False
    await operator.settle()
    return operator


async def test_a_chosen_address_that_another_gets_in_the_new_space_just_then_is_changed_for_a_new_one() -> (
    None
):
    """Its owner waited for it though any other would have done."""
    operator = await moved_as_another_gets_its_address()
    await operator.pass_time(HOUR)
    assert operator.held() == {f"lab.{X}": B, f"lab.{Y}": A}


@pytest.mark.parametrize("wish", [f"{X},fd00::99", "fd00::99"])
async def test_a_wish_for_the_second_family_outlives_the_move(wish: str) -> None:
    """Nothing stood in its way while it was put off, so it was written over with what was held."""
    operator = await started()
    operator.change(FLOATING_IPS, A, "web", {"ipaddress": wish, "ipFamilyPolicy": "PreferDualStack"})
    await operator.settle()
    operator.move_to_space(A, iprange=BOTH)
    await operator.settle()
    await operator.pass_time(HOUR)
    assert operator.asked_for(A) == wish


async def test_a_wish_for_the_address_that_was_left_is_told_that_another_has_it() -> None:
    """It was written over as long as the old reservation was held: a move that was cut short, it seemed."""
    operator = await moved_as_another_gets_its_address()
    assert named(operator) == ("lab", [Y])
    hold_again(operator, f"default.{X}")
    operator.ask_for_another(A, X)
    await operator.settle()
    await operator.pass_time(HOUR)
    assert operator.asked_for(A) == X
    assert operator.held() == {f"lab.{X}": B, f"lab.{Y}": A}


@pytest.mark.parametrize("policy", ["PreferDualStack", "RequireDualStack"])
async def test_who_is_made_again_without_a_status_keeps_both_families_where_they_cannot_move(
    policy: str,
) -> None:
    """The guest carries both; what no status named and no range gave out was taken for begun, and given back."""
    operator = await started(ipFamilyPolicy=policy)
    operator.move_to_space(A, iprange=BOTH, draining=True)
    await operator.settle()
    await operator.pass_time(HOUR)
    assert operator.held() == in_space("default", X, V6)
    found = operator.memory.objects[KEY]
    operator.deaf = True
    operator.memory.remove(KEY)
    operator.deaf = False
    metadata = {name: found["metadata"][name] for name in ("name", "namespace", "annotations")}
    operator.memory.put(KEY, {"metadata": metadata, "spec": found["spec"]})
    await operator.settle()
    await operator.pass_time(HOUR)
    assert operator.held() == in_space("default", X, V6)
    assert named(operator) == ("default", [X, V6])


async def test_what_was_begun_in_two_spaces_of_which_neither_is_known_is_named_in_one() -> None:
    operator = SmallOperator()
    await operator.start()
    operator.ask(A)
    operator.change(FLOATING_IPS, A, "web", {"ipFamilyPolicy": "RequireDualStack"})
    for address, space in ((X, "blue"), (V6, "lab")):
        operator.reserve(address, A, space=space)
    await operator.settle()
    await operator.pass_time(HOUR)
    assert named(operator) == ("blue", [X])
    assert operator.held() == in_space("blue", X)
