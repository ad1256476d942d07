"""A provider's term: nobody is served before the ledger is ready, and what is heard wakes whom it concerns."""

import asyncio
from datetime import datetime, timedelta
from random import Random
from typing import Any

from fipop.cloudprovider.pools import PoolKeys
from fipop.cloudprovider.service_cache import ServiceCache
from fipop.cloudprovider.term import ProviderTerm
from fipop.errors import ApiServerError
from fipop.kube.client import Listing
from fipop.kube.resources import CONFIG_MAPS, SERVICES
from fipop.metrics.services import ServiceMetrics, ServiceSnapshot
from tests.harness.background import running, until
from tests.harness.memory import Memory, copy_json
from tests.harness.recorded_events import RecordedEvents
from tests.harness.small_provider import LEDGER, add, addresses, change
from tests.harness.virtual_time import in_virtual_time
from tests.unit.cloudprovider.ledgers import Prompt

KEYS = PoolKeys({"cidr-global": "10.0.0.1-10.0.0.2"})


class Guest(Prompt):
    """A guest's API server; `refused` tells how many creations of the ledger fail."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory)
        self.refused = 0
        self.services = ServiceCache(self)
        self.services._loaded.set()
        memory.listeners.append(self._hear)

    async def list(self, _resource: object, **_: object) -> Any:
        items = [copy_json(obj) for key, obj in self._memory.objects.items() if key[0] == SERVICES.plural]
        return Listing(items=tuple(items), resource_version=9)

    async def _before(self, verb: str, resource: Any, name: str) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        if verb == "create" and self.refused:
            self.refused -= 1
            raise ApiServerError(verb=verb, kind=resource.kind, name=name, status=500)

    def _hear(self, change: Any) -> None:
        if change.plural == SERVICES.plural and change.obj is not None:
            self.services.take(change.obj)


def build(client: Guest) -> ProviderTerm:
    return ProviderTerm(
        client=client,
        services=client.services,
        events=RecordedEvents(),
        metrics=ServiceMetrics(lambda: ServiceSnapshot(leading=True), version="0"),
        class_name=None,
        writes_at_once=4,
        random=Random(1),
    )


class Timed(Guest):
    """A guest whose API server's clock is the loop's."""

    def server_now(self) -> datetime:
        return self._memory.now + timedelta(seconds=asyncio.get_running_loop().time())


async def test_who_was_there_and_who_comes_are_served_once_the_ledger_could_be_made() -> None:
    before = asyncio.all_tasks()
    memory = Memory()
    client = Guest(memory)
    client.refused = 1
    add(memory, "first")
    term = build(client)
    async with running(term.run(KEYS)):
        await until(lambda: addresses(memory, "first"), "who was there to be served")
        assert LEDGER in memory.objects
        add(memory, "second")
        await until(lambda: addresses(memory, "second"), "who comes to be served")
        found = term.snapshot()
        assert [(each.key, each.total, each.used) for each in found.pools] == [("cidr-global", 2, 2)]
    add(memory, "third")
    assert addresses(memory, "third") == ""
    assert asyncio.all_tasks() <= before, "a term that ended leaves nothing that could serve"


async def test_who_waits_is_served_when_the_keys_change() -> None:
    memory = Memory()
    client = Guest(memory)
    for name in ("a", "b", "c"):
        add(memory, name)
    term = build(client)
    async with running(term.run(KEYS)):
        await until(lambda: sum(bool(addresses(memory, name)) for name in "abc") == 2, "two to be served")
        await until(lambda: term.snapshot().waiting == 1, "one to wait")
        term.take_keys(PoolKeys({"cidr-global": "10.0.0.1-10.0.0.3"}))
        await until(lambda: all(addresses(memory, name) for name in "abc"), "all to be served")
    assert (CONFIG_MAPS.plural, *LEDGER[1:]) == LEDGER


async def test_a_deleted_service_that_shows_nothing_but_the_finalizer_is_let_go_after_a_restart_too() -> None:
    memory = Memory()
    client = Guest(memory)
    key = (SERVICES.plural, "shop", "web")
    add(memory, "web", type="ClusterIP")
    finalizers = ["service.kubernetes.io/load-balancer-cleanup"]
    found = memory.objects[key]
    memory.put(key, {**found, "metadata": {**found["metadata"], "finalizers": finalizers}})
    memory.delete(key)
    memory.pass_time(600)
    async with running(build(client).run(KEYS)):
        await until(lambda: key not in memory.objects, "it to go")


@in_virtual_time
async def test_who_waits_is_served_when_a_service_on_the_address_gives_up_the_port_in_common() -> None:
    memory = Memory()
    keys = PoolKeys({"cidr-global": "10.0.0.1/32", "allow-share-global": "true"})
    async with running(build(Guest(memory)).run(keys)):
        add(memory, "two", ports=(80, 443))
        await until(lambda: addresses(memory, "two"), "the first to be served")
        add(memory, "one", ports=(80,))
        await asyncio.sleep(5)
        assert not addresses(memory, "one")
        change(memory, "two", ports=[{"port": 443}])
        await until(lambda: addresses(memory, "one") == "10.0.0.1", "the other to be served")


@in_virtual_time
async def test_who_waits_is_served_when_a_service_on_the_address_needs_none_any_more() -> None:
    """Its annotation stays: a user wrote it."""
    memory = Memory()
    async with running(build(Timed(memory)).run(PoolKeys({"cidr-global": "10.0.0.1/32"}))):
        await asyncio.sleep(1)
        add(memory, "static", ports=(80,), loadBalancerIP="10.0.0.1")
        change(memory, "static", a="10.0.0.1")
        await asyncio.sleep(5)
        add(memory, "web", ports=(80,))
        await asyncio.sleep(5)
        assert not addresses(memory, "web")
        change(memory, "static", type="ClusterIP")
        await until(lambda: addresses(memory, "web") == "10.0.0.1", "who waits to be served")
