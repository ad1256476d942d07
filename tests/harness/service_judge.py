"""The promise of the provider, judged at every revision of the store.

No address that a provider wrote has two holders that may not share it, unless a user's own write made it so. Where a
test says which pool is open to whom (`may_have`), a provider writes no other address.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from localfleet.client import Json

A = "kube-vip.io/loadbalancerIPs"
POOL = "kubefip.k8s.binbash.org/pool"
SHARE = "kubefip.k8s.binbash.org/share"
UNDER_WAY_SECONDS = 120.0
"""For so long a provider may still write what it chose before a user changed with whom another Service shares."""

Ports = frozenset[tuple[int, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A Service as a revision shows it."""

    uid: str
    namespace: str
    name: str
    is_load_balancer: bool
    addresses: frozenset[str]
    first: str
    asked_for: str
    is_marked: bool
    ports: Ports
    pool: str | None
    """The pool that it chose; None without the annotation."""
    group: str

    @property
    def is_chosen(self) -> bool:
        """Whether it has the mark of one whose address a provider chose."""
        return self.is_load_balancer and self.is_marked and bool(self.first) and self.first == self.asked_for


def _terms(seen: Seen) -> tuple[str | None, str, Ports]:
    return seen.pool, seen.group, seen.ports


def see(service: Json) -> Seen:
    """Read a Service; nothing is asked of the product."""
    metadata, spec = service["metadata"], service["spec"]
    annotations = metadata.get("annotations") or {}
    text = annotations.get(A, "")
    return Seen(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        is_load_balancer=spec.get("type") == "LoadBalancer",
        addresses=frozenset(each.strip() for each in text.split(",") if each.strip()),
        first=text.partition(",")[0].strip(),
        asked_for=spec.get("loadBalancerIP", ""),
        is_marked=(metadata.get("labels") or {}).get("implementation") == "kube-vip",
        ports=frozenset((each["port"], each["protocol"]) for each in spec.get("ports", ())),
        pool=annotations.get(POOL),
        group=annotations.get(SHARE, "").strip(),
    )


@dataclass(slots=True, kw_only=True)
class Judge:
    """Takes in one revision after another. `shares` tells whether a Service without a group may share."""

    shares: Callable[[Seen], bool]
    scope_of: Callable[[Seen], str] = field(default=lambda seen: seen.pool or seen.namespace)
    """Whose pool serves a Service: two of a group share in one pool."""
    may_have: Callable[[Seen, str], bool] = field(default=lambda _seen, _address: True)
    """Whether the pool of a Service is open to its namespace, and has an address."""
    clock: Callable[[], float] | None = None
    """With it, what users changed of the terms of sharing counts a while later."""
    by_people: set[int] = field(default_factory=set)
    """Revisions that people wrote."""
    now: dict[str, Seen] = field(default_factory=dict)
    people_s: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The addresses that people wrote into each Service, by its uid."""
    former: dict[str, list[tuple[float, Seen]]] = field(default_factory=lambda: defaultdict(list))
    """What a Service was before a user changed its terms of sharing, and when, by its uid."""
    violations: list[str] = field(default_factory=list)
    allocations: int = 0

    def take(self, kind: str, service: Json) -> None:
        """Judge a revision: ADDED, MODIFIED or DELETED."""
        seen, revision = see(service), int(service["metadata"]["resourceVersion"])
        before = self.now.get(seen.uid)
        if kind == "DELETED":
            self.now.pop(seen.uid, None)
            return
        self.now[seen.uid] = seen
        new = seen.addresses - (before.addresses if before is not None else frozenset())
        if before is not None and self.clock is not None and _terms(before) != _terms(seen):
            self.former[seen.uid].append((self.clock(), before))
        if kind == "ADDED" or revision in self.by_people:
            self.people_s[seen.uid] |= new
            if seen.asked_for and (before is None or before.asked_for != seen.asked_for):
                self.people_s[seen.uid].add(seen.asked_for)
            return
        if not seen.is_load_balancer:
            return
        had_nothing = before is None or not before.addresses
        for address in new:
            # L alone is copied into A: it was people's word, and is announced anyway.
            is_copied = had_nothing and address == seen.asked_for and address in self.people_s[seen.uid]
            is_chosen = seen.is_marked and address != "0.0.0.0" and not is_copied
            self.allocations += is_chosen
            if is_chosen:
                self._judge(revision, seen, address)

    def _judge(self, revision: int, seen: Seen, address: str) -> None:
        if address not in self.people_s[seen.uid] and not self.may_have(seen, address):
            self.violations.append(
                f"revision {revision}: {address} is not for {seen.namespace}/{seen.name}, pool {seen.pool}"
            )
        for other in self.now.values():
            is_holder = other.is_load_balancer and address in other.addresses and other.uid != seen.uid
            if (
                is_holder
                and address not in self.people_s[other.uid]
                and not self._may_share(seen, other, address)
            ):
                names = f"{seen.namespace}/{seen.name} and {other.namespace}/{other.name}"
                self.violations.append(f"revision {revision}: {address} was given to {names}")

    def _may_share(self, one: Seen, other: Seen, address: str) -> bool:
        since = self.clock() - UNDER_WAY_SECONDS if self.clock is not None else 0.0
        known = (other, *(each for at, each in self.former[other.uid] if at > since))
        return any(self._could_share(one, each, address) for each in known)

    def _could_share(self, one: Seen, other: Seen, address: str) -> bool:
        consent = self.shares(one) and self.shares(other)
        if one.group or other.group:
            consent = self._group_of(one) == self._group_of(other)
        return consent and ":" not in address and bool(one.ports) and one.ports.isdisjoint(other.ports)

    def _group_of(self, seen: Seen) -> tuple[str, str, str]:
        return seen.namespace, self.scope_of(seen), seen.group

    def clashes(self) -> list[tuple[Seen, Seen, str]]:
        """Give the pairs that have an address now and may not share it."""
        holders: dict[str, list[Seen]] = defaultdict(list)
        for seen in self.now.values():
            if seen.is_load_balancer:
                for address in seen.addresses - {"0.0.0.0"}:
                    holders[address].append(seen)
        found = []
        for address, tenants in holders.items():
            for number, one in enumerate(tenants):
                found += [
                    (one, other, address)
                    for other in tenants[number + 1 :]
                    if not self._may_share(one, other, address)
                ]
        return found
