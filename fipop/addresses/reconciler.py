"""Reconciles one FloatingIP: claims what it should hold, writes spec and status, and releases the rest."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from fipop.addresses.claims import Claim, names_address, slots_named_by
from fipop.addresses.decision import Decision, DecisionView, decide
from fipop.addresses.gate import GATE_RETRY_SECONDS, Gate
from fipop.addresses.guests import GuestLookup
from fipop.addresses.inventory import Inventory, is_respecified
from fipop.addresses.ranges import request_count
from fipop.addresses.reports import News
from fipop.addresses.request import AddressRequest, is_made_by_us, read_request
from fipop.addresses.reservations import ReservationStore, TakenError
from fipop.addresses.status import CONFLICT, StatusBuilder, find_fault
from fipop.addresses.stores import BY_NAMED, BY_RANGE, BY_WAITING
from fipop.api import names
from fipop.api.codec import write_patch
from fipop.api.conditions import ConditionType, find_condition
from fipop.api.objects import FloatingIP, FloatingIPStatus, digest_spec, read_object
from fipop.errors import ApiError, ConflictError
from fipop.ipam.addresses import Family, format_address
from fipop.jsons import Json
from fipop.kube.client import KubeClient
from fipop.kube.events import EventRecorder, EventType, reference_to
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IP_RESERVATIONS, FLOATING_IPS
from fipop.metrics.counters import ALLOCATIONS
from fipop.rancher.matching import NoRange
from fipop.runtime.queues import (
    FLOATING_IP,
    Event,
    Key,
    Request,
    WorkQueues,
    request_floating_ip,
    request_guest,
    request_visit,
    request_waiting,
)
from fipop.runtime.workqueue import RetryAfter

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 24
"""How many addresses others can take first until the queue tries again later."""
WAITING_SECONDS = 60.0
"""How often the floating IPs that lack something are decided on, whatever happens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatingIPReconciler:
    """Brings reservations, spec and status of a floating IP in line with what it asks for."""

    client: KubeClient
    inventory: Inventory
    guests: GuestLookup
    gate: Gate
    ours_since: Callable[[], datetime | None]
    """Returns when fipop came to this cluster; None if that is not known."""
    reservations: ReservationStore
    statuses: StatusBuilder
    queues: WorkQueues
    events: EventRecorder

    def watches(self, event: Event) -> Iterator[Request]:
        """Yield the floating IPs that an event concerns, and all that wait if an address may be free by it."""
        inventory, old, new = self.inventory, event.change.old, event.change.new
        for guest_id in event.guest_ids:
            yield from map(request_floating_ip, inventory.floating_ips_of(guest_id))
        if event.resource == FLOATING_IPS:
            yield Request(Key(FLOATING_IP, *event.change.latest.key))
            if new is None:
                yield request_waiting()
        elif event.resource == FLOATING_IP_RANGES and is_respecified(event.change.old, event.change.new):
            yield from map(
                request_floating_ip, inventory.floating_ips.by_index(BY_RANGE, event.change.latest.name)
            )
            yield request_waiting()
        elif event.resource == FLOATING_IP_RESERVATIONS:
            for key in sorted({side.spec.owner.key for side in (old, new) if side is not None}):
                yield Request(Key(FLOATING_IP, *key))
            if old is not None and (
                new is None or new.is_held != old.is_held or new.spec.range != old.spec.range
            ):
                yield request_waiting()

    def request_all_waiting(self) -> RetryAfter:
        """Request all floating IPs that wait for something, the oldest first; return when to do so again.

        And their guest clusters on Harvester: what these stand on can be corrected in place, without an event.
        """
        found = (*self.inventory.floating_ips.by_index(BY_WAITING, True),)
        for each in sorted(found, key=lambda one: (one.created, one.key)):
            self.queues.add(request_floating_ip(each))
        for guest_id in sorted({each.namespace for each in found}):
            guest = self.inventory.known(guest_id)
            if guest is not None and guest.on_harvester:
                self.queues.add(request_guest(guest_id))
        return RetryAfter(WAITING_SECONDS)

    async def reconcile(self, key: tuple[str, str]) -> RetryAfter | None:
        """Reconcile one floating IP; what is done depends on the state alone, whatever caused it."""
        inventory, names_spec = self.inventory, True
        for _ in range(MAX_ATTEMPTS):
            # What is known by now needs no reconciliation of its own, the answers to our own writes neither.
            self.queues.objects.drop_rerun(Key(FLOATING_IP, *key))
            floating_ip = inventory.floating_ips.get(*key)
            if floating_ip is None:
                return None
            try:
                decision = self._decide(floating_ip)
                patch = build_spec_patch(floating_ip, decision) if decision.is_final and names_spec else None
                try:
                    for claim in (*decision.had, *decision.holds):
                        await self._hold(floating_ip, claim)
                    if patch is not None:
                        floating_ip, names_spec = await self._patch(floating_ip, patch), False
                except ApiError as error:
                    if error.is_refusal:
                        await self._show_refusal(floating_ip, error)
                    raise
                if not decision.is_final:
                    return RetryAfter(GATE_RETRY_SECONDS)
                await self._end(floating_ip, decision)
                return None
            except TakenError:
                continue
            except ConflictError:
                await self._read(key)
        return RetryAfter(1.0)

    def _decide(self, floating_ip: FloatingIP) -> Decision:
        """Decide, and hold back what is not to be carried out yet."""
        view = DecisionView(inventory=self.inventory, ours_since=self.ours_since())
        decision = decide(view, floating_ip)
        may_assign = all(self.gate.may_assign(floating_ip.key, each) for each in decision.new_ranges)
        if not may_assign or (decision.blockers and not self.gate.is_open):
            return decision.keep()
        is_unexplained = bool(decision.blockers) and self.guests.is_pending(floating_ip.namespace)
        return replace(decision, is_final=decision.is_final and not is_unexplained)

    async def _show_refusal(self, floating_ip: FloatingIP, error: ApiError) -> None:
        """Have the conditions say that the API server refuses what is needed for the address, if it lets them."""
        wanted = self.statuses.build_refused(floating_ip, error)
        if wanted != floating_ip.status:
            with suppress(ApiError):  # the event remains
                await self._patch(floating_ip, {"status": write_patch(wanted)}, subresource="status")

    async def _end(self, floating_ip: FloatingIP, decision: Decision) -> None:
        floating_ip = await self._write_status(floating_ip, decision)
        await self._release_rest(floating_ip, decision)
        for blocker in decision.blockers:
            ALLOCATIONS.labels(blocker.reason).inc()

    async def _hold(self, floating_ip: FloatingIP, claim: Claim) -> None:
        """Claim an address, or confirm a claim before the status names it; one that it names and that is ours stays."""
        known = self.inventory.reservation(claim.space, claim.address)
        is_ours = (
            known is not None
            and known.is_held
            and (known.spec.owner, known.spec.range) == (claim.owner, claim.range)
        )
        if is_ours and names_address(floating_ip, claim.space, claim.address):
            return
        if known is not None and known.is_held and known.spec.owner.uid != floating_ip.uid:
            # Of two objects of this name, the API server knows which one lives.
            await self._read_same(floating_ip)
        if await self.reservations.claim(claim):
            ALLOCATIONS.labels("allocated").inc()

    def _warn(self, floating_ip: FloatingIP, wanted: FloatingIPStatus) -> None:
        """Report what the status that is about to be written says first.

        That is why it waits for an address, a conflict, or an address of another network.

        Before the write: afterwards the status says it already, also if the answer to the write is lost.
        """
        about = reference_to(FLOATING_IPS, floating_ip.metadata)
        before = find_condition(floating_ip.status.conditions, ConditionType.ALLOCATED)
        waits = find_condition(wanted.conditions, ConditionType.ALLOCATED)
        if waits is not None and not waits.is_true and (before is None or before.reason != waits.reason):
            self.events.record(about, EventType.WARNING, waits.reason, waits.message)
        for reason in (CONFLICT, NoRange.OTHER_NETWORK.value):
            message = find_fault(wanted, reason)
            if message and not find_fault(floating_ip.status, reason):
                self.events.record(about, EventType.WARNING, reason, message)

    async def _write_status(self, floating_ip: FloatingIP, decision: Decision) -> FloatingIP:
        wanted = self.statuses.build(floating_ip, decision)
        if wanted == floating_ip.status:
            return floating_ip
        for slot in sorted(slots_named_by(floating_ip.status) - slots_named_by(wanted)):
            await self.reservations.check(*slot)  # what the cache knows of it may be older than the status
        self._warn(floating_ip, wanted)
        return await self._patch(floating_ip, {"status": write_patch(wanted)}, subresource="status")

    async def _release_rest(self, floating_ip: FloatingIP, decision: Decision) -> None:
        """Release what is held beyond the decision, now that the status names none of it."""
        kept = {claim.name for claim in decision.holds}
        rest = [
            each
            for each in self.inventory.reservations_of(floating_ip.key)
            if each.is_held and each.name not in kept
        ]
        if rest:
            await self._read_same(floating_ip)
        for each in rest:
            await self.reservations.release(each, seconds=self.inventory.quarantine_seconds(each.spec.range))

    async def _patch(self, floating_ip: FloatingIP, patch: Json, *, subresource: str = "") -> FloatingIP:
        """Patch the floating IP that was decided on, and no younger one."""
        body = {**patch, "metadata": {**patch.get("metadata", {}), **floating_ip.precondition}}
        answer = await self.client.merge_patch(
            FLOATING_IPS, floating_ip.name, body, namespace=floating_ip.namespace, subresource=subresource
        )
        self.inventory.observe(FLOATING_IPS, answer)
        return read_object(FloatingIP, answer)

    async def _read_same(self, floating_ip: FloatingIP) -> None:
        """Read a floating IP. Raises: TakenError if it is another than the one that was decided on."""
        live = await self._read(floating_ip.key)
        if live is None or live.resource_version != floating_ip.resource_version:
            raise TakenError(name=floating_ip.name)

    async def _read(self, key: tuple[str, str]) -> FloatingIP | None:
        known = self.inventory.floating_ips.get(*key)
        live = await self.client.get(FLOATING_IPS, key[1], namespace=key[0])
        if live is not None:
            self.inventory.observe(FLOATING_IPS, live)
            return read_object(FloatingIP, live)
        if known is not None:
            self.inventory.forget(FLOATING_IPS, known)
        return None


def request_users(inventory: Inventory, news: News) -> Iterator[Request]:
    """Yield who has to know that guest clusters began, or ceased, to use addresses: whoever has these, or waits.

    And the ranges, whose statuses show what is used without a floating IP.
    """
    for guest_id, addresses in news.items():
        if not addresses <= inventory.find_own(guest_id).keys():
            yield request_count()
        for address in addresses:
            for each in inventory.floating_ips.by_index(BY_NAMED, address):
                if each.namespace != guest_id:
                    yield from (request_floating_ip(each), request_visit(each.namespace))
        yield request_waiting()


def build_spec_patch(floating_ip: FloatingIP, decision: Decision) -> Json | None:
    """Build the patch that names in the spec what was assigned; None if the status names it already.

    So it is written once, before the status: whoever changes the spec later has the last word.
    """
    request = read_request(floating_ip)
    addresses = {claim.address.family: claim.address for claim in decision.holds}
    is_named = all(names_address(floating_ip, each.space, each.address) for each in decision.holds)
    if (
        not decision.is_fulfilled
        or not isinstance(request, AddressRequest)
        or is_named
        or request.static == addresses
    ):
        return None
    unmet = set(request.static.values()) - set(addresses.values())
    if any(format_address(each) not in floating_ip.status.addresses for each in unmet):
        return None  # the requester waits for it
    first = request.families[0] if request.families else Family.IPV4
    in_order = sorted(addresses, key=lambda family: (family != first, family))
    patch: Json = {"spec": {"ipaddress": ",".join(format_address(addresses[each]) for each in in_order)}}
    annotations = {}
    if floating_ip.range is None and is_made_by_us(floating_ip):
        annotations[names.ANNOTATION_RANGE] = decision.holds[0].range
    if floating_ip.is_made_for_services:
        spec = replace(floating_ip.spec, ipaddress=patch["spec"]["ipaddress"])
        annotations[names.ANNOTATION_MADE] = digest_spec(spec)
    return {**patch, "metadata": {"annotations": annotations}} if annotations else patch
