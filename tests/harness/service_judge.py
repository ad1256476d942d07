"""The promise of the provider, judged at every revision of the store.

No address that a provider wrote has two holders that may not share it, unless a user's own write made it so.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from localfleet.client import Json

A = "kube-vip.io/loadbalancerIPs"

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

    @property
    def is_chosen(self) -> bool:
        """Whether it has the mark of one whose address a provider chose."""
        return self.is_load_balancer and self.is_marked and bool(self.first) and self.first == self.asked_for


def see(service: Json) -> Seen:
    """Read a Service; nothing is asked of the product."""
    metadata, spec = service["metadata"], service["spec"]
    text = (metadata.get("annotations") or {}).get(A, "")
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
    )


@dataclass(slots=True, kw_only=True)
class Judge:
    """Takes in one revision after another. `shares` tells whether a namespace allows sharing."""

    shares: Callable[[str], bool]
    by_people: set[int] = field(default_factory=set)
    """Revisions that people wrote."""
    now: dict[str, Seen] = field(default_factory=dict)
    people_s: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The addresses that people wrote into each Service, by its uid."""
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
        consent = self.shares(one.namespace) and self.shares(other.namespace)
        return consent and ":" not in address and bool(one.ports) and one.ports.isdisjoint(other.ports)

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
