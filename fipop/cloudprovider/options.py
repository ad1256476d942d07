"""How the cloud provider is started: what its command line and its environment say."""

from __future__ import annotations

from dataclasses import dataclass, field

from fipop.cloudprovider.keepalived import KeepalivedOptions
from fipop.runtime.leader_election import LeaseTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseOptions:
    """The Lease that excludes the providers of a cluster; that of kube-vip-cloud-provider is the same."""

    name: str
    namespace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KubevipOptions:
    """Where the pools are, and whom they serve."""

    namespace: str = "kube-system"
    config_map: str = "kubevip"
    classes: frozenset[str] = frozenset({""})
    """The classes of Services that are served; "" stands for Services without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderOptions:
    """Everything that is fixed for the life of the process."""

    identity: str
    """Differs from that of every other process."""
    version: str
    lease: LeaseOptions | None
    """None: without election (`--leader-elect=false`)."""
    lease_times: LeaseTimes = field(default_factory=LeaseTimes)
    mode: KubevipOptions | KeepalivedOptions = field(default_factory=KubevipOptions)
    host: str | None = None
    port: int | None = 10258
    """The port of probes and metrics. None: they are not served."""
    writes_at_once: int = 16
    delete_stale_leases: bool = False
    """Delete the Leases that kube-vip leaves behind for Services that are gone."""

    @property
    def leases(self) -> tuple[LeaseOptions, ...]:
        """The Leases that this provider must hold to work, in the order in which it takes them."""
        own: tuple[LeaseOptions, ...] = ()
        if isinstance(self.mode, KubevipOptions):
            # Two providers of one ConfigMap would assign the same addresses, whatever classes they serve.
            own = (LeaseOptions(name=f"fipop-{self.mode.config_map}", namespace=self.mode.namespace),)
        return (*filter(None, [self.lease]), *own)
