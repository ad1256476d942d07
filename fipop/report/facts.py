"""What was read of a management cluster for a report, as values; what could not be read is named, not guessed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from fipop.api import names
from fipop.api.models import FloatingIP, FloatingIPRange, Reservation
from fipop.operator.rollout.progress import RolloutState
from fipop.rancher.objects import ProvisioningCluster
from fipop.settings.options import DEFAULTS, BadOption, Settings

SCHEMA_REVISIONS = {
    f"floatingipranges.{names.GROUP}": 3,
    f"floatingips.{names.GROUP}": 3,
    f"floatingipreservations.{names.GROUP}": 1,
}
"""The revisions of our CRDs that this version knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """What could not be read, by the name that people have for it, and why in a sentence."""

    what: str
    problem: str
    forbidden: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Leadership:
    """The Lease of the operator; `holder` is "" where nobody holds it."""

    holder: str
    renewed: datetime | None
    duration_seconds: float

    def holds(self, now: datetime) -> bool:
        """Whether it was renewed in its time. Another machine wrote that time: a few seconds more are granted."""
        if not self.holder or self.renewed is None:
            return False
        return (now - self.renewed).total_seconds() < self.duration_seconds + _CLOCKS_APART_SECONDS


_CLOCKS_APART_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A Deployment: its image and ServiceAccount, and how many of its pods are ready."""

    image: str
    service_account: str
    wanted: int
    ready: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What is known of the operator itself; None and empty where it could not be read, or is not there."""

    namespace: str
    leadership: Leadership | None = None
    workload: Workload | None = None
    predecessor: Workload | None = None
    schemas: dict[str, int | None] = field(default_factory=dict)
    """The revision of each of our CRDs that was looked for; None for one that is not there."""
    has_settings: bool | None = None
    settings: Settings = DEFAULTS
    bad_options: tuple[BadOption, ...] = ()
    unwise_options: tuple[str, ...] = ()
    rollout: RolloutState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One look at a management cluster; `now` is its API server's time."""

    now: datetime
    ranges: tuple[FloatingIPRange, ...] = ()
    floating_ips: tuple[FloatingIP, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    clusters: tuple[ProvisioningCluster, ...] = ()
    installation: Installation = field(
        default_factory=lambda: Installation(namespace=names.OPERATOR_NAMESPACE)
    )
    unread: tuple[Unread, ...] = ()
