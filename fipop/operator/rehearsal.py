"""What an operator would do if it started now, played out in memory: the product's own term, and no write goes out.

The rounds over objects are the real ones, in the real order: who has an address claims it, the oldest first; the guests
are looked at, where the reader may; then what is left is decided. Passes over guests, which write them, never begin.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from random import SystemRandom
from typing import Any

from fipop.api.conditions import format_time
from fipop.errors import ApiAlreadyExistsError, ApiConflictError, ApiNotFoundError, FipopError
from fipop.guest.guest_pass import GuestSessions
from fipop.guest.helm.chart_cache import ChartCache
from fipop.guest.helm.runner import HelmRunner
from fipop.guest.limits import GuestLimits
from fipop.jsons import Json
from fipop.kube.client import KubeClient, Listing
from fipop.kube.events import EventRecorder
from fipop.kube.resources import FLOATING_IP_RESERVATIONS, Resource
from fipop.metrics.exposition import Metrics
from fipop.metrics.samples import FleetSnapshot
from fipop.operator.configuration import Configuration
from fipop.operator.estate import Estate
from fipop.operator.queues import build_queues
from fipop.operator.term import LeaderTerm
from fipop.runtime.leader_election import LeaderElector
from fipop.state.cache import WATCHED, ClusterCache

SETTLE_SECONDS = 60.0
_NO_PROGRAM = "/nonexistent/helm"
"""No pass begins, so no helm runs."""

_Key = tuple[str, str, str]


class RehearsalClient(KubeClient):
    """The API as it would be: our objects in memory, where writes go; everything else is read where it is."""

    def __init__(self, real: KubeClient, listings: Mapping[Resource, Listing[Json]]) -> None:
        self._real = real
        self._objects: dict[_Key, Json] = {
            _key(resource, each["metadata"].get("namespace"), each["metadata"]["name"]): each
            for resource, listing in listings.items()
            for each in listing.items
        }
        latest = max((listing.resource_version for listing in listings.values()), default=0)
        self._versions = itertools.count(latest + 1)
        self.writes = 0

    def server_now(self) -> datetime:
        """Return the real API server's time."""
        return self._real.server_now()

    async def get(self, resource: Resource, name: str, **options: Any) -> Json | None:
        """Return one of our objects as it would be, any other as it is."""
        if resource not in WATCHED:
            return await self._real.get(resource, name, **options)
        return self._objects.get(_key(resource, options.get("namespace"), name))

    async def create(self, resource: Resource, body: Json, *, namespace: str | None = None) -> Json:
        """Make an object in memory."""
        metadata = body["metadata"]
        key = _key(resource, namespace or metadata.get("namespace"), metadata["name"])
        if key in self._objects:
            raise ApiAlreadyExistsError(verb="create", kind=resource.kind, name=key[2], status=409)
        made = {
            "uid": f"rehearsed-{next(self._versions)}",
            "creationTimestamp": format_time(self.server_now()),
            "generation": 1,
        }
        return self._put(key, {**body, "metadata": {**metadata, **made}})

    async def replace(self, resource: Resource, body: Json, *, subresource: str | None = None) -> Json:
        """Replace an object in memory."""
        metadata = body["metadata"]
        key = _key(resource, metadata.get("namespace"), metadata["name"])
        found = self._find("replace", resource, key, metadata)
        if subresource is not None:
            return self._put(key, {**found, subresource: body.get(subresource)})
        return self._put(key, {**body, "metadata": {**found["metadata"], **metadata}})

    async def merge_patch(
        self,
        resource: Resource,
        name: str,
        patch: Json,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> Json:
        """Patch an object in memory."""
        key = _key(resource, namespace, name)
        found = self._find("patch", resource, key, patch.get("metadata") or {})
        if subresource:
            return self._put(key, _merge(found, {subresource: patch.get(subresource)}))
        merged = _merge(found, patch)
        if merged.get("spec") != found.get("spec"):
            generation = int(found["metadata"].get("generation") or 0) + 1
            merged["metadata"] = {**merged["metadata"], "generation": generation}
        return self._put(key, merged)

    async def delete(self, resource: Resource, name: str, *, namespace: str | None = None, **_: Any) -> bool:
        """Delete an object in memory."""
        self.writes += 1
        return self._objects.pop(_key(resource, namespace, name), None) is not None

    def _find(self, verb: str, resource: Resource, key: _Key, wanted: Json) -> Json:
        found = self._objects.get(key)
        if found is None:
            raise ApiNotFoundError(verb=verb, kind=resource.kind, name=key[2], status=404)
        for field in ("resourceVersion", "uid"):
            if wanted.get(field) not in (None, found["metadata"].get(field)):
                raise ApiConflictError(verb=verb, kind=resource.kind, name=key[2], status=409)
        return found

    def _put(self, key: _Key, obj: Json) -> Json:
        self.writes += 1
        metadata = {**obj["metadata"], "resourceVersion": str(next(self._versions))}
        self._objects[key] = {**obj, "metadata": metadata}
        return self._objects[key]


class RehearsalError(FipopError):
    """A rehearsal did not come to its end in time."""


async def rehearse(
    client: KubeClient,
    *,
    namespace: str,
    ours_since: datetime | None,
    ask_guests: bool,
    allow_loopback: bool = False,
    progress: Callable[[str], None] = lambda _step: None,
) -> ClusterCache:
    """Play out a start of the operator on what is there now; return what its cache would hold.

    Raises ApiError where that cannot be read, RehearsalError where guests or rounds take too long.

    `ours_since` is since when our CRDs are there; None: they are not yet. `ask_guests`: look at what guests carry, as
    an operator does before it gives out anything new; without it, addresses that only guests know of count as free.
    """
    progress("reading")
    # Reservations first, owners after them, as the operator does.
    listings: dict[Resource, Listing[Any]] = {each: await _list(client, each) for each in WATCHED}
    rehearsal = RehearsalClient(client, listings)
    cache = ClusterCache()
    for resource, listing in listings.items():
        cache.feed(resource).take_list(listing, seen_before=0)
    cache.inheritance.ours_since = ours_since or client.server_now() + timedelta(seconds=1)
    estate = _build_estate(rehearsal, cache, namespace, allow_loopback=allow_loopback)
    try:
        term = LeaderTerm(estate, build_queues(_metrics(), SystemRandom()))
        await _play(term, ask_guests=ask_guests, progress=progress)
    finally:
        await estate.sessions.close()
    return cache


async def _play(term: LeaderTerm, *, ask_guests: bool, progress: Callable[[str], None]) -> None:
    """Let a term do all that it does about objects, until nothing is left to do."""
    rounds = asyncio.create_task(term.queues.objects.run(term.reconcile, concurrency=1))
    scan: asyncio.Task[None] | None = None
    try:
        term.begin()
        progress("adopting")
        await term.adoption.adopt_all()
        if ask_guests:
            progress("Reading the guest clusters")
            scan = asyncio.create_task(term.scan.run())
            await _until(lambda: term.scan.has_asked_all)
            term.gate.awaited.clear()
        else:
            term.gate.is_shut = False
        progress("Deciding on the remaining floating IPs")
        term.first_rounds.enqueue_unsettled()
        term.first_rounds.enqueue_settled()
        async with asyncio.timeout(SETTLE_SECONDS):
            await term.queues.objects.wait_idle()
    except TimeoutError as error:
        raise RehearsalError("the dry run did not finish in time. Run it again") from error
    finally:
        term.end()
        for task in (rounds, scan):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


async def _list(client: KubeClient, resource: Resource) -> Listing[Json]:
    try:
        return await client.list(resource)
    except ApiNotFoundError:
        # kube-fip-operator knows no reservations; before our CRDs came there are none.
        if resource != FLOATING_IP_RESERVATIONS:
            raise
        return Listing(items=(), resource_version=0)


async def _until(is_reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(2 * SETTLE_SECONDS):
        while not is_reached():  # noqa: ASYNC110 - the gate has no event
            await asyncio.sleep(0.05)


def _build_estate(
    client: RehearsalClient, cache: ClusterCache, namespace: str, *, allow_loopback: bool
) -> Estate:
    """Return what outlives a term; its events are recorded for nobody, and it never leads, so no guest is written."""
    events = EventRecorder(client)
    helm = HelmRunner(_NO_PROGRAM)
    return Estate(
        cache=cache,
        client=client,
        events=events,
        configuration=Configuration(client=client, events=events, namespace=namespace, defaults={}),
        elector=LeaderElector(None, random=SystemRandom()),
        metrics=_metrics(),
        sessions=GuestSessions(
            GuestLimits(helm=helm, charts=ChartCache(helm), allow_loopback=allow_loopback)
        ),
    )


def _metrics() -> Metrics:
    return Metrics(lambda: FleetSnapshot(leading=False), version="rehearsal")


def _key(resource: Resource, namespace: object, name: str) -> _Key:
    return f"{resource.group}/{resource.plural}", str(namespace or ""), name


def _merge(target: Any, patch: Any) -> Any:
    """Merge as RFC 7386 has it."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged
