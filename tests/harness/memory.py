"""An API server in memory, as far as reservations and floating IPs need one: a SIMULATION, no Kubernetes.

Names are unique, versions grow, uids are fresh, a stale version or another uid is a 409, a patch merges. Each call
pauses before and after the work, so that whoever drives the coroutines decides what happens in between.
"""

import itertools
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from fipop.errors import ApiAlreadyExistsError, ApiConflictError, ApiServerError, ApiUnreachableError
from fipop.kube.resources import FLOATING_IP_RESERVATIONS, Resource
from localfleet.simulated import merge_patch
from tests.harness.history import Change
from tests.harness.oracles import Judge, Setting
from tests.harness.stored import is_held

Json = dict[str, Any]
Key = tuple[str, str, str]


def copy_json(value: Any) -> Any:
    """Copy what JSON is made of: several times faster than the general way."""
    if isinstance(value, dict):
        return {key: copy_json(each) for key, each in value.items()}
    return [copy_json(each) for each in value] if isinstance(value, list) else value


class Pause:
    """A point at which the driver may let others go on."""

    def __await__(self) -> Generator["Pause", None, None]:
        yield self


@dataclass(slots=True)
class Memory:
    """The store: every commit is judged at once, and told to all listeners."""

    objects: dict[Key, Json] = field(default_factory=dict)
    listeners: list[Callable[[Change], None]] = field(default_factory=list)
    judge: Judge = field(default_factory=lambda: Judge(setting=Setting()))
    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    allocations: int = 0
    version: int = 0
    """Of the last write."""
    _versions: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def put(self, key: Key, obj: Json, *, by_people: bool = True) -> Json:
        """Create or change an object; who asks has checked that it may."""
        before = self.objects.get(key)
        version = self.version = next(self._versions)
        if by_people:
            self.judge.by_people.add(version)
        metadata = {**obj["metadata"], "resourceVersion": str(version)}
        if before is None:
            metadata |= {"uid": f"uid-{version}", "creationTimestamp": self.timestamp(), "generation": 1}
        elif obj.get("spec") != before.get("spec"):
            metadata["generation"] = before["metadata"]["generation"] + 1
        made = {**obj, "metadata": metadata}
        self.objects[key] = made
        if key[0] == FLOATING_IP_RESERVATIONS.plural:
            self.allocations += is_held(made) and (before is None or not is_held(before))
        self._tell(version, key, made)
        return made

    def remove(self, key: Key, *, by_people: bool = False) -> None:
        """Delete an object that is there."""
        del self.objects[key]
        version = self.version = next(self._versions)
        if by_people:
            self.judge.by_people.add(version)
        self._tell(version, key, None)

    def pass_time(self, seconds: float) -> None:
        """Let the API server's clock go on."""
        self.now += timedelta(seconds=seconds)

    def timestamp(self) -> str:
        return self.now.strftime("%Y-%m-%dT%H:%M:%SZ")

    def _tell(self, version: int, key: Key, obj: Json | None) -> None:
        change = Change(
            revision=version,
            at=self.now.timestamp(),
            plural=key[0],
            namespace=key[1],
            name=key[2],
            obj=obj,
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
        await self._before("get", resource, name)
        return copy_json(self._memory.objects.get((resource.plural, namespace or "", name)))

    async def create(self, resource: Resource, body: Json) -> Json:
        name = body["metadata"]["name"]
        key = (resource.plural, body["metadata"].get("namespace") or "", name)
        await self._before("create", resource, name)
        if key in self._memory.objects:
            raise ApiAlreadyExistsError(verb="create", kind=resource.kind, name=name, status=409)
        return await self._after(
            "create", resource, name, self._memory.put(key, copy_json(body), by_people=False)
        )

    async def replace(self, resource: Resource, body: Json, *, subresource: str | None = None) -> Json:
        name = body["metadata"]["name"]
        key = (resource.plural, body["metadata"].get("namespace") or "", name)
        await self._before("replace", resource, name)
        found = self._check("replace", resource, key, body["metadata"])
        if subresource is None:
            kept = {**found["metadata"], **{k: v for k, v in body["metadata"].items() if v is not None}}
            wanted = {**copy_json(body), "metadata": kept, "status": found.get("status", {})}
        else:
            wanted = {**found, subresource: copy_json(body.get(subresource) or {})}
        same = {**wanted, "status": wanted.get("status") or None} == {
            **found,
            "status": found.get("status") or None,
        }
        made = found if same else self._memory.put(key, wanted, by_people=False)
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
        key = (resource.plural, namespace or "", name)
        await self._before("patch", resource, name)
        found = self._check("patch", resource, key, patch.get("metadata", {}))
        side = (
            {"status": patch.get("status")}
            if subresource
            else {k: v for k, v in patch.items() if k != "status"}
        )
        side.pop("metadata", None)
        annotations = patch.get("metadata", {}).get("annotations")
        if annotations and not subresource:
            side["metadata"] = {"annotations": annotations}
        wanted = merge_patch(found, copy_json(side))
        made = found if wanted == found else self._memory.put(key, wanted, by_people=False)
        return await self._after("patch", resource, name, made)

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        namespace: str | None = None,
    ) -> bool:
        key = (resource.plural, namespace or "", name)
        await self._before("delete", resource, name)
        if key not in self._memory.objects:
            return False
        self._check("delete", resource, key, {"uid": uid, "resourceVersion": resource_version})
        self._memory.remove(key)
        await self._after("delete", resource, name, {})
        return True

    def _check(self, verb: str, resource: Resource, key: Key, expected: Json) -> Json:
        found = self._memory.objects.get(key)
        metadata = found["metadata"] if found is not None else {}
        for name in ("uid", "resourceVersion"):
            if expected.get(name) and expected[name] != metadata.get(name):
                raise ApiConflictError(verb=verb, kind=resource.kind, name=key[2], status=409)
        if found is None:
            raise ApiConflictError(verb=verb, kind=resource.kind, name=key[2], status=409)
        return found

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
