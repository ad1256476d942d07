"""A spec that is emptied asks for any address of its range: what was asked for by name before binds nobody."""

from itertools import pairwise

import pytest

from fipop.api import names
from fipop.kube.resources import FLOATING_IPS
from tests.harness.history import Change
from tests.harness.small_operator import SmallOperator

A = "c-m-a"
X = "10.0.0.10"
ELSEWHERE = "10.7.0.10"
KEY = (FLOATING_IPS.plural, A, "web")


def send_to(operator: SmallOperator, range_name: str, ipaddress: str) -> None:
    found = operator.memory.objects[KEY]
    metadata = {**found["metadata"], "annotations": {names.ANNOTATION_RANGE: range_name}}
    operator.memory.put(KEY, {**found, "metadata": metadata, "spec": {"ipaddress": ipaddress}})


async def holding_by_name() -> SmallOperator:
    operator = SmallOperator()
    operator.add_range()
    operator.add_guest(A)
    await operator.start()
    operator.ask(A, X)
    await operator.settle()
    assert operator.holders(X) == {A}
    return operator


async def test_it_keeps_its_address_where_the_range_is_the_same() -> None:
    operator = await holding_by_name()
    operator.ask_for_another(A, "")
    await operator.settle()
    assert operator.holders(X) == {A}
    assert operator.asked_for(A) == X


async def test_it_moves_to_another_range_that_does_not_have_the_address() -> None:
    operator = await holding_by_name()
    operator.add_range("other", f"{ELSEWHERE}-{ELSEWHERE}")
    send_to(operator, "other", "")
    await operator.settle()
    assert operator.holders(ELSEWHERE) == {A}
    assert operator.asked_for(A) == ELSEWHERE


async def test_nor_is_the_wish_forgotten_while_the_other_range_is_missing() -> None:
    """The old address was written back, and looked as if somebody asked for it by name."""
    operator = await holding_by_name()
    send_to(operator, "other", "")
    await operator.settle()
    await operator.pass_time(60)
    assert operator.holders(X) == {A}
    assert operator.asked_for(A) == ""
    operator.add_range("other", f"{ELSEWHERE}-{ELSEWHERE}")
    await operator.settle()
    assert operator.holders(ELSEWHERE) == {A}


async def test_an_address_that_the_spec_still_names_is_not_changed_for_another() -> None:
    operator = await holding_by_name()
    operator.add_range("other", f"{ELSEWHERE}-{ELSEWHERE}")
    send_to(operator, "other", X)
    await operator.settle()
    assert operator.holders(X) == {A}
    assert operator.holders(ELSEWHERE) == set()


def allocated_message(operator: SmallOperator) -> str:
    conditions = operator.memory.objects[KEY]["status"]["conditions"]
    return next(str(each["message"]) for each in conditions if each["type"] == "Allocated")


async def test_what_failed_to_be_written_back_was_not_changed_back_by_anybody() -> None:
    operator = await holding_by_name()
    operator.ask_for_another(A, "")
    operator.client.failures["patch"] = 5
    await operator.settle()
    await operator.pass_time(60)
    assert operator.asked_for(A) == X
    assert "Another writer sets spec.ipaddress back" not in allocated_message(operator)


async def test_who_empties_it_again_and_again_is_not_fought_after_a_restart_either() -> None:
    """Beside another trouble, whose reason stands in the condition."""
    operator = SmallOperator()
    operator.add_range()
    await operator.start()
    operator.ask(A)
    await operator.settle()
    operator.change_range(iprange="nonsense")
    for _ in range(3):
        await operator.settle()
        assert "Another writer sets spec.ipaddress back" not in allocated_message(operator)
        operator.ask_for_another(A, "")
    await operator.settle()
    assert "nonsense" in allocated_message(operator)
    assert "Another writer sets spec.ipaddress back" in allocated_message(operator)
    again = SmallOperator(operator)
    await again.start()
    assert again.asked_for(A) == ""
    assert "Another writer sets spec.ipaddress back" in allocated_message(again)


async def test_one_that_is_deleted_and_made_again_at_once_was_emptied_by_nobody() -> None:
    """As Flux does with force, and Terraform with another name of the resource: no round sees it gone."""
    operator = SmallOperator()
    operator.add_range()
    await operator.start()
    operator.ask(A)
    for _ in range(5):
        await operator.settle()
        assert operator.asked_for(A) == X
        assert "Another writer sets spec.ipaddress back" not in allocated_message(operator)
        operator.memory.remove(KEY)
        operator.ask(A)


async def test_a_chosen_address_that_became_another_is_named_though_the_other_family_waits() -> None:
    """The spec went on naming the former one, which stayed held for its sake and for good."""
    operator = SmallOperator()
    operator.add_range(iprange="10.0.0.10-10.0.0.13,fd00::10-fd00::13")
    operator.add_range("other", "10.7.0.10-10.7.0.13,fd07::10-fd07::13")
    await operator.start()
    operator.ask(A, X)
    operator.change(FLOATING_IPS, A, "web", {"ipFamilyPolicy": "PreferDualStack"})
    await operator.settle()
    assert operator.asked_for(A) == f"{X},fd00::10"
    operator.ask_for_range(A, "other")
    await operator.settle()
    await operator.pass_time(3600)
    assert operator.asked_for(A) == f"{X},fd07::10"
    assert operator.held() == {f"default.{X}": A, "default.fd070000000000000000000000000010": A}
    operator.ask_for_another(A, f"{ELSEWHERE},fd07::10")
    await operator.settle()
    assert operator.held() == {f"default.{ELSEWHERE}": A, "default.fd070000000000000000000000000010": A}


async def test_who_insists_on_what_was_chosen_before_is_not_fought_while_another_wish_is_open() -> None:
    """The open wish made it look like no write-back, and so there was no end to it."""
    operator = SmallOperator()
    operator.add_range(iprange="10.0.0.10-10.0.0.13,fd00::10-fd00::13")
    operator.add_range("other", "10.7.0.10-10.7.0.13,fd07::10-fd07::13")
    await operator.start()
    operator.ask(A)
    operator.change(FLOATING_IPS, A, "web", {"ipFamilyPolicy": "PreferDualStack"})
    await operator.settle()
    theirs = f"{X},fd00::99"
    operator.ask_for_another(A, theirs)
    await operator.settle()
    changed_back = 0

    def change_back(_: str) -> None:
        nonlocal changed_back
        named = operator.memory.objects[KEY]["status"]["addresses"]
        if ELSEWHERE in named and operator.asked_for(A) != theirs and changed_back < 100:
            changed_back += 1
            operator.ask_for_another(A, theirs)

    operator.client.on_commit = change_back
    operator.ask_for_range(A, "other")
    await operator.settle()
    await operator.pass_time(3600)
    assert changed_back == 1
    assert operator.asked_for(A) == theirs


@pytest.mark.parametrize("policy", ["PreferDualStack", "RequireDualStack"])
@pytest.mark.parametrize("when", ["at once", "at rest"])
@pytest.mark.parametrize("theirs", [X, "fd00::10", ""])
async def test_a_tool_that_insists_on_one_of_two_families_is_not_fought(
    policy: str, when: str, theirs: str
) -> None:
    """Git holds one address, fipop writes both, and the tool reverts that: every revert was answered."""
    operator = SmallOperator()
    operator.add_range(iprange="10.0.0.10-10.0.0.13,fd00::10-fd00::13")
    operator.add_guest(A)
    await operator.start()
    written: list[str] = []
    reverted = 0

    def watch(change: Change) -> None:
        if change.key == KEY and change.obj is not None:
            written.append(change.obj["spec"]["ipaddress"])

    def revert(_: str = "") -> None:
        nonlocal reverted
        if reverted < 200 and KEY in operator.memory.objects and operator.asked_for(A) != theirs:
            reverted += 1
            operator.ask_for_another(A, theirs)

    operator.memory.listeners.append(watch)
    if when == "at once":
        operator.client.on_commit = revert
    operator.ask(A, theirs, ipFamilyPolicy=policy)
    await operator.settle()
    for _ in range(200):
        revert()
        await operator.settle()
        await operator.pass_time(60)
    both = f"{X},fd00::10"
    assert sum(each == both != last for last, each in pairwise(written)) <= 3
    assert operator.asked_for(A) == theirs
    status = operator.memory.objects[KEY]["status"]
    assert status["addresses"] == [X, "fd00::10"]
    assert "SpecReverted" in {each["reason"] for each in status["conditions"] if each["type"] == "Allocated"}
    operator.client.on_commit = None
    operator.ask_for_another(A, "10.0.0.12")
    await operator.settle()
    assert operator.asked_for(A) == "10.0.0.12,fd00::10", "another wish is followed as ever"
