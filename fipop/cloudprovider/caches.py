"""What is read of the cluster: all Services, the ConfigMap, and what else has addresses, nodes and the API server."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from fipop.api.codec import format_time
from fipop.api.conditions import ConditionContent
from fipop.api.objects import KubeObject, read_metadata
from fipop.api.service import Service, parse_service
from fipop.cloudprovider.needs import build_found
from fipop.cloudprovider.usage import User
from fipop.errors import ConflictError, FipopError, ForbiddenError
from fipop.ipam.addresses import Address, format_address
from fipop.ipam.machines import read_endpoints, read_node
from fipop.jsons import Json, JsonView
from fipop.kube.client import KubeClient
from fipop.kube.events import Named
from fipop.kube.resources import CONFIG_MAPS, ENDPOINTS, NODES, SERVICES
from fipop.runtime.informer import Informer
from fipop.runtime.store import Change, Store
from fipop.runtime.workqueue import RetryAfter

logger = logging.getLogger(__name__)

T = TypeVar("T")

SOON = RetryAfter(0.05)
"""Until the watch has shown what a read showed already."""
_READ = "read"


class ServiceCache:
    """Knows all Services, by a list, a watch and the answers of our own reads and writes.

    It calls `changed` with each change. `follow` raises RestoredStoreError if the API server's store was restored from
    a backup.
    """

    def __init__(
        self, client: KubeClient, changed: Callable[[Change[Service]], None], *, random: Random
    ) -> None:
        self.store: Store[Service] = Store(_read_listed, kind="Service")
        self._changed = changed
        self._random = random
        self._informer = Informer(client, SERVICES, self.store, changed, trim=_trim)
        self.loaded = self._informer.loaded
        """All Services were listed once."""

    async def follow(self) -> None:
        """Keep up with the API server, for ever."""
        await self._informer.run(self._random)

    async def load(self, client: KubeClient) -> None:
        """List all Services now; what the answer shows is known from then on."""
        for obj in (await client.list(SERVICES, project=_trim)).items:
            self._take(obj)

    async def get(self, client: KubeClient, service: Named) -> Json | None:
        """Read a Service live; None if it, the very one with this uid, does not exist any more."""
        live = await client.get(SERVICES, service.name, namespace=service.namespace)
        if live is None:
            return None
        self._take(live)
        return live if live["metadata"]["uid"] == service.uid else None

    async def replace(
        self, client: KubeClient, body: dict[str, Any], *, subresource: str | None = None
    ) -> None:
        """Replace a Service at the version of the body, but for `managedFields`, which the API server keeps.

        They are most of a Service with thousands of ports.
        """
        meta = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
        self._take(await client.replace(SERVICES, {**body, "metadata": meta}, subresource=subresource))

    async def write_status(
        self,
        client: KubeClient,
        service: Service,
        finding: ConditionContent | None,
        *,
        announced: Address | None = None,
    ) -> None:
        """Have the status of a Service, if it exists, show a finding, and the address that it is announced at."""
        live = await self.get(client, service)
        if live is not None:
            body = build_found(live, finding, format_time(client.server_now()))
            if announced is not None:
                body["status"]["loadBalancer"] = {"ingress": [{"ip": format_address(announced)}]}
            await self.replace(client, body, subresource="status")

    def _take(self, obj: Json) -> None:
        change = self.store.put(obj)
        if change is not None:
            self._changed(change)


def _trim(obj: Json) -> Json:
    """Keep of a listed Service what is read of it, and what a store knows it by: users write large ones."""
    known = {name: obj["metadata"].get(name) for name in ("namespace", "name", "resourceVersion")}
    return {"metadata": known, _READ: parse_service(obj)}


def _read_listed(obj: JsonView) -> Service:
    service: Service = obj[_READ] if _READ in obj else parse_service(obj)
    return service


@dataclass(frozen=True, slots=True, kw_only=True)
class _ConfigMap(KubeObject):
    """One version of the ConfigMap, as a store wants it."""

    obj: JsonView


class ConfigMapCache:
    """Knows the one ConfigMap of a provider, and calls `changed` with each version; with None if it was deleted."""

    def __init__(
        self,
        client: KubeClient,
        changed: Callable[[JsonView | None], None],
        *,
        namespace: str,
        name: str,
        random: Random,
    ) -> None:
        self._client = client
        self._namespace, self._name = namespace, name
        self._random = random
        self._store: Store[_ConfigMap] = Store(
            lambda obj: _ConfigMap(metadata=read_metadata(obj), obj=obj), kind="ConfigMap"
        )
        self._informer = Informer(
            client,
            CONFIG_MAPS,
            self._store,
            lambda change: changed(change.new.obj if change.new is not None else None),
            namespace=namespace,
            field_selector=f"metadata.name={name}",
        )

    async def load(self) -> None:
        """Read it now. Raises: ApiError."""
        await self._informer.relist()

    async def follow(self) -> None:
        """Keep up with the API server, for ever."""
        await self._informer.run(self._random)

    async def create_if_missing(self) -> bool:
        """Create it empty if it was not there when it was last seen; return whether this call created it."""
        if self._store.get(self._namespace, self._name) is not None:
            return False
        body = {"metadata": {"name": self._name, "namespace": self._namespace}}
        try:
            made = await self._client.create(CONFIG_MAPS, body)
        except ConflictError:
            return False
        except FipopError as error:
            logger.warning("Could not create ConfigMap", extra={"error": str(error)})
            return False
        logger.info("Created ConfigMap", extra={"config_map": self._name})
        self._informer.take("ADDED", made)
        return True


class Machines:
    """Reads what has addresses beside Services: nodes, and the API server by its Endpoints.

    Without the right to list them a provider works, as with kube-vip-cloud-provider's former roles; it says so once.
    """

    def __init__(self) -> None:
        self._forbidden: set[str] = set()

    async def read(self, client: KubeClient) -> dict[User, frozenset[Address]]:
        """Return each with its addresses. Raises: ApiError."""
        nodes = await self._ask("nodes", client.list(NODES, project=read_node))
        server = await self._ask("endpoints", client.get(ENDPOINTS, "kubernetes", namespace="default"))
        found = {
            User(uid=f"node/{name}", name=f"Node {name}"): each
            for name, each in (nodes.items if nodes is not None else ())
        }
        found[User(uid="endpoints/kubernetes", name="the API server")] = read_endpoints(server or {})
        return found

    async def _ask(self, resource: str, question: Awaitable[T]) -> T | None:
        try:
            return await question
        except ForbiddenError:
            if resource not in self._forbidden:
                self._forbidden.add(resource)
                fields = {"resource": resource}
                logger.warning("Could not list resource: its addresses do not count as in use", extra=fields)
            return None
