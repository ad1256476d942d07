"""The ledger of a guest: which Service has which address, in one ConfigMap that every provider swaps.

Why no address is given twice. Before a Service gets an address, the address is entered for it, together with the
version of the Service that was read (its resourceVersion); the write is tested on the ledger's version, so of two
providers that choose the same address one chooses again. Then the Service is written, tested on the version that is
entered. An entry is removed only where no such write can come any more: the ledger is read, then the Service live; its
uid is gone, or its version is another and it does not carry the address; and the removal is tested on the ledger's
version that was read. So an entry outlives every write that could use it, also that of a provider that was frozen for
an hour. No clock and no Lease is needed for that.

A ledger that was deleted takes its entries along, while writes that rely on them may be under way. So a new one gives
nothing out before it `is_open`: by then every Service that waits was written anew, with the ledger's uid, and a write
that was decided by the former ledger fails on the Service's version.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from fipop.cloudprovider.services import parse_service
from fipop.errors import (
    ApiAlreadyExistsError,
    ApiConflictError,
    ApiError,
    ApiNotFoundError,
    FipopError,
    IpamError,
)
from fipop.ipam.addresses import Address, address_key, parse_address_key
from fipop.ipam.assignment import Port
from fipop.jsons import JsonView
from fipop.kube.resources import CONFIG_MAPS, SERVICES, Resource

NAME, NAMESPACE = "fipop-service-addresses", "kube-system"
"""Whatever the namespace of the kubevip ConfigMap: providers of two classes share it."""

OPEN = "kubefip.k8s.binbash.org/open"
LEDGER_ANNOTATION = "kubefip.k8s.binbash.org/ledger"
"""On a Service that waits: the uid of the ledger that knows of it."""

MAX_ENTRIES = 6000
"""About 150 bytes each; an object may have 1 MiB."""

SWAP_ATTEMPTS = 20


class LedgerFullError(FipopError):
    """The ledger holds as many addresses as an object of Kubernetes can."""

    def __init__(self) -> None:
        super().__init__(
            f"the ledger {NAMESPACE}/{NAME} holds {MAX_ENTRIES} addresses: no more are given out"
        )


class LedgerContendedError(FipopError):
    """Others swapped the ledger first, again and again."""

    def __init__(self) -> None:
        super().__init__(f"the ledger {NAMESPACE}/{NAME} was changed by others again and again")


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The ledger at one version; `unread` are keys that nobody here can read: they stay as they are.

    `is_open`: every Service that waited when the ledger was made has been written anew.
    """

    uid: str
    version: str
    entries: Mapping[Address, Mapping[str, Entry]] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    is_open: bool = False

    def held_by(self, uid: str) -> dict[Address, Entry]:
        """Give the addresses of a Service."""
        return {address: tenants[uid] for address, tenants in self.entries.items() if uid in tenants}

    def having(self, entries: Iterable[tuple[Address, Entry]]) -> Ledger:
        """Give the ledger with these entries, each in place of the Service's former one. LedgerFullError."""
        made = {address: dict(tenants) for address, tenants in self.entries.items()}
        for address, entry in entries:
            made.setdefault(address, {})[entry.uid] = entry
        if len(made) > max(MAX_ENTRIES, len(self.entries)):
            raise LedgerFullError
        return replace(self, entries=made)

    def without(self, tenants: Iterable[tuple[Address, str]]) -> Ledger:
        """Give the ledger without these tenants (address and uid)."""
        made = {address: dict(each) for address, each in self.entries.items()}
        for address, uid in tenants:
            made.get(address, {}).pop(uid, None)
        return replace(self, entries={address: each for address, each in made.items() if each})


def parse_ledger(obj: JsonView) -> Ledger:
    """Read the ConfigMap."""
    entries: dict[Address, dict[str, Entry]] = {}
    unread: dict[str, str] = {}
    for key, text in (obj.get("data") or {}).items():
        try:
            entries[parse_address_key(key)] = {
                entry.uid: entry for entry in map(_parse_entry, json.loads(text))
            }
        except (IpamError, ValueError, TypeError, KeyError, RecursionError):
            unread[key] = text
    meta = obj["metadata"]
    is_open = (meta.get("annotations") or {}).get(OPEN) == "true"
    return Ledger(
        uid=meta["uid"],
        version=str(meta["resourceVersion"]),
        entries=entries,
        unread=unread,
        is_open=is_open,
    )


def render_ledger(ledger: Ledger) -> dict[str, Any]:
    """Write the ConfigMap, to replace the version that was read."""
    data = {
        address_key(address): json.dumps(
            [_render_entry(each) for each in tenants.values()], separators=(",", ":")
        )
        for address, tenants in sorted(ledger.entries.items())
    }
    metadata: dict[str, Any] = {"name": NAME, "namespace": NAMESPACE}
    if ledger.is_open:
        metadata["annotations"] = {OPEN: "true"}
    if ledger.version:
        metadata |= {"uid": ledger.uid, "resourceVersion": ledger.version}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {**ledger.unread, **data}}


def may_remove(address: Address, entry: Entry, live: JsonView | None) -> bool:
    """Whether no write that relies on an entry can come any more; `live` is the Service, read after the ledger."""
    if live is None or live["metadata"].get("uid") != entry.uid:
        return True
    is_other = str(live["metadata"]["resourceVersion"]) != entry.version
    return is_other and address not in parse_service(live).carried


class Door(Protocol):
    """What the ledger asks of the door to the API."""

    async def get(self, resource: Resource, name: str, *, namespace: str | None = ...) -> JsonView | None:
        """Read one object; None where it does not exist."""

    async def create(self, resource: Resource, body: dict[str, Any]) -> JsonView:
        """Create an object."""

    async def replace(self, resource: Resource, body: dict[str, Any]) -> JsonView:
        """Replace an object at the version of the body."""


class LedgerStore:
    """Reads the ledger, and swaps it."""

    def __init__(self, client: Door) -> None:
        self._client = client
        self._known: Ledger | None = None

    def take(self, obj: JsonView | None) -> None:
        """Take in what a watch shows; None: the ledger is gone."""
        found = parse_ledger(obj) if obj is not None else None
        if (
            found is None
            or self._known is None
            or found.uid != self._known.uid
            or int(found.version) > int(self._known.version)
        ):
            self._known = found

    async def read(self) -> Ledger:
        """Read the ledger live; an empty one is created where there is none."""
        found = await self._client.get(CONFIG_MAPS, NAME, namespace=NAMESPACE)
        if found is None:
            try:
                found = await self._client.create(CONFIG_MAPS, render_ledger(Ledger(uid="", version="")))
            except ApiAlreadyExistsError:
                return await self.read()
        self._known = parse_ledger(found)
        return self._known

    async def known(self) -> Ledger:
        """Give the ledger as it is known; it is read where nothing is known of it."""
        return self._known or await self.read()

    async def swap(self, change: Callable[[Ledger], Ledger]) -> Ledger:
        """Change the ledger; `change` is asked again with what is there where somebody else came first.

        After a write of unknown outcome the ledger is read: whether it was done shows in what is there, and one that
        still comes fails, as it is tested on the version. Raises what `change` raises, ApiError, LedgerContendedError.
        """
        ledger = await self.known()
        for _ in range(SWAP_ATTEMPTS):
            wanted = change(ledger)
            if wanted == ledger:
                return ledger
            try:
                self._known = parse_ledger(await self._client.replace(CONFIG_MAPS, render_ledger(wanted)))
            except (ApiConflictError, ApiNotFoundError):
                ledger = await self.read()
            except ApiError as error:
                if not error.outcome_unknown:
                    raise
                ledger = await self.read()
                if replace(ledger, version=wanted.version) == wanted:
                    return ledger
            else:
                return self._known
        raise LedgerContendedError

    async def prune(self, suspects: Callable[[Ledger], Iterable[tuple[Address, Entry]]]) -> int:
        """Remove those suspects that may go; give how many. Nothing is removed where the ledger changed meanwhile."""
        ledger = await self.read()
        gone: list[tuple[Address, str]] = []
        for address, entry in suspects(ledger):
            live = await self._client.get(SERVICES, entry.name, namespace=entry.namespace)
            if may_remove(address, entry, live):
                gone.append((address, entry.uid))
        if not gone:
            return 0
        try:
            answer = await self._client.replace(CONFIG_MAPS, render_ledger(ledger.without(gone)))
        except (ApiConflictError, ApiNotFoundError):
            return 0
        self._known = parse_ledger(answer)
        return len(gone)


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


def _render_entry(entry: Entry) -> dict[str, Any]:
    ports = " ".join(f"{number}/{protocol}" for number, protocol in sorted(entry.ports))
    known = {"uid": entry.uid, "version": entry.version, "service": f"{entry.namespace}/{entry.name}"}
    more = {"ports": ports, "shares": entry.consents, "chosen": entry.is_chosen}
    return known | {key: value for key, value in more.items() if value}
