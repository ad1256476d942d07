"""The kinds of objects that fipop talks about, and where an API server keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import quote

from fipop.api.names import GROUP, VERSION
from fipop.errors import ApiError

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Listing(Generic[T_co]):
    """A complete list, as it was at one version of the store."""

    items: tuple[T_co, ...]
    resource_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One resource of the Kubernetes API; `group` is empty for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """What objects of this resource carry as `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_name(self) -> str:
        """`plural.group`, or the plural alone for the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(
        self, *, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """Return the URL path of the collection, of one object, or of an object's subresource.

        A name comes from other people's objects at times: one that is empty or climbs the path would turn the
        call into another one (a DELETE without a name deletes the collection), so it raises ApiError. A
        scope that does not fit the resource is a mistake of the caller: ValueError.
        """
        if namespace is not None and not self.namespaced:
            raise ValueError(f"{self.kind} is cluster scoped")
        if name is not None and self.namespaced and namespace is None:
            raise ValueError(f"{self.kind} {name} needs a namespace")
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace is not None:
            parts += ["namespaces", self._segment(namespace)]
        parts.append(self.plural)
        if name is not None:
            parts.append(self._segment(name))
            if subresource is not None:
                parts.append(subresource)
        return "/" + "/".join(parts)

    def _segment(self, text: str) -> str:
        if text in ("", ".", "..") or "/" in text or "%" in text:
            raise ApiError(f"address {self.kind} {text[:253]!r}", reason="InvalidName")
        return quote(text, safe="")


def _kind(api_version: str, plural: str, kind: str, *, namespaced: bool) -> Resource:
    group, _, version = api_version.rpartition("/")
    return Resource(group=group, version=version, plural=plural, kind=kind, namespaced=namespaced)


_OWN = f"{GROUP}/{VERSION}"

FLOATING_IP_RANGES = _kind(_OWN, "floatingipranges", "FloatingIPRange", namespaced=False)
FLOATING_IPS = _kind(_OWN, "floatingips", "FloatingIP", namespaced=True)
FLOATING_IP_RESERVATIONS = _kind(_OWN, "floatingipreservations", "FloatingIPReservation", namespaced=False)

PROVISIONING_CLUSTERS = _kind("provisioning.cattle.io/v1", "clusters", "Cluster", namespaced=True)
MANAGEMENT_CLUSTERS = _kind("management.cattle.io/v3", "clusters", "Cluster", namespaced=False)
HARVESTER_CONFIGS = _kind(
    "rke-machine-config.cattle.io/v1", "harvesterconfigs", "HarvesterConfig", namespaced=True
)

NAMESPACES = _kind("v1", "namespaces", "Namespace", namespaced=False)
SECRETS = _kind("v1", "secrets", "Secret", namespaced=True)
CONFIG_MAPS = _kind("v1", "configmaps", "ConfigMap", namespaced=True)
NODES = _kind("v1", "nodes", "Node", namespaced=False)
ENDPOINTS = _kind("v1", "endpoints", "Endpoints", namespaced=True)
PODS = _kind("v1", "pods", "Pod", namespaced=True)
SERVICES = _kind("v1", "services", "Service", namespaced=True)
EVENTS = _kind("v1", "events", "Event", namespaced=True)
ENDPOINT_SLICES = _kind("discovery.k8s.io/v1", "endpointslices", "EndpointSlice", namespaced=True)
LEASES = _kind("coordination.k8s.io/v1", "leases", "Lease", namespaced=True)
DAEMON_SETS = _kind("apps/v1", "daemonsets", "DaemonSet", namespaced=True)
DEPLOYMENTS = _kind("apps/v1", "deployments", "Deployment", namespaced=True)
CUSTOM_RESOURCE_DEFINITIONS = _kind(
    "apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
SUBJECT_ACCESS_REVIEWS = _kind(
    "authorization.k8s.io/v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
