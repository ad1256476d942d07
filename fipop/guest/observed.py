"""What stands in a guest: its ConfigMaps named `kubevip`, its releases, what they run. Reads only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from fipop.api import names
from fipop.errors import ApiAnswerError, ApiInvalidError, FipopError, ReleaseTakenError
from fipop.guest.configmap.plan import parse_config_map
from fipop.guest.helm.charts import Role, WantedRelease
from fipop.guest.helm.releases import (
    SELECTOR,
    ReleaseDescription,
    ReleaseState,
    build_states,
    find_candidates,
    find_managed,
    parse_record,
)
from fipop.guest.in_use import InUseAddresses, addresses_in, parse_ledger, parse_service
from fipop.guest.memory import GuestNotes
from fipop.guest.workloads import (
    Workload,
    of_release,
    parse_daemon_set,
    parse_deployment,
    parse_restarts,
    running_releases,
)
from fipop.jsons import Json
from fipop.kube.reader import KubeReader
from fipop.kube.resources import CONFIG_MAPS, DAEMON_SETS, DEPLOYMENTS, PODS, SECRETS, SERVICES

_OF_HELM = "app.kubernetes.io/managed-by=Helm"
"""Helm puts this label on whatever it makes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedState:
    """Releases and workloads of a guest, at `now` by the guest's own clock.

    `managed`: by role, the release that is ours, by its labels or adopted from the predecessor. `problems`: by role,
    why no release may be made. `unknown`: by role, a release that may have to be adopted, of which helm has to tell.
    """

    now: datetime
    states: Mapping[tuple[str, str], ReleaseState]
    managed: Mapping[Role, ReleaseState]
    workloads: tuple[Workload, ...]
    problems: Mapping[Role, FipopError]
    unknown: Mapping[Role, ReleaseState]

    def workloads_of(self, role: Role) -> tuple[Workload, ...]:
        """Give the workloads of a role's release."""
        state = self.managed.get(role)
        return of_release(self.workloads, state.latest.key) if state is not None else ()

    def age_seconds(self, state: ReleaseState) -> float:
        """Give how long ago the latest revision of a release was made."""
        return max((self.now - state.latest.created).total_seconds(), 0.0)


async def read_config_maps(client: KubeReader) -> tuple[Json, ...]:
    """Give the guest's ConfigMaps named `kubevip`, of all namespaces: fipop or its predecessor wrote elsewhere once."""
    listing = await client.list(
        CONFIG_MAPS, field_selector=f"metadata.name={names.GUEST_CONFIG_MAP}", project=parse_config_map
    )
    return listing.items


async def read_restarts(client: KubeReader, states: Iterable[ReleaseState]) -> dict[str, int]:
    """Give by uid of each pod of these releases how often its containers restarted.

    The charts have no probes: a pod that crashes again and again is ready in between.
    """
    restarts = {}
    for state in states:
        selector = f"app.kubernetes.io/instance={state.latest.name}"
        namespace = state.latest.namespace
        listing = await client.list(
            PODS, namespace=namespace, label_selector=selector, project=parse_restarts
        )
        restarts.update(dict(listing.items))
    return restarts


async def read_in_use(client: KubeReader) -> InUseAddresses:
    """Give all that the guest carries: in ConfigMaps, Services of type LoadBalancer, the cloud provider's ledger."""
    config_maps, services, ledger = await asyncio.gather(
        read_config_maps(client),
        _read_services(client),
        _read_ledger(client),
    )
    return addresses_in(config_maps, services, ledger)


async def read_observed_state(
    client: KubeReader, wanted: Sequence[WantedRelease], notes: GuestNotes
) -> ObservedState:
    """Read releases (metadata only) and workloads: three requests where nothing is missing or new."""
    secrets, listed = await asyncio.gather(
        client.list(SECRETS, label_selector=SELECTOR, metadata_only=True, project=parse_record),
        client.list(DAEMON_SETS, project=parse_daemon_set),
    )
    records = [record for record in secrets.items if record is not None]
    daemon_sets: tuple[Workload, ...] = listed.items
    notes.keep_only(records)
    states = build_states(records)
    managed = {one.role: state for one in wanted if (state := find_managed(states, one)) is not None}
    adopted = _AdoptedReleases(notes=notes, states=states)
    provider = managed.get(Role.CLOUD_PROVIDER) or adopted.known(wanted, Role.CLOUD_PROVIDER)
    workloads = daemon_sets + await _read_deployments(client, provider)
    return _sum_up(client.server_now(), states, workloads, wanted, adopted)


def look_again(observed: ObservedState, wanted: Sequence[WantedRelease], notes: GuestNotes) -> ObservedState:
    """Give the observed state with what helm told since, without a request."""
    adopted = _AdoptedReleases(notes=notes, states=observed.states)
    return _sum_up(observed.now, observed.states, observed.workloads, wanted, adopted)


def _sum_up(
    now: datetime,
    states: Mapping[tuple[str, str], ReleaseState],
    workloads: tuple[Workload, ...],
    wanted: Sequence[WantedRelease],
    adopted: _AdoptedReleases,
) -> ObservedState:
    managed: dict[Role, ReleaseState] = {}
    problems: dict[Role, FipopError] = {}
    unknown: dict[Role, ReleaseState] = {}
    for one in wanted:
        found = find_managed(states, one) or adopted.find(one, workloads)
        if isinstance(found, _Unknown):
            unknown[one.role] = found.state
        elif isinstance(found, FipopError):
            problems[one.role] = found
        elif found is not None:
            managed[one.role] = found
    return ObservedState(
        now=now, states=states, managed=managed, workloads=workloads, problems=problems, unknown=unknown
    )


@dataclass(frozen=True, slots=True)
class _Unknown:
    """A release of which helm has to be asked what it is."""

    state: ReleaseState


@dataclass(frozen=True, slots=True, kw_only=True)
class _AdoptedReleases:
    """Finds the releases that kube-fip-operator left: no labels tell them, so their charts must."""

    notes: GuestNotes
    states: Mapping[tuple[str, str], ReleaseState]

    def known(self, wanted: Sequence[WantedRelease], role: Role) -> ReleaseState | None:
        """Give the release that a role adopts, if helm was asked about it before."""
        for one in wanted:
            for state in find_candidates(self.states, one, ()) if one.role is role else ():
                found = self._described(state)
                if found is not None and _is_of(found, one) and _is_adopted(found, state, one):
                    return replace(state, description=found)
        return None

    def find(
        self, wanted: WantedRelease, workloads: Sequence[Workload]
    ) -> ReleaseState | _Unknown | FipopError | None:
        """Give the release that serves the role, the first that helm must be asked about, or what is in the way.

        In the way is a foreign release of the very name that is wanted, and one that helm cannot tell about.
        """
        for state in find_candidates(self.states, wanted, running_releases(workloads, wanted.role)):
            found = self._described(state)
            if found is None:
                inspection = self.notes.inspection(state.latest)
                if inspection is not None and self.notes.is_resting(inspection):
                    return inspection.error
                return _Unknown(state)
            if _is_of(found, wanted) and _is_adopted(found, state, wanted):
                return replace(state, description=found)
            if state.latest.key == (wanted.namespace, wanted.name):
                return ReleaseTakenError(
                    namespace=state.latest.namespace, name=state.latest.name, role=wanted.role.value
                )
        return None

    def _described(self, state: ReleaseState) -> ReleaseDescription | None:
        inspection = self.notes.inspection(state.latest)
        return inspection.description if inspection is not None else None


def _is_of(found: ReleaseDescription, wanted: WantedRelease) -> bool:
    return found.chart_name in (wanted.role.value, wanted.source.name)


def _is_adopted(found: ReleaseDescription, state: ReleaseState, wanted: WantedRelease) -> bool:
    """Whether a release of the role's chart is to be ours: by the wanted name, or by the predecessor's hand.

    kube-fip-operator named a release's objects after the release. A kube-vip under another name without that is
    somebody's own, for the control plane's address perhaps.
    """
    return wanted.name == state.latest.name or found.values.get("nameOverride") == state.latest.name


async def _read_deployments(client: KubeReader, provider: ReleaseState | None) -> tuple[Workload, ...]:
    """Give the cloud provider's Deployment, found by its name; without it, all that helm made."""
    if provider is not None:
        named = await client.list(
            DEPLOYMENTS, field_selector=f"metadata.name={provider.object_name}", project=parse_deployment
        )
        found = named.items
        if of_release(found, provider.latest.key):
            return found
    try:
        listing = await client.list(DEPLOYMENTS, label_selector=_OF_HELM, project=parse_deployment)
    except ApiAnswerError:
        # More than we take from a guest. They only help to find a predecessor's release under another name.
        return ()
    return listing.items


async def _read_ledger(client: KubeReader) -> Json | None:
    """Give the cloud provider's ledger. A list: whether a 404 means the object or a path is for the guest to say."""
    listing = await client.list(
        CONFIG_MAPS,
        namespace=names.GUEST_LEDGER_NAMESPACE,
        field_selector=f"metadata.name={names.GUEST_LEDGER}",
        project=parse_ledger,
    )
    return next(iter(listing.items), None)


async def _read_services(client: KubeReader) -> tuple[Json, ...]:
    try:
        listing = await client.list(SERVICES, field_selector="spec.type=LoadBalancer", project=parse_service)
    except ApiInvalidError:
        # API servers before 1.31 do not know this selector.
        listing = await client.list(SERVICES, project=parse_service)
    return listing.items
