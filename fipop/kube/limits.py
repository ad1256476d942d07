"""How much is taken from an API server: of one answer, of one list, of one session, and by all sessions at once.

Text grows when it is parsed: 4 MiB of JSON that was made for it become 135 MiB of objects. So lists come in pages, each
is cut down to what is wanted before the next is asked for, and what is being received has a budget that all share. One
page is parsed at a time, since the loop does nothing else meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

MIB = 1024 * 1024

_FREE_BYTES = 128 * 1024
"""So much of each answer counts for nothing: those that hold the budget up do not keep small answers from anybody."""


class ByteBudget:
    """A number of bytes that answers may take at once; whoever wants more waits in line."""

    def __init__(self, total: int) -> None:
        self._free = total
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def free(self) -> int:
        """How many bytes nobody has."""
        return self._free

    @asynccontextmanager
    async def share(self) -> AsyncIterator[ByteShare]:
        """Lend a share for one answer; given back at the end of the context."""
        share = ByteShare(self)
        try:
            yield share
        finally:
            self._give_back(share.held)

    async def take(self, count: int) -> None:
        """Wait for so many bytes; more than there are in all are never had."""
        if not self._line and self._free >= count:
            self._free -= count
            return
        place = count, asyncio.get_running_loop().create_future()
        self._line.append(place)
        try:
            await place[1]
        except asyncio.CancelledError:
            if not place[1].cancelled():
                self._give_back(count)  # it was served just before
            elif place in self._line:
                self._line.remove(place)
                self._serve()  # who stood behind may want less
            raise

    def _give_back(self, count: int) -> None:
        self._free += count
        self._serve()

    def _serve(self) -> None:
        while self._line and self._free >= self._line[0][0]:
            count, waiting = self._line.popleft()
            if not waiting.done():
                self._free -= count
                waiting.set_result(None)


class ByteShare:
    """What one answer takes of a budget."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self.held = 0

    async def cover(self, size: int, *, most: int) -> None:
        """Wait until the share covers so many bytes of an answer that may have `most`.

        All of it is taken at once: two that each had a part, and wanted more, would wait for each other.
        """
        if size > _FREE_BYTES and not self.held:
            await self._budget.take(most)
            self.held = most


@dataclass(slots=True)
class Allowance:
    """Bytes that one session, or several in a row, may bring in all."""

    bytes_left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """What a client takes: `answer_bytes` of one answer or page, `list_bytes` of all pages of a list together.

    Lists come in pages of `page_items`, at most `pages` of them. A page that is too large is asked for again with a
    quarter of the limit.
    """

    answer_bytes: int = 4 * MIB
    list_bytes: int = 4 * MIB
    page_items: int = 500
    pages: int = 1_000_000


GUEST_LIMITS = ReadLimits(answer_bytes=MIB, list_bytes=4 * MIB, page_items=50, pages=200)
GUEST_SESSION_BYTES = 8 * MIB
GUEST_BUDGET_BYTES = 48 * MIB
"""Of all sessions with guests at once, beyond the first 128 KiB of each answer."""
