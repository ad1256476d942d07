"""What a visit of a guest cluster found, as the conditions of its floating IPs report it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from fipop.addresses.guests import LEAVING, FloatingIPName, GuestObservation
from fipop.api import names
from fipop.api.conditions import ConditionContent, Verdict
from fipop.api.objects import ReleaseStatus
from fipop.errors import ApiError, FipopError
from fipop.guests.access import KubeconfigMissingError, NotConnectedError
from fipop.guests.config_map import ConfigMapResult, Outcome, describe_hidden
from fipop.guests.desired import DesiredState
from fipop.guests.record import GuestRecord
from fipop.guests.release_plan import Step
from fipop.guests.takers import Taker, is_affected
from fipop.guests.visit_state import Visit
from fipop.helm.charts import Role, wanted_overrides
from fipop.helm.errors import ChartError
from fipop.helm.releases import Release, ReleaseOwner, Status, find_places
from fipop.rancher.matching import Guest, find_name_hint
from fipop.rollout.plan import ReleaseGoal
from fipop.settings.options import Settings
from fipop.texts import sentence

PROVISIONING = "GuestProvisioning"
IN_TRANSIT = frozenset({PROVISIONING, LEAVING})
"""Reasons of guest clusters that Rancher is making or removing: no action is needed."""
LABELS_CHANGE = "LabelsChange"
POOL_IGNORED = "PoolIgnored"

_LEFT = {
    "Drift": "kubevipUpdate is false, or the rollout stopped: see fipop rollout status",
    "RolloutPending": "The rollout has not reached this guest cluster: see fipop rollout status",
    "RolloutPaused": f"ConfigMap {names.SETTINGS_CONFIG_MAP} pauses rollouts: see fipop rollout status",
    "RolledBack": "The rollout failed in this guest cluster and was rolled back: see fipop rollout status",
}
"""Why a release that differs or is missing is left as it is, and what to do."""
_NAMED = 3
"""The most other workloads that a message names."""


def describe_visit(
    visit: Visit,
    desired: DesiredState,
    settings: Settings,
    *,
    mismatches: Mapping[FloatingIPName, str],
    problem: ChartError | None,
    held_up: str,
) -> GuestObservation:
    """Return what a visit found.

    `mismatches`: how interfaces contradict Harvester's map. `problem`: why charts cannot be had. `held_up`: why nothing
    is changed anywhere.
    """
    if visit.is_booting:
        return _provisioning(installs=desired.keeps)
    observed, error = visit.observed, visit.parking.first
    unparked = error if isinstance(error, ApiError) and error.is_refusal else None
    written = replace(visit.written, error=visit.written.error or unparked)
    is_bare = desired.removes and observed is not None and observed.cloud_provider.status is Status.ABSENT
    finalizers = sum(each.has_finalizer for each in visit.services) if is_bare else 0
    pools = {each.key: each.spec.pool for each in desired.floating_ips if visit.record.ignores_pools}
    conditions: dict[Role, ConditionContent] = {}
    if desired.keeps and visit.unseen is not None:
        conditions = dict.fromkeys(Role, judge_unseen(visit.unseen))
    elif desired.keeps:
        conditions = judge_releases(
            visit.steps,
            visit.goal,
            visit.record,
            settings,
            guest=visit.guest,
            problem=problem,
            held_up=held_up,
        )
    return GuestObservation(
        reachable=True,
        configured={
            name: judge_config_map(
                name, written, mismatch=mismatch, finalizers=finalizers, ignored_pool=pools.get(name, "")
            )
            for name, mismatch in mismatches.items()
        },
        served=desired.served,
        announced=_list_announced(visit),
        conditions=conditions,
        releases=tuple(describe_status(each) for each in observed.releases if desired.keeps or each.revision)
        if observed is not None
        else None,
    )


def describe_failure(visit: Visit, error: FipopError, desired: DesiredState) -> GuestObservation:
    """Return what is known of a guest cluster that could not be visited."""
    is_expected, is_made = visit.expects(error), visit.guest.provisioned
    if visit.is_provisioning and (is_expected or not is_made):
        return _provisioning(installs=desired.keeps)
    reason = "GuestUnreachable"
    if isinstance(error, NotConnectedError):
        reason = "GuestDisconnected"
    elif isinstance(error, KubeconfigMissingError):
        reason = "KubeconfigMissing"
    found = _unreachable(reason, str(visit.explain(error)), installs=desired.keeps)
    return replace(found, served=desired.served, announced=_list_announced(visit))


def _list_announced(visit: Visit) -> dict[FloatingIPName, ConditionContent]:
    found = visit.record.announced_states.items()
    return {key: state.shown for key, state in found if state.shown is not None}


def describe_status(release: Release) -> ReleaseStatus:
    """Return a release as the status of a floating IP shows it."""
    return ReleaseStatus(
        role=release.role.value,
        name=release.name,
        namespace=release.namespace,
        revision=release.revision,
        digest=release.digest,
        version=release.version,
        status=release.status.value if release.revision else "",
    )


def judge_config_map(
    name: FloatingIPName,
    result: ConfigMapResult,
    *,
    mismatch: str = "",
    finalizers: int = 0,
    ignored_pool: str = "",
) -> ConditionContent:
    """Judge the ConfigMap for one floating IP.

    `mismatch`: how its interface contradicts Harvester's map. `finalizers`: how many Services wait for a provider that
    is gone. `ignored_pool`: its pool, if the provider knows none.
    """
    if result.error is not None:
        return ConditionContent(
            verdict=Verdict.FALSE, reason="WriteFailed", message=sentence(str(result.error))
        )
    if result.outcome is Outcome.WITHHELD:
        message = "No address was written to the guest cluster: its reservation is not confirmed yet."
        return ConditionContent(verdict=Verdict.FALSE, reason="OwnershipUnconfirmed", message=message)
    blocked = [key for key, floating_ips in result.blocked.items() if name in floating_ips]
    if blocked:
        message = (
            f"ConfigMap kubevip in the guest cluster has foreign values in {', '.join(blocked)}. "
            'Remove them, or set annotation updateConfigMap: "true" to overwrite them.'
        )
        return ConditionContent(verdict=Verdict.FALSE, reason="ForeignValue", message=message)
    if mismatch:
        return ConditionContent(verdict=Verdict.FALSE, reason="InterfaceMismatch", message=mismatch)
    notes = [describe_hidden()] if result.hides_range else []
    notes += filter(None, [result.overruled.get(name)])
    if finalizers:
        notes.append(
            f"The cloud provider is removed. Services that still have its finalizer: {finalizers}. Take it off with "
            "`fipop cloud-provider --release-services`."
        )
    if ignored_pool:
        notes.append(
            f"kube-vip-cloud-provider ignores pool {ignored_pool}: it assigns the addresses to Services of namespace "
            f"{ignored_pool} only. Use fipop as the cloud provider of the guest cluster."
        )
    return ConditionContent(
        verdict=Verdict.TRUE, reason=POOL_IGNORED if ignored_pool else "Configured", message=" ".join(notes)
    )


def judge_unseen(error: FipopError) -> ConditionContent:
    """Judge a release that could not be read: the ConfigMap alone would make the guest cluster look well."""
    return ConditionContent(verdict=Verdict.UNKNOWN, reason="ReleasesUnseen", message=sentence(str(error)))


def judge_releases(
    steps: Iterable[Step],
    goal: ReleaseGoal,
    record: GuestRecord,
    settings: Settings,
    *,
    guest: Guest,
    problem: ChartError | None,
    held_up: str,
) -> dict[Role, ConditionContent]:
    """Judge all releases. `problem`: why charts cannot be had. `held_up`: why nothing is changed anywhere."""
    places = {each.role: (each.namespace, each.name) for each in find_places(settings, ())}
    unknown, found = settings.unknown_release_options, dict[Role, ConditionContent]()
    for each in steps:
        role = each.release.role
        found[role] = judge_release(
            each,
            "OptionUnknown" if unknown else goal.reason_of(each.release),
            place=places[role],
            error=record.find_error(each.release) if each.verb.needs_helm else None,
            problem=problem,
            held_up=describe_unknown_options(unknown) if unknown else held_up,
            taker=record.taker if is_affected(each.release) else None,
            restless=record.describe_rest(),
        )
        if hint := _find_override_hint(role, guest, settings):
            reason = "DisplayNameIgnored" if found[role].reason == "Ready" else found[role].reason
            message = " ".join(filter(None, (found[role].message, hint)))
            found[role] = replace(found[role], reason=reason, message=message)
    return found


def judge_release(
    step: Step,
    reason: str = "",
    *,
    place: tuple[str, str] | None = None,
    error: FipopError | None = None,
    problem: ChartError | None = None,
    held_up: str = "",
    taker: Taker | None = None,
    restless: str = "",
) -> ConditionContent:
    """Judge a release.

    `reason`: why it can be left as it is. `place`: where the options want it. `error`: of helm. `problem`: why the
    wanted charts cannot be had. `held_up`: why nothing is changed anywhere, a sentence. `taker`: another controller,
    which takes the Services. `restless`: that labels change what it should be again and again.
    """
    release, waits = step.release, step.verb.needs_helm
    if release.status is Status.ABSENT:
        error = error or problem
    known, text = _find_blocker(release)
    if not known and error is not None:
        known, text = error.condition if isinstance(error, ChartError) else "ReleaseFailed", str(error)
    if known:
        message = text if str(release) in text else f"release {release} is not as configured: {text}"
        return ConditionContent(verdict=Verdict.FALSE, reason=known, message=sentence(message))
    if release.owner is ReleaseOwner.UNKNOWN:
        message = f"Release {release} has no labels of fipop: it waits until helm says what it was made from."
        return ConditionContent(verdict=Verdict.FALSE, reason="NotReady", message=message)
    is_renamed = place not in (None, (release.namespace, release.name))
    is_awaited = release.status is Status.ABSENT and reason in _LEFT and not waits
    wait = ": the guest cluster waits for a helm process" if waits and release.status is Status.ABSENT else ""
    notes: list[tuple[str, str]] = []
    if problem is not None:
        notes.append((problem.condition, f"Release {release} keeps its chart: {problem}."))
    notes.append((LABELS_CHANGE, restless))
    if is_renamed:
        notes.append(("ReleaseNameChanged", f"Release {release} keeps its name and namespace."))
    left = f"{_LEFT[reason]}." if is_awaited else _describe_drift(step, reason or "Drift")
    notes.append((reason or "Drift", left))
    if taker is not None:
        notes.append((taker.value, taker.message))
    notes.append(("OthersRun", _describe_conflicting(release.conflicting_workloads)))
    noted = [name for name, note in notes if note]
    if held_up or is_awaited:
        cause = reason
    elif release.problem:
        cause = "NotReady"
    elif taker is not None:
        cause = taker.value
    else:
        cause = noted[0] if noted else "Ready"
    unready = sentence(release.problem + wait) if release.problem else ""
    return ConditionContent(
        verdict=Verdict.FALSE if release.problem or taker is not None else Verdict.TRUE,
        reason=cause,
        message=" ".join(filter(None, (held_up, unready, *(note for _, note in notes)))),
    )


def _provisioning(*, installs: bool) -> GuestObservation:
    """Return what is known of a new guest cluster that Rancher still makes: it is not expected to answer yet."""
    message = "Rancher has not provisioned the new guest cluster yet, or has not connected to it."
    finding = ConditionContent(verdict=Verdict.UNKNOWN, reason=PROVISIONING, message=message)
    return GuestObservation(
        reachable=None,
        unreachable=finding,
        conditions=dict.fromkeys(Role, finding) if installs else {},
    )


def _unreachable(reason: str, message: str, *, installs: bool) -> GuestObservation:
    """Return what is known of a guest cluster that could not be visited."""
    finding = ConditionContent(verdict=Verdict.FALSE, reason=reason, message=sentence(message))
    unseen = replace(finding, verdict=Verdict.UNKNOWN)
    return GuestObservation(
        reachable=False,
        unreachable=finding,
        conditions=dict.fromkeys(Role, unseen) if installs else {},
    )


def describe_unknown_options(options: Iterable[str]) -> str:
    """Return what bad options hold up."""
    return (
        f"ConfigMap kube-fip-config has no valid value of {', '.join(sorted(options))}: fipop installs, upgrades and "
        "removes nothing in guest clusters. Correct it."
    )


def _find_blocker(release: Release) -> tuple[str, str]:
    """Return the reason, and a clause, if a foreign release or workload keeps a release from its place; else ""."""
    role = release.role.value
    if release.owner is ReleaseOwner.OTHER:
        return "ReleaseTaken", (
            f"release {release} is not the {role} of fipop or of kube-fip-operator. Remove it, or choose another name "
            "or namespace for the release of fipop"
        )
    if release.status is Status.ABSENT and release.conflicting_workloads:
        others = ", ".join(release.conflicting_workloads[:_NAMED])
        return "OthersRun", (
            f"{others} already runs what {role} would run. Remove it, or leave this guest cluster opted out"
        )
    return "", ""


def _find_override_hint(role: Role, guest: Guest, settings: Settings) -> str:
    """Return that an override has the display name of a guest cluster, where its name counts; "" if none has."""
    for each in wanted_overrides(settings).get(role, ()):
        if hint := find_name_hint(guest, each.clusters):
            return f'Override "{each.name}" of chart {role.value} does not fit this guest cluster{hint}.'
    return ""


def _describe_drift(step: Step, reason: str) -> str:
    if not step.drift:
        return ""
    return f"Release {step.release} is left as it is ({step.drift}). {_LEFT.get(reason, reason)}."


def _describe_conflicting(conflicting: tuple[str, ...]) -> str:
    return (
        f"{', '.join(conflicting[:_NAMED])} does the same work in this guest cluster. Remove one."
        if conflicting
        else ""
    )
