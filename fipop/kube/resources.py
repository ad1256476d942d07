"""The kinds of objects that fipop talks about, and where an API server keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from fipop.api.names import GROUP, VERSION
from fipop.errors import ApiError


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


def _own(plural: str, kind: str, *, namespaced: bool) -> Resource:
    return Resource(group=GROUP, version=VERSION, plural=plural, kind=kind, namespaced=namespaced)


FLOATING_IP_RANGES = _own("floatingipranges", "FloatingIPRange", namespaced=False)
FLOATING_IPS = _own("floatingips", "FloatingIP", namespaced=True)
FLOATING_IP_RESERVATIONS = _own("floatingipreservations", "FloatingIPReservation", namespaced=False)

PROVISIONING_CLUSTERS = Resource(
    group="provisioning.cattle.io", version="v1", plural="clusters", kind="Cluster", namespaced=True
)
MANAGEMENT_CLUSTERS = Resource(
    group="management.cattle.io", version="v3", plural="clusters", kind="Cluster", namespaced=False
)
HARVESTER_CONFIGS = Resource(
    group="rke-machine-config.cattle.io",
    version="v1",
    plural="harvesterconfigs",
    kind="HarvesterConfig",
    namespaced=True,
)

NAMESPACES = Resource(group="", version="v1", plural="namespaces", kind="Namespace", namespaced=False)
SECRETS = Resource(group="", version="v1", plural="secrets", kind="Secret", namespaced=True)
CONFIG_MAPS = Resource(group="", version="v1", plural="configmaps", kind="ConfigMap", namespaced=True)
NODES = Resource(group="", version="v1", plural="nodes", kind="Node", namespaced=False)
ENDPOINTS = Resource(group="", version="v1", plural="endpoints", kind="Endpoints", namespaced=True)
PODS = Resource(group="", version="v1", plural="pods", kind="Pod", namespaced=True)
SERVICES = Resource(group="", version="v1", plural="services", kind="Service", namespaced=True)
EVENTS = Resource(group="", version="v1", plural="events", kind="Event", namespaced=True)
LEASES = Resource(group="coordination.k8s.io", version="v1", plural="leases", kind="Lease", namespaced=True)
DAEMON_SETS = Resource(group="apps", version="v1", plural="daemonsets", kind="DaemonSet", namespaced=True)
DEPLOYMENTS = Resource(group="apps", version="v1", plural="deployments", kind="Deployment", namespaced=True)
CUSTOM_RESOURCE_DEFINITIONS = Resource(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
)
SUBJECT_ACCESS_REVIEWS = Resource(
    group="authorization.k8s.io",
    version="v1",
    plural="subjectaccessreviews",
    kind="SubjectAccessReview",
    namespaced=False,
)
