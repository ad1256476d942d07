"""A fake guest API, in memory: for benchmarks with thousands of guests, where real API servers do not fit.

It is NOT a Kubernetes API server. It knows objects, versions, uids, list and merge patch, metadata-only lists
and equality selectors of the few resources that a pass over a guest touches; no validation, no admission, no
watch, no server-side apply, no RBAC. What a test wants to learn about Kubernetes it must ask a real one.
"""

import asyncio
import itertools
import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

KINDS = {
    "configmaps": "ConfigMap",
    "daemonsets": "DaemonSet",
    "deployments": "Deployment",
    "namespaces": "Namespace",
    "nodes": "Node",
    "pods": "Pod",
    "secrets": "Secret",
    "services": "Service",
}
_CLUSTER_SCOPED = frozenset({"namespaces", "nodes"})
_METADATA_ONLY = "as=PartialObjectMetadata"

Object = dict[str, Any]
Key = tuple[str, str, str]  # plural, namespace, name


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the fake says: an HTTP status and a JSON body."""

    status: int
    body: Object


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """The parts of a request path below the guest's root."""

    group_version: str
    plural: str
    namespace: str
    name: str


@dataclass(slots=True, kw_only=True)
class SimulatedGuest:
    """One guest's objects, answering after `latency_seconds` as if the network had taken them."""

    latency_seconds: float = 0.05
    objects: dict[Key, Object] = field(default_factory=dict)
    _versions: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    _version: int = 0

    def put(self, plural: str, manifest: Mapping[str, Any]) -> Object:
        """Store an object as a user of that guest would have, answering it with uid and version."""
        metadata = manifest["metadata"]
        key = (plural, metadata.get("namespace", ""), metadata["name"])
        return self._store(key, dict(manifest), self.objects.get(key))

    def get(self, plural: str, namespace: str, name: str) -> Object | None:
        """Answer an object, or nothing where there is none."""
        return self.objects.get((plural, namespace, name))

    async def answer(
        self, method: str, path: str, query: Mapping[str, str], accept: str, content_type: str, body: bytes
    ) -> Answer:
        """Answer one request after the latency; `path` begins with /api or /apis or is /version, /readyz."""
        await asyncio.sleep(self.latency_seconds)
        if path in ("/version", "/readyz", "/livez"):
            return Answer(status=200, body={"major": "1", "minor": "36", "gitVersion": "v1.36.3+simulated"})
        target = _parse(path)
        if target is None:
            return _failure(404, "NotFound", "the fake guest does not know this path")
        if not target.name:
            return self._collection(method, target, query, accept, body)
        return self._item(method, target, accept, content_type, body)

    def _collection(
        self, method: str, target: _Target, query: Mapping[str, str], accept: str, body: bytes
    ) -> Answer:
        if method == "GET":
            found = _select(self._list(target), query)
            return Answer(
                status=200, body=self._as_list(target, found, metadata_only=_METADATA_ONLY in accept)
            )
        if method != "POST":
            return _failure(405, "MethodNotAllowed", "the fake guest only lists and creates collections")
        manifest = json.loads(body)
        key = (target.plural, target.namespace, manifest["metadata"]["name"])
        if key in self.objects:
            return _failure(409, "AlreadyExists", f"{target.plural} {key[2]!r} already exists")
        if target.namespace:
            manifest["metadata"]["namespace"] = target.namespace
        return Answer(status=201, body=self._store(key, manifest, None))

    def _item(self, method: str, target: _Target, accept: str, content_type: str, body: bytes) -> Answer:
        key = (target.plural, target.namespace, target.name)
        current = self.objects.get(key)
        if current is None:
            return _failure(404, "NotFound", f"{target.plural} {target.name!r} not found")
        if method == "GET":
            return Answer(status=200, body=_metadata_of(current) if _METADATA_ONLY in accept else current)
        if method == "DELETE":
            del self.objects[key]
            return Answer(status=200, body={"apiVersion": "v1", "kind": "Status", "status": "Success"})
        if method == "PATCH" and content_type != "application/merge-patch+json":
            return _failure(415, "UnsupportedMediaType", "the fake guest takes merge patches only")
        if method not in ("PATCH", "PUT"):
            return _failure(405, "MethodNotAllowed", "the fake guest does not know this method")
        sent: Object = json.loads(body)
        expected = sent.get("metadata", {}).pop("resourceVersion", None)
        if expected is not None and expected != current["metadata"]["resourceVersion"]:
            return _failure(409, "Conflict", "the object has been modified")
        wanted = merge_patch(current, sent) if method == "PATCH" else sent
        if wanted == current:
            return Answer(status=200, body=current)
        return Answer(status=200, body=self._store(key, wanted, current))

    def _list(self, target: _Target) -> list[Object]:
        return [
            found
            for key, found in sorted(self.objects.items())
            if key[0] == target.plural and target.namespace in ("", key[1])
        ]

    def _as_list(self, target: _Target, found: Iterable[Object], *, metadata_only: bool) -> Object:
        if metadata_only:
            return {
                "apiVersion": "meta.k8s.io/v1",
                "kind": "PartialObjectMetadataList",
                "metadata": {"resourceVersion": str(self._version)},
                "items": [_metadata_of(one) for one in found],
            }
        return {
            "apiVersion": target.group_version,
            "kind": f"{KINDS[target.plural]}List",
            "metadata": {"resourceVersion": str(self._version)},
            "items": list(found),
        }

    def _store(self, key: Key, wanted: Object, current: Object | None) -> Object:
        self._version = next(self._versions)
        was = current["metadata"] if current else {}
        metadata = {
            **wanted["metadata"],
            "uid": was.get("uid", str(uuid.uuid4())),
            "creationTimestamp": was.get(
                "creationTimestamp", datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            ),
            "resourceVersion": str(self._version),
        }
        self.objects[key] = {**wanted, "metadata": metadata}
        return self.objects[key]


def merge_patch(current: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386): null removes, objects merge, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(current) if isinstance(current, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def _parse(path: str) -> _Target | None:
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group_version, rest = parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group_version, rest = f"{parts[1]}/{parts[2]}", parts[3:]
    else:
        return None
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    plural, name = rest[0], rest[1] if len(rest) > 1 else ""
    if plural not in KINDS or len(rest) > 2 or (namespace and plural in _CLUSTER_SCOPED):
        return None
    return _Target(group_version=group_version, plural=plural, namespace=namespace, name=name)


def _select(found: Iterable[Object], query: Mapping[str, str]) -> list[Object]:
    """Keep what labelSelector (equality, membership, presence) and fieldSelector (a few fields) ask for."""
    kept = list(found)
    for term in _terms(query.get("labelSelector", "")):
        kept = [one for one in kept if _matches(one["metadata"].get("labels", {}), term)]
    for term in _terms(query.get("fieldSelector", "")):
        kept = [one for one in kept if _matches(_fields_of(one), term)]
    return kept


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


def _failure(code: int, reason: str, message: str) -> Answer:
    body = {
        "apiVersion": "v1",
        "kind": "Status",
        "metadata": {},
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }
    return Answer(status=code, body=body)
