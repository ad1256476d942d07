"""What the metrics are rendered from, as plain values, and the labels that it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fipop.ipam.allocator import Usage


class GuestEvent(StrEnum):
    """What the legacy counter of guest events counts."""

    API_CONNECTION = "api_connection"
    CONFIG_MAP = "configmap_management"
    KUBE_VIP_INSTALL = "kubevip_install"
    CLOUD_PROVIDER_INSTALL = "kubevipcloudprovider_install"


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeSample:
    """One range as it stands; `iprange` is its text.

    `ready` and `reason` are those of its condition Ready. `usage` is empty for a range that cannot be read. Otherwise
    it has both families by their labels, and `families` names those that the range has addresses of.
    """

    name: str
    iprange: str
    harvester_cluster: str
    harvester_network: str
    ready: bool
    reason: str
    families: frozenset[str] = frozenset()
    usage: Mapping[str, Usage] = field(default_factory=dict)
    waits_for_guests: bool | None = None
    """Whether it waits for the answer of a guest cluster; None if this replica does not lead."""

    @property
    def capacity(self) -> int:
        """The addresses of both families that the range can assign in all."""
        return sum(each.total for each in self.usage.values())

    @property
    def reserved(self) -> int:
        """Held and quarantined addresses: the range can assign capacity - reserved now."""
        return sum(each.used + each.quarantined for each in self.usage.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestSample:
    """One guest; `reachable` is None until it was tried, `last_pass` the Unix time of its last whole pass."""

    guest: str
    cluster: str
    harvester_cluster: str
    reachable: bool | None = None
    last_pass: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSample:
    """A rollout: the name of its target, its phase, and how many guests are at which step."""

    target: str
    state: str
    guests: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSnapshot:
    """What is true at the moment of a scrape. The legacy metrics are the leader's alone."""

    leading: bool
    ranges: tuple[RangeSample, ...] = ()
    guests: tuple[GuestSample, ...] = ()
    queue_depths: Mapping[str, int] = field(default_factory=dict)
    bad_options: int = 0
    predecessor_runs: bool = False
    withheld_releases: int = 0
    ignored_claims: int = 0
    floating_ips: Mapping[str, int] = field(default_factory=dict)
    """How many there are by the status of their condition Ready; a standby does not count."""
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
