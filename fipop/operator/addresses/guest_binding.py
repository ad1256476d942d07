"""Which guest a floating IP serves: its namespace decides, and nothing that a tenant may write."""

from __future__ import annotations


from fipop.api import names
from fipop.api.models import FloatingIP
from fipop.operator.addresses.values import Blocker
from fipop.operator.addresses.values import GuestBinding as GuestBinding
from fipop.rancher.discovery import choose_cluster
from fipop.state.cache import ClusterCache


def bind_guest(cache: ClusterCache, floating_ip: FloatingIP) -> GuestBinding:
    """Find the guest by the namespace alone; the annotation `clustername` can only object, never steer."""
    namespace = floating_ip.namespace
    cluster = choose_cluster(cache.guest_clusters(namespace), cache.management.get("", namespace))
    if cluster is None:
        message = (
            f'Namespace "{namespace}" belongs to no guest cluster: no Cluster names it in status.clusterName.'
        )
        return GuestBinding(cluster=None, blocker=Blocker(reason="GuestNotFound", message=message))
    if floating_ip.cluster is not None and floating_ip.cluster != cluster.name:
        message = (
            f'Annotation {names.ANNOTATION_CLUSTER} must be "{cluster.name}", the cluster of namespace {namespace}: it '
            f'is "{floating_ip.cluster[:253]}", so fipop writes no guest cluster. Correct or remove it.'
        )
        return GuestBinding(cluster=cluster, blocker=Blocker(reason="ClusterMismatch", message=message))
    return GuestBinding(cluster=cluster)
