"""What people do in one namespace of a guest: Services, and the keys of the kubevip ConfigMap for it."""

from dataclasses import dataclass
from typing import Any

from localfleet.client import ApiClient, Json
from localfleet.errors import ApiError
from localfleet.provider import NAME
from localfleet.waiting import eventually

A = "kube-vip.io/loadbalancerIPs"
INTERFACE = "kube-vip.io/serviceInterface"
FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
CONDITION = "kubefip.k8s.binbash.org/AddressAssigned"
KEYS = "/api/v1/namespaces/kube-system/configmaps/kubevip"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
LEASE, OWN_LEASE = f"{LEASES}/{NAME}", f"{LEASES}/fipop-kubevip"

SERVED_SECONDS = 6.0
"""A Service has what it can have after 2 s; three times that."""
PATIENCE_SECONDS = 30.0


def build_service(
    name: str,
    *,
    ports: tuple[int, ...] = (80,),
    protocol: str = "TCP",
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    finalizers: list[str] | None = None,
    **spec: Any,
) -> Json:
    """A Service of type LoadBalancer, as its user writes it."""
    listed = [{"name": f"p{port}", "port": port, "protocol": protocol} for port in ports]
    metadata: Json = {"name": name, "annotations": annotations or {}, "labels": labels or {}}
    if finalizers:
        metadata["finalizers"] = finalizers
    return {"metadata": metadata, "spec": {"type": "LoadBalancer", "ports": listed, **spec}}


DUAL = {"ipFamilyPolicy": "RequireDualStack"}
PREFER = {"ipFamilyPolicy": "PreferDualStack"}


@dataclass(slots=True, kw_only=True)
class Shop:
    """One namespace; its pool is what `offer` says. `net` are the first three numbers of addresses of its own."""

    client: ApiClient
    namespace: str
    number: int

    @property
    def net(self) -> str:
        return f"10.77.{self.number}"

    @property
    def net6(self) -> str:
        return f"2001:db8:{self.number:x}:"

    def path(self, name: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/services/{name}"

    async def set_keys(self, **keys: str | None) -> None:
        """Set keys for this namespace: `cidr=…` is `cidr-<namespace>`; None takes one away."""
        data = {f"{key.replace('_', '-')}-{self.namespace}": value for key, value in keys.items()}
        await self.ensure_keys()
        await self.client.patch(KEYS, {"data": data})

    async def ensure_keys(self) -> None:
        """Create the ConfigMap if nobody did: the provider does only if a Service asks for an address."""
        if await self.client.find(KEYS) is None:
            place, _, name = KEYS.rpartition("/")
            try:
                await self.client.create(place, {"metadata": {"name": name}})
            except ApiError as error:
                if error.reason != "AlreadyExists":  # the provider was faster
                    raise

    async def offer(self, last: int, *, first: int = 1, with_v6: bool = False) -> None:
        """Have a pool of this namespace: the addresses `first` to `last` of its net."""
        text = f"{self.net}.{first}-{self.net}.{last}"
        if with_v6:
            text += f",{self.net6}:{first}-{self.net6}:{last}"
        await self.set_keys(range=text)

    async def open(self, name: str, **options: Any) -> Json:
        """Create a Service."""
        return await self.client.create(
            f"/api/v1/namespaces/{self.namespace}/services", build_service(name, **options)
        )

    async def change(self, name: str, patch: Json) -> Json:
        """Change a Service as its user does."""
        return await self.client.patch(self.path(name), patch)

    async def close(self, name: str) -> None:
        """Delete a Service."""
        await self.client.delete(self.path(name))

    async def read(self, name: str) -> Json:
        return await self.client.get(self.path(name))

    async def has(self, name: str, addresses: str, *, seconds: float = PATIENCE_SECONDS) -> Json:
        """Wait until A of a Service is so, and everything else as it belongs to a chosen one."""

        async def look() -> Json:
            found = await self.read(name)
            assert of(found) == addresses, of(found)
            return found

        return await eventually(look, seconds=seconds, what=f"{name} has {addresses}")

    async def waits(self, name: str, reason: str) -> str:
        """Wait until a Service is told why it has no address; what it is told."""

        async def look() -> str:
            found = condition(await self.read(name))
            assert (found["status"], found["reason"]) == ("False", reason), found
            return str(found["message"])

        return await eventually(look, seconds=PATIENCE_SECONDS, what=f"{name} waits for {reason}")

    async def is_gone(self, name: str) -> None:
        """Wait until there is no such Service."""

        async def look() -> bool:
            return await self.client.find(self.path(name)) is None

        await eventually(look, seconds=PATIENCE_SECONDS, what=f"{name} is gone")

    async def events(self, reason: str) -> list[str]:
        """The messages of events of this namespace."""
        found = await self.client.items(f"/api/v1/namespaces/{self.namespace}/events")
        return [each["message"] for each in found if each["reason"] == reason]

    async def warned(self, reason: str, words: str) -> str:
        """Wait for an event that says so."""

        async def look() -> str | None:
            return next((text for text in await self.events(reason) if words in text), None)

        return await eventually(look, seconds=PATIENCE_SECONDS, what=f"event {reason} with {words}")


def of(service: Json) -> str:
    """A of a Service."""
    return str((service["metadata"].get("annotations") or {}).get(A, ""))


def condition(service: Json) -> Json:
    """Our condition of a Service; empty where there is none."""
    conditions = service["status"].get("conditions") or ()
    return next((each for each in conditions if each["type"] == CONDITION), {})


def is_chosen(service: Json) -> bool:
    """Whether a Service has all that a provider writes where it chose the address."""
    metadata, first = service["metadata"], of(service).partition(",")[0]
    return (
        metadata.get("labels", {}).get("implementation") == "kube-vip"
        and FINALIZER in metadata.get("finalizers", ())
        and service["spec"].get("loadBalancerIP") == first
    )
