"""What people are told beside the status of an object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from fipop.operator.reporting import EventReporter
from fipop.rancher.matching import Guest
from fipop.state.cache import ClusterCache
from fipop.state.guests import GuestDirectory
from tests.harness.guests import build_guest
from tests.harness.objects import build_range, cache_of, floating_ip, reservation


class Events:
    def __init__(self) -> None:
        self.recorded: list[tuple[str, str, str]] = []

    def record(self, about: Any, _kind: Any, reason: str, message: str) -> None:
        self.recorded.append((about.name, reason, message))


class Metrics:
    def __init__(self) -> None:
        self.counted: list[str] = []

    def count_allocation(self, result: str) -> None:
        self.counted.append(result)


@dataclass
class Guests:
    """A directory of one guest at most."""

    cache: ClusterCache
    guest: Guest | None

    def known(self, _guest_id: str) -> Guest | None:
        return self.guest


def build(*, networks: tuple[str, ...] = (), known: bool = True) -> tuple[EventReporter, Events, Metrics]:
    cache = cache_of(
        ranges=[build_range("pool", "10.0.0.0/24", annotations={"harvesterNetworkName": "default/vlan10"})]
    )
    guest = build_guest(networks=networks)
    guests = cast("GuestDirectory", Guests(cache, guest if known else None))
    events, metrics = Events(), Metrics()
    reporter = EventReporter(
        guests=guests,
        events=events,
        metrics=metrics,
    )
    return reporter, events, metrics


def test_an_allocation_is_counted_and_one_for_a_guest_that_is_bound_to_nothing_is_no_mismatch() -> None:
    reporter, events, metrics = build(networks=("default/vlan20",))
    reporter.report_allocated(floating_ip(), reservation("10.0.0.1"))
    assert (metrics.counted, events.recorded) == (["allocated"], [])


def test_a_guest_that_claims_more_addresses_than_count_is_told() -> None:
    reporter, events, _ = build()
    reporter.report_over_limit("c-m-1", 9)
    ((name, reason, message),) = events.recorded
    assert (name, reason) == ("demo", "TooManyClaims")
    assert "c-m-1" in message
    assert "9" in message
    reporter, events, _ = build(known=False)
    reporter.report_over_limit("c-m-1", 9)
    assert events.recorded == [], "it is gone"
