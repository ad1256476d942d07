"""The work queues of a leader, and the requests that the watches of its controllers put into them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any, NamedTuple, Protocol

from fipop.api.objects import FloatingIP
from fipop.backoff import Backoff
from fipop.kube.resources import Resource
from fipop.metrics.counters import QUEUE_WAIT_SECONDS, RECONCILE_ERRORS, RECONCILE_SECONDS
from fipop.runtime.store import Change
from fipop.runtime.workqueue import Priority, Run, WorkQueue

OBJECT_CONCURRENCY = 32
"""How many reconciliations of objects go on at once."""
GATHER_SECONDS = 2.0
"""How long events are gathered that may free addresses, until all that wait are decided on again."""


class Kind(StrEnum):
    """What is worked on."""

    FLOATING_IP = "floatingip"
    RANGES = "ranges"
    """All ranges: they are counted together."""
    GUEST = "guest"
    RESERVATION = "reservation"
    WAITING = "waiting"
    """All floating IPs that wait for something."""
    VISIT = "visit"
    """A guest, by its id."""
    SERVICES = "services"
    """The Services of a guest, by its id."""
    INSTALL = "install"
    """A guest whose releases have to change, by its id."""


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


def request_floating_ip(floating_ip: FloatingIP) -> Request:
    """Request a floating IP; one that has all that it asks for does not come before those that have not."""
    priority = Priority.NORMAL if floating_ip.is_waiting else Priority.BACKGROUND
    return Request(Key(Kind.FLOATING_IP, *floating_ip.key), priority)


def request_waiting() -> Request:
    """Request all floating IPs that wait, soon: an address may be free now."""
    return Request(Key(Kind.WAITING, "", ""), delay_seconds=GATHER_SECONDS)


def request_guest(guest_id: str) -> Request:
    """Request a guest cluster: its links may lead elsewhere, or it may get a floating IP."""
    return Request(Key(Kind.GUEST, "", guest_id))


def request_visit(guest_id: str) -> Request:
    """Request a visit of a guest before all that are only due again: something happened to it."""
    return Request(Key(Kind.VISIT, "", guest_id), Priority.URGENT)


def request_routine_visit(guest_id: str) -> Request:
    """Request a visit of a guest when its turn comes, one of many."""
    return Request(Key(Kind.VISIT, "", guest_id))


def request_services(guest_id: str) -> Request:
    """Request a list of the Services of a guest alone, without hurry."""
    return Request(Key(Kind.SERVICES, "", guest_id), Priority.BACKGROUND)


def request_install(guest_id: str, priority: Priority, delay_seconds: float) -> Request:
    """Request a turn of helm for a guest whose releases have to change."""
    return Request(Key(Kind.INSTALL, "", guest_id), priority, delay_seconds)


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
    """A queue for each kind of work that must not wait for another; as many `installs` run at once as may run helm."""

    objects: WorkQueue[Key]
    visits: WorkQueue[Key]
    installs: WorkQueue[Key]

    def of(self, kind: Kind) -> WorkQueue[Key]:
        """Return the queue of a kind."""
        own = {Kind.VISIT: self.visits, Kind.SERVICES: self.visits, Kind.INSTALL: self.installs}
        return own.get(kind, self.objects)

    def add(self, *requests: Request) -> None:
        """Put requests into the queues of their kinds."""
        for key, priority, delay_seconds in requests:
            self.of(key.kind).add(key, priority=priority, delay_seconds=delay_seconds)


def build_queues(random: Random) -> WorkQueues:
    """Build empty queues whose runs are measured."""

    def build(name: str) -> WorkQueue[Key]:
        def observe(run: Run[Key]) -> None:
            QUEUE_WAIT_SECONDS.labels(name).observe(run.waited_seconds)
            if run.key.kind not in {Kind.VISIT, Kind.SERVICES, Kind.INSTALL}:
                RECONCILE_SECONDS.labels(run.key.kind.value).observe(run.worked_seconds)
                if not run.success:
                    RECONCILE_ERRORS.labels(run.key.kind.value).inc()

        backoff = Backoff(first_seconds=0.2, limit_seconds=30.0)
        return WorkQueue(name=name, random=random, backoff=backoff, observe=observe)

    return WorkQueues(
        objects=build("objects"),
        visits=build("visits"),
        installs=build("installs"),
    )
