"""Gives Services their addresses: many that wait in one write of the ledger, then each Service by itself."""

from __future__ import annotations

import logging
from collections import ChainMap
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from fipop.cloudprovider.bodies import assigned, stamped
from fipop.cloudprovider.choosing import LEDGER_FULL, LEDGER_UNKNOWN, Choice, Refused, Round, in_order
from fipop.cloudprovider.ledger import FULL, UNKNOWN, Entry, Ledger
from fipop.cloudprovider.ledger_store import LedgerStore
from fipop.cloudprovider.occupancy import Occupancy
from fipop.cloudprovider.pools import PoolKeys
from fipop.cloudprovider.services import Service, State, parse_service
from fipop.errors import ApiConflictError, ApiForbiddenError, ApiInvalidError, ApiNotFoundError
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
    _carried: list[tuple[Address, Entry]] = field(default_factory=list, init=False)
    """What Services carried when no write by a former ledger could come any more."""
    unstamped: list[Service] = field(default_factory=list, init=False)
    """Those into which such a write may still come, as the API server refuses to have them written."""

    async def get_ready(self) -> None:
        """Before the first claim by a ledger stamp every Service that may be written: see there. ApiError.

        What was refused then is tried again each time.
        """
        ledger = await self.ledger.known()
        found: Sequence[Service] = self.unstamped
        carried, unstamped = self._carried, []
        if not ledger.is_known:
            return
        if ledger.uid != self._claims_by:
            carried, found = [], () if ledger.is_open else await self.list_live()
        for service in found:
            try:
                now = await self._stamp(service, ledger.uid)
            except (ApiForbiddenError, ApiInvalidError):
                unstamped.append(service)
            else:
                carried += carried_by([now] if now is not None else [], self.occupancy.keys)
        self._carried, self.unstamped, self._claims_by = carried, unstamped, ledger.uid

    async def _stamp(self, service: Service, ledger_uid: str) -> Service | None:
        """Write a Service anew that may be written by what the former ledger said; gives it as it is then.

        By its status, since policies are made for the rest of it; that makes a new version as well.
        """

        def is_due(each: Service) -> bool:
            return each.may_be_written and each.ledger != ledger_uid

        if not is_due(service):
            return service
        live = await self._read(service)
        if live is not None and is_due(parse_service(live)):
            try:
                live = await self.client.replace(SERVICES, stamped(live, ledger_uid), subresource="status")
            except (ApiConflictError, ApiNotFoundError):
                # Such a write fails now, or it was just this one that came first.
                live = await self._read(service)
        return parse_service(live) if live is not None else None

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
            # Who finds it open relies on it alone: whatever Services carry is in it.
            lacking = lacking_in(made, self._carried)
            if len(made.fitting(lacking)) < len(lacking):
                return made
            return replace(made.having(lacking), is_open=True)

        try:
            await self.ledger.swap(change)
        except ApiInvalidError:
            if len(ordered) > 1:
                return dict(ChainMap(*[await self.choose([each]) for each in ordered]))
            attempt.refuse(ordered, LEDGER_FULL, FULL)
        finally:
            self.occupancy.refresh(uids)
        logger.debug("chosen", extra={"services": len(attempt.chosen)})
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
            return await self.client.replace(SERVICES, assigned(live, choice.addresses, interface=interface))
        except (ApiConflictError, ApiNotFoundError):
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
    pools = [each.pool.addresses for each in keys.pools() if each.pool is not None]
    found: list[tuple[Address, Entry]] = []
    for service in services:
        chosen = service.annotated if service.is_chosen else ()
        for address in sorted(service.carried) if service.is_holder else ():
            if address in chosen or any(address in pool for pool in pools):
                entry = Entry(
                    uid=service.uid,
                    version=service.version,
                    namespace=service.namespace,
                    name=service.name,
                    ports=service.ports,
                    is_chosen=address in chosen,
                )
                found.append((address, entry))
    return found


def is_written(choice: Choice) -> bool:
    """Whether a Service says all that was chosen for it already."""
    service = choice.service
    is_so = service.annotated == choice.addresses and service.requested == choice.addresses[0]
    return is_so and service.is_marked and service.has_finalizer
