"""A quarrel ends by itself: an address that another controller overwrites is restored three times, then left alone."""

from typing import Any

import pytest

from fipop.cloudprovider.ledger import parse_ledger
from fipop.ipam.addresses import format_address
from fipop.kube.resources import SERVICES
from tests.harness.field_managers import NOBODY, answer_as_kube_vip, change_as
from tests.harness.memory import Json, Memory
from tests.harness.small_provider import LEDGER, Provider, add, addresses

RIVAL, USER = "harvester-cloud-provider", "kubectl-edit"
MINUTE, HOUR = 60.0, 3600.0
DUAL = {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}


def condition(memory: Memory, name: str = "web") -> Json:
    found = memory.objects[SERVICES.plural, "shop", name].get("status", {}).get("conditions", [{}])
    return dict(found[0]) if found else {}


def reason(memory: Memory, name: str = "web") -> str:
    return str(condition(memory, name).get("reason", ""))


def entered(memory: Memory) -> set[str]:
    return {format_address(each) for each in parse_ledger(memory.objects[LEDGER]).entries}


class Counted:
    """Counts what is written in the store, by kind."""

    def __init__(self, memory: Memory) -> None:
        self.writes: list[str] = []
        memory.listeners.append(lambda change: self.writes.append(change.plural))


async def served(memory: Memory, *names: str, **spec: Any) -> Provider:
    for name in names or ("web",):
        add(memory, name, **spec)
        memory.pass_time(1)
    provider = Provider(memory)
    await provider.serve()
    return provider


async def fight(
    memory: Memory,
    provider: Provider,
    times: int,
    *,
    every: float = 1.0,
    by: str = RIVAL,
    a: str = "10.9.9.9",
    name: str = "web",
) -> int:
    """Have the other controller write its address so often; how often it was restored."""
    restored = 0
    for _ in range(times):
        if addresses(memory, name) != a:
            change_as(memory, by, name=name, a=a)
        await provider.serve()
        await provider.prune()
        restored += addresses(memory, name) != a
        memory.pass_time(every)
    return restored


async def in_quarrel(memory: Memory, by: str = RIVAL, **spec: Any) -> Provider:
    """A provider that has left a Service alone a moment ago."""
    provider = await served(memory, **spec)
    assert await fight(memory, provider, 4, by=by) == 3
    assert reason(memory) == "AnotherController"
    return provider


async def test_an_address_is_restored_three_times_then_left_alone_with_one_warning_that_names_the_writer() -> (
    None
):
    memory = Memory()
    provider = await served(memory)
    assert await fight(memory, provider, 20) == 3
    assert addresses(memory, "web") == "10.9.9.9"
    told = condition(memory)
    assert (told["status"], told["reason"]) == ("False", "AnotherController")
    assert all(text in told["message"] for text in (RIVAL, "10.0.0.1"))
    warned = [message for _, event, message in provider.said.events if event == "AnotherController"]
    assert warned == [told["message"]]
    assert provider.overwritten == 1
    assert provider.waiting == {}


async def test_in_the_hour_after_that_nothing_is_written_whatever_kube_vip_and_that_writer_do() -> None:
    memory = Memory()
    provider = await in_quarrel(memory)
    counted = Counted(memory)
    own = 0
    for number in range(58):
        memory.pass_time(MINUTE)
        answer_as_kube_vip(memory, f"10.9.9.{number}")
        own += 1
        if number % 9 == 0:
            change_as(memory, RIVAL, a=f"10.9.8.{number}")
            own += 1
        if number == 30:
            change_as(memory, RIVAL, externalTrafficPolicy="Local")
            own += 1
        await provider.serve()
        await provider.prune()
    assert len(counted.writes) == own, "not one of ours"
    assert reason(memory) == "AnotherController"


async def test_an_hour_later_it_is_restored_again_and_again_left_alone_when_that_goes_on() -> None:
    memory = Memory()
    provider = await in_quarrel(memory)
    memory.pass_time(HOUR - MINUTE)
    await provider.serve()
    assert addresses(memory, "web") == "10.9.9.9"
    memory.pass_time(MINUTE)
    await provider.serve()
    assert (addresses(memory, "web"), reason(memory)) == ("10.0.0.1", "Assigned")
    assert provider.overwritten == 0
    assert await fight(memory, provider, 20) == 2
    assert reason(memory) == "AnotherController"
    assert [each[1] for each in provider.said.events].count("AnotherController") == 2, "one for each quarrel"


CHANGES = {
    "of the spec": {"externalTrafficPolicy": "Local"},
    "of the ports": {"ports": [{"port": 443}]},
    "of the annotation": {"a": "10.8.8.8"},
    "that takes the annotation off": {"a": ""},
    "that asks for another address": {"loadBalancerIP": "10.0.0.5"},
}


@pytest.mark.parametrize("what", CHANGES.values(), ids=CHANGES)
async def test_a_change_by_another_field_manager_ends_the_pause(what: dict[str, Any]) -> None:
    memory = Memory()
    provider = await in_quarrel(memory)
    change_as(memory, USER, **what)
    await provider.serve()
    assert addresses(memory, "web") == what.get("loadBalancerIP", "10.0.0.1")
    assert reason(memory) == "Assigned"
    memory.pass_time(10 * MINUTE)
    assert await fight(memory, provider, 10) == 3
    assert reason(memory) == "AnotherController"


@pytest.mark.parametrize("manager", [RIVAL, "kube-vip", "fipop"])
async def test_a_change_of_the_spec_by_that_writer_by_kube_vip_or_by_fipop_does_not_end_the_pause(
    manager: str,
) -> None:
    memory = Memory()
    provider = await in_quarrel(memory)
    change_as(memory, manager, externalTrafficPolicy="Local")
    await provider.serve()
    assert (addresses(memory, "web"), reason(memory)) == ("10.9.9.9", "AnotherController")


async def test_what_another_field_manager_writes_elsewhere_does_not_end_the_pause() -> None:
    memory = Memory()
    provider = await served(memory)
    change_as(memory, USER, sessionAffinity="ClientIP")
    assert await fight(memory, provider, 4) == 3
    memory.pass_time(MINUTE)
    change_as(memory, USER, labels={"team": "red"}, sessionAffinity="ClientIP")
    await provider.serve()
    assert (addresses(memory, "web"), reason(memory)) == ("10.9.9.9", "AnotherController")


async def test_a_restart_goes_on_with_the_pause_writes_nothing_and_ends_it_in_time() -> None:
    memory = Memory()
    await in_quarrel(memory)
    memory.pass_time(HOUR / 2)
    counted = Counted(memory)
    again = Provider(memory)
    await again.serve()
    assert counted.writes == []
    assert again.overwritten == 1
    assert again.said.events == []
    change_as(memory, USER, externalTrafficPolicy="Local")
    await again.serve()
    assert addresses(memory, "web") == "10.0.0.1", "a change after the restart is heard of"
    assert await fight(memory, again, 10) == 2
    memory.pass_time(HOUR)
    later = Provider(memory)
    await later.serve()
    assert addresses(memory, "web") == "10.0.0.1", "the hour counts from when it was told"


async def test_a_change_of_the_annotation_while_nobody_leads_ends_the_pause() -> None:
    memory = Memory()
    await in_quarrel(memory)
    memory.pass_time(MINUTE)
    change_as(memory, USER, a="10.8.8.8")
    await Provider(memory).serve()
    assert addresses(memory, "web") == "10.0.0.1"


@pytest.mark.parametrize("theirs", ["10.9.9.9", "10.0.0.4", "lb.example.org", "2001:db8::66", "0.0.0.0"])
async def test_the_ledger_keeps_the_addresses_of_both_families_and_nobody_else_gets_them(theirs: str) -> None:
    memory = Memory()
    provider = await served(memory, **DUAL)
    assert addresses(memory, "web") == "10.0.0.1,2001:db8::1"
    restored = await fight(memory, provider, 5, a=theirs)
    assert (restored, addresses(memory, "web"), reason(memory)) == (3, theirs, "AnotherController")
    for number in range(9):
        add(memory, f"other-{number}", ipFamilyPolicy="PreferDualStack")
        memory.pass_time(1)
    await provider.serve()
    await provider.prune()
    await Provider(memory).serve()
    given = {each for number in range(9) for each in addresses(memory, f"other-{number}").split(",")}
    assert not given & {"10.0.0.1", "2001:db8::1", theirs}
    assert {"10.0.0.1", "2001:db8::1"} <= entered(memory)
    memory.pass_time(HOUR)
    await provider.serve()
    assert addresses(memory, "web") == "10.0.0.1,2001:db8::1", "it gets those that it had"


async def test_of_two_families_none_moves_when_another_controller_overwrites_the_annotation() -> None:
    memory = Memory()
    provider = await served(memory, "first", "web", "last", **DUAL)
    memory.remove((SERVICES.plural, "shop", "first"))
    await provider.serve()
    await provider.prune()
    change_as(memory, RIVAL, a="10.9.9.9")
    await provider.serve()
    assert addresses(memory, "web") == "10.0.0.2,2001:db8::2", "and not the lowest that is free"


async def test_what_a_user_changes_once_is_restored_without_a_warning() -> None:
    memory = Memory()
    provider = await served(memory)
    before = list(provider.said.events)
    change_as(memory, USER, a="10.0.0.7")
    await provider.serve()
    assert (addresses(memory, "web"), reason(memory)) == ("10.0.0.1", "Assigned")
    assert provider.said.events == before


async def test_a_writer_that_comes_every_five_minutes_is_no_quarrel() -> None:
    memory = Memory()
    provider = await served(memory)
    assert await fight(memory, provider, 12, every=5 * MINUTE) == 12
    assert reason(memory) == "Assigned"


async def test_a_writer_that_comes_every_three_minutes_is_one() -> None:
    memory = Memory()
    provider = await served(memory)
    assert await fight(memory, provider, 12, every=3 * MINUTE) == 3
    assert reason(memory) == "AnotherController"


async def test_two_services_have_quarrels_of_their_own_and_others_are_served_meanwhile() -> None:
    memory = Memory()
    provider = await served(memory, "web", "shop", "calm")
    assert await fight(memory, provider, 6) == 3
    assert await fight(memory, provider, 2, name="shop", a="10.9.9.8", by="other") == 2
    assert (reason(memory, "web"), reason(memory, "shop")) == ("AnotherController", "Assigned")
    change_as(memory, USER, name="web", externalTrafficPolicy="Local")
    assert await fight(memory, provider, 3, name="shop", a="10.9.9.8", by="other") == 1
    assert (addresses(memory, "web"), reason(memory, "shop")) == ("10.0.0.1", "AnotherController")
    assert "other" in condition(memory, "shop")["message"]
    add(memory, "new")
    await provider.serve()
    assert (addresses(memory, "new"), addresses(memory, "calm")) == ("10.0.0.4", "10.0.0.3")


async def test_a_writer_whose_name_is_not_known_is_called_so_and_the_same_rule_holds() -> None:
    memory = Memory()
    provider = await in_quarrel(memory, by=NOBODY)
    assert "unknown writer" in condition(memory)["message"]
    counted = Counted(memory)
    change_as(memory, NOBODY, a="10.9.9.7", externalTrafficPolicy="Local")
    await provider.serve()
    assert counted.writes == [SERVICES.plural]
    memory.pass_time(HOUR)
    await provider.serve()
    assert addresses(memory, "web") == "10.0.0.1"


async def test_a_new_ledger_is_opened_while_others_quarrel_and_still_does_not_give_their_address() -> None:
    memory = Memory()
    provider = await in_quarrel(memory)
    memory.remove(LEDGER)
    add(memory, "other")
    again = Provider(memory)
    await again.serve()
    await again.prune()
    await provider.serve()
    assert addresses(memory, "other") == "10.0.0.2"
    assert "10.0.0.1" in entered(memory)


# Schedules that try to break it


async def test_a_service_that_is_made_again_under_its_name_begins_without_a_past() -> None:
    memory = Memory()
    provider = await in_quarrel(memory)
    memory.remove((SERVICES.plural, "shop", "web"))
    await provider.serve()
    await provider.prune()
    add(memory, "web")
    await provider.serve()
    assert (addresses(memory, "web"), reason(memory)) == ("10.0.0.1", "Assigned")
    assert await fight(memory, provider, 5) == 3


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
async def test_after_a_change_of_the_leader_in_a_fight_it_is_restored_three_times_more_at_most(
    turns: int,
) -> None:
    memory = Memory()
    provider = await served(memory)
    assert await fight(memory, provider, turns) == turns
    again = Provider(memory)
    assert await fight(memory, again, 10) == 3
    assert await fight(memory, provider, 3) == 0, "the former one leads again"
    assert reason(memory) == "AnotherController"


async def test_a_service_that_leaves_its_type_in_a_pause_is_cleared_and_its_addresses_are_free() -> None:
    memory = Memory()
    provider = await in_quarrel(memory, **DUAL)
    change_as(memory, USER, type="ClusterIP")
    await provider.serve()
    await provider.prune()
    assert (addresses(memory, "web"), reason(memory), entered(memory)) == ("", "", set())
    assert provider.overwritten == 0


async def test_a_service_that_is_deleted_in_a_pause_goes() -> None:
    memory = Memory()
    provider = await in_quarrel(memory, **DUAL)
    memory.delete((SERVICES.plural, "shop", "web"))
    await provider.serve()
    await provider.serve()
    await provider.prune()
    assert (SERVICES.plural, "shop", "web") not in memory.objects
    assert entered(memory) == set()


async def test_a_service_of_another_class_by_now_is_left_with_what_it_has() -> None:
    memory = Memory()
    provider = await in_quarrel(memory)
    change_as(memory, USER, loadBalancerClass="example.org/other")
    counted = Counted(memory)
    memory.pass_time(2 * HOUR)
    await provider.serve()
    await provider.prune()
    assert counted.writes == []
    add(memory, "other")
    await provider.serve()
    assert addresses(memory, "other") == "10.0.0.2"


@pytest.mark.parametrize("by", [RIVAL, USER, NOBODY])
async def test_an_annotation_that_is_emptied_in_a_pause_is_restored(by: str) -> None:
    memory = Memory()
    provider = await in_quarrel(memory)
    change_as(memory, by, a="")
    await provider.serve()
    assert (addresses(memory, "web"), reason(memory)) == ("10.0.0.1", "Assigned")


async def test_a_writer_that_gives_in_ends_the_pause_without_a_write_but_of_the_condition() -> None:
    memory = Memory()
    provider = await in_quarrel(memory)
    counted = Counted(memory)
    change_as(memory, RIVAL, a="10.0.0.1")
    await provider.serve()
    assert counted.writes == [SERVICES.plural] * 2
    assert reason(memory) == "Assigned"


async def test_a_second_controller_in_a_pause_gets_one_answer_and_a_pause_of_its_own() -> None:
    memory = Memory()
    provider = await in_quarrel(memory)
    assert await fight(memory, provider, 6, by="another", a="10.7.7.7") == 1
    assert "another" in condition(memory)["message"]
    assert await fight(memory, provider, 6, a="10.9.9.9") == 1
    assert RIVAL in condition(memory)["message"]


async def test_two_others_that_overwrite_each_other_for_ever_draw_it_in_six_times_in_ten_minutes_at_most() -> (
    None
):
    memory = Memory()
    provider = await served(memory)
    restored = 0
    for number in range(300):
        by = (RIVAL, "another")[number % 2]
        restored += await fight(memory, provider, 1, by=by, a=f"10.9.9.{number % 2}", every=2.0)
    assert restored == 6
    assert reason(memory) == "AnotherController"


@pytest.mark.parametrize("theirs", ["10.0.0.1,10.0.0.5", "10.0.0.5,10.0.0.1", "lb.example.org", "nonsense,,"])
async def test_whatever_else_the_annotation_names_it_ends(theirs: str) -> None:
    memory = Memory()
    provider = await served(memory)
    assert await fight(memory, provider, 9, a=theirs) == 3
    assert (addresses(memory, "web"), reason(memory)) == (theirs, "AnotherController")


async def test_both_families_that_another_provider_completed_meanwhile_stay() -> None:
    memory = Memory()
    provider = await served(memory)
    change_as(memory, "kube-vip-cloud-provider", a="10.0.0.1,2001:db8::7", **DUAL)
    await provider.serve()
    assert (addresses(memory, "web"), reason(memory)) == ("10.0.0.1,2001:db8::7", "Assigned")


async def test_an_address_of_anothers_that_is_written_into_the_annotation_is_told_on_both() -> None:
    memory = Memory()
    provider = await served(memory, "web", "holder")
    assert await fight(memory, provider, 6, a="10.0.0.2") == 3
    assert {name for name, event, _ in provider.said.events if event == "AddressInUse"} == {"web", "holder"}
    assert addresses(memory, "holder") == "10.0.0.2"
