"""What a cluster that Rancher is to bring up shall look like."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

GLOBAL_DATA = "cattle-global-data"
FLEET_DEFAULT = "fleet-default"
FLEET_LOCAL = "fleet-local"


class GuestKind(Enum):
    """How a guest came into Rancher."""

    HARVESTER = "machines made by Rancher on a Harvester cluster"
    OTHER_MACHINES = "machines made by Rancher elsewhere: no HarvesterConfig, no credential of Harvester's"
    IMPORTED = "a running cluster registered with Rancher: no machine pools, lives on when removed"
    LEGACY = "a mirror of an old management cluster: same name as that one, `c-` and five characters"


@dataclass(frozen=True, slots=True, kw_only=True)
class HarvesterCluster:
    """A Harvester cluster known to Rancher."""

    cluster_id: str
    display_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A cloud credential; with `names_cluster=False` only the kubeconfig inside tells the cluster."""

    name: str
    harvester: HarvesterCluster
    namespace: str = GLOBAL_DATA
    names_cluster: bool = True

    @property
    def reference(self) -> str:
        """What a provisioning Cluster says: with the namespace only for the global ones."""
        return f"{GLOBAL_DATA}:{self.name}" if self.namespace == GLOBAL_DATA else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestPlan:
    """All that decides a guest's objects.

    `networks` are the networkNames of its control-plane machines; `old_network_field` writes the first one as
    before Rancher 2.7.3; `worker_network` adds a second machine pool with another network.
    """

    name: str
    cluster_id: str
    kind: GuestKind = GuestKind.HARVESTER
    namespace: str = FLEET_DEFAULT
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    networks: Sequence[str] = ("default/vlan10",)
    old_network_field: bool = False
    worker_network: str | None = None
    credential: Credential | None = None
    credential_per_pool: bool = False

    @property
    def provisioning_name(self) -> str:
        """The provisioning Cluster's name."""
        return self.cluster_id if self.kind is GuestKind.LEGACY else self.name

    @property
    def kubeconfig_secret(self) -> str:
        """The name of the Secret through which the guest is reached."""
        return f"{self.provisioning_name}-kubeconfig"

    def machine_config(self, pool: str) -> str:
        """The name of a pool's HarvesterConfig."""
        return f"nc-{self.name}-{pool}"
