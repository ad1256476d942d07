"""What a leader remembers of the Services of a guest cluster between two lists. All of it can be found out again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from fipop.api.conditions import ConditionType, Finding
from fipop.api.objects import FloatingIP, ServicesStatus, WaitingStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandReport:
    """What the floating IPs of a guest cluster say of its Services."""

    services: Mapping[str, ServicesStatus]
    """Who uses a floating IP, by its name."""
    oldest: str
    """The floating IP that says whether the demand is met."""
    finding: Finding
    waiting: WaitingStatus | None = None
    """Who waits, if the demand is not met."""

    def is_shown_by(self, floating_ip: FloatingIP) -> bool:
        """Return whether the status of a floating IP says this already."""
        of_demand = (each for each in floating_ip.status.conditions if each.type == ConditionType.DEMAND_MET)
        shown = [(each.status, each.reason, each.message) for each in of_demand]
        found = (self.finding.verdict, self.finding.reason, self.finding.message)
        is_oldest, status = floating_ip.name == self.oldest, floating_ip.status
        return (shown, status.waiting, status.services) == (
            [found] if is_oldest else [],
            self.waiting if is_oldest else None,
            self.services.get(floating_ip.name),
        )


@dataclass(slots=True, kw_only=True)
class DemandRecord:
    """The part of a guest cluster's record that its demand keeps. Times are those of the loop's clock."""

    is_followed: bool = False
    """Whether its Services are listed again and again."""
    idle_since: dict[str, float] = field(default_factory=dict)
    """Since when no Service uses a floating IP, by its uid."""
    report: DemandReport | None = None
    """None before the first list."""
    reported_at: float = -inf
    """When floating IPs were last to show a report."""
    unshown: set[str] = field(default_factory=set)
    """The floating IPs that have yet to show it, by name: each does so once. Then another leader may say otherwise."""
