"""What is true at the moment of a scrape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from fipop.api.conditions import ConditionType, Verdict
from fipop.metrics.samples import FleetSnapshot, GuestSample, RangeSample, RolloutSample
from fipop.operator.addresses.ranges import build_conditions, describe_unknown_harvester
from fipop.operator.addresses.status import find_conflict
from fipop.operator.manager import Manager
from fipop.operator.rollout.controller import RolloutController
from fipop.state.cache import ClusterCache


def build_snapshot(cache: ClusterCache, manager: Manager | None) -> FleetSnapshot:
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
        )
