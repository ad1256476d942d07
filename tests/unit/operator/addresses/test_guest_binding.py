"""The namespace of a floating IP tells its guest; what a tenant may write can only object."""

from typing import Any

import pytest

from fipop.kube.resources import PROVISIONING_CLUSTERS
from fipop.operator.addresses.guest_binding import bind_guest
from fipop.state.cache import ClusterCache
from tests.harness.objects import cache_of, floating_ip


def build_cluster(name: str, cluster_name: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "fleet-default",
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "status": {"clusterName": cluster_name},
    }


def cache_with_clusters(*clusters: dict[str, Any]) -> ClusterCache:
    cache = cache_of()
    for cluster in clusters:
        cache.observe(PROVISIONING_CLUSTERS, cluster)
    return cache


@pytest.mark.parametrize("annotations", [{}, {"clustername": "demo"}])
def test_the_guest_is_the_cluster_whose_namespace_it_is(annotations: dict[str, str]) -> None:
    cache = cache_with_clusters(build_cluster("demo", "c-m-1"), build_cluster("shop", "c-m-2"))
    binding = bind_guest(cache, floating_ip(annotations=annotations))
    assert (binding.cluster_name, binding.blocker) == ("demo", None)


def test_an_annotation_can_object_to_the_guest_and_never_choose_another() -> None:
    cache = cache_with_clusters(build_cluster("demo", "c-m-1"), build_cluster("shop", "c-m-2"))
    binding = bind_guest(cache, floating_ip(annotations={"clustername": "shop"}))
    assert binding.cluster_name == "demo"
    assert binding.blocker is not None
    assert binding.blocker.reason == "ClusterMismatch"


def test_a_namespace_of_no_cluster_has_no_guest() -> None:
    binding = bind_guest(cache_with_clusters(build_cluster("shop", "c-m-2")), floating_ip())
    assert binding.blocker is not None
    assert (binding.cluster_name, binding.blocker.reason) == ("", "GuestNotFound")
