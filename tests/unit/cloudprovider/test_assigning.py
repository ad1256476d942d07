"""Who gets which address, and that no two get one that they may not share: with two providers at work, in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from operator import attrgetter
from random import Random
from typing import Any

import pytest

from fipop.cloudprovider import bodies
from fipop.cloudprovider.assigning import AddressAssigner
from fipop.cloudprovider.choosing import Round
from fipop.cloudprovider.ledger import Entry, Ledger, parse_ledger, render_ledger
from fipop.cloudprovider.services import Service
from fipop.errors import (
    ApiError,
    ApiForbiddenError,
    ApiInvalidError,
    FipopError,
)
from fipop.ipam.addresses import format_address
from fipop.kube.resources import CONFIG_MAPS, SERVICES
from tests.harness.memory import Json, Memory
from tests.harness.small_provider import LEDGER, Judge, Loop, Provider, add, addresses, change, names_of


async def test_what_anybody_carries_is_not_given_out() -> None:
    memory = Memory()
    add(memory, "static", loadBalancerIP="10.0.0.1")
    add(memory, "theirs", loadBalancerClass="other/class")
    key = (SERVICES.plural, "shop", "theirs")
    memory.put(key, {**memory.objects[key], "status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.2"}]}}})
    add(memory, "web")
    await Provider(memory).serve()
    assert addresses(memory, "web") == "10.0.0.3"


async def test_a_pool_that_is_draining_or_gone_moves_nobody() -> None:
    memory = Memory()
    provider = Provider(memory)
    add(memory, "web")
    await provider.serve()
    provider.data = {"cidr-global": "10.9.0.0/24", "draining-global": "true"}
    await provider.serve()
    assert provider.waiting == {}
    assert addresses(memory, "web") == "10.0.0.1"


async def work(memory: Memory, chance: Random, stop: asyncio.Event) -> None:
    """One provider that is killed again and again, and started anew."""
    while not stop.is_set():
        running = Provider(memory, chance=Random(chance.random()))
        for _ in range(chance.randrange(1, 12)):
            await running.take_turn()
            try:
                await running.prune()
            except FipopError:
                continue
            await asyncio.sleep(0)


async def play(memory: Memory, chance: Random) -> None:
    """Services come and go, and now and then somebody deletes the ledger."""
    for number in range(80):
        for _ in range(chance.randrange(120)):
            await asyncio.sleep(0)
        names = names_of(memory)
        if names and chance.random() < 0.3:
            memory.remove((SERVICES.plural, "shop", chance.choice(names)))
        elif names and chance.random() < 0.5:
            change(memory, chance.choice(names), selector={"run": str(number)})
        else:
            add(memory, f"s{number}")
        if chance.random() < 0.15 and LEDGER in memory.objects:
            memory.remove(LEDGER)


async def play_with_two(seed: int) -> tuple[Memory, Judge]:
    chance, memory = Random(seed), Memory()
    judge, stop = Judge(memory), asyncio.Event()
    workers = [asyncio.create_task(work(memory, chance, stop)) for _ in range(2)]
    await play(memory, chance)
    stop.set()
    await asyncio.gather(*workers)
    return memory, judge


@pytest.mark.parametrize("seed", range(25))
async def test_two_providers_never_give_an_address_twice_and_in_the_end_nothing_leaks(seed: int) -> None:
    """Without election: kills, lost answers, frozen writers, a ledger that is deleted, Services that come and go."""
    memory, judge = await play_with_two(seed)
    assert judge.violations == []
    for name in names_of(memory)[9:]:
        memory.remove((SERVICES.plural, "shop", name))
    last = Provider(memory)
    await last.ledger.read()
    for _ in range(3):
        await last.serve()
        await last.prune()
    await last.serve()
    served = [addresses(memory, name) for name in names_of(memory)]
    assert all(served)
    assert len(set(served)) == len(served)
    held = {format_address(each) for each in parse_ledger(memory.objects[LEDGER]).entries}
    assert held == set(served), "nothing leaks"


class Slow(Provider):
    """A provider whose writes of one kind are frozen, right before they are done, until `go_on`."""

    def __init__(self, memory: Memory, frozen: str, verb: str = "replace") -> None:
        super().__init__(memory)
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()
        before = self.client._before

        wanted = verb

        async def freeze(verb: str, resource: Any, name: str) -> None:
            await before(verb, resource, name)
            if verb == wanted and resource.plural == frozen and not self.reached.is_set():
                self.reached.set()
                await self.go_on.wait()

        self.client._before = freeze  # type: ignore[method-assign]

    async def begin(self) -> asyncio.Task[Any]:
        """Serve who waits, and come back when a write is frozen."""
        await self.ledger.read()
        running = asyncio.create_task(self.take_turn())
        await asyncio.wait_for(self.reached.wait(), 30)
        return running

    async def end(self, running: asyncio.Task[Any]) -> None:
        self.go_on.set()
        await running


async def with_ledger() -> Memory:
    """There is a ledger, and a Service that waits is known to it."""
    memory = Memory()
    add(memory, "web")
    await Provider(memory, data={}).serve()
    return memory


async def freeze_between_entry_and_service() -> Memory:
    """A write of the Service is frozen; the user changes the Service, and others look after the ledger meanwhile."""
    memory = await with_ledger()
    slow = Slow(memory, SERVICES.plural)
    running = await slow.begin()
    other = Provider(memory)
    await other.prune()
    add(memory, "other")
    await other.serve(only="other".__eq__)
    await slow.end(running)
    return memory


async def freeze_after_a_retry() -> Memory:
    """A provider dies between the entry and the Service, which the user changes; the next one's write is frozen."""
    memory = await with_ledger()
    dying = Slow(memory, SERVICES.plural)
    running = await dying.begin()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    change(memory, "web", selector={"run": "web"})
    slow = Slow(memory, SERVICES.plural)
    running = await slow.begin()
    other = Provider(memory)
    await other.prune()
    add(memory, "other")
    await other.serve(only="other".__eq__)
    await slow.end(running)
    return memory


async def change_while_frozen() -> Memory:
    """The Service changes while its write is frozen, and its entry goes: that write must fail."""
    memory = await with_ledger()
    slow = Slow(memory, SERVICES.plural)
    running = await slow.begin()
    change(memory, "web", selector={"run": "web"})
    other = Provider(memory)
    assert await other.prune() == 1
    add(memory, "other")
    await other.serve(only="other".__eq__)
    await slow.end(running)
    return memory


async def change_before_the_look() -> Memory:
    """The Service changes between its entry and the look at it, its entry goes, and somebody else gets the address."""
    memory = await with_ledger()
    slow = Slow(memory, SERVICES.plural, "get")
    running = await slow.begin()
    change(memory, "web", selector={"run": "web"})
    other = Provider(memory)
    assert await other.prune() == 1
    add(memory, "other")
    await other.serve(only="other".__eq__)
    await slow.end(running)
    return memory


async def claim_while_it_is_pruned() -> Memory:
    """A provider looks at the Service before it reads the ledger anew, and an entry is made in between."""
    memory = await with_ledger()
    dying = Slow(memory, SERVICES.plural)
    running = await dying.begin()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    change(memory, "web", selector={"run": "web"})
    pruning = Provider(memory)
    look = pruning.client.get
    slow = Slow(memory, SERVICES.plural)
    claims: list[asyncio.Task[Any]] = []

    async def look_and_dream(resource: Any, name: str, **options: Any) -> Json | None:
        found = await look(resource, name, **options)
        if resource is SERVICES and not claims:
            claims.append(await slow.begin())
        return found

    pruning.client.get = look_and_dream  # type: ignore[assignment]
    await pruning.prune()
    other = Provider(memory)
    add(memory, "other")
    await other.serve(only="other".__eq__)
    await slow.end(claims[0])
    return memory


async def write_while_a_ledger_is_made() -> Memory:
    """A write by the former ledger comes after the new one was made; who finds that open has not seen it."""
    memory = await with_ledger()
    slow = Slow(memory, SERVICES.plural)
    running = await slow.begin()
    memory.remove(LEDGER)
    opening, behind = Provider(memory), Provider(memory)
    behind.see()
    behind.see = lambda: None  # type: ignore[method-assign]
    await opening.ledger.read()
    await slow.end(running)
    add(memory, "other")
    await opening.reconciler.assigner.get_ready()
    add(memory, "third", namespace="castle")
    await opening.serve(only="third".__eq__)
    found = memory.objects[SERVICES.plural, "shop", "other"]
    behind.take(found)
    await behind.serve(only="other".__eq__)
    return memory


async def leave_for_a_while() -> Memory:
    """A Service is no LoadBalancer for a while, and the ledger is lost meanwhile."""
    memory = await with_ledger()
    await Provider(memory).serve()
    change(memory, "web", type="ClusterIP")
    memory.remove(LEDGER)
    add(memory, "other")
    await Provider(memory).serve(only="other".__eq__)
    change(memory, "web", type="LoadBalancer")
    return memory


async def replace_a_later_entry() -> Memory:
    """A provider that sees an older version of the Service chooses while the one that entered a later one is frozen."""
    memory = await with_ledger()
    behind = Provider(memory)
    await behind.ledger.read()
    behind.see()
    behind.see = lambda: None  # type: ignore[method-assign]
    change(memory, "web", selector={"run": "web"})
    slow = Slow(memory, SERVICES.plural)
    running = await slow.begin()
    await behind.ledger.read()
    # What it reads of the Service itself comes late.
    behind.take = id  # type: ignore[method-assign]
    await behind.take_turn()
    other = Provider(memory)
    await other.prune()
    add(memory, "other")
    await other.serve(only="other".__eq__)
    await slow.end(running)
    return memory


async def freeze_the_swap() -> Memory:
    """Two providers choose from the same ledger; the swap of the first comes last."""
    memory = await with_ledger()
    slow = Slow(memory, CONFIG_MAPS.plural)
    running = await slow.begin()
    add(memory, "other")
    other = Provider(memory)
    await other.serve(only="other".__eq__)
    await slow.end(running)
    return memory


async def delete_the_ledger_while_frozen() -> Memory:
    """The entry is gone with the ledger, and the write that relies on it is still to come."""
    memory = await with_ledger()
    slow = Slow(memory, SERVICES.plural)
    running = await slow.begin()
    memory.remove(LEDGER)
    add(memory, "other")
    other = Provider(memory)
    await other.serve(only="other".__eq__)
    await slow.end(running)
    return memory


async def lose_the_ledger_while_frozen(memory: Memory) -> Memory:
    """Freeze the next write of a Service, delete the ledger, serve another Service, and let the write go on."""
    slow = Slow(memory, SERVICES.plural)
    running = await slow.begin()
    memory.remove(LEDGER)
    add(memory, "other")
    await Provider(memory).serve(only="other".__eq__)
    await slow.end(running)
    return memory


async def give_the_other_family_while_frozen() -> Memory:
    """A Service is to have a family instead of the other; the ledger goes while that write is frozen."""
    memory = Memory()
    add(memory, "web", ipFamilyPolicy="PreferDualStack", ipFamilies=["IPv4", "IPv6"])
    await Provider(memory, data={"cidr-global": "2001:db8::1-2001:db8::9"}).serve()
    change(memory, "web", ipFamilyPolicy="SingleStack", ipFamilies=["IPv4"])
    return await lose_the_ledger_while_frozen(memory)


async def move_to_another_family_while_frozen() -> Memory:
    """Its user asks for an address of one family, it is to have the other one, too; the ledger goes meanwhile."""
    memory = Memory()
    add(memory, "web", ipFamilyPolicy="PreferDualStack", ipFamilies=["IPv4", "IPv6"])
    await Provider(memory, data={"cidr-global": "2001:db8::1-2001:db8::9"}).serve()
    change(memory, "web", loadBalancerIP="2001:db8::7")
    return await lose_the_ledger_while_frozen(memory)


async def restore_while_frozen() -> Memory:
    """Its user takes L off and writes another address into A; the ledger goes while the former one is restored."""
    memory = await with_ledger()
    await Provider(memory).serve()
    change(memory, "web", a="10.7.0.1", loadBalancerIP="")
    return await lose_the_ledger_while_frozen(memory)


@pytest.mark.parametrize("first", [10, 192], ids=["inside the pool", "outside all pools"])
async def test_of_a_service_that_names_thousands_of_addresses_sixteen_count_and_it_is_told(
    first: int,
) -> None:
    memory = Memory()
    many = [f"{first}.{number // 62500}.{number // 250 % 250}.{number % 250 + 1}" for number in range(20_000)]
    for name in ("crowd", "crowd-too"):
        add(memory, name)
        change(memory, name, a=",".join(many))
        memory.pass_time(1)
    add(memory, "web")
    provider = Provider(memory, data={"cidr-global": "10.0.0.0/8"})
    await provider.serve()
    assert addresses(memory, "web") == ("10.0.0.17" if first == 10 else "10.0.0.1")
    entries = parse_ledger(memory.objects[LEDGER]).entries
    assert sum(map(len, entries.values())) == (33 if first == 10 else 1), (
        "what no pool gives out is not entered"
    )
    assert len(list(provider.occupancy.sharing.addresses())) == 17
    assert len(memory.objects[LEDGER]["data"].__repr__()) < 8192
    told = [(name, message) for name, reason, message in provider.said.events if reason == "TooManyAddresses"]
    assert [name for name, _ in told] == ["crowd", "crowd-too"]
    assert all("20000" in message and "16" in message for _, message in told)
    assert addresses(memory, "crowd") == ",".join(many), "it stays as its user wrote it"
    await provider.serve()
    assert len([each for each in provider.said.events if each[1] == "TooManyAddresses"]) == 2, "once"


async def test_of_a_deleted_service_of_another_class_by_now_the_finalizer_goes_and_nothing_else() -> None:
    memory = Memory()
    provider = Provider(memory)
    add(memory, "web")
    await provider.serve()
    key = (SERVICES.plural, "shop", "web")
    change(memory, "web", loadBalancerClass="example.org/other")
    found = memory.objects[key]
    others = ["example.org/held", *found["metadata"]["finalizers"]]
    memory.put(key, {**found, "metadata": {**found["metadata"], "finalizers": others}})
    memory.delete(key)
    await provider.serve()
    await provider.prune()
    made = memory.objects[key]
    assert made["metadata"]["finalizers"] == ["example.org/held"]
    assert (addresses(memory, "web"), made["spec"]["loadBalancerIP"]) == ("10.0.0.1", "10.0.0.1")
    assert made["metadata"]["labels"]["implementation"] == "kube-vip"
    add(memory, "other")
    await provider.serve()
    await provider.prune()
    assert addresses(memory, "other") == "10.0.0.2", "it is in use until it is gone"
    assert [format_address(each) for each in parse_ledger(memory.objects[LEDGER]).entries] == [
        "10.0.0.1",
        "10.0.0.2",
    ]
    memory.remove(key)
    await provider.serve()
    assert await provider.prune() == 1


LEFT_WITH_F: dict[str, dict[str, Any]] = {
    "a ClusterIP without anything": {"type": "ClusterIP"},
    "a ClusterIP with L": {"type": "ClusterIP", "loadBalancerIP": "10.0.0.1"},
    "another class": {"loadBalancerClass": "example.org/other"},
    "no class where one is served": {},
}


@pytest.mark.parametrize("spec", LEFT_WITH_F.values(), ids=LEFT_WITH_F)
async def test_the_finalizer_goes_from_every_deleted_service_a_little_later_where_it_may_be_another_provider_s(
    spec: dict[str, Any],
) -> None:
    memory = Memory()
    key = (SERVICES.plural, "shop", "web")
    add(memory, "web", **spec)
    found = memory.objects[key]
    finalizers = ["service.kubernetes.io/load-balancer-cleanup", "example.org/held"]
    memory.put(key, {**found, "metadata": {**found["metadata"], "finalizers": finalizers}})
    memory.delete(key)
    provider = Provider(memory, class_name=None if spec else "kube-vip.io/kube-vip-class")
    await provider.serve()
    if "loadBalancerClass" not in spec:
        assert memory.objects[key]["metadata"]["finalizers"] == finalizers
    memory.pass_time(600)
    await provider.serve()
    assert memory.objects[key]["metadata"]["finalizers"] == ["example.org/held"]


async def test_what_a_provider_made_is_not_kept_from_going_where_all_of_it_but_the_finalizer_was_taken_away() -> (
    None
):
    memory = Memory()
    add(memory, "web")
    await Provider(memory).serve()
    key = (SERVICES.plural, "shop", "web")
    found = memory.objects[key]
    spec = {"type": "ClusterIP", "ports": found["spec"]["ports"]}
    memory.put(
        key,
        {
            **found,
            "metadata": {**found["metadata"], "annotations": {}, "labels": {}},
            "spec": spec,
            "status": {},
        },
    )
    provider = Provider(memory)
    provider.see()
    await provider.prune()
    memory.delete(key)
    memory.pass_time(600)
    await provider.serve()
    assert key not in memory.objects


async def test_who_asks_for_0_0_0_0_has_it_beside_others() -> None:
    memory = Memory()
    for name in ("web", "other"):
        add(memory, name)
    provider = Provider(memory)
    await provider.serve()
    for name in ("web", "other"):
        change(memory, name, loadBalancerIP="0.0.0.0")
    provider.see()
    await provider.serve()
    assert [addresses(memory, name) for name in ("web", "other")] == ["0.0.0.0", "0.0.0.0"]
    assert {reason for _, reason, _ in provider.said.events} == {"AddressAssigned"}


class Refusing(Loop):
    """An API server with a policy: it refuses writes of one Service, and those of its status if `by_status`."""

    def __init__(self, memory: Memory, error: type[ApiError], *, name: str, by_status: bool) -> None:
        super().__init__(memory, Random(1), trouble=0.0)
        self.error, self.name, self.by_status, self.is_lifted = error, name, by_status, False

    async def replace(self, resource: Any, body: Json, *, subresource: str | None = None) -> Json:
        is_refused = resource is SERVICES and body["metadata"]["name"] == self.name and not self.is_lifted
        if is_refused and (self.by_status or subresource is None):
            raise self.error(verb="replace", kind="Service", name=self.name, status=403)
        return await super().replace(resource, body, subresource=subresource)


@pytest.mark.parametrize("error", [ApiForbiddenError, ApiInvalidError])
async def test_a_policy_that_refuses_one_waiting_service_keeps_no_other_without_an_address(
    error: type[ApiError],
) -> None:
    memory = Memory()
    add(memory, "web")
    add(memory, "other")
    provider = Provider(memory, client=Refusing(memory, error, name="web", by_status=False))
    await provider.serve(only="other".__eq__)
    assert addresses(memory, "other") == "10.0.0.1"
    await Provider(memory).serve()
    assert addresses(memory, "web") == "10.0.0.2"


async def test_while_the_api_server_is_away_no_service_is_told_that_it_cannot_be_written() -> None:
    memory = Memory()
    add(memory, "web")
    provider = Provider(memory)
    provider.client.trouble = 1.0
    with pytest.raises(FipopError):
        await provider.serve()
    assert provider.said.events == []
    provider.client.trouble = 0.0
    await provider.serve()
    assert addresses(memory, "web") == "10.0.0.1"
    assert [reason for _, reason, _ in provider.said.events] == ["AddressAssigned"]


def removes_at_once(*_: object) -> bool:
    return True


def without_version(obj: Json, *arguments: Any, **options: Any) -> Json:
    made: Json = bodies.assigned(obj, *arguments, **options)
    return {**made, "metadata": {**made["metadata"], "resourceVersion": None}}


def swaps_blindly(ledger: Ledger) -> Json:
    made = render_ledger(ledger)
    return {**made, "metadata": {**made["metadata"], "resourceVersion": None}}


def knows_no_version(known: Entry | None, _wanted: Entry, _is_carried: bool) -> bool:
    return known is not None


async def claims_at_once(self: AddressAssigner) -> None:
    self._claims_by = (await self.ledger.known()).uid


def always(*_arguments: object) -> bool:
    return True


def nothing(*_arguments: object) -> list[object]:
    return []


def waits(service: Service) -> bool:
    return not service.has_annotation


def never_stale(_self: Round, _service: Service) -> bool:
    return False


STORIES = {
    change_before_the_look: ("fipop.cloudprovider.assigning.is_current", always),
    claim_while_it_is_pruned: ("fipop.cloudprovider.ledger_store.may_remove", removes_at_once),
    write_while_a_ledger_is_made: ("fipop.cloudprovider.assigning.lacking_in", nothing),
    leave_for_a_while: (
        "fipop.cloudprovider.services.Service.is_holder",
        property(attrgetter("is_load_balancer")),
    ),
    replace_a_later_entry: ("fipop.cloudprovider.choosing.Round._is_stale", never_stale),
    freeze_between_entry_and_service: ("fipop.cloudprovider.ledger_store.may_remove", removes_at_once),
    freeze_after_a_retry: ("fipop.cloudprovider.choosing.is_entered", knows_no_version),
    change_while_frozen: ("fipop.cloudprovider.assigning.assigned", without_version),
    freeze_the_swap: ("fipop.cloudprovider.ledger_store.render_ledger", swaps_blindly),
    give_the_other_family_while_frozen: (
        "fipop.cloudprovider.services.Service.may_be_written",
        property(waits),
    ),
    move_to_another_family_while_frozen: (
        "fipop.cloudprovider.services.Service.may_be_written",
        property(waits),
    ),
    restore_while_frozen: ("fipop.cloudprovider.services.Service.may_be_written", property(waits)),
    delete_the_ledger_while_frozen: (
        "fipop.cloudprovider.assigning.AddressAssigner.get_ready",
        claims_at_once,
    ),
}


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
@pytest.mark.parametrize("is_broken", [False, True], ids=["", "broken"])
async def test_no_writer_however_slow_gives_an_address_twice(
    story: Callable[[], Awaitable[Memory]], is_broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rule of the protocol has the story that goes wrong without it."""
    if is_broken:
        monkeypatch.setattr(*STORIES[story])
    memory = await story()
    given = [each for name in ("web", "other") for each in addresses(memory, name).split(",") if each]
    assert given
    assert (len(set(given)) < len(given)) is is_broken, given
