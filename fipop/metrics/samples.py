"""What the metrics are rendered from, as plain values, and the labels that it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fipop.api.conditions import Condition
from fipop.api.objects import FloatingIPRange
from fipop.ipam.addresses import Family
from fipop.ipam.ranges import RangeUsage
from fipop.rancher.matching import Guest


class GuestEvent(StrEnum):
    """What the legacy counter of guest events counts."""

    API_CONNECTION = "api_connection"
    CONFIG_MAP = "configmap_management"
    KUBE_VIP_INSTALL = "kubevip_install"
    CLOUD_PROVIDER_INSTALL = "kubevipcloudprovider_install"


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeSample:
    """One range as it stands, with its condition Ready and the families that it has addresses of."""

    range: FloatingIPRange
    ready: Condition
    families: frozenset[Family] = frozenset()
    usage: RangeUsage | None = None
    """None for a range that cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestSample:
    """One guest; `reachable` is None until it was tried, `last_visit` the Unix time of its last whole visit."""

    guest: Guest
    reachable: bool | None = None
    last_visit: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSample:
    """A rollout: the name of its target, its phase, and how many guests are at which step."""

    target: str
    state: str
    guests: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSnapshot:
    """What is true at the moment of a scrape. The legacy metrics are the leader's alone."""

    leading: bool = False
    ranges: tuple[RangeSample, ...] = ()
    guests: tuple[GuestSample, ...] = ()
    queue_depths: Mapping[str, int] = field(default_factory=dict)
    bad_options: int = 0
    predecessor_runs: bool = False
    floating_ips: Mapping[str, int] = field(default_factory=dict)
    """How many there are by the status of their condition Ready; a standby does not count."""
    address_conflicts: int = 0
    """Floating IPs with an address that another guest cluster uses, too."""
    gives_out: bool = False
    rollout: RolloutSample | None = None
    rollout_blocked: bool = False
    """Whether a chart that the options ask for cannot be had."""
    install_queue: int = 0
    """Guests that wait for helm, or have it."""
    last_answer: float | None = None
    """The Unix time when the API server last read an object for us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventKey:
    """One series of the legacy counter of guest events; its texts are clean."""

    cluster: str
    harvester_cluster: str
    event: GuestEvent
    success: bool


def result_label(success: bool) -> str:
    """Say how something ended, as the legacy counter says it."""
    return "success" if success else "error"


def clean_label(text: str) -> str:
    """Give a text that can be encoded: one lone surrogate, legal in JSON, would fail the whole scrape."""
    return text.encode("utf-8", "replace").decode("utf-8")
