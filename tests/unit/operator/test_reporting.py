"""What is reported beside the status of an object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from fipop.kube.events import EventRecorder
from fipop.kube.resources import PROVISIONING_CLUSTERS
from fipop.operator.reporting import EventReporter
from fipop.rancher.matching import Guest
from fipop.state.cache import ClusterCache
from fipop.state.guests import GuestDirectory
from tests.harness.guests import build_guest
from tests.harness.objects import build_range, cache_of, floating_ip
from tests.unit.report.snapshots import build_cluster


class Events:
    def __init__(self) -> None:
        self.recorded: list[tuple[str, str, str]] = []

    def record(self, about: Any, _kind: Any, reason: str, message: str) -> None:
        self.recorded.append((about.name, reason, message))


@dataclass
class Guests:
    """A directory of one guest at most."""

    cache: ClusterCache
    guest: Guest | None

    def known(self, _guest_id: str) -> Guest | None:
        return self.guest


def build(*, is_bound: bool = True) -> tuple[EventReporter, Events]:
    """A guest cluster on vlan20, and a range of vlan10."""
    cache = cache_of(
        ranges=[build_range("pool", "10.0.0.0/24", annotations={"harvesterNetworkName": "default/vlan10"})]
    )
    if is_bound:
        cache.observe(PROVISIONING_CLUSTERS, build_cluster("demo", "c-m-1"))
    guest = build_guest(networks=("default/vlan20",))
    events = Events()
    reporter = EventReporter(
        guests=cast("GuestDirectory", Guests(cache, guest)),
        events=cast("EventRecorder", events),
    )
    return reporter, events


def test_an_address_of_another_network_than_that_of_the_guest_cluster_is_reported() -> None:
    reporter, events = build()
    reporter.report_allocated(floating_ip(), "pool")
    ((name, reason, message),) = events.recorded
    assert (name, reason) == ("web", "NetworkMismatch")
    assert "default/vlan10" in message


def test_a_floating_ip_without_a_guest_cluster_has_no_network() -> None:
    reporter, events = build(is_bound=False)
    reporter.report_allocated(floating_ip(), "pool")
    assert events.recorded == []
