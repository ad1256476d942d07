"""A fleet whose metrics are looked at."""

from dataclasses import fields, replace

from prometheus_client import CollectorRegistry, generate_latest

from fipop.addresses.guests import GuestObservation
from fipop.api.conditions import Condition, ConditionType, Verdict
from fipop.api.objects import (
    AddressCounts,
    Capacity,
    FloatingIP,
    FloatingIPRange,
    FloatingIPStatus,
    Metadata,
    RangeSpec,
    RangeStatus,
)
from fipop.guests.record import GuestRecord
from fipop.guests.services import MET
from fipop.helm.charts import Chart, Role, Target
from fipop.metrics import counters
from fipop.metrics.gauges import Gauges, build_registry
from fipop.operator.metrics import OperatorState, render_fleet
from fipop.rancher.matching import Guest
from fipop.rollout.plan import Rollout
from tests.harness.guests import build_guest

NONE = AddressCounts()
TARGET = Target(
    charts={role: Chart(role=role, url="https://charts.example", version="1.0.0") for role in Role},
    values={role: {} for role in Role},
)


def range_of(ipv4: AddressCounts = NONE, ipv6: AddressCounts = NONE) -> FloatingIPRange:
    """Return a range whose status has these counts."""
    whole = {
        name: getattr(ipv4, name) + getattr(ipv6, name)
        for name in (each.name for each in fields(AddressCounts))
    }
    ready = Condition(type=ConditionType.READY, status=Verdict.TRUE, reason="Ready")
    return replace(
        RANGE, status=RangeStatus(capacity=Capacity(ipv4=ipv4, ipv6=ipv6, **whole), conditions=(ready,))
    )


ANNOUNCED = Condition(type=ConditionType.ANNOUNCED, status=Verdict.TRUE, reason="Announced")
FLOATING_IP = FloatingIP(
    metadata=Metadata(name="demo-kubevip", namespace="c-m-1"),
    status=FloatingIPStatus(conditions=(ANNOUNCED,)),
)
RANGE = FloatingIPRange(
    metadata=Metadata(
        name="guest-vlan",
        annotations={"harvesterClusterName": "harv1", "harvesterNetworkName": "vlan10"},
    ),
    spec=RangeSpec(iprange="10.135.10.192/26"),
)


def guest_of(
    guest_id: str = "c-m-4xk8q2vz",
    cluster_name: str = "demo",
    harvester_cluster_name: str = "harv1",
    *,
    reachable: bool | None = True,
) -> tuple[Guest, GuestRecord]:
    """Return a guest cluster with what is remembered of it; one with `reachable` None was not tried yet."""
    guest = build_guest(guest_id, name=cluster_name, harvester_cluster_name=harvester_cluster_name)
    return guest, GuestRecord(
        guest=guest,
        observation=GuestObservation(reachable=reachable) if reachable is not None else None,
        finished_at=1.5e9,
        demand=MET,
    )


FLEET = OperatorState(
    version="1.2.3",
    leading=True,
    ranges=(range_of(AddressCounts(total=62, used=3, free=58, quarantined=1, out_of_range=2)),),
    floating_ips=(FLOATING_IP,),
    guests=(guest_of(),),
    queues={"guests": 7},
    bad_options=2,
    gate_is_open=True,
    rollout=Rollout(target=TARGET),
    rollout_guests={"pending": 9, "progressing": 2},
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


class Scraped:
    """A fleet that a test changes between two scrapes; nothing was counted yet."""

    def __init__(self) -> None:
        for each in COUNTERS:
            each.clear()
        self.fleet = FLEET
        self.registry: CollectorRegistry = build_registry(
            counters.REGISTRY, Gauges(lambda: render_fleet(self.fleet))
        )

    def render(self) -> str:
        """Return what a scrape shows."""
        return generate_latest(self.registry).decode()

    def lines(self, prefix: str) -> list[str]:
        """Return what a scrape shows of the metrics that begin so, without the comments."""
        return [line for line in self.render().splitlines() if line.startswith(prefix)]
