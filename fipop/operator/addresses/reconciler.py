"""Reconcile one FloatingIP: reservations first, then its spec, then its status, then what it no longer wants.

The order is the protocol: an address is its own by a reservation before anybody reads it in a spec or a status, and
a guest is written only by a pass that the settled status brings about.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from fipop.api.models import FloatingIP, FloatingIPRange, Reservation
from fipop.api.rendering import render_floating_ip_status
from fipop.control.workqueue import RetryAfter
from fipop.deadlines import NAMING_SECONDS, UNDER_WAY_SECONDS
from fipop.errors import AddressSpaceChangedError, ApiConflictError
from fipop.kube.client import KubeClient
from fipop.kube.resources import FLOATING_IPS
from fipop.operator.addresses.allocation import (
    AllocationView,
    Blocker,
    RangeView,
    address_of,
    blocker_of,
    plan_allocation,
    plan_standstill,
)
from fipop.operator.addresses.claiming import Claimer, Outcome, is_named
from fipop.operator.addresses.ownership import (
    addresses_had,
    build_owner,
    find_vanished,
    inherit,
    is_made_by_us,
    read_addresses,
    space_named,
)
from fipop.operator.addresses.range_choice import GuestBinding, bind_guest, find_range, find_restriction
from fipop.operator.addresses.request import Request, SpecError, read_request
from fipop.operator.addresses.reservations import ReservationStore
from fipop.operator.addresses.specs import SpecWriter
from fipop.operator.addresses.status import build_status
from fipop.rancher.matching import is_on_network
from fipop.state.cache import ClusterCache
from fipop.state.gate import AllocationGate
from fipop.state.guests import GuestDirectory

logger = logging.getLogger(__name__)

CLOSED_GATE_SECONDS = 5.0
CONTENTION_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """What a round over a floating IP sets off elsewhere."""

    settled: Callable[[FloatingIP], None]
    """Its addresses, or what its guest is to be told of them, are settled: the guest wants a pass."""
    gone: Callable[[Reservation], None]
    """The floating IP does not exist: its reservation may be ownerless."""
    waiting: Callable[[FloatingIP, bool], None]
    """Whether it waits for an address to become free."""
    counted: Callable[[str], None]
    """An attempt to get an address ended so: `allocated`, or the reason of a blocker."""
    warn: Callable[[FloatingIP, str, str], None]
    """People should know: an event with this reason and message."""


class FloatingIPReconciler:
    """Brings reservations, spec and status of a floating IP in line with what it asks for."""

    def __init__(
        self,
        *,
        client: KubeClient,
        cache: ClusterCache,
        reservation_store: ReservationStore,
        gate: AllocationGate,
        guests: GuestDirectory,
        callbacks: Callbacks,
        carrier_of: Callable[[str], str | None],
    ) -> None:
        self._client = client
        self._cache = cache
        self._reservation_store = reservation_store
        self._gate = gate
        self._guests = guests
        self._callbacks = callbacks
        self._claimer = Claimer(cache=cache, reservation_store=reservation_store, carrier_of=carrier_of)
        self._namer = SpecWriter(client=client, cache=cache)

    async def reconcile(self, key: tuple[str, str]) -> RetryAfter | None:
        """Do one round; whatever caused it, the result depends on the state alone."""
        floating_ip = self._cache.floating_ips.get(*key)
        reservations = self._cache.reservations_of(key)
        if floating_ip is None:
            self._cache.allocations.abandon(key)
            for reservation in reservations:
                self._callbacks.gone(reservation)
            return None
        held = tuple(each for each in reservations if each.is_held)
        if any(each.owner.uid != floating_ip.uid for each in held):
            # Only the live object can tell which of two uids is the dead one.
            await self._read_again(floating_ip)
            if self._cache.floating_ips.get(*key) != floating_ip:
                return RetryAfter(0.0)
        try:
            return await self._round(floating_ip, inherit(held, floating_ip))
        except ApiConflictError:
            await self._read_again(floating_ip)
            return RetryAfter(CONTENTION_SECONDS)

    async def _round(self, floating_ip: FloatingIP, held: tuple[Reservation, ...]) -> RetryAfter | None:
        began = self._cache.monotonic()
        binding = bind_guest(self._cache, floating_ip)
        try:
            outcome, request = await self._allocate(floating_ip, held, binding)
        except _GateClosedError:
            self._callbacks.waiting(floating_ip, True)  # it goes on as soon as the gate opens
            return RetryAfter(CLOSED_GATE_SECONDS)  # its status stays as it was: a restart writes nothing
        self._count(floating_ip, outcome, binding)
        if request is not None:
            floating_ip = await self._namer.write(floating_ip, request, outcome)
        is_late = self._cache.monotonic() - began > NAMING_SECONDS
        if is_late and not all(is_named(floating_ip, each) for each in outcome.held.values()):
            return RetryAfter(0.0)
        floating_ip = await self._write_status(floating_ip, outcome, binding)
        again = await self._give_back(floating_ip, outcome)
        self._callbacks.waiting(floating_ip, bool(outcome.blockers))
        self._callbacks.settled(floating_ip)
        return again

    async def _allocate(
        self, floating_ip: FloatingIP, held: tuple[Reservation, ...], binding: GuestBinding
    ) -> tuple[Outcome, Request | None]:
        """Claim what is missing; where the wish cannot even be read, keep what is held and say why."""
        try:
            request = read_request(floating_ip)
        except SpecError as error:
            blocker = Blocker(reason="InvalidSpec", message=str(error))
            return await self._stand_still(floating_ip, held, binding, blocker), None
        owner = build_owner(floating_ip, binding, held)
        lost = find_vanished(floating_ip, request, self._and_released(held, floating_ip))
        restored = await self._claimer.restore(lost, floating_ip=floating_ip, owner=owner)
        held = (*held, *restored.held.values())
        if restored.blockers:  # another has it: the status says so before anything else is asked for
            return await self._stand_still(floating_ip, held, binding), None
        guest = self._guests.known(floating_ip.namespace)
        found = find_range(self._cache, floating_ip, held, guest, static=request.static.values())
        range_view = found if isinstance(found, Blocker) else self._view(found, floating_ip)
        if isinstance(range_view, Blocker):
            if guest is None and binding.cluster is not None and not self._gate.is_open:
                raise _GateClosedError  # all guests are found out before the gate opens
            return await self._stand_still(floating_ip, held, binding, range_view), request
        facts = AllocationView(
            range=range_view,
            held=held,
            had=addresses_had(floating_ip, request, self._guests.is_inherited(floating_ip)),
            had_in=floating_ip.status.address_space or range_view.space,
            made_by_us=is_made_by_us(floating_ip),
        )
        plan = plan_allocation(request, facts)
        if not self._gate.is_open and any(not desired.confirms for desired in plan.claim):
            raise _GateClosedError
        outcome = await self._claimer.carry_out(
            plan, floating_ip=floating_ip, owner=owner, space=range_view.space, range_name=range_view.name
        )
        return outcome, request

    async def _stand_still(
        self,
        floating_ip: FloatingIP,
        held: tuple[Reservation, ...],
        binding: GuestBinding,
        *blockers: Blocker,
    ) -> Outcome:
        """Keep what is held, for its owner as he is now."""
        status = floating_ip.status
        space = space_named(status)
        plan = plan_standstill(
            self._and_released(held, floating_ip),
            read_addresses(status.addresses),
            *blockers,
            space=space,
            made_by_us=is_made_by_us(floating_ip),
        )
        outcome = await self._claimer.carry_out(
            plan,
            floating_ip=floating_ip,
            owner=build_owner(floating_ip, binding, held),
            space=space,
            range_name=status.range or "",
        )
        outcome.stands_still = bool(blockers)
        outcome.is_to_go_on = not blockers
        return outcome

    def _and_released(
        self, held: tuple[Reservation, ...], floating_ip: FloatingIP
    ) -> tuple[Reservation, ...]:
        """Add to what is held what waits in quarantine."""
        known = self._cache.reservations_of(floating_ip.meta.key)
        return (*held, *(each for each in known if not each.is_held))

    def _view(self, found: FloatingIPRange, floating_ip: FloatingIP) -> RangeView | Blocker:
        allocations = self._cache.allocations
        problem = allocations.problem_of(found.name)
        if isinstance(problem, AddressSpaceChangedError):
            return blocker_of(problem)
        if problem is not None:
            return Blocker(reason="RangeInvalid", message=f'range "{found.name}": {problem}')
        return RangeView(
            name=found.name,
            space=found.address_space,
            families=allocations.families(found.name),
            draining=found.draining,
            restricted=find_restriction(found, self._guests.known(floating_ip.namespace)),
            refuses=lambda address: allocations.why_refused(found.name, address),
            is_anothers=lambda address: allocations.is_anothers(
                found.address_space, address, floating_ip.meta.key
            ),
        )

    def _count(self, floating_ip: FloatingIP, outcome: Outcome, binding: GuestBinding) -> None:
        """Count what came of the claims; a range of another network than the guest's is told once, as it serves."""
        for reservation in outcome.fresh:
            self._callbacks.counted("allocated")
            found = self._cache.ranges.get("", reservation.range)
            guest = self._guests.known(floating_ip.namespace) if binding.blocker is None else None
            network = found.harvester_network if found is not None else None
            if guest is not None and guest.networks and network and not is_on_network(guest, network):
                message = (
                    f"range {reservation.range} is of network {network}, the guest's is {guest.networks[0]}"
                )
                self._callbacks.warn(floating_ip, "NetworkMismatch", message)
        for blocker in outcome.blockers:
            self._callbacks.counted(blocker.reason)

    async def _write_status(
        self, floating_ip: FloatingIP, outcome: Outcome, binding: GuestBinding
    ) -> FloatingIP:
        wanted = build_status(
            floating_ip,
            held=outcome.held,
            blockers=outcome.blockers,
            binding=binding,
            observation=self._guests.observation(floating_ip.namespace),
            now=self._client.server_now(),
        )
        if wanted == floating_ip.status:
            return floating_ip
        patch = {
            "metadata": {"resourceVersion": str(floating_ip.resource_version), "uid": floating_ip.uid},
            "status": render_floating_ip_status(wanted),
        }
        answer = await self._client.merge_patch(
            FLOATING_IPS, floating_ip.name, patch, namespace=floating_ip.namespace, subresource="status"
        )
        return self._cache.take_written(answer)

    async def _give_back(self, floating_ip: FloatingIP, outcome: Outcome) -> RetryAfter | None:
        """Release what is held beyond the outcome, once the live object names none of it any more.

        Another operator, or this one before it was killed, may be about to name it. It wrote the reservation first, so
        what somebody else wrote is given back only when that write can no longer be under way.
        """
        kept = {each.name for each in outcome.held.values()}
        extra = [
            each
            for each in self._cache.reservations_of(floating_ip.meta.key)
            if each.is_held and each.name not in kept
        ]
        if not extra or not (outcome.held or outcome.undone):
            return None
        live = await self._read_again(floating_ip)
        if live is None or live.uid != floating_ip.uid:
            return None
        told = read_addresses(live.status.addresses)
        # A wish that this round could not follow keeps nothing that was begun for it, unless it is another by now.
        is_unfulfillable = not outcome.is_to_go_on and live.meta.generation == floating_ip.meta.generation
        asked = read_addresses(() if outcome.undone or is_unfulfillable else live.ipaddress.split(","))
        waits: list[float] = []
        for reservation in extra:
            address = address_of(reservation)
            if is_named(live, reservation):
                continue
            # The same address in another space is named in the spec for the sake of the one that is kept, or of one
            # that is asked for there.
            elsewhere = any(each.address == reservation.address for each in outcome.held.values())
            is_asked_for = address in asked and reservation.space == outcome.space
            if not elsewhere and (is_asked_for or address in told):
                continue
            rest = UNDER_WAY_SECONDS - self._cache.age_of(reservation)
            if rest > 0 and not self._reservation_store.wrote_last(reservation):
                waits.append(rest)
                continue
            seconds = self._cache.quarantine_seconds(reservation.range)
            await self._reservation_store.quarantine(reservation, seconds=seconds)
        return RetryAfter(min(waits)) if waits else None

    async def _read_again(self, floating_ip: FloatingIP) -> FloatingIP | None:
        live = await self._client.get(FLOATING_IPS, floating_ip.name, namespace=floating_ip.namespace)
        if live is None:
            self._cache.forget(FLOATING_IPS, floating_ip)
            return None
        self._cache.observe(FLOATING_IPS, live)
        return self._cache.floating_ips.get(floating_ip.namespace, floating_ip.name)


class _GateClosedError(Exception):
    """A new address is wanted, and none may be given out yet."""
