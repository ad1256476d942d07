"""Which releases of a guest are fipop's: the one rule by which they are installed, upgraded, adopted and removed.

Labels prove nothing: whoever may create Secrets in one namespace of a guest can forge a release with any labels. So the
namespace decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fipop.guest.helm.charts import WantedRelease
from fipop.guest.helm.releases import ReleaseDescription, ReleaseState, Status
from fipop.settings.options import Settings

MAX_CANDIDATES = 4
"""So many releases without our labels are looked into for one role: helm has to run for each."""

_SYSTEM_NAMESPACE = "kube-system"


class Ownership(StrEnum):
    """Whose a release is, as seen from one release that is wanted."""

    OURS = "ours"
    """It has fipop's labels, in a namespace that counts."""
    ADOPTED = "adopted"
    """kube-fip-operator made it."""
    UNKNOWN = "unknown"
    """It has no labels, in a place where helm must tell whether kube-fip-operator made it."""
    FOREIGN = "foreign"
    """It has fipop's labels in a namespace that does not count. It blocks an install, which might be the second one."""
    TAKEN = "taken"
    """It is not ours, and has the name and namespace that ours should have. It blocks the install."""
    OTHER = "other"
    """It is left alone, and ours is installed beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseScope:
    """Where releases of one guest count.

    `namespaces`: those in which fipop's labels are believed. `reported`: what the status of the guest's floating IPs
    names, as (namespace, name). `is_all`: nothing elsewhere was read, for there is too much.
    """

    namespaces: frozenset[str]
    reported: frozenset[tuple[str, str]] = frozenset()
    is_all: bool = False


def build_scope(settings: Settings, reported: frozenset[tuple[str, str]]) -> ReleaseScope:
    """Return where releases count by the options and by what the status names."""
    namespaces = {settings.kubevip_namespace, _SYSTEM_NAMESPACE, *settings.kubevip_release_namespaces}
    return ReleaseScope(
        namespaces=frozenset(namespaces | {namespace for namespace, _ in reported}), reported=reported
    )


def judge_ownership(state: ReleaseState, wanted: WantedRelease, scope: ReleaseScope) -> Ownership:
    """Return whose a release is; without its description helm may have to be asked."""
    latest = state.latest
    if latest.status is Status.UNINSTALLED:
        return Ownership.OTHER
    if latest.role is not None and latest.namespace not in scope.namespaces:
        return Ownership.FOREIGN
    if latest.role is wanted.role:
        return Ownership.OURS
    if latest.role is None and _may_be_adopted(state, wanted, scope):
        if state.description is None:
            return Ownership.UNKNOWN
        if _is_by_predecessor(state.description, state, wanted):
            return Ownership.ADOPTED
    return Ownership.TAKEN if latest.key == (wanted.namespace, wanted.name) else Ownership.OTHER


def is_removable(state: ReleaseState, wanted: WantedRelease, scope: ReleaseScope) -> bool:
    """Whether a release may be uninstalled: fipop made it, and the status names it."""
    is_ours = judge_ownership(state, wanted, scope) is Ownership.OURS
    return is_ours and state.latest.digest is not None and state.latest.key in scope.reported


def find_managed(
    states: Mapping[tuple[str, str], ReleaseState], wanted: WantedRelease, scope: ReleaseScope
) -> ReleaseState | None:
    """Return the release of a role that is ours; of several the one of the wanted name, else the first."""
    ours = [each for each in states.values() if judge_ownership(each, wanted, scope) is Ownership.OURS]
    ours.sort(key=lambda state: (state.latest.key != (wanted.namespace, wanted.name), state.latest.key))
    return ours[0] if ours else None


def find_candidates(
    states: Mapping[tuple[str, str], ReleaseState],
    wanted: WantedRelease,
    scope: ReleaseScope,
    running: Sequence[tuple[str, str]],
) -> tuple[ReleaseState, ...]:
    """Return the releases that may be the predecessor's for this role, the likeliest few first.

    `running`: releases whose workloads run the role's program; so one is found that a changed name would hide.
    """
    candidates = [
        state
        for state in states.values()
        if state.latest.role is None
        and state.latest.status is not Status.UNINSTALLED
        and _may_be_adopted(state, wanted, scope)
        and (state.latest.name == wanted.name or state.latest.key in running)
    ]
    candidates.sort(key=lambda state: (state.latest.key != (wanted.namespace, wanted.name), state.latest.key))
    return tuple(candidates[:MAX_CANDIDATES])


def _may_be_adopted(state: ReleaseState, wanted: WantedRelease, scope: ReleaseScope) -> bool:
    # What was adopted once stays so when the option names another namespace.
    return state.latest.namespace == wanted.namespace or state.latest.key in scope.reported


def _is_by_predecessor(found: ReleaseDescription, state: ReleaseState, wanted: WantedRelease) -> bool:
    """Whether kube-fip-operator made a release: it named the objects of each release after the release.

    A kube-vip without that mark is the guest's own, perhaps for the address of its control plane.
    """
    is_of_role = found.chart_name in (wanted.role.value, wanted.source.name)
    return is_of_role and found.values.get("nameOverride") == state.latest.name
