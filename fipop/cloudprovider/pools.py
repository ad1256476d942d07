"""The keys of the ConfigMap `kubevip`: which pool, sharing and interface a namespace has.

The first of `cidr-<ns>`, `range-<ns>`, the keys of a pool that names the namespace (`namespaces-<name>`), `cidr-global`
and `range-global` that exists is the one pool of a namespace. If it is full, there is no other: pools isolate, or
belong to another interface. The other keys of the namespace itself win over those of the pool that serves it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from fipop.api.names import parse_go_bool
from fipop.ipam.addresses import Address, Family
from fipop.ipam.errors import IpamError
from fipop.ipam.intervals import AddressSet, IntervalSet
from fipop.ipam.pool import describe_masked, parse_guest_pool, parse_parts
from fipop.texts import clean, find_alike

GLOBAL = "global"
DHCP_TEXTS = {
    "0.0.0.0": Family.IPV4,  # noqa: S104 - nothing is bound
    "0.0.0.0/32": Family.IPV4,
    "::": Family.IPV6,
    "::/128": Family.IPV6,
}
"""The parts of a pool that mean DHCP, which are then the whole text of the pool."""
_NONE, _DHCP = AddressSet(), AddressSet(v4=IntervalSet.of([(0, 0)]), v6=IntervalSet.of([(0, 0)]))
MOST_SHOWN = 1000
"""How many pools have metrics, and how many keys have events: each costs time. All others serve all the same."""
MOST_GUESSED = 200
"""For how many unknown keys a known one is looked for that was probably meant."""

POOLS = ("cidr", "range")
FLAGS = ("allow-share", "draining")
SCOPED = (*POOLS, *FLAGS, "namespaces", "exclude", "interface")
SINGLE = ("search-order", "skip-end-ips-in-cidr", "sticky-seconds")
_STICKY = re.compile(r"[0-9]{1,8}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespacePool:
    """The pool of a namespace."""

    key: str
    addresses: AddressSet = _NONE
    """Empty if it has DHCP alone, or a problem."""
    descending: bool = False
    dhcp: frozenset[Family] = frozenset()
    """The families that its text asks DHCP for."""
    problem: str = ""
    """Why it assigns nothing."""
    is_of_operator: bool = False
    """Whether fipop's operator writes the key: then no one in the cluster can extend it."""

    @property
    def families(self) -> tuple[Family, ...]:
        """The families that it assigns, IPv4 first."""
        return tuple(family for family in Family if self.addresses.of(family))


class PoolKeys:
    """The data of the ConfigMap. What cannot be read concerns the namespaces of that key alone."""

    def __init__(self, data: Mapping[str, str], applied: Mapping[str, str] | None = None) -> None:
        """`applied` are the keys that fipop's operator wrote last, with their values."""
        self._data = dict(data)
        self._applied = applied or {}
        self._built: dict[tuple[str, str, bool], NamespacePool] = {}
        self._scopes = self._read_scopes()

    def pool_of(self, namespace: str) -> NamespacePool | None:
        """Return the pool of a namespace; None if no key is meant for it."""
        found = self._find(namespace)
        return self._read_pool(*found, namespace) if found is not None else None

    @cached_property
    def pools(self) -> tuple[NamespacePool, ...]:
        """The pools of the first MOST_SHOWN keys, in their order, as they serve their own scope."""
        keys = sorted(key for key in self._data if key.partition("-")[0] in POOLS)
        return tuple(self._read_pool(key, *[key.partition("-")[2]] * 2) for key in keys[:MOST_SHOWN])

    def has_address(self, address: Address) -> bool:
        """Return whether an address is in one of `pools`."""
        sets = (found for (family, _), found in self._in_pools.items() if family is address.family)
        return any(address.value in each for each in sets)

    @cached_property
    def _in_pools(self) -> dict[tuple[Family, int], IntervalSet]:
        """The addresses of all pools by family and kind: asking many pools costs no more than asking one."""
        found: dict[tuple[Family, int], list[tuple[int, int]]] = defaultdict(list)
        for pool in self.pools:
            for family in Family:
                for first, last, kind in pool.addresses.of(family).intervals:
                    found[family, kind].append((first, last))
        return {key: IntervalSet.of(pairs, key[1]) for key, pairs in found.items()}

    def allows_sharing(self, namespace: str) -> bool:
        """Return whether Services of a namespace may share addresses."""
        return self._flag(self._first("allow-share", *self._scopes_of(namespace), GLOBAL))

    def interface_of(self, namespace: str) -> str | None:
        """Return the interface that addresses of a namespace are announced on."""
        key = self._first("interface", *self._scopes_of(namespace), GLOBAL)
        return (self._data[key].strip() or None) if key is not None else None

    @property
    def sticky_seconds(self) -> int:
        """For how long a Service that is created again gets its former addresses; 0 if it does not."""
        text = self._data.get("sticky-seconds", "").strip()
        return int(text) if _STICKY.fullmatch(text) else 0

    def problems(self) -> Mapping[str, str]:
        """Return what is wrong with each key that cannot be read, of MOST_SHOWN at most."""
        return dict(islice(self._find_problems(), MOST_SHOWN))

    def _find_problems(self) -> Iterator[tuple[str, str]]:
        for pool in self.pools:
            if pool.problem:
                yield pool.key, pool.problem
        for key, value in self._data.items():
            wanted = ""
            if key.startswith(tuple(f"{each}-" for each in FLAGS)) or key == "skip-end-ips-in-cidr":
                wanted = "true or false" if parse_go_bool(value.strip()) is None else ""
            elif key == "search-order" and value.strip() not in ("", "asc", "desc"):
                wanted = "asc or desc"
            elif key == "sticky-seconds" and value.strip() and not _STICKY.fullmatch(value.strip()):
                wanted = "a number of seconds with up to 8 digits"
            if wanted:
                yield key, f'Key {key} is invalid: it must be {wanted}, and is "{clean(value, 64)}".'

    def spelling_warnings(self) -> Mapping[str, str]:
        """Return of each key that is probably not what its author meant what is odd, of MOST_SHOWN at most."""
        return dict(islice(self._find_warnings(), MOST_SHOWN))

    def _find_warnings(self) -> Iterator[tuple[str, str]]:
        for pool in self.pools:
            if pool.addresses:
                texts = describe_masked(parse_parts(self._data[pool.key], pool.key))
                if texts:
                    yield pool.key, f"In key {pool.key} {clean(', '.join(texts), 512)}."
        unknown = (key for key in self._data if not _is_known(key))
        for key in islice(unknown, MOST_GUESSED):
            meant = _find_meant(key)
            if meant:
                yield key, f"Key {clean(key, 64)} is not known. Did you mean {meant}?"

    def _scopes_of(self, namespace: str) -> tuple[str, ...]:
        """Return the namespace itself, and the scope of the pool that serves it."""
        found = self._find(namespace)
        return (namespace, found[1]) if found is not None else (namespace,)

    def _find(self, namespace: str) -> tuple[str, str] | None:
        """Return key and scope of the pool of a namespace."""
        for scope in (namespace, *self._scopes.get(namespace, ()), GLOBAL):
            key = self._first_of(f"{kind}-{scope}" for kind in POOLS)
            if key is not None:
                return key, scope
        return None

    def _first(self, prefix: str, *scopes: str) -> str | None:
        return self._first_of(f"{prefix}-{scope}" for scope in scopes)

    def _first_of(self, keys: Iterator[str]) -> str | None:
        return next((key for key in keys if key in self._data), None)

    def _read_pool(self, key: str, scope: str, namespace: str) -> NamespacePool:
        draining = self._first("draining", namespace, scope)
        if self._flag(draining):
            return NamespacePool(
                key=key, problem=f"Key {key} is draining ({draining}) and assigns no addresses."
            )
        excluding = self._first("exclude", namespace, scope)
        exclude = self._data[excluding] if excluding is not None else ""
        skip_end_ips = self._flag("skip-end-ips-in-cidr")
        known = key, exclude, skip_end_ips
        if known not in self._built:
            built = _build_pool(
                key,
                self._data[key],
                exclude,
                skip_end_ips,
                self._data.get("search-order", "").strip() == "desc",
            )
            is_of_operator = self._applied.get(key) == self._data[key]
            self._built[known] = replace(built, is_of_operator=is_of_operator)
        return self._built[known]

    def _read_scopes(self) -> dict[str, list[str]]:
        """Return the named pools of each namespace, by name."""
        found: dict[str, list[str]] = {}
        for key in sorted(self._data):
            prefix, _, name = key.partition("-")
            if prefix == "namespaces" and name:
                for namespace in self._data[key].replace(",", " ").split():
                    found.setdefault(namespace, []).append(name)
        return found

    def _flag(self, key: str | None) -> bool:
        return key is not None and parse_go_bool(self._data.get(key, "").strip()) is True


def _build_pool(key: str, text: str, exclude: str, skip_end_ips: bool, descending: bool) -> NamespacePool:
    if not text.strip():
        return NamespacePool(key=key, problem=f"Key {key} is empty: it must have a pool.")
    parts = {each.strip() for each in text.split(",")}
    dhcp = parts & DHCP_TEXTS.keys()
    if dhcp == parts:
        return NamespacePool(key=key, dhcp=frozenset(DHCP_TEXTS[each] for each in parts))
    if dhcp:
        problem = f"Key {key} is invalid: {', '.join(sorted(dhcp))} means DHCP and must be alone."
        return NamespacePool(key=key, problem=problem)
    try:
        addresses = parse_guest_pool(text, exclude=exclude, skip_end_ips=skip_end_ips) - _DHCP
    except IpamError as error:
        return NamespacePool(key=key, problem=f"Key {key} is invalid: {error}.")
    return NamespacePool(key=key, addresses=addresses, descending=descending)


def _is_known(key: str) -> bool:
    return key in SINGLE or key.startswith(tuple(f"{each}-" for each in SCOPED))


def _find_meant(key: str) -> str:
    """Return the known key that an unknown one looks like; "" if there is none."""
    words = key[:128].lower().replace("_", "-").replace(".", "-").split("-")
    for known in (*SINGLE, *SCOPED):
        count = known.count("-") + 1
        if find_alike("-".join(words[:count]), (known,)):
            rest = "-".join(words[count:])
            return known if known in SINGLE else f"{known}-{rest or GLOBAL}"
    return ""
