"""The keys of a guest's kubevip ConfigMap: which pool, sharing and interface a namespace has.

The first of `cidr-<ns>`, `range-<ns>`, the keys of a pool that names the namespace (`namespaces-<name>`), `cidr-global`
and `range-global` that is there is the one pool of a namespace. There is no spill into the next when it is full: pools
isolate, or belong to another interface.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from fipop.cloudprovider.go_values import parse_bool
from fipop.ipam.addresses import Address, Family
from fipop.ipam.allocator import AddressPool
from fipop.ipam.errors import IpamError
from fipop.ipam.intervals import IntervalSet
from fipop.ipam.pool import parse_guest_pool

GLOBAL = "global"
DHCP_TEXTS = frozenset({"0.0.0.0/32", "::/128"})
"""The whole text of a pool that means DHCP: every Service gets 0.0.0.0, whatever its families and policy."""

MOST_SHOWN = 1000
"""Of more pools, and of more keys that cannot be read, nobody is told: each costs time. They serve all the same."""

_POOL_KINDS = ("cidr", "range")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespacePool:
    """The pool of a namespace, by its key; `pool` is None for DHCP, and where a `problem` keeps it from giving."""

    key: str
    pool: AddressPool | None = None
    is_dhcp: bool = False
    problem: str | None = None


class PoolKeys:
    """The data of the ConfigMap. What cannot be read concerns the namespaces of that key alone.

    A pool that `former` has by the same text is the same one, so that what is remembered of it stays.
    """

    def __init__(self, data: Mapping[str, str], former: PoolKeys | None = None) -> None:
        self._data = dict(data)
        self._built: dict[tuple[str, str, str, bool, bool], NamespacePool] = {}
        self._former = former._built if former is not None else {}  # noqa: SLF001 - of our own class
        self._descending = data.get("search-order", "").strip() == "desc"
        self._scopes = self._read_scopes()

    def pool_of(self, namespace: str) -> NamespacePool | None:
        """Give the pool of a namespace; None where no key is meant for it."""
        for scope in (namespace, *self._scopes.get(namespace, ()), GLOBAL):
            for kind in _POOL_KINDS:
                if f"{kind}-{scope}" in self._data:
                    return self._read_pool(f"{kind}-{scope}", scope)
        return None

    def pools(self) -> tuple[NamespacePool, ...]:
        """Give the pools of the first MOST_SHOWN keys, in their order."""
        keys = sorted(key for key in self._data if key.partition("-")[0] in _POOL_KINDS)
        return tuple(self._read_pool(key, key.partition("-")[2]) for key in keys[:MOST_SHOWN])

    def have(self, address: Address) -> bool:
        """Whether an address lies in one of `pools`."""
        sets = (found for (family, _), found in self._in_pools.items() if family is address.family)
        return any(address.value in each for each in sets)

    @cached_property
    def _in_pools(self) -> dict[tuple[Family, int], IntervalSet]:
        """The addresses of all pools by family and kind, so that it costs no more to ask many pools than one."""
        found: dict[tuple[Family, int], list[tuple[int, int]]] = defaultdict(list)
        for pool in (each.pool for each in self.pools() if each.pool is not None):
            for family in Family:
                for first, last, kind in pool.addresses.of(family).intervals:
                    found[family, kind].append((first, last))
        return {key: IntervalSet.of(pairs, key[1]) for key, pairs in found.items()}

    def allows_sharing(self, namespace: str) -> bool:
        """Whether Services of a namespace may share addresses, whichever pool serves them."""
        return self._flag(self._scoped("allow-share", namespace))

    def interface_of(self, namespace: str) -> str | None:
        """Give the interface that addresses of a namespace are announced on."""
        key = self._scoped("interface", namespace)
        return (self._data[key].strip() or None) if key is not None else None

    def problems(self) -> Mapping[str, str]:
        """Say of each key that cannot be read why, of MOST_SHOWN at most."""
        found = {each.key: each.problem for each in self.pools() if each.problem is not None}
        for key, value in self._data.items():
            is_flag = key.startswith(("allow-share-", "draining-")) or key == "skip-end-ips-in-cidr"
            if is_flag:
                try:
                    parse_bool(value)
                except ValueError as error:
                    found[key] = f"Key {key} is invalid: {error}."
        return dict(islice(found.items(), MOST_SHOWN))

    def _read_pool(self, key: str, scope: str) -> NamespacePool:
        text = self._data[key]
        if self._flag(f"draining-{scope}"):
            return NamespacePool(
                key=key, problem=f"Key {key} is draining (draining-{scope}) and assigns no addresses."
            )
        if text.strip() in DHCP_TEXTS:
            return NamespacePool(key=key, is_dhcp=True)
        if not text.strip():
            return NamespacePool(key=key, problem=f"Key {key} is empty. Set a pool.")
        exclude = self._data.get(f"exclude-{scope}", "")
        said = key, text, exclude, self._flag("skip-end-ips-in-cidr"), self._descending
        if said not in self._built:
            self._built[said] = self._former.get(said) or _build_pool(*said)
        return self._built[said]

    def _read_scopes(self) -> dict[str, list[str]]:
        """Give the named pools of each namespace, by name."""
        found: dict[str, list[str]] = {}
        for key in sorted(self._data):
            prefix, _, name = key.partition("-")
            if prefix == "namespaces" and name:
                for namespace in self._data[key].split(","):
                    found.setdefault(namespace.strip(), []).append(name)
        return found

    def _scoped(self, prefix: str, namespace: str) -> str | None:
        keys = (f"{prefix}-{namespace}", f"{prefix}-{GLOBAL}")
        return next((key for key in keys if key in self._data), None)

    def _flag(self, key: str | None) -> bool:
        try:
            return key is not None and parse_bool(self._data.get(key, ""))
        except ValueError:
            return False


def _build_pool(key: str, text: str, exclude: str, skip_end_ips: bool, descending: bool) -> NamespacePool:
    try:
        addresses = parse_guest_pool(text, exclude=exclude, skip_end_ips=skip_end_ips)
    except IpamError as error:
        return NamespacePool(key=key, problem=f"Key {key} is invalid: {error}.")
    return NamespacePool(key=key, pool=AddressPool(name=key, addresses=addresses, descending=descending))
