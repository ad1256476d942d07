"""Who uses which address of the cluster, and who can share one: values in, values out."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from fipop.api.service import Port
from fipop.ipam.addresses import DHCP_ADDRESSES, Address, Family

MOST_NAMED = 16
"""How many users of an address a message names: if a thousand have it, each message would name all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user of addresses: a Service, or what else has addresses of its own, such as a node."""

    uid: str
    name: str
    """Kind and name, as a message shows them."""
    ports: frozenset[Port] = frozenset()
    shares: bool = False
    """Whether it may share addresses: by its group, or as the key of its pool allows it."""
    group: tuple[str, ...] = ()
    """Its namespace, its pool and its group; empty if it has none. It shares with Services of the same alone."""
    lease: str | None = None
    """The Lease that all of its address can name; "" if it has no address yet, None if fipop can name none."""
    is_announced: bool = True
    """Whether kube-vip can announce its addresses: externalIPs of another type of Service it does not."""
    is_noted: bool = False
    """Whether fipop wrote its address."""
    is_local: bool = False
    """Whether only nodes with one of its pods serve it (externalTrafficPolicy: Local)."""
    pods: tuple[str, str] = ("", "")
    """Its namespace, and what its pods are selected by."""

    def can_share_with(self, other: User) -> bool:
        """Return whether both allow sharing with each other, have ports, and have no port in common."""
        is_allowed = self.shares and other.shares and self.group == other.group
        return is_allowed and bool(self.ports and other.ports) and self.ports.isdisjoint(other.ports)


class Usage:
    """Who uses which address. Nothing is refused: what users wrote, or wrote twice, counts as it is."""

    def __init__(self) -> None:
        self._users: dict[Address, dict[str, User]] = {}
        self._held: dict[str, tuple[User, frozenset[Address]]] = {}

    def enter(self, user: User, addresses: Collection[Address]) -> frozenset[str]:
        """Have a user use exactly these addresses; return the uids of others for whom that changes something."""
        former, before = self._held.pop(user.uid, (user, frozenset[Address]()))
        after = frozenset(addresses)
        concerned = before ^ after if user == former else before | after
        changed = {uid for each in concerned for uid in self._users.get(each, ())}
        for address in before:
            del self._users[address][user.uid]
            if not self._users[address]:
                del self._users[address]
        for address in after:
            self._users.setdefault(address, {})[user.uid] = user
        if after:
            self._held[user.uid] = user, after
        return frozenset(changed - {user.uid})

    def find_others(self, address: Address, user: User) -> list[User]:
        """Return the other users of an address."""
        return [each for each in self._users.get(address, {}).values() if each.uid != user.uid]

    def find_conflicting(self, address: Address, user: User) -> list[User]:
        """Return the users of an address that `user` cannot share it with. IPv6 addresses are not shared."""
        if address in DHCP_ADDRESSES:
            return []
        is_single = address.family is Family.IPV6
        return [
            each for each in self.find_others(address, user) if is_single or not user.can_share_with(each)
        ]

    def find_dropped(self, address: Address, user: User) -> list[User]:
        """Return the users that share an address with `user`, and have other pods, if one of both is Local.

        One node announces the address. It drops what is for pods of a Local Service on other nodes.
        """
        return [
            each
            for each in self.find_others(address, user)
            if user.can_share_with(each) and (user.is_local or each.is_local) and user.pods != each.pods
        ]

    def is_free(self, address: Address, user: User) -> bool:
        """Return whether no other user has an address."""
        return self._users.get(address, {}).keys() <= {user.uid}

    def addresses(self) -> Iterator[Address]:
        """Iterate over the addresses that are in use."""
        return iter(self._users)


def name_users(users: list[User]) -> str:
    """Return the names of users of an address for a message."""
    return ", ".join(sorted(each.name for each in users)[:MOST_NAMED])
