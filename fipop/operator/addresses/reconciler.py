"""Reconciles one FloatingIP: takes the next step, and decides again, until nothing is left to do.

`holdings` and `next_step` decide. Here each step is one request to the API server. Its answer goes into the cluster
cache, on which the next decision rests.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from fipop.api import names
from fipop.api.models import FloatingIP, FloatingIPStatus, Reservation
from fipop.api.rendering import render_floating_ip_status
from fipop.errors import ConflictError, FipopError, UnavailableError
from fipop.jsons import Json
from fipop.kube.client import KubeClient
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IP_RESERVATIONS, FLOATING_IPS
from fipop.operator.addresses.facts import FactSource
from fipop.operator.addresses.holdings import plan
from fipop.operator.addresses.next_step import (
    Confirm,
    ReadAgain,
    Release,
    Step,
    Wait,
    WriteSpec,
    WriteStatus,
    next_step,
)
from fipop.operator.addresses.ranges import is_respecified
from fipop.operator.addresses.reservations import ReservationStore
from fipop.operator.addresses.values import Facts
from fipop.operator.addresses.waiting import (
    request_concerned,
    request_floating_ip,
    request_floating_ips_of,
    request_lacking,
    request_reservation,
)
from fipop.operator.queues import Event, Key, Kind, Request, WorkQueues
from fipop.runtime.store import Change
from fipop.runtime.workqueue import RetryAfter
from fipop.state.cache import BY_RANGE, ClusterCache
from fipop.state.claims import Claim

logger = logging.getLogger(__name__)

CONTENTION_SECONDS = 0.1
WAITING_SECONDS = 60.0
"""How soon one that lacks something is decided on again: an address may be free though no reservation went."""
MAX_STEPS = 24
"""More than any round needs: candidates that others took meanwhile cost one each."""


class ContendedError(FipopError):
    """Others were first again and again; the next round decides on what is left."""

    def __init__(self, *, floating_ip: tuple[str, str]) -> None:
        self.floating_ip = floating_ip
        super().__init__(
            f"could not assign addresses to FloatingIP {'/'.join(floating_ip)}: other writers took them first"
        )


class Reporter(Protocol):
    """What counts and reports what becomes of a floating IP."""

    def report_allocated(self, floating_ip: FloatingIP, reservation: Reservation) -> None:
        """Report that it got an address."""

    def report_removal(self, floating_ip: FloatingIP, written: FloatingIPStatus) -> None:
        """Report what its status, as it was written now, records of the removal of its guest's releases."""

    def report_blocked(self, reason: str) -> None:
        """Report that it did not get all that it asks for."""


class _SpecWrite(NamedTuple):
    """What was written into the spec of the floating IP `uid` last, and how often it was written again since."""

    uid: str = ""
    ipaddress: str = ""
    again: int = 0


@dataclass(slots=True, kw_only=True)
class FloatingIPReconciler:
    """Brings reservations, spec and status of a floating IP in line with what it asks for."""

    client: KubeClient
    cache: ClusterCache
    reservation_store: ReservationStore
    facts: FactSource
    queues: WorkQueues
    reporter: Reporter
    _written: dict[tuple[str, str], _SpecWrite] = field(default_factory=dict)

    def watches(self, event: Event) -> Iterator[Request]:
        """Yield the floating IPs that an event may concern: its own, those of its guests, and those that wait."""
        change, cache = event.change, self.cache
        for guest_id in event.guest_ids:
            yield from request_floating_ips_of(cache, guest_id)
        if event.resource == FLOATING_IPS:
            yield request_floating_ip(cache, change.latest.meta.key)
            if change.new is None:
                yield from request_floating_ips_of(cache, change.latest.namespace)
        elif event.resource == FLOATING_IP_RANGES and is_respecified(change):
            for each in cache.floating_ips.by_index(BY_RANGE, change.latest.name):
                yield request_floating_ip(cache, each.meta.key)
            yield from request_lacking(cache)
        elif event.resource == FLOATING_IP_RESERVATIONS:
            for key in {side.owner.key for side in (change.old, change.new) if side is not None}:
                yield request_floating_ip(cache, key)
            yield from self._find_concerned(change)

    def _find_concerned(self, change: Change[Reservation]) -> Iterator[Request]:
        """Yield those that lack an address and may have this one now, or another one of the former owner's share.

        Or they report that it is another's, or in quarantine.
        """
        old, new = change.old, change.new
        if old is None or (
            new is not None
            and (new.is_held, new.range, new.owner.key) == (old.is_held, old.range, old.owner.key)
        ):
            return
        yield from request_concerned(self.cache, old)

    async def reconcile(self, key: tuple[str, str]) -> RetryAfter | None:
        """Do one round; whatever caused it, the result depends on the state alone."""
        live_version = None
        try:
            for _ in range(MAX_STEPS):
                # What is known by now needs no round of its own, the answers to our own writes neither.
                self.queues.objects.drop_rerun(Key(Kind.FLOATING_IP, *key))
                floating_ip = self.cache.floating_ips.get(*key)
                if floating_ip is None:
                    self._let_go(key)
                    return None
                facts = self._gather(floating_ip, is_live=live_version == floating_ip.resource_version)
                step = next_step(facts, plan(facts))
                if isinstance(step, Wait):
                    return self._end(floating_ip, step)
                if isinstance(step, ReadAgain):
                    live_version = await self._read_again(key)
                else:
                    await self._take(step, floating_ip)
        except ConflictError:
            await self._read_again(key)
            return RetryAfter(CONTENTION_SECONDS)
        raise ContendedError(floating_ip=key)

    def _gather(self, floating_ip: FloatingIP, *, is_live: bool) -> Facts:
        written = self._written.get(floating_ip.meta.key, _SpecWrite())
        if written.uid != floating_ip.uid:
            written = _SpecWrite()  # another object of that name: fipop has not written its spec yet
        return self.facts.gather(
            floating_ip, is_live=is_live, written=written.ipaddress, write_backs=written.again
        )

    def _let_go(self, key: tuple[str, str]) -> None:
        self._written.pop(key, None)
        self.cache.allocations.cancel_claims(key)
        self.queues.add(*map(request_reservation, self.cache.reservations_of(key)))

    def _end(self, floating_ip: FloatingIP, wait: Wait) -> RetryAfter | None:
        for blocker in wait.blockers:
            self.reporter.report_blocked(blocker.reason)
        if wait.is_settled:
            # A claim that is still open was made for a wish that is no more.
            self.cache.allocations.cancel_claims(floating_ip.meta.key)
        seconds = WAITING_SECONDS if wait.blockers and wait.seconds is None else wait.seconds
        return RetryAfter(seconds) if seconds is not None else None

    async def _take(self, step: Step, floating_ip: FloatingIP) -> None:
        """Take a step; ApiError where its request failed, ConflictError where the object is another by now."""
        match step:
            case Claim():
                await self._claim(step, floating_ip)
            case Confirm(reservation):
                await self.reservation_store.confirm(reservation)
            case WriteSpec():
                await self._write_spec(step, floating_ip)
            case WriteStatus(status):
                await self._patch(
                    floating_ip, {"status": render_floating_ip_status(status)}, subresource="status"
                )
                self.reporter.report_removal(floating_ip, status)
            case Release(reservation):
                seconds = self.cache.quarantine_seconds(reservation.range)
                await self.reservation_store.quarantine(reservation, seconds=seconds)

    async def _claim(self, claim: Claim, floating_ip: FloatingIP) -> None:
        self.cache.allocations.begin_claim(claim)
        try:
            assigned = await self.reservation_store.claim(claim)
        except FipopError as error:
            if not (isinstance(error, UnavailableError) and not error.is_unsent):
                self.cache.allocations.finish_claim(claim)
            raise
        self.cache.allocations.finish_claim(claim)
        if assigned is not None:
            self.reporter.report_allocated(floating_ip, assigned)

    async def _write_spec(self, step: WriteSpec, floating_ip: FloatingIP) -> None:
        patch: Json = {"spec": {"ipaddress": step.ipaddress}}
        if step.range is not None:
            patch["metadata"] = {"annotations": {names.ANNOTATION_RANGE: step.range}}
        await self._patch(floating_ip, patch)
        key = floating_ip.meta.key  # a write that failed is none
        before = self._written.get(key, _SpecWrite())
        is_same = (before.uid, before.ipaddress) == (floating_ip.uid, step.ipaddress)
        again = (before.again if is_same else 0) + step.is_write_back
        self._written[key] = _SpecWrite(floating_ip.uid, step.ipaddress, again)

    async def _patch(self, floating_ip: FloatingIP, patch: Json, *, subresource: str = "") -> None:
        """Patch the floating IP that was decided on, and no younger one."""
        tested = {"resourceVersion": str(floating_ip.resource_version), "uid": floating_ip.uid}
        body = {**patch, "metadata": {**patch.get("metadata", {}), **tested}}
        answer = await self.client.merge_patch(
            FLOATING_IPS, floating_ip.name, body, namespace=floating_ip.namespace, subresource=subresource
        )
        self.cache.observe(FLOATING_IPS, answer)

    async def _read_again(self, key: tuple[str, str]) -> int | None:
        """Read the floating IP; return the version that the cache has then: what was read, or something younger."""
        namespace, name = key
        known = self.cache.floating_ips.get(*key)
        live = await self.client.get(FLOATING_IPS, name, namespace=namespace)
        if live is not None:
            self.cache.observe(FLOATING_IPS, live)
        elif known is not None:
            self.cache.forget(FLOATING_IPS, known)
        found = self.cache.floating_ips.get(*key)
        return found.resource_version if found is not None else None
