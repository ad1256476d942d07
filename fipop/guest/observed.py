"""What stands in a guest: its ConfigMaps named `kubevip`, its releases, what they run. Reads only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from fipop.api import names
from fipop.errors import FipopError, UnavailableError
from fipop.guest.configmap.plan import parse_config_map
from fipop.guest.errors import ForeignReleaseError, ReleaseTakenError
from fipop.guest.helm.charts import Role, WantedRelease
from fipop.guest.helm.releases import SELECTOR, ReleaseRecord, ReleaseState, build_states, parse_record
from fipop.guest.in_use import InUseAddresses, find_machines, parse_service
from fipop.guest.release_memory import ReleaseMemory
from fipop.guest.release_ownership import (
    Ownership,
    ReleaseScope,
    find_candidates,
    find_managed,
    is_removable,
    judge_ownership,
)
from fipop.guest.workloads import (
    Workload,
    of_release,
    parse_daemon_set,
    parse_deployment,
    parse_restarts,
    running_releases,
)
from fipop.ipam.machines import read_endpoints, read_node
from fipop.jsons import Json
from fipop.kube.client import TOO_MUCH, KubeClient
from fipop.kube.resources import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    ENDPOINTS,
    NODES,
    PODS,
    SECRETS,
    SERVICES,
)

NODES_IN_PAGE = 50
"""A node has some 20 KiB: names of images above all."""
_OF_HELM = "app.kubernetes.io/managed-by=Helm"
"""Helm puts this label on whatever it makes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedState:
    """Releases and workloads of a guest, at `now` by the guest's own clock.

    `managed`: by role, the release that is ours, by its labels or adopted from the predecessor. `problems`: by role,
    why no release may be made. `unknown`: by role, a release that may have to be adopted, of which helm has to tell.
    `scope`: where releases count. `removable`: those that may be uninstalled, the cloud provider's first.
    """

    now: datetime
    states: Mapping[tuple[str, str], ReleaseState]
    managed: Mapping[Role, ReleaseState]
    workloads: tuple[Workload, ...]
    problems: Mapping[Role, FipopError]
    unknown: Mapping[Role, ReleaseState]
    scope: ReleaseScope
    removable: tuple[ReleaseState, ...] = ()

    def workloads_of(self, role: Role) -> tuple[Workload, ...]:
        """Give the workloads of a role's release."""
        state = self.managed.get(role)
        return of_release(self.workloads, state.latest.key) if state is not None else ()

    def beside(self, state: ReleaseState) -> tuple[str, ...]:
        """Give the releases whose workloads run kube-vip beside that of one.

        Of the cloud provider a quiet pass reads a single Deployment, so of others nothing is known.
        """
        if state is not self.managed.get(Role.KUBE_VIP):
            return ()
        running = running_releases(self.workloads, Role.KUBE_VIP)
        return tuple("/".join(key) for key in running if key in self.states and key != state.latest.key)

    def age_seconds(self, state: ReleaseState) -> float:
        """Give how long ago the latest revision of a release was made."""
        return max((self.now - state.latest.created).total_seconds(), 0.0)


async def read_config_maps(client: KubeClient) -> tuple[Json, ...]:
    """Give the guest's ConfigMaps named `kubevip`, of all namespaces: fipop or its predecessor wrote elsewhere once."""
    listing = await client.list(
        CONFIG_MAPS, field_selector=f"metadata.name={names.GUEST_CONFIG_MAP}", project=parse_config_map
    )
    return listing.items


async def read_restarts(client: KubeClient, states: Iterable[ReleaseState]) -> dict[str, int]:
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


async def read_in_use(client: KubeClient) -> tuple[tuple[Json, ...], tuple[Json, ...]]:
    """Return the ConfigMaps named `kubevip` and the Services of a guest cluster that name addresses."""
    config_maps, services = await asyncio.gather(
        read_config_maps(client), client.list(SERVICES, project=parse_service)
    )
    return config_maps, tuple(each for each in services.items if each is not None)


async def read_machines(client: KubeClient) -> InUseAddresses:
    """Return the addresses of the nodes and of the API server of a guest cluster."""
    nodes, server = await asyncio.gather(
        client.list(NODES, project=read_node, page_items=NODES_IN_PAGE),
        client.get(ENDPOINTS, "kubernetes", namespace="default"),
    )
    return find_machines(nodes.items, read_endpoints(server or {}))


async def read_observed_state(
    client: KubeClient, wanted: Sequence[WantedRelease], notes: ReleaseMemory, scope: ReleaseScope
) -> ObservedState:
    """Read releases (metadata only) and workloads: three requests where nothing is missing or new."""
    (records, scope), listed = await asyncio.gather(
        _read_records(client, scope), client.list(DAEMON_SETS, project=parse_daemon_set)
    )
    daemon_sets: tuple[Workload, ...] = listed.items
    notes.keep_only(records)
    search = _ReleaseSearch(notes=notes, states=_describe(build_states(records), notes), scope=scope)
    provider = next(search.find(one, ()) for one in wanted if one.role is Role.CLOUD_PROVIDER)
    workloads = daemon_sets + await _read_deployments(
        client, provider if isinstance(provider, ReleaseState) else None
    )
    return search.sum_up(client.server_now(), workloads, wanted)


def look_again(
    observed: ObservedState, wanted: Sequence[WantedRelease], notes: ReleaseMemory
) -> ObservedState:
    """Give the observed state with what helm told since, without a request."""
    search = _ReleaseSearch(notes=notes, states=_describe(observed.states, notes), scope=observed.scope)
    return search.sum_up(observed.now, observed.workloads, wanted)


@dataclass(frozen=True, slots=True)
class _Unknown:
    """A release of which helm has to be asked what it is."""

    state: ReleaseState


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReleaseSearch:
    """Finds for each role the release that serves it, or what stands in the way of one."""

    notes: ReleaseMemory
    states: Mapping[tuple[str, str], ReleaseState]
    scope: ReleaseScope

    def sum_up(
        self, now: datetime, workloads: tuple[Workload, ...], wanted: Sequence[WantedRelease]
    ) -> ObservedState:
        managed: dict[Role, ReleaseState] = {}
        problems: dict[Role, FipopError] = {}
        unknown: dict[Role, ReleaseState] = {}
        for one in wanted:
            found = self.find(one, workloads)
            if isinstance(found, _Unknown):
                unknown[one.role] = found.state
            elif isinstance(found, FipopError):
                problems[one.role] = found
            elif found is not None:
                managed[one.role] = found
        return ObservedState(
            now=now,
            states=self.states,
            managed=managed,
            workloads=workloads,
            problems=problems,
            unknown=unknown,
            scope=self.scope,
            removable=tuple(
                state
                for one in reversed(wanted)
                for state in self.states.values()
                if is_removable(state, one, self.scope)
            ),
        )

    def find(
        self, wanted: WantedRelease, workloads: Sequence[Workload]
    ) -> ReleaseState | _Unknown | FipopError | None:
        """Give the release that serves the role, the first that helm must be asked about, or what blocks an install."""
        ours = find_managed(self.states, wanted, self.scope)
        if ours is not None:
            return ours
        running = running_releases(workloads, wanted.role)
        for state in find_candidates(self.states, wanted, self.scope, running):
            ownership = judge_ownership(state, wanted, self.scope)
            if ownership is Ownership.ADOPTED:
                return state
            if ownership is Ownership.UNKNOWN:
                inspection = self.notes.inspection(state.latest)
                if inspection is not None and self.notes.is_resting(inspection):
                    return inspection.error
                return _Unknown(state)
        for (namespace, name), state in self.states.items():
            ownership = judge_ownership(state, wanted, self.scope)
            if ownership is Ownership.TAKEN:
                return ReleaseTakenError(namespace=namespace, name=name, role=wanted.role.value)
            if ownership is Ownership.FOREIGN:
                return ForeignReleaseError(namespace=namespace, name=name)
        return ForeignReleaseError() if self.scope.is_all else None


async def _read_records(client: KubeClient, scope: ReleaseScope) -> tuple[list[ReleaseRecord], ReleaseScope]:
    """Give the records of all releases; where those are more than we take, of the ones that may count."""

    async def read(namespace: str | None) -> list[ReleaseRecord]:
        listing = await client.list(
            SECRETS, namespace=namespace, label_selector=SELECTOR, metadata_only=True, project=parse_record
        )
        return [record for record in listing.items if record is not None]

    try:
        return await read(None), scope
    except UnavailableError as error:
        if error.reason not in TOO_MUCH:
            raise
        # Whoever may create Secrets in one namespace must not stop what is done for releases elsewhere.
        found = await asyncio.gather(*map(read, sorted(scope.namespaces)))
        return [record for each in found for record in each], replace(scope, is_all=True)


def _describe(
    states: Mapping[tuple[str, str], ReleaseState], notes: ReleaseMemory
) -> dict[tuple[str, str], ReleaseState]:
    """Add what helm told of releases."""
    return {
        key: replace(state, description=found.description if found is not None else None)
        for key, state in states.items()
        for found in (notes.inspection(state.latest),)
    }


async def _read_deployments(client: KubeClient, provider: ReleaseState | None) -> tuple[Workload, ...]:
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
    except UnavailableError as error:
        if error.reason not in TOO_MUCH:
            raise
        # More than we take from a guest. They only help to find a predecessor's release under another name.
        return ()
    return listing.items
