"""What a guest cluster shows: which addresses it uses, its releases and what they run. Five requests, and no helm."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from fipop.addresses.in_use import InUseAddresses
from fipop.api import names
from fipop.api.service import Service
from fipop.errors import TooLargeError
from fipop.guests.announced import (
    AnnouncedCheck,
    Lease,
    LeaseReading,
    Network,
    build_slice_selector,
    find_live,
    is_unsure,
    join_endpoints,
    keep_reading,
    parse_endpoint_slice,
    parse_lease,
)
from fipop.guests.config_map import parse_config_map
from fipop.guests.in_use import find_machines, parse_relevant
from fipop.helm.charts import Role
from fipop.helm.releases import Release, Status, build_selector, read_release, read_revisions
from fipop.helm.workloads import (
    HARVESTER_RELEASE,
    KubeVipMode,
    Workload,
    parse_daemon_set,
    parse_deployment,
    parse_ready_since,
)
from fipop.interfaces import loop_time
from fipop.ipam.machines import read_endpoints, read_node
from fipop.jsons import Json, as_mapping, as_text
from fipop.kube.client import KubeClient
from fipop.kube.resources import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    LEASES,
    NODES,
    PODS,
    SECRETS,
    SERVICES,
)
from fipop.texts import clean

HARVESTER_MAP = "harvester-nad-mapping"
"""The ConfigMap of Harvester's cloud provider, since its chart 0.2.12."""
_LONGEST_MAP = 64 * 1024
NODES_IN_PAGE = 50
"""A node has some 20 KiB: names of images above all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What one guest cluster showed in one session."""

    releases: tuple[Release, ...] = ()
    daemon_sets: tuple[Workload, ...] = ()
    other_providers: tuple[Workload, ...] = ()
    """The Deployments that matter to the cloud provider, other ones and Harvester's."""

    @property
    def kube_vip(self) -> Release:
        """The release of kube-vip."""
        return next(each for each in self.releases if each.role is Role.KUBE_VIP)

    @property
    def cloud_provider(self) -> Release:
        """The release of the cloud provider."""
        return next(each for each in self.releases if each.role is Role.CLOUD_PROVIDER)

    @property
    def mode(self) -> KubeVipMode | None:
        """How fipop's kube-vip announces Services; None if it does not run."""
        return next((each.mode for each in self.kube_vip.workloads if each.mode is not None), None)

    @property
    def ignores_pools(self) -> bool:
        """Whether kube-vip-cloud-provider serves by the ConfigMap, which does not know what pool a Service chooses."""
        found = (*self.cloud_provider.workloads, *self.other_providers)
        return any(each.ignores_pools and each.reads == self.cloud_provider.namespace for each in found)


async def read_config_maps(client: KubeClient) -> tuple[Json, ...]:
    """Return the ConfigMaps named `kubevip` of all namespaces: fipop or its predecessor may have written elsewhere."""
    chosen = f"metadata.name={names.GUEST_CONFIG_MAP}"
    return (await client.list(CONFIG_MAPS, field_selector=chosen, project=parse_config_map)).items


async def read_services(client: KubeClient) -> tuple[Service, ...]:
    """Return the Services that may use addresses, or wait for some."""
    found = await client.list(SERVICES, project=parse_relevant)
    return tuple(each for each in found.items if each is not None)


async def read_in_use(client: KubeClient) -> tuple[tuple[Json, ...], tuple[Service, ...]]:
    """Return the ConfigMaps named `kubevip`, and the Services that may use addresses."""
    return await asyncio.gather(read_config_maps(client), read_services(client))


async def read_machines(client: KubeClient) -> InUseAddresses:
    """Return the addresses of the nodes and of the API server of a guest cluster."""
    nodes, server = await asyncio.gather(
        client.list(NODES, project=read_node, page_items=NODES_IN_PAGE),
        client.get(ENDPOINTS, "kubernetes", namespace="default"),
    )
    return find_machines(nodes.items, read_endpoints(server or {}))


async def read_interfaces(client: KubeClient) -> dict[str, str]:
    """Return the interfaces of nodes by network, as Harvester's cloud provider lists them; empty if it does not."""
    found = await client.get(CONFIG_MAPS, HARVESTER_MAP, namespace="kube-system")
    text = as_text(as_mapping((found or {}).get("data")).get("interface-nad-mapping"))
    try:
        listed = as_mapping(json.loads(text)) if len(text) <= _LONGEST_MAP else {}
    except (ValueError, RecursionError):
        return {}
    named = {network: each for network, each in listed.items() if isinstance(each, str) and each}
    return {clean(network): clean(each) for network, each in named.items()}


async def read_network(
    client: KubeClient, check: AnnouncedCheck, before: LeaseReading | None
) -> tuple[Network, LeaseReading]:
    """Read who announces the Services of a check: Leases and EndpointSlices, two requests.

    `before`: the reading of Leases to compare with. Return the one to compare the next reading with, too.
    """
    mode = check.mode
    assert mode is not None, "without kube-vip nothing is announced"
    leases, slices = await asyncio.gather(
        _read_leases(client, mode, check.lease_keys),
        client.list(
            ENDPOINT_SLICES,
            label_selector=build_slice_selector(check.services),
            project=parse_endpoint_slice,
        ),
    )
    at, now = loop_time(), client.server_now()
    holders = find_live(leases, before, at=at, guest_now=now)
    network = Network(
        holders=holders,
        common_lease=mode.common_lease,
        is_unsure=is_unsure(leases, holders, before, at),
        endpoints=join_endpoints(slices.items),
    )
    return network, keep_reading(leases, before, at=at)


async def _read_leases(
    client: KubeClient, mode: KubeVipMode, wanted: frozenset[tuple[str, str]]
) -> tuple[Lease, ...]:
    if mode.elects_each:
        listed = await client.list(LEASES, project=parse_lease)
        return tuple(each for each in listed.items if each.key in wanted)
    found = await client.get(LEASES, mode.lease_name, namespace=mode.namespace)
    return (parse_lease(found),) if found is not None else ()


async def observe(
    client: KubeClient,
    places: Sequence[Release],
    *,
    with_pods: bool = False,
    other_providers: tuple[Workload, ...] | None = None,
) -> Observed:
    """Read the releases at their places, and what they run.

    `other_providers`: what is known of other Deployments. Without it, and before the cloud provider is installed, all
    of them are read.
    """
    namespaces = sorted({each.namespace for each in places})
    listed = asyncio.gather(*(_read_secrets(client, each, places) for each in namespaces))
    found, by_namespace = await asyncio.gather(client.list(DAEMON_SETS, project=parse_daemon_set), listed)
    secrets, daemon_sets = list(chain.from_iterable(by_namespace)), found.items
    releases = [read_release(each, secrets, client.server_now()) for each in places]
    provider = next(each for each in releases if each.role is Role.CLOUD_PROVIDER)
    deployments: tuple[Workload, ...] = ()
    if other_providers is None or provider.status is Status.ABSENT:
        deployments = await _read_all_deployments(client)
        other_providers = tuple(each for each in deployments if each.is_other_provider)
    if provider.status is not Status.ABSENT and not _of_release(provider, deployments):
        named = f"metadata.name={provider.object_name}"
        read = await client.list(
            DEPLOYMENTS, namespace=provider.namespace, field_selector=named, project=parse_deployment
        )
        deployments = read.items
    workloads = (*daemon_sets, *deployments)
    releases = [replace(each, workloads=_of_release(each, workloads)) for each in releases]
    releases = [
        replace(each, conflicting_workloads=_find_conflicting(each, (*daemon_sets, *other_providers)))
        for each in releases
    ]
    if with_pods:
        releases = [replace(each, ready_seconds=await _read_ready_seconds(client, each)) for each in releases]
    return Observed(releases=tuple(releases), daemon_sets=daemon_sets, other_providers=other_providers)


async def list_revisions(client: KubeClient, release: Release) -> list[Release]:
    """Return all revisions of a release that helm keeps, the newest first."""
    chosen = f"owner=helm,name={release.name}"
    listing = await client.list(
        SECRETS, namespace=release.namespace, label_selector=chosen, metadata_only=True
    )
    place = Release(role=release.role, namespace=release.namespace, name=release.name)
    return read_revisions(place, listing.items, client.server_now())


async def _read_secrets(client: KubeClient, namespace: str, places: Sequence[Release]) -> tuple[Json, ...]:
    here = [each for each in places if each.namespace == namespace]
    listing = await client.list(
        SECRETS, namespace=namespace, label_selector=build_selector(here), metadata_only=True
    )
    return listing.items


async def _read_all_deployments(client: KubeClient) -> tuple[Workload, ...]:
    try:
        return (await client.list(DEPLOYMENTS, project=parse_deployment)).items
    except TooLargeError:
        return ()  # whoever can create Deployments in one namespace does not stop what is done for releases


async def _read_ready_seconds(client: KubeClient, release: Release) -> float:
    """Return how long all pods of a release have been ready, by the guest cluster's own clock; 0 if one is not."""
    chosen = f"app.kubernetes.io/instance={release.name}"
    pods = await client.list(
        PODS,
        namespace=release.namespace,
        label_selector=chosen,
        project=lambda pod: (parse_ready_since(pod),),
    )
    since = [each for (each,) in pods.items]
    ages = [(client.server_now() - each).total_seconds() if each is not None else 0.0 for each in since]
    return max(min(ages, default=0.0), 0.0)


def _of_release(release: Release, workloads: Sequence[Workload]) -> tuple[Workload, ...]:
    return tuple(
        each for each in workloads if (each.namespace, each.release) == (release.namespace, release.name)
    )


def _find_conflicting(release: Release, workloads: Sequence[Workload]) -> tuple[str, ...]:
    """Return the workloads of others that do what a release does, or would do; Harvester's kube-vip is parked."""
    own = _of_release(release, workloads)
    others = (each for each in workloads if each not in own and each.release != HARVESTER_RELEASE)
    if release.role is Role.KUBE_VIP:
        return tuple(str(each) for each in others if each.announces_services)
    return tuple(str(each) for each in others if each.reads == release.namespace)
