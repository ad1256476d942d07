"""The guest's ConfigMap `kubevip`: which keys fipop wants there, and the one patch that brings them about.

The cloud provider in the guest reads it: `cidr-<namespace>` or `cidr-global` names a pool, `allow-share-…` and
`interface-…` shape it. A key is ours if its value is an address that the ledger gives or gave this guest, or
what we wrote last. All other keys belong to other people.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fipop.api import names
from fipop.guest.configmap.keys import ALLOW_SHARE, CIDR, INTERFACE, DesiredKey, DesiredKeys
from fipop.ipam.addresses import Address
from fipop.ipam.pool import MAX_GUEST_PARTS, Part, count_parts, parse_leniently
from fipop.jsons import Json
from fipop.texts import is_namespace

_PREFIXES = (CIDR, ALLOW_SHARE, INTERFACE)
_PREDECESSOR_EMPTY = "/32"
"""What kube-fip-operator wrote for a floating IP without an address."""

_VERSION = re.compile(r"[!-~]{1,64}")
_MAX_ANNOTATION = 256 * 1024  # the API server's limit for all annotations of an object


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedKey:
    """A key that stays as it is: somebody else's value stands there, which we were not told to overwrite."""

    name: str
    floating_ips: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """A write to a guest's ConfigMap: the whole object where there is none, else a merge patch.

    The merge patch carries the resourceVersion that was read: 409 when somebody wrote in between.
    """

    create: bool
    body: Json
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be done with a ConfigMap: `patch` is None where nothing is."""

    patch: Patch | None = None
    blocked: tuple[BlockedKey, ...] = ()


def parse_config_map(item: Json) -> Json:
    """Give of a guest's ConfigMap what is read, in the shape that Kubernetes gives it.

    Raises ValueError where it has no namespace or version that a ConfigMap could have.
    """
    metadata = item["metadata"]
    namespace, version = metadata.get("namespace"), metadata.get("resourceVersion")
    if not is_namespace(namespace) or not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise ValueError("no ConfigMap of an API server")
    return {
        "metadata": {
            "namespace": namespace,
            "name": names.GUEST_CONFIG_MAP,
            "resourceVersion": version,
            "annotations": _texts(metadata, "annotations"),
        },
        "data": _texts(item, "data"),
    }


def plan_patch(
    current: Json | None,
    desired: DesiredKeys,
    *,
    granted: frozenset[str],
    namespace: str,
    frozen: frozenset[str] = frozenset(),
    max_parts: int = MAX_GUEST_PARTS,
) -> Plan:
    """Compare a ConfigMap (None: there is none) with what is desired and give the write that settles it.

    `granted`: every address that the ledger gives this guest or gave it and still keeps in quarantine.
    `frozen`: keys with one of these addresses stay as they are.
    `max_parts`: of how many parts the pools that stand there are read; a longer one counts as somebody else's.
    """
    data = _texts(current, "data")
    applied_text = _annotation(current)
    book = _Book(
        data=data,
        applied=read_applied(current),
        granted=_hosts(part for text in granted for part in parse_leniently(text)),
        frozen=_hosts(part for text in frozen for part in parse_leniently(text)),
        pools=_read_pools(data, max_parts),
    )
    changes: dict[str, str | None] = {}
    owned: dict[str, str] = {}
    blocked = []
    for key in desired.keys:
        if book.is_frozen(key.name):
            continue
        if book.is_free(key):
            owned[key.name] = key.value
            if data.get(key.name) != key.value:
                changes[key.name] = key.value
        elif not book.serves(key):
            blocked.append(BlockedKey(name=key.name, floating_ips=key.floating_ips))
    wanted_names = {key.name for key in desired.keys}
    changes.update(dict.fromkeys(book.stale(wanted_names)))
    owned |= {name: value for name, value in book.applied.items() if book.is_frozen(name)}
    mark = json.dumps(owned, sort_keys=True, separators=(",", ":")) if owned else None
    if not changes and mark == applied_text:
        return Plan(blocked=tuple(blocked))
    return Plan(patch=_build_patch(current, changes, mark, namespace), blocked=tuple(blocked))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Book:
    """What stands in the ConfigMap, and what tells our keys from other people's.

    `pools`: what its `cidr-` keys name; a key that is not among them was too long to be read.
    """

    data: Mapping[str, str]
    applied: Mapping[str, str]
    granted: frozenset[Address]
    frozen: frozenset[Address]
    pools: Mapping[str, tuple[Part, ...]]

    def is_ours(self, name: str) -> bool:
        value = self.data[name]
        if self.applied.get(name) == value:
            return True
        if not name.startswith(CIDR):
            return False
        if value.strip() == _PREDECESSOR_EMPTY:
            return True
        parts = self.pools.get(name, ())
        is_read = len(parts) == count_parts(value)
        return is_read and all(each.first == each.last for each in parts) and _hosts(parts) <= self.granted

    def is_frozen(self, name: str) -> bool:
        """Whether a key, or the pool that it shapes, has an address of a floating IP with the wrong cluster name."""
        scope = next((name.removeprefix(each) for each in _PREFIXES if name.startswith(each)), name)
        return any(part.holds(each) for part in self.pools.get(CIDR + scope, ()) for each in self.frozen)

    def is_free(self, key: DesiredKey) -> bool:
        """Whether the key may be written: it is absent, ours, or we were told to overwrite it."""
        return key.name not in self.data or key.overwrite or self.is_ours(key.name)

    def serves(self, key: DesiredKey) -> bool:
        """Whether somebody else's value does what we want: it says the same, or its pool holds our addresses."""
        value = self.data[key.name]
        if value == key.value:
            return True
        if not key.name.startswith(CIDR):
            return False
        parts = self.pools.get(key.name, ())
        hosts = _hosts(parse_leniently(key.value))
        return all(any(part.holds(host) for part in parts) for host in hosts)

    def stale(self, wanted: set[str]) -> list[str]:
        """The keys that are ours and wanted no more, in order."""
        return [
            name
            for name in sorted(self.data)
            if name not in wanted
            and name.startswith(_PREFIXES)
            and self.is_ours(name)
            and not self.is_frozen(name)
        ]


def _hosts(parts: Iterable[Part]) -> frozenset[Address]:
    """Return the addresses of parts of one address each."""
    return frozenset(Address(part.family, part.first) for part in parts)


def _read_pools(data: Mapping[str, str], max_parts: int) -> dict[str, tuple[Part, ...]]:
    """Read the pools, the shortest first, up to a bound: whoever writes a huge one does not hide the others."""
    pools: dict[str, tuple[Part, ...]] = {}
    left = max_parts
    for parts, name in sorted(
        (count_parts(value), name) for name, value in data.items() if name.startswith(CIDR)
    ):
        left -= parts
        if left < 0:
            break
        pools[name] = parse_leniently(data[name])
    return pools


def _build_patch(current: Json | None, changes: Json, mark: str | None, namespace: str) -> Patch:
    annotations = {names.ANNOTATION_APPLIED: mark}
    if current is None:
        metadata: Json = {
            "name": names.GUEST_CONFIG_MAP,
            "namespace": namespace,
            "annotations": annotations,
        }
        body: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": changes}
    else:
        version = current["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version, "annotations": annotations}}
        if changes:
            body["data"] = changes
    return Patch(create=current is None, body=body, changed=tuple(sorted(changes)))


def _annotation(current: Json | None) -> str | None:
    metadata = (current or {}).get("metadata")
    return _texts(metadata, "annotations").get(names.ANNOTATION_APPLIED)


def _texts(holder: object, name: str) -> dict[str, str]:
    entries = holder.get(name) if isinstance(holder, dict) else None
    if not isinstance(entries, dict):
        return {}
    return {key: value for key, value in entries.items() if isinstance(value, str)}


def read_applied(config_map: Json | None) -> dict[str, str]:
    """Return the keys that fipop wrote last to a ConfigMap, with their values."""
    # Anybody in the guest cluster may have edited it: it can at worst give away its own keys.
    text = _annotation(config_map)
    if text is None or len(text) > _MAX_ANNOTATION:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return _texts({"": found}, "")
