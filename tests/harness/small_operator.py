"""The parts of the operator as the program puts them together, over an API server in memory: a SIMULATION.

The leader's term with all its parts, and the cache, are the product's. Queue, watch and clock are the test's: every
event arrives at once, `settle` works until nothing is left to do, `pass_time` moves the clock. No guest is written.
"""

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from functools import partial
from random import Random
from typing import Any

from fipop.backoff import Backoff
from fipop.errors import ApiServerError, FipopError
from fipop.kube.client import Listing
from fipop.kube.resources import (
    FLOATING_IP_RANGES,
    FLOATING_IP_RESERVATIONS,
    FLOATING_IPS,
    MANAGEMENT_CLUSTERS,
    NAMESPACES,
    PROVISIONING_CLUSTERS,
    Resource,
)
from fipop.operator.manager import Manager
from fipop.operator.queues import Key
from fipop.operator.startup import adopt_all
from fipop.runtime.relist import EventType
from fipop.runtime.workqueue import RetryAfter
from fipop.settings.options import parse_settings, settings_data
from fipop.state.cache import WATCHED, ClusterCache
from tests.harness.history import Change
from tests.harness.memory import Json, Memory, MemoryClient, copy_json
from tests.harness.small_cluster import SmallCluster
from tests.harness.terms import FakeConfiguration, Pending, build_manager, queues_of

MAX_ROUNDS = 5_000
"""After so many rounds without a pause something goes round in a circle."""

_WATCHED = {
    each.plural: each for each in (FLOATING_IP_RANGES, FLOATING_IPS, FLOATING_IP_RESERVATIONS, NAMESPACES)
}


class PromptClient(MemoryClient):
    """Answers without a pause.

    `failures` tells how many of the next calls of a verb fail; `on_commit` is told the verb of what was written, while
    its answer is on the way.
    """

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory, Random(1), trouble=0.0)
        self.failures: Counter[str] = Counter()
        self.on_commit: Callable[[str], None] | None = None

    async def _before(self, verb: str, resource: Resource, name: str) -> None:
        if self.failures[verb] > 0:
            self.failures[verb] -= 1
            raise ApiServerError(verb=verb, kind=resource.kind, name=name, status=500)

    async def _after(self, *arguments: Any) -> Json:
        answer: Json = copy_json(arguments[-1])
        if self.on_commit is not None:
            self.on_commit(arguments[0])
        return answer


class SmallOperator(SmallCluster):
    """One operator that leads from `start` on; what is there by then it finds as after a restart.

    One that comes after a `former` one knows nothing but what that has stored. A test that wants to know what it writes
    and reports gives it a `client` and `record_event` of its own. `asks_at_once`: guests that are to be asked are
    asked before other rounds; none of them may hang then.
    """

    def __init__(
        self,
        former: "SmallOperator | None" = None,
        *,
        client: Callable[[Memory], PromptClient] = PromptClient,
        record_event: Callable[..., None] = lambda *_: None,
        asks_at_once: bool = False,
    ) -> None:
        super().__init__()
        if former is not None:
            self.memory, self.carried = former.memory, former.carried
            self.memory.listeners.clear()
        self.client = client(self.memory)
        self.configuration = FakeConfiguration()
        self.deaf = False
        self._revision = 0
        self._timers: dict[Key, float] = {}
        self.pending = Pending(self._put_off)
        self.cache = ClusterCache(monotonic=lambda: self.memory.now.timestamp())
        self.build_manager = partial(
            build_manager,
            self.cache,
            self.client,
            configuration=self.configuration,
            sessions=self.carried,
            record_event=record_event,
        )
        self.manager = self._build()
        self._has_led = False
        self._asks_at_once = asks_at_once
        self.memory.listeners.append(self._hear)
        for (plural, namespace, name), each in self.memory.objects.items():
            version = int(each["metadata"]["resourceVersion"])
            self._hear(
                Change(revision=version, at=0.0, plural=plural, namespace=namespace, name=name, obj=each)
            )

    def miss(self, resource: Resource, guest_ids: Collection[str]) -> None:
        """Have what guests have of a kind gone, which only a list shows."""
        self.deaf = True
        for key, each in list(self.memory.objects.items()):
            owner = key[1] or ((each.get("spec") or {}).get("owner") or {}).get("namespace")
            if key[0] == resource.plural and owner in guest_ids:
                self.memory.remove(key)
        self.deaf = False
        left = tuple(each for key, each in self.memory.objects.items() if key[0] == resource.plural)
        feed = self.cache.feed(resource)
        listing = Listing(items=left, resource_version=self._revision)
        feed.take_list(listing, seen_before=feed.store.highest_version)

    def remove_unseen(self, reservation: str) -> None:
        """Delete a reservation whose event is still on its way."""
        self.deaf = True
        self.remove_reservation(reservation)
        self.deaf = False

    async def start(self) -> None:
        """Take the lead, adopt, look at the guests, and come to rest."""
        await self.adopt()
        await self.look()

    async def adopt(self) -> None:
        """Take the lead, and come to rest as far as that is possible before the guests were looked at."""
        self.take_lead()
        manager = self.manager
        await adopt_all(manager.guests, manager.gate, manager.floating_ips.reconcile)
        self.manager.enqueue_all()
        await self.settle()

    def take_lead(self) -> None:
        """Begin a term, which knows nothing of the one before."""
        if self._has_led:
            self.manager.end()
            self.manager = self._build()
        self._has_led = True
        self.manager.begin()

    async def set_options(self, **options: str) -> None:
        """Change options of kube-fip-config as an admin does, and come to rest."""
        before = self.configuration.settings
        after, bad = parse_settings(settings_data(before) | options, before)
        assert not bad, bad
        self.configuration.settings = after
        self.manager.settings_changed(before, after)
        await self.settle()
        listing = asyncio.create_task(self.manager.list_for_removal(self.refresh))
        for _ in range(3):
            await asyncio.sleep(0)
        listing.cancel()
        await asyncio.gather(listing, return_exceptions=True)
        await self.settle()

    async def refresh(self) -> None:
        """List everything, as a leader does when it must not rely on its watches."""
        for resource in WATCHED:
            found = [
                each
                for (plural, namespace, _), each in self.memory.objects.items()
                if _resource_of_key(plural, namespace) == resource
            ]
            feed = self.cache.feed(resource)
            listing = Listing(items=tuple(found), resource_version=self._revision)
            feed.take_list(listing, seen_before=feed.store.highest_version)

    def label_unseen(self, guest_id: str, **labels: str) -> None:
        """Put labels on a guest's provisioning Cluster, whose event is still on its way."""
        self.deaf = True
        self.label_guest(guest_id, **labels)
        self.deaf = False

    async def visit(self, *guest_ids: str) -> None:
        """Make a pass over each guest, and come to rest."""
        for guest_id in guest_ids:
            await self.manager.passes.install(guest_id)
        await self.settle()

    async def look(self) -> None:
        """Have the look at all guests that is due, and come to rest."""
        await self.look_until(lambda: self.manager.gate.looked)
        await self.settle()

    async def look_again(self) -> None:
        """Have another look at all guests, as after a loss."""
        self.manager.scan.require_rescan()
        await self.look()

    async def look_until(self, is_reached: Callable[[], bool]) -> None:
        """Look until so much is reached; no other round has a turn meanwhile."""
        looking = asyncio.create_task(self.manager.scan.run())
        try:
            async with asyncio.timeout(100):
                while not is_reached():  # noqa: ASYNC110 - the store has no event for that
                    await asyncio.sleep(0.001)
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def settle(self) -> None:
        """Do rounds until none is wanted now."""
        scan, gate = self.manager.scan, self.manager.gate
        for _ in range(MAX_ROUNDS):
            if scan.has_changed_ranges:
                await self.look_until(lambda: gate.looked)
            if self._asks_at_once and scan.is_asking:
                await self.look_until(lambda: not (scan.is_asking or gate.is_shut))
            if not self.pending.keys:
                return
            key = next(iter(self.pending.keys))
            del self.pending.keys[key]
            await self._round(key)
        raise AssertionError(f"no rest: {list(self.pending.keys)}")

    async def pass_time(self, seconds: float) -> None:
        """Let the clock go on, with every round in between that is due."""
        end = self.memory.now.timestamp() + seconds
        while self._timers and min(self._timers.values()) <= end:
            self._move_to(min(self._timers.values()))
            now = self.memory.now.timestamp()
            for key in [key for key, at in self._timers.items() if at <= now]:
                del self._timers[key]
                self.pending.add(key)
            await self.settle()
        self._move_to(end)

    def take_requests(self) -> tuple[list[Key], list[str]]:
        """Return what was put into the queues, now or for later, and the guests to visit; nothing is done about it."""
        found = [*self.pending.keys, *self._timers], self.take_visits()
        for each in (self.pending.keys, self._timers):
            each.clear()
        return found

    def take_visits(self) -> list[str]:
        """Return the guests to visit; they are not visited."""
        found = [key.name for key in self._visits.keys]
        self._visits.keys.clear()
        return found

    def _put_off(self, key: Key, seconds: float) -> None:
        due = self.memory.now.timestamp() + seconds
        self._timers[key] = min(due, self._timers.get(key, due))

    async def may_write(self, address: str, space: str = "default") -> None:
        """Ask what is asked before an address is written to its guest; raises where it may not be."""
        reservation = self.cache.reservations.get("", f"{space}.{address}")
        assert reservation is not None
        await self.manager.reported.check(reservation)

    async def _round(self, key: Key) -> None:
        try:
            again = await self.manager.reconcile(key)
        except FipopError:
            again = RetryAfter(1.0)
        if again is not None:
            self._timers[key] = math.ceil(self.memory.now.timestamp() + again.seconds)

    def _move_to(self, timestamp: float) -> None:
        self.memory.pass_time(max(0.0, timestamp - self.memory.now.timestamp()))

    # How

    def _build(self) -> Manager:
        self._visits = Pending()
        term = self.build_manager(queues_of(self.pending, self._visits))
        term.reported.backoff = Backoff(first_seconds=0.0, limit_seconds=0.0)
        return term

    def _hear(self, change: Change) -> None:
        self._revision = max(self._revision, change.revision)
        resource = _resource_of(change)
        if self.deaf or resource is None:
            return
        take = self.cache.feed(resource).take_event
        if change.obj is not None:
            take(EventType.MODIFIED, change.obj)
            return
        known = self.cache.store_of(resource).get(change.namespace, change.name)
        metadata = {
            "name": change.name,
            "namespace": change.namespace,
            "resourceVersion": str(change.revision),
            "uid": known.uid if known is not None else "",
        }
        take(EventType.DELETED, {"metadata": metadata})


def _resource_of(change: Change) -> Resource | None:
    """Give the kind of what changed; None: it is not watched."""
    return _resource_of_key(change.plural, change.namespace)


def _resource_of_key(plural: str, namespace: str) -> Resource | None:
    """Give a kind; both kinds of Cluster have the same plural."""
    if plural == PROVISIONING_CLUSTERS.plural:
        return PROVISIONING_CLUSTERS if namespace else MANAGEMENT_CLUSTERS
    return _WATCHED.get(plural)


@contextlib.asynccontextmanager
async def leading(operator: SmallOperator) -> AsyncIterator[None]:
    """Take the lead, knowing nothing, and ask the guests meanwhile."""
    await operator.adopt()
    scanning = asyncio.create_task(operator.manager.scan.run())
    try:
        yield
    finally:
        scanning.cancel()
        await asyncio.gather(scanning, return_exceptions=True)
