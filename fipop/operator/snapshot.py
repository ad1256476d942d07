"""What is true at the moment of a scrape."""

from __future__ import annotations

from fipop.metrics import FleetSnapshot, GuestSample, RangeSample
from fipop.operator.wiring import Controllers


def build_snapshot(
    controllers: Controllers, *, leading: bool, bad_options: int, predecessor_runs: bool
) -> FleetSnapshot:
    """Read stores, allocations and observations; nothing is counted up or down, so nothing can drift."""
    cache = controllers.cache
    ranges = []
    for each in cache.ranges.all():
        capacity = cache.allocations.capacity(each.name)
        whole = capacity.whole if capacity is not None else None
        ranges.append(
            RangeSample(
                name=each.name,
                iprange=each.iprange,
                harvester_cluster=each.harvester_cluster or "",
                harvester_network=each.harvester_network or "",
                capacity=whole.total if whole else 0,
                used=whole.used if whole else 0,
                quarantined=whole.quarantined if whole else 0,
                out_of_range=whole.out_of_range if whole else 0,
            )
        )
    guests = []
    for guest in controllers.guests.all():
        observation = controllers.guests.observation(guest.id)
        guests.append(
            GuestSample(
                guest=guest.id,
                cluster=guest.cluster_name,
                harvester_cluster=guest.harvester_cluster_name or "",
                reachable=observation.reachable if observation is not None else None,
                last_pass=controllers.pass_controller.last_pass_at(guest.id),
            )
        )
    return FleetSnapshot(
        leading=leading,
        ranges=tuple(ranges),
        guests=tuple(guests),
        queue_depths={"objects": controllers.work.depth, "passes": controllers.passes.depth},
        bad_options=bad_options,
        predecessor_runs=predecessor_runs,
        withheld_releases=controllers.mass_release.withheld(),
        ignored_claims=sum(controllers.scan.ignored.values()),
    )
