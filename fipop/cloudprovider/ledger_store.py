"""Reads the ledger of a guest, swaps it, and takes out of it what may go; why that is safe stands in `ledger`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from fipop.cloudprovider.ledger import (
    NAME,
    NAMESPACE,
    Entry,
    Ledger,
    may_remove,
    parse_ledger,
    render_ledger,
)
from fipop.errors import ApiError, ConflictError, FipopError, NotFoundError, UnavailableError
from fipop.ipam.addresses import Address
from fipop.jsons import JsonView
from fipop.kube.client import KubeClient
from fipop.kube.resources import CONFIG_MAPS, SERVICES

SWAP_ATTEMPTS = 20
READS_AT_ONCE = 16

_Known = TypeVar("_Known", bound="Ledger | None")


class LedgerContendedError(FipopError):
    """Others swapped the ledger first, again and again."""

    def __init__(self) -> None:
        super().__init__(f"could not write the ledger {NAMESPACE}/{NAME}: other writers changed it")


class LedgerStore:
    """Reads the ledger, and swaps it. `carried` gives what live Services carry: what a new one is made with.

    Every version that it comes to know goes to `listener`; None where the ledger is gone.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        carried: Callable[[], Awaitable[Sequence[tuple[Address, Entry]]]],
        listener: Callable[[Ledger | None], object],
    ) -> None:
        self._client = client
        self._carried = carried
        self._listener = listener
        self._known: Ledger | None = None

    def take(self, obj: JsonView | None) -> None:
        """Take in what a watch shows; None: the ledger is gone."""
        known = self._known
        if obj is None or known is None or not _is_old(obj["metadata"], known):
            self._learn(parse_ledger(obj) if obj is not None else None)

    async def read(self) -> Ledger:
        """Read the ledger live; where there is none it is made."""
        found = await self._client.get(CONFIG_MAPS, NAME, namespace=NAMESPACE)
        return self._learn(parse_ledger(found)) if found is not None else await self._make()

    async def known(self) -> Ledger:
        """Give the ledger as it is known; it is read where nothing is known of it."""
        return self._known or await self.read()

    async def swap(self, change: Callable[[Ledger], Ledger]) -> Ledger:
        """Change the ledger; `change` is asked again with what is there where somebody else came first.

        After a write of unknown outcome the ledger is read: whether it was done shows in what is there, and one that
        still comes fails, as it is tested on the version. Raises what `change` raises, ApiError, LedgerContendedError.
        """
        ledger = await self.known()
        for _ in range(SWAP_ATTEMPTS):
            wanted = change(ledger)
            if wanted == ledger:
                return ledger
            try:
                answer = await self._client.replace(CONFIG_MAPS, render_ledger(wanted))
                return self._learn(_as_written(wanted, answer))
            except (ConflictError, NotFoundError):
                ledger = await self.read()
            except ApiError as error:
                if not isinstance(error, UnavailableError) or error.is_unsent:
                    raise
                ledger = await self.read()
                if replace(ledger, version=wanted.version) == wanted:
                    return ledger
        raise LedgerContendedError

    async def prune(self, suspects: Callable[[Ledger], Iterable[tuple[Address, Entry]]]) -> int:
        """Remove those suspects that may go; give how many. ApiError, LedgerContendedError."""
        slots = asyncio.Semaphore(READS_AT_ONCE)

        async def may_go(address: Address, entry: Entry) -> bool:
            async with slots:
                live = await self._client.get(SERVICES, entry.name, namespace=entry.namespace)
            return may_remove(address, entry, live, held.get(entry.uid, {}))

        for _ in range(SWAP_ATTEMPTS):
            ledger = await self.read()
            held = ledger.by_owner()
            asked = [*suspects(ledger)] if ledger.is_known else []
            may = await asyncio.gather(*(may_go(address, entry) for address, entry in asked))
            gone = [(address, entry.uid) for (address, entry), goes in zip(asked, may, strict=True) if goes]
            if not gone:
                return 0
            wanted = ledger.without(gone)
            try:
                answer = await self._client.replace(CONFIG_MAPS, render_ledger(wanted))
            except (ConflictError, NotFoundError):
                # Somebody may have claimed by what was read: all is looked at anew.
                continue
            self._learn(_as_written(wanted, answer))
            return len(gone)
        raise LedgerContendedError

    async def _make(self) -> Ledger:
        """Make the ledger with what is carried; more than it can hold is in use by what its Services say."""
        made = Ledger(uid="", version="")
        made = made.having(made.fitting(await self._carried()))
        try:
            return self._learn(parse_ledger(await self._client.create(CONFIG_MAPS, render_ledger(made))))
        except ConflictError:
            return await self.read()

    def _learn(self, ledger: _Known) -> _Known:
        self._known = ledger
        self._listener(ledger)
        return ledger


def _is_old(metadata: JsonView, known: Ledger) -> bool:
    """Whether a version of a ledger is no news to who knows another."""
    return metadata["uid"] == known.uid and int(metadata["resourceVersion"]) <= int(known.version)


def _as_written(wanted: Ledger, answer: JsonView) -> Ledger:
    """Give what a write has made: what was wanted, at the version of the answer."""
    return replace(wanted, version=str(answer["metadata"]["resourceVersion"]))
