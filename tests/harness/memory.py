"""An API server in memory, as far as the operator and the cloud provider need one: a SIMULATION, no Kubernetes.

`localfleet.objectstore` decides what a call does. Each call pauses before and after the work, so that the driver of the
coroutines decides what happens in between. tests/contract compares the client with the real one on a real API server.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from fipop.errors import (
    ApiAlreadyExistsError,
    ApiConflictError,
    ApiError,
    ApiForbiddenError,
    ApiInvalidError,
    ApiNotFoundError,
    ApiServerError,
    ApiUnreachableError,
    NamespaceTerminatingError,
)
from fipop.kube.resources import FLOATING_IP_RESERVATIONS, Resource
from localfleet.objectstore import Key, ObjectStore, RefusedCallError, copy_json
from tests.harness.history import Change
from tests.harness.oracles import Judge, Setting
from tests.harness.stored import is_held

__all__ = ["Json", "Key", "Memory", "MemoryClient", "Pause", "copy_json"]

Json = dict[str, Any]

_ERRORS: dict[int, type[ApiError]] = {
    400: ApiInvalidError,
    403: ApiForbiddenError,
    404: ApiNotFoundError,
    409: ApiConflictError,
    422: ApiInvalidError,
    500: ApiServerError,
}


class Pause:
    """A point at which the driver may let others go on."""

    def __await__(self) -> Generator["Pause", None, None]:
        yield self


@dataclass(slots=True)
class Memory(ObjectStore):
    """The store: every commit is judged at once, and told to all listeners."""

    listeners: list[Callable[[Change], None]] = field(default_factory=list)
    judge: Judge = field(default_factory=lambda: Judge(setting=Setting()))
    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    allocations: int = 0

    def put(self, key: Key, obj: Json) -> Json:
        """Create or change an object, its status included, as people do whom nothing refuses."""
        self.judge.by_people.add(self.version + 1)
        return self.write(key, obj)

    def remove(self, key: Key, *, by_people: bool = False) -> None:
        """Delete an object that is there, whatever finalizers it has."""
        if by_people:
            self.judge.by_people.add(self.version + 1)
        self.drop(key)

    def pass_time(self, seconds: float) -> None:
        """Let the API server's clock go on."""
        self.now += timedelta(seconds=seconds)

    def timestamp(self) -> str:
        return self.now.strftime("%Y-%m-%dT%H:%M:%SZ")

    def build_uid(self) -> str:
        return f"uid-{self.version + 1}"

    def committed(self, key: Key, before: Json | None, after: Json | None) -> None:
        if after is not None and key[0] == FLOATING_IP_RESERVATIONS.plural:
            self.allocations += is_held(after) and (before is None or not is_held(before))
        change = Change(
            revision=self.version,
            at=self.now.timestamp(),
            plural=key[0],
            namespace=key[1],
            name=key[2],
            obj=after,
        )
        self.judge.take(change)
        for listener in self.listeners:
            listener(change)


class MemoryClient:
    """What the reconcilers ask of the door to the API; `chance` draws which calls fail, and on which side."""

    def __init__(self, memory: Memory, chance: Random, *, trouble: float) -> None:
        self._memory = memory
        self._chance = chance
        self.trouble = trouble

    def server_now(self) -> datetime:
        return self._memory.now

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Json | None:
        key = _key(resource, name, namespace)
        await self._before("get", resource, name)
        return copy_json(self._memory.objects.get(key))

    async def create(self, resource: Resource, body: Json, *, namespace: str | None = None) -> Json:
        name = body["metadata"].get("name") or ""
        namespace = namespace or body["metadata"].get("namespace")
        if resource.namespaced and not namespace:
            raise ApiInvalidError(
                verb="create", kind=resource.kind, name=name, status=405, reason="MethodNotAllowed"
            )
        key = (resource.plural, namespace or "", name)
        await self._before("create", resource, name)
        try:
            made = self._memory.create(key, copy_json(body))
        except RefusedCallError as refused:
            raise _error("create", resource, key, refused) from None
        return await self._after("create", resource, name, made)

    async def replace(self, resource: Resource, body: Json, *, subresource: str | None = None) -> Json:
        name = body["metadata"]["name"]
        key = _key(resource, name, body["metadata"].get("namespace"))
        await self._before("replace", resource, name)
        try:
            made = self._memory.replace(key, copy_json(body), subresource=subresource)
        except RefusedCallError as refused:
            raise _error("replace", resource, key, refused) from None
        return await self._after("replace", resource, name, made)

    async def merge_patch(
        self,
        resource: Resource,
        name: str,
        patch: Json,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> Json:
        key = _key(resource, name, namespace)
        await self._before("patch", resource, name)
        try:
            made = self._memory.merge_patch(key, copy_json(patch), subresource=subresource)
        except RefusedCallError as refused:
            raise _error("patch", resource, key, refused) from None
        return await self._after("patch", resource, name, made)

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | int | None = None,
    ) -> bool:
        key = _key(resource, name, namespace)
        await self._before("delete", resource, name)
        if key not in self._memory.objects:
            return False
        try:
            version = None if resource_version is None else str(resource_version)
            self._memory.delete(key, uid=uid, version=version)
        except RefusedCallError as refused:
            raise _error("delete", resource, key, refused) from None
        await self._after("delete", resource, name, {})
        return True

    async def _before(self, verb: str, resource: Resource, name: str) -> None:
        await Pause()
        if self.trouble and self._chance.random() < self.trouble:
            raise ApiServerError(verb=verb, kind=resource.kind, name=name, status=500)

    async def _after(self, verb: str, resource: Resource, name: str, made: Json) -> Json:
        answer = copy_json(made)
        await Pause()
        if self.trouble and self._chance.random() < self.trouble:
            raise ApiUnreachableError(verb=verb, kind=resource.kind, name=name, reason="ConnectionCut")
        return answer


def _key(resource: Resource, name: str, namespace: str | None) -> Key:
    """Return the key of an object; refuse what the real client refuses before it sends anything."""
    if resource.namespaced is not (namespace is not None) or not name or "/" in name or name.startswith("."):
        resource.path(namespace=namespace, name=name)
    return resource.plural, namespace or "", name


def _error(verb: str, resource: Resource, key: Key, refused: RefusedCallError) -> ApiError:
    error = _ERRORS[refused.status]
    if refused.reason == "AlreadyExists":
        error = ApiAlreadyExistsError
    elif refused.cause == "NamespaceTerminating":
        error = NamespaceTerminatingError
    return error(
        verb=verb,
        kind=resource.kind,
        name=key[2],
        namespace=key[1] or None,
        status=refused.status,
        reason=refused.reason,
    )
