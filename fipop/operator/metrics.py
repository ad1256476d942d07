"""The gauges of the operator, and what they are rendered from at the moment of a scrape.

The first three have the names and labels of kube-fip-operator, to the letter, and are the leader's alone.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from fipop.api.conditions import Condition, ConditionType, Verdict
from fipop.api.objects import FloatingIPRange
from fipop.guest.findings import Finding
from fipop.ipam.addresses import Family
from fipop.ipam.ranges import RangeUsage
from fipop.metrics.gauges import Row, Series
from fipop.operator.addresses.ranges import build_conditions, describe_unknown_harvester
from fipop.operator.addresses.status import find_conflict
from fipop.operator.manager import Manager
from fipop.operator.rollout.controller import RolloutController
from fipop.rancher.matching import Guest
from fipop.state.cache import ClusterCache

_LEGACY_RANGE_LABELS = ("fiprangename", "fiprange", "harvesterclustername", "harvesternetworkname")


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
    demand: Finding | None = None
    """Whether Services that wait get floating IPs; None if the range of the guest cluster has no `perGuest`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSample:
    """A rollout: the name of its target, its phase, and how many guests are at which step."""

    target: str
    state: str
    guests: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSnapshot:
    """What is true at the moment of a scrape; what the leader alone knows is empty on a standby."""

    version: str = ""
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
    without_address: int = 0
    """Guest clusters that are opted in and have no address."""
    gives_out: bool = False
    rollout: RolloutSample | None = None
    rollout_blocked: bool = False
    """Whether a chart that the options ask for cannot be had."""
    install_queue: int = 0
    """Guests that wait for helm, or have it."""
    last_answer: float | None = None
    """The Unix time when the API server last read an object for us."""


def build_snapshot(cache: ClusterCache, manager: Manager | None = None) -> FleetSnapshot:
    """Read stores, allocations and observations; nothing is counted up or down, so nothing can drift.

    A standby, without a manager, knows the ranges and nothing of the guests.
    """
    snapshot = FleetSnapshot(
        ranges=tuple(_sample_ranges(cache)),
        queue_depths=dict.fromkeys(("objects", "visits", "installs"), 0),
    )
    if manager is None:
        return snapshot
    queues = manager.queues
    return replace(
        snapshot,
        guests=tuple(_sample_guests(manager)),
        queue_depths={each.name: each.depth for each in (queues.objects, queues.visits, queues.installs)},
        floating_ips=_count_floating_ips(cache),
        address_conflicts=sum(bool(find_conflict(each.status)) for each in cache.floating_ips.all()),
        without_address=_count_without_address(cache),
        gives_out=manager.gate.is_open,
        install_queue=queues.installs.depth + queues.installs.active,
        rollout=_sample_rollout(manager.rollout),
        rollout_blocked=manager.rollout.problem is not None,
    )


def _count_floating_ips(cache: ClusterCache) -> Mapping[str, int]:
    counts = {verdict.value: 0 for verdict in Verdict}
    for each in cache.floating_ips.all():
        ready = next((one for one in each.status.conditions if one.type == ConditionType.READY), None)
        counts[ready.status.value if ready is not None else Verdict.UNKNOWN.value] += 1
    return counts


def _count_without_address(cache: ClusterCache) -> int:
    opted_in = {each.cluster_name for each in cache.clusters.all() if each.opted_in and not each.is_deleting}
    served = {each.namespace for each in cache.floating_ips.all() if each.status.addresses}
    return len(opted_in - {""} - served)


def _sample_rollout(rollout: RolloutController) -> RolloutSample | None:
    state = rollout.rollout
    if state is None:
        return None
    return RolloutSample(target=state.target.name, state=state.phase.value, guests=rollout.count_guests())


def _sample_ranges(cache: ClusterCache) -> Iterator[RangeSample]:
    usages = cache.ledger.count()
    for each in cache.ranges.all():
        usage, read = usages.get(each.name), cache.ledger.ranges.get(each.name)
        ready, _ = build_conditions(cache, each, usage, describe_unknown_harvester(cache, each))
        yield RangeSample(
            range=each,
            ready=ready,
            families=frozenset(read.pool.families if read is not None else ()),
            usage=usage,
        )


def _sample_guests(manager: Manager) -> Iterator[GuestSample]:
    for _, state in manager.guests.states():
        if state.guest is None:
            continue
        observation = None if manager.guests.is_leaving(state.guest.id) else state.visits.observation
        yield GuestSample(
            guest=state.guest,
            reachable=observation.reachable if observation is not None else None,
            last_visit=state.visits.finished_at,
            demand=state.demand.report.finding if state.demand.report is not None else None,
        )


def _number(
    name: str, documentation: str, value: Callable[[FleetSnapshot], float | None]
) -> Row[FleetSnapshot]:
    """Return the row of a single number, which is not shown while it is None."""

    def series(fleet: FleetSnapshot) -> Series:
        found = value(fleet)
        return [((), found)] if found is not None else []

    return Row(name, documentation, (), series)


def _legacy_capacity(fleet: FleetSnapshot) -> Series:
    for each in fleet.ranges if fleet.leading else ():
        yield _legacy_range(each.range), (each.usage or RangeUsage()).whole.total


def _legacy_reserved(fleet: FleetSnapshot) -> Series:
    for each in fleet.ranges if fleet.leading else ():
        usage = (each.usage or RangeUsage()).whole
        yield _legacy_range(each.range), usage.used + usage.quarantined


def _legacy_range(found: FloatingIPRange) -> tuple[str, ...]:
    return found.name, found.spec.iprange, found.harvester_cluster or "", found.harvester_network or ""


def _legacy_status(fleet: FleetSnapshot) -> Series:
    """Namesakes in two Rancher workspaces share a series (a text with two of it is illegal): up if all are."""
    reachable: dict[tuple[str, str], bool] = {}
    for each in fleet.guests if fleet.leading else ():
        if each.reachable is not None:
            key = each.guest.cluster_name, each.guest.harvester_cluster_name or ""
            reachable[key] = each.reachable and reachable.get(key, True)
    return reachable.items()


def _allocation_open(fleet: FleetSnapshot) -> float | None:
    # A leader that waits for the end of kube-fip-operator is not expected to assign anything.
    return float(fleet.gives_out) if fleet.leading and not fleet.predecessor_runs else None


def _guests(fleet: FleetSnapshot) -> Series:
    names = {True: "reachable", False: "unreachable", None: "unknown"}
    counts = Counter(names[each.reachable] for each in fleet.guests)
    return (((name,), counts[name]) for name in names.values())


def _addresses(fleet: FleetSnapshot) -> Series:
    for each in fleet.ranges:
        if each.usage is None:
            continue
        for family, usage in ((Family.IPV4, each.usage.ipv4), (Family.IPV6, each.usage.ipv6)):
            states = ("used", "free", "quarantined") if family in each.families else ()
            for state in (*states, "out_of_range"):
                yield (each.range.name, family.label, state), getattr(usage, state)


ROWS: tuple[Row[FleetSnapshot], ...] = (
    Row(
        "kubefipoperator_fipranges_capacity",
        "Addresses that a floating IP range can assign in total.",
        _LEGACY_RANGE_LABELS,
        _legacy_capacity,
    ),
    Row(
        "kubefipoperator_fipranges_reserved",
        "Addresses of a floating IP range that are held or in quarantine.",
        _LEGACY_RANGE_LABELS,
        _legacy_reserved,
    ),
    Row(
        "kubefipoperator_guestcluster_status",
        "Whether a guest cluster is reachable.",
        ("guestclustername", "harvesterclustername"),
        _legacy_status,
    ),
    _number("fipop_leader", "Whether this process leads.", lambda fleet: float(fleet.leading)),
    _number(
        "fipop_settings_bad_options",
        "Options of kube-fip-config that have an invalid value.",
        lambda fleet: fleet.bad_options,
    ),
    _number(
        "fipop_predecessor_running",
        "Whether kube-fip-operator has replicas, so that fipop is idle.",
        lambda fleet: float(fleet.predecessor_runs) if fleet.leading else None,
    ),
    _number(
        "fipop_allocation_open",
        "Whether the guest clusters were read since the start, so that fipop assigns new addresses.",
        _allocation_open,
    ),
    _number(
        "fipop_api_last_answer_timestamp_seconds",
        "Time of the last successful read from the API server of the management cluster.",
        lambda fleet: fleet.last_answer,
    ),
    Row(
        "fipop_floating_ips",
        "Floating IPs, by the status of their condition Ready.",
        ("ready",),
        lambda fleet: (((ready,), number) for ready, number in sorted(fleet.floating_ips.items())),
    ),
    _number(
        "fipop_address_conflicts",
        "Floating IPs with an address that another guest cluster uses, too.",
        lambda fleet: fleet.address_conflicts,
    ),
    _number(
        "fipop_guests_without_address",
        "Guest clusters that are opted in and have no address.",
        lambda fleet: fleet.without_address,
    ),
    Row(
        "fipop_queue_depth",
        "Keys that wait in a work queue.",
        ("queue",),
        lambda fleet: (((queue,), keys) for queue, keys in sorted(fleet.queue_depths.items())),
    ),
    _number(
        "fipop_install_queue",
        "Guest clusters that wait for helm or run it.",
        lambda fleet: fleet.install_queue,
    ),
    _number(
        "fipop_rollout_blocked",
        "Whether a configured chart is not available, so that guest clusters keep their releases.",
        lambda fleet: float(fleet.rollout_blocked),
    ),
    Row(
        "fipop_rollout_guests",
        "Guest clusters that are opted in, by where they stand in the rollout.",
        ("phase",),
        lambda fleet: (
            ((phase,), number)
            for phase, number in sorted(fleet.rollout.guests.items() if fleet.rollout is not None else ())
        ),
    ),
    Row(
        "fipop_rollout_info",
        "The current or last rollout.",
        ("target", "state"),
        lambda fleet: [((fleet.rollout.target, fleet.rollout.state), 1)] if fleet.rollout is not None else [],
    ),
    Row("fipop_guests", "Guest clusters by the result of the last attempt.", ("state",), _guests),
    Row(
        "fipop_guest_last_visit_timestamp_seconds",
        "Time of the last complete visit of a guest cluster.",
        ("guest", "guest_cluster"),
        lambda fleet: (
            ((each.guest.id, each.guest.cluster_name), each.last_visit)
            for each in fleet.guests
            if each.last_visit is not None
        ),
    ),
    Row(
        "fipop_guest_demand_met",
        "Whether all Services of a guest cluster that wait have a floating IP, with the reason of DemandMet.",
        ("guest", "guest_cluster", "reason"),
        lambda fleet: (
            (
                (each.guest.id, each.guest.cluster_name, each.demand.reason),
                each.demand.verdict is Verdict.TRUE,
            )
            for each in fleet.guests
            if each.demand is not None
        ),
    ),
    Row(
        "fipop_range_addresses",
        "Addresses of a range by family and state; used + free + quarantined is the capacity of the family.",
        ("range", "family", "state"),
        _addresses,
    ),
    Row(
        "fipop_range_ready",
        "Whether a range can assign addresses, with the reason of its condition Ready.",
        ("range", "reason"),
        lambda fleet: (
            ((each.range.name, each.ready.reason), float(each.ready.is_true)) for each in fleet.ranges
        ),
    ),
    Row(
        "fipop_build_info",
        "Version of fipop.",
        ("version", "python"),
        lambda fleet: [((fleet.version, platform.python_version()), 1)],
    ),
)
"""The gauges of the operator."""
