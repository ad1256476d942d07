"""The work queues of a leader, and the requests that the watches of its controllers put into them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any, NamedTuple, Protocol

from fipop.backoff import Backoff
from fipop.kube.resources import Resource
from fipop.metrics.exposition import Metrics
from fipop.runtime.store import Change
from fipop.runtime.workqueue import Priority, Run, WorkQueue

OBJECT_CONCURRENCY = 32
"""How many reconciliations of objects go on at once, and as many checks."""
FEW_WAITING = 8
STAND_BACK_SECONDS = 0.1
LONGEST_STAND_BACK_SECONDS = 10.0


class Kind(StrEnum):
    """What is worked on."""

    FLOATING_IP = "floatingip"
    RANGE = "range"
    GUEST = "guest"
    RESERVATION = "reservation"
    QUARANTINE = "quarantine"
    """The addresses of a guest, by its id, whose quarantine is over."""
    VISIT = "visit"
    """A guest, by its id."""
    INSTALL = "install"
    """A visit of a guest that may run helm."""


VISITS = frozenset({Kind.VISIT, Kind.INSTALL})


class Key(NamedTuple):
    """A key of a queue; `namespace` is "" where the kind has none."""

    kind: Kind
    namespace: str
    name: str

    def __str__(self) -> str:
        """Return it as logs show it."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class Request(NamedTuple):
    """A request to reconcile an object."""

    key: Key
    priority: Priority = Priority.NORMAL
    delay_seconds: float = 0.0


def request_visit(guest_id: str) -> Request:
    """Request a visit of a guest before all that are only due again: something happened to it."""
    return Request(Key(Kind.VISIT, "", guest_id), Priority.URGENT)


def request_routine_visit(guest_id: str, delay_seconds: float = 0.0) -> Request:
    """Request a visit of a guest when its turn comes, one of many."""
    return Request(Key(Kind.VISIT, "", guest_id), delay_seconds=delay_seconds)


class Event(NamedTuple):
    """A change that the cluster cache took in, however it was learned.

    `guest_ids` are the guests that it may change: those whose objects in Rancher it concerns, or that may be on it.
    """

    resource: Resource
    change: Change[Any]
    guest_ids: tuple[str, ...] = ()


class Controller(Protocol):
    """What reconciles objects of one kind, and knows which changes call for that."""

    def watches(self, event: Event) -> Iterator[Request]:
        """Yield a request for each object that an event may concern."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkQueues:
    """A queue for each kind of work that must not wait for another; so many `installs` run at once as may run helm.

    `checks` are those of guests for addresses in quarantine: they wait for guests, and `objects` waits for none.
    """

    objects: WorkQueue[Key]
    checks: WorkQueue[Key]
    passes: WorkQueue[Key]
    installs: WorkQueue[Key]

    def of(self, kind: Kind) -> WorkQueue[Key]:
        """Return the queue of a kind."""
        own = {Kind.QUARANTINE: self.checks, Kind.VISIT: self.passes, Kind.INSTALL: self.installs}
        return own.get(kind, self.objects)

    def add(self, *requests: Request) -> None:
        """Put requests into the queues of their kinds."""
        for key, priority, delay_seconds in requests:
            self.of(key.kind).add(key, priority=priority, delay_seconds=delay_seconds)

    async def stand_back(self) -> None:
        """Wait while more floating IPs wait for an address than are worked on: those come first, for a while."""
        clock = asyncio.get_running_loop().time
        until = clock() + LONGEST_STAND_BACK_SECONDS
        while self.objects.waiting(Priority.NORMAL) > FEW_WAITING and clock() < until:  # noqa: ASYNC110 - numbers have no event
            await asyncio.sleep(STAND_BACK_SECONDS)


def build_queues(metrics: Metrics, random: Random) -> WorkQueues:
    """Build empty queues whose runs are measured."""

    def build(name: str) -> WorkQueue[Key]:
        def observe(run: Run[Key]) -> None:
            metrics.observe_queue_wait(name, run.waited_seconds)
            if run.key.kind not in VISITS:
                metrics.observe_reconcile(run.key.kind.value, run.worked_seconds, success=run.success)

        backoff = Backoff(first_seconds=0.2, limit_seconds=30.0)
        return WorkQueue(name=name, random=random, backoff=backoff, observe=observe)

    return WorkQueues(
        objects=build("objects"),
        checks=build("checks"),
        passes=build("passes"),
        installs=build("installs"),
    )
