"""The gauges of the operator, and what they are rendered from at the moment of a scrape.

The first three have the names and labels of kube-fip-operator, to the letter, and are the leader's alone.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from fipop.addresses.inventory import Inventory
from fipop.addresses.status import CONFLICT, find_fault
from fipop.api.conditions import ConditionType, Verdict, find_condition
from fipop.api.objects import Capacity, FloatingIP, FloatingIPRange
from fipop.guests.record import GuestRecord
from fipop.ipam.addresses import Family
from fipop.metrics.gauges import Series, build_gauge
from fipop.operator.manager import Manager
from fipop.rancher.matching import Guest
from fipop.rollout.plan import Rollout
from fipop.texts import LONGEST_WORD, clean

_LEGACY_RANGE = ("fiprangename", "fiprange", "harvesterclustername", "harvesternetworkname")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorState:
    """What the gauges show; what the leader alone knows is empty on a standby."""

    version: str = ""
    leading: bool = False
    bad_options: int = 0
    predecessor_runs: bool = False
    last_answer: float | None = None
    """The Unix time when the API server last read an object for us."""
    ranges: Sequence[FloatingIPRange] = ()
    floating_ips: Sequence[FloatingIP] | None = None
    guests: Sequence[tuple[Guest, GuestRecord]] = ()
    """Without those that Rancher is removing."""
    without_address: int = 0
    gate_is_open: bool = False
    queues: Mapping[str, int] = field(
        default_factory=lambda: dict.fromkeys(("objects", "visits", "installs"), 0)
    )
    rollout: Rollout | None = None
    rollout_guests: Mapping[str, int] = field(default_factory=dict)
    rollout_blocked: bool = False


def read_fleet(fleet: OperatorState, inventory: Inventory, manager: Manager | None) -> OperatorState:
    """Add what the stores and records have; nothing is counted up or down, so nothing can drift.

    A standby, without a manager, knows the ranges and nothing of the guest clusters.
    """
    fleet = replace(fleet, ranges=inventory.ranges.all())
    if manager is None:
        return fleet
    queues, rollout = manager.queues, manager.rollout
    opted_in = {
        each.cluster_name for each in inventory.clusters.all() if each.opted_in and not each.is_deleting
    }
    floating_ips = inventory.floating_ips.all()
    return replace(
        fleet,
        floating_ips=floating_ips,
        guests=[
            (record.guest, record)
            for guest_id, record in sorted(manager.guests.records.items())
            if record.guest is not None and not inventory.is_leaving(guest_id)
        ],
        without_address=len(
            opted_in - {""} - {each.namespace for each in floating_ips if each.status.addresses}
        ),
        gate_is_open=manager.gate.is_open,
        queues={each.name: each.depth for each in queues.all},
        rollout=rollout.rollout,
        rollout_guests=rollout.count_guests() if rollout.rollout is not None else {},
        rollout_blocked=rollout.problem is not None,
    )


def render_fleet(fleet: OperatorState) -> Iterator[Metric]:
    """Yield the gauges of the operator."""
    if fleet.leading:
        yield from _render_legacy(fleet)
    yield from _render_ranges(fleet)
    yield from _render_guests(fleet)
    yield from _render_rollout(fleet)
    yield GaugeMetricFamily("fipop_leader", "Whether this process leads.", value=fleet.leading)
    yield GaugeMetricFamily(
        "fipop_settings_bad_options",
        "Options of kube-fip-config that have an invalid value.",
        value=fleet.bad_options,
    )
    yield GaugeMetricFamily(
        "fipop_predecessor_running",
        "Whether kube-fip-operator has replicas, so that fipop is idle.",
        value=fleet.predecessor_runs if fleet.leading else None,
    )
    yield GaugeMetricFamily(
        "fipop_allocation_open",
        "Whether the guest clusters were read since the start, so that fipop assigns new addresses.",
        # A leader that waits for the end of kube-fip-operator is not expected to assign anything.
        value=fleet.gate_is_open if fleet.leading and not fleet.predecessor_runs else None,
    )
    yield GaugeMetricFamily(
        "fipop_api_last_answer_timestamp_seconds",
        "Time of the last successful read from the API server of the management cluster.",
        value=fleet.last_answer,
    )
    yield build_gauge(
        "fipop_queue_depth",
        "Keys that wait in a work queue.",
        ("queue",),
        (((name,), keys) for name, keys in fleet.queues.items()),
    )
    yield build_gauge(
        "fipop_build_info",
        "Version of fipop.",
        ("version", "python"),
        [((fleet.version, platform.python_version()), 1)],
    )


def _render_legacy(fleet: OperatorState) -> Iterator[Metric]:
    ranges = [
        (
            (each.name, each.spec.iprange, each.harvester_cluster or "", each.harvester_network or ""),
            each.status.capacity or Capacity(),
        )
        for each in fleet.ranges
    ]
    yield build_gauge(
        "kubefipoperator_fipranges_capacity",
        "Addresses that a floating IP range can assign in total.",
        _LEGACY_RANGE,
        ((labels, capacity.total) for labels, capacity in ranges),
    )
    yield build_gauge(
        "kubefipoperator_fipranges_reserved",
        "Addresses of a floating IP range that are held or in quarantine.",
        _LEGACY_RANGE,
        ((labels, capacity.used + capacity.quarantined) for labels, capacity in ranges),
    )
    # Namesakes in two Rancher workspaces share a series (a text with two of it is illegal): up if all are.
    reachable: dict[tuple[str, str], bool] = {}
    for guest, record in fleet.guests:
        is_reachable = _is_reachable(record)
        if is_reachable is not None:
            key = guest.cluster_name, guest.harvester_cluster_name or ""
            reachable[key] = is_reachable and reachable.get(key, True)
    yield build_gauge(
        "kubefipoperator_guestcluster_status",
        "Whether a guest cluster is reachable.",
        ("guestclustername", "harvesterclustername"),
        reachable.items(),
    )


def _render_ranges(fleet: OperatorState) -> Iterator[Metric]:
    yield build_gauge(
        "fipop_range_addresses",
        "Addresses of a range by family and state; used + free + quarantined is the capacity of the family.",
        ("range", "family", "state"),
        (series for each in fleet.ranges for series in _count_addresses(each)),
    )
    yield build_gauge(
        "fipop_range_info",
        "The Harvester cluster, the network and the address space of a range; always 1.",
        ("range", "harvester_cluster", "harvester_network", "address_space"),
        (
            (
                (
                    each.name,
                    each.harvester_cluster or "",
                    each.harvester_network or "",
                    each.spec.address_space,
                ),
                1,
            )
            for each in fleet.ranges
        ),
    )
    yield build_gauge(
        "fipop_range_ready",
        "Whether a range can assign addresses, with the reason of its condition Ready.",
        ("range", "reason"),
        (
            ((each.name, one.reason), one.is_true)
            for each in fleet.ranges
            for one in each.status.conditions
            if one.type == ConditionType.READY
        ),
    )


def _count_addresses(found: FloatingIPRange) -> Series:
    capacity = found.status.capacity
    if capacity is None:
        return
    for family, usage in ((Family.IPV4, capacity.ipv4), (Family.IPV6, capacity.ipv6)):
        states = ("used", "free", "quarantined") if usage.total else ()
        for state in (*states, "out_of_range"):
            yield (found.name, family.label, state), getattr(usage, state)


def _render_guests(fleet: OperatorState) -> Iterator[Metric]:
    floating_ips = fleet.floating_ips or ()
    ready = (find_condition(each.status.conditions, ConditionType.READY) for each in floating_ips)
    verdicts = Counter(each.status if each is not None else Verdict.UNKNOWN for each in ready)
    yield build_gauge(
        "fipop_floating_ips",
        "Floating IPs, by the status of their condition Ready.",
        ("ready",),
        (
            ((each.value,), verdicts[each])
            for each in (sorted(Verdict) if fleet.floating_ips is not None else ())
        ),
    )
    announced = (find_condition(each.status.conditions, ConditionType.ANNOUNCED) for each in floating_ips)
    found = Counter((each.status.value, each.reason) for each in announced if each is not None)
    yield build_gauge(
        "fipop_floating_ips_announced",
        "Floating IPs, by the status and the reason of their condition Announced.",
        ("verdict", "reason"),
        sorted(found.items()),
    )
    yield GaugeMetricFamily(
        "fipop_address_conflicts",
        "Floating IPs with an address that another guest cluster uses, too.",
        value=sum(bool(find_fault(each.status, CONFLICT)) for each in floating_ips),
    )
    yield GaugeMetricFamily(
        "fipop_guests_without_address",
        "Guest clusters whose label kube-vip is true and that have no address.",
        value=fleet.without_address,
    )
    yield build_gauge(
        "fipop_guest_info",
        "A guest cluster, what people call it, its workspace and its Harvester cluster; always 1.",
        ("guest", "cluster", "display_name", "workspace", "harvester_cluster"),
        (
            (
                (
                    guest.id,
                    guest.cluster_name,
                    clean(guest.display_name or guest.cluster_name, LONGEST_WORD),
                    guest.cluster.namespace,
                    clean(guest.harvester_cluster_name or "", LONGEST_WORD),
                ),
                1,
            )
            for guest, _ in fleet.guests
        ),
    )
    names = {True: "reachable", False: "unreachable", None: "unknown"}
    counts = Counter(names[_is_reachable(record)] for _, record in fleet.guests)
    yield build_gauge(
        "fipop_guests",
        "Guest clusters by the result of the last attempt.",
        ("state",),
        (((name,), counts[name]) for name in names.values()),
    )
    yield build_gauge(
        "fipop_guest_last_visit_timestamp_seconds",
        "Time of the last complete visit of a guest cluster.",
        ("guest", "guest_cluster"),
        (
            ((guest.id, guest.cluster_name), finished_at)
            for guest, record in fleet.guests
            if (finished_at := record.finished_at) is not None
        ),
    )
    yield build_gauge(
        "fipop_guest_demand_met",
        "Whether all Services of a guest cluster that wait have a floating IP, with the reason of DemandMet.",
        ("guest", "guest_cluster", "reason"),
        (
            (
                (guest.id, guest.cluster_name, demand.reason),
                demand.verdict is Verdict.TRUE,
            )
            for guest, record in fleet.guests
            if (demand := record.demand) is not None
        ),
    )


def _is_reachable(record: GuestRecord) -> bool | None:
    return record.observation.reachable if record.observation is not None else None


def _render_rollout(fleet: OperatorState) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "fipop_rollout_blocked",
        "Whether a configured chart is not available, so that guest clusters keep their releases.",
        value=fleet.rollout_blocked,
    )
    yield build_gauge(
        "fipop_rollout_guests",
        "Guest clusters that are opted in, by where they stand in the rollout.",
        ("phase",),
        (((phase,), number) for phase, number in sorted(fleet.rollout_guests.items())),
    )
    rollout = fleet.rollout
    yield build_gauge(
        "fipop_rollout_info",
        "The current or last rollout.",
        ("target", "state"),
        [((rollout.target.name, rollout.phase.value), 1)] if rollout is not None else [],
    )
