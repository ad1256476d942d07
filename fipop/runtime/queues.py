"""The work queues of a leader, and the requests that the watches of its controllers put into them."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

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


FLOATING_IP, WAITING, GUEST, VISIT = "floatingip", "waiting", "guest", "visit"
"""The kinds that other rooms request, too: a floating IP, all that wait, a guest cluster, and a visit of one.

Any other kind stands beside its controller.
"""


class Key(NamedTuple):
    """A key of a queue: the kind tells which controller reconciles it; `namespace` is "" if the kind has none."""

    kind: str
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
    return Request(Key(FLOATING_IP, *floating_ip.key), priority)


def request_waiting() -> Request:
    """Request all floating IPs that wait, soon: an address may be free now."""
    return Request(Key(WAITING, "", ""), delay_seconds=GATHER_SECONDS)


def request_guest(guest_id: str) -> Request:
    """Request a guest cluster: its links may lead elsewhere, or it may get a floating IP."""
    return Request(Key(GUEST, "", guest_id))


def request_visit(guest_id: str) -> Request:
    """Request a visit of a guest before all that are only due again: something happened to it."""
    return Request(Key(VISIT, "", guest_id), Priority.URGENT)


def request_routine_visit(guest_id: str) -> Request:
    """Request a visit of a guest when its turn comes, one of many."""
    return Request(Key(VISIT, "", guest_id))


class Event(NamedTuple):
    """A change that the inventory took in, however it was learned.

    `guest_ids` are the guests that it may change: those whose objects in Rancher it concerns, or that may be on it.
    """

    resource: Resource
    change: Change[Any]
    guest_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkQueues:
    """A queue for each kind of work that must not wait for another; as many `installs` run at once as may run helm."""

    objects: WorkQueue[Key]
    visits: WorkQueue[Key]
    installs: WorkQueue[Key]
    of_kind: dict[str, WorkQueue[Key]] = field(default_factory=dict)
    """The queue of each kind, as its controller is registered."""

    @property
    def all(self) -> tuple[WorkQueue[Key], ...]:
        """All queues."""
        return self.objects, self.visits, self.installs

    def add(self, *requests: Request) -> None:
        """Put requests into the queues of their kinds."""
        for key, priority, delay_seconds in requests:
            self.of_kind[key.kind].add(key, priority=priority, delay_seconds=delay_seconds)


def build_queues(random: Random) -> WorkQueues:
    """Build empty queues whose runs are measured."""

    def build(name: str) -> WorkQueue[Key]:
        def observe(run: Run[Key]) -> None:
            QUEUE_WAIT_SECONDS.labels(name).observe(run.waited_seconds)
            if name == "objects":
                RECONCILE_SECONDS.labels(run.key.kind).observe(run.worked_seconds)
                if not run.success:
                    RECONCILE_ERRORS.labels(run.key.kind).inc()

        backoff = Backoff(first_seconds=0.2, limit_seconds=30.0)
        return WorkQueue(name=name, random=random, backoff=backoff, observe=observe)

    return WorkQueues(
        objects=build("objects"),
        visits=build("visits"),
        installs=build("installs"),
    )
