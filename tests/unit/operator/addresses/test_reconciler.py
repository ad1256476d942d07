"""That steps are taken, one after the other, and what becomes of their answers."""

import pytest

from fipop.errors import ApiServerError
from fipop.kube.resources import FLOATING_IP_RESERVATIONS, FLOATING_IPS
from fipop.operator.addresses.next_step import ReadAgain
from fipop.operator.addresses.reconciler import ContendedError
from fipop.operator.queues import Kind
from tests.harness.small_operator import SmallOperator

A, B = "c-m-a", "c-m-b"
KEY = (A, "web")


async def leading(**spec: object) -> SmallOperator:
    operator = SmallOperator()
    operator.add_range(**spec)  # type: ignore[arg-type]
    await operator.start()
    return operator


async def test_candidates_that_others_took_meanwhile_are_passed_over() -> None:
    operator = await leading()
    operator.deaf = True
    for address in ("10.0.0.10", "10.0.0.11"):
        operator.reserve(address, B)
    operator.deaf = False
    operator.ask(A)
    await operator.settle()
    assert operator.holders("10.0.0.12") == {A}


async def test_what_a_round_wrote_itself_needs_no_round_of_its_own() -> None:
    operator = await leading()
    operator.ask(A)
    operator.pending.keys.clear()
    await operator.manager.floating_ips.reconcile(KEY)
    assert operator.holders("10.0.0.10") == {A}
    assert [key for key in operator.pending.keys if key.kind is Kind.FLOATING_IP] == []


async def test_a_claim_that_the_api_server_denied_is_told_and_not_asked_for_again_in_the_round() -> None:
    operator = await leading()
    operator.deaf = True
    operator.reserve("10.0.0.11", B)
    operator.deaf = False
    operator.ask(A, "10.0.0.11")
    gets: list[str] = []
    get = operator.client.get

    async def count(resource: object, name: str, **where: object) -> object:
        gets.append(name)
        return await get(resource, name, **where)  # type: ignore[arg-type]

    operator.client.get = count  # type: ignore[method-assign, assignment]
    await operator.manager.floating_ips.reconcile(KEY)
    status = operator.memory.objects[FLOATING_IPS.plural, A, "web"]["status"]
    assert [each["reason"] for each in status["conditions"] if each["type"] == "Allocated"] == [
        "AddressInUse"
    ]
    assert gets == ["default.10.0.0.11"], "to learn who has it"


async def test_a_claim_whose_outcome_is_unknown_stays_open_and_one_that_failed_does_not() -> None:
    operator = await leading()
    operator.ask(A)
    operator.client.failures["create"] = 1
    with pytest.raises(ApiServerError):
        await operator.manager.floating_ips.reconcile(KEY)
    assert operator.cache.allocations.claimants() == {KEY}, "a server that fails may have done it"


async def test_an_open_claim_of_a_wish_that_is_no_more_keeps_no_address_from_others() -> None:
    operator = await leading(iprange="10.0.0.10-10.0.0.11")
    operator.ask(A)
    operator.client.failures["create"] = 1
    with pytest.raises(ApiServerError):
        await operator.manager.floating_ips.reconcile(KEY)
    operator.ask_for_another(A, "10.0.0.99")
    await operator.manager.floating_ips.reconcile(KEY)
    assert operator.cache.allocations.claimants() == frozenset()


async def test_a_status_is_written_only_to_the_object_that_was_decided_on() -> None:
    """People changed it, and the event is on its way: the round decides again."""
    operator = await leading()
    operator.ask(A, "10.0.0.11")
    operator.deaf = True
    operator.ask_for_another(A, "10.0.0.12")
    operator.deaf = False
    await operator.manager.floating_ips.reconcile(KEY)
    assert "status" not in operator.memory.objects[FLOATING_IPS.plural, A, "web"]
    await operator.manager.floating_ips.reconcile(KEY)
    status = operator.memory.objects[FLOATING_IPS.plural, A, "web"]["status"]
    assert status["addresses"] == ["10.0.0.12"]


async def test_a_round_that_does_not_come_to_an_end_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = await leading()
    operator.ask(A)
    monkeypatch.setattr("fipop.operator.addresses.reconciler.next_step", lambda *_: ReadAgain())
    with pytest.raises(ContendedError) as caught:
        await operator.manager.floating_ips.reconcile(KEY)
    assert caught.value.floating_ip == ("c-m-a", "web")


async def test_who_is_made_again_has_its_address_written_back_though_the_former_one_was_given_up_on() -> None:
    operator = await leading()
    for _ in range(2):
        operator.ask(A)
        await operator.settle()
        for _ in range(2):
            operator.ask_for_another(A, "")
            await operator.settle()
            assert operator.asked_for(A) == "10.0.0.10"
        operator.ask_for_another(A, "")
        await operator.settle()
        assert operator.asked_for(A) == ""
        operator.give_up(A)
        await operator.settle()
    names = [key for key in operator.memory.objects if key[0] == FLOATING_IP_RESERVATIONS.plural]
    assert len(names) == 1, "its address is in quarantine"
