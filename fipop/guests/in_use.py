"""Which addresses a guest cluster uses: its ConfigMaps and Services name them, or its machines have them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fipop.addresses.in_use import AddressUser, InUseAddresses, InUsePart, build_parts
from fipop.api.service import VIP_HOST, Service, parse_service
from fipop.errors import GuestError
from fipop.guests.config_map import read_applied
from fipop.ipam.addresses import Address
from fipop.ipam.pool import Part, count_parts, parse_leniently
from fipop.jsons import Json, as_list, as_mapping
from fipop.texts import read_name

CONFIG_MAP, SERVICE, NODE, ENDPOINTS = "ConfigMap", "Service", "Node", "Endpoints"

MAX_PARTS = 8192
"""How many different addresses and pools of a guest cluster are read at most: that takes about 100 ms."""


class TooManyAddressesError(GuestError):
    """The objects of a guest cluster name more addresses than are read. Ours may be among the rest."""

    def __init__(self) -> None:
        super().__init__(f"the guest cluster names more than {MAX_PARTS} addresses or pools")


def find_in_use(
    config_maps: Iterable[Json], services: Iterable[Service], *, announces_on: bool = True
) -> InUseAddresses:
    """Return what ConfigMaps (any value) and Services name. Raises: TooManyAddressesError.

    Of several objects that name the same the first stands for all. `announces_on`: whether kube-vip may announce a
    Service on that left type LoadBalancer.
    """
    found = _Found()
    for config_map in config_maps:
        applied, metadata = read_applied(config_map), as_mapping(config_map.get("metadata"))
        user = _build_user(CONFIG_MAP, metadata.get("namespace"), metadata.get("name"))
        for key, text in as_mapping(config_map.get("data")).items():
            if isinstance(text, str):
                found.add(text, user, is_ours=applied.get(key) == text)
    for service in services:
        user = _build_user(SERVICE, service.namespace, service.name)
        for text in service.texts:
            for part in text.split(","):
                found.add(part.strip(), user)
        if announces_on and service.may_be_announced_on:
            left = replace(user, node=read_name(service.vip_host))
            for text in (service.annotation, service.request, service.note):
                for part in text.split(","):
                    found.add(part.strip(), left)
    return found.sum_up()


def find_machines(
    nodes: Iterable[tuple[str, frozenset[Address]]], server: frozenset[Address]
) -> InUseAddresses:
    """Return the addresses of nodes (name, addresses) and of the API server. Raises: TooManyAddressesError."""
    owners = [
        (AddressUser(kind=NODE, namespace="", name=read_name(name)), addresses) for name, addresses in nodes
    ]
    owners.append((AddressUser(kind=ENDPOINTS, namespace="default", name="kubernetes"), server))
    parts: dict[Part, InUsePart] = {}
    for user, addresses in owners:
        for each in build_parts(user, sorted(addresses)):
            parts.setdefault(each.part, each)
    if len(parts) > MAX_PARTS:
        raise TooManyAddressesError
    return InUseAddresses(tuple(parts.values()))


class _Found:
    def __init__(self) -> None:
        self._parts: dict[str, tuple[InUsePart, ...]] = {}
        self._count = 0

    def add(self, text: str, user: AddressUser, *, is_ours: bool = False) -> None:
        if text in self._parts and is_ours:
            self._parts[text] = tuple(replace(each, is_ours=True) for each in self._parts[text])
        if not text or text in self._parts:
            return
        self._count += count_parts(text)
        if self._count > MAX_PARTS:
            raise TooManyAddressesError
        self._parts[text] = tuple(InUsePart(part, user, is_ours) for part in parse_leniently(text))

    def sum_up(self) -> InUseAddresses:
        first: dict[Part, InUsePart] = {}
        for parts in self._parts.values():
            for each in parts:
                part = Part(each.part.family, each.part.first, each.part.last)
                first.setdefault(part, replace(each, part=part))
        return InUseAddresses(tuple(first.values()))


def parse_relevant(obj: Json) -> Service | None:
    """Read a Service that may use addresses, or wait for some; None for any other one, most of them."""
    spec = as_mapping(obj.get("spec"))
    is_named = VIP_HOST in as_mapping(as_mapping(obj.get("metadata")).get("annotations"))
    if spec.get("type") != "LoadBalancer" and not as_list(spec.get("externalIPs")) and not is_named:
        return None
    return parse_service(obj, most_addresses=MAX_PARTS)


def _build_user(kind: str, namespace: object, name: object) -> AddressUser:
    return AddressUser(kind=kind, namespace=read_name(namespace), name=read_name(name))
