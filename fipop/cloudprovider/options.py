"""How the cloud provider is started: what its command line and its environment say."""

from __future__ import annotations

from dataclasses import dataclass, field

from fipop.cloudprovider.keepalived import Method, Network
from fipop.runtime.leader_election import LeaseTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseOptions:
    """The Lease that the providers of a cluster exclude each other by; kube-vip-cloud-provider's is the same."""

    name: str
    namespace: str
    times: LeaseTimes = field(default_factory=LeaseTimes)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubevipOptions:
    """Where the pools stand; `class_name` is the class of the Services that are served, None: those without one."""

    namespace: str = "kube-system"
    config_map: str = "kubevip"
    class_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepalivedOptions:
    """Where the ConfigMap of keepalived stands; `network` None: only Services that ask for an address get one."""

    namespace: str = "kube-system"
    config_map: str = "vip-configmap"
    network: Network | None = None
    default_method: Method = Method.NAT


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderOptions:
    """Everything that is fixed for the life of the process; `lease` None: without election.

    `identity` tells this process from all others. With `delete_stale_leases` the Leases go that kube-vip leaves behind
    for Services that are gone.
    """

    identity: str
    version: str
    lease: LeaseOptions | None
    mode: KubevipOptions | KeepalivedOptions = field(default_factory=KubevipOptions)
    host: str | None = None
    port: int | None = 10258
    """The port of probes and metrics. None: they are not served."""
    writes_at_once: int = 16
    delete_stale_leases: bool = False
