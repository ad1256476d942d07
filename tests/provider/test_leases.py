"""One provider works for one ConfigMap: it holds two Leases, and ends if it loses one."""

from random import Random

import pytest

from fipop.cloudprovider.app import release_services
from fipop.cloudprovider.options import KubevipOptions, LeaseOptions, ProviderOptions
from fipop.errors import StartError
from tests.harness.api_in_memory import Link
from tests.harness.service_cluster import LEASE, SYSTEM, ServiceCluster
from tests.harness.virtual_time import VirtualClock

POOL = {"cidr-global": "10.0.0.1-10.0.0.9"}
OWN_LEASE = "fipop-kubevip"
CLASS = "example.org/edge"


async def release(cluster: ServiceCluster, *, lease: str | None = LEASE) -> list[str]:
    """Run `--release-services`; return what it printed."""
    shown: list[str] = []
    options = ProviderOptions(
        identity="releaser",
        version="0",
        lease=LeaseOptions(name=lease, namespace=SYSTEM) if lease is not None else None,
        mode=KubevipOptions(),
    )
    await release_services(
        options, api=lambda: Link(cluster.memory), clock=VirtualClock(), random=Random(1), show=shown.append
    )
    return shown


async def test_a_second_provider_of_the_same_config_map_waits_and_says_for_whom(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = ServiceCluster(POOL)
    with caplog.at_level("INFO"):
        first = await cluster.start(lease=LEASE)
        await cluster.start(lease="another", classes=frozenset({CLASS}))
    cluster.add("edge", loadBalancerClass=CLASS)
    await cluster.pass_time(60)
    assert cluster.addresses("edge") == ""
    waiting = [each.__dict__ for each in caplog.records if each.message == "Waiting for Lease"]
    assert [(each["lease"], each["holder"]) for each in waiting] == [
        (f"Lease {SYSTEM}/{OWN_LEASE}", first.name)
    ]
    await cluster.stop(first)
    await cluster.settle()
    assert cluster.addresses("edge") == "10.0.0.1"


async def test_one_provider_serves_several_classes() -> None:
    cluster = ServiceCluster(POOL)
    cluster.add()
    cluster.add("edge", loadBalancerClass=CLASS)
    cluster.add("theirs", loadBalancerClass="example.org/other")
    await cluster.start(classes=frozenset({"", CLASS}))
    assert sorted(cluster.addresses(name) for name in cluster.names()) == ["", "10.0.0.1", "10.0.0.2"]
    assert cluster.addresses("theirs") == ""


@pytest.mark.parametrize("name", [LEASE, OWN_LEASE])
async def test_a_provider_that_loses_a_lease_ends(name: str) -> None:
    cluster = ServiceCluster(POOL)
    running = await cluster.start(lease=LEASE)
    cluster.hold_lease("somebody", seconds=15, name=name)
    await cluster.pass_time(10)
    assert not running.is_alive
    assert isinstance(running.task.exception(), StartError)


async def test_without_election_a_provider_holds_the_lease_of_its_config_map() -> None:
    cluster = ServiceCluster(POOL)
    first = await cluster.start()
    await cluster.start()
    version = cluster.memory.version
    cluster.add()
    await cluster.pass_time(60)
    assert len(cluster.writes_of_services(version)) == 2, "the creation, and one assignment"
    assert cluster.memory.objects["leases", SYSTEM, OWN_LEASE]["spec"]["holderIdentity"] == first.name


async def test_release_takes_the_finalizer_off_the_services_with_addresses_and_names_them() -> None:
    cluster = ServiceCluster(POOL)
    cluster.add()
    cluster.add("static", a="192.0.2.1", loadBalancerIP="192.0.2.1")
    cluster.leave_behind("left", "10.0.0.5")
    cluster.add(
        "theirs", metadata={"finalizers": ["service.kubernetes.io/load-balancer-cleanup"]}, type="ClusterIP"
    )
    await cluster.start(lease=LEASE)
    await cluster.stop()
    before = {name: cluster.shown(name) for name in cluster.names()}
    assert await release(cluster) == ["shop/left", "shop/static", "shop/web"]
    expected = {
        name: {key: value for key, value in shown.items() if key != "F"} for name, shown in before.items()
    }
    assert {name: cluster.shown(name) for name in cluster.names()} == expected | {"theirs": {"F": True}}
    assert await release(cluster) == []


async def test_release_names_the_holder_of_a_lease_and_changes_nothing() -> None:
    cluster = ServiceCluster(POOL)
    cluster.add()
    running = await cluster.start(lease=LEASE)
    shown = cluster.shown()
    with pytest.raises(StartError, match=f"Lease {SYSTEM}/{LEASE} is held by {running.name}"):
        await release(cluster)
    assert cluster.shown() == shown
    with pytest.raises(StartError, match=f"Lease {SYSTEM}/{OWN_LEASE} is held by {running.name}"):
        await release(cluster, lease=None)
    await cluster.kill(running)
    assert await release(cluster) == ["shop/web"]
