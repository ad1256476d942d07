"""Sums up what a pass found of a guest's releases, as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fipop.api.objects import ReleaseStatus
from fipop.errors import FipopError
from fipop.guest.decisions import is_renamed
from fipop.guest.helm.charts import Role, WantedRelease
from fipop.guest.helm.releases import ReleaseState, Status
from fipop.guest.helm_turn import Outcome
from fipop.guest.observed import ObservedState
from fipop.guest.release_gate import ReleaseGate
from fipop.guest.reports import ConfigMapOutcome, ConfigMapReport, EventResult, ReleaseReport
from fipop.guest.workloads import Readiness, judge_readiness
from fipop.metrics.samples import GuestEvent

SOONEST_SECONDS = 2.0
"""How long pods that are about to start are given before they are looked at again."""

_EVENTS = {Role.KUBE_VIP: GuestEvent.KUBE_VIP_INSTALL, Role.CLOUD_PROVIDER: GuestEvent.CLOUD_PROVIDER_INSTALL}


def sum_up_release(
    wanted: WantedRelease,
    observed: ObservedState,
    outcome: Outcome | None,
    failure: FipopError | None,
    *,
    gate: ReleaseGate | None = None,
    failed_runs: int = 0,
) -> ReleaseReport:
    """Tell how one release stands, after what was done about it.

    `failure`: why helm failed when it ran last, which may be some passes ago: it rests in between. `gate`: what knows
    the targets that it is compared with. `failed_runs`: how often helm failed in a row.
    """
    outcome, gate = outcome or Outcome(), gate or ReleaseGate()
    error = outcome.error or observed.problems.get(wanted.role) or failure
    state = observed.managed.get(wanted.role)
    if state is None:
        return _report_absence(wanted, observed, outcome, error, failed_runs)
    readiness = judge_readiness(observed.workloads_of(wanted.role))
    if state.latest.status is not Status.DEPLOYED:
        readiness = Readiness(
            ready=False, message=f"release {'/'.join(state.latest.key)} is {state.latest.status.value}"
        )
    return ReleaseReport(
        release=_build_status(wanted.role, state),
        drift=outcome.drift,
        doubt=gate.problems.get(wanted.role, outcome.doubt),
        renamed=is_renamed(state, wanted),
        readiness=readiness,
        error=error,
        deployed_revision=state.deployed_revision,
        targets=frozenset(aim.target.name for aim in gate.known if aim.is_reached(wanted.role, state)),
        failed_runs=failed_runs,
        left_because=outcome.reason,
        beside=observed.beside(state),
    )


def _build_status(role: Role, state: ReleaseState) -> ReleaseStatus:
    return ReleaseStatus(
        role=role.value,
        name=state.latest.name,
        namespace=state.latest.namespace,
        revision=state.latest.revision,
        digest=state.latest.digest or "",
        version=state.chart_version,
        status=state.latest.status.value,
    )


def _report_absence(
    wanted: WantedRelease,
    observed: ObservedState,
    outcome: Outcome,
    error: FipopError | None,
    failed_runs: int,
) -> ReleaseReport:
    message = f"release {wanted.namespace}/{wanted.name} is not installed yet"
    unknown = observed.unknown.get(wanted.role)
    if unknown is not None:
        message = f"release {'/'.join(unknown.latest.key)} waits for its inspection by helm"
    elif outcome.awaits_helm:
        message += ": the guest cluster waits for a helm process"
    if error is not None:
        message = str(error)
    return ReleaseReport(
        release=ReleaseStatus(role=wanted.role.value, name=wanted.name, namespace=wanted.namespace),
        readiness=Readiness(ready=False, message=message),
        error=error,
        failed_runs=failed_runs,
    )


def waits_for_pods(observed: ObservedState, releases: Iterable[ReleaseReport]) -> list[float]:
    """Give when to look again at releases that are not ready: soon after a change often, later less and less."""
    return [
        max(SOONEST_SECONDS, observed.age_seconds(observed.managed[release.role]) / 2)
        for release in releases
        if not release.readiness.ready and release.role in observed.managed
    ]


def build_events(
    config_map: ConfigMapReport, outcomes: Mapping[Role, Outcome], *, reachable: bool
) -> tuple[EventResult, ...]:
    """Give the events of a pass: its connection always, the ConfigMap when it was written, installs when helm ran."""
    events = [EventResult(event=GuestEvent.API_CONNECTION, success=reachable)]
    if config_map.outcome in (ConfigMapOutcome.WRITTEN, ConfigMapOutcome.FAILED):
        written = config_map.outcome is ConfigMapOutcome.WRITTEN
        events.append(EventResult(event=GuestEvent.CONFIG_MAP, success=written))
    events += [
        EventResult(event=_EVENTS[role], success=outcome.error is None)
        for role, outcome in outcomes.items()
        if outcome.ran
    ]
    return tuple(events)
