"""Reconciles one FloatingIP: takes the next step, and decides again, until nothing is left to do.

`holdings` and `next_step` decide. Here each step is one request to the API server. Its answer goes into the cluster
cache, on which the next decision rests.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from fipop.api import names
from fipop.api.models import FloatingIP, FloatingIPStatus, Reservation
from fipop.api.rendering import render_floating_ip_status
from fipop.errors import ApiConflictError, ApiError, FipopError
from fipop.ipam.addresses import Address
from fipop.jsons import Json
from fipop.kube.client import KubeClient
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IP_RESERVATIONS, FLOATING_IPS
from fipop.operator.addresses.facts import FactSource
from fipop.operator.addresses.holdings import plan
from fipop.operator.addresses.next_step import (
    Confirm,
    MakeClaim,
    ReadAgain,
    Release,
    Step,
    Wait,
    WriteSpec,
    WriteStatus,
    next_step,
)
from fipop.operator.addresses.ranges import is_respecified
from fipop.operator.addresses.reservations import ReservationStore, Taken
from fipop.operator.addresses.values import Facts
from fipop.operator.addresses.waiting import (
    request_floating_ip,
    request_floating_ips_of,
    request_lacking,
    request_reservation,
)
from fipop.operator.queues import Event, Key, Kind, Request, WorkQueues
from fipop.runtime.store import Change
from fipop.runtime.workqueue import RetryAfter
from fipop.state.cache import BY_RANGE, ClusterCache
from fipop.state.claims import Claim, read_addresses

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


@dataclass(slots=True)
class _Round:
    """What a round has learned beside what is in the cache: the version it read, and who has what was denied."""

    live_version: int | None = None
    denied: dict[str, Reservation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SpecWrites:
    """What was written into the spec of the floating IP `uid` last, and how often it was written again since."""

    uid: str = ""
    addresses: frozenset[Address] = frozenset()
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
    _written: dict[tuple[str, str], _SpecWrites] = field(default_factory=dict)

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
            if _may_free(change):
                yield from request_lacking(cache)

    async def reconcile(self, key: tuple[str, str]) -> RetryAfter | None:
        """Do one round; whatever caused it, the result depends on the state alone."""
        this = _Round()
        try:
            for _ in range(MAX_STEPS):
                # What is known by now needs no round of its own, the answers to our own writes neither.
                self.queues.objects.drop_rerun(Key(Kind.FLOATING_IP, *key))
                floating_ip = self.cache.floating_ips.get(*key)
                if floating_ip is None:
                    self._let_go(key)
                    return None
                facts = self._gather(floating_ip, this)
                step = next_step(facts, plan(facts))
                if isinstance(step, Wait):
                    return self._end(floating_ip, step)
                await self._take(step, floating_ip, this)
        except ApiConflictError:
            await self._read_again(key)
            return RetryAfter(CONTENTION_SECONDS)
        raise ContendedError(floating_ip=key)

    def _gather(self, floating_ip: FloatingIP, this: _Round) -> Facts:
        named = read_addresses(floating_ip.ipaddress.split(","))
        written = self._written.get(floating_ip.meta.key, _SpecWrites())
        is_new_wish = named - written.addresses - read_addresses(floating_ip.status.addresses)
        if is_new_wish or written.uid != floating_ip.uid:
            # A new wish ends the quarrel; what names a part of what is held does not, nor does our own write-back.
            # Nor has anybody emptied the spec of one that was made again under the name.
            self._written.pop(floating_ip.meta.key, None)
            written = _SpecWrites()
        return self.facts.gather(
            floating_ip,
            is_live=this.live_version == floating_ip.resource_version,
            denied=this.denied,
            written=written.addresses,
            write_backs=written.again,
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

    async def _take(self, step: Step, floating_ip: FloatingIP, this: _Round) -> None:
        """Take a step; ApiError where its request failed, ApiConflictError where the object is another by now."""
        match step:
            case ReadAgain():
                await self._read_again(floating_ip.meta.key)
                # What was read is in the cache, or something younger: then that one is to be read.
                found = self.cache.floating_ips.get(*floating_ip.meta.key)
                this.live_version = found.resource_version if found is not None else None
            case MakeClaim(claim):
                await self._claim(claim, floating_ip, this)
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

    async def _claim(self, claim: Claim, floating_ip: FloatingIP, this: _Round) -> None:
        self.cache.allocations.begin_claim(claim)
        try:
            answer = await self.reservation_store.claim(claim)
        except FipopError as error:
            if not (isinstance(error, ApiError) and error.outcome_unknown):
                self.cache.allocations.finish_claim(claim)
            raise
        self.cache.allocations.finish_claim(claim)
        if isinstance(answer, Taken):
            this.denied[claim.name] = answer.reservation
        elif answer is not None and answer.is_new:
            self.reporter.report_allocated(floating_ip, answer.reservation)

    async def _write_spec(self, step: WriteSpec, floating_ip: FloatingIP) -> None:
        patch: Json = {"spec": {"ipaddress": step.ipaddress}}
        if step.range is not None:
            patch["metadata"] = {"annotations": {names.ANNOTATION_RANGE: step.range}}
        await self._patch(floating_ip, patch)
        key = floating_ip.meta.key  # a write that failed is none
        before = self._written.get(key, _SpecWrites()).again if step.is_write_back else -1
        addresses = read_addresses(step.ipaddress.split(","))
        self._written[key] = _SpecWrites(uid=floating_ip.uid, addresses=addresses, again=before + 1)

    async def _patch(self, floating_ip: FloatingIP, patch: Json, *, subresource: str = "") -> None:
        """Patch the floating IP that was decided on, and no younger one."""
        tested = {"resourceVersion": str(floating_ip.resource_version), "uid": floating_ip.uid}
        body = {**patch, "metadata": {**patch.get("metadata", {}), **tested}}
        answer = await self.client.merge_patch(
            FLOATING_IPS, floating_ip.name, body, namespace=floating_ip.namespace, subresource=subresource
        )
        self.cache.observe(FLOATING_IPS, answer)

    async def _read_again(self, key: tuple[str, str]) -> None:
        namespace, name = key
        known = self.cache.floating_ips.get(*key)
        live = await self.client.get(FLOATING_IPS, name, namespace=namespace)
        if live is not None:
            self.cache.observe(FLOATING_IPS, live)
        elif known is not None:
            self.cache.forget(FLOATING_IPS, known)


def _may_free(change: Change[Reservation]) -> bool:
    """Return whether those that wait may have the address now, or another one of the former owner's share.

    Or they report that it is another's, or in quarantine. A range that it kept from assigning addresses may assign now.
    """
    old, new = change.old, change.new
    return old is not None and (
        new is None or (new.is_held, new.range, new.owner.key) != (old.is_held, old.range, old.owner.key)
    )
