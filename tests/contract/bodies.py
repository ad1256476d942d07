"""Objects that a real API server accepts, one of each kind that the fakes know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fipop.kube.resources import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    FLOATING_IP_RANGES,
    FLOATING_IP_RESERVATIONS,
    FLOATING_IPS,
    MANAGEMENT_CLUSTERS,
    NAMESPACES,
    PODS,
    PROVISIONING_CLUSTERS,
    SECRETS,
    SERVICES,
    Resource,
)
from tests.harness.api_in_memory import Json
from tests.harness.objects import build_reservation

NODES = Resource(group="", version="v1", plural="nodes", kind="Node", namespaced=False)
_LABELS = {"app": "web"}
_POD = {"containers": [{"name": "web", "image": "example/web:v1"}]}
_WORKLOAD = {
    "selector": {"matchLabels": _LABELS},
    "template": {"metadata": {"labels": _LABELS}, "spec": _POD},
}


UNCOUNTED = (7, 7, 7, 7, 7)
"""The server leaves the number that the client sent."""
COUNTED = (1, 1, 2, 2, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One kind for the cases that hold for several."""

    resource: Resource
    fields: Mapping[str, Any]
    """What an object has beside its metadata."""
    change: Mapping[str, Any]
    """A merge patch that a real API server accepts, and that changes the object."""
    is_custom: bool = False
    """It has a CRD, which guest clusters do not have."""
    has_status: bool = True
    """It has the status subresource."""
    generations: tuple[int, ...] = UNCOUNTED
    """The generation after a create, a label, a change of the spec, an empty patch, and an annotation."""

    def build(self, home: str, name: str = "one", **metadata: Any) -> Json:
        """Return an object; `home` is its namespace."""
        return build(self.resource, home, name, dict(self.fields), **metadata)


def build(resource: Resource, home: str, name: str, fields: Json, **metadata: Any) -> Json:
    """Return an object of a kind with these fields."""
    place = {"namespace": home} if resource.namespaced else {}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, **place, **metadata},
        **fields,
    }


def build_config_map(home: str, name: str = "one", *, data: Json | None = None, **metadata: Any) -> Json:
    """Return a ConfigMap."""
    return build(CONFIG_MAPS, home, name, {"data": {"a": "1"} if data is None else data}, **metadata)


CONFIG_MAP = Sample(
    resource=CONFIG_MAPS, fields={"data": {"a": "1"}}, change={"data": {"a": "2"}}, has_status=False
)
SECRET = Sample(resource=SECRETS, fields={"data": {}}, change={"data": {"a": "Mg=="}}, has_status=False)
SERVICE = Sample(
    resource=SERVICES,
    fields={"spec": {"ports": [{"port": 80}]}},
    change={"spec": {"sessionAffinity": "ClientIP"}},
)
POD = Sample(
    resource=PODS, fields={"spec": _POD}, change={"spec": {"activeDeadlineSeconds": 60}}, generations=COUNTED
)
DEPLOYMENT = Sample(
    resource=DEPLOYMENTS,
    fields={"spec": _WORKLOAD},
    change={"spec": {"paused": True}},
    generations=(1, 1, 2, 2, 3),
)
"""Its annotations count as a change, too."""
DAEMON_SET = Sample(
    resource=DAEMON_SETS,
    fields={"spec": _WORKLOAD},
    change={"spec": {"minReadySeconds": 3}},
    generations=COUNTED,
)
NODE = Sample(resource=NODES, fields={"spec": {}}, change={"spec": {"unschedulable": True}})
NAMESPACE = Sample(resource=NAMESPACES, fields={}, change={"metadata": {"labels": {"a": "2"}}})
FLOATING_IP = Sample(
    resource=FLOATING_IPS,
    fields={"spec": {}},
    change={"spec": {"ipaddress": "10.0.0.9"}},
    is_custom=True,
    generations=COUNTED,
)
RANGE = Sample(
    resource=FLOATING_IP_RANGES,
    fields={"spec": {"iprange": "10.0.0.0/24"}},
    change={"spec": {"draining": True}},
    is_custom=True,
    generations=COUNTED,
)
PROVISIONING_CLUSTER = Sample(
    resource=PROVISIONING_CLUSTERS,
    fields={"spec": {}},
    change={"spec": {"a": "2"}},
    is_custom=True,
    generations=COUNTED,
)
MANAGEMENT_CLUSTER = Sample(
    resource=MANAGEMENT_CLUSTERS,
    fields={"spec": {}},
    change={"spec": {"displayName": "2"}},
    is_custom=True,
    has_status=False,
    generations=COUNTED,
)


def build_held(address: str) -> Json:
    """Return a reservation."""
    made = build_reservation(address)
    return build(FLOATING_IP_RESERVATIONS, "", made["metadata"]["name"], {"spec": made["spec"]})
