"""What a quiet pass does not see: objects of a deployed release that somebody deleted."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from fipop.guest.errors import ReleaseRecordError
from fipop.guest.helm.releases import ReleaseState
from fipop.guest.release_memory import Place
from fipop.kube.client import KubeClient
from fipop.kube.resources import CONFIG_MAPS, DAEMON_SETS, DEPLOYMENTS, SECRETS, SERVICES, Resource
from fipop.settings.yaml import YamlRefusedError, parse_yaml
from fipop.texts import is_namespace, is_object_name

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


async def find_missing(client: KubeClient, objects: Iterable[Place]) -> tuple[str, ...]:
    """Give those of a release's objects that the guest lacks, as `ClusterRole kube-vip`; one request each.

    Raises ApiError.
    """
    missing = []
    for resource, namespace, name in objects:
        if await client.get(resource, name, namespace=namespace, metadata_only=True) is None:
            missing.append(f"{resource.kind} {name}")
    return tuple(missing)


def parse_manifest(manifest: str, state: ReleaseState) -> tuple[Place, ...]:
    """Give the manifest's first objects, in bounded time. Raises ReleaseRecordError."""
    if len(manifest) > _MAX_MANIFEST_BYTES:
        raise _unreadable(state, f"is longer than {_MAX_MANIFEST_BYTES} bytes")
    texts = _DOCUMENT_END.split(manifest, _MAX_DOCUMENTS)
    if len(texts) > _MAX_DOCUMENTS:
        raise _unreadable(state, f"has more than {_MAX_DOCUMENTS} documents")
    found: list[Place] = []
    for text in texts:
        try:
            document: Any = parse_yaml(text, max_bytes=_MAX_MANIFEST_BYTES)
        except YamlRefusedError as error:
            raise _unreadable(state, error.reason) from None
        if not isinstance(document, dict) or not isinstance(document.get("metadata"), dict):
            continue
        resource = _KNOWN.get((str(document.get("apiVersion")), str(document.get("kind"))))
        name, namespace = document["metadata"].get("name"), document["metadata"].get("namespace")
        namespace = namespace or state.latest.namespace
        if resource is None or not (is_object_name(name) and is_namespace(namespace)):
            continue
        found.append((resource, namespace if resource.namespaced else None, name))
        if len(found) == _MAX_OBJECTS:
            break
    return tuple(found)


def _unreadable(state: ReleaseState, reason: str) -> ReleaseRecordError:
    return ReleaseRecordError(
        namespace=state.latest.namespace, name=state.latest.name, reason=f"its manifest {reason}"
    )
