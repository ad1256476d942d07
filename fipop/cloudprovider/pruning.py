"""Takes entries out of the ledger that stand for nothing any more: at once where that is seen, and now and then."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial

from fipop.backoff import Backoff
from fipop.cloudprovider.ledger import Entry, Ledger
from fipop.cloudprovider.ledger_store import LedgerStore
from fipop.cloudprovider.occupancy import ServiceStore
from fipop.errors import FipopError
from fipop.ipam.addresses import Address

logger = logging.getLogger(__name__)

EVERY_SECONDS = 300.0
_BACKOFF = Backoff(first_seconds=0.5, limit_seconds=30.0)


class Pruner:
    """Suspects entries of the ledger while it runs; the ledger's store decides which of them may go."""

    def __init__(self, ledger: LedgerStore, services: ServiceStore) -> None:
        self._ledger = ledger
        self._services = services
        self._suspects: set[str] = set()
        self._wanted = asyncio.Event()

    def suspect(self, uid: str) -> None:
        """Have the entries of a Service looked at."""
        self._suspects.add(uid)
        self._wanted.set()

    async def run(self) -> None:
        """Prune for ever: everything at once, then what is suspected, and everything every 5 minutes."""
        whole_at, failures, loop = 0.0, 0, asyncio.get_running_loop()
        while True:
            is_whole = loop.time() >= whole_at
            uids, self._suspects = self._suspects, set()
            self._wanted.clear()
            try:
                gone = await self._ledger.prune(partial(self._select, uids=None if is_whole else uids))
            except FipopError as error:
                failures += 1
                self._suspects |= uids
                logger.warning("Could not prune ledger", extra={"error": str(error)})
                await asyncio.sleep(_BACKOFF.step_seconds(failures))
                continue
            failures = 0
            if is_whole:
                whole_at = loop.time() + EVERY_SECONDS
            if gone:
                logger.info("Pruned ledger", extra={"entries": gone})
            try:
                async with asyncio.timeout_at(whole_at):
                    await self._wanted.wait()
            except TimeoutError:
                continue

    def _select(self, ledger: Ledger, *, uids: set[str] | None) -> Iterable[tuple[Address, Entry]]:
        """Yield the entries of these Services, of all for None, that they do not carry as far as is known."""
        for address, tenants in ledger.entries.items():
            for uid, entry in tenants.items():
                if uids is None or uid in uids:
                    service = self._services.by_uid(uid)
                    if service is None or address not in service.carried:
                        yield address, entry
