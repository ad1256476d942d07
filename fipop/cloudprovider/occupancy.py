"""Who has which address, kept up to date: by the ledger, and by what all Services carry, whoever wrote it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fipop.cloudprovider.ledger import Entry, Ledger
from fipop.cloudprovider.pools import PoolKeys
from fipop.cloudprovider.services import Service
from fipop.ipam.addresses import Address, Family
from fipop.ipam.assignment import Port, Tenancy, Tenant
from fipop.runtime.store import Change, Store

ServiceStore = Store[Service]

MOST_NAMED = 16
"""So many tenants of an address are told of: where a thousand have it, each would be told of all others."""


class Occupancy:
    """The tenancy of a guest's addresses, by the uids of Services.

    What the ledger says of a Service counts beside what the Service says: a write may be under way. Consent counts as
    configured now, for who comes next.
    """

    def __init__(self, services: ServiceStore) -> None:
        self.tenancy = Tenancy[str]()
        self.keys = PoolKeys({})
        self.services = services
        self._entries: Mapping[str, Mapping[Address, Entry]] = {}

    def take_keys(self, keys: PoolKeys) -> None:
        """Take in what the ConfigMap says now."""
        self.keys = keys
        self.tenancy.forget_pools()
        self.refresh(self._known_uids())

    def take_ledger(self, ledger: Ledger | None) -> frozenset[str]:
        """Take in the ledger; gives the uids that an address was taken from there."""
        before, after = self._entries, ledger.by_owner() if ledger is not None else {}
        self._entries = after
        self.refresh(uid for uid in {*before, *after} if before.get(uid) != after.get(uid))
        return frozenset(uid for uid, held in before.items() if held.keys() - after.get(uid, {}).keys())

    def take_service(self, change: Change[Service]) -> None:
        """Take in what became of a Service."""
        self.refresh({side.uid for side in (change.old, change.new) if side is not None})

    def entries_of(self, uid: str) -> Mapping[Address, Entry]:
        """Return what the ledger says of a Service."""
        return self._entries.get(uid, {})

    def has_clash(self, uid: str, address: Address) -> bool:
        """Whether an address has a tenant that a Service may not share it with."""
        return bool(self.tenancy.clashing(address, uid))

    def names(self, uids: Iterable[str]) -> str:
        """Name Services, as people know them; of many the first."""
        names = [self._name(uid) for uid in uids]
        return ", ".join(sorted(names[:MOST_NAMED])) + (" and others" if names[MOST_NAMED:] else "")

    def refresh(self, uids: Iterable[str]) -> None:
        """Bring what is known of Services up to date; what was only tried for them is gone then."""
        for uid in uids:
            wanted = self._wanted(uid)
            for address in self.tenancy.held_by(uid):
                if address not in wanted:
                    self.tenancy.leave(address, uid)
            for address, tenant in wanted.items():
                if self.tenancy.tenants(address).get(uid) != tenant:
                    self.tenancy.enter(address, uid, tenant)

    def _wanted(self, uid: str) -> dict[Address, Tenant]:
        service, entries = self.services.by_uid(uid), self.entries_of(uid)
        wanted: dict[Address, Tenant] = {}
        if service is not None and service.is_holder:
            mine = Tenant(ports=service.ports, consents=self.keys.allows_sharing(service.namespace))
            wanted = dict.fromkeys(service.carried, mine)
        for address, entry in entries.items():
            ports: frozenset[Port] = wanted[address].ports if address in wanted else frozenset()
            # A write that the entry stands for may be under way, with the ports that the Service had then.
            consents = self.keys.allows_sharing(entry.namespace)
            wanted[address] = Tenant(ports=ports | entry.ports, consents=consents)
        return wanted

    def _known_uids(self) -> set[str]:
        return {service.uid for service in self.services.all()} | set(self._entries)

    def _name(self, uid: str) -> str:
        service = self.services.by_uid(uid)
        if service is not None:
            return f"{service.namespace}/{service.name}"
        entry = next(iter(self.entries_of(uid).values()), None)
        return f"{entry.namespace}/{entry.name}" if entry is not None else uid


def is_shared(tenancy: Tenancy[str], address: Address) -> bool:
    """Whether an address has more than one tenant."""
    return address.family is Family.IPV4 and len(tenancy.tenants(address)) > 1
