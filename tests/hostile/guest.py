"""A guest in memory that real helm can install into: what hostile guests are made from, and measured beside.

It is NOT a Kubernetes API server: no admission, no validation, no controllers, no RBAC; workloads say they are ready.
Hundreds of real ones do not fit on one machine.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import uuid
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

from localfleet.simulated import merge_patch, select
from tests.hostile.server import Raw, Reply, Request, failure, reply

Json = dict[str, Any]

RBAC = "rbac.authorization.k8s.io/v1"
RESOURCES: dict[str, dict[str, tuple[str, bool]]] = {
    "v1": {
        "namespaces": ("Namespace", False),
        "nodes": ("Node", False),
        "endpoints": ("Endpoints", True),
        "configmaps": ("ConfigMap", True),
        "secrets": ("Secret", True),
        "services": ("Service", True),
        "serviceaccounts": ("ServiceAccount", True),
        "pods": ("Pod", True),
        "events": ("Event", True),
    },
    "apps/v1": {"daemonsets": ("DaemonSet", True), "deployments": ("Deployment", True)},
    RBAC: {
        "clusterroles": ("ClusterRole", False),
        "clusterrolebindings": ("ClusterRoleBinding", False),
        "roles": ("Role", True),
        "rolebindings": ("RoleBinding", True),
    },
}
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


class Guest:
    """One guest's objects; subclasses and twists make it hostile."""

    def __init__(self, latency_seconds: float = 0.005) -> None:
        self.latency_seconds = latency_seconds
        self.objects: dict[tuple[str, str, str], Json] = {}
        self._versions = itertools.count(1)

    def put(self, plural: str, manifest: Json) -> Json:
        """Store an object as somebody in the guest would have."""
        metadata = manifest["metadata"]
        key = (plural, metadata.get("namespace", ""), metadata["name"])
        return self._store(key, manifest)

    def find(self, plural: str, namespace: str, name: str) -> Json | None:
        """Give an object."""
        return self.objects.get((plural, namespace, name))

    async def __call__(self, request: Request) -> Reply | Raw:
        """Answer as a well-behaved API server would."""
        await asyncio.sleep(self.latency_seconds)
        answer = self.answer(request)
        return Reply(
            status=answer.status,
            body=answer.body,
            headers={"Date": format_datetime(datetime.now(UTC), usegmt=True), **answer.headers},
        )

    def answer(self, request: Request) -> Reply:
        """Give the ordinary answer to a request."""
        parts = request.path.strip("/").split("/")
        found = _DOCUMENTS.get(request.path.rstrip("/"))
        if found is not None:
            return reply(found)
        if parts[0] == "api" and len(parts) > 2:
            version, rest = parts[1], parts[2:]
        elif parts[0] == "apis" and len(parts) > 3:
            version, rest = f"{parts[1]}/{parts[2]}", parts[3:]
        else:
            return failure(404, "NotFound", "not here")
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        plural, name = rest[0], rest[1] if len(rest) > 1 else ""
        if plural not in RESOURCES.get(version, {}):
            return failure(404, "NotFound", "no such resource")
        if not name:
            return self._collection(request, version, plural, namespace)
        return self._item(request, plural, namespace, name)

    def _collection(self, request: Request, version: str, plural: str, namespace: str) -> Reply:
        kind, _ = RESOURCES[version][plural]
        if request.method == "POST":
            manifest = request.json()
            key = (plural, namespace, manifest["metadata"]["name"])
            if key in self.objects:
                return failure(409, "AlreadyExists", f"{plural} {key[2]} already exists", name=key[2])
            if namespace:
                manifest["metadata"]["namespace"] = namespace
            return reply(self._store(key, manifest), 201)
        found = [
            one for key, one in sorted(self.objects.items()) if key[0] == plural and namespace in ("", key[1])
        ]
        found = select(found, request.query)
        limit, start = (
            int(request.query.get("limit", "0") or "0"),
            int(request.query.get("continue", "0") or "0"),
        )
        metadata: Json = {"resourceVersion": str(next(self._versions))}
        if limit and start + limit < len(found):
            metadata["continue"] = str(start + limit)
        page = found[start : start + limit] if limit else found
        if "PartialObjectMetadata" in request.headers.get("accept", ""):
            page = [{"metadata": one["metadata"]} for one in page]
        return reply({"apiVersion": version, "kind": f"{kind}List", "metadata": metadata, "items": page})

    def _item(self, request: Request, plural: str, namespace: str, name: str) -> Reply:
        key = (plural, namespace, name)
        current = self.objects.get(key)
        if plural == "namespaces" and current is None:
            current = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}}
        if current is None:
            return failure(404, "NotFound", f'{plural} "{name}" not found', name=name, kind=plural)
        if request.method == "GET":
            return reply(current)
        if request.method == "DELETE":
            self.objects.pop(key, None)
            return reply({"kind": "Status", "apiVersion": "v1", "status": "Success", "metadata": {}})
        sent = request.json()
        return reply(self._store(key, merge_patch(current, sent) if request.method == "PATCH" else sent))

    def _store(self, key: tuple[str, str, str], manifest: Json) -> Json:
        plural, _, _ = key
        before = self.objects.get(key, {}).get("metadata", {})
        metadata = {
            **manifest["metadata"],
            "uid": before.get("uid", str(uuid.uuid4())),
            "resourceVersion": str(next(self._versions)),
            "creationTimestamp": before.get(
                "creationTimestamp", datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            ),
            "generation": 1,
        }
        status = {
            "daemonsets": {"desiredNumberScheduled": 1, "numberReady": 1, "updatedNumberScheduled": 1},
            "deployments": {"readyReplicas": 1, "updatedReplicas": 1},
        }.get(plural)
        self.objects[key] = {**manifest, "metadata": metadata}
        if status is not None:
            self.objects[key]["status"] = {**status, "observedGeneration": 1}
        return self.objects[key]


def _resource_list(version: str) -> Json:
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": version,
        "resources": [
            {
                "name": plural,
                "singularName": kind.lower(),
                "namespaced": namespaced,
                "kind": kind,
                "verbs": VERBS,
            }
            for plural, (kind, namespaced) in RESOURCES[version].items()
        ],
    }


def _group(version: str) -> Json:
    group, _, short = version.partition("/")
    entry = {"groupVersion": version, "version": short}
    return {"name": group, "versions": [entry], "preferredVersion": entry}


def _documents() -> dict[str, Json]:
    groups = [version for version in RESOURCES if "/" in version]
    documents: dict[str, Json] = {
        "/version": {"major": "1", "minor": "36", "gitVersion": "v1.36.3"},
        "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
        "/apis": {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [_group(version) for version in groups],
        },
        "/api/v1": _resource_list("v1"),
        "/openapi/v3": {
            "paths": {
                _place(version)[1:]: {"serverRelativeURL": f"/openapi/v3{_place(version)}"}
                for version in RESOURCES
            }
        },
    }
    documents |= {f"/apis/{version}": _resource_list(version) for version in groups}
    return documents | {f"/openapi/v3{_place(version)}": _schema(version) for version in RESOURCES}


def _place(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"


def _schema(version: str) -> Json:
    """No schema: only that the server validates fields itself, which is all that helm asks of it."""
    group, _, short = version.rpartition("/")
    paths = {}
    for plural, (kind, namespaced) in RESOURCES[version].items():
        scope = "/namespaces/{namespace}" if namespaced else ""
        paths[f"{_place(version)}{scope}/{plural}/{{name}}"] = {
            "patch": {
                "x-kubernetes-group-version-kind": {"group": group, "version": short, "kind": kind},
                "parameters": [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}],
                "responses": {},
            }
        }
    return {"openapi": "3.0.0", "info": {"title": "guest", "version": "1"}, "paths": paths}


_DOCUMENTS = _documents()


def as_text(value: Any) -> bytes:
    """JSON."""
    return json.dumps(value).encode()
