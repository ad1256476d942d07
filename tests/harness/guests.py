"""Guest clusters as values."""

from datetime import UTC, datetime
from typing import Any

from fipop.api.objects import Metadata
from fipop.rancher.matching import Guest
from fipop.rancher.objects import MachinePool, ProvisioningCluster

START = datetime(2026, 1, 1, tzinfo=UTC)

HARVESTER_POOL = MachinePool(
    is_control_plane=True, is_on_harvester=True, config_name="nc-demo", credential=""
)


def build_cluster(
    guest_id: str, *, name: str = "demo", created: datetime = START, **fields: Any
) -> ProvisioningCluster:
    """Return the provisioning Cluster of a guest cluster, which is on Harvester if `pools` say so."""
    meta = Metadata(
        namespace="fleet-default",
        name=name,
        uid=f"uid-{name}",
        resource_version=1,
        creation_timestamp=created,
    )
    defaults: dict[str, Any] = {
        "labels": {},
        "paused": False,
        "wants_floating_ip": True,
        "credential": "",
        "is_imported": False,
        "pools": (),
    }
    return ProvisioningCluster(metadata=meta, cluster_name=guest_id, **{**defaults, **fields})


def build_guest(
    guest_id: str = "c-m-1",
    *,
    harvester_cluster_name: str | None = None,
    networks: tuple[str, ...] = (),
    **cluster: Any,
) -> Guest:
    """Return a guest cluster that Rancher is connected to; the rest is of its provisioning Cluster."""
    return Guest(
        cluster=build_cluster(guest_id, **cluster),
        connected=True,
        deleting=False,
        harvester_cluster_name=harvester_cluster_name,
        networks=networks,
    )
