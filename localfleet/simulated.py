"""A fake API server, in memory: where thousands are needed, or one in virtual time, and real ones do not fit.

It is NOT a Kubernetes API server. `localfleet.objectstore` decides what a write does; this module adds paths, lists,
metadata-only lists and selectors of the few resources that fipop touches. It has no validation, no admission, no
watch, no server-side apply, no RBAC. What a test wants to learn about Kubernetes it must ask a real one. tests/contract
compares it with a real API server.
"""

import asyncio
import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from localfleet.objectstore import KINDS as ALL_KINDS
from localfleet.objectstore import Key, ObjectStore, RefusedCallError, copy_json, merge_patch, missing

__all__ = [
    "Answer",
    "Capacity",
    "Key",
    "Object",
    "ObjectApi",
    "SimulatedGuest",
    "Target",
    "merge_patch",
    "select",
]

GUEST_KINDS = frozenset(
    {
        *("configmaps", "daemonsets", "deployments", "endpoints", "endpointslices", "events", "leases"),
        *("namespaces", "nodes", "pods", "secrets", "services"),
    }
)
"""What fipop reads or writes in a guest cluster, by plural."""
_MANAGEMENT_GROUP = "management.cattle.io"
"""Has a cluster-scoped kind whose plural is `clusters`, as the namespaced one of another group."""
_METADATA_ONLY = "as=PartialObjectMetadata"

_SELECTABLE: Mapping[str, frozenset[str]] = {
    "secrets": frozenset({"type"}),
    "services": frozenset({"spec.type"}),
}
"""Fields that objects of a kind can be selected by, beside their name and namespace."""

Object = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the fake says: an HTTP status and a JSON body."""

    status: int
    body: Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The parts of a request path below the server's root."""

    group_version: str
    plural: str
    namespace: str
    name: str
    subresource: str
    is_namespaced: bool

    def covers(self, key: Key) -> bool:
        """Whether an object is in this collection."""
        return key[0] == self.plural and self.namespace in ("", key[1]) and bool(key[1]) is self.is_namespaced


@dataclass(slots=True, kw_only=True)
class ObjectApi(ObjectStore):
    """The objects of one API server behind its paths; it serves the `kinds` with these plurals."""

    kinds: frozenset[str] = field(default_factory=lambda: frozenset(ALL_KINDS))

    def put(self, plural: str, manifest: Mapping[str, Any]) -> Object:
        """Store an object, its status included, as a user of that guest would have; return it as it is stored."""
        metadata = manifest["metadata"]
        return self.write((plural, metadata.get("namespace", ""), metadata["name"]), copy_json(manifest))

    def get(self, plural: str, namespace: str, name: str) -> Object | None:
        """Answer an object, or nothing where there is none."""
        return self.objects.get((plural, namespace, name))

    def handle(
        self, method: str, path: str, query: Mapping[str, str], accept: str, content_type: str, body: bytes
    ) -> Answer:
        """Answer one request; `path` begins with /api or /apis or is /version, /readyz.

        The body of an answer shares objects with the store: do not change it.
        """
        if path in ("/version", "/readyz", "/livez"):
            return Answer(status=200, body={"major": "1", "minor": "36", "gitVersion": "v1.36.3+simulated"})
        target = self.parse(path)
        if target is None:
            return _failure(404, "NotFound", "the fake API server does not know this path")
        try:
            if not target.name:
                return self._collection(method, target, query, accept, body)
            return self._item(method, target, accept, content_type, body)
        except RefusedCallError as refused:
            return _refusal(refused, target)

    def parse(self, path: str) -> Target | None:
        """Return the parts of a path; None if nothing is served there."""
        parts = path.strip("/").split("/")
        if parts[0] == "api" and len(parts) > 2:
            group_version, rest = parts[1], parts[2:]
        elif parts[0] == "apis" and len(parts) > 3:
            group_version, rest = f"{parts[1]}/{parts[2]}", parts[3:]
        else:
            return None
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces" and rest[2] in self.kinds:
            namespace, rest = rest[1], rest[2:]
        plural, name, subresource = [*rest, "", ""][:3]
        if plural not in self.kinds or len(rest) > 3:
            return None
        is_namespaced = ALL_KINDS[plural].namespaced and not group_version.startswith(_MANAGEMENT_GROUP)
        if (namespace and not is_namespaced) or (name and is_namespaced and not namespace):
            return None
        return Target(
            group_version=group_version,
            plural=plural,
            namespace=namespace,
            name=name,
            subresource=subresource,
            is_namespaced=is_namespaced,
        )

    def _collection(
        self, method: str, target: Target, query: Mapping[str, str], accept: str, body: bytes
    ) -> Answer:
        if method == "GET" and query.get("watch") not in ("true", "1"):
            _require_fields(target.plural, query)
            found = select(self._list(target), query)
            return Answer(
                status=200, body=self._as_list(target, found, metadata_only=_METADATA_ONLY in accept)
            )
        if method != "POST" or (target.is_namespaced and not target.namespace):
            return _failure(405, "MethodNotAllowed", "the fake API server only lists and creates collections")
        manifest = _typed(target, json.loads(body))
        key = (target.plural, target.namespace, manifest["metadata"].get("name") or "")
        return Answer(status=201, body=self.create(key, manifest))

    def _item(self, method: str, target: Target, accept: str, content_type: str, body: bytes) -> Answer:
        key = (target.plural, target.namespace, target.name)
        if method == "GET":
            current = self.objects.get(key)
            if current is None:
                return _refusal(missing(key), target)
            return Answer(status=200, body=_metadata_of(current) if _METADATA_ONLY in accept else current)
        if method == "DELETE":
            preconditions = (json.loads(body) if body else {}).get("preconditions") or {}
            self.delete(key, uid=preconditions.get("uid"), version=preconditions.get("resourceVersion"))
            return Answer(
                status=200, body={"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success"}
            )
        if method == "PATCH" and content_type != "application/merge-patch+json":
            return _failure(415, "UnsupportedMediaType", "the fake API server takes merge patches only")
        if method == "PATCH":
            return Answer(
                status=200, body=self.merge_patch(key, json.loads(body), subresource=target.subresource)
            )
        if method != "PUT":
            return _failure(405, "MethodNotAllowed", "the fake API server does not know this method")
        is_there = key in self.objects
        made = self.replace(key, _typed(target, json.loads(body)), subresource=target.subresource)
        return Answer(status=200 if is_there else 201, body=made)

    def _list(self, target: Target) -> list[Object]:
        return [found for key, found in sorted(self.objects.items()) if target.covers(key)]

    def _as_list(self, target: Target, found: Iterable[Object], *, metadata_only: bool) -> Object:
        if metadata_only:
            return {
                "apiVersion": "meta.k8s.io/v1",
                "kind": "PartialObjectMetadataList",
                "metadata": {"resourceVersion": str(self.version)},
                "items": [_metadata_of(one) for one in found],
            }
        return {
            "apiVersion": target.group_version,
            "kind": f"{ALL_KINDS[target.plural].kind}List",
            "metadata": {"resourceVersion": str(self.version)},
            "items": list(found),
        }


@dataclass(slots=True, kw_only=True)
class Capacity:
    """One Rancher process, through which all requests go one after the other: `per_second` of them.

    Some take longer on the way, which holds up no other: together p50 7.6, p90 15 and p99 55 ms at 140 requests a
    second while Rancher is quiet, as measured on a real one (main of 2026-08).
    """

    per_second: float = 140.0
    slow: float = 0.12
    """The share of requests that take longer."""
    slow_seconds: float = 0.02
    """How much longer they take on average; exponentially distributed."""
    _free_at: float = 0.0
    _random: random.Random = field(default_factory=lambda: random.Random(1))

    async def take(self) -> None:
        """Wait for a turn and for the answer."""
        now = asyncio.get_running_loop().time()
        self._free_at = max(now, self._free_at) + 1 / self.per_second
        late = self._random.expovariate(1 / self.slow_seconds) if self._random.random() < self.slow else 0.0
        await asyncio.sleep(self._free_at - now + late)


@dataclass(slots=True, kw_only=True)
class SimulatedGuest(ObjectApi):
    """One guest's objects, answering after `latency_seconds` as if the network had taken them.

    With a `capacity`, which many guests share, they wait for their turn at Rancher instead.
    """

    kinds: frozenset[str] = GUEST_KINDS
    latency_seconds: float = 0.05
    capacity: Capacity | None = None

    async def answer(
        self, method: str, path: str, query: Mapping[str, str], accept: str, content_type: str, body: bytes
    ) -> Answer:
        """Answer one request after the latency; see `handle`."""
        if self.capacity is None:
            await asyncio.sleep(self.latency_seconds)
        else:
            await self.capacity.take()
        return self.handle(method, path, query, accept, content_type, body)


def select(found: Iterable[Object], query: Mapping[str, str]) -> list[Object]:
    """Keep what labelSelector (equality, membership, presence) and fieldSelector (a few fields) ask for."""
    kept = list(found)
    for term in _terms(query.get("labelSelector", "")):
        kept = [one for one in kept if _matches(one["metadata"].get("labels") or {}, term)]
    for term in _terms(query.get("fieldSelector", "")):
        kept = [one for one in kept if _matches(_fields_of(one), term)]
    return kept


def _require_fields(plural: str, query: Mapping[str, str]) -> None:
    """Raise RefusedCallError for a field selector that an API server refuses for this kind."""
    known = {"metadata.name", "metadata.namespace"} | _SELECTABLE.get(plural, frozenset())
    for term in _terms(query.get("fieldSelector", "")):
        name = term.partition("!=" if "!=" in term else "=")[0]
        if name not in known:
            raise RefusedCallError(400, "BadRequest", f"field label not supported: {name}")


def _fields_of(found: Object) -> dict[str, str]:
    metadata = found["metadata"]
    return {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata.get("namespace", ""),
        "type": found.get("type", ""),
        "spec.type": (found.get("spec") or {}).get("type", ""),
    }


def _terms(selector: str) -> list[str]:
    """Split at the commas that stand outside parentheses."""
    terms, depth, term = [], 0, ""
    for char in selector:
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            terms.append(term)
            term = ""
        else:
            term += char
    return [one.strip() for one in [*terms, term] if one.strip()]


def _matches(labels: Mapping[str, str], term: str) -> bool:
    if " in (" in term or " notin (" in term:
        name, verb, values = term.split(" ", 2)
        listed = labels.get(name) in {value.strip() for value in values.strip("()").split(",")}
        return listed is (verb == "in")
    if "!=" in term:
        name, value = term.split("!=", 1)
        return labels.get(name) != value
    if "=" in term:
        name, value = term.replace("==", "=").split("=", 1)
        return labels.get(name) == value
    return (term[1:] not in labels) if term.startswith("!") else term in labels


def _metadata_of(found: Object) -> Object:
    return {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": found["metadata"]}


def _typed(target: Target, manifest: Object) -> Object:
    """Return an object with the type that its path implies."""
    return {"apiVersion": target.group_version, "kind": ALL_KINDS[target.plural].kind, **manifest}


def _refusal(refused: RefusedCallError, target: Target) -> Answer:
    details: Object = {"kind": target.plural}
    if refused.is_about_object:
        details["name"] = target.name
    if refused.cause:
        details["causes"] = [{"reason": refused.cause}]
    return _failure(refused.status, refused.reason, str(refused), details)


def _failure(code: int, reason: str, message: str, details: Object | None = None) -> Answer:
    body = {
        "apiVersion": "v1",
        "kind": "Status",
        "metadata": {},
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        "details": details or {},
    }
    return Answer(status=code, body=body)
