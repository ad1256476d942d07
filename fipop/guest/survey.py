"""What stands in a guest: its ConfigMaps named `kubevip`, its releases, what they run. Reads only."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias

from fipop.api import names
from fipop.errors import ApiAnswerError, ApiInvalidError, FipopError, ReleaseRecordError, ReleaseTakenError
from fipop.guest.carried import CarriedAddresses, addresses_in
from fipop.guest.charts import Role, WantedRelease
from fipop.guest.memory import GuestMemory
from fipop.guest.releases import (
    SELECTOR,
    DecodedRelease,
    ReleaseState,
    build_states,
    decode_release,
    find_candidates,
    find_managed,
    parse_record,
)
from fipop.guest.workloads import Workload, of_release, parse_daemon_set, parse_deployment, running_releases
from fipop.kube.client import KubeClient
from fipop.kube.resources import CONFIG_MAPS, DAEMON_SETS, DEPLOYMENTS, SECRETS, SERVICES

log = logging.getLogger(__name__)

Json: TypeAlias = dict[str, Any]

_OF_HELM = "app.kubernetes.io/managed-by=Helm"
"""Helm puts this label on whatever it makes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Releases and workloads of a guest, at `now` by the guest's own clock.

    `managed`: by role, the release that is ours, by its labels or as the predecessor's heir. `problems`: by role,
    why no release may be made.
    """

    now: datetime
    managed: Mapping[Role, ReleaseState]
    workloads: tuple[Workload, ...]
    problems: Mapping[Role, FipopError]

    def workloads_of(self, role: Role) -> tuple[Workload, ...]:
        """Give the workloads of a role's release."""
        state = self.managed.get(role)
        return of_release(self.workloads, state.latest.key) if state is not None else ()

    def age_seconds(self, state: ReleaseState) -> float:
        """Give how long ago the latest revision of a release was made."""
        return max((self.now - state.latest.created).total_seconds(), 0.0)


async def read_config_maps(client: KubeClient) -> tuple[Json, ...]:
    """Give the guest's ConfigMaps named `kubevip`, of all namespaces: fipop or its predecessor wrote elsewhere once."""
    listing = await client.list(CONFIG_MAPS, field_selector=f"metadata.name={names.GUEST_CONFIG_MAP}")
    return listing.items


async def read_carried(client: KubeClient) -> CarriedAddresses:
    """Give all that the guest carries, in ConfigMaps and in Services of type LoadBalancer."""
    config_maps, services = await asyncio.gather(read_config_maps(client), _read_services(client))
    return addresses_in(config_maps, services)


async def read_survey(
    client: KubeClient, guest_id: str, wanted: Sequence[WantedRelease], memory: GuestMemory
) -> Survey:
    """Read releases (metadata only) and workloads: three requests where nothing is missing or new."""
    secrets, daemon_sets = await asyncio.gather(
        client.list(SECRETS, label_selector=SELECTOR, metadata_only=True), client.list(DAEMON_SETS)
    )
    records = [record for item in secrets.items if (record := parse_record(item)) is not None]
    memory.keep_only(guest_id, records)
    states = build_states(records)
    managed = {one.role: state for one in wanted if (state := find_managed(states, one)) is not None}
    heirs = _Heirs(client=client, guest_id=guest_id, memory=memory, states=states)
    workloads = tuple(parse_daemon_set(item) for item in daemon_sets.items)
    provider = managed.get(Role.CLOUD_PROVIDER) or heirs.known(wanted, Role.CLOUD_PROVIDER)
    workloads += await _read_deployments(client, provider)
    problems: dict[Role, FipopError] = {}
    for one in wanted:
        if one.role in managed:
            continue
        try:
            heir = await heirs.find(one, workloads)
        except (ReleaseRecordError, ReleaseTakenError) as error:
            problems[one.role] = error
        else:
            if heir is not None:
                managed[one.role] = heir
    return Survey(now=client.server_now(), managed=managed, workloads=workloads, problems=problems)


async def decode_latest(client: KubeClient, state: ReleaseState) -> DecodedRelease:
    """Read and decode the Secret of a release's latest revision. Raises ReleaseRecordError and ApiError."""
    record = state.latest
    secret = await client.get(SECRETS, record.secret, namespace=record.namespace)
    if secret is None:
        raise ReleaseRecordError(namespace=record.namespace, name=record.name, reason="it is gone")
    # What is decompressed is the guest's; what that takes is not to be every other guest's time.
    return await asyncio.to_thread(decode_release, secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heirs:
    """Finds the releases that kube-fip-operator left: no labels tell them, so their charts must."""

    client: KubeClient
    guest_id: str
    memory: GuestMemory
    states: Mapping[tuple[str, str], ReleaseState]

    def known(self, wanted: Sequence[WantedRelease], role: Role) -> ReleaseState | None:
        """Give a role's heir if it was decoded before."""
        for one in wanted:
            for state in find_candidates(self.states, one, ()) if one.role is role else ():
                decoded = self.memory.decoded(self.guest_id, state.latest)
                if decoded is not None and _is_of(decoded, one) and _is_heir(decoded, state, one):
                    return replace(state, decoded=decoded)
        return None

    async def find(self, wanted: WantedRelease, workloads: Sequence[Workload]) -> ReleaseState | None:
        """Give the release that serves the role; raise where a foreign one has the very name that is wanted."""
        for state in find_candidates(self.states, wanted, running_releases(workloads, wanted.role)):
            decoded = self.memory.decoded(self.guest_id, state.latest)
            if decoded is None:
                decoded = await decode_latest(self.client, state)
                self.memory.remember(self.guest_id, state.latest, decoded)
                log.info("decoded a release without our labels", extra=_fields(self.guest_id, state, decoded))
            if _is_of(decoded, wanted) and _is_heir(decoded, state, wanted):
                return replace(state, decoded=decoded)
            if state.latest.key == (wanted.namespace, wanted.name):
                raise ReleaseTakenError(
                    namespace=state.latest.namespace, name=state.latest.name, role=wanted.role.value
                )
        return None


def _is_of(decoded: DecodedRelease, wanted: WantedRelease) -> bool:
    return decoded.chart_name in (wanted.role.value, wanted.source.name)


def _is_heir(decoded: DecodedRelease, state: ReleaseState, wanted: WantedRelease) -> bool:
    """Whether a release of the role's chart is to be ours: by the wanted name, or by the predecessor's hand.

    kube-fip-operator named a release's objects after the release. A kube-vip under another name without that is
    somebody's own, for the control plane's address perhaps.
    """
    return wanted.name == state.latest.name or decoded.values.get("nameOverride") == state.latest.name


def _fields(guest_id: str, state: ReleaseState, decoded: DecodedRelease) -> dict[str, str]:
    return {"guest": guest_id, "release": state.latest.name, "chart": decoded.chart_name}


async def _read_deployments(client: KubeClient, provider: ReleaseState | None) -> tuple[Workload, ...]:
    """Give the cloud provider's Deployment, found by its name; without it, all that helm made."""
    if provider is not None:
        named = await client.list(DEPLOYMENTS, field_selector=f"metadata.name={provider.object_name}")
        found = tuple(parse_deployment(item) for item in named.items)
        if of_release(found, provider.latest.key):
            return found
    try:
        listing = await client.list(DEPLOYMENTS, label_selector=_OF_HELM)
    except ApiAnswerError:
        # More than we take from a guest. They only help to find a predecessor's release under another name.
        return ()
    return tuple(parse_deployment(item) for item in listing.items)


async def _read_services(client: KubeClient) -> tuple[Json, ...]:
    try:
        listing = await client.list(
            SERVICES, field_selector="spec.type=LoadBalancer", project=_project_service
        )
    except ApiInvalidError:
        # API servers before 1.31 do not know this selector.
        listing = await client.list(SERVICES, project=_project_service)
    return listing.items


def _project_service(service: Json) -> Json:
    return {name: service.get(name) for name in ("metadata", "spec", "status")}
