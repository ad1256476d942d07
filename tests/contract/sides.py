"""The sides of the contract: each puts an API server behind the verbs of KubeClient and returns what comes of a call.

Three sides answer: a real kube-apiserver, the API in memory that scenarios run on, and the simulated guest behind the
Rancher proxy. The client stands before each.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol

from fipop.errors import ApiError
from fipop.kube.client import KubeClient
from fipop.kube.resources import FLOATING_IPS, NAMESPACES, Resource
from tests.harness.api_in_memory import Json

EVENT_SECONDS = 30.0
_ACCOUNTS = Resource(group="", version="v1", plural="serviceaccounts", kind="ServiceAccount", namespaced=True)

LIST, WATCH, OWN_KINDS = "list", "watch", "kinds of fipop"
FEATURES = (LIST, WATCH, OWN_KINDS)
"""What a side may lack."""

MEMORY, SIMULATED, REAL = "memory", "simulated guest", "kube-apiserver"

NOT_OFFERED: dict[str, dict[str, str]] = {
    REAL: {},
    MEMORY: {},
    SIMULATED: {
        WATCH: "The operator does not watch guest clusters.",
        OWN_KINDS: "Guest clusters do not have the CRDs of fipop.",
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a call. `status` and `reason` are those of the error; a success has 200 and no reason."""

    status: int
    """The HTTP status; 404 for a missing object, for which the client raises nothing."""
    reason: str = ""
    body: Json = field(default_factory=dict)
    error: type[ApiError] | None = None
    """The class of the error that the client raised."""

    @property
    def refusal(self) -> tuple[int, str, type[ApiError] | None]:
        return self.status, self.reason, self.error

    @property
    def metadata(self) -> Json:
        found: Json = self.body["metadata"]
        return found

    @property
    def version(self) -> int:
        return int(self.metadata["resourceVersion"])

    @property
    def generation(self) -> int | None:
        return self.metadata.get("generation")


MISSING = Outcome(status=404, reason="NotFound")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    type: str
    name: str
    version: int


class Events(Protocol):
    """The events of a watch."""

    async def take(self, count: int) -> list[Event]:
        """Return the next events, so many."""
        ...


class Side:
    """One API server behind the verbs of the client."""

    name = REAL

    def __init__(self, client: Any) -> None:
        self.client = client

    async def offers(self, feature: str) -> bool:
        """Return whether the side has a feature, from what it does."""
        if feature == OWN_KINDS:
            return not isinstance(
                await self._ask(self.client.get(FLOATING_IPS, "x", namespace="default")), ApiError
            )
        return hasattr(self.client, feature)

    async def create(self, resource: Resource, body: Json, **options: Any) -> Outcome:
        return await self._outcome(self.client.create(resource, body, **options))

    async def get(self, resource: Resource, name: str, **options: Any) -> Outcome:
        return await self._outcome(self.client.get(resource, name, **options))

    async def replace(self, resource: Resource, body: Json, **options: Any) -> Outcome:
        return await self._outcome(self.client.replace(resource, body, **options))

    async def merge_patch(self, resource: Resource, name: str, patch: Json, **options: Any) -> Outcome:
        return await self._outcome(self.client.merge_patch(resource, name, patch, **options))

    async def delete(self, resource: Resource, name: str, **options: Any) -> Outcome:
        return await self._outcome(self.client.delete(resource, name, **options))

    async def list(self, resource: Resource, **options: Any) -> tuple[list[Json], int]:
        """Return the items and the version of a list."""
        listing = await self.client.list(resource, **options)
        return list(listing.items), listing.resource_version

    @asynccontextmanager
    async def watch(self, resource: Resource, namespace: str, version: int) -> AsyncIterator[Events]:
        """Watch the objects of a namespace from a version on."""
        events = self.client.watch(
            resource, namespace=namespace, resource_version=version, timeout_seconds=60
        )
        async with aclosing(events) as stream:
            yield _Stream(stream)

    async def make_namespace(self, name: str) -> None:
        made = await self.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        )
        assert made.error is None, made

    async def _outcome(self, call: Awaitable[Any]) -> Outcome:
        answer = await self._ask(call)
        if isinstance(answer, ApiError):
            return Outcome(status=answer.status, reason=answer.reason, error=type(answer))
        if answer is None or answer is False:
            return MISSING
        return Outcome(status=200, body=answer if isinstance(answer, dict) else {})

    async def _ask(self, call: Awaitable[Any]) -> Any:
        try:
            return await call
        except ApiError as error:
            return error


class RealSide(Side):
    """A real kube-apiserver behind the client."""

    def __init__(self, client: KubeClient) -> None:
        super().__init__(client)

    async def make_namespace(self, name: str) -> None:
        """Make a namespace with the account without which no pod is admitted: no controller runs here."""
        await super().make_namespace(name)
        await self.create(_ACCOUNTS, {"metadata": {"name": "default", "namespace": name}})


class SimulatedSide(Side):
    """The simulated guest behind the Rancher proxy and the client."""

    name = SIMULATED

    def __init__(self, client: KubeClient) -> None:
        super().__init__(client)

    async def offers(self, feature: str) -> bool:
        if feature == WATCH:
            watch = self.client.watch(NAMESPACES, resource_version=0, timeout_seconds=1)
            async with aclosing(watch) as stream:
                try:
                    return [each async for each in stream] != []
                except ApiError as error:
                    # A list in place of events is a lie, and no refusal.
                    return error.status != HTTPStatus.METHOD_NOT_ALLOWED
        return await super().offers(feature)


class MemorySide(Side):
    """The API in memory behind the client, as scenarios use it."""

    name = MEMORY

    def __init__(self, client: KubeClient) -> None:
        super().__init__(client)


class _Stream:
    """The events of a real watch."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def take(self, count: int) -> list[Event]:
        found: list[Event] = []
        async with asyncio.timeout(EVENT_SECONDS):
            async for each in self._stream:
                metadata = each.object["metadata"]
                found.append(
                    Event(type=each.type, name=metadata["name"], version=int(metadata["resourceVersion"]))
                )
                if len(found) == count:
                    break
        return found
