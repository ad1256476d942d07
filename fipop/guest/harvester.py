"""Harvester's own kube-vip in a guest, which must stand still once ours runs: they fight for one Lease and port.

It is parked by a node selector that no node has, never deleted: RKE2's chart would bring it back.
"""

from __future__ import annotations

from collections.abc import Iterable

from fipop.guest.helm.charts import HARVESTER_RELEASE, Role
from fipop.guest.workloads import DAEMON_SET, Workload
from fipop.jsons import Json

PARKED_LABEL = "node-role.kubernetes.io/harvester-kube-vip-disabled"
"""As kube-fip-operator does: a guest that it has parked is parked."""

_NAME = "kube-vip"


def find_harvester(workloads: Iterable[Workload]) -> tuple[Workload, ...]:
    """Give the DaemonSets by which Harvester's cloud provider runs kube-vip."""
    return tuple(
        workload
        for workload in workloads
        if workload.kind == DAEMON_SET
        and workload.release is not None
        and workload.release[1] == HARVESTER_RELEASE
        and (workload.name == _NAME or Role.KUBE_VIP in workload.roles)
    )


def is_parked(workload: Workload) -> bool:
    """Whether the DaemonSet has the node selector that parks it."""
    return (PARKED_LABEL, "true") in workload.node_selector


def needs_parking(harvester: Workload, ours: Iterable[Workload], *, deployed: bool) -> bool:
    """Whether Harvester's DaemonSet is to be parked now: ours is deployed and wants at least one node, not before."""
    takes_over = deployed and any(one.observed and one.wanted > 0 for one in ours if one.kind == DAEMON_SET)
    return takes_over and not is_parked(harvester)


def build_parking_patch(harvester: Workload) -> Json:
    """Give the merge patch that parks it; 409 when it changed since it was read."""
    return _build_patch(harvester, "true")


def build_unparking_patch(harvester: Workload) -> Json:
    """Give the merge patch that gives it its pods back."""
    return _build_patch(harvester, None)


def _build_patch(harvester: Workload, value: str | None) -> Json:
    return {
        "metadata": {"resourceVersion": harvester.resource_version},
        "spec": {"template": {"spec": {"nodeSelector": {PARKED_LABEL: value}}}},
    }
