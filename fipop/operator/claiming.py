"""Carry out the claims of a plan, one address after the other, and undo what was begun where all were needed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fipop.api.models import FloatingIP, Owner, Reservation
from fipop.errors import ApiError, FipopError, IpamError
from fipop.ipam.addresses import Address, Family, format_address
from fipop.operator.allocation import Obstacle, Plan, Want, address_of, obstacle_of
from fipop.operator.reservations import Claim, Held, ReservationDesk
from fipop.operator.world import BY_FORMER_OWNER, World

logger = logging.getLogger(__name__)

MAX_CANDIDATES = 8
"""How many candidates that turn out to be taken are tried in one round; the next round goes on from there."""


@dataclass(slots=True)
class Outcome:
    """What a floating IP holds after a round, and what stands in the way of the rest."""

    held: dict[Family, Reservation] = field(default_factory=dict)
    obstacles: list[Obstacle] = field(default_factory=list)
    fresh: list[Reservation] = field(default_factory=list)

    def keep(self, reservations: Iterable[Reservation]) -> None:
        """Count reservations as held."""
        for reservation in reservations:
            self.held[address_of(reservation).family] = reservation


class ContendedError(FipopError):
    """Others took every candidate of a round first; the next round goes on with what is left."""

    def __init__(self, *, range_name: str) -> None:
        self.range_name = range_name
        super().__init__(f'others took {MAX_CANDIDATES} addresses of range "{range_name}" first')


class Claimer:
    """Turns wants into reservations through the desk."""

    def __init__(self, *, world: World, desk: ReservationDesk) -> None:
        self._world = world
        self._desk = desk

    async def carry_out(
        self, plan: Plan, *, floating_ip: FloatingIP, owner: Owner, space: str, range_name: str
    ) -> Outcome:
        """Claim what the plan wants; ApiError where a write failed (what was begun is found at the next round)."""
        outcome = Outcome(obstacles=list(plan.obstacles))
        outcome.keep([await self._refresh(reservation, owner) for reservation in plan.keep])
        wants = () if plan.all_or_nothing and plan.obstacles else plan.claim
        for want in wants:
            answer = await self._claim(want, owner=owner, space=space, range_name=range_name)
            if isinstance(answer, Obstacle):
                outcome.obstacles.append(answer)
                if plan.all_or_nothing:
                    break
                continue
            outcome.keep([answer.reservation])
            if answer.is_new:
                outcome.fresh.append(answer.reservation)
        if outcome.obstacles:
            outcome.keep(self._replaced(wants, outcome.held))
        if outcome.obstacles and plan.all_or_nothing:
            await self._undo(outcome, floating_ip, wants)
        return outcome

    async def _refresh(self, reservation: Reservation, owner: Owner) -> Reservation:
        """Write the owner anew where it is another by now: created again under its name, or its guest became known."""
        if reservation.owner == owner:
            return reservation
        claim = Claim(
            space=reservation.space,
            address=address_of(reservation),
            range=reservation.range,
            owner=owner,
            requested=reservation.requested,
        )
        answer = await self._desk.claim(claim)
        return answer.reservation

    async def _claim(self, want: Want, *, owner: Owner, space: str, range_name: str) -> Held | Obstacle:
        for _ in range(MAX_CANDIDATES):
            try:
                address = want.address or self._candidate(want.family, owner, range_name)
            except IpamError as error:
                return obstacle_of(error)
            namesake = self._world.books.named_by_another(space, address, owner.key)
            if namesake is not None:
                return describe_namesake(namesake, address)
            claim = Claim(
                space=space, address=address, range=range_name, owner=owner, requested=want.requested
            )
            self._world.books.expect(claim)
            try:
                answer = await self._desk.claim(claim)
            except ApiError as error:
                if not error.outcome_unknown:
                    self._world.books.settle(claim)
                raise
            self._world.books.settle(claim)
            if isinstance(answer, Held):
                logger.info(
                    "address reserved",
                    extra={"address": format_address(address), "range": range_name, "floating_ip": owner.key},
                )
                return answer
            if want.address is not None:
                return describe_holder(answer.reservation, want.address)
        raise ContendedError(range_name=range_name)

    def _candidate(self, family: Family, owner: Owner, range_name: str) -> Address:
        """Give what an unsettled claim asked for, else the address held before, else the next free one."""
        books = self._world.books
        unsettled = books.unsettled(owner.key, range_name, family)
        if unsettled is not None:
            return unsettled
        if owner.cluster:
            former = self._world.reservations.by_index(
                BY_FORMER_OWNER, (owner.cluster, owner.name, range_name)
            )
            for reservation in former:
                address = address_of(reservation)
                if address.family is family and reservation.space == books.space_of(range_name):
                    return address
        return books.next_free(range_name, family, owner.key)

    @staticmethod
    def _replaced(wants: Sequence[Want], held: dict[Family, Reservation]) -> list[Reservation]:
        """Give the old reservations whose replacement was not to be had: they stay."""
        return [want.replaces for want in wants if want.replaces is not None and want.family not in held]

    async def _undo(self, outcome: Outcome, floating_ip: FloatingIP, wants: Sequence[Want]) -> None:
        """Give back, in reverse, what serves nobody without the rest; what the floating IP had before stays."""
        had = set(floating_ip.status.addresses)
        for reservation in reversed(list(outcome.held.values())):
            address = address_of(reservation)
            if format_address(address) in had:
                continue
            if await self._desk.drop_unused(reservation):
                del outcome.held[address.family]
        outcome.fresh.clear()
        outcome.keep(self._replaced(wants, outcome.held))


def describe_holder(reservation: Reservation, address: Address) -> Obstacle:
    """Say who stands in the way of a claim."""
    holder = f"{reservation.owner.namespace}/{reservation.owner.name}".rstrip("/")
    cluster = f' of cluster "{reservation.owner.cluster}"' if reservation.owner.cluster else ""
    if reservation.quarantined_until is None:
        message = f"address {format_address(address)} is held by floating IP {holder}{cluster}"
        return Obstacle(reason="AddressInUse", message=message)
    until = reservation.quarantined_until.strftime("%Y-%m-%d %H:%M:%S UTC")
    message = (
        f"address {format_address(address)} is in quarantine until {until} or later, after {holder}{cluster}"
    )
    return Obstacle(reason="AddressQuarantined", message=message)


def describe_namesake(holder: tuple[str, str], address: Address) -> Obstacle:
    """Say that another floating IP had the address before: its reservation is missing, and will be made again."""
    message = f"address {format_address(address)} is held by floating IP {'/'.join(holder)}"
    return Obstacle(reason="AddressInUse", message=message)
