"""Brings each Service to its addresses from the kubevip ConfigMap: finds out what it lacks, and does that."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from fipop.boundary import loop_time
from fipop.cloudprovider.assigning import CLAIMING, AddressAssigner, is_current, is_written
from fipop.cloudprovider.bodies import cleared, released, taken_over
from fipop.cloudprovider.choosing import UNHEARD, Choice, Refused
from fipop.cloudprovider.ledger import is_overwritten
from fipop.cloudprovider.notices import ASSIGNED_REASON, Notices
from fipop.cloudprovider.occupancy import ServiceStore
from fipop.cloudprovider.quarrels import Quarrels
from fipop.cloudprovider.services import ANOTHER_CONTROLLER, Service, State, classify, parse_service
from fipop.errors import ConflictError, NotFoundError
from fipop.jsons import Json, JsonView
from fipop.kube.resources import SERVICES
from fipop.metrics.services import ServiceMetrics
from fipop.runtime.batching import Batcher
from fipop.runtime.store import Name
from fipop.runtime.workqueue import RetryAfter

logger = logging.getLogger(__name__)

SOON = RetryAfter(0.05)
"""Looked at again when what is known has caught up with what is so."""
LATER = RetryAfter(30.0)
"""Looked at again, as no change is heard of that would end the wait."""

OTHERS_FIRST = timedelta(minutes=3)
"""So long another cloud provider, which has the same finalizer, has time to take it off a Service that is deleted."""

Answer = Choice | Refused | None


@dataclass(slots=True, kw_only=True)
class ServiceReconciler:
    """Brings one Service after another to where the table of docs/reference/cloud-provider.md wants it."""

    services: ServiceStore
    assigner: AddressAssigner
    notices: Notices
    metrics: ServiceMetrics
    class_name: str | None
    writes_at_once: int
    suspect: Callable[[str], None]
    """Has the entries of a Service in the ledger looked at, by its uid."""
    quarrels: Quarrels = field(init=False)
    waiting: dict[Name, Refused] = field(default_factory=dict, init=False)
    _since: dict[str, float] = field(default_factory=dict, init=False)
    _batcher: Batcher[Service, Answer] = field(init=False)
    _slots: asyncio.Semaphore = field(init=False)
    _rooms: WeakValueDictionary[str, asyncio.Semaphore] = field(init=False)

    def __post_init__(self) -> None:
        self.quarrels = Quarrels(self.notices.now)
        self._batcher = Batcher(self._choose)
        self._slots = asyncio.Semaphore(self.writes_at_once)
        self._rooms = WeakValueDictionary()

    async def reconcile(self, name: Name) -> RetryAfter | None:
        """Look at the Service of a name, and do what is to be done."""
        service = self.services.get(*name)
        if service is None:
            self.waiting.pop(name, None)
            return None
        state = self._state(service)
        if state in CLAIMING and not self._is_settled(service, state):
            is_left_alone = self._is_overwritten(service) and self.quarrels.is_due(service)
            return await (self._leave_alone(service) if is_left_alone else self._serve(service))
        self.waiting.pop(name, None)
        self._since.pop(service.uid, None)
        self._suspect_stray(service)
        if state is State.FOREIGN and service.is_deleting and service.has_finalizer:
            return await self._release_late(service)
        if state is not State.FOREIGN:
            return await self._settle(service, state)
        return None

    async def _release_late(self, service: Service) -> RetryAfter | None:
        """Take F off a Service that shows nothing else of ours, after some minutes: it may be another provider's."""
        left = OTHERS_FIRST - (self.notices.now() - (service.deleted or self.notices.now()))
        if left > timedelta():
            return RetryAfter(left.total_seconds())
        return await self._rewrite(service, released)

    @asynccontextmanager
    async def _turn(self, namespace: str) -> AsyncIterator[None]:
        """Wait until a Service may be written. One namespace has a quarter of the slots at most."""
        room = self._rooms.setdefault(namespace, asyncio.Semaphore(max(1, self.writes_at_once // 4)))
        async with room, self._slots:
            yield

    def forget(self, uid: str) -> None:
        """Forget a Service that is gone."""
        self._since.pop(uid, None)
        self.quarrels.forget(uid)
        self.notices.forget(uid)

    async def close(self) -> None:
        """End what is under way."""
        await self._batcher.close()

    def _state(self, service: Service) -> State:
        entries = self.assigner.occupancy.entries_of(service.uid).values()
        return classify(
            service, class_name=self.class_name, was_chosen=any(entry.is_chosen for entry in entries)
        )

    def _is_overwritten(self, service: Service) -> bool:
        return is_overwritten(service, self.assigner.occupancy.entries_of(service.uid))

    def _is_settled(self, service: Service, state: State) -> bool:
        """Whether a Service has all that it asks for, so that nothing has to be chosen."""
        held = self.assigner.occupancy.entries_of(service.uid)
        addresses = service.annotated
        return (
            state is State.CHOSEN
            and service.has_finalizer
            and service.has_one_of_each_family
            and all(
                address in held and held[address].is_chosen and held[address].ports == service.ports
                for address in addresses
            )
        )

    async def _choose(self, waiting: Sequence[Service]) -> list[Answer]:
        await self.assigner.get_ready()
        # What changed since it was submitted is chosen for as it is now.
        fresh = (self.services.by_uid(service.uid) for service in waiting)
        known = [(service, self._state(service)) for service in fresh if service is not None]
        answers = await self.assigner.choose([each for each in known if each[1] in CLAIMING])
        self.notices.tell_unstamped(self.assigner.unstamped)
        return [answers.get(service.uid) for service in waiting]

    async def _serve(self, service: Service) -> RetryAfter | None:
        since = self._since.setdefault(service.uid, loop_time())
        restores = self._is_overwritten(service)
        answer = await self._batcher.submit(service)
        if answer is None:
            return SOON
        service = answer.service
        if isinstance(answer, Refused) and answer.reason in UNHEARD and service.lacks_nothing:
            self.waiting.pop(service.key, None)
            return LATER
        if isinstance(answer, Refused):
            before = self.waiting.get(service.key)
            if before is None or (before.reason, before.message) != (answer.reason, answer.message):
                self.metrics.count_assignment(answer.reason)
            self.waiting[service.key] = answer
            self._suspect_stray(service)
            async with self._turn(service.namespace):
                await self.notices.tell_waiting(answer)
            self.notices.look(service)
            return LATER if answer.reason in UNHEARD else None
        if is_written(answer):
            if service.word is not None:
                await self.notices.tell_assigned(service, answer)
        else:
            # Told in the same turn: with all that are written before the first is done nobody else would have one.
            async with self._turn(service.namespace):
                written = await self.assigner.write(answer)
                if written is None:
                    return SOON
                if restores:
                    self.quarrels.note_restored(service)
                    logger.info("Restored address", extra={"service": "/".join(service.key)})
                self.metrics.count_assignment("assigned")
                if not service.annotated:
                    self.metrics.observe_assignment(loop_time() - since)
                await self.notices.tell_assigned(parse_service(written), answer, written)
        self.waiting.pop(service.key, None)
        self._since.pop(service.uid, None)
        self.notices.look(service)
        return None

    async def _leave_alone(self, service: Service) -> RetryAfter | None:
        """Leave a Service to the controller that overwrites it, unless its pause is over."""
        live = await self.assigner.client.get(SERVICES, service.name, namespace=service.namespace)
        if live is None or not is_current(service, live):
            return SOON
        judged = self.quarrels.judge(service, live)
        if judged is None:
            return await self._serve(service)
        refused = Refused(service=service, reason=ANOTHER_CONTROLLER, message=judged[0])
        await self.notices.tell_waiting(refused)
        self.waiting.pop(service.key, None)
        self.notices.look(service)
        return RetryAfter(judged[1])

    def _suspect_stray(self, service: Service) -> None:
        """Have entries looked at that a Service does not carry: nothing may come of them any more."""
        if not self.assigner.occupancy.entries_of(service.uid).keys() <= service.carried:
            self.suspect(service.uid)

    async def _settle(self, service: Service, state: State) -> RetryAfter | None:
        """Do what needs no choice."""
        await self._correct_word(service, state)
        match state:
            case State.LEGACY | State.ANNOTATED | State.STATIC:
                is_marked = service.is_marked or state is not State.ANNOTATED
                if not (service.has_finalizer and is_marked) or state is State.LEGACY:
                    return await self._rewrite(service, partial(taken_over, state=state))
            case State.LEFT:
                return await self._rewrite(service, cleared)
            case State.DELETING | State.LEFT_STATIC if service.has_finalizer:
                return await self._rewrite(service, released)
        self.notices.look(service)
        return None

    async def _correct_word(self, service: Service, state: State) -> None:
        """Have the condition say what is so, where it says anything: that it waits is over."""
        if service.word is None or service.is_deleting:
            return
        if state is not State.CHOSEN:
            await self.notices.tell_nothing(service)
        elif service.word.reason != ASSIGNED_REASON:
            await self.notices.tell_assigned(service, Choice(service=service, addresses=service.annotated))

    async def _rewrite(
        self, service: Service, change: Callable[[JsonView], dict[str, Any]]
    ) -> RetryAfter | None:
        """Write a change of a Service as it is known; ApiError where that cannot be done."""
        async with self._turn(service.namespace):
            live = await self.assigner.client.get(SERVICES, service.name, namespace=service.namespace)
            if live is None:
                return None
            if not is_current(service, live):
                return SOON
            body = change(live)
            if _is_same(body, live):
                return None
            try:
                await self.assigner.client.replace(SERVICES, body)
            except (ConflictError, NotFoundError):
                return SOON
        logger.info("Wrote Service", extra={"service": "/".join(service.key)})
        return None


def _is_same(body: Json, live: Json) -> bool:
    """Whether two versions of a Service say the same; an empty mapping or list is none."""
    return _without_empty(body) == _without_empty(live)


def _without_empty(obj: Json) -> Json:
    metadata = {key: value for key, value in obj["metadata"].items() if value not in ({}, [])}
    return {**obj, "metadata": metadata}
