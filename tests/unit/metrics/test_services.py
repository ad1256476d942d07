"""What a scrape shows of the cloud provider."""

from prometheus_client import generate_latest

from fipop.cloudprovider.cluster import PoolSample
from fipop.cloudprovider.metrics import (
    ASSIGNMENT_SECONDS,
    ASSIGNMENTS,
    REGISTRY,
    ServiceSnapshot,
    render_services,
)
from fipop.metrics.gauges import Gauges, build_registry


def test_the_pools_of_a_guest_are_shown_by_their_keys() -> None:
    pool = PoolSample(key="cidr-shop", family="IPv6", total=9, used=4)
    shown = ServiceSnapshot(leading=True, version="1.2.3", pools=(pool,), waiting=3, paused=2, bad_keys=1)
    ASSIGNMENTS.clear()
    ASSIGNMENTS.labels("PoolFull").inc()
    ASSIGNMENT_SECONDS.observe(0.2)
    text = generate_latest(build_registry(REGISTRY, Gauges(lambda: render_services(shown)))).decode()
    for line in (
        'fipop_service_pool_addresses{family="IPv6",key="cidr-shop"} 9.0',
        'fipop_service_pool_used{family="IPv6",key="cidr-shop"} 4.0',
        'fipop_service_pool_free{family="IPv6",key="cidr-shop"} 5.0',
        "fipop_services_waiting 3.0",
        "fipop_services_paused 2.0",
        "fipop_service_bad_keys 1.0",
        'fipop_service_assignments_total{result="PoolFull"} 1.0',
        "fipop_service_assignment_seconds_count ",
        "fipop_leader 1.0",
        'fipop_build_info{version="1.2.3"} 1.0',
    ):
        assert line in text
    assert "_created" not in text
