"""What the rules of addresses ask about guest clusters; the room of guest clusters answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fipop.api.conditions import Condition, Finding
from fipop.api.objects import FloatingIP, ReleaseStatus, ServicesStatus, WaitingStatus
from fipop.helm.charts import Role

FloatingIPName = tuple[str, str]

LEAVING = "GuestLeaving"
"""The reason of guest clusters that Rancher is removing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestObservation:
    """What the last visit found, or why there was none."""

    reachable: bool | None
    """None while Rancher makes a new guest cluster."""
    unreachable: Finding | None = None
    """Holds for all floating IPs, if it is there."""
    configured: Mapping[FloatingIPName, Finding] = field(default_factory=dict)
    served: Mapping[FloatingIPName, tuple[str, ...]] = field(default_factory=dict)
    """The addresses of each floating IP that the ConfigMap was written for."""
    conditions: Mapping[Role, Finding] = field(default_factory=dict)
    """The releases; empty if fipop keeps none there."""
    releases: tuple[ReleaseStatus, ...] | None = None
    """None if they were not seen."""


class GuestDirectory(Protocol):
    """What is known of guest clusters beyond the stores."""

    def has_nothing(self, guest_id: str) -> bool:
        """Return whether a guest cluster has no addresses, without a visit: it is gone, Harvester, or not made yet."""

    def is_pending(self, guest_id: str) -> bool:
        """Return whether a guest cluster exists of which nothing was resolved yet."""

    def observation(self, guest_id: str) -> GuestObservation | None:
        """Return what the last visit found; None before the first one of this process."""

    def services_of(
        self, floating_ip: FloatingIP
    ) -> tuple[ServicesStatus | None, WaitingStatus | None, Sequence[Condition]]:
        """Return which Services use it, which of its guest cluster wait, and whether these have what they wait for."""

    def note_stored(self, floating_ip: FloatingIP) -> None:
        """Note that the status of a floating IP is stored with what `services_of` returned."""
