"""Taking over from kube-vip-cloud-provider: its Services as it leaves them, with whatever their users wrote into A."""

import asyncio
from random import Random
from typing import Any

import pytest

from fipop.cloudprovider.ledger import parse_ledger
from fipop.ipam.addresses import format_address
from fipop.kube.resources import SERVICES
from tests.harness.left_services import BOTH, CHOSEN, LEFT, PREFERS, STATIC, V4, V6
from tests.harness.memory import Json, Memory, copy_json
from tests.harness.small_provider import LEDGER, Judge, Loop, Provider, add, addresses, change
from tests.unit.cloudprovider.services import LABEL, A, F

POOL = {"cidr-global": "10.0.0.1-10.0.0.9,2001:db8::1-2001:db8::9", "interface-global": "eth1"}


def leave_behind(memory: Memory, name: str, a: str, l: str = "", **spec: Any) -> None:  # noqa: E741
    """Have a Service as kube-vip-cloud-provider leaves it; it puts I and F on all of them."""
    add(memory, name, **({"loadBalancerIP": l} if l else {}), **spec)
    key = (SERVICES.plural, "shop", name)
    found = copy_json(memory.objects[key])
    found["metadata"] |= {
        "annotations": {A: a} if a else {},
        "labels": {LABEL: "kube-vip"},
        "finalizers": [F],
    }
    ingress = [{"ip": each.strip()} for each in a.split(",") if each.strip()]
    memory.put(key, found | {"status": {"loadBalancer": {"ingress": ingress}}})


class Frozen(Loop):
    """An API server that writes of Services reach only when they are let go on; `reached`: one is under way."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory, Random(1), trouble=0.0)
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()

    async def replace(self, resource: Any, body: Json, *, subresource: str | None = None) -> Json:
        if resource is SERVICES and subresource is None:
            self.reached.set()
            await self.go_on.wait()
        return await super().replace(resource, body, subresource=subresource)


EDITS: dict[str, tuple[Json, str | None, Json]] = {
    "L names another address": (PREFERS, None, {"loadBalancerIP": "10.0.0.8"}),
    "L is taken away": (PREFERS, None, {"loadBalancerIP": ""}),
    "A becomes a host name": (PREFERS, "lb.example.org", {}),
    "the other family is wanted": (V4, None, V6),
    "both families are wanted": (V4, None, BOTH),
}


@pytest.mark.parametrize(("spec", "a", "edit"), EDITS.values(), ids=EDITS)
async def test_what_is_under_way_for_a_service_that_was_taken_over_and_edited_is_not_given_out_by_a_new_ledger(
    spec: Json, a: str | None, edit: Json
) -> None:
    memory = Memory()
    judge = Judge(memory)
    leave_behind(memory, "web", "10.0.0.5", "10.0.0.5", **spec)
    await Provider(memory, data={"cidr-global": "10.0.0.1-10.0.0.9"}).serve()
    change(memory, "web", a=a, **edit)
    frozen = Frozen(memory)
    slow = Provider(memory, data=POOL, client=frozen)
    running = asyncio.create_task(slow.serve())
    await asyncio.wait_for(frozen.reached.wait(), 30)
    memory.remove(LEDGER)
    add(memory, "new", **BOTH)
    await Provider(memory, data=POOL).serve(only="new".__eq__)
    frozen.go_on.set()
    await running
    await Provider(memory, data=POOL).serve()
    assert judge.violations == []
    assert all(addresses(memory, name) for name in ("web", "new"))


async def test_what_has_all_that_its_pool_can_give_or_is_served_by_another_is_not_written_at_the_take_over() -> (
    None
):
    memory = Memory()
    leave_behind(memory, "web", "10.0.0.5", "10.0.0.5", **PREFERS)
    add(memory, "theirs", loadBalancerClass="example.org/other")
    key = (SERVICES.plural, "shop", "theirs")
    status = {"loadBalancer": {"ingress": [{"ip": "192.168.1.9"}]}}
    memory.put(key, {**memory.objects[key], "status": status})
    before = [memory.objects[SERVICES.plural, "shop", name] for name in ("web", "theirs")]
    add(memory, "new")
    await Provider(memory, data={"cidr-global": "10.0.0.1-10.0.0.9"}).serve()
    assert [memory.objects[SERVICES.plural, "shop", name] for name in ("web", "theirs")] == before
    assert addresses(memory, "new") == "10.0.0.1"


@pytest.mark.parametrize(("a", "l", "spec"), LEFT.values(), ids=LEFT)
async def test_no_service_that_has_what_it_asks_for_is_written_when_the_provider_takes_over(
    a: str,
    l: str,  # noqa: E741
    spec: dict[str, Any],
) -> None:
    memory = Memory()
    leave_behind(memory, "web", a, l, **spec)
    before = copy_json(memory.objects[SERVICES.plural, "shop", "web"])
    first = Provider(memory, data=POOL)
    await first.serve()
    await first.prune()
    await Provider(memory, data=POOL).serve()
    assert memory.objects[SERVICES.plural, "shop", "web"] == before
    assert first.said.events == []
    # A second one is served meanwhile, with an address that nobody has.
    add(memory, "new")
    await first.serve()
    assert memory.objects[SERVICES.plural, "shop", "web"] == before
    assert addresses(memory, "new") == "10.0.0.1"


@pytest.mark.parametrize(("a", "spec"), STATIC.values(), ids=STATIC)
async def test_what_a_user_edits_in_an_annotation_of_his_own_after_that_stays(
    a: str, spec: dict[str, Any]
) -> None:
    memory = Memory()
    leave_behind(memory, "web", a, **spec)
    provider = Provider(memory, data=POOL)
    await provider.serve()
    change(memory, "web", a="192.168.1.9,lb.example.org")
    await provider.serve()
    assert addresses(memory, "web") == "192.168.1.9,lb.example.org"
    assert "loadBalancerIP" not in memory.objects[SERVICES.plural, "shop", "web"]["spec"]


@pytest.mark.parametrize(("a", "l", "spec"), CHOSEN.values(), ids=CHOSEN)
async def test_what_the_former_provider_chose_is_taken_over_as_chosen(a: str, l: str, spec: Any) -> None:  # noqa: E741
    memory = Memory()
    leave_behind(memory, "web", a, l, **spec)
    provider = Provider(memory, data=POOL)
    await provider.serve()
    entries = parse_ledger(memory.objects[LEDGER]).entries
    assert {format_address(each) for each in entries} == set(a.split(",")) - {"0.0.0.0"}
    change(memory, "web", a="")
    await provider.serve()
    if "0.0.0.0" not in a:
        assert addresses(memory, "web") == a


async def test_a_service_that_lacks_a_family_at_the_take_over_gets_it() -> None:
    memory = Memory()
    leave_behind(memory, "web", "10.0.0.5", "10.0.0.5", **BOTH)
    await Provider(memory, data=POOL).serve()
    assert addresses(memory, "web") == "10.0.0.5,2001:db8::1"


async def test_what_a_service_had_at_the_take_over_and_lost_since_is_free_and_not_entered() -> None:
    memory = Memory()
    for name, address in (("gone", "10.0.0.1"), ("gone-too", "10.0.0.2")):
        leave_behind(memory, name, address, address, **V4)
    provider = Provider(memory, data={"cidr-global": "10.0.0.1-10.0.0.2"})
    await provider.serve()
    await provider.reconciler.assigner.get_ready()
    for name in ("gone", "gone-too"):
        memory.remove((SERVICES.plural, "shop", name))
    await provider.prune()
    for name in ("new", "newer"):
        add(memory, name)
        provider.see()
        await provider.serve()
    assert {addresses(memory, name) for name in ("new", "newer")} == {"10.0.0.1", "10.0.0.2"}
    assert [reason for _, reason, _ in provider.said.events if reason == "AddressInUse"] == []
