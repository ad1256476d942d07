"""The ledger of a guest: which Service has which address, in one ConfigMap that every provider swaps.

Why no address is given twice. Before a Service gets an address, the address is entered for it, together with the
version of the Service that was read (its resourceVersion; never an earlier one in place of a later). That write is
tested on the ledger's version, so of two providers that choose the same address one chooses again. Then the Service is
written, tested on the version that is entered. An entry is removed only where no such write can come any more: the
ledger is read, then the Service live; its uid is gone, or its version is another and it does not carry the address; and
the removal is tested on the ledger's version that was read. So an entry outlives every write that could use it, also
that of a provider that was frozen for an hour. No clock and no Lease is needed for that.

A ledger that was deleted takes its entries along, while writes that rely on them may be under way. So a new one is made
with what live Services carry; and before a provider claims by a ledger that it did not know, it stamps every Service
that may still be written with another address than it carries: its status is written, with the ledger's uid among its
annotations. A write that was decided by the former ledger then fails on the Service's version. That such a write may
come shows on the Service: it has no annotation, our condition, or a stamp, which is written first where it has none of
these. What Services carry by the first claim, also by such a write that was faster, is entered with it, and from then
on the ledger is open (`is_open`): who comes to know it relies on it alone. A Service that the API server does not take
the stamp of keeps the ledger from being open, and nothing new of its pools is given out while it is the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Any

from fipop.api import names
from fipop.cloudprovider.services import Service, few_ports, parse_service
from fipop.ipam.addresses import DHCP, Address, address_key, parse_address_key
from fipop.ipam.allocator import Port
from fipop.ipam.errors import IpamError
from fipop.jsons import JsonView, as_mapping
from fipop.texts import is_namespace, is_object_name

NAME, NAMESPACE = names.GUEST_LEDGER, names.GUEST_LEDGER_NAMESPACE
"""Whatever the namespace of the kubevip ConfigMap: providers of two classes share it."""

OPEN = "kubefip.k8s.binbash.org/open"
"""Its value is the ledger's uid: a copy that somebody makes of a ledger is not open."""

FORMAT, KNOWN_FORMAT = "kubefip.k8s.binbash.org/format", "1"
"""The annotation of how entries are written. By a format that this program does not know it assigns nothing."""

MAX_BYTES = 900_000
"""Of keys and values together; an object may have 1 MiB of them."""

FULL = f"The ledger {NAMESPACE}/{NAME} has no room for this Service, or the API server refused the entry."
"""The message of a Service for which the ledger has no room."""

UNKNOWN = (
    f"The ledger {NAMESPACE}/{NAME} has a newer format than fipop knows. Upgrade fipop to assign addresses."
)

_REMEMBERED = 8192
_LAST_PORT = 65535


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One tenant of an address: the Service, and its version when the address was chosen for it.

    `is_chosen`: the provider chose the address; else a user did, or another provider before.
    """

    uid: str
    version: str
    namespace: str
    name: str
    ports: frozenset[Port] = frozenset()
    consents: bool = False
    is_chosen: bool = True

    @cached_property
    def text(self) -> str:
        """How it stands in the ledger; made once, since most of a ledger is written as it was."""
        ports = " ".join(_render_ports(self.ports))
        known = {"uid": self.uid, "version": self.version, "service": f"{self.namespace}/{self.name}"}
        more = {"ports": ports, "shares": self.consents, "chosen": self.is_chosen}
        given = {key: value for key, value in more.items() if value}
        return json.dumps(known | given, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The ledger at one version; `unread` are keys that nobody here can read: they stay as they are.

    `is_open`: no write that was decided by a former ledger can come any more, and what those wrote is entered.
    """

    uid: str
    version: str
    entries: Mapping[Address, Mapping[str, Entry]] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    is_open: bool = False
    is_known: bool = True
    """Whether it has the format that is written here."""

    def by_owner(self) -> dict[str, dict[Address, Entry]]:
        """Give the addresses of each Service, by its uid."""
        found: dict[str, dict[Address, Entry]] = {}
        for address, tenants in self.entries.items():
            for uid, entry in tenants.items():
                found.setdefault(uid, {})[address] = entry
        return found

    @property
    def size(self) -> int:
        """How many bytes its keys and values have."""
        texts = (
            1 + sum(len(each.text) + 1 for each in tenants.values()) for tenants in self.entries.values()
        )
        unread = sum(len(key) + len(text) for key, text in self.unread.items())
        return sum(texts) + sum(len(_render_key(address)) for address in self.entries) + unread

    @property
    def room(self) -> int:
        """How many more bytes it takes."""
        return max(0, MAX_BYTES - self.size)

    def cost(self, address: Address, entry: Entry) -> int:
        """How many more bytes it has with this entry."""
        tenants = self.entries.get(address)
        former = (tenants or {}).get(entry.uid)
        if former is not None:
            return len(entry.text) - len(former.text)
        return len(entry.text) + 1 + (0 if tenants else len(_render_key(address)) + 1)

    def fitting(self, entries: Iterable[tuple[Address, Entry]]) -> list[tuple[Address, Entry]]:
        """Give as many of these entries as it takes, those that were chosen first."""
        room, found = self.room, []
        for address, entry in sorted(entries, key=lambda each: not each[1].is_chosen):
            cost = self.cost(address, entry)
            if cost <= room:
                room -= cost
                found.append((address, entry))
        return found

    def having(self, entries: Iterable[tuple[Address, Entry]]) -> Ledger:
        """Give the ledger with these entries, each in place of the Service's former one."""
        made = dict(self.entries)
        for address, entry in entries:
            made[address] = {**made.get(address, {}), entry.uid: entry}
        return replace(self, entries=made)

    def without(self, tenants: Iterable[tuple[Address, str]]) -> Ledger:
        """Give the ledger without these tenants (address and uid)."""
        made = dict(self.entries)
        for address, gone in tenants:
            made[address] = {uid: entry for uid, entry in made.get(address, {}).items() if uid != gone}
        return replace(self, entries={address: each for address, each in made.items() if each})


def parse_ledger(obj: JsonView) -> Ledger:
    """Read the ConfigMap."""
    entries: dict[Address, Mapping[str, Entry]] = {}
    unread: dict[str, str] = {}
    for key, text in (obj.get("data") or {}).items():
        try:
            entries[parse_address_key(key)] = _parse_tenants(text)
        except (IpamError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            unread[key] = text
    meta = obj["metadata"]
    annotations = as_mapping(meta.get("annotations"))
    return Ledger(
        uid=meta["uid"],
        version=str(meta["resourceVersion"]),
        entries=entries,
        unread=unread,
        is_open=annotations.get(OPEN) == meta["uid"],
        is_known=annotations.get(FORMAT, KNOWN_FORMAT) == KNOWN_FORMAT,
    )


def render_ledger(ledger: Ledger) -> dict[str, Any]:
    """Write the ConfigMap, to replace the version that was read."""
    data = {
        _render_key(address): f"[{','.join(entry.text for entry in tenants.values())}]"
        for address, tenants in ledger.entries.items()
    }
    annotations = {FORMAT: KNOWN_FORMAT} | ({OPEN: ledger.uid} if ledger.is_open else {})
    metadata: dict[str, Any] = {"name": NAME, "namespace": NAMESPACE, "annotations": annotations}
    if ledger.version:
        metadata |= {"uid": ledger.uid, "resourceVersion": ledger.version}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {**ledger.unread, **data}}


def entry_of(service: Service, *, consents: bool = False, is_chosen: bool = True) -> Entry:
    """Return the entry of a Service as it was read."""
    return Entry(
        uid=service.uid,
        version=service.version,
        namespace=service.namespace,
        name=service.name,
        ports=service.ports,
        consents=consents,
        is_chosen=is_chosen,
    )


def is_overwritten(service: Service, held: Mapping[Address, Entry]) -> bool:
    """Whether A names another address than the ledger while L is what the ledger gave.

    `held` are the Service's entries. An A with L first and one of each family that is asked for is not overwritten:
    another provider may have added the second one meanwhile.
    """
    own = held.get(service.requested or DHCP)
    is_known = bool(service.annotated) and held.keys() >= {*service.annotated}
    is_fitting = service.has_own_first and service.has_one_of_each_family
    return own is not None and own.is_chosen and service.has_annotation and not (is_known or is_fitting)


def may_remove(address: Address, entry: Entry, live: JsonView | None, held: Mapping[Address, Entry]) -> bool:
    """Whether no write that relies on an entry can come any more; `live` is the Service, read after the ledger.

    `held` are all entries of the Service: where its annotation is overwritten it keeps them.
    """
    if live is None or live["metadata"].get("uid") != entry.uid:
        return True
    is_other = str(live["metadata"]["resourceVersion"]) != entry.version
    service = parse_service(live)
    return is_other and address not in service.carried and not is_overwritten(service, held)


_render_key = lru_cache(_REMEMBERED)(address_key)


def _parse_tenants(text: str) -> Mapping[str, Entry]:
    return {entry.uid: entry for entry in map(_parse_entry, json.loads(text))}


def _parse_entry(value: Mapping[str, Any]) -> Entry:
    namespace, _, name = value["service"].partition("/")
    if not (is_namespace(namespace) and is_object_name(name)):
        raise ValueError(value["service"])
    return Entry(
        uid=str(value["uid"]),
        version=str(int(value["version"])),
        namespace=namespace,
        name=name,
        ports=few_ports(_parse_ports(value.get("ports", ""))),
        consents=bool(value.get("shares")),
        is_chosen=bool(value.get("chosen")),
    )


def _render_ports(ports: Iterable[Port]) -> Iterable[str]:
    """Yield ports as ranges: `80/TCP`, `5000-5999/UDP`."""
    # Of the ports of a range, which is in a row, the number less the place is the same.
    in_order = enumerate(sorted(ports, key=lambda port: (port[1], port[0])))
    for (protocol, _), each in groupby(in_order, lambda pair: (pair[1][1], pair[1][0] - pair[0])):
        numbers = [number for _, (number, _) in each]
        yield "-".join(map(str, dict.fromkeys((numbers[0], numbers[-1])))) + f"/{protocol}"


def _parse_ports(text: str) -> Iterable[Port]:
    for part in text.split():
        numbers, _, protocol = part.partition("/")
        first, _, last = numbers.partition("-")
        if not protocol or int(last or first) > _LAST_PORT:
            raise ValueError(part)
        yield from ((number, protocol) for number in range(int(first), int(last or first) + 1))
