"""Address spaces: a range never changes its own, and who moves to another takes nothing that somebody carries along."""

import asyncio
from typing import Any

import pytest

from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IPS, Resource
from tests.harness.memory import Json
from tests.harness.small_operator import SmallOperator
from tests.harness.stored import condition

A, B, NEW = "c-m-a", "c-m-b", "c-m-new"
X, Y = "10.0.0.10", "10.0.0.11"
QUARANTINE = 600


def allocated(operator: SmallOperator, guest_id: str) -> Json:
    conditions = operator.memory.objects[FLOATING_IPS.plural, guest_id, "web"]["status"]["conditions"]
    found: Json = next(each for each in conditions if each["type"] == "Allocated")
    return found


async def made_again_in_another_space() -> SmallOperator:
    """A holds X; its range was deleted and made again in the space lab."""
    operator = SmallOperator()
    operator.add_range()
    await operator.start()
    operator.ask(A)
    await operator.settle()
    operator.memory.remove((FLOATING_IP_RANGES.plural, "", "pool"))
    await operator.settle()
    operator.add_range(addressSpace="lab")
    await operator.settle()
    return operator


async def test_a_range_made_again_in_another_space_gives_out_nothing_and_takes_nothing_away() -> None:
    """Both spaces may be one network: a second guest got X there while A's carried it."""
    operator = await made_again_in_another_space()
    operator.ask(NEW)
    operator.ask(B, X)
    await operator.settle()
    await operator.pass_time(2 * QUARANTINE)
    assert operator.held() == {f"default.{X}": A}
    assert operator.holders(X) == {A}
    for guest_id in (NEW, B):
        found = allocated(operator, guest_id)
        assert (found["status"], found["reason"]) == ("False", "AddressSpaceChanged")
        assert '"default"' in found["message"]
    assert allocated(operator, A)["reason"] == "AddressSpaceChanged"


async def test_it_gives_out_addresses_once_the_last_one_of_its_name_is_free() -> None:
    operator = await made_again_in_another_space()
    operator.ask(NEW)
    await operator.settle()
    operator.give_up(A)
    await operator.settle()
    await operator.pass_time(QUARANTINE - 1)
    assert operator.holders(X) == set()
    await operator.pass_time(2)
    assert operator.held() == {f"lab.{X}": NEW}


async def test_a_younger_range_reports_the_overlap_once_the_older_one_assigns_again() -> None:
    operator = await made_again_in_another_space()
    operator.add_range("younger", f"{Y}-10.0.0.20", addressSpace="lab")
    await operator.settle()
    younger = (FLOATING_IP_RANGES.plural, "", "younger")
    assert condition(operator.memory.objects[younger], "Conflict")[1] == "NoOverlap"
    operator.give_up(A)
    await operator.settle()
    await operator.pass_time(QUARANTINE + 10)
    assert condition(operator.memory.objects[younger], "Conflict")[1] == "Overlap"


async def test_what_a_guest_uses_of_a_range_that_can_be_read_again_is_kept_from_others() -> None:
    """It was asked while the range gave out nothing, so that no address of it was in danger."""
    operator = await made_again_in_another_space()
    operator.add_guest(B)
    operator.carried.services[B] = Y
    await operator.look_again()
    operator.ask(NEW, Y)
    operator.give_up(A)
    await operator.settle()
    await operator.pass_time(2 * QUARANTINE)
    assert operator.held() == {}


@pytest.mark.parametrize("how", ["fails", "is_slow"])
async def test_it_is_compared_with_what_guests_use_when_the_last_status_of_its_name_is_written(
    how: str,
) -> None:
    """The reservation left the range before the status did, and the range was compared while it assigned nothing."""
    operator = SmallOperator()
    operator.add_range(iprange=f"{X}-{Y}")
    operator.memory.pass_time(5)
    operator.add_range("other", f"{X}-{Y}")
    for guest_id in (A, B, NEW):
        operator.add_guest(guest_id)
    operator.carried.services[NEW] = "10.0.5.10"
    await operator.start()
    operator.ask(A)
    await operator.settle()
    operator.memory.remove((FLOATING_IP_RANGES.plural, "", "pool"))
    await operator.settle()
    operator.add_range(iprange="10.0.5.10-10.0.5.11", addressSpace="lab", clusterSelector={"matchLabels": {}})
    await operator.settle()
    patch = operator.client.merge_patch

    async def slow_patch(resource: Resource, *arguments: Any, **options: Any) -> Any:
        if resource == FLOATING_IPS and options.get("subresource") == "status":
            operator.client.merge_patch = patch  # type: ignore[method-assign]
            await asyncio.sleep(0)
            await operator.look_until(lambda: operator.manager.gate.looked)
        return await patch(resource, *arguments, **options)

    if how == "fails":
        operator.client.failures["patch"] = 1
    else:
        operator.client.merge_patch = slow_patch  # type: ignore[method-assign]
    operator.ask_for_range(A, "other")
    await operator.settle()
    await operator.pass_time(5)
    operator.ask(B, range_name="pool")
    await operator.settle()
    await operator.pass_time(60)
    assert operator.held() == {f"default.{X}": A, "lab.10.0.5.11": B}


async def test_who_held_an_address_goes_on_when_the_range_is_made_again_as_it_was() -> None:
    operator = await made_again_in_another_space()
    operator.memory.remove((FLOATING_IP_RANGES.plural, "", "pool"))
    operator.add_range()
    await operator.settle()
    assert allocated(operator, A)["status"] == "True"
    assert operator.held() == {f"default.{X}": A}


async def quarantined_in_the_old_space(operator: SmallOperator) -> None:
    """A moved to the new space with its address, which its guest carries; the old space's waits for its end."""
    operator.add_range(iprange=f"{X}-{X}")
    operator.add_guest(A)
    await operator.start()
    operator.ask(A)
    await operator.settle()
    operator.carried.services[A] = X
    operator.move_to_space(A, iprange=f"{X}-{X}")
    await operator.settle()
    assert operator.held() == {f"lab.{X}": A}
    assert operator.quarantined() == {f"default.{X}"}


async def test_an_address_that_its_guest_carries_for_the_new_space_is_freed_in_the_old_one() -> None:
    operator = SmallOperator()
    await quarantined_in_the_old_space(operator)
    await operator.pass_time(QUARANTINE + 1)
    assert operator.quarantined() == set()
    assert operator.held() == {f"lab.{X}": A}


async def test_of_two_spaces_in_quarantine_neither_ends_while_the_guest_carries_the_address() -> None:
    operator = SmallOperator()
    await quarantined_in_the_old_space(operator)
    operator.give_up(A)
    await operator.settle()
    await operator.pass_time(3 * QUARANTINE)
    assert operator.quarantined() == {f"default.{X}", f"lab.{X}"}
    operator.carried.services.clear()
    await operator.pass_time(QUARANTINE)
    assert operator.quarantined() == set()


async def test_a_hold_in_the_new_space_that_only_a_late_store_still_knows_frees_nothing_in_the_old_one() -> (
    None
):
    operator = SmallOperator()
    await quarantined_in_the_old_space(operator)
    operator.remove_unseen(f"lab.{X}")
    await operator.pass_time(QUARANTINE + 1)
    assert f"default.{X}" in operator.quarantined()


async def test_who_moves_to_another_space_takes_no_chosen_address_out_of_the_quarantine_of_another() -> None:
    """The other floating IP of the guest cluster may be made again; nobody asked for its address by name."""
    operator = SmallOperator()
    operator.add_range(iprange=f"{X}-{Y}")
    operator.add_range("away", f"{X}-{Y}", addressSpace="lab")
    operator.add_guest(A)
    await operator.start()
    operator.ask(A, name="other")
    await operator.settle()
    operator.give_up(A, name="other")
    await operator.settle()
    operator.ask(A, range_name="away")
    await operator.settle()
    assert operator.held() == {f"lab.{X}": A}
    operator.ask_for_range(A, "pool")
    await operator.settle()
    await operator.pass_time(60)
    assert operator.held() == {f"default.{Y}": A}
