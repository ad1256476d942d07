"""Our cloud provider in a guest cluster, as far as the operator can tell it from the real one: a SIMULATION."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from fipop.api.names import GROUP, GUEST_CONFIG_MAP
from localfleet.objectstore import ObjectStore

Json = dict[str, Any]

CONDITION = f"{GROUP}/AddressAssigned"
ADDRESSES, POOL = "kube-vip.io/loadbalancerIPs", f"{GROUP}/pool"


class ProviderStandIn:
    """Assigns the addresses of key `cidr-<namespace>`, else `cidr-global`, to Services, and says which of them wait.

    Those of a Service that chooses a pool are of key `cidr-<pool>` alone, if its namespace may.
    """

    def __init__(self, guest: ObjectStore, *, lags: Callable[[], bool] = lambda: False) -> None:
        self.guest = guest
        self._lags = lags
        self._data: dict[str, str] = {}

    async def run(self, seconds: float = 0.5) -> None:
        """Serve for ever; while it `lags`, what it knows of the ConfigMap is old."""
        version = -1
        while True:
            is_late = self._lags()
            if version != self.guest.version:
                version = self.guest.version if not is_late else -1
                found = self.guest.objects.get(("configmaps", "kube-system", GUEST_CONFIG_MAP)) or {}
                self._data = self._data if is_late else dict(found.get("data") or {})
                self.serve()
            await asyncio.sleep(seconds)

    def serve(self) -> None:
        """Serve each Service that has no address."""
        services = {key: each for key, each in self.guest.objects.items() if key[0] == "services"}
        used = {each for one in services.values() for each in _addresses_of(one)}
        for key, service in sorted(services.items()):
            spec, metadata = service.get("spec") or {}, service["metadata"]
            if spec.get("type") != "LoadBalancer" or list(_addresses_of(service)):
                continue
            pool = (metadata.get("annotations") or {}).get(POOL) or ""
            allowed = self._data.get(f"allow-pool-{pool}", pool).split(",")
            is_allowed = not pool or key[1] in allowed or "*" in allowed
            text = self._data.get(f"cidr-{pool or key[1]}") or ("" if pool else self._data.get("cidr-global"))
            found = self._choose(text or "", spec, used) if is_allowed else []
            used |= set(found)
            reason = "PoolFull" if is_allowed else "PoolNotAllowed"
            told = {"type": CONDITION, "status": "False", "reason": reason}
            conditions = (service.get("status") or {}).get("conditions") or []
            if found:
                annotations = {**(metadata.get("annotations") or {}), ADDRESSES: ",".join(found)}
                status = {"loadBalancer": {"ingress": [{"ip": each} for each in found]}}
                changed = {"metadata": {**metadata, "annotations": annotations}, "status": status}
                self.guest.write(key, {**service, **changed})
            elif not conditions:
                told["lastTransitionTime"] = self.guest.timestamp()
                self.guest.write(key, {**service, "status": {"conditions": [told]}})

    def _choose(self, text: str, spec: Json, used: set[str]) -> list[str]:
        free = [each for part in text.split(",") if (each := part.partition("/")[0]) and each not in used]
        families = list(spec.get("ipFamilies") or ["IPv4"])
        policy = spec.get("ipFamilyPolicy") or "SingleStack"
        wanted = families if policy.endswith("DualStack") else families[:1]
        found = [next((one for one in free if (":" in one) == (each == "IPv6")), "") for each in wanted]
        if policy == "PreferDualStack":
            return [each for each in found if each]
        return found if all(found) else []


def _addresses_of(service: Json) -> Iterator[str]:
    balancer = (service.get("status") or {}).get("loadBalancer") or {}
    yield from (each["ip"] for each in balancer.get("ingress") or ())
    text = (service["metadata"].get("annotations") or {}).get(ADDRESSES) or ""
    yield from filter(None, text.split(","))
