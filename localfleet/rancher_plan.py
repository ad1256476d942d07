"""What a guest that Rancher is to bring up shall look like, and the steps by which it comes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

GLOBAL_DATA = "cattle-global-data"
FLEET_DEFAULT = "fleet-default"
FLEET_LOCAL = "fleet-local"


class GuestKind(Enum):
    """How a guest came into Rancher."""

    HARVESTER = "machines made by Rancher on a Harvester cluster"
    OTHER_MACHINES = "machines made by Rancher elsewhere: no HarvesterConfig, no credential of Harvester's"
    CUSTOM = "machines that an administrator registered: no machine pools, lives on when removed"
    IMPORTED = (
        "a running cluster registered by a provisioning Cluster, as by Terraform: lives on when removed"
    )
    LEGACY = (
        "a running cluster registered by a management Cluster, as by Rancher's pages since 2.11: the provisioning "
        "Cluster has its name, `c-` and five characters, and its labels; lives on when removed"
    )


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
    rancher: tuple[int, int] = (2, 14)
    """Which Rancher makes the objects."""

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


class Step(Enum):
    """What Rancher does for a new guest, one thing at a time."""

    HARVESTER_CONFIG = "the machine configs"
    CREDENTIAL = "the cloud credential"
    PROVISIONING = "the provisioning Cluster"
    MANAGEMENT = "the management Cluster"
    NAMESPACE = "the namespace named after it"
    LINK = "status.clusterName of the provisioning Cluster"
    CONNECTED = "the agent's first call"
    KUBECONFIG = "the kubeconfig Secret"
    TOKEN = "the binding of its token"


REAL_ORDER = tuple(Step)
"""As the dashboard and Rancher's controllers do it. A test's order may leave steps out, too."""

_BEFORE = {Step.LINK: Step.PROVISIONING, Step.CONNECTED: Step.MANAGEMENT, Step.TOKEN: Step.KUBECONFIG}
"""What cannot be turned around: the second is a part of the first."""


@dataclass(slots=True, kw_only=True)
class Guest:
    """A guest as far as it has come. `changed_at` is the monotonic time of the last step taken for it."""

    plan: GuestPlan
    token: str
    done: set[Step] = field(default_factory=set)
    owner: dict[str, Any] | None = None
    is_connected: bool = False
    is_provisioned: bool = True
    """False while its machines boot: Rancher has its agent by then, and answers 503 for it."""
    changed_at: float = 0.0

    @property
    def name(self) -> str:
        """The name that people gave it."""
        return self.plan.name

    @property
    def cluster_id(self) -> str:
        """The management Cluster's name, which is also the name of its namespace."""
        return self.plan.cluster_id


def is_possible(order: Sequence[Step]) -> bool:
    """Whether Rancher's parts could take these steps in this order."""
    return all(
        later not in order or (first in order and order.index(first) < order.index(later))
        for later, first in _BEFORE.items()
    )
