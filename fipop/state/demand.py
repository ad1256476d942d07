"""What a leader remembers of the Services of a guest cluster between two lists. All of it can be found out again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fipop.api.objects import ServicesStatus
from fipop.guest.findings import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandReport:
    """What the floating IPs of a guest cluster say of its Services."""

    services: Mapping[str, ServicesStatus]
    """Who uses a floating IP, by its name."""
    oldest: str
    """The floating IP that says whether the demand is met."""
    finding: Finding


@dataclass(slots=True, kw_only=True)
class DemandRecord:
    """The part of a guest cluster's record that its demand keeps. Times are those of the loop's clock."""

    is_followed: bool = False
    """Whether its Services are listed again and again."""
    idle_since: dict[str, float] = field(default_factory=dict)
    """Since when no Service uses a floating IP, by its uid."""
    report: DemandReport | None = None
    """None before the first list."""
    reported_at: float = 0.0
