"""What must have happened before addresses are given out. Everything starts closed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fipop.api.models import Reservation


@dataclass(slots=True)
class AllocationGate:
    """The state of the start, shared by the reconcilers.

    `could_serve` tells whether a range could serve a guest. `adopted`: every floating IP that already has an address
    has claimed it. `is_shut`: the guests to wait for are not known yet. `awaited`: those guests, each with the time
    until which the gate waits for it. What could be in use there is not assigned, and not written to other guests,
    before they answered.

    For each range the gate remembers one guest that it waits for, or that there is none: with hundreds of ranges and
    thousands of guests, asking for all pairs takes seconds.
    """

    could_serve: Callable[[str, str], bool]
    adopted: bool = False
    is_shut: bool = True
    awaited: dict[str, float] = field(default_factory=dict)
    _waits_for: dict[str, str] = field(default_factory=dict)
    _open: set[str] = field(default_factory=set)

    @property
    def looked(self) -> bool:
        """Whether no guest is waited for."""
        return not (self.is_shut or self.awaited)

    def shut(self) -> None:
        """Open nothing before the guests to wait for are known again: ranges may have changed."""
        self.is_shut = True
        self._waits_for.clear()
        self._open.clear()

    def wait_for(self, guest_ids: Iterable[str], until: float) -> None:
        """Wait for guests that the gate did not wait for."""
        for guest_id in guest_ids:
            self.awaited.setdefault(guest_id, until)
            self.note_changed(guest_id)

    def note_changed(self, guest_id: str) -> None:
        """Shut the ranges that could serve an awaited guest now that its links or its floating IPs changed."""
        if guest_id in self.awaited and self._open:
            self._open = {each for each in self._open if not self.could_serve(each, guest_id)}

    def is_open(self, range_name: str | None = None) -> bool:
        """Whether new addresses of a range may be assigned; without a name: those of all."""
        if self.is_shut or not self.adopted:
            return False
        return not self.awaited or (range_name is not None and self._is_free(range_name))

    def waits(self) -> dict[str, str]:
        """Return a guest that each waiting range waits for, as far as it was asked whether they are open."""
        waits = self._waits_for.items()
        return {name: guest for name, guest in waits if guest in self.awaited and name not in self._open}

    def may_write(self, reservation: Reservation) -> bool:
        """Whether all other guests that might carry an address answered, though the ledger gives it to its owner."""
        return not self.is_shut and self._is_free(reservation.range, reservation.owner.namespace)

    def _is_free(self, range_name: str, owner: str = "") -> bool:
        """Whether the gate waits for no guest but the owner that a range could serve."""
        if range_name in self._open:
            return True
        known = self._waits_for.get(range_name, "")
        if known in self.awaited and known != owner and self.could_serve(range_name, known):
            return False
        found = (each for each in self.awaited if each != owner and self.could_serve(range_name, each))
        guest_id = next(found, None)
        if guest_id is not None:
            self._waits_for[range_name] = guest_id
        elif owner not in self.awaited:
            self._open.add(range_name)
        return guest_id is None
