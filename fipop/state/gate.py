"""What must have happened before addresses are given out. Everything starts closed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class AllocationGate:
    """The state of the start, shared by the reconcilers.

    `adopted`: every floating IP that already has an address has claimed it. `looked`: the guests told what they
    carry, so that new addresses can be chosen, and guests written.
    """

    adopted: bool = False
    looked: bool = False

    @property
    def is_open(self) -> bool:
        """Whether new addresses may be given out."""
        return self.adopted and self.looked
