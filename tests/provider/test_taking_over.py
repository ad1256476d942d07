"""Taking over from kube-vip-cloud-provider: every Service keeps what it has; those that it served are not written."""

import pytest

from tests.harness.left_services import CHOSEN, LEFT
from tests.harness.service_cluster import LEASE, ServiceCluster

DATA = {"cidr-global": "10.0.0.1-10.0.0.9,2001:db8::1-2001:db8::9", "interface-global": "eth1"}


@pytest.mark.parametrize(("a", "requested", "spec"), CHOSEN.values(), ids=CHOSEN)
async def test_a_service_that_it_served_is_not_written(
    a: str, requested: str, spec: dict[str, object]
) -> None:
    cluster = ServiceCluster(DATA)
    cluster.leave_behind("web", a, requested=requested, **spec)
    version = cluster.memory.version
    await cluster.start()
    await cluster.pass_time(600)
    assert cluster.writes_of_services(version) == []


async def test_what_users_wrote_stays_whatever_it_is() -> None:
    cluster = ServiceCluster(DATA)
    for number, (a, requested, spec) in enumerate(LEFT.values()):
        cluster.leave_behind(f"web-{number}", a, requested=requested, **spec)
    before = {name: cluster.shown(name) for name in cluster.names()}
    await cluster.start()
    await cluster.pass_time(600)
    assert {name: cluster.shown(name) for name in cluster.names()} == before


async def test_a_new_service_gets_no_address_that_another_one_has() -> None:
    cluster = ServiceCluster(DATA)
    cluster.leave_behind("web", "10.0.0.1")
    cluster.add("legacy", loadBalancerIP="10.0.0.2", metadata={"labels": {"ipam-address": "10.0.0.2"}})
    cluster.leave_behind("outside", "192.0.2.7")
    cluster.add("new")
    await cluster.start()
    assert cluster.addresses("new") == "10.0.0.3"


async def test_the_lease_of_kube_vip_cloud_provider_is_waited_for() -> None:
    cluster = ServiceCluster(DATA)
    cluster.hold_lease("kvcp", seconds=15)
    cluster.add()
    await cluster.start(lease=LEASE, seconds=14)
    assert cluster.addresses() == ""
    await cluster.pass_time(26)
    assert cluster.addresses() == "10.0.0.1"
