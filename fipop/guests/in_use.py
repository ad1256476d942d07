"""Which addresses a guest cluster uses: its ConfigMaps and Services name them, or its machines have them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fipop.addresses.in_use import Carrier, InUseAddresses, InUsePart, build_parts
from fipop.api import service as services
from fipop.api.service import Service
from fipop.errors import GuestError
from fipop.guests.config_map import read_applied
from fipop.ipam.addresses import Address
from fipop.ipam.pool import Part, count_parts, parse_leniently
from fipop.jsons import Json, as_mapping
from fipop.texts import is_object_name

CONFIG_MAP, SERVICE, NODE, ENDPOINTS = "ConfigMap", "Service", "Node", "Endpoints"

MAX_PARTS = 8192
"""How many different addresses and pools of a guest cluster are read at most: that takes about 100 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressedService:
    """A Service, and the texts in which it names addresses that it uses."""

    carrier: Carrier
    texts: tuple[str, ...]
    has_finalizer: bool
    """Whether it waits for the cloud provider before it can be deleted."""


class TooManyAddressesError(GuestError):
    """The objects of a guest cluster name more addresses than are read. Ours may be among the rest."""

    def __init__(self) -> None:
        super().__init__(f"the guest cluster names more than {MAX_PARTS} addresses or pools")


def find_in_use(config_maps: Iterable[Json], services: Iterable[AddressedService]) -> InUseAddresses:
    """Return what ConfigMaps (any value) and Services name. Raises: TooManyAddressesError.

    Of several objects that name the same the first stands for all.
    """
    found = _Found()
    for config_map in config_maps:
        applied, carrier = read_applied(config_map), _read_carrier(CONFIG_MAP, config_map)
        for key, text in as_mapping(config_map.get("data")).items():
            if isinstance(text, str):
                found.add(text, carrier, is_ours=applied.get(key) == text)
    for each in services:
        for text in each.texts:
            for part in text.split(","):
                found.add(part.strip(), each.carrier)
    return found.sum_up()


def find_machines(
    nodes: Iterable[tuple[str, frozenset[Address]]], server: frozenset[Address]
) -> InUseAddresses:
    """Return the addresses of nodes (name, addresses) and of the API server. Raises: TooManyAddressesError."""
    owners = [
        (Carrier(kind=NODE, namespace="", name=read_name(name)), addresses) for name, addresses in nodes
    ]
    owners.append((Carrier(kind=ENDPOINTS, namespace="default", name="kubernetes"), server))
    parts: dict[Part, InUsePart] = {}
    for carrier, addresses in owners:
        for each in build_parts(carrier, sorted(addresses)):
            parts.setdefault(each.part, each)
    if len(parts) > MAX_PARTS:
        raise TooManyAddressesError
    return InUseAddresses(tuple(parts.values()))


class _Found:
    def __init__(self) -> None:
        self._parts: dict[str, tuple[InUsePart, ...]] = {}
        self._count = 0

    def add(self, text: str, carrier: Carrier, *, is_ours: bool = False) -> None:
        if text in self._parts and is_ours:
            self._parts[text] = tuple(replace(each, is_ours=True) for each in self._parts[text])
        if not text or text in self._parts:
            return
        self._count += count_parts(text)
        if self._count > MAX_PARTS:
            raise TooManyAddressesError
        self._parts[text] = tuple(InUsePart(part, carrier, is_ours) for part in parse_leniently(text))

    def sum_up(self) -> InUseAddresses:
        first: dict[Part, InUsePart] = {}
        for parts in self._parts.values():
            for each in parts:
                part = Part(each.part.family, each.part.first, each.part.last)
                first.setdefault(part, replace(each, part=part))
        return InUseAddresses(tuple(first.values()))


def read_service(service: Service) -> AddressedService | None:
    """Return of a Service what tells the addresses that it uses; None if it uses none."""
    if not service.is_load_balancer and not service.external_ips:
        return None
    names = read_name(service.namespace), read_name(service.name)
    return AddressedService(
        carrier=Carrier(kind=SERVICE, namespace=names[0], name=names[1]),
        texts=service.texts,
        has_finalizer=service.has_finalizer,
    )


def parse_service(obj: Json) -> AddressedService | None:
    """Read of a Service what tells the addresses that it uses; None if it uses none."""
    return read_service(services.parse_service(obj, most_addresses=MAX_PARTS))


def _read_carrier(kind: str, item: Json) -> Carrier:
    metadata = as_mapping(item.get("metadata"))
    return Carrier(
        kind=kind, namespace=read_name(metadata.get("namespace")), name=read_name(metadata.get("name"))
    )


def read_name(value: object) -> str:
    """Return the name of an object; "?" for anything else, none of which gets into a condition."""
    return str(value) if is_object_name(value) else "?"
