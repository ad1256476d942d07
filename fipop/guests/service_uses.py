"""What the Services of a guest cluster use of its addresses, and which of them wait for one.

A Service waits since it was created, or since our cloud provider said that its pool has no address for it. Other
providers say nothing: there a Service waits that has no address, and asks for none by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fipop.api.codec import parse_time
from fipop.api.names import GROUP, parse_go_bool
from fipop.guests.in_use import ANNOTATION_LOAD_BALANCER_IPS, find_in_use, parse_service, read_name
from fipop.ipam.addresses import Address, Family, FamilyPolicy
from fipop.jsons import Json, JsonView, as_list, as_mapping, as_text

DEFAULT_CLASS = "kube-vip.io/kube-vip-class"
"""The class that a provider serves if it is to serve a class, and none is named."""

ADDRESS_ASSIGNED = f"{GROUP}/AddressAssigned"
"""The condition of fipop's cloud provider, which only Services have that wait for an address, or did."""
IGNORE = "kube-vip.io/ignore"
_FULL = frozenset({"PoolFull", "NoPool"})
_FAMILIES = {family.label: family for family in Family}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceUse:
    """A Service that uses addresses, or waits for some; its names are fit for a condition."""

    namespace: str
    name: str
    addresses: frozenset[Address] = frozenset()
    lacking: tuple[Family, ...] = ()
    """The families of which it waits for an address."""
    is_flexible: bool = False
    """Whether one of them is enough (PreferDualStack)."""
    since: datetime | None = None
    """Since when it waits; None if it does not."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def read_classes(values: Mapping[str, Any]) -> frozenset[str]:
    """Return the classes that the cloud provider serves by the values of its chart; "" stands for none."""
    extra = values.get("extraEnv")
    entries = map(as_mapping, as_list(extra))
    env = {**as_mapping(extra), **{as_text(each.get("name")): each.get("value") for each in entries}}
    if not parse_go_bool(str(env.get("KUBEVIP_ENABLE_LOADBALANCERCLASS"))):
        return frozenset({""})
    return split_classes(as_text(env.get("KUBEVIP_CUSTOM_LOADBALANCERCLASS_NAME")))


def split_classes(names: str) -> frozenset[str]:
    """Return the classes that `KUBEVIP_CUSTOM_LOADBALANCERCLASS_NAME` names, separated by commas."""
    return frozenset(each.strip() for each in (names or DEFAULT_CLASS).split(","))


def read_use(service: Json, *, classes: frozenset[str]) -> ServiceUse | None:
    """Read a Service; None if it uses no address and waits for none. Raises: TooManyAddressesError."""
    kept, metadata = parse_service(service), as_mapping(service.get("metadata"))
    parts = find_in_use((), [kept] if kept is not None else []).parts
    addresses = frozenset(Address(each.part.family, each.part.first) for each in parts if not each.is_pool)
    since = _find_since(service) if _is_served(service, classes) else None
    if not addresses and since is None:
        return None
    spec = as_mapping(service.get("spec"))
    families, policy = read_families(spec.get("ipFamilies")), as_text(spec.get("ipFamilyPolicy"))
    wanted = families if policy.endswith("DualStack") else families[:1]
    has = {each.family for each in addresses}
    return ServiceUse(
        namespace=read_name(metadata.get("namespace")),
        name=read_name(metadata.get("name")),
        addresses=addresses,
        lacking=tuple(each for each in wanted if each not in has) if since is not None else (),
        is_flexible=policy == FamilyPolicy.PREFER_DUAL_STACK,
        since=since,
    )


def read_families(items: object) -> tuple[Family, ...]:
    """Read the families that the API server granted to a Service; IPv4 if it granted none that is known."""
    known = (_FAMILIES.get(as_text(each)) for each in as_list(items))
    return tuple(dict.fromkeys(each for each in known if each is not None)) or (Family.IPV4,)


def _is_served(service: JsonView, classes: frozenset[str]) -> bool:
    metadata, spec = as_mapping(service.get("metadata")), as_mapping(service.get("spec"))
    is_ignored = as_mapping(metadata.get("annotations")).get(IGNORE) == "true"
    is_ours = spec.get("type") == "LoadBalancer" and as_text(spec.get("loadBalancerClass")) in classes
    return is_ours and not (is_ignored or metadata.get("deletionTimestamp"))


def _find_since(service: JsonView) -> datetime | None:
    """Return since when a Service waits for an address of its pool; None if it does not."""
    metadata, status = as_mapping(service.get("metadata")), as_mapping(service.get("status"))
    created = parse_time(metadata.get("creationTimestamp"))
    conditions = map(as_mapping, as_list(status.get("conditions")))
    ours = next((each for each in conditions if each.get("type") == ADDRESS_ASSIGNED), None)
    if ours is not None:
        told = parse_time(ours.get("lastTransitionTime"))
        is_full = ours.get("reason") in _FULL
        return max(created, told) if created is not None and told is not None and is_full else None
    asked = as_mapping(metadata.get("annotations")).get(ANNOTATION_LOAD_BALANCER_IPS)
    spec, balancer = as_mapping(service.get("spec")), as_mapping(status.get("loadBalancer"))
    has_any = asked or spec.get("loadBalancerIP") or as_list(balancer.get("ingress"))
    return None if has_any else created
