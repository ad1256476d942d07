"""Guest clusters that are opted out: which of them lose what fipop installed, by what the API records."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from fipop.api import names
from fipop.errors import ApiServerError
from fipop.kube.resources import FLOATING_IPS, SECRETS, Resource
from fipop.operator.startup import SETTLED_SECONDS
from tests.harness.memory import Json
from tests.harness.recorded_events import RecordedEvents
from tests.harness.small_operator import PromptClient, SmallOperator

A, B = "c-m-a", "c-m-b"
FOUR = ("c-m-0", "c-m-1", "c-m-2", "c-m-3")
ON, OFF = {"kubevipGuestRemove": "true"}, {"kubevipGuestRemove": "false"}


def status_of(operator: SmallOperator, guest_id: str = A) -> dict[str, Any]:
    found: dict[str, Any] = operator.memory.objects[FLOATING_IPS.plural, guest_id, "web"]["status"]
    return found


def record_of(operator: SmallOperator, guest_id: str = A) -> str | None:
    record: str | None = status_of(operator, guest_id)["guest"].get("removal")
    return record


def reason_of(operator: SmallOperator, condition: str, guest_id: str = A) -> str:
    conditions = {each["type"]: each["reason"] for each in status_of(operator, guest_id)["conditions"]}
    return str(conditions.get(condition, ""))


def opt_in(operator: SmallOperator, guest_id: str = A) -> None:
    operator.label_guest(guest_id, **{names.LABEL_OPT_IN: "true"})


def opt_out(operator: SmallOperator, guest_id: str = A) -> None:
    operator.label_guest(guest_id)


async def installed(*guest_ids: str, recorded: RecordedEvents | None = None) -> SmallOperator:
    """Have guests with fipop's releases, by an operator whose option to remove releases is off."""
    operator = SmallOperator(record_event=recorded.record) if recorded is not None else SmallOperator()
    operator.add_range(iprange="10.0.0.10-10.0.0.29")
    for guest_id in guest_ids:
        operator.add_guest(guest_id)
        operator.ask(guest_id)
        opt_in(operator, guest_id)
    await operator.start()
    await operator.pass_time(10)
    await operator.visit(*guest_ids, *guest_ids)
    assert all(operator.carried.releases[each] for each in guest_ids)
    return operator


async def withheld(*guest_ids: str) -> SmallOperator:
    """Have guests that were all opted out at once, which nobody confirmed."""
    operator = await installed(*guest_ids)
    await operator.set_options(**ON)
    for each in guest_ids:
        opt_out(operator, each)
    await operator.settle()
    await operator.visit(*guest_ids, *guest_ids)
    assert "MassRemovalWithheld" in operator.configuration.complaints
    return operator


async def led_again(former: SmallOperator, **options: str) -> SmallOperator:
    """Have a new leader with these options, which knows nothing but what the API holds."""
    operator = SmallOperator(former)
    operator.configuration.settings = former.configuration.settings
    if options:
        await operator.set_options(**options)
    await operator.start()
    await operator.pass_time(SETTLED_SECONDS)
    return operator


async def test_a_guest_that_is_opted_out_while_the_option_is_on_loses_its_releases() -> None:
    recorded = RecordedEvents()
    operator = await installed(A, recorded=recorded)
    await operator.set_options(**ON)
    assert record_of(operator) == "OnOptOut"
    await operator.visit(A)
    assert operator.carried.releases[A], "it is opted in"
    opt_out(operator)
    await operator.settle()
    assert record_of(operator) == "Pending"
    assert operator.carried.releases[A], "what is to be removed is recorded before"
    assert reason_of(operator, "Ready") == "RemovalPending"
    await operator.visit(A, A)
    assert operator.carried.releases[A] == set()
    assert record_of(operator) == "Done"
    assert reason_of(operator, "Ready") == "Ready"
    assert [each for each in recorded.reasons if "emov" in each] == ["RemovalPending", "ReleasesRemoved"]


async def test_a_guest_that_was_opted_out_before_the_option_was_on_keeps_its_releases_for_good() -> None:
    operator = await installed(A)
    opt_out(operator)
    await operator.settle()
    await operator.set_options(**ON)
    for _ in range(2):
        await operator.visit(A, A)
        assert operator.carried.releases[A]
        assert record_of(operator) is None
        operator = await led_again(operator)


async def test_an_opting_out_that_the_watch_shows_after_the_option_does_not_count_as_one_while_it_was_on() -> (
    None
):
    operator = await installed(A)
    operator.label_unseen(A)
    await operator.set_options(**ON)
    await operator.visit(A, A)
    assert operator.carried.releases[A]
    assert record_of(operator) is None


async def test_the_opting_out_is_found_after_a_restart_that_came_before_it_was_recorded() -> None:
    operator = await installed(A)
    await operator.set_options(**ON)
    operator.manager.end()
    operator.label_unseen(A)
    operator = await led_again(operator)
    assert record_of(operator) == "Pending"
    await operator.visit(A, A)
    assert operator.carried.releases[A] == set()


async def test_another_leader_removes_what_the_former_one_recorded() -> None:
    operator = await installed(A)
    await operator.set_options(**ON)
    opt_out(operator)
    await operator.settle()
    operator = await led_again(operator)
    await operator.visit(A, A)
    assert operator.carried.releases[A] == set()


async def test_a_guest_that_is_opted_in_again_keeps_its_releases() -> None:
    operator = await installed(A)
    await operator.set_options(**ON)
    opt_out(operator)
    await operator.settle()
    opt_in(operator)
    await operator.settle()
    assert record_of(operator) == "OnOptOut"
    await operator.visit(A, A)
    assert operator.carried.releases[A]
    assert reason_of(operator, "Ready") == "Ready"


async def test_the_record_goes_with_the_option_and_does_not_come_back_with_it() -> None:
    operator = await installed(A)
    await operator.set_options(**ON)
    opt_out(operator)
    await operator.settle()
    await operator.set_options(**OFF)
    assert record_of(operator) is None
    await operator.set_options(**ON)
    await operator.visit(A, A)
    assert record_of(operator) is None
    assert operator.carried.releases[A]


async def test_the_record_stays_while_no_good_value_of_an_option_is_known() -> None:
    operator = await installed(A)
    await operator.set_options(**ON)
    opt_out(operator)
    await operator.settle()
    writes, former = operator.memory.version, operator
    operator = SmallOperator(former)
    operator.configuration.settings = replace(
        former.configuration.settings, unknown_options=frozenset({"kubevipGuestInstall"})
    )
    await operator.start()
    await operator.visit(A)
    assert record_of(operator) == "Pending"
    assert operator.carried.releases[A]
    assert operator.memory.version == writes


async def test_no_guest_loses_releases_before_all_that_leave_with_it_are_counted() -> None:
    """The option that has fipop install is deleted: one guest after the other is recorded as opted out."""
    guest_ids = [f"c-m-{number}" for number in range(4)]
    operator = await installed(*guest_ids)
    await operator.set_options(**ON)
    await operator.set_options(kubevipGuestInstall="disabled")
    await operator.visit(*guest_ids, *guest_ids)
    assert all(operator.carried.releases[each] for each in guest_ids)
    assert "MassRemovalWithheld" in operator.configuration.complaints


async def test_who_opts_guests_in_again_one_by_one_after_a_mistake_loses_releases_of_none() -> None:
    operator = await withheld(*FOUR)
    for each in FOUR:
        opt_in(operator, each)
        await operator.settle()
        await operator.visit(*FOUR, *FOUR)
        assert all(operator.carried.releases[other] for other in FOUR), each


async def test_a_confirmation_ends_when_guests_are_opted_in_again_also_while_they_are_paused() -> None:
    """It held for their next opting out, which nobody had confirmed."""
    operator = await withheld(*FOUR)
    operator.configuration.annotate(names.ANNOTATION_CONFIRM_REMOVE, "4")
    first, *rest = FOUR
    await operator.visit(first)
    assert not operator.carried.releases[first]
    for change in (operator.pause, partial(opt_in, operator)):
        for each in rest:
            change(each)
        await operator.settle()
    await operator.visit(*rest)
    for each in rest:
        opt_out(operator, each)
    await operator.settle()
    for each in rest:
        key = (FLOATING_IPS.plural, each, "web")
        found = operator.memory.objects[key]
        annotations = {**found["metadata"]["annotations"], names.ANNOTATION_PAUSED: "false"}
        operator.memory.put(key, {**found, "metadata": {**found["metadata"], "annotations": annotations}})
    await operator.settle()
    await operator.visit(*rest, *rest)
    assert all(operator.carried.releases[each] for each in rest)


async def test_a_guest_whose_kubeconfig_cannot_be_read_keeps_no_other_from_being_left() -> None:
    guest_ids = [f"c-m-{number}" for number in range(11)]
    former = await installed(*guest_ids)
    operator = SmallOperator(former, client=FailingKubeconfig)
    await operator.start()
    assert isinstance(operator.client, FailingKubeconfig)
    operator.client.is_failing = True
    await operator.set_options(**ON)
    opt_out(operator, guest_ids[0])
    opt_out(operator, guest_ids[1])
    await operator.settle()
    for _ in range(2):
        with pytest.raises(ApiServerError):
            await operator.visit(guest_ids[0])
        await operator.visit(guest_ids[1])
    assert operator.carried.releases[guest_ids[1]] == set()


class FailingKubeconfig(PromptClient):
    """An API server that cannot read the kubeconfig of guest cluster c-m-0 while `is_failing`."""

    is_failing = False

    async def get(self, resource: Resource, name: str, **where: Any) -> Json | None:
        if self.is_failing and (resource, name) == (SECRETS, "cluster-c-m-0-kubeconfig"):
            raise ApiServerError(verb="get", kind=resource.kind, name=name, status=500)
        return await super().get(resource, name, **where)


@pytest.mark.parametrize("option", [ON, OFF])
async def test_a_restart_writes_no_record_again(option: dict[str, str]) -> None:
    operator = await installed(A, B)
    await operator.set_options(**option)
    opt_out(operator, B)
    await operator.settle()
    version = operator.memory.version
    await led_again(operator)
    assert operator.memory.version == version


# New floating IPs for a fleet


async def test_one_option_stops_new_floating_ips_and_deleted_ones_do_not_come_back() -> None:
    operator = SmallOperator()
    operator.add_range(clusterSelector={"matchLabels": {}})
    operator.add_guest(A, is_served=True)
    operator.add_guest(B, is_served=True)
    await operator.start()
    assert set(floating_ips(operator)) == {A, B}
    await operator.set_options(createFloatingIPs="false")
    operator.give_up(A, f"cluster-{A}-kubevip")
    operator.add_guest("c-m-new", is_served=True)
    await operator.settle()
    await operator.pass_time(3600)
    assert set(floating_ips(operator)) == {B}, "existing ones stay"
    operator = await led_again(operator)
    assert set(floating_ips(operator)) == {B}
    await operator.set_options(createFloatingIPs="true")
    assert set(floating_ips(operator)) == {A, B, "c-m-new"}


def floating_ips(operator: SmallOperator) -> list[str]:
    return [namespace for plural, namespace, _ in operator.memory.objects if plural == FLOATING_IPS.plural]
