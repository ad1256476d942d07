"""Which addresses a guest cluster uses, as its visits read them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from fipop.ipam.addresses import Address
from fipop.ipam.pool import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressUser:
    """An object in a guest cluster that names an address; its names are fit for a condition."""

    kind: str
    namespace: str
    name: str
    node: str = ""
    """The node that can announce the address still, although the object asks for it no more."""

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}".replace(" /", " ")


@dataclass(frozen=True, slots=True)
class InUsePart:
    """Addresses that one object names: a single one, or a part of the pool that a ConfigMap describes."""

    part: Part
    user: AddressUser
    is_ours: bool = False
    """Whether it is in a key that fipop wrote last."""

    @property
    def is_pool(self) -> bool:
        """Whether it is more than one address."""
        return self.part.first != self.part.last


@dataclass(frozen=True, slots=True)
class InUseAddresses:
    """All addresses that a guest cluster uses, in the order of its objects: those of ConfigMaps first."""

    parts: tuple[InUsePart, ...] = ()

    def user_of(self, address: Address) -> AddressUser | None:
        """Return the first object that names the address, also as a member of a pool."""
        return next((each.user for each in self.parts if each.part.holds(address)), None)


def build_parts(user: AddressUser, addresses: Iterable[Address]) -> tuple[InUsePart, ...]:
    """Return single addresses that one object names."""
    return tuple(InUsePart(Part(each.family, each.value, each.value), user) for each in addresses)


class Source(StrEnum):
    """What is read as a whole, or not at all."""

    OBJECTS = "objects"
    """ConfigMaps and Services, which every visit reads."""
    MACHINES = "machines"
    """Nodes and the API server, which have other addresses only now and then."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a visit that began at a time found."""

    began: datetime
    found: InUseAddresses


@dataclass(slots=True)
class Uses:
    """What one guest cluster uses; by the name of a range, or by address space."""

    readings: dict[Source, Reading] = field(default_factory=dict)
    inside: dict[str, dict[Source, tuple[Part, ...]]] = field(default_factory=dict)
    """Which parts of the readings are in a range."""
    could: dict[str, frozenset[Part]] = field(default_factory=dict)
    """Those in a range that could serve the guest cluster when a visit found them."""
    counted: dict[str, frozenset[Address]] = field(default_factory=dict)
    """The addresses of a space that are kept from others."""
    foreign: dict[str, frozenset[Address]] = field(default_factory=dict)
    """Those of them that none of its floating IPs holds, or held."""
    unread_since: datetime | None = None
    """When a visit could first not read it; None if the last one could."""
