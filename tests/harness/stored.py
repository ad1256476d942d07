"""What the recorded objects say: owners, addresses, conditions."""

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from ipaddress import ip_address

from tests.harness.history import Json, Key, addresses_in

Slot = tuple[str, str]
"""An address in its space."""
Owner = tuple[str, str]
"""Namespace and name of a floating IP."""
MADE = "kubefip.k8s.binbash.org/made"
"""On a floating IP that fipop made for Services: which spec fipop wrote last, address and all."""


def slot_of(reservation: Json) -> Slot:
    spec = reservation["spec"]
    return spec["space"], canonical(spec["address"])


def owner_of(reservation: Json) -> Owner:
    owner = reservation["spec"].get("owner") or {}
    return owner.get("namespace", ""), owner.get("name", "")


def is_held(reservation: Json) -> bool:
    return not reservation["spec"].get("quarantinedUntil")


def is_seen(obj: Json) -> bool:
    """Whether the latest of what people want of an object was looked at."""
    return bool((obj.get("status") or {}).get("observedGeneration") == obj["metadata"].get("generation"))


def slots_named_by(floating_ip: Json) -> frozenset[Slot]:
    status = floating_ip.get("status") or {}
    space = status.get("addressSpace")
    return frozenset((space, canonical(text)) for text in status.get("addresses") or () if space)


@lru_cache(maxsize=16_384)
def canonical(text: str) -> str:
    return str(ip_address(text))


def addresses_of(obj: Json) -> set[str]:
    """Return the single addresses that a ConfigMap or a Service of a guest cluster uses."""
    if "data" in obj:
        return set().union(*map(addresses_in, (obj["data"] or {}).values()))
    spec = obj.get("spec") or {}
    found = [
        each["ip"] for each in ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    ]
    found += [spec["loadBalancerIP"]] if spec.get("loadBalancerIP") else []
    return {canonical(text) for text in (*found, *(spec.get("externalIPs") or ()))}


def condition(obj: Json, kind: str) -> tuple[str, str]:
    """Status and reason of a condition; two empty texts where it is not there."""
    for each in (obj.get("status") or {}).get("conditions") or ():
        if each["type"] == kind:
            return each["status"], each.get("reason", "")
    return "", ""


def of_kind(now: Mapping[Key, Json], plural: str) -> list[Json]:
    return [obj for key, obj in sorted(now.items()) if key[0] == plural]


def name_of(obj: Json) -> str:
    return "/".join(filter(None, (obj["metadata"].get("namespace"), obj["metadata"]["name"])))


def is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def seconds(text: str) -> float:
    """Read a time of the API as seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()
