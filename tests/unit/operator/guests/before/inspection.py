"""What a guest carries, asked of the guest itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from fipop.errors import ApiError, GuestError, GuestUnreadableError, KubeAccessError, PassTimeoutError
from fipop.guest.guest_pass import GuestSessions
from fipop.guest.in_use import InUseAddresses
from fipop.ipam.addresses import Address, format_address
from fipop.kube.client import KubeClient
from fipop.operator.guests.kubeconfigs import NotConnectedError, read_kubeconfig
from fipop.rancher.discovery import NotAGuest
from fipop.rancher.matching import Guest
from fipop.state.guests import GuestDirectory

MAX_PROBING = 4
"""The most rounds that wait for the nodes of guests at the same time: all rounds share 32 workers."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a guest that was asked carries, or why that is unknown."""

    under_way: frozenset[str]
    """The addresses that passes could be about to write when it was asked."""
    found: InUseAddresses | GuestError

    def in_use(self) -> InUseAddresses:
        """Return what the guest carries; GuestError if it could not be asked."""
        if isinstance(self.found, GuestError):
            raise self.found
        return self.found


@dataclass(slots=True, kw_only=True)
class GuestInspector:
    """Looks into guests, and knows what passes may be about to write there."""

    client: KubeClient
    guests: GuestDirectory
    sessions: GuestSessions
    _under_way: dict[str, frozenset[str]] = field(default_factory=dict)
    _probing: int = 0
    _answers: dict[str, _Answer] | None = None
    """What guests answered in a check that asks each of them once."""

    def asking_once(self) -> GuestInspector:
        """Return an inspector for one check: it asks each guest once, whatever the number of addresses."""
        return replace(self, _answers={})

    @contextmanager
    def pass_under_way(self, guest_id: str, addresses: frozenset[str]) -> Iterator[None]:
        """Count addresses as carried while a pass that may write them goes on."""
        self._under_way[guest_id] = addresses
        try:
            yield
        finally:
            del self._under_way[guest_id]

    async def find_carrier(self, guest_id: str, address: Address) -> str | None:
        """Say who in a guest carries an address; None where nobody does. GuestError where it cannot be asked.

        A pass that began when the address was still granted counts as carrying: its write may come after the look.
        """
        text = format_address(address)
        answer = await self._ask(guest_id)
        if text in answer.under_way:
            return f"a reconciliation that can write it to guest cluster {guest_id} is running"
        carrier = answer.in_use().carrier_of(address)
        return f"{carrier} in guest cluster {guest_id} uses {text}" if carrier else None

    async def carries(self, guest_id: str, address: Address) -> bool:
        """Whether a guest itself carries an address now. GuestError where it cannot be asked."""
        return (await self._ask(guest_id)).in_use().carrier_of(address) is not None

    async def _ask(self, guest_id: str) -> _Answer:
        if self._answers is not None and guest_id in self._answers:
            return self._answers[guest_id]
        under_way = self._under_way.get(guest_id, frozenset())
        try:
            answer = _Answer(under_way, await self.read_in_use(guest_id))
        except GuestError as error:
            answer = _Answer(under_way, error)
        if self._answers is not None:
            self._answers[guest_id] = answer
        return answer

    async def can_be_asked(self, guest_id: str) -> bool:
        """Tell whether Rancher is connected to a guest: without a request, where its floating IPs have their ranges."""
        floating_ips = self.guests.cache.floating_ips_of(guest_id)
        if not (floating_ips and all(each.range or each.status.range for each in floating_ips)):
            # What a range is chosen by is known before the first round over a floating IP, whose status says so.
            await self.guests.discover(guest_id)
        guest = self.guests.glimpse(guest_id, of_any_kind=True)
        return guest is not None and guest.connected

    async def is_harvester(self, guest: Guest) -> bool:
        """Whether a guest's nodes are Harvester's; True also if they cannot be listed, or MAX_PROBING lists run."""
        if self._probing >= MAX_PROBING:
            return True
        self._probing += 1
        try:
            return await self.sessions.is_harvester(guest.id, await read_kubeconfig(self.client, guest))
        except (ApiError, GuestError, KubeAccessError, PassTimeoutError):
            return True
        finally:
            self._probing -= 1

    async def read_in_use(self, guest_id: str) -> InUseAddresses:
        """Give all that a guest carries; GuestError where it cannot be asked, ApiError where our API server fails."""
        guest = self.guests.known(guest_id) or self.guests.glimpse(guest_id, of_any_kind=True)
        if guest is None:
            if isinstance(await self.guests.discover(guest_id), NotAGuest):
                return InUseAddresses()  # no pass is ever made there, nothing was written
            guest = self.guests.known(guest_id)
        if guest is None:
            raise NotConnectedError
        kubeconfig = await read_kubeconfig(self.client, guest)
        try:
            return await self.sessions.look(guest_id, kubeconfig)
        except (ApiError, KubeAccessError, PassTimeoutError) as error:
            raise GuestUnreadableError(guest_id=guest_id, cause=str(error)) from error
