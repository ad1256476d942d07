"""The Services of this cluster as they are known, and what else in it has addresses: nodes and the API server."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, TypeVar

from fipop.api.service import Service, parse_service
from fipop.cloudprovider.allocate import User
from fipop.errors import ForbiddenError
from fipop.ipam.addresses import Address
from fipop.ipam.machines import read_endpoints, read_node
from fipop.jsons import Json, JsonView
from fipop.kube.client import KubeClient
from fipop.kube.resources import ENDPOINTS, NODES, SERVICES
from fipop.runtime.informer import Informer
from fipop.runtime.store import Change, Store

logger = logging.getLogger(__name__)

T = TypeVar("T")

_READ = "read"

Listener = Callable[[Change[Service]], None]


class ServiceCache:
    """Knows all Services, by a list, a watch and the answers of our own reads and writes.

    It reports each change to `listeners`. `follow` raises RestoredStoreError if the API server's store was restored
    from a backup.
    """

    def __init__(self, client: KubeClient, *, random: Random) -> None:
        self.store: Store[Service] = Store(_read_listed, kind="Service")
        self.listeners: list[Listener] = []
        self._random = random
        self._informer = Informer(client, SERVICES, self.store, self._report, trim=_trim)
        self.loaded = self._informer.loaded
        """All Services were listed once."""

    async def follow(self) -> None:
        """Keep up with the API server, for ever."""
        await self._informer.run(self._random)

    async def load(self, client: KubeClient) -> None:
        """List all Services now; what the answer shows is known from then on."""
        for obj in (await client.list(SERVICES, project=_trim)).items:
            self._report(self.store.put(obj))

    async def get(self, client: KubeClient, namespace: str, name: str, uid: str) -> Json | None:
        """Read a Service; None if it, the very one with this uid, does not exist any more."""
        live = await client.get(SERVICES, name, namespace=namespace)
        if live is None:
            return None
        self._report(self.store.put(live))
        return live if live["metadata"]["uid"] == uid else None

    async def replace(
        self, client: KubeClient, body: dict[str, Any], *, subresource: str | None = None
    ) -> None:
        """Replace a Service at the version of the body, but for `managedFields`, which the API server keeps.

        They are most of a Service with thousands of ports.
        """
        meta = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
        made = await client.replace(SERVICES, {**body, "metadata": meta}, subresource=subresource)
        self._report(self.store.put(made))

    def _report(self, change: Change[Service] | None) -> None:
        if change is not None:
            for listener in self.listeners:
                listener(change)


def _trim(obj: Json) -> Json:
    """Keep of a listed Service what is read of it, and what a store knows it by: users write large ones."""
    known = {name: obj["metadata"].get(name) for name in ("namespace", "name", "resourceVersion")}
    return {"metadata": known, _READ: parse_service(obj)}


def _read_listed(obj: JsonView) -> Service:
    service: Service = obj[_READ] if _READ in obj else parse_service(obj)
    return service


class Machines:
    """Lists what has addresses beside Services: nodes, and the API server by its Endpoints.

    Without the right to list them a provider works, as with kube-vip-cloud-provider's former roles; it says so once.
    """

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._forbidden: set[str] = set()

    async def list(self) -> dict[str, tuple[User, frozenset[Address]]]:
        """Return each with its addresses, by a uid. Raises: ApiError."""
        nodes = await self._ask("nodes", self._client.list(NODES, project=read_node))
        server = await self._ask("endpoints", self._client.get(ENDPOINTS, "kubernetes", namespace="default"))
        named = {f"node/{name}": (f"Node {name}", each) for name, each in (nodes.items if nodes else ())}
        named["endpoints/kubernetes"] = "the API server", read_endpoints(server or {})
        return {uid: (User(uid=uid, name=name), each) for uid, (name, each) in named.items()}

    async def _ask(self, resource: str, question: Awaitable[T]) -> T | None:
        try:
            return await question
        except ForbiddenError:
            if resource not in self._forbidden:
                self._forbidden.add(resource)
                fields = {"resource": resource}
                logger.warning("Could not list resource: its addresses do not count as in use", extra=fields)
            return None
