"""Gives Services their addresses: many that wait in one write of the ledger, then each Service by itself."""

from __future__ import annotations

import logging
from collections import ChainMap
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from fipop.cloudprovider.bodies import assigned, stamped
from fipop.cloudprovider.choosing import LEDGER_FULL, LEDGER_UNKNOWN, Choice, Refused, Round, in_order
from fipop.cloudprovider.ledger import FULL, UNKNOWN, Entry, Ledger, entry_of
from fipop.cloudprovider.ledger_store import LedgerStore
from fipop.cloudprovider.occupancy import Occupancy
from fipop.cloudprovider.pools import PoolKeys
from fipop.cloudprovider.services import Service, State
from fipop.errors import ApiError, ConflictError, ForbiddenError, NotFoundError
from fipop.ipam.addresses import Address
from fipop.jsons import Json, JsonView
from fipop.kube.resources import SERVICES, Resource

logger = logging.getLogger(__name__)

CLAIMING = frozenset({State.NEW, State.MOVING, State.STRIPPED, State.CHOSEN})
"""The states in which a Service may get an address."""


class Door(Protocol):
    """What is asked of the door to the API."""

    async def get(self, resource: Resource, name: str, *, namespace: str | None = ...) -> Json | None:
        """Read one object; None where it does not exist."""

    async def replace(
        self, resource: Resource, body: dict[str, Any], *, subresource: str | None = ...
    ) -> Json:
        """Replace an object, or a part of it, at the version of the body."""


ListLive = Callable[[], Awaitable[Sequence[Service]]]


@dataclass(slots=True, kw_only=True)
class AddressAssigner:
    """Chooses for Services as they are known, and writes what was chosen; both are tested on versions.

    `occupancy` hears of every version of the ledger; `list_live` asks the API server for all Services.
    """

    client: Door
    ledger: LedgerStore
    occupancy: Occupancy
    list_live: ListLive
    _claims_by: str = field(default="", init=False)
    """The uid of the ledger that may be claimed by: see there."""
    unstamped: list[Service] = field(default_factory=list, init=False)
    """Those into which such a write may still come, as the API server refuses to have them written."""

    async def get_ready(self) -> None:
        """Before the first claim by a ledger stamp every Service that may be written: see there. ApiError.

        What was refused then is tried again each time.
        """
        ledger = await self.ledger.known()
        found: Sequence[Service] = self.unstamped
        if not ledger.is_known:
            return
        if ledger.uid != self._claims_by:
            found = () if ledger.is_open else await self.list_live()
        self.unstamped = [each for each in found if not await self._stamp(each, ledger.uid)]
        self._claims_by = ledger.uid

    async def _stamp(self, service: Service, ledger_uid: str) -> bool:
        """Write a Service anew that may be written by what the former ledger said; tell whether that fails now.

        It does where the Service is another than in the list, whoever wrote it: what it says then is known. By its
        status, since policies are made for the rest of it; that makes a new version as well.
        """
        if not service.may_be_written or service.ledger == ledger_uid:
            return True
        live = await self._read(service)
        if live is None or not is_current(service, live):
            return True
        try:
            await self.client.replace(SERVICES, stamped(live, ledger_uid), subresource="status")
        except ApiError:
            live = await self._read(service)
            return live is None or not is_current(service, live)
        return True

    async def _read(self, service: Service) -> Json | None:
        return await self.client.get(SERVICES, service.name, namespace=service.namespace)

    async def choose(self, waiting: Sequence[tuple[Service, State]]) -> dict[str, Choice | Refused]:
        """Choose for Services in claiming states, and enter it; the answers by uid. Only after `get_ready`.

        Raises ApiError, LedgerContendedError: nothing was chosen then, as far as anybody may rely on it.
        """
        ordered = in_order(waiting)
        attempt = Round(occupancy=self.occupancy)
        uids = [service.uid for service, _ in ordered]

        def change(ledger: Ledger) -> Ledger:
            nonlocal attempt
            self.occupancy.refresh(uids)
            attempt = Round(occupancy=self.occupancy, held_back=self.unstamped)
            if not ledger.is_known:
                attempt.refuse(ordered, LEDGER_UNKNOWN, UNKNOWN)
                return ledger
            if ledger.uid != self._claims_by:
                return ledger  # another took its place: nothing is claimed by it before `get_ready`
            made = attempt.serve(ordered, ledger)
            if made is ledger or ledger.is_open or self.unstamped:
                return made
            # Who finds it open relies on it alone: whatever Services carry by now is in it.
            lacking = lacking_in(made, carried_by(self.occupancy.services.all(), self.occupancy.keys))
            if len(made.fitting(lacking)) < len(lacking):
                return made
            return replace(made.having(lacking), is_open=True)

        try:
            await self.ledger.swap(change)
        except ApiError as error:
            if not (error.is_lasting or isinstance(error, ForbiddenError)):
                raise
            if len(ordered) > 1:
                return dict(ChainMap(*[await self.choose([each]) for each in ordered]))
            attempt.refuse(ordered, LEDGER_FULL, FULL)
        finally:
            self.occupancy.refresh(uids)
        logger.debug("Chose addresses", extra={"services": len(attempt.chosen)})
        answers: list[Choice | Refused] = [*attempt.chosen, *attempt.refused]
        return {answer.service.uid: answer for answer in answers}

    async def write(self, choice: Choice) -> Json | None:
        """Write the addresses into the Service, at the version that is entered; None where it is another by now.

        ApiError: whether it was done shows when the Service is read again; the entry stands until then.
        """
        service = choice.service
        live = await self._read(service)
        if live is None or not is_current(service, live):
            return None
        live["metadata"].pop("managedFields", None)  # of a large Service most of it, and not sent
        is_new = not set(choice.addresses) <= set(service.annotated)
        interface = self.occupancy.keys.interface_of(service.namespace) if is_new else None
        try:
            if not service.shows_claim:
                # Who makes the ledger anew sees by this that it may be written; then it is chosen for again.
                await self.client.replace(SERVICES, stamped(live, self._claims_by), subresource="status")
                return None
            return await self.client.replace(SERVICES, assigned(live, choice.addresses, interface=interface))
        except (ConflictError, NotFoundError):
            return None


def is_current(service: Service, live: JsonView) -> bool:
    """Whether a Service is what was chosen for: of another version its entry may be gone."""
    return bool(live["metadata"]["resourceVersion"] == service.version)


def lacking_in(ledger: Ledger, carried: Sequence[tuple[Address, Entry]]) -> list[tuple[Address, Entry]]:
    """Return the addresses that Services carry and the ledger does not name."""
    return [
        (address, entry) for address, entry in carried if entry.uid not in ledger.entries.get(address, {})
    ]


def carried_by(services: Iterable[Service], keys: PoolKeys) -> list[tuple[Address, Entry]]:
    """Return the entries of a new ledger: what Services carry that was chosen, or that lies in a pool."""
    return [
        (address, entry_of(service, is_chosen=is_chosen))
        for service in services
        if service.is_holder
        for address in sorted(service.carried)
        if (is_chosen := service.is_chosen and address in service.annotated) or keys.have(address)
    ]


def is_written(choice: Choice) -> bool:
    """Whether a Service says all that was chosen for it already."""
    service = choice.service
    is_so = service.annotated == choice.addresses and service.requested == choice.addresses[0]
    return is_so and service.is_marked and service.has_finalizer
