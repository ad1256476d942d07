"""Tells people of the addresses of Services: conditions, events and log lines, on transitions only."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from fipop.api.conditions import Verdict
from fipop.cloudprovider.choosing import Choice, Refused
from fipop.cloudprovider.conditions import Word, with_word
from fipop.cloudprovider.occupancy import MOST_NAMED, Occupancy, is_shared
from fipop.cloudprovider.services import ADDRESSES, ANOTHER_CONTROLLER, MOST_ADDRESSES, Service
from fipop.errors import ConflictError, NotFoundError
from fipop.ipam.addresses import format_address
from fipop.jsons import Json
from fipop.kube.events import EventRecorder, EventType, ObjectReference
from fipop.kube.resources import SERVICES, Resource

logger = logging.getLogger(__name__)

ASSIGNED_REASON = "Assigned"
ASSIGNED = "AddressAssigned"
IN_USE = "AddressInUse"
FAILED = "SyncLoadBalancerFailed"
SHARED_LOCAL = "SharedAddressLocal"
TOO_MANY = "TooManyAddresses"
_EVENTS = {each: each for each in (IN_USE, ANOTHER_CONTROLLER)}
"""Reasons that are those of the event, too."""

_ATTEMPTS = 3


class Door(Protocol):
    """What is asked of the door to the API."""

    async def get(self, resource: Resource, name: str, *, namespace: str | None = ...) -> Json | None:
        """Read one object; None where it does not exist."""

    async def replace(
        self, resource: Resource, body: dict[str, Any], *, subresource: str | None = ...
    ) -> Json:
        """Replace an object, or a part of it, at the version of the body."""


@dataclass(slots=True, kw_only=True)
class Notices:
    """What people are told of Services. `look_again` queues the Services of these uids, which share an address."""

    client: Door
    events: EventRecorder
    occupancy: Occupancy
    now: Callable[[], datetime]
    look_again: Callable[[Iterable[str]], None]
    _said: dict[str, tuple[str, str, int]] = field(default_factory=dict, init=False)
    """What was said last of the neighbours of each Service, by uid."""
    _neighbours: dict[str, frozenset[str]] = field(default_factory=dict, init=False)
    _unstamped: set[str] = field(default_factory=set, init=False)

    async def tell_assigned(self, service: Service, choice: Choice, live: Json | None = None) -> None:
        """Tell that a Service has its addresses; `live` is the Service if it was just read or written."""
        addresses = ", ".join(map(format_address, choice.addresses))
        message = f"Assigned {addresses} from key {choice.pool}." if choice.pool else f"Assigned {addresses}."
        word = Word(Verdict.TRUE, ASSIGNED_REASON, message)
        if service.word != word:
            logger.info("Address assigned", extra={"service": "/".join(service.key), "addresses": message})
        await self._say(service, word, EventType.NORMAL, ASSIGNED, live)

    async def tell_waiting(self, refused: Refused) -> None:
        """Tell why a Service gets no address, or not the one that it asks for beside what it has."""
        service = refused.service
        has_own = service.annotated and refused.reason != ANOTHER_CONTROLLER
        verdict = Verdict.TRUE if has_own else Verdict.FALSE
        word = Word(verdict, refused.reason, refused.message)
        if service.word != word:
            fields = {"service": "/".join(service.key), "reason": refused.reason, "why": refused.message}
            logger.warning("Service waits for an address", extra=fields)
        await self._say(service, word, EventType.WARNING, _EVENTS.get(refused.reason, FAILED))

    def tell_unstamped(self, services: Iterable[Service]) -> None:
        """Warn on Services that cannot be written, their status neither: they hold their pools back."""
        found = {service.uid: service for service in services}
        message = "The API server refuses writes of this Service: until it accepts one, its pool assigns no addresses."
        for uid in found.keys() - self._unstamped:
            logger.warning("Could not write Service", extra={"service": "/".join(found[uid].key)})
            self.events.record(reference_to_service(found[uid]), EventType.WARNING, FAILED, message)
        self._unstamped = set(found)

    async def tell_nothing(self, service: Service) -> None:
        """Take our word off a Service that has nothing of ours any more."""
        if service.word is not None:
            await self._write(service, None)

    def look(self, service: Service) -> None:
        """Warn where an address of a Service has another holder that may not share it."""
        sharing = self.occupancy.sharing
        texts, local, neighbours = [], [], set[str]()
        for address in dict.fromkeys((*service.annotated, *filter(None, (service.requested,)))):
            conflicting = sharing.conflicting(address, service.uid)
            neighbours.update(conflicting[:MOST_NAMED])
            if conflicting:
                holders = self.occupancy.names(conflicting)
                texts.append(
                    f"Address {format_address(address)} is also in use by Service {holders}. Change one."
                )
            elif service.is_local and is_shared(sharing, address):
                local.append(format_address(address))
        too_many = service.parts if service.parts > MOST_ADDRESSES else 0
        self._warn(service, (" ".join(texts), ", ".join(local), too_many))
        before = self._neighbours.get(service.uid, frozenset())
        if neighbours != before:
            self._neighbours[service.uid] = frozenset(neighbours)
            self.look_again(before | neighbours)

    def forget(self, uid: str) -> None:
        """Forget a Service that is gone; its neighbours are looked at again."""
        self._said.pop(uid, None)
        self.look_again(self._neighbours.pop(uid, frozenset()))

    def _warn(self, service: Service, said: tuple[str, str, int]) -> None:
        before = self._said.get(service.uid, ("", "", 0))
        self._said[service.uid] = said
        clash, local, too_many = said
        if too_many and not before[2]:
            message = (
                f"Annotation {ADDRESSES} has {too_many} parts: fipop reads only the first {MOST_ADDRESSES}."
            )
            self.events.record(reference_to_service(service), EventType.WARNING, TOO_MANY, message)
        if clash and clash != before[0]:
            logger.warning("Address is in use twice", extra={"service": "/".join(service.key), "why": clash})
            self.events.record(reference_to_service(service), EventType.WARNING, IN_USE, clash)
        if local and local != before[1]:
            message = (
                f"Address {local} is shared, and externalTrafficPolicy is Local: two nodes can announce it."
            )
            self.events.record(reference_to_service(service), EventType.WARNING, SHARED_LOCAL, message)

    async def _say(
        self, service: Service, word: Word, type_: EventType, event: str, live: Json | None = None
    ) -> None:
        if service.word == word:
            return
        await self._write(service, word, live)
        self.events.record(reference_to_service(service), type_, event, word.message)

    async def _write(self, service: Service, word: Word | None, live: Json | None = None) -> None:
        """Write the condition. A Service that goes on changing gets it at the next look."""
        for _ in range(_ATTEMPTS):
            if live is None:
                live = await self.client.get(SERVICES, service.name, namespace=service.namespace)
            if live is None or live["metadata"]["uid"] != service.uid:
                return
            try:
                await self.client.replace(SERVICES, with_word(live, word, self.now()), subresource="status")
            except ConflictError:
                live = None
                continue
            except NotFoundError:
                return
            return


def reference_to_service(service: Service) -> ObjectReference:
    """Give what an event about a Service refers to."""
    return ObjectReference(
        api_version=SERVICES.api_version,
        kind=SERVICES.kind,
        name=service.name,
        namespace=service.namespace,
        uid=service.uid,
    )
