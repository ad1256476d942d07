"""What keepalived-cloud-provider keeps in its ConfigMap, and what becomes of it: values in, values out.

The annotation is the ledger: who has which address, with which forward method. `data`, which keepalived reads, is made
from it. Keys of `data` that are not of the ledger are somebody else's: they stay, and are in use.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fipop.cloudprovider.services import Service
from fipop.ipam.addresses import Address, Family, format_address, parse_address
from fipop.ipam.errors import IpamError
from fipop.jsons import Json, JsonView, as_list, as_mapping, as_text

LEDGER = "k8s.co/cloud-provider-config"
_ENDS = 2
"""A network of no more addresses than that has no first and last to leave out."""


class Method(StrEnum):
    """How keepalived forwards; NAT where nothing is said."""

    NAT = "NAT"
    DR = "DR"
    PROXY = "PROXY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One Service's place in the ledger; `method` None: nothing is said, which means NAT."""

    uid: str
    address: Address
    namespace: str
    name: str
    method: Method | None = None

    @property
    def value(self) -> str:
        """What keepalived reads of it."""
        suffix = f":{self.method}" if self.method not in {None, Method.NAT} else ""
        return f"{self.namespace}/{self.name}{suffix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The addresses that are given out, from `first` to `last`, however many."""

    text: str
    family: Family
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A Service does not get what it asks for; `reason` is that of the event."""

    service: Service
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the ConfigMap is to be, and what Services are told."""

    held: tuple[Held, ...]
    data: Mapping[str, str]
    refusals: tuple[Refusal, ...]


def parse_network(text: str) -> Network:
    """Read the CIDR that addresses come from; host bits are masked. Raises ValueError."""
    found = ipaddress.ip_network(text.strip(), strict=False)
    first, last = int(found.network_address), int(found.broadcast_address)
    if last - first >= _ENDS:
        first, last = first + 1, last - 1
    return Network(text=str(found), family=Family(found.version), first=first, last=last)


def read_held(config_map: JsonView) -> tuple[Held, ...]:
    """Read the ledger; entries that nobody can read are left out."""
    annotation = as_text(as_mapping(as_mapping(config_map.get("metadata")).get("annotations")).get(LEDGER))
    try:
        found = as_mapping(json.loads(annotation or "{}"))
    except (ValueError, RecursionError):
        return ()
    held = (_read_one(as_mapping(each)) for each in as_list(found.get("services")))
    return tuple({each.uid: each for each in held if each is not None}.values())


def plan(
    config_map: JsonView,
    services: Iterable[Service],
    *,
    gone: frozenset[str],
    network: Network | None,
    default_method: Method,
) -> Plan:
    """Decide what the ConfigMap is to be; `gone` are the uids whose Services are no more, by a live look."""
    before = read_held(config_map)
    data = {key: as_text(value) for key, value in as_mapping(config_map.get("data")).items()}
    ours = {format_address(each.address) for each in before}
    foreign = {key: value for key, value in data.items() if key not in ours}
    work = _Planning(
        held={each.uid: each for each in before if each.uid not in gone},
        foreign=_addresses_of(foreign),
        network=network,
        default=default_method,
    )
    for service in sorted(services, key=lambda each: (each.created, each.key)):
        work.serve(service)
    made = tuple(work.held.values())
    return Plan(
        held=made,
        data={**foreign, **{format_address(each.address): each.value for each in made}},
        refusals=tuple(work.refusals),
    )


def render(config_map: JsonView, wanted: Plan) -> Json:
    """Give the ConfigMap as it is wanted, at the version that was read."""
    metadata = as_mapping(config_map.get("metadata"))
    services = [_render_one(each) for each in wanted.held]
    annotations = dict(as_mapping(metadata.get("annotations")))
    if services or LEDGER in annotations:
        annotations[LEDGER] = json.dumps({"services": services}, separators=(",", ":"))
    return {
        **config_map,
        "metadata": {**metadata, "annotations": annotations},
        "data": dict(wanted.data),
    }


def says_so(config_map: JsonView, wanted: Plan) -> bool:
    """Whether the ConfigMap says all that is wanted."""
    data = {key: as_text(value) for key, value in as_mapping(config_map.get("data")).items()}
    return read_held(config_map) == wanted.held and data == wanted.data


@dataclass(slots=True, kw_only=True)
class _Planning:
    """One look at all Services, the oldest first."""

    held: dict[str, Held]
    foreign: frozenset[Address]
    network: Network | None
    default: Method
    refusals: list[Refusal] = field(default_factory=list)

    def serve(self, service: Service) -> None:
        """Find the address of a Service; it keeps the one that it has where it cannot have another."""
        known = self.held.get(service.uid)
        address = self._find_address(service, known)
        if address is not None:
            self.held[service.uid] = Held(
                uid=service.uid,
                address=address,
                namespace=service.namespace,
                name=service.name,
                method=self._find_method(service, known),
            )

    def _find_address(self, service: Service, known: Held | None) -> Address | None:
        kept = known.address if known is not None else None
        if not service.has_request:
            return kept or self._choose(service)
        if service.requested is None:
            self._refuse(
                service, "InvalidAddress", "The Service is invalid: spec.loadBalancerIP must be an address."
            )
            return kept
        holders = [
            f"{each.namespace}/{each.name}"
            for each in self.held.values()
            if each.address == service.requested and each.uid != service.uid
        ]
        if service.requested in self.foreign:
            holders.append("a key of the ConfigMap that belongs to no Service")
        if holders:
            text = format_address(service.requested)
            self._refuse(
                service, "AddressInUse", f"Address {text} is in use by {', '.join(holders)}. Use another."
            )
            return kept
        return service.requested

    def _choose(self, service: Service) -> Address | None:
        """Give the lowest free address of the network."""
        network = self.network
        if network is None:
            self._refuse(service, "NoPool", "The network is not known. Set KEEPALIVED_SERVICE_CIDR.")
            return None
        taken = self.foreign.union(each.address for each in self.held.values())
        value = network.first
        while value <= network.last and Address(network.family, value) in taken:
            value += 1
        if value > network.last:
            self._refuse(service, "PoolFull", f"Network {network.text} is full. Delete unused Services.")
            return None
        return Address(network.family, value)

    def _find_method(self, service: Service, known: Held | None) -> Method | None:
        """Give what the Service asks for; else what it has; else the default. NAT needs no word."""
        if service.forward_method and service.forward_method not in set(Method):
            message = f'The forward method must be one of {", ".join(Method)}: it is "{service.forward_method[:64]}".'
            self._refuse(service, "InvalidForwardMethod", message)
        elif service.forward_method:
            wanted = Method(service.forward_method)
            is_same = known is not None and (known.method or Method.NAT) is wanted
            if not is_same:
                return wanted if wanted is not Method.NAT else None
        if known is not None:
            return known.method
        return self.default if self.default is not Method.NAT else None

    def _refuse(self, service: Service, reason: str, message: str) -> None:
        self.refusals.append(Refusal(service=service, reason=reason, message=message))


def _read_one(value: JsonView) -> Held | None:
    method, uid = as_text(value.get("forwardMethod")), as_text(value.get("uid"))
    try:
        address = parse_address(as_text(value.get("ip")))
    except IpamError:
        return None
    return Held(
        uid=uid,
        address=address,
        namespace=as_text(value.get("serviceNamespace")),
        name=as_text(value.get("serviceName")),
        method=Method(method) if method in set(Method) else None,
    )


def _render_one(held: Held) -> Json:
    known: dict[str, Any] = {
        "uid": held.uid,
        "ip": format_address(held.address),
        "serviceNamespace": held.namespace,
        "serviceName": held.name,
    }
    return known | ({"forwardMethod": str(held.method)} if held.method is not None else {})


def _addresses_of(keys: Iterable[str]) -> frozenset[Address]:
    found = set()
    for key in keys:
        try:
            found.add(parse_address(key))
        except IpamError:
            continue
    return frozenset(found)
