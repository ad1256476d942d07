"""What is true at the moment of a scrape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from fipop.api.conditions import ConditionType, Verdict
from fipop.metrics.samples import FleetSnapshot, GuestSample, RangeSample, RolloutSample
from fipop.operator.addresses.ranges import build_conditions, describe_unknown_harvester
from fipop.operator.manager import Manager
from fipop.operator.rollout.controller import RolloutController
from fipop.state.cache import ClusterCache


def build_snapshot(cache: ClusterCache, manager: Manager | None) -> FleetSnapshot:
    """Read stores, allocations and observations; nothing is counted up or down, so nothing can drift.

    A standby, without a manager, knows the ranges and nothing of the guests.
    """
    snapshot = FleetSnapshot(
        ranges=tuple(_sample_ranges(cache, manager)),
        queue_depths=dict.fromkeys(("objects", "checks", "passes", "installs"), 0),
    )
    if manager is None:
        return snapshot
    queues = manager.queues
    return replace(
        snapshot,
        guests=tuple(_sample_guests(manager)),
        queue_depths={
            each.name: each.depth for each in (queues.objects, queues.checks, queues.passes, queues.installs)
        },
        withheld_releases=manager.mass_release.withheld(),
        ignored_claims=manager.reported.count_ignored(),
        floating_ips=_count_floating_ips(cache),
        gives_out=manager.gate.is_open(),
        install_queue=queues.installs.depth + queues.installs.active,
        rollout=_sample_rollout(manager.rollout),
        rollout_blocked=bool(manager.rollout.targets.problems),
    )


def _count_floating_ips(cache: ClusterCache) -> Mapping[str, int]:
    counts = {verdict.value: 0 for verdict in Verdict}
    for each in cache.floating_ips.all():
        ready = next((one for one in each.status.conditions if one.type is ConditionType.READY), None)
        counts[ready.verdict.value if ready is not None else Verdict.UNKNOWN.value] += 1
    return counts


def _sample_rollout(rollout: RolloutController) -> RolloutSample | None:
    state = rollout.state
    if state is None:
        return None
    return RolloutSample(target=state.target, state=state.phase.value, guests=rollout.count_guests())


def _sample_ranges(cache: ClusterCache, manager: Manager | None) -> Iterator[RangeSample]:
    waits = manager.gate.waits() if manager is not None else None
    for each in cache.ranges.all():
        ranges = cache.allocations.ranges
        ready, _ = build_conditions(each, cache.allocations, describe_unknown_harvester(cache, each))
        yield RangeSample(
            range=each,
            ready=ready,
            families=ranges.families(each.name),
            usage=ranges.usage(each.name),
            waits_for_guests=each.name in waits if waits is not None else None,
        )


def _sample_guests(manager: Manager) -> Iterator[GuestSample]:
    for _, state in manager.guests.states():
        if state.guest is None:
            continue
        yield GuestSample(
            guest=state.guest,
            reachable=state.observation.reachable if state.observation is not None else None,
            last_pass=state.schedule.finished_at,
        )
