"""The keys of the ConfigMap `kubevip`: which pool, sharing and interface a namespace has.

The first of `cidr-<ns>`, `range-<ns>`, the keys of a pool that names the namespace (`namespaces-<name>`), `cidr-global`
and `range-global` that exists is the one pool of a namespace. If it is full, there is no other: pools isolate, or
belong to another interface. The other keys of the namespace itself win over those of the pool that serves it.

A Service can choose a pool by its name instead. Then the keys of that pool count, and none of the namespace; which
namespaces may do so is in `allow-pool-<name>`, and without that key it is the namespace of the same name.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from fipop.api.names import ALLOW_POOL_PREFIX, EVERY_NAMESPACE, is_consent, parse_go_bool, split_names
from fipop.api.service import POOL, POOL_NOT_ALLOWED
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
SCOPED = (*POOLS, *FLAGS, "namespaces", "exclude", "interface", "allow-pool", "search-order")
SINGLE = ("search-order", "skip-end-ips-in-cidr", "sticky-seconds")
UNUSABLE, INVALID_POOL = "PoolUnusable", "InvalidPool"
_STICKY = re.compile(r"[0-9]{1,8}")
_NAME = re.compile(r"[-._a-zA-Z0-9]{1,200}")
"""What can be a part of a key of a ConfigMap."""


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
    reason: str = UNUSABLE
    """That of the condition of a Service that waits for this problem."""
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
        self._built: dict[tuple[str, str, bool, bool], NamespacePool] = {}
        self._scopes = self._read_scopes()

    def pool_of(self, namespace: str, chosen: str | None = None) -> NamespacePool | None:
        """Return the pool of a namespace, or the `chosen` one; None if no key is meant for it.

        One that the namespace may not choose has its addresses, and a problem.
        """
        if chosen is not None and not _NAME.fullmatch(chosen):
            text = f'Annotation {POOL} must be the name of a pool: it is "{clean(chosen, 64)}". Correct the Service.'
            return NamespacePool(key="", problem=text, reason=INVALID_POOL)
        found = self._find(namespace, chosen)
        pool = self._read_pool(*found, chosen or namespace) if found is not None else None
        if chosen is None or self._allows(namespace, chosen):
            return pool
        key = ALLOW_POOL_PREFIX + chosen
        is_of_operator = key in self._data and self._applied.get(key) == self._data[key]
        text = (
            f"Namespace {namespace} is not allowed to choose pool {chosen}: key {key} does not name it. "
            f"Ask an administrator of {'the fleet' if is_of_operator else 'this cluster'} to add it."
        )
        known = pool or NamespacePool(key=key)
        return replace(known, dhcp=frozenset(), problem=text, reason=POOL_NOT_ALLOWED)

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

    def allows_sharing(self, namespace: str, chosen: str | None = None) -> bool:
        """Return whether Services of a namespace, or of the pool that they chose, may share addresses.

        The consent of a pool that is closed to the namespace is that of others: then its own counts.
        """
        opened = chosen if chosen is not None and self._allows(namespace, chosen) else None
        return self._flag(self._first("allow-share", *self.scopes_of(namespace, opened), GLOBAL))

    def interface_of(self, namespace: str, chosen: str | None = None) -> str | None:
        """Return the interface that addresses of a namespace, or of the pool that was chosen, are announced on."""
        key = self._first("interface", *self.scopes_of(namespace, chosen), GLOBAL)
        return (self._data[key].strip() or None) if key is not None else None

    @cached_property
    def interfaces(self) -> frozenset[str]:
        """The interfaces of all keys."""
        found = (value.strip() for key, value in self._data.items() if key.startswith("interface-"))
        return frozenset(filter(None, found))

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
            elif f"{key}-".startswith("search-order-") and value.strip() not in ("", "asc", "desc"):
                wanted = "asc or desc"
            elif key.startswith(ALLOW_POOL_PREFIX) and not all(map(is_consent, split_names(value))):
                wanted = f"names of namespaces, separated by commas, or {EVERY_NAMESPACE}"
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

    def scopes_of(self, namespace: str, chosen: str | None = None) -> tuple[str, ...]:
        """Return whose keys count: those of the namespace and of the pool that serves it, or of the chosen pool."""
        found = self._find(namespace, chosen)
        own = namespace if chosen is None else chosen
        return (own, found[1]) if found is not None else (own,)

    def _find(self, namespace: str, chosen: str | None = None) -> tuple[str, str] | None:
        """Return key and scope of the pool of a namespace, or of the chosen one."""
        of_namespace = (namespace, *self._scopes.get(namespace, ()), GLOBAL)
        for scope in of_namespace if chosen is None else (chosen,):
            key = self._first_of(f"{kind}-{scope}" for kind in POOLS)
            if key is not None:
                return key, scope
        return None

    def _allows(self, namespace: str, chosen: str) -> bool:
        """Return whether Services of a namespace may choose a pool."""
        allowed = split_names(self._data.get(ALLOW_POOL_PREFIX + chosen, chosen))
        return not {namespace, EVERY_NAMESPACE}.isdisjoint(allowed)

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
        order = self._first("search-order", namespace, scope) or "search-order"
        is_descending = self._data.get(order, "").strip() == "desc"
        known = key, exclude, skip_end_ips, is_descending
        if known not in self._built:
            built = _build_pool(key, self._data[key], exclude, skip_end_ips, is_descending)
            is_of_operator = self._applied.get(key) == self._data[key]
            self._built[known] = replace(built, is_of_operator=is_of_operator)
        return self._built[known]

    def _read_scopes(self) -> dict[str, list[str]]:
        """Return the named pools of each namespace, by name."""
        found: dict[str, list[str]] = {}
        for key in sorted(self._data):
            prefix, _, name = key.partition("-")
            if prefix == "namespaces" and name:
                for namespace in split_names(self._data[key]):
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
            is_single = known in SINGLE and (not rest or known not in SCOPED)
            return known if is_single else f"{known}-{rest or GLOBAL}"
    return ""
