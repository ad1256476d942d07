"""Whose turn it is to run helm. Nobody waits for it inside a pass: what is wanted may change meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice


class HelmTurns:
    """Lets at most `limit` guests run helm at a time, in the order in which they first asked.

    Who gets no turn ends its pass and keeps its place in the line; `called` hears of a guest whose turn has come,
    and a new pass decides what is to be done then, if anything. A guest whose pass ends without asking leaves the line:
    it was paused, needs nothing any more, or does not answer, and those behind it do not wait for it.
    """

    def __init__(self, *, limit: int = 2, called: Callable[[str], None] = lambda _guest_id: None) -> None:
        self._limit = limit
        self._called = called
        self._running: set[str] = set()
        self._line: dict[str, bool] = {}
        """Who waits, in order, and whether it was called."""
        self._asked: set[str] = set()

    @property
    def waiting(self) -> int:
        """How many guests wait for their turn."""
        return len(self._line)

    def take(self, guest_id: str) -> bool:
        """Take a turn, for everything that helm has to do there, or else a place in the line."""
        self._asked.add(guest_id)
        if guest_id in self._running:
            return True
        self._line.setdefault(guest_id, False)
        if guest_id not in self._next():
            return False
        del self._line[guest_id]
        self._running.add(guest_id)
        return True

    def give_back(self, guest_id: str) -> None:
        """End a turn, if it has one."""
        if guest_id in self._running:
            self._running.discard(guest_id)
            self._call()

    def end_visit(self, guest_id: str) -> None:
        """Note that the guest was visited, whether there was a pass or not."""
        self.give_back(guest_id)
        if guest_id not in self._asked and self._line.pop(guest_id, None) is not None:
            self._call()
        self._asked.discard(guest_id)

    def _next(self) -> tuple[str, ...]:
        return tuple(islice(self._line, self._limit - len(self._running)))

    def _call(self) -> None:
        for guest_id in self._next():
            if not self._line[guest_id]:
                self._line[guest_id] = True
                self._called(guest_id)
