"""What a pass over a guest is asked, and what it tells."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fipop.api.objects import FloatingIP, ReleaseStatus
from fipop.errors import ApiError, FipopError
from fipop.guest.configmap.keys import Contradiction
from fipop.guest.configmap.plan import BlockedKey
from fipop.guest.errors import ChartError, HelmError, InstallBlockedError, ReleaseRecordError
from fipop.guest.helm.charts import Role
from fipop.guest.in_use import InUseAddresses
from fipop.guest.release_gate import ReleaseGate
from fipop.guest.release_memory import ReleaseMemory
from fipop.guest.workloads import Readiness
from fipop.metrics.samples import GuestEvent
from fipop.rancher.matching import Guest
from fipop.settings.options import Settings

_LASTING = (ChartError, HelmError, ReleaseRecordError, InstallBlockedError)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestTask:
    """One visit of a guest, by what was known when it began. Addresses are in canonical form.

    `opted_in`: fipop keeps releases there. `floating_ips`: those that hold addresses. `granted`: every address that the
    ledger gives this guest; `retired`: those it gave and keeps in quarantine, to be cleaned out of the guest.
    `before_write` is asked right before addresses are written, after the guest was read: whether the reservations
    are still ours, live, and so is the lead. A write that does not follow at once does not follow at all.
    `on_objects` hears which addresses ConfigMaps and Services use, before anything is written and after that;
    `on_machines` those of its machines, or is None if they are not to be read.
    `withheld`: addresses that are not added, unless the guest cluster uses them; `frozen`: keys with one of them
    stay as they are.
    `settings` have the charts and values of the gate's aim. `on_helm` hears when helm begins to change a release.
    `leaving`: it is looked for releases of ours, as it is to have none; `may_remove`: they are uninstalled. Without
    `may_run_helm` the visit only tells whether helm is to be run.
    `reported`: the releases that the status of its floating IPs names, as (namespace, name).
    `memory`: what is remembered about its releases between passes; a pass adds to it.
    """

    guest: Guest
    kubeconfig: bytes = field(default=b"", repr=False)
    opted_in: bool
    floating_ips: tuple[FloatingIP, ...]
    granted: frozenset[str]
    retired: frozenset[str] = frozenset()
    withheld: frozenset[str] = frozenset()
    frozen: frozenset[str] = frozenset()
    settings: Settings
    before_write: Callable[[], Awaitable[bool]]
    gate: ReleaseGate = field(default_factory=ReleaseGate)
    on_objects: Callable[[InUseAddresses], None] = lambda _found: None
    on_machines: Callable[[InUseAddresses], None] | None = None
    on_helm: Callable[[], None] = lambda: None
    leaving: bool = False
    may_remove: bool = False
    may_run_helm: bool = True
    reported: frozenset[tuple[str, str]] = frozenset()
    memory: ReleaseMemory = field(default_factory=ReleaseMemory, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventResult:
    """One event of a pass, with how it ended."""

    event: GuestEvent
    success: bool


class ConfigMapOutcome(StrEnum):
    """What a pass did about the guest's ConfigMap."""

    NOT_TRIED = "not tried"
    UNCHANGED = "unchanged"
    WRITTEN = "written"
    WITHHELD = "withheld"
    """`before_write` said no: nothing was written."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMapReport:
    """How the guest's ConfigMap stands after a pass; `changed` names keys that were set or removed."""

    outcome: ConfigMapOutcome = ConfigMapOutcome.NOT_TRIED
    changed: tuple[str, ...] = ()
    blocked: tuple[BlockedKey, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()
    error: FipopError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseReport:
    """How one release stands.

    `release`: what the status of the guest's floating IPs shows of it. `drift`: how it differs from what is wanted,
    where that is left so; `doubt`: why the wanted chart cannot be had. `renamed`: it keeps a name or namespace that the
    settings no longer name. `error`: why the last attempt, or the look at it, failed. `deployed_revision`: the one that
    helm calls deployed. `targets`: names of those that it is at. `failed_runs`: how often helm failed for it in a row.
    `left_because`: the condition's reason where the rollout's gate leaves a drift as it is. `beside`: other releases
    that run the same program.
    """

    release: ReleaseStatus
    drift: str = ""
    doubt: ChartError | None = None
    renamed: bool = False
    readiness: Readiness
    error: FipopError | None = None
    deployed_revision: int = 0
    targets: frozenset[str] = frozenset()
    failed_runs: int = 0
    left_because: str = ""
    beside: tuple[str, ...] = ()

    @property
    def role(self) -> Role:
        """What the release is for."""
        return Role(self.release.role)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassReport:
    """What a pass found and did.

    `retry_after_seconds`: when to come again, if that is sooner than the interval. `error`: the first that ended the
    pass or kept it from a part of its work.
    `checked`: a deep look for deleted objects, where it was wanted, does not wait for helm any more.
    `awaits_helm`: the guest wants a pass that may run helm. `restarts`: by uid of a pod of the releases, how often its
    containers restarted; None where they were not looked at. `is_back`: nothing is left of what it goes back from.
    `has_ours`: whether releases by fipop are there; None where they were not looked for.
    """

    reachable: bool
    error: FipopError | None
    config_map: ConfigMapReport
    releases: tuple[ReleaseReport, ...]
    events: tuple[EventResult, ...]
    retry_after_seconds: float | None
    checked: bool = True
    awaits_helm: bool = False
    restarts: Mapping[str, int] | None = None
    is_back: bool = False
    has_ours: bool | None = None

    @property
    def mends_soon(self) -> bool:
        """Whether what failed may be over in a moment, so that it is worth coming back before the interval.

        What only people mend, or what has a time of its own (a chart, helm), is not.
        """
        if isinstance(self.error, ApiError):
            return not self.error.is_lasting
        return self.error is not None and not isinstance(self.error, _LASTING)
