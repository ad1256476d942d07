"""Compares what the routing wakes with what the former routing would have woken, at each cause, with the same memory.

`installed` replaces methods of the product by ones that do the same and compare. A key that is not woken any more, or
later, or after others, is a fault. A key that is woken beside is counted by the reason that `name_extra` finds.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from fipop.kube.resources import FLOATING_IP_RESERVATIONS, FLOATING_IPS, MANAGEMENT_CLUSTERS
from fipop.operator.addresses.reconciler import FloatingIPReconciler
from fipop.operator.initial_sync import InitialSync
from fipop.operator.manager import Manager
from fipop.operator.queues import Kind, WorkQueues
from fipop.runtime.workqueue import Priority
from tests.wakeups import former


class Woken(NamedTuple):
    """A key that was put into a queue; `drop` takes one out of it again."""

    queue: str
    key: object
    priority: Priority
    delay_seconds: float
    drop: bool = False


class Recorder:
    """Notes what is put into a queue, and passes it on if there is one behind it."""

    def __init__(self, name: str, log: list[Woken], queue: Any = None) -> None:
        self._name = name
        self._log = log
        self._queue = queue

    def add(self, key: object, *, delay_seconds: float = 0.0, priority: Priority = Priority.NORMAL) -> None:
        self._log.append(Woken(self._name, key, priority, delay_seconds))
        if self._queue is not None:
            self._queue.add(key, delay_seconds=delay_seconds, priority=priority)

    def drop_rerun(self, key: object) -> None:
        self._log.append(Woken(self._name, key, Priority.NORMAL, 0.0, drop=True))
        if self._queue is not None:
            self._queue.drop_rerun(key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


def _record(queues: Any, log: list[Woken]) -> WorkQueues:
    names = ("objects", "checks", "passes", "installs")
    return WorkQueues(**{name: Recorder(name, log, getattr(queues, name, None)) for name in names})  # type: ignore[arg-type]


@dataclass
class Memory:
    """What the routing remembered before the cause: of who waits, and of what passes were told."""

    waiting: dict[Any, Any]
    unserved: set[str]
    missing: dict[str, str]
    told: dict[Any, Any]
    is_settled_left: bool
    held_up: set[str]


def recall(term: Manager) -> Memory:
    return Memory(
        waiting=dict(term.waiting._waiting),
        unserved=set(term.guests.unserved()),
        missing={guest_id: state.missing for guest_id, state in term.guests.states() if state.missing},
        told=dict(term.floating_ips._visited_for),
        is_settled_left=term.initial_sync._is_settled_left,
        held_up={guest_id for guest_id, state in term.guests.states() if state.is_held_up},
    )


class Former:
    """The former routing, as the former Manager used it; it puts nothing into a real queue."""

    def __init__(self, term: Manager, memory: Memory) -> None:
        self.log: list[Woken] = []
        self._term = term
        self._memory = memory
        queues = _record(None, self.log)
        waiting = former.WaitingGuests(memory.unserved, memory.missing)
        self.router = former.Router(
            cache=term.cache, queues=queues, waiting_guests=waiting, waiting=memory.waiting
        )
        self.first_rounds = former.FirstRounds(
            cache=term.cache, queues=queues, router=self.router, _is_settled_left=memory.is_settled_left
        )
        self.pass_triggers = former.PassTriggers(
            cache=term.cache, add_pass=self.router.add_pass, _told=memory.told
        )

    def changed(self, resource: Any, change: Any) -> None:
        if resource == FLOATING_IPS and change.new is None:
            self.pass_triggers.forget(change.latest.meta.key)
        self.router.route(resource, change)

    def lost_unseen(self) -> None:
        pass

    def freed(self, space: str, address: Any, *, claim_failed: bool) -> None:
        self.router.address_freed(space, address, claim_failed=claim_failed)

    def check_owners(self) -> None:
        cache = self._term.cache
        for reservation in cache.reservations.all():
            if reservation.is_held and cache.floating_ips.get(*reservation.owner.key) is None:
                self.router.add_reservation(reservation)

    def settings_changed(self, before: Any, after: Any) -> None:
        for guest in self._term.guests.all():
            self.router.add_routine_pass(guest.id)
            if before.kubevip_guest_remove or after.kubevip_guest_remove:
                self.router.add_guest_floating_ips(guest.id)
        if after.may_create_floating_ips and not before.may_create_floating_ips:
            self.first_rounds.enqueue_unserved()

    def _gate_opened(self) -> None:
        self.router.wake_waiting()
        for guest_id in self._memory.held_up:
            self.router.add_pass(guest_id)
        if self._term.gate.looked:
            self.first_rounds.enqueue_settled()

    def _guest_learned(self, guest: Any) -> None:
        self.router.add_guest_floating_ips(guest.id)
        self.router.add_pass(guest.id)

    def enqueue_unsettled(self) -> None:
        self.first_rounds.enqueue_unsettled()

    def enqueue_settled(self) -> None:
        self.first_rounds.enqueue_settled()

    def _end(self, floating_ip: Any, wait: Any) -> None:
        self.router.note_waiting(floating_ip, bool(wait.blockers) or not wait.is_settled)
        if wait.is_settled:
            self.pass_triggers.note_settled(floating_ip)

    def _let_go(self, key: Any) -> None:
        for reservation in self._term.cache.reservations_of(key):
            self.router.add_reservation(reservation)


CAUSES: dict[type, tuple[str, ...]] = {
    Manager: (
        *("changed", "lost_unseen", "freed", "check_owners", "settings_changed"),
        *("_gate_opened", "_guest_learned"),
    ),
    InitialSync: ("enqueue_unsettled", "enqueue_settled"),
    FloatingIPReconciler: ("_end", "_let_go"),
}

OWN_CAUSES = {"changed", "freed"}


def name_extra(cause: str, arguments: Any, woken: Woken) -> str:
    """Return why a key is woken that was not woken before."""
    kind = getattr(woken.key, "kind", None)
    resource = arguments[0] if cause == "changed" else None
    if resource == FLOATING_IP_RESERVATIONS and kind is Kind.RANGE:
        return "F-G14: a range of another name that has the address of a reservation"
    if resource == MANAGEMENT_CLUSTERS and kind in {Kind.GUEST, Kind.FLOATING_IP, Kind.RESERVATION}:
        return "F-G9: a guest on a Harvester cluster that was renamed, with its floating IPs and reservations"
    return f"unnamed: {cause}, {woken}"


@dataclass
class Comparison:
    """What was compared: causes and keys by name, and what is wrong."""

    causes: Counter[str] = field(default_factory=Counter)
    keys: int = 0
    extra: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    _terms: dict[int, tuple[Manager, list[Woken]]] = field(default_factory=dict)
    """By the id of the cache: terms come and go, the last one over a cache is the one that works."""

    def take_term(self, term: Manager, log: list[Woken]) -> None:
        self._terms[id(term.cache)] = term, log

    def compare(self, cause: str, cache: object, call: Callable[[], Any], arguments: Any, named: Any) -> Any:
        term, log = self._terms[id(cache)]
        begin, before = len(log), Former(term, recall(term))
        answer = call()
        now = log[begin:]
        getattr(before, cause)(*arguments, **named)
        self._judge(cause, arguments, before.log, now)
        if cause in OWN_CAUSES:
            del log[begin:]  # a method that the cache heard of meanwhile is not its cause
        return answer

    def _judge(self, cause: str, arguments: Any, before: list[Woken], now: list[Woken]) -> None:
        self.causes[cause] += 1
        self.keys += len(before)
        for each in before:
            if not any(_is_as_soon(one, each) for one in now):
                self.lost.append(f"{cause}: {each} is not woken, only {now}")
        known = {(each.queue, each.key) for each in before}
        self.extra.update(
            name_extra(cause, arguments, each)
            for each in now
            if not each.drop and (each.queue, each.key) not in known
        )


def _is_as_soon(one: Woken, other: Woken) -> bool:
    return (
        (one.queue, one.key) == (other.queue, other.key)
        and one.priority <= other.priority
        and one.delay_seconds <= other.delay_seconds
    )


@contextmanager
def installed(comparison: Comparison) -> Iterator[None]:
    """Compare at each cause, in whatever term, until the end."""
    with pytest.MonkeyPatch.context() as patch:
        _take_terms(patch, comparison)
        for owner, names in CAUSES.items():
            for name in names:
                patch.setattr(owner, name, _compared(getattr(owner, name), name, comparison))
        yield


def _take_terms(patch: pytest.MonkeyPatch, comparison: Comparison) -> None:
    build = Manager.__init__

    def build_recorded(term: Manager, outlives: Any, queues: WorkQueues) -> None:
        log: list[Woken] = []
        build(term, outlives, _record(queues, log))
        comparison.take_term(term, log)

    patch.setattr(Manager, "__init__", build_recorded)


def _compared(method: Any, name: str, comparison: Comparison) -> Any:
    @functools.wraps(method)
    def compared(self: Any, *arguments: Any, **named: Any) -> Any:
        call = functools.partial(method, self, *arguments, **named)
        return comparison.compare(name, self.cache, call, arguments, named)

    return compared
