"""Harvester's own kube-vip in a guest cluster, which must stop while fipop's runs: they compete for a Lease and a port.

It is parked by a node selector that no node has, never deleted: the chart of RKE2 would bring it back.
"""

from __future__ import annotations

from collections.abc import Iterable

from fipop.helm.releases import Release, Status
from fipop.helm.workloads import HARVESTER_RELEASE, PARKED_LABEL, Workload
from fipop.jsons import Json


def find_harvester(daemon_sets: Iterable[Workload]) -> tuple[Workload, ...]:
    """Return the DaemonSets by which Harvester's cloud provider runs kube-vip."""
    return tuple(each for each in daemon_sets if each.release == HARVESTER_RELEASE and each.runs_kube_vip)


def is_back(daemon_sets: Iterable[Workload]) -> bool:
    """Whether Harvester's kube-vip can run again, so that fipop's can go; also if there is none."""
    return all(each.observed and not each.is_parked for each in find_harvester(daemon_sets))


def should_park(kube_vip: Release, *, removes: bool) -> bool | None:
    """Whether Harvester's has to be parked (True), or has to run (False); None if it stays as it is.

    fipop's takes over while it is deployed and its DaemonSet wants a node. Else Harvester's runs again: before fipop's
    is removed, and after that was removed by hand, unless another kube-vip runs instead.
    """
    if removes or (kube_vip.status is Status.ABSENT and not kube_vip.conflicting_workloads):
        return False
    if kube_vip.status is not Status.DEPLOYED or not any(each.observed for each in kube_vip.workloads):
        return None
    return any(each.observed and each.wanted > 0 for each in kube_vip.workloads)


def build_patch(harvester: Workload, *, park: bool) -> Json:
    """Return the merge patch that parks a DaemonSet, or gives it its pods back; 409 if it changed since."""
    return {
        "metadata": {"resourceVersion": harvester.resource_version},
        "spec": {"template": {"spec": {"nodeSelector": {PARKED_LABEL: "true" if park else None}}}},
    }
