"""The work queues of a leader: rounds over objects, checks of guests, passes over guests, passes that may run helm."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import NamedTuple

from fipop.backoff import Backoff
from fipop.metrics.exposition import Metrics
from fipop.runtime.workqueue import Outcome, Run, WorkQueue


class Kind(StrEnum):
    """What is worked on."""

    FLOATING_IP = "floatingip"
    RANGE = "range"
    GUEST = "guest"
    RESERVATION = "reservation"
    QUARANTINE = "quarantine"
    """The addresses of a guest, by its id, whose quarantine is over."""


class Key(NamedTuple):
    """A key of the queue of objects; `namespace` is "" where the kind has none."""

    kind: Kind
    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkQueues:
    """`passes` and `installs` have the ids of guests as keys; so many `installs` run at once as may run helm.

    `checks` are those of guests for addresses in quarantine: they wait for guests, and `objects` waits for none.
    """

    objects: WorkQueue[Key]
    checks: WorkQueue[Key]
    passes: WorkQueue[str]
    installs: WorkQueue[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency:
    """How many rounds, checks, passes and passes that may run helm go on at once."""

    objects: int = 32
    checks: int = 32
    passes: int = 128
    installs: int = 2


def build_queues(metrics: Metrics, random: Random) -> WorkQueues:
    """Build empty queues whose runs are measured."""

    def build(name: str) -> WorkQueue[Key]:
        def observe_round(run: Run[Key]) -> None:
            success = run.outcome not in {Outcome.FAILED, Outcome.CRASHED}
            metrics.observe_queue_wait(name, run.waited_seconds)
            metrics.observe_reconcile(run.key.kind.value, run.worked_seconds, success=success)

        backoff = Backoff(first_seconds=0.2, limit_seconds=30.0)
        return WorkQueue(name=name, random=random, backoff=backoff, observe=observe_round)

    return WorkQueues(
        objects=build("objects"),
        checks=build("checks"),
        passes=WorkQueue(
            name="passes",
            random=random,
            backoff=Backoff(first_seconds=0.5, limit_seconds=30.0),
            observe=lambda run: metrics.observe_queue_wait("passes", run.waited_seconds),
        ),
        installs=WorkQueue(
            name="installs",
            random=random,
            backoff=Backoff(first_seconds=0.5, limit_seconds=30.0),
            observe=lambda run: metrics.observe_queue_wait("installs", run.waited_seconds),
        ),
    )
