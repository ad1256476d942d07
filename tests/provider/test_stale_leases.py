"""Leases that kube-vip left behind are deleted: only its own, of Services that are gone, not renewed for an hour."""

import pytest

from tests.harness.service_cluster import ServiceCluster

AN_HOUR, A_WHILE = 3700, 1200


@pytest.mark.parametrize(
    ("name", "namespace", "seconds", "is_deleted"),
    [
        ("kubevip-gone", "shop", AN_HOUR, True),
        ("kubevip-web", "lab", AN_HOUR, True),
        ("kubevip-gone", "shop", A_WHILE, False),
        ("kubevip-web", "shop", AN_HOUR, False),
        ("kube-controller-manager", "shop", AN_HOUR, False),
        ("plndr-svcs-lock", "shop", AN_HOUR, False),
    ],
)
async def test_a_lease_is_deleted_with_its_service(
    name: str, namespace: str, seconds: int, is_deleted: bool
) -> None:
    cluster = ServiceCluster({})
    cluster.add()
    cluster.hold_lease("node-1", name=name, namespace=namespace, seconds=5)
    await cluster.pass_time(seconds)
    await cluster.start(delete_stale_leases=True)
    assert (("leases", namespace, name) not in cluster.memory.objects) is is_deleted


async def test_a_lease_that_was_never_renewed_stays() -> None:
    cluster = ServiceCluster({})
    cluster.add()
    key = ("leases", "shop", "kubevip-gone")
    cluster.memory.put(key, {"metadata": {}, "spec": {}})
    await cluster.pass_time(AN_HOUR)
    await cluster.start(delete_stale_leases=True)
    assert key in cluster.memory.objects
