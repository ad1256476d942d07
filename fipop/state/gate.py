"""What must have happened before addresses are given out. Everything starts closed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fipop.api.models import Reservation


@dataclass(slots=True)
class AllocationGate:
    """The state of the start, shared by the reconcilers.

    `adopted`: every floating IP that already has an address has claimed it. `is_shut`: it is not known yet which guests
    are to be waited for. `awaited`: those guests, each with the time until which it is waited for; what could be in
    use there is not given out, and not written to other guests, before they told what they carry. `could_serve` says
    whether a range could serve one of these guests, `reaches` whether a guest's word counts about a reservation.
    """

    could_serve: Callable[[str, Iterable[str]], bool]
    reaches: Callable[[str, Reservation], bool]
    adopted: bool = False
    is_shut: bool = True
    awaited: dict[str, float] = field(default_factory=dict)

    @property
    def looked(self) -> bool:
        """Whether no guest is waited for."""
        return not (self.is_shut or self.awaited)

    def is_open(self, range_name: str | None = None) -> bool:
        """Whether new addresses of a range may be given out; without one: those of all."""
        if self.is_shut or not self.adopted:
            return False
        return not self.awaited or (range_name is not None and not self.could_serve(range_name, self.awaited))

    def may_write(self, reservation: Reservation) -> bool:
        """Whether all guests that might carry an address as well, though the ledger gives it to one, told so."""
        others = self.awaited.keys() - {reservation.owner.namespace}
        return not self.is_shut and not any(self.reaches(each, reservation) for each in others)
