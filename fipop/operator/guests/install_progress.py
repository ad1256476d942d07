"""How far the guests in line for helm are, told to people while there are many."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

WORTH_TELLING = 20
"""Of fewer guests nobody is told."""
_STEPS = 10


@dataclass(slots=True)
class InstallProgress:
    """Counts guests from one moment with an empty line to the next; `tell` hears a sentence at every tenth."""

    tell: Callable[[str], None]
    _done: int = 0
    _told: int = 0

    def note_finished(self, left: int) -> None:
        """Take in that helm is done with a guest, and how many are left."""
        self._done += 1
        whole = self._done + left
        tenth = self._done * _STEPS // whole
        if whole >= WORTH_TELLING and tenth > self._told:
            self._told = tenth
            self.tell(f"helm is done with {self._done} of {whole} guests")
        if left == 0:
            self._done = self._told = 0
