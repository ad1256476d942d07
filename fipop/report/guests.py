"""What a guest cluster itself uses, read with the reader's own access to its kubeconfig Secret."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fipop.addresses.claims import read_addresses
from fipop.api.names import GUEST_CONFIG_MAP
from fipop.api.service import Service
from fipop.errors import FipopError, ForbiddenError
from fipop.guests.access import explain_refusal, open_guest, read_access
from fipop.guests.in_use import find_in_use
from fipop.guests.observed import observe, read_in_use
from fipop.helm.releases import find_places
from fipop.helm.workloads import Workload
from fipop.ipam.addresses import Address, format_address
from fipop.jsons import as_mapping, as_text
from fipop.kube.client import KubeClient
from fipop.kube.guests import GuestServers
from fipop.rancher.matching import Guest
from fipop.report.snapshot import Snapshot, Unread
from fipop.texts import LONGEST_WORD, clean, read_name

GUESTS_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestService:
    """A Service in a guest cluster, and the addresses that it uses."""

    name: str
    addresses: tuple[str, ...]
    ports: tuple[int, ...] = ()
    """Its TCP ports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestReport:
    """What a guest cluster shows. All texts are cleaned."""

    guest: str
    problem: str = ""
    """Why it shows nothing."""
    step: str = ""
    """The step that failed: `rights` (of the reader), `kubeconfig`, `connection` or `objects`."""
    version: str = ""
    config_map: Mapping[str, str] = field(default_factory=dict)
    """The keys of its ConfigMaps `kubevip`, as `namespace/kubevip key`."""
    services: tuple[GuestService, ...] = ()
    workloads: tuple[Workload, ...] = ()
    """What runs kube-vip and its cloud provider there."""

    def addresses(self) -> frozenset[Address]:
        """Return the single addresses that its ConfigMaps name."""
        texts = [part.strip() for value in self.config_map.values() for part in value.split(",")]
        return read_addresses(each.removesuffix("/32").removesuffix("/128") for each in texts)

    def in_use(self) -> frozenset[Address]:
        """Return the single addresses that its ConfigMaps name or its Services have."""
        return self.addresses() | read_addresses(text for each in self.services for text in each.addresses)


async def read_guests(client: KubeClient, snapshot: Snapshot, guest_ids: Iterable[str]) -> list[GuestReport]:
    """Read guest clusters, some at once, in the order of `guest_ids`; what fails is in the report."""
    turns, servers = asyncio.Semaphore(GUESTS_AT_ONCE), GuestServers()

    async def read(guest_id: str) -> GuestReport:
        async with turns:
            return await _read_guest(client, snapshot, guest_id, servers)

    try:
        return list(await asyncio.gather(*map(read, guest_ids)))
    finally:
        await servers.close()


def list_unread(reports: Iterable[GuestReport]) -> tuple[Unread, ...]:
    """Return the guest clusters that could not be read."""
    return tuple(
        Unread(what=f"guest cluster {each.guest}", problem=each.problem, forbidden=each.step == "rights")
        for each in reports
        if each.problem
    )


async def _read_guest(
    client: KubeClient, snapshot: Snapshot, guest_id: str, servers: GuestServers
) -> GuestReport:
    step = "kubeconfig"
    reported = [each for status in snapshot.inventory.guest_statuses(guest_id) for each in status.releases]
    cluster = next(iter(snapshot.inventory.guest_clusters(guest_id)), None)
    if cluster is None:
        problem = "Rancher has no cluster with this id that you can read"
        return GuestReport(guest=guest_id, step=step, problem=problem)
    try:
        access = await read_access(client, Guest(cluster=cluster, connected=True, deleting=False))
        async with open_guest(servers, access) as guest:
            step = "connection"
            version = await guest.version()
            step = "objects"
            config_maps, services = await read_in_use(guest)
            observed = await observe(guest, find_places(snapshot.installation.settings, reported))
    except FipopError as error:
        if step == "kubeconfig" and isinstance(error.__cause__, ForbiddenError):
            return GuestReport(guest=guest_id, step="rights", problem=str(error.__cause__))
        error = explain_refusal(error, workspace=cluster.namespace, cluster_name=cluster.name)
        return GuestReport(guest=guest_id, step=step, problem=str(error))
    return GuestReport(
        guest=guest_id,
        version=clean(as_text(version.get("gitVersion")), LONGEST_WORD),
        config_map={
            clean(f"{each['metadata']['namespace']}/{GUEST_CONFIG_MAP} {key}"): clean(value)
            for each in config_maps
            for key, value in as_mapping(each.get("data")).items()
        },
        services=tuple(map(_read_service, services)),
        workloads=tuple(
            dict.fromkeys(
                (
                    *(each for each in observed.daemon_sets if each.runs_kube_vip),
                    *(each for release in observed.releases for each in release.workloads),
                    *(each for each in observed.other_providers if each.reads),
                )
            )
        ),
    )


def _read_service(found: Service) -> GuestService:
    parts = (each.part for each in find_in_use((), (found,)).parts if not each.is_pool)
    return GuestService(
        name=f"{read_name(found.namespace)}/{read_name(found.name)}",
        addresses=tuple(format_address(Address(each.family, each.first)) for each in parts),
        ports=tuple(sorted(port for port, protocol in found.ports if protocol == "TCP")),
    )
