"""What a quiet pass does not see: objects of a deployed release that somebody deleted."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from fipop.errors import ReleaseRecordError
from fipop.guest.releases import ReleaseState
from fipop.guest.survey import decode_latest
from fipop.kube.client import KubeClient
from fipop.kube.resources import CONFIG_MAPS, DAEMON_SETS, DEPLOYMENTS, SECRETS, SERVICES, Resource
from fipop.yaml_input import YamlRefusedError, parse_yaml

_RBAC = "rbac.authorization.k8s.io"
_MAX_MANIFEST_BYTES = 1024 * 1024
_MAX_DOCUMENTS = 500
_MAX_OBJECTS = 50
_DOCUMENT_END = re.compile(r"^---[^\S\n]*(?:#.*)?$", re.MULTILINE)

SERVICE_ACCOUNTS = Resource(
    group="", version="v1", plural="serviceaccounts", kind="ServiceAccount", namespaced=True
)
ROLES = Resource(group=_RBAC, version="v1", plural="roles", kind="Role", namespaced=True)
ROLE_BINDINGS = Resource(
    group=_RBAC, version="v1", plural="rolebindings", kind="RoleBinding", namespaced=True
)
CLUSTER_ROLES = Resource(
    group=_RBAC, version="v1", plural="clusterroles", kind="ClusterRole", namespaced=False
)
CLUSTER_ROLE_BINDINGS = Resource(
    group=_RBAC, version="v1", plural="clusterrolebindings", kind="ClusterRoleBinding", namespaced=False
)

_KNOWN = {
    (resource.api_version, resource.kind): resource
    for resource in (
        *(CONFIG_MAPS, DAEMON_SETS, DEPLOYMENTS, SECRETS, SERVICES, SERVICE_ACCOUNTS),
        *(ROLES, ROLE_BINDINGS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS),
    )
}
"""The kinds that the two charts make; what else a chart may hold is not looked for."""


async def find_missing(client: KubeClient, state: ReleaseState) -> tuple[str, ...]:
    """Give the objects of a release's manifest that the guest lacks, as `ClusterRole kube-vip`.

    One request for the release and one for each object. Raises ReleaseRecordError and ApiError.
    """
    decoded = await decode_latest(client, state)
    missing = []
    # What the guest says was rendered: to read it is not to be every other guest's time.
    for resource, namespace, name in await asyncio.to_thread(parse_manifest, decoded.manifest, state):
        if await client.get(resource, name, namespace=namespace, metadata_only=True) is None:
            missing.append(f"{resource.kind} {name}")
    return tuple(missing)


def parse_manifest(manifest: str, state: ReleaseState) -> tuple[tuple[Resource, str | None, str], ...]:
    """Give resource, namespace and name of the manifest's first objects, in bounded time. Raises ReleaseRecordError."""
    if len(manifest) > _MAX_MANIFEST_BYTES:
        raise _unreadable(state, f"is longer than {_MAX_MANIFEST_BYTES} bytes")
    texts = _DOCUMENT_END.split(manifest, _MAX_DOCUMENTS)
    if len(texts) > _MAX_DOCUMENTS:
        raise _unreadable(state, f"has more than {_MAX_DOCUMENTS} documents")
    found: list[tuple[Resource, str | None, str]] = []
    for text in texts:
        try:
            document: Any = parse_yaml(text, max_bytes=_MAX_MANIFEST_BYTES)
        except YamlRefusedError as error:
            raise _unreadable(state, error.reason) from None
        if not isinstance(document, dict) or not isinstance(document.get("metadata"), dict):
            continue
        resource = _KNOWN.get((str(document.get("apiVersion")), str(document.get("kind"))))
        name = document["metadata"].get("name")
        if resource is None or not isinstance(name, str):
            continue
        namespace = str(document["metadata"].get("namespace") or state.latest.namespace)
        found.append((resource, namespace if resource.namespaced else None, name))
        if len(found) == _MAX_OBJECTS:
            break
    return tuple(found)


def _unreadable(state: ReleaseState, reason: str) -> ReleaseRecordError:
    return ReleaseRecordError(
        namespace=state.latest.namespace, name=state.latest.name, reason=f"its manifest {reason}"
    )
