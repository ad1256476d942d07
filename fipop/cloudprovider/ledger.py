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
annotations. A write that was decided by the former ledger then fails on
the Service's version. What Services carry after that, also by such a write that was faster, is entered with the first
claim, and from then on the ledger is open (`is_open`): who comes to know it relies on it alone. A Service that the API
server refuses to have stamped keeps the ledger from being open, and nothing new of its pool is given out meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

from fipop.api import names
from fipop.cloudprovider.services import parse_service
from fipop.errors import (
    IpamError,
)
from fipop.ipam.addresses import Address, address_key, parse_address_key
from fipop.ipam.assignment import Port
from fipop.jsons import JsonView, as_mapping

NAME, NAMESPACE = names.GUEST_LEDGER, names.GUEST_LEDGER_NAMESPACE
"""Whatever the namespace of the kubevip ConfigMap: providers of two classes share it."""

OPEN = "kubefip.k8s.binbash.org/open"
"""Its value is the ledger's uid: a copy that somebody makes of a ledger is not open."""

MAX_ENTRIES = 6000
"""About 150 bytes each; an object may have 1 MiB."""

FULL = f"the ledger {NAMESPACE}/{NAME} holds {MAX_ENTRIES} addresses: no more are given out"
"""What a Service is told that finds no room in the ledger."""

_REMEMBERED = MAX_ENTRIES + 2000


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
        ports = " ".join(f"{number}/{protocol}" for number, protocol in sorted(self.ports))
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

    def by_owner(self) -> dict[str, dict[Address, Entry]]:
        """Give the addresses of each Service, by its uid."""
        found: dict[str, dict[Address, Entry]] = {}
        for address, tenants in self.entries.items():
            for uid, entry in tenants.items():
                found.setdefault(uid, {})[address] = entry
        return found

    @property
    def room(self) -> int:
        """How many more addresses it takes."""
        return max(0, MAX_ENTRIES - len(self.entries))

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
        except (IpamError, ValueError, TypeError, KeyError, RecursionError):
            unread[key] = text
    meta = obj["metadata"]
    return Ledger(
        uid=meta["uid"],
        version=str(meta["resourceVersion"]),
        entries=entries,
        unread=unread,
        is_open=as_mapping(meta.get("annotations")).get(OPEN) == meta["uid"],
    )


def render_ledger(ledger: Ledger) -> dict[str, Any]:
    """Write the ConfigMap, to replace the version that was read."""
    data = {
        _render_key(address): f"[{','.join(entry.text for entry in tenants.values())}]"
        for address, tenants in ledger.entries.items()
    }
    metadata: dict[str, Any] = {"name": NAME, "namespace": NAMESPACE}
    if ledger.is_open:
        metadata["annotations"] = {OPEN: ledger.uid}
    if ledger.version:
        metadata |= {"uid": ledger.uid, "resourceVersion": ledger.version}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {**ledger.unread, **data}}


def may_remove(address: Address, entry: Entry, live: JsonView | None) -> bool:
    """Whether no write that relies on an entry can come any more; `live` is the Service, read after the ledger."""
    if live is None or live["metadata"].get("uid") != entry.uid:
        return True
    is_other = str(live["metadata"]["resourceVersion"]) != entry.version
    return is_other and address not in parse_service(live).carried


_render_key = lru_cache(_REMEMBERED)(address_key)


def _parse_tenants(text: str) -> Mapping[str, Entry]:
    return {entry.uid: entry for entry in map(_parse_entry, json.loads(text))}


def _parse_entry(value: Mapping[str, Any]) -> Entry:
    namespace, _, name = value["service"].partition("/")
    pairs = (text.partition("/") for text in value.get("ports", "").split())
    return Entry(
        uid=str(value["uid"]),
        version=str(value["version"]),
        namespace=namespace,
        name=name,
        ports=frozenset((int(number), protocol) for number, _, protocol in pairs),
        consents=bool(value.get("shares")),
        is_chosen=bool(value.get("chosen")),
    )
