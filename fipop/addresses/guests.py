"""What the rules of addresses remember of each guest cluster, and ask about it; the room of guest clusters answers."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from fipop.addresses.in_use import Uses
from fipop.api.conditions import ConditionContent
from fipop.api.objects import ReleaseStatus
from fipop.helm.charts import Role
from fipop.rancher.matching import Guest

FloatingIPName = tuple[str, str]

LEAVING = "GuestLeaving"
"""The reason of guest clusters that Rancher is removing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestObservation:
    """What the last visit found, or why there was none."""

    reachable: bool | None
    """None while Rancher makes a new guest cluster."""
    unreachable: ConditionContent | None = None
    """Holds for all floating IPs, if it is there."""
    configured: Mapping[FloatingIPName, ConditionContent] = field(default_factory=dict)
    served: Mapping[FloatingIPName, tuple[str, ...]] = field(default_factory=dict)
    """The addresses of each floating IP that the ConfigMap was written for."""
    conditions: Mapping[Role, ConditionContent] = field(default_factory=dict)
    """The releases; empty if fipop keeps none there."""
    releases: tuple[ReleaseStatus, ...] | None = None
    """None if they were not seen."""


@dataclass(slots=True, kw_only=True)
class AddressRecord:
    """The part of the record of one guest cluster that the rules of addresses read."""

    guest: Guest | None = None
    """As its links were resolved last; None if they never were. One whose network cannot be found out is known as well:
    visits can serve it all the same."""
    is_resolved: bool = False
    """Whether all links were resolved, those to its Harvester cluster and network too. If not, no range is chosen for
    it."""
    observation: GuestObservation | None = None
    """What the last visit found; None before the first one."""
    follows_services: bool = False
    """Whether floating IPs are made for its Services, and statuses say what became of that."""
    uses: Uses = field(default_factory=Uses)
    """Which addresses it uses, as its visits read them."""
    was_read: bool = False
    """Whether it was read wholly since this process leads."""
    awaited_until: float | None = None
    """Until when new addresses wait for that at most, by the loop's clock; None before it was first connected."""


R_co = TypeVar("R_co", bound=AddressRecord, covariant=True)


class GuestRecords(Generic[R_co]):
    """One record for each guest cluster, by its id, which is also the namespace of its floating IPs.

    What works on a guest cluster keeps the record that it began with. If the guest cluster is forgotten meanwhile, what
    is written there goes with it.
    """

    def __init__(self, build: Callable[[], R_co]) -> None:
        self._build = build
        self._records: dict[str, R_co] = {}

    def get(self, guest_id: str) -> R_co | None:
        """Return the record of a guest cluster, if it has one."""
        return self._records.get(guest_id)

    def of(self, guest_id: str) -> R_co:
        """Return the record of a guest cluster, a new one if it has none."""
        if guest_id not in self._records:
            self._records[guest_id] = self._build()
        return self._records[guest_id]

    def items(self) -> ItemsView[str, R_co]:
        """Return all records with the ids of their guest clusters."""
        return self._records.items()

    def forget(self, guest_id: str) -> None:
        """Forget all that is remembered of a guest cluster."""
        self._records.pop(guest_id, None)


class GuestLookup(Protocol):
    """What is known of guest clusters beyond the stores and their records."""

    def has_nothing(self, guest_id: str) -> bool:
        """Return whether a guest cluster has no addresses, without a visit: it is gone, Harvester, or not made yet."""

    def is_pending(self, guest_id: str) -> bool:
        """Return whether a guest cluster exists of which nothing was resolved yet."""
