"""The metrics of both roles: what users of kube-fip-operator scrape, to the letter, and new ones, `fipop_…`.

Gauges about objects are rendered from a snapshot when they are scraped, so that their series vanish with the
object; counters and histograms are counted here as things happen. No address is ever a label.
"""

from __future__ import annotations

import platform
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

LEGACY_EVENTS = "kubefipoperator_guestcluster_events"

_LEGACY_RANGE_LABELS = ("fiprangename", "fiprange", "harvesterclustername", "harvesternetworkname")
_LEGACY_GUEST_LABELS = ("guestclustername", "harvesterclustername")

QUEUE_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300)
WORK_BUCKETS = (0.005, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300)


class GuestEvent(StrEnum):
    """What the legacy counter of guest events counts."""

    API_CONNECTION = "api_connection"
    CONFIG_MAP = "configmap_management"
    KUBE_VIP_INSTALL = "kubevip_install"
    CLOUD_PROVIDER_INSTALL = "kubevipcloudprovider_install"


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeSample:
    """One range as it stands; `iprange` is its text. capacity = used + free + quarantined."""

    name: str
    iprange: str
    harvester_cluster: str
    harvester_network: str
    capacity: int
    used: int
    quarantined: int
    out_of_range: int = 0

    @property
    def reserved(self) -> int:
        """Held and quarantined addresses: capacity - reserved is what can be given out now."""
        return self.used + self.quarantined


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestSample:
    """One guest; `reachable` is None until it was tried, `last_pass` the Unix time of its last whole pass."""

    guest: str
    cluster: str
    harvester_cluster: str
    reachable: bool | None = None
    last_pass: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSnapshot:
    """What is true at the moment of a scrape. The legacy metrics are the leader's alone."""

    leading: bool
    ranges: tuple[RangeSample, ...] = ()
    guests: tuple[GuestSample, ...] = ()
    queue_depths: Mapping[str, int] = field(default_factory=dict)
    bad_options: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _EventKey:
    """The labels of one series of the legacy counter."""

    cluster: str
    harvester_cluster: str
    event: GuestEvent
    success: bool


class Metrics:
    """Counts what happens, and renders it beside the snapshot that `snapshot` gives at each scrape."""

    def __init__(self, snapshot: Callable[[], FleetSnapshot], *, version: str) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._events: Tally[_EventKey] = Tally()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._registry.register(_FleetCollector(snapshot, self._events, version))
        self._queue_wait = self._histogram(
            "fipop_queue_wait_seconds", "Time that keys waited in the work queue.", "queue", QUEUE_BUCKETS
        )
        self._reconcile = self._histogram(
            "fipop_reconcile_duration_seconds", "Time that one reconcile took.", "kind", WORK_BUCKETS
        )
        self._pass = self._histogram(
            "fipop_pass_duration_seconds", "Time that one pass over one guest took.", "result", WORK_BUCKETS
        )
        self._api_duration = self._histogram(
            "fipop_api_request_duration_seconds",
            "Time until a Kubernetes API answered.",
            "target",
            WORK_BUCKETS,
        )
        self._reconcile_errors = self._counter(
            "fipop_reconcile_errors", "Reconciles that failed, by kind of key.", "kind"
        )
        self._allocations = self._counter(
            "fipop_allocations", "Attempts to get an address, by what came of them.", "result"
        )
        self._releases = self._counter(
            "fipop_address_releases", "Addresses given back, by how: quarantined or freed.", "result"
        )
        self._api_requests = self._counter(
            "fipop_api_requests",
            "Requests to Kubernetes APIs: of the management cluster or of guests; code 0 is no answer.",
            "target",
            "verb",
            "code",
        )
        self._helm_runs = self._counter("fipop_helm_runs", "Runs of the helm program.", "command", "result")

    def count_guest_event(
        self, guest_cluster: str, harvester_cluster: str, event: GuestEvent, success: bool
    ) -> None:
        """Count one event of a pass over a guest, by the names of its provisioning Cluster and Harvester."""
        key = _EventKey(
            cluster=guest_cluster, harvester_cluster=harvester_cluster, event=event, success=success
        )
        self._events[key] += 1

    def forget_guest(self, guest_cluster: str) -> None:
        """Drop the events of a guest that is gone. A namesake that lives on counts from zero again."""
        for key in [key for key in self._events if key.cluster == guest_cluster]:
            del self._events[key]

    def observe_queue_wait(self, queue: str, seconds: float) -> None:
        """Note how long a key waited in a work queue, from when it was due until it was taken."""
        self._queue_wait.labels(queue).observe(seconds)

    def observe_reconcile(self, kind: str, seconds: float, *, success: bool) -> None:
        """Note one reconcile of a key of this kind."""
        self._reconcile.labels(kind).observe(seconds)
        if not success:
            self._reconcile_errors.labels(kind).inc()

    def observe_pass(self, seconds: float, *, success: bool) -> None:
        """Note one pass over one guest."""
        self._pass.labels(_result(success)).observe(seconds)

    def observe_api_request(self, target: str, verb: str, code: int, seconds: float) -> None:
        """Note a request to `management` or a `guest`, by the code of its answer; 0 when none came."""
        self._api_requests.labels(target, verb, str(code)).inc()
        self._api_duration.labels(target).observe(seconds)

    def count_allocation(self, result: str) -> None:
        """Count an attempt to get an address: `allocated`, or the reason of the condition that refused it."""
        self._allocations.labels(result).inc()

    def count_release(self, result: str) -> None:
        """Count an address given back: `quarantined` or `freed`."""
        self._releases.labels(result).inc()

    def count_helm_run(self, command: str, *, success: bool) -> None:
        """Count one run of helm, by its subcommand."""
        self._helm_runs.labels(command, _result(success)).inc()

    def render(self) -> bytes:
        """Give all metrics in Prometheus's text format 0.0.4."""
        # The library appends _total to every counter's HELP and TYPE lines; the legacy one never had it.
        text = generate_latest(self._registry)
        for line in (b"HELP", b"TYPE"):
            prefix = b"# %s %s" % (line, LEGACY_EVENTS.encode())
            text = text.replace(prefix + b"_total ", prefix + b" ")
        return text

    def _histogram(self, name: str, documentation: str, label: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, documentation, (label,), buckets=buckets, registry=self._registry)

    def _counter(self, name: str, documentation: str, *labels: str) -> Counter:
        return Counter(name, documentation, labels, registry=self._registry)


class _FleetCollector(Collector):
    """Renders the snapshot, and the legacy counter of events, whose name the library cannot say."""

    def __init__(
        self, snapshot: Callable[[], FleetSnapshot], events: Mapping[_EventKey, int], version: str
    ) -> None:
        self._snapshot = snapshot
        self._events = events
        self._version = version

    def describe(self) -> Iterable[Metric]:
        """Name what is collected, without asking for a snapshot while everything is still being built."""
        return self._render(FleetSnapshot(leading=True))

    def collect(self) -> Iterable[Metric]:
        """Render what is true now."""
        return self._render(self._snapshot())

    def _render(self, fleet: FleetSnapshot) -> Iterator[Metric]:
        if fleet.leading:
            yield from _legacy_ranges(fleet.ranges)
            yield _legacy_status(fleet.guests)
            yield self._legacy_events(fleet.guests)
        yield from _fleet_gauges(fleet)
        yield from _guest_gauges(fleet.guests)
        yield _range_addresses(fleet.ranges)
        info = GaugeMetricFamily("fipop_build_info", "The version that runs.", labels=("version", "python"))
        info.add_metric((self._version, platform.python_version()), 1)
        yield info

    def _legacy_events(self, guests: Iterable[GuestSample]) -> Metric:
        metric = Metric(
            LEGACY_EVENTS,
            "Events of the passes over guest clusters. The name without _total is what dashboards know.",
            "counter",
        )
        known = {guest.cluster for guest in guests}
        for key, count in self._events.items():
            if key.cluster in known:
                labels = {
                    "guestclustername": _clean(key.cluster),
                    "harvesterclustername": _clean(key.harvester_cluster),
                    "event": key.event.value,
                    "status": _result(key.success),
                }
                metric.add_sample(LEGACY_EVENTS, labels, count)
        return metric


def _legacy_ranges(ranges: Iterable[RangeSample]) -> Iterator[Metric]:
    capacity = GaugeMetricFamily(
        "kubefipoperator_fipranges_capacity",
        "Addresses that a floating IP range can give out in all.",
        labels=_LEGACY_RANGE_LABELS,
    )
    reserved = GaugeMetricFamily(
        "kubefipoperator_fipranges_reserved",
        "Addresses of a floating IP range that are held or in quarantine.",
        labels=_LEGACY_RANGE_LABELS,
    )
    for each in ranges:
        labels = [
            _clean(text) for text in (each.name, each.iprange, each.harvester_cluster, each.harvester_network)
        ]
        capacity.add_metric(labels, each.capacity)
        reserved.add_metric(labels, each.reserved)
    yield capacity
    yield reserved


def _legacy_status(guests: Iterable[GuestSample]) -> Metric:
    status = GaugeMetricFamily(
        "kubefipoperator_guestcluster_status",
        "Whether a guest cluster is reachable.",
        labels=_LEGACY_GUEST_LABELS,
    )
    # Namesakes in two Rancher workspaces share a series (a text with two of it is illegal): up if all are.
    reachable: dict[tuple[str, str], bool] = {}
    for guest in guests:
        if guest.reachable is not None:
            key = _clean(guest.cluster), _clean(guest.harvester_cluster)
            reachable[key] = guest.reachable and reachable.get(key, True)
    for key, up in reachable.items():
        status.add_metric(key, 1 if up else 0)
    return status


def _fleet_gauges(fleet: FleetSnapshot) -> Iterator[Metric]:
    yield GaugeMetricFamily("fipop_leader", "Whether this process leads.", value=float(fleet.leading))
    yield GaugeMetricFamily(
        "fipop_settings_bad_options",
        "Options of kube-fip-config that were not taken: unknown, or with a bad value.",
        value=fleet.bad_options,
    )
    depth = GaugeMetricFamily("fipop_queue_depth", "Keys that wait in a work queue.", labels=("queue",))
    for queue, keys in sorted(fleet.queue_depths.items()):
        depth.add_metric((queue,), keys)
    yield depth


def _guest_gauges(guests: Iterable[GuestSample]) -> Iterator[Metric]:
    count = GaugeMetricFamily("fipop_guests", "Guest clusters, by what the last try said.", labels=("state",))
    last = GaugeMetricFamily(
        "fipop_guest_last_pass_timestamp_seconds",
        "When the last whole pass over a guest ended.",
        labels=("guest", "cluster"),
    )
    states: Tally[str] = Tally(reachable=0, unreachable=0, unknown=0)
    for guest in guests:
        states[
            "unknown" if guest.reachable is None else "reachable" if guest.reachable else "unreachable"
        ] += 1
        if guest.last_pass is not None:
            last.add_metric((_clean(guest.guest), _clean(guest.cluster)), guest.last_pass)
    for state, guests_in_it in states.items():
        count.add_metric((state,), guests_in_it)
    yield count
    yield last


def _range_addresses(ranges: Iterable[RangeSample]) -> Metric:
    addresses = GaugeMetricFamily(
        "fipop_range_addresses",
        "Addresses of a range by state; used + free + quarantined is its capacity.",
        labels=("range", "state"),
    )
    for each in ranges:
        free = each.capacity - each.reserved
        for state, count in (
            ("used", each.used),
            ("free", free),
            ("quarantined", each.quarantined),
            ("out_of_range", each.out_of_range),
        ):
            addresses.add_metric((_clean(each.name), state), count)
    return addresses


def _result(success: bool) -> str:
    return "success" if success else "error"


def _clean(text: str) -> str:
    # A lone surrogate, legal in JSON, cannot be encoded: one such label would fail the whole scrape.
    return text.encode("utf-8", "replace").decode("utf-8")
