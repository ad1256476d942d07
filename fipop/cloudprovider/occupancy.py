"""Who has which address, kept up to date: by the ledger, and by what all Services carry, whoever wrote it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fipop.cloudprovider.ledger import Entry, Ledger
from fipop.cloudprovider.pools import PoolKeys
from fipop.cloudprovider.services import Service
from fipop.ipam.addresses import Address, Family
from fipop.ipam.allocator import AddressUser, Port, Reason
from fipop.ipam.sharing import Sharing
from fipop.runtime.store import Change, Store

ServiceStore = Store[Service]

MOST_NAMED = 16
"""How many users of an address a message names: if a thousand have it, each message would name all others."""


class Occupancy:
    """The users of a guest cluster's addresses, by the uids of Services.

    What the ledger says of a Service counts beside what the Service says: a write may be under way. Consent counts as
    configured now, for who comes next.
    """

    def __init__(self, services: ServiceStore) -> None:
        self.sharing = Sharing[str]()
        self.keys = PoolKeys({})
        self.services = services
        self._entries: Mapping[str, Mapping[Address, Entry]] = {}

    def take_keys(self, keys: PoolKeys) -> None:
        """Take in what the ConfigMap says now."""
        self.keys = keys
        self.sharing.forget_pools()
        self.refresh({service.uid for service in self.services.all()} | set(self._entries))

    def take_ledger(self, ledger: Ledger | None) -> tuple[frozenset[str], frozenset[str]]:
        """Take in the ledger; return the uids of Services of which an address, or a port of one, is gone there.

        And those of which an address came and no Service is known: it may have gone while a slow write was under way.
        """
        before, after = self._entries, ledger.by_owner() if ledger is not None else {}
        self._entries = after
        changed = {uid for uid in {*before, *after} if before.get(uid) != after.get(uid)}
        self.refresh(changed)
        lost = frozenset(uid for uid in changed & before.keys() if _has_less(before[uid], after.get(uid, {})))
        return lost, frozenset(uid for uid in changed & after.keys() if self.services.by_uid(uid) is None)

    def take_service(self, change: Change[Service]) -> None:
        """Take in what became of a Service."""
        self.refresh({side.uid for side in (change.old, change.new) if side is not None})

    def entries_of(self, uid: str) -> Mapping[Address, Entry]:
        """Return what the ledger says of a Service."""
        return self._entries.get(uid, {})

    def has_clash(self, uid: str, address: Address) -> bool:
        """Return whether an address has a user that a Service cannot share it with."""
        return bool(self.sharing.conflicting(address, uid))

    def names(self, uids: Iterable[str]) -> str:
        """Name Services, as people know them; of many the first."""
        names = [self._name(uid) for uid in uids]
        return ", ".join(sorted(names[:MOST_NAMED])) + (" and others" if names[MOST_NAMED:] else "")

    def refresh(self, uids: Iterable[str]) -> None:
        """Bring what is known of Services up to date; what was only tried for them is gone then."""
        for uid in uids:
            wanted = self._wanted(uid)
            held = dict(self.sharing.held_by(uid))
            for address in held.keys() - wanted.keys():
                self.sharing.leave(address, held[address])
            for address, user in wanted.items():
                if held.get(address) != user:
                    self.sharing.enter(address, user)

    def build_user(self, uid: str, namespace: str, ports: frozenset[Port]) -> AddressUser[str]:
        """Return a Service as a user of addresses, with the consent of its namespace."""
        consents = self.keys.allows_sharing(namespace)
        return AddressUser(Reason.RESERVED, uid, ports=ports, consents=consents)

    def _wanted(self, uid: str) -> dict[Address, AddressUser[str]]:
        service, entries = self.services.by_uid(uid), self.entries_of(uid)
        wanted: dict[Address, AddressUser[str]] = {}
        if service is not None and service.is_holder:
            wanted = dict.fromkeys(service.carried, self.build_user(uid, service.namespace, service.ports))
        for address, entry in entries.items():
            ports: frozenset[Port] = wanted[address].ports if address in wanted else frozenset()
            # A write that the entry stands for may be under way, with the ports that the Service had then.
            wanted[address] = self.build_user(uid, entry.namespace, ports | entry.ports)
        return wanted

    def _name(self, uid: str) -> str:
        service = self.services.by_uid(uid)
        if service is not None:
            return f"{service.namespace}/{service.name}"
        entry = next(iter(self.entries_of(uid).values()), None)
        return f"{entry.namespace}/{entry.name}" if entry is not None else uid


def is_shared(sharing: Sharing[str], address: Address) -> bool:
    """Return whether an IPv4 address has more than one user."""
    return address.family is Family.IPV4 and len(sharing.users(address)) > 1


def _has_less(before: Mapping[Address, Entry], after: Mapping[Address, Entry]) -> bool:
    return any(address not in after or each.ports - after[address].ports for address, each in before.items())
