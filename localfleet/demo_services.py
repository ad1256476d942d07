"""Services in the guest demo get their addresses: by fipop, in kube-vip-cloud-provider's place."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from localfleet.client import ApiClient, Json
from localfleet.observation import find_condition
from localfleet.waiting import eventually

ANNOTATION = "kube-vip.io/loadbalancerIPs"
CONDITION = "kubefip.k8s.binbash.org/AddressAssigned"
DUAL_NAMESPACE = "dual"
OWN_KEYS = {
    "allow-share-default": "true",
    f"range-{DUAL_NAMESPACE}": "10.136.0.10-10.136.0.19,2001:db8:136::10-2001:db8:136::19",
}
"""What people of the guest add to the ConfigMap."""
STATIC = "10.136.1.7"
_CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/kubevip"
_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A Service of the story."""

    name: str
    namespace: str = "default"
    port: int = 80
    annotations: tuple[tuple[str, str], ...] = ()
    spec: tuple[tuple[str, Any], ...] = ()

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/services"

    def build(self) -> Json:
        """As its user writes it."""
        spec = {"type": "LoadBalancer", "ports": [{"port": self.port}], **dict(self.spec)}
        return {"metadata": {"name": self.name, "annotations": dict(self.annotations)}, "spec": spec}


WEB = Wanted(name="web")
DNS = Wanted(name="dns", port=53)
API = Wanted(name="api")
FIXED = Wanted(name="fixed", annotations=((ANNOTATION, STATIC),))
DUAL = Wanted(name="both", namespace=DUAL_NAMESPACE, spec=(("ipFamilyPolicy", "RequireDualStack"),))
ALL = (WEB, DNS, API, FIXED, DUAL)


async def open_services(client: ApiClient) -> str:
    """Have people of the guest create Services; what the one that finds no address is told."""
    await client.create("/api/v1/namespaces", {"metadata": {"name": DUAL_NAMESPACE}})
    await client.patch(_CONFIG_MAP, {"data": OWN_KEYS})
    for wanted in (WEB, DNS, FIXED, DUAL):
        await client.create(wanted.path, wanted.build())
        await eventually(lambda one=wanted: _addresses(client, one), seconds=_SECONDS, what=wanted.name)  # type: ignore[misc]
    await client.create(API.path, API.build())

    async def told() -> str:
        found = find_condition(await client.get(f"{API.path}/{API.name}"), CONDITION)
        return str(found.get("message", "")) if found.get("status") == "False" else ""

    return await eventually(told, seconds=_SECONDS, what="who waits is told")


async def read_services(client: ApiClient) -> dict[str, Json]:
    """The Services of the story as they are."""
    return {each.name: await client.find(f"{each.path}/{each.name}") or {} for each in ALL}


async def is_served(client: ApiClient, wanted: Wanted) -> bool:
    """Whether a Service has an address."""
    return bool(await _addresses(client, wanted))


async def _addresses(client: ApiClient, wanted: Wanted) -> str:
    return addresses_of(await client.get(f"{wanted.path}/{wanted.name}"))


def addresses_of(service: Json) -> str:
    """What a Service was given, or its user wrote."""
    return str((service.get("metadata", {}).get("annotations") or {}).get(ANNOTATION, ""))


def service_rows(services: dict[str, Json]) -> Iterator[list[str]]:
    """The rows of a table."""
    for name, service in services.items():
        told = find_condition(service, CONDITION)
        namespace = service.get("metadata", {}).get("namespace", "")
        yield [namespace, name, addresses_of(service), told.get("reason", ""), told.get("message", "")]
