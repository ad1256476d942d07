"""Chooses the addresses of Services, many in one round: pure, what it chose is in the ledger that it gives.

A Service that has addresses keeps them; of a family that its policy asks for and it lacks, one of its pool is chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fipop.cloudprovider.ledger import FULL, Entry, Ledger, entry_of, is_overwritten
from fipop.cloudprovider.occupancy import Occupancy
from fipop.cloudprovider.services import Service, State, order_addresses
from fipop.ipam.addresses import DHCP, Address, Family, format_address
from fipop.ipam.allocator import AddressPool, AddressUser
from fipop.ipam.errors import IpamError
from fipop.ipam.intervals import AddressSet
from fipop.ipam.sharing import Request
from fipop.texts import sentence

LEDGER_FULL, LEDGER_UNKNOWN, HELD_BACK = "LedgerFull", "LedgerFormatUnknown", "PoolHeldBack"
UNHEARD = frozenset({LEDGER_FULL, LEDGER_UNKNOWN, HELD_BACK})
"""Reasons of those that wait for something of which no watch tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The addresses of a Service, in the order of A; `pool` is the key that they came from."""

    service: Service
    addresses: tuple[Address, ...]
    pool: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A Service waits; `reason` is that of its condition."""

    service: Service
    reason: str
    message: str


@dataclass(slots=True, kw_only=True)
class Round:
    """One attempt to serve Services by one version of the ledger; what it tries is entered in `sharing` meanwhile."""

    occupancy: Occupancy
    held_back: Sequence[Service] = ()
    """Services into which a former write may still put an unknown address."""
    chosen: list[Choice] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    _pools_held: list[tuple[AddressPool, Service]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        """Find the pools that are held back: that of the namespace, and those that have what the Service carries."""
        for other in self.held_back:
            own = self.occupancy.keys.pool_of(other.namespace)
            for each in (own, *self.occupancy.keys.pools()):
                pool = each.pool if each is not None else None
                if pool and (each is own or any(address in pool.addresses for address in other.carried)):
                    self._pools_held.append((pool, other))

    def serve(self, waiting: Iterable[tuple[Service, State]], ledger: Ledger) -> Ledger:
        """Choose for Services in their order, and give the ledger with what was chosen; not for what is out of date."""
        new: list[tuple[Address, Entry]] = []
        room = ledger.room
        for service, state in waiting:
            if self._is_stale(service):
                continue
            answer = self._hold_back(self._choose(service, state))
            if isinstance(answer, Refused):
                self.refused.append(answer)
                continue
            entries = self._missing(answer)
            needed = sum(ledger.cost(address, entry) for address, entry in entries)
            if needed > room:
                self.refused.append(Refused(service=service, reason=LEDGER_FULL, message=FULL))
                self.occupancy.refresh([service.uid])
                continue
            room -= needed
            new += entries
            self.chosen.append(answer)
        return ledger.having(new) if new else ledger

    def refuse(self, waiting: Iterable[tuple[Service, State]], reason: str, message: str) -> None:
        """Refuse them all, also what was chosen before."""
        self.chosen = []
        self.refused = [Refused(service=each, reason=reason, message=message) for each, _ in waiting]

    def _hold_back(self, answer: Choice | Refused) -> Choice | Refused:
        """Refuse an address of a pool if a former write may still assign one to another Service."""
        if isinstance(answer, Refused):
            return answer
        service = answer.service
        known = service.carried | self.occupancy.entries_of(service.uid).keys()
        for pool, other in self._pools_held:
            if other.uid != service.uid and any(
                each in pool.addresses for each in {*answer.addresses} - known
            ):
                name = "/".join(other.key)
                message = f"Key {pool.name} assigns no addresses while the API server refuses writes of Service {name}."
                return Refused(service=service, reason=HELD_BACK, message=message)
        return answer

    def _is_stale(self, service: Service) -> bool:
        """Whether somebody chose for a later version already: with its entry replaced by ours nothing would keep it."""
        held = self.occupancy.entries_of(service.uid).values()
        return any(int(entry.version) > service.resource_version for entry in held)

    def _choose(self, service: Service, state: State) -> Choice | Refused:
        occupancy, sharing = self.occupancy, self.occupancy.sharing
        user = occupancy.build_user(service.uid, service.namespace, service.ports)
        wanted = service.requested if state is State.MOVING else None
        if is_overwritten(service, occupancy.entries_of(service.uid)):
            state, wanted = State.STRIPPED, service.requested
        if wanted not in (None, DHCP):
            sharing.enter(wanted, user)
            conflicting = sharing.conflicting(wanted, service.uid)
            if conflicting:
                holders = occupancy.names(conflicting)
                message = (
                    f"Address {format_address(wanted)} is in use by Service {holders}. Use another address."
                )
                return Refused(service=service, reason="AddressInUse", message=message)
        return self._choose_rest(service, user, self._find_kept(service, state, wanted))

    def _choose_rest(
        self, service: Service, user: AddressUser[str], kept: Mapping[Family, Address]
    ) -> Choice | Refused:
        """Choose for the families of which nothing is kept."""
        found = self.occupancy.keys.pool_of(service.namespace)
        key = found.key if found is not None else ""
        if DHCP in kept.values() or (found is not None and found.is_dhcp and not kept):
            return Choice(service=service, addresses=(DHCP,), pool=key)
        pool = (found.pool if found is not None else None) or AddressPool(name=key, addresses=AddressSet())
        request = Request(
            user=user,
            pool=pool,
            policy=service.policy,
            families=service.families or (Family.IPV4,),
            is_any_family=not service.families,
            held=kept,
        )
        try:
            addresses = self.occupancy.sharing.choose(request)
        except IpamError as error:
            if found is None:
                message = f"The ConfigMap has no pool for namespace {service.namespace}. Add a key with one."
                return Refused(service=service, reason="NoPool", message=message)
            reason, message = (
                ("PoolUnusable", found.problem) if found.problem else ("PoolFull", sentence(str(error)))
            )
            return Refused(service=service, reason=reason, message=message)
        for address in addresses:
            self.occupancy.sharing.enter(address, user)
        return Choice(service=service, addresses=order_addresses(addresses, service.families), pool=key)

    def _find_kept(self, service: Service, state: State, wanted: Address | None) -> dict[Family, Address]:
        """Tell which address of each family stays: what A says; else what the ledger gave last, if it is still free.

        `wanted` is asked for by the user.
        """
        held = self.occupancy.entries_of(service.uid)
        latest = sorted(held, key=lambda address: int(held[address].version))
        free = (each for each in latest if not self.occupancy.has_clash(service.uid, each))
        kept = {address.family: address for address in free}
        if state in {State.CHOSEN, State.MOVING}:
            own = {address.family: address for address in reversed(service.annotated)}
            kept = kept | own if service.families else own
        if wanted is not None:
            kept[wanted.family] = wanted
        return kept

    def _missing(self, choice: Choice) -> list[tuple[Address, Entry]]:
        """Return the entries of a choice that the ledger lacks or has with other values."""
        service = choice.service
        held = self.occupancy.entries_of(service.uid)
        entry = entry_of(service, consents=self.occupancy.keys.allows_sharing(service.namespace))
        return [
            (address, entry)
            for address in choice.addresses
            if address != DHCP and not is_entered(held.get(address), entry, address in service.annotated)
        ]


def is_entered(known: Entry | None, wanted: Entry, is_carried: bool) -> bool:
    """Whether the ledger says all that matters: for a Service that carries the address its version does not."""
    if known is None:
        return False
    return known == (replace(wanted, version=known.version) if is_carried else wanted)


def in_order(waiting: Sequence[tuple[Service, State]]) -> list[tuple[Service, State]]:
    """Sort Services by who has waited longest."""
    return sorted(waiting, key=lambda each: (each[0].created, each[0].key))
