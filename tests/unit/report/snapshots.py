"""Snapshots of small installations."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from fipop.kube.resources import MANAGEMENT_CLUSTERS, PROVISIONING_CLUSTERS
from fipop.report.snapshot import (
    SCHEMA_REVISIONS,
    DeploymentState,
    Installation,
    LeaderLease,
    Snapshot,
    Unread,
)
from tests.harness.objects import NOW, Json, count_ranges, inventory_of


def build_cluster(
    name: str,
    guest: str,
    *,
    opted_in: bool = True,
    namespace: str = "fleet-default",
    created: str = "2026-01-01T00:00:00Z",
    annotations: dict[str, str] | None = None,
    imported: bool = False,
) -> Json:
    return {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "creationTimestamp": created,
            "labels": {"kube-vip": "true"} if opted_in else {},
            "annotations": annotations or {},
        },
        "spec": {} if imported else {"rkeConfig": {}},
        "status": {"clusterName": guest},
    }


def healthy_installation(**changes: Any) -> Installation:
    fields: dict[str, Any] = {
        "namespace": "kube-fip",
        "leadership": LeaderLease(holder="fipop-1", renewed=NOW, duration_seconds=15.0),
        "workload": DeploymentState(image="fipop:0.1.0", service_account="fipop", wanted=2, ready=2),
        "schemas": dict(SCHEMA_REVISIONS),
        "has_settings": True,
    }
    return Installation(**(fields | changes))


def snapshot(  # noqa: PLR0913 - what is read of an installation
    *,
    ranges: list[Json] | None = None,
    floating_ips: list[Json] | None = None,
    reservations: list[Json] | None = None,
    clusters: list[Json] | None = None,
    management: Sequence[Json] = (),
    harvesters: Sequence[str] = (),
    installation: Installation | None = None,
    now: datetime = NOW,
    unread: tuple[Unread, ...] = (),
) -> Snapshot:
    """What was read of an installation whose operator wrote the statuses of the ranges."""
    counted = count_ranges(
        ranges or (), floating_ips or (), reservations or (), list(map(build_harvester, harvesters))
    )
    inventory = inventory_of(
        ranges=counted, floating_ips=floating_ips, reservations=reservations, reads_guests=False
    )
    for each in clusters or ():
        inventory.observe(PROVISIONING_CLUSTERS, each)
    for each in management:
        inventory.observe(MANAGEMENT_CLUSTERS, each)
    inventory.recall_reports(lambda _guest_id: True)
    return Snapshot(
        now=now, inventory=inventory, installation=installation or healthy_installation(), unread=unread
    )


def build_management(name: str, display_name: str, **labels: str) -> Json:
    """The management Cluster of a guest cluster."""
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "labels": labels},
        "spec": {"displayName": display_name, "fleetWorkspaceName": "fleet-default"},
        "status": {"provider": "k3s"},
    }


def build_harvester(name: str) -> Json:
    """A Harvester cluster as Rancher knows it."""
    return {
        "metadata": {
            "name": f"c-{name}",
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "labels": {"provider.cattle.io": "harvester"},
        },
        "spec": {"displayName": name},
        "status": {"provider": "harvester"},
    }
