"""Taking over from kube-vip-cloud-provider: its Services as it leaves them, with whatever their users wrote into A."""

import asyncio
from random import Random
from typing import Any

import pytest

from fipop.cloudprovider.ledger import parse_ledger
from fipop.ipam.addresses import format_address
from fipop.kube.resources import SERVICES
from tests.harness.memory import Json, Memory, copy_json
from tests.harness.small_provider import LEDGER, Judge, Loop, Provider, add, addresses, change
from tests.unit.cloudprovider.services import LABEL, A, F

V4 = {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]}
V6 = {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6"]}
PREFERS = {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv4", "IPv6"]}
BOTH = {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}
BOTH_V6 = {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6", "IPv4"]}
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


CHOSEN = {
    "one address": ("10.0.0.5", "10.0.0.5", V4),
    "one of IPv6": ("2001:db8::5", "2001:db8::5", V6),
    "both families": ("10.0.0.5,2001:db8::5", "10.0.0.5", BOTH),
    "both families, IPv6 first": ("2001:db8::5,10.0.0.5", "2001:db8::5", BOTH_V6),
    "outside all pools by now": ("10.7.0.1", "10.7.0.1", V4),
    "by DHCP": ("0.0.0.0", "0.0.0.0", V4),
    "by DHCP, both families": ("0.0.0.0", "0.0.0.0", BOTH),
}
STATIC = {
    "an address of the pool": ("10.0.0.5", V4),
    "an address outside all pools": ("192.168.1.7", V4),
    "two addresses of one family": ("192.168.1.7,192.168.1.8", V4),
    "two of one family, both wanted": ("10.0.0.5,10.0.0.6", BOTH),
    "both families, one wanted": ("192.168.1.7,fd00::7", V4),
    "both families, the other first": ("fd00::7,192.168.1.7", V4),
    "both families wanted the other way round": ("fd00::7,192.168.1.7", BOTH),
    "three addresses": ("10.0.0.5,10.0.0.6,2001:db8::5", PREFERS),
    "the other family": ("fd00::9", V4),
    "the other family, IPv4": ("192.168.1.7", V6),
    "a host name": ("lb.example.org", V4),
    "a host name first": ("lb.example.org,10.0.0.5", V4),
    "a host name behind": ("10.0.0.5,lb.example.org", V4),
    "a host name behind, both wanted": ("10.0.0.5,lb.example.org", BOTH),
    "DHCP": ("0.0.0.0", V4),
    "DHCP beside an address": ("0.0.0.0,fd00::7", PREFERS),
    "an address beside DHCP": ("192.168.1.7,0.0.0.0", V4),
    "blanks": (" 10.0.0.5 , 10.0.0.6 ", V4),
    "another spelling": ("FD00:0::7", V6),
    "the same twice": ("10.0.0.5,10.0.0.5", V4),
}
LEFT = {
    **{f"chosen: {what}": each for what, each in CHOSEN.items()},
    **{f"A only: {what}": (a, "", spec) for what, (a, spec) in STATIC.items()},
    **{
        f"A and L, the first: {what}": (a, a.split(",")[0].strip(), spec)
        for what, (a, spec) in STATIC.items()
    },
    **{f"A and L, another: {what}": (a, "10.0.0.8", spec) for what, (a, spec) in STATIC.items()},
    **{f"A and L, a host name: {what}": (a, "lb.example.org", spec) for what, (a, spec) in STATIC.items()},
}


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
