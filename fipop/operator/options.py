"""How the operator is started: what its command line says."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fipop.api import names
from fipop.kube.connection import Connection
from fipop.runtime.leader_election import LeaseTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorOptions:
    """Everything that is fixed for the life of the process; kube-fip-config holds the rest.

    `crds` is the folder with our CRDs: the cluster's are compared with them and, with `update_crds`, brought up to
    date. `identity` tells this process from all others.
    """

    connection: Connection
    identity: str
    version: str
    namespace: str = names.OPERATOR_NAMESPACE
    health_host: str | None = None
    health_port: int = 8081
    settings_defaults: Path | None = None
    crds: Path | None = None
    update_crds: bool = True
    leader_election: bool = True
    lease_times: LeaseTimes = field(default_factory=LeaseTimes)
    allow_loopback_guests: bool = False
    helm: str | None = None
    pass_concurrency: int = 64
    resync_seconds: float = 300.0
