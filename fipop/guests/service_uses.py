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
from fipop.api.names import parse_go_bool
from fipop.api.service import Service, parse_service, split_classes
from fipop.guests.in_use import MAX_PARTS, find_in_use, read_name, read_service
from fipop.ipam.addresses import Address, Family, FamilyPolicy
from fipop.jsons import Json, as_list, as_mapping, as_text

_FULL = frozenset({"PoolFull", "NoPool"})


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


def read_use(obj: Json, *, classes: frozenset[str]) -> ServiceUse | None:
    """Read a Service; None if it uses no address and waits for none. Raises: TooManyAddressesError."""
    service = parse_service(obj, most_addresses=MAX_PARTS)
    parts = find_in_use((), filter(None, [read_service(service)])).parts
    addresses = frozenset(Address(each.part.family, each.part.first) for each in parts if not each.is_pool)
    since = _find_since(service) if _is_served(service, classes) else None
    if not addresses and since is None:
        return None
    wanted = service.families if service.policy is not FamilyPolicy.SINGLE_STACK else service.families[:1]
    has = {each.family for each in addresses}
    return ServiceUse(
        namespace=read_name(service.namespace),
        name=read_name(service.name),
        addresses=addresses,
        lacking=tuple(each for each in wanted if each not in has) if since is not None else (),
        is_flexible=service.policy is FamilyPolicy.PREFER_DUAL_STACK,
        since=since,
    )


def _is_served(service: Service, classes: frozenset[str]) -> bool:
    is_ours = service.is_load_balancer and service.class_name in classes
    return is_ours and not (service.is_ignored or service.is_deleting)


def _find_since(service: Service) -> datetime | None:
    """Return since when a Service waits for an address of its pool; None if it does not."""
    created = parse_time(service.created)
    if service.finding is not None:
        found = parse_time(service.finding_since)
        is_full = service.finding.reason in _FULL
        return max(created, found) if created is not None and found is not None and is_full else None
    return None if service.annotation or service.request or service.ingress else created
