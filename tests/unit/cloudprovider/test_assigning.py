"""Who gets which address, and that no two get one that they may not share: with two providers at work, in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from fipop.cloudprovider import services
from fipop.cloudprovider.assigning import AddressAssigner, Changed, Granted, Refused
from fipop.cloudprovider.ledger import (
    NAME,
    NAMESPACE,
    Entry,
    Ledger,
    LedgerStore,
    parse_ledger,
    render_ledger,
)
from fipop.cloudprovider.pools import PoolKeys
from fipop.cloudprovider.services import ADDRESSES, Service, parse_service
from fipop.errors import ApiServerError, ApiUnreachableError, FipopError
from fipop.ipam.addresses import Address, format_address
from fipop.kube.resources import CONFIG_MAPS, SERVICES
from tests.harness.memory import Json, Memory, MemoryClient, copy_json

LEDGER = (CONFIG_MAPS.plural, NAMESPACE, NAME)
DATA = {"cidr-global": "10.0.0.1-10.0.0.9,2001:db8::1-2001:db8::9"}


class Loop(MemoryClient):
    """Answers after some turns of the loop; some calls fail before they are done, of some the answer is lost."""

    async def _before(self, verb: str, resource: Any, name: str) -> None:
        await self._wait()
        if self._chance.random() < self.trouble:
            raise ApiServerError(verb=verb, kind=resource.kind, name=name, status=500)

    async def _after(self, verb: str, resource: Any, name: str, made: Json) -> Json:
        answer: Json = copy_json(made)
        await self._wait()
        if self._chance.random() < self.trouble:
            raise ApiUnreachableError(verb=verb, kind=resource.kind, name=name, reason="ConnectionCut")
        return answer

    async def _wait(self) -> None:
        # Once in a while a writer is frozen for long.
        turns = self._chance.choices([0, 1, 3, 300], [10, 10, 5, 1])[0] if self.trouble else 0
        for _ in range(turns):
            await asyncio.sleep(0)


class Provider:
    """One provider over the API server in memory: it sees everything, late or at once."""

    def __init__(
        self, memory: Memory, *, data: dict[str, str] | None = None, chance: Random | None = None
    ) -> None:
        self.memory, self.data = memory, data if data is not None else dict(DATA)
        self._trouble = 0.02 if chance is not None else 0.0
        self._chance, self._seen = chance, list[Json]()
        self.client = Loop(memory, chance or Random(1), trouble=self._trouble)
        self.ledger = LedgerStore(self.client)
        self.assigner = AddressAssigner(
            client=self.client,
            ledger=self.ledger,
            keys=lambda: PoolKeys(self.data),
            services=lambda: [parse_service(obj) for obj in self._services()],
            list_live=self._list,
        )

    def _services(self) -> list[Json]:
        """What its watch has shown, which may be what was so some time ago."""
        if self._chance is None or self._chance.random() < 0.3:
            self._seen = [obj for key, obj in self.memory.objects.items() if key[0] == SERVICES.plural]
        return self._seen

    async def _list(self) -> list[Json]:
        await asyncio.sleep(0)
        return [copy_json(obj) for key, obj in self.memory.objects.items() if key[0] == SERVICES.plural]

    def waiting(self) -> list[Json]:
        return [copy_json(obj) for obj in self._services() if obj["spec"].get("type") == "LoadBalancer"]

    async def serve(self) -> list[Any]:
        """Serve whoever waits, until nothing changes any more."""
        for _ in range(6):
            answers = await self.assigner.assign(self.waiting())
            if not any(isinstance(each, Changed) for each in answers):
                return answers
        raise AssertionError("it does not end")


def add(
    memory: Memory, name: str, *, namespace: str = "shop", ports: tuple[int, ...] = (80,), **spec: Any
) -> None:
    body = {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"type": "LoadBalancer", "ports": [{"port": port} for port in ports], **spec},
    }
    memory.put((SERVICES.plural, namespace, name), body)


def addresses(memory: Memory, name: str, namespace: str = "shop") -> str:
    obj = memory.objects[SERVICES.plural, namespace, name]
    return str(obj["metadata"].get("annotations", {}).get(ADDRESSES, ""))


def change(memory: Memory, name: str, *, a: str | None = None, **spec: Any) -> None:
    """Change a Service as its user does; `a` "" takes the annotation away."""
    key = (SERVICES.plural, "shop", name)
    found = copy_json(memory.objects[key])
    if a is not None:
        found["metadata"]["annotations"][ADDRESSES] = a
    memory.put(key, {**found, "spec": {**found["spec"], **spec}})


async def test_many_that_wait_are_served_in_one_write_of_the_ledger_the_oldest_first() -> None:
    memory = Memory()
    provider = Provider(memory)
    for name in ("b", "a"):
        add(memory, name)
        memory.pass_time(1)
    before = len([key for key in memory.objects if key == LEDGER])
    writes: list[str] = []
    memory.listeners.append(lambda change: writes.append(change.plural))
    answers = await provider.serve()
    assert before == 0
    assert [(each.service.name, [*map(format_address, each.addresses)]) for each in answers] == [
        ("b", ["10.0.0.1"]),
        ("a", ["10.0.0.2"]),
    ]
    # It is made, the Services that wait are written anew, it is opened; then come the addresses.
    assert writes == [
        "configmaps",
        "services",
        "services",
        "configmaps",
        "configmaps",
        "services",
        "services",
    ]
    writes.clear()
    again = await Provider(memory).serve()
    assert writes == [], "a restart writes nothing"
    assert all(isinstance(each, Granted) and not each.is_written for each in again)


async def test_what_another_provider_chose_is_entered_with_one_write_and_none_of_a_service() -> None:
    memory = Memory()
    provider = Provider(memory)
    await provider.serve()
    add(memory, "web", loadBalancerIP="10.0.0.7")
    key = (SERVICES.plural, "shop", "web")
    metadata = {
        **memory.objects[key]["metadata"],
        "annotations": {ADDRESSES: "10.0.0.7"},
        "labels": {"implementation": "kube-vip"},
        "finalizers": ["service.kubernetes.io/load-balancer-cleanup"],
    }
    memory.put(key, {**memory.objects[key], "metadata": metadata})
    writes: list[str] = []
    memory.listeners.append(lambda change: writes.append(change.plural))
    await provider.serve()
    assert writes == ["configmaps"]
    assert [format_address(each) for each in parse_ledger(memory.objects[LEDGER]).entries] == ["10.0.0.7"]


async def test_what_anybody_carries_is_not_given_out() -> None:
    memory = Memory()
    add(memory, "static", loadBalancerIP="10.0.0.1")
    add(memory, "theirs", loadBalancerClass="other/class")
    key = (SERVICES.plural, "shop", "theirs")
    memory.put(key, {**memory.objects[key], "status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.2"}]}}})
    add(memory, "web")
    await Provider(memory).serve()
    assert addresses(memory, "web") == "10.0.0.3"


async def test_a_user_who_asks_for_another_address_gets_it_or_is_told_who_has_it() -> None:
    memory = Memory()
    provider = Provider(memory)
    add(memory, "web", ipFamilyPolicy="PreferDualStack")
    memory.pass_time(1)
    add(memory, "other")
    await provider.serve()
    assert addresses(memory, "web") == "10.0.0.1,2001:db8::1"
    change(memory, "web", loadBalancerIP="10.0.0.2")
    answers = await provider.serve()
    assert [(each.reason, each.message) for each in answers if isinstance(each, Refused)] == [
        ("AddressInUse", "10.0.0.2 is in use by shop/other")
    ]
    assert addresses(memory, "web") == "10.0.0.1,2001:db8::1"
    change(memory, "web", loadBalancerIP="10.0.0.8")
    await provider.serve()
    assert addresses(memory, "web") == "10.0.0.8,2001:db8::1", "the other family is kept"
    await provider.serve()
    assert addresses(memory, "web") == "10.0.0.8,2001:db8::1", "and it stays there"


async def test_what_is_taken_away_is_restored_and_families_come_and_go() -> None:
    memory = Memory()
    provider = Provider(memory)
    add(memory, "web")
    await provider.serve()
    change(memory, "web", a="")
    await provider.serve()
    assert addresses(memory, "web") == "10.0.0.1"
    change(memory, "web", loadBalancerIP="")
    await provider.serve()
    assert memory.objects[SERVICES.plural, "shop", "web"]["spec"]["loadBalancerIP"] == "10.0.0.1"
    change(memory, "web", ipFamilyPolicy="RequireDualStack", ipFamilies=["IPv4", "IPv6"])
    await provider.serve()
    assert addresses(memory, "web") == "10.0.0.1,2001:db8::1"
    change(memory, "web", ipFamilyPolicy="SingleStack", ipFamilies=["IPv4"])
    await provider.serve()
    assert addresses(memory, "web") == "10.0.0.1"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({}, "NoPool"),
        ({"cidr-global": "nonsense"}, "PoolUnusable"),
        ({"cidr-global": ""}, "PoolUnusable"),
        ({"cidr-global": "10.0.0.1", "draining-global": "true"}, "PoolUnusable"),
        ({"cidr-global": "2001:db8::1"}, "PoolFull"),
    ],
)
async def test_who_waits_is_told_for_what_and_served_when_the_key_is_corrected(
    data: dict[str, str], reason: str
) -> None:
    memory = Memory()
    provider = Provider(memory, data=data)
    add(memory, "web", ipFamilies=["IPv4"])
    (answer,) = await provider.serve()
    assert isinstance(answer, Refused)
    assert answer.reason == reason
    provider.data = dict(DATA)
    await provider.serve()
    assert addresses(memory, "web") == "10.0.0.1"


async def test_a_pool_that_is_draining_or_gone_moves_nobody() -> None:
    memory = Memory()
    provider = Provider(memory)
    add(memory, "web")
    await provider.serve()
    provider.data = {"cidr-global": "10.9.0.0/24", "draining-global": "true"}
    (answer,) = await provider.serve()
    assert isinstance(answer, Granted)
    assert addresses(memory, "web") == "10.0.0.1"


async def test_dhcp_and_the_interface() -> None:
    memory = Memory()
    provider = Provider(memory, data={"cidr-shop": "0.0.0.0/32", "interface-global": "eth1"})
    add(memory, "web")
    await provider.serve()
    made = memory.objects[SERVICES.plural, "shop", "web"]
    assert (addresses(memory, "web"), made["spec"]["loadBalancerIP"]) == ("0.0.0.0", "0.0.0.0")
    assert made["metadata"]["annotations"]["kube-vip.io/serviceInterface"] == "eth1"
    assert parse_ledger(memory.objects[LEDGER]).entries == {}


async def test_services_share_where_every_namespace_allows_it() -> None:
    memory = Memory()
    provider = Provider(memory, data=DATA | {"allow-share-shop": "true", "allow-share-bank": "true"})
    add(memory, "web", ports=(80,))
    add(memory, "dns", ports=(53,), namespace="bank")
    add(memory, "proud", ports=(99,), namespace="castle")
    await provider.serve()
    assert addresses(memory, "web") == addresses(memory, "dns", "bank") == "10.0.0.1"
    assert addresses(memory, "proud", "castle") == "10.0.0.2"


class Judge:
    """Looks at every revision: of the addresses that a provider wrote none has two holders that may not share it."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.by_users: set[str] = set()
        self.violations: list[str] = []
        memory.listeners.append(lambda _change: self._look())

    def _look(self) -> None:
        holders: dict[str, list[str]] = {}
        for key, obj in self.memory.objects.items():
            if key[0] == SERVICES.plural and obj["spec"].get("type") == "LoadBalancer":
                for address in parse_service(obj).annotated:
                    holders.setdefault(format_address(address), []).append(key[2])
        for address, names in holders.items():
            if len(names) > 1 and not self.by_users & set(names):
                self.violations.append(f"{address}: {names}")


def every_tenant(ledger: Ledger) -> list[tuple[Address, Entry]]:
    return [(address, entry) for address, each in ledger.entries.items() for entry in each.values()]


async def work(memory: Memory, chance: Random, stop: asyncio.Event) -> None:
    """One provider that is killed again and again, and started anew."""
    while not stop.is_set():
        running = Provider(memory, chance=Random(chance.random()))
        for _ in range(chance.randrange(1, 12)):
            try:
                await running.assigner.assign(running.waiting())
                await running.ledger.prune(every_tenant)
            except FipopError:
                continue
            await asyncio.sleep(0)


async def play(memory: Memory, chance: Random) -> None:
    """Services come and go, and now and then somebody deletes the ledger."""
    for number in range(80):
        for _ in range(chance.randrange(120)):
            await asyncio.sleep(0)
        names = services_of(memory)
        if names and chance.random() < 0.3:
            memory.remove((SERVICES.plural, "shop", chance.choice(names)))
        elif names and chance.random() < 0.5:
            change(memory, chance.choice(names), selector={"run": str(number)})
        else:
            add(memory, f"s{number}")
        if chance.random() < 0.15 and LEDGER in memory.objects:
            memory.remove(LEDGER)


def services_of(memory: Memory) -> list[str]:
    return [key[2] for key in memory.objects if key[0] == SERVICES.plural]


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
    for name in services_of(memory)[9:]:
        memory.remove((SERVICES.plural, "shop", name))
    last = Provider(memory)
    await last.ledger.read()
    for _ in range(3):
        await last.serve()
        await last.ledger.prune(every_tenant)
    await last.serve()
    served = [addresses(memory, name) for name in services_of(memory)]
    assert all(served)
    assert len(set(served)) == len(served)
    held = {format_address(each) for each in parse_ledger(memory.objects[LEDGER]).entries}
    assert held == set(served), "nothing leaks"


class Slow(Provider):
    """A provider whose writes of one kind are frozen, right before they are done, until `go_on`."""

    def __init__(self, memory: Memory, frozen: str) -> None:
        super().__init__(memory)
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()
        before = self.client._before

        async def freeze(verb: str, resource: Any, name: str) -> None:
            await before(verb, resource, name)
            if verb == "replace" and resource.plural == frozen and not self.reached.is_set():
                self.reached.set()
                await self.go_on.wait()

        self.client._before = freeze  # type: ignore[method-assign]

    async def begin(self) -> asyncio.Task[Any]:
        """Serve who waits, and come back when a write is frozen."""
        running = asyncio.create_task(self.assigner.assign(self.waiting()))
        await asyncio.wait_for(self.reached.wait(), 5)
        return running

    async def end(self, running: asyncio.Task[Any]) -> None:
        self.go_on.set()
        await running


async def with_ledger() -> Memory:
    memory = Memory()
    await Provider(memory).serve()  # a ledger that is open
    add(memory, "web")
    return memory


async def freeze_between_entry_and_service() -> Memory:
    """A write of the Service is frozen; the user changes the Service, and others look after the ledger meanwhile."""
    memory = await with_ledger()
    slow = Slow(memory, SERVICES.plural)
    running = await slow.begin()
    other = Provider(memory)
    await other.ledger.prune(every_tenant)
    add(memory, "other")
    await other.assigner.assign([each for each in other.waiting() if each["metadata"]["name"] == "other"])
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
    await other.ledger.prune(every_tenant)
    add(memory, "other")
    await other.assigner.assign([each for each in other.waiting() if each["metadata"]["name"] == "other"])
    await slow.end(running)
    return memory


async def change_while_frozen() -> Memory:
    """The Service changes while its write is frozen, and its entry goes: that write must fail."""
    memory = await with_ledger()
    slow = Slow(memory, SERVICES.plural)
    running = await slow.begin()
    change(memory, "web", selector={"run": "web"})
    other = Provider(memory)
    assert await other.ledger.prune(every_tenant) == 1
    add(memory, "other")
    await other.assigner.assign([each for each in other.waiting() if each["metadata"]["name"] == "other"])
    await slow.end(running)
    return memory


async def freeze_the_swap() -> Memory:
    """Two providers choose from the same ledger; the swap of the first comes last."""
    memory = await with_ledger()
    slow = Slow(memory, CONFIG_MAPS.plural)
    await slow.ledger.read()
    running = await slow.begin()
    add(memory, "other")
    other = Provider(memory)
    await other.assigner.assign([each for each in other.waiting() if each["metadata"]["name"] == "other"])
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
    for _ in range(2):  # the ledger is made and opened first
        await other.assigner.assign([each for each in other.waiting() if each["metadata"]["name"] == "other"])
    await slow.end(running)
    return memory


def removes_at_once(_address: Address, _entry: Entry, _live: Json | None) -> bool:
    return True


def without_version(obj: Json, *arguments: Any, **options: Any) -> Json:
    made: Json = services.assigned(obj, *arguments, **options)
    return {**made, "metadata": {**made["metadata"], "resourceVersion": None}}


def swaps_blindly(ledger: Ledger) -> Json:
    made = render_ledger(ledger)
    return {**made, "metadata": {**made["metadata"], "resourceVersion": None}}


def knows_no_version(ledger: Ledger, address: Address, entry: Entry, _service: Service) -> bool:
    return entry.uid in ledger.entries.get(address, {})


def opens_at_once(obj: Json) -> Ledger:
    return replace(parse_ledger(obj), is_open=True)


STORIES = {
    freeze_between_entry_and_service: ("fipop.cloudprovider.ledger.may_remove", removes_at_once),
    freeze_after_a_retry: ("fipop.cloudprovider.assigning._is_entered", knows_no_version),
    change_while_frozen: ("fipop.cloudprovider.assigning.assigned", without_version),
    freeze_the_swap: ("fipop.cloudprovider.ledger.render_ledger", swaps_blindly),
    delete_the_ledger_while_frozen: ("fipop.cloudprovider.ledger.parse_ledger", opens_at_once),
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
    given = [addresses(memory, name) for name in ("web", "other") if addresses(memory, name)]
    assert given
    assert (len(set(given)) < len(given)) is is_broken, given
