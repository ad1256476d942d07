"""The metrics about the fleet's objects, rendered from a snapshot at every scrape."""

from __future__ import annotations

import platform
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fipop.ipam.addresses import Family
from fipop.ipam.ranges import RangeUsage
from fipop.metrics.samples import (
    EventKey,
    FleetSnapshot,
    GuestSample,
    RangeSample,
    clean_label,
    result_label,
)

LEGACY_EVENTS = "kubefipoperator_guestcluster_events"

_LEGACY_RANGE_LABELS = ("fiprangename", "fiprange", "harvesterclustername", "harvesternetworkname")
_LEGACY_GUEST_LABELS = ("guestclustername", "harvesterclustername")


class FleetCollector(Collector):
    """Renders the snapshot, and the legacy counter of events, whose name the library cannot say."""

    def __init__(
        self,
        snapshot: FleetSnapshot,
        events: Mapping[str, Mapping[EventKey, int]],
        version: str,
    ) -> None:
        self._snapshot = snapshot
        self._events = events
        self._version = version

    def collect(self) -> Iterable[Metric]:
        """Render what was true when it was taken down."""
        return self._render(self._snapshot)

    def _render(self, fleet: FleetSnapshot) -> Iterator[Metric]:
        if fleet.leading:
            yield from _legacy_ranges(fleet.ranges)
            yield _legacy_status(fleet.guests)
            yield self._legacy_events(fleet.guests)
        yield from _fleet_gauges(fleet)
        yield from _rollout_gauges(fleet)
        yield from _guest_gauges(fleet.guests)
        yield from _range_gauges(fleet.ranges)
        info = GaugeMetricFamily("fipop_build_info", "Version of fipop.", labels=("version", "python"))
        info.add_metric((self._version, platform.python_version()), 1)
        yield info

    def _legacy_events(self, guests: Iterable[GuestSample]) -> Metric:
        metric = Metric(
            LEGACY_EVENTS,
            "Events of reconciliations of guest clusters. The name has no _total, as dashboards expect.",
            "counter",
        )
        for cluster in sorted({clean_label(sample.guest.cluster_name) for sample in guests}):
            for key, count in self._events.get(cluster, {}).items():
                labels = {
                    "guestclustername": key.cluster,
                    "harvesterclustername": key.harvester_cluster,
                    "event": key.event.value,
                    "status": result_label(key.success),
                }
                metric.add_sample(LEGACY_EVENTS, labels, count)
        return metric


def _legacy_ranges(ranges: Iterable[RangeSample]) -> Iterator[Metric]:
    capacity = GaugeMetricFamily(
        "kubefipoperator_fipranges_capacity",
        "Addresses that a floating IP range can assign in total.",
        labels=_LEGACY_RANGE_LABELS,
    )
    reserved = GaugeMetricFamily(
        "kubefipoperator_fipranges_reserved",
        "Addresses of a floating IP range that are held or in quarantine.",
        labels=_LEGACY_RANGE_LABELS,
    )
    for each in ranges:
        found, usage = each.range, (each.usage or RangeUsage()).whole
        texts = (found.name, found.spec.iprange, found.harvester_cluster or "", found.harvester_network or "")
        labels = [clean_label(text) for text in texts]
        capacity.add_metric(labels, usage.total)
        reserved.add_metric(labels, usage.used + usage.quarantined)
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
    for each in guests:
        if each.reachable is not None:
            harvester_cluster = each.guest.harvester_cluster_name or ""
            key = clean_label(each.guest.cluster_name), clean_label(harvester_cluster)
            reachable[key] = each.reachable and reachable.get(key, True)
    for key, up in reachable.items():
        status.add_metric(key, 1 if up else 0)
    return status


def _fleet_gauges(fleet: FleetSnapshot) -> Iterator[Metric]:
    yield GaugeMetricFamily("fipop_leader", "Whether this process leads.", value=float(fleet.leading))
    yield GaugeMetricFamily(
        "fipop_settings_bad_options",
        "Options of kube-fip-config that are unknown or have an invalid value.",
        value=fleet.bad_options,
    )
    yield from _work_gauges(fleet)


def _work_gauges(fleet: FleetSnapshot) -> Iterator[Metric]:
    if fleet.leading:
        yield GaugeMetricFamily(
            "fipop_predecessor_running",
            "Whether kube-fip-operator has replicas, so that fipop is idle.",
            value=float(fleet.predecessor_runs),
        )
    # A leader that waits for the end of kube-fip-operator is not expected to assign anything.
    if fleet.leading and not fleet.predecessor_runs:
        yield GaugeMetricFamily(
            "fipop_allocation_open",
            "Whether the guest clusters were read since the start, so that fipop assigns new addresses.",
            value=float(fleet.gives_out),
        )
    if fleet.last_answer is not None:
        yield GaugeMetricFamily(
            "fipop_api_last_answer_timestamp_seconds",
            "Time of the last successful read from the API server of the management cluster.",
            value=fleet.last_answer,
        )
    floating_ips = GaugeMetricFamily(
        "fipop_floating_ips", "Floating IPs, by the status of their condition Ready.", labels=("ready",)
    )
    for ready, number in sorted(fleet.floating_ips.items()):
        floating_ips.add_metric((ready,), number)
    yield floating_ips
    yield GaugeMetricFamily(
        "fipop_address_conflicts",
        "Floating IPs with an address that another guest cluster uses, too.",
        value=fleet.address_conflicts,
    )
    depth = GaugeMetricFamily("fipop_queue_depth", "Keys that wait in a work queue.", labels=("queue",))
    for queue, keys in sorted(fleet.queue_depths.items()):
        depth.add_metric((queue,), keys)
    yield depth


def _rollout_gauges(fleet: FleetSnapshot) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "fipop_install_queue", "Guest clusters that wait for helm or run it.", value=fleet.install_queue
    )
    yield GaugeMetricFamily(
        "fipop_rollout_blocked",
        "Whether a configured chart is not available, so that guest clusters keep their releases.",
        value=float(fleet.rollout_blocked),
    )
    if fleet.rollout is None:
        return
    about = "Guest clusters that are opted in, by where they stand in the rollout."
    guests = GaugeMetricFamily("fipop_rollout_guests", about, labels=("phase",))
    for phase, number in sorted(fleet.rollout.guests.items()):
        guests.add_metric((phase,), number)
    yield guests
    said = "The current or last rollout."
    info = GaugeMetricFamily("fipop_rollout_info", said, labels=("target", "state"))
    info.add_metric((fleet.rollout.target, fleet.rollout.state), 1)
    yield info


def _guest_gauges(guests: Iterable[GuestSample]) -> Iterator[Metric]:
    count = GaugeMetricFamily(
        "fipop_guests", "Guest clusters by the result of the last attempt.", labels=("state",)
    )
    last = GaugeMetricFamily(
        "fipop_guest_last_visit_timestamp_seconds",
        "Time of the last complete visit of a guest cluster.",
        labels=("guest", "guest_cluster"),
    )
    states: Tally[str] = Tally(reachable=0, unreachable=0, unknown=0)
    for each in guests:
        states["unknown" if each.reachable is None else "reachable" if each.reachable else "unreachable"] += 1
        if each.last_visit is not None:
            labels = clean_label(each.guest.id), clean_label(each.guest.cluster_name)
            last.add_metric(labels, each.last_visit)
    for state, guests_in_it in states.items():
        count.add_metric((state,), guests_in_it)
    yield count
    yield last


def _range_gauges(ranges: Iterable[RangeSample]) -> Iterator[Metric]:
    addresses = GaugeMetricFamily(
        "fipop_range_addresses",
        "Addresses of a range by family and state; used + free + quarantined is the capacity of the family.",
        labels=("range", "family", "state"),
    )
    ready = GaugeMetricFamily(
        "fipop_range_ready",
        "Whether a range can assign addresses, with the reason of its condition Ready.",
        labels=("range", "reason"),
    )
    for each in ranges:
        name = clean_label(each.range.name)
        ready.add_metric((name, each.ready.reason), float(each.ready.is_true))
        if each.usage is None:
            continue
        for family, usage in ((Family.IPV4, each.usage.ipv4), (Family.IPV6, each.usage.ipv6)):
            if family in each.families:
                addresses.add_metric((name, family.label, "used"), usage.used)
                addresses.add_metric((name, family.label, "free"), usage.free)
                addresses.add_metric((name, family.label, "quarantined"), usage.quarantined)
            addresses.add_metric((name, family.label, "out_of_range"), usage.out_of_range)
    yield addresses
    yield ready
