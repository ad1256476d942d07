"""A fleet whose metrics are looked at."""

from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest

from fipop.api.conditions import Condition, ConditionType, Verdict
from fipop.api.objects import FloatingIPRange, Metadata, RangeSpec
from fipop.ipam.addresses import Family
from fipop.ipam.ranges import RangeUsage, Usage
from fipop.metrics import counters
from fipop.metrics.gauges import GaugeTable, build_registry
from fipop.operator.demand.plan import MET
from fipop.operator.metrics import ROWS, FleetSnapshot, GuestSample, RangeSample, RolloutSample
from tests.harness.guests import build_guest


def usage_of(ipv4: Usage, ipv6: Usage) -> RangeUsage:
    """Return the usage of a range by that of its families."""
    return RangeUsage(Usage(*map(sum, zip(ipv4, ipv6, strict=True))), ipv4, ipv6)


RANGE = RangeSample(
    range=FloatingIPRange(
        metadata=Metadata(
            name="guest-vlan",
            annotations={"harvesterClusterName": "harv1", "harvesterNetworkName": "vlan10"},
        ),
        spec=RangeSpec(iprange="10.135.10.192/26"),
    ),
    ready=Condition(type=ConditionType.READY, status=Verdict.TRUE, reason="Ready"),
    families=frozenset({Family.IPV4}),
    usage=usage_of(Usage(used=3, free=58, quarantined=1, out_of_range=2), Usage()),
)


GUEST = GuestSample(
    guest=build_guest("c-m-4xk8q2vz", harvester_cluster_name="harv1"),
    reachable=True,
    last_visit=1.5e9,
    demand=MET,
)


def another_guest(
    guest_id: str = "c-m-4xk8q2vz", cluster_name: str = "demo", harvester_cluster_name: str = "harv1"
) -> GuestSample:
    """Return the guest under other names."""
    guest = build_guest(guest_id, name=cluster_name, harvester_cluster_name=harvester_cluster_name)
    return replace(GUEST, guest=guest)


FLEET = FleetSnapshot(
    version="1.2.3",
    leading=True,
    ranges=(RANGE,),
    guests=(GUEST,),
    queue_depths={"guests": 7},
    bad_options=2,
    floating_ips={"True": 3, "False": 1, "Unknown": 0},
    gives_out=True,
    install_queue=12,
    rollout=RolloutSample(target="c0ffee", state="Progressing", guests={"pending": 9, "progressing": 2}),
    last_answer=1.5e9,
)


COUNTERS = (
    counters.QUEUE_WAIT_SECONDS,
    counters.RECONCILE_SECONDS,
    counters.RECONCILE_ERRORS,
    counters.VISIT_SECONDS,
    counters.ALLOCATIONS,
    counters.RELEASES,
    counters.API_REQUESTS,
    counters.API_SECONDS,
    counters.HELM_RUNS,
    counters.GUEST_EVENTS,
)


class Fleet:
    """A fleet that a test changes between two scrapes; nothing was counted yet."""

    def __init__(self) -> None:
        for each in COUNTERS:
            each.clear()
        self.snapshot = FLEET
        self.registry: CollectorRegistry = build_registry(
            counters.REGISTRY, GaugeTable(ROWS, lambda: self.snapshot)
        )

    def render(self) -> str:
        """Return what a scrape shows."""
        return generate_latest(self.registry).decode()

    def lines(self, prefix: str) -> list[str]:
        """Return what a scrape shows of the metrics that begin so, without the comments."""
        return [line for line in self.render().splitlines() if line.startswith(prefix)]
