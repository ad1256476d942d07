"""What happens before new addresses are given out: what exists claims its own, and the guests are looked at."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from fipop.api.models import FloatingIP, Owner, Requested
from fipop.errors import FipopError
from fipop.guest.carried import CarriedAddresses
from fipop.ipam.addresses import Address, from_ip
from fipop.operator.gates import Gates
from fipop.operator.reservations import Claim, ReservationDesk
from fipop.operator.world import World

logger = logging.getLogger(__name__)

LOOK_SECONDS = 60.0
LOOK_CONCURRENCY = 50
TURN = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Startup:
    """The two steps before new addresses: first `adopt_all`, then `look_when_in_doubt`.

    `adopt` does a round over one floating IP; `discover` resolves a guest's links and tells whether it can be looked
    at; `look` gives what a guest carries; `seen` hears what all of them carry, before `opened` is called: new addresses
    may be given out.
    """

    world: World
    gates: Gates
    desk: ReservationDesk
    adopt: Callable[[tuple[str, str]], Awaitable[object]]
    discover: Callable[[str], Awaitable[bool]]
    look: Callable[[str], Awaitable[CarriedAddresses]]
    seen: Callable[[Mapping[str, CarriedAddresses]], None]
    opened: Callable[[], None]
    _doubt: asyncio.Event = field(default_factory=asyncio.Event)

    async def adopt_all(self) -> None:
        """Let every floating IP that has an address claim it, the oldest first, before anything new is given out."""
        by_age = sorted(self._having_addresses(), key=lambda each: (each.meta.created, each.meta.key))
        for number, floating_ip in enumerate(by_age):
            if number % TURN == 0:
                await asyncio.sleep(
                    0
                )  # where nothing is to be written, nothing else would let others have a turn
            try:
                if floating_ip.range is None and floating_ip.status.range is None:
                    await self.discover(floating_ip.namespace)  # its range is chosen by its guest
                await self.adopt(floating_ip.meta.key)
            except FipopError as error:
                # Its status, or the round that the queue makes next, keeps the address from others.
                logger.warning(
                    "floating IP cannot be adopted yet",
                    extra={"floating_ip": floating_ip.meta.key, "error": str(error)},
                )
        self.gates.adopted = True

    def doubt(self) -> None:
        """Give out nothing new before the guests were looked at again: the ledger may lack what they carry.

        So it is at a start, and when reservations are gone that nobody was seen to delete: the store may have been
        restored from a backup that is older than they were.
        """
        self.gates.looked = False
        self._doubt.set()

    async def look_when_in_doubt(self) -> None:
        """Look at the guests whenever there is doubt, until cancelled."""
        while True:
            await self._doubt.wait()
            self._doubt.clear()
            await self.look_at_guests()

    async def look_at_guests(self) -> None:
        """Ask all connected guests what they carry, at most a minute; what nobody owns goes to quarantine."""
        ids = sorted({cluster.cluster_name for cluster in self.world.clusters.all() if cluster.cluster_name})
        room = asyncio.Semaphore(LOOK_CONCURRENCY)
        seen: dict[str, CarriedAddresses] = {}

        async def look_at(guest_id: str) -> None:
            async with room:
                await self._look_at(guest_id, seen)

        tasks = [asyncio.create_task(look_at(guest_id)) for guest_id in ids]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=LOOK_SECONDS)
            for task in late:
                task.cancel()
            for error in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(error, Exception):
                    logger.error("a look at a guest crashed", exc_info=error)
            logger.info("guests were looked at", extra={"guests": len(tasks), "unanswered": len(late)})
        self.seen(seen)
        if not self._doubt.is_set():
            self.gates.looked = True
            self.opened()

    async def _look_at(self, guest_id: str, seen: dict[str, CarriedAddresses]) -> None:
        try:
            if not await self.discover(guest_id):
                return
            carried = seen[guest_id] = await self.look(guest_id)
            for ip in carried.single:
                await self._keep_from_others(from_ip(ip), guest_id)
        except FipopError as error:
            logger.info("guest did not tell what it carries", extra={"guest": guest_id, "error": str(error)})

    async def _keep_from_others(self, address: Address, guest_id: str) -> None:
        """Quarantine an address that a guest carries, in every space whose ranges would give it out."""
        books = self.world.books
        for each in self.world.ranges.all():
            unreadable = books.problem_of(each.name) is not None
            if unreadable or not books.is_nobodys(each.name, address, carrier=guest_id):
                continue
            clusters = self.world.guest_clusters(guest_id)
            owner = Owner(
                namespace=guest_id,
                name="",
                uid="",
                cluster=clusters[0].name if clusters else "",
                imported=bool(clusters) and clusters[0].is_imported,
            )
            claim = Claim(
                space=each.address_space,
                address=address,
                range=each.name,
                owner=owner,
                requested=Requested.DYNAMIC,
            )
            found = await self.desk.quarantine_unowned(claim, seconds=each.quarantine_seconds)
            if found is not None:
                logger.warning(
                    "a guest carries an address that nobody owns",
                    extra={"guest": guest_id, "address": found.address, "range": each.name},
                )

    def _having_addresses(self) -> Iterable[FloatingIP]:
        return (each for each in self.world.floating_ips.all() if each.status.addresses or each.ipaddress)
