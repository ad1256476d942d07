"""The Services of this cluster as they are known: by a list, a watch, and the answers of our own reads and writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from random import Random
from typing import Any

from fipop.cloudprovider.occupancy import ServiceStore
from fipop.cloudprovider.services import Service, parse_service
from fipop.jsons import Json, JsonView
from fipop.kube.client import KubeClient, Listing
from fipop.kube.resources import SERVICES, Resource
from fipop.runtime.list_watch import ListWatch
from fipop.runtime.store import Change

_READ = "read"

Listener = Callable[[Change[Service]], None]


class ServiceCache:
    """Knows all Services, and tells its listeners of every change.

    `follow` raises RestoredStoreError where the API server's store was restored from a backup.
    """

    def __init__(self, client: KubeClient, *, chance: Random | None = None) -> None:
        self.store: ServiceStore = ServiceStore(_read_listed, kind="Service")
        self.listeners: list[Listener] = []
        self._client = client
        self._seen_before = 0
        self._loaded = asyncio.Event()
        self._source = ListWatch(client, SERVICES, project=_trim, on_list=self._note_list, chance=chance)

    @property
    def last_heard_at(self) -> float | None:
        """The monotonic time when the watch showed life last; None before the first list."""
        return self._source.last_heard_at

    @property
    def is_loaded(self) -> bool:
        """Whether all Services were listed once."""
        return self._loaded.is_set()

    async def wait_loaded(self) -> None:
        """Wait until all Services were listed."""
        await self._loaded.wait()

    async def follow(self) -> None:
        """Keep up with the API server, for ever."""
        async with aclosing(self._source.changes()) as changes:
            async for change in changes:
                if isinstance(change, Listing):
                    for each in self.store.resync(change, seen_before=self._seen_before):
                        self._tell(each)
                    self._loaded.set()
                elif change.type == "DELETED":
                    self._tell(self.store.delete(change.object))
                else:
                    self._tell(self.store.put(change.object))

    def take(self, obj: JsonView) -> None:
        """Take in a Service as an answer shows it."""
        self._tell(self.store.put(obj))

    async def list_live(self) -> Sequence[Service]:
        """Ask the API server for all Services; what it shows is known from then on."""
        items = (await self._client.list(SERVICES, project=_trim)).items
        for obj in items:
            self.take(obj)
        return [_read_listed(obj) for obj in items]

    def _note_list(self) -> None:
        self._seen_before = self.store.highest_version

    def _tell(self, change: Change[Service] | None) -> None:
        if change is not None:
            for listener in self.listeners:
                listener(change)


class ServiceDoor:
    """Reads and writes Services; what the answers show is known from then on."""

    def __init__(self, client: KubeClient, services: ServiceCache) -> None:
        self._client = client
        self._services = services

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Json | None:
        """Read a Service live; None where it does not exist."""
        found = await self._client.get(resource, name, namespace=namespace)
        if found is not None:
            self._services.take(found)
        return found

    async def replace(
        self, resource: Resource, body: dict[str, Any], *, subresource: str | None = None
    ) -> Json:
        """Replace a Service at the version of the body, but for `managedFields`, which the API server keeps.

        Of a Service with thousands of ports they are most of it.
        """
        meta = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
        made = await self._client.replace(resource, {**body, "metadata": meta}, subresource=subresource)
        made["metadata"].pop("managedFields", None)
        self._services.take(made)
        return made


def _trim(obj: Json) -> Json:
    """Keep of an object in a list what is read of it, and what a store knows it by: users write large ones."""
    known = {name: obj["metadata"].get(name) for name in ("namespace", "name", "resourceVersion")}
    return {"metadata": known, _READ: parse_service(obj)}


def _read_listed(obj: JsonView) -> Service:
    service: Service = obj[_READ] if _READ in obj else parse_service(obj)
    return service
