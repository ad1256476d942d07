"""Which addresses a guest still carries: its ConfigMaps name them, or its Services hold them.

An address that a guest carries is not given to another, whatever the ledger says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from fipop.errors import GuestError
from fipop.ipam.addresses import Address
from fipop.ipam.pool import MAX_GUEST_PARTS, Part, count_parts, parse_leniently
from fipop.jsons import Json, as_list, as_mapping
from fipop.texts import is_object_name

ANNOTATION_LOAD_BALANCER_IPS = "kube-vip.io/loadbalancerIPs"

CONFIG_MAP, SERVICE = "ConfigMap", "Service"


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier:
    """An object in a guest that names an address; its names are fit for a condition."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class InUsePart:
    """Addresses that one object carries: a single one, or a part of the pool that a ConfigMap describes."""

    part: Part
    carrier: Carrier


@dataclass(frozen=True, slots=True)
class InUseAddresses:
    """All that a guest carries, in the order of its objects."""

    parts: tuple[InUsePart, ...] = ()

    def carrier_of(self, address: Address) -> Carrier | None:
        """Return the first object that carries the address, also as a member of a pool."""
        return next((each.carrier for each in self.parts if each.part.holds(address)), None)

    @property
    def single(self) -> tuple[Address, ...]:
        """The addresses that are written one by one, not as members of a pool.

        Those of ConfigMaps first, which administrators write, then those of Services; each from the lowest.
        """
        found: dict[Address, bool] = {}
        for each in self.parts:
            if each.part.first == each.part.last:
                address = Address(each.part.family, each.part.first)
                found[address] = found.get(address, True) and each.carrier.kind == SERVICE
        return tuple(sorted(found, key=lambda address: (found[address], address)))


class TooManyAddressesError(GuestError):
    """A guest's objects name more addresses than are read: nobody knows which of ours are among them."""

    def __init__(self, *, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"ConfigMaps and Services of the guest cluster name more than {limit} addresses or ranges"
        )


def addresses_in(config_maps: Iterable[Json], services: Iterable[Json]) -> InUseAddresses:
    """Read what ConfigMaps (any value) and Services of type LoadBalancer carry. Raises TooManyAddressesError.

    Of several objects with the very same text the first stands for all.
    """
    texts = [
        (text, CONFIG_MAP, config_map)
        for config_map in config_maps
        for text in _strings(config_map.get("data"))
    ]
    texts += [(text, SERVICE, service) for service in services for text in _service_texts(service)]
    found: dict[str, tuple[InUsePart, ...]] = {}
    parts = 0
    for text, kind, item in texts:
        if text in found:
            continue
        parts += count_parts(text)
        if parts > MAX_GUEST_PARTS:
            raise TooManyAddressesError(limit=MAX_GUEST_PARTS)
        carrier = _carrier(kind, item)
        found[text] = tuple(InUsePart(part, carrier) for part in parse_leniently(text))
    return InUseAddresses(tuple(chain.from_iterable(found.values())))


def parse_service(service: Json) -> Json:
    """Give of a Service what tells the addresses that it holds; nothing of one that is no LoadBalancer."""
    metadata, spec = as_mapping(service.get("metadata")), as_mapping(service.get("spec"))
    kept: Json = {"metadata": {name: metadata.get(name) for name in ("namespace", "name")}}
    if spec.get("type") != "LoadBalancer":
        return kept
    asked = as_mapping(metadata.get("annotations")).get(ANNOTATION_LOAD_BALANCER_IPS)
    kept["metadata"]["annotations"] = {ANNOTATION_LOAD_BALANCER_IPS: asked}
    ingress = as_mapping(as_mapping(service.get("status")).get("loadBalancer")).get("ingress")
    return kept | {
        "spec": {"type": "LoadBalancer", "loadBalancerIP": spec.get("loadBalancerIP")},
        "status": {
            "loadBalancer": {
                "ingress": [{"ip": as_mapping(one).get("ip")} for one in as_list(ingress)[:MAX_GUEST_PARTS]]
            }
        },
    }


def _service_texts(service: Json) -> Iterator[str]:
    spec = as_mapping(service.get("spec"))
    if spec.get("type") != "LoadBalancer":
        return
    annotations = as_mapping(as_mapping(service.get("metadata")).get("annotations"))
    yield from _strings(
        {"": annotations.get(ANNOTATION_LOAD_BALANCER_IPS), "spec": spec.get("loadBalancerIP")}
    )
    ingress = as_mapping(as_mapping(service.get("status")).get("loadBalancer")).get("ingress")
    for entry in as_list(ingress):
        yield from _strings({"": as_mapping(entry).get("ip")})


def _carrier(kind: str, item: Json) -> Carrier:
    metadata = as_mapping(item.get("metadata"))
    return Carrier(kind=kind, namespace=_name(metadata.get("namespace")), name=_name(metadata.get("name")))


def _name(value: object) -> str:
    # A guest that answers with anything but a name gets none of it into a condition.
    return str(value) if is_object_name(value) else "?"


def _strings(value: object) -> list[str]:
    return [text for text in as_mapping(value).values() if isinstance(text, str)]
