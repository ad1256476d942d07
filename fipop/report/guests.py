"""What a guest cluster itself shows, read with the reader's own access to its kubeconfig Secret."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from fipop.api.names import GUEST_CONFIG_MAP, KUBECONFIG_SECRET_SUFFIX
from fipop.boundary import GuestFactory
from fipop.errors import FipopError, ForbiddenError
from fipop.guest.clients import open_guest
from fipop.guest.errors import explain_refusal
from fipop.guest.findings import Finding, judge_release
from fipop.guest.harvester import is_taken_by_harvester
from fipop.guest.in_use import find_in_use
from fipop.guest.observe import Observed, observe, read_in_use
from fipop.guest.plan import Step
from fipop.guest.releases import Owner, Release, find_places
from fipop.guest.workloads import Workload
from fipop.ipam.addresses import Address, format_address
from fipop.jsons import Json, as_mapping, as_text
from fipop.kube.client import KubeClient
from fipop.kube.guests import GuestServers, read_kubeconfig
from fipop.kube.resources import SECRETS
from fipop.report.snapshot import ClusterSnapshot, Unread, read_address
from fipop.texts import clean


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestService:
    """A Service in a guest cluster, and the addresses that it uses."""

    name: str
    addresses: tuple[str, ...]


GUESTS_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestReport:
    """What a guest shows; `problem` is why it shows nothing.

    `config_map` are the keys of its ConfigMaps `kubevip`, `namespace/key`; `workloads` what runs kube-vip and the cloud
    provider there; `programs` how the operator judges these two. All texts are cleaned.
    """

    guest: str
    problem: str = ""
    step: str = ""
    """The step that failed: `rights` (of the reader), `kubeconfig`, `connection` or `objects`."""
    version: str = ""
    config_map: Mapping[str, str] = field(default_factory=dict)
    services: tuple[GuestService, ...] = ()
    workloads: tuple[Workload, ...] = ()
    programs: Mapping[str, Finding] = field(default_factory=dict)

    def addresses(self) -> frozenset[Address]:
        """Return the single addresses that its ConfigMaps name."""
        texts = [part for value in self.config_map.values() for part in value.split(",")]
        found = (read_address(text.strip().removesuffix("/32").removesuffix("/128")) for text in texts)
        return frozenset(each for each in found if each is not None)

    def in_use(self) -> frozenset[Address]:
        """Return the single addresses that its ConfigMaps name or its Services have."""
        found = (read_address(text) for each in self.services for text in each.addresses)
        return self.addresses().union(each for each in found if each is not None)


async def read_guest(
    client: KubeClient, snapshot: ClusterSnapshot, guest_id: str, guests: GuestFactory
) -> GuestReport:
    """Read a guest within the bounds that the operator has; what fails is in the report, with the step that failed."""
    step = "kubeconfig"
    statuses = snapshot.cache.guest_statuses(guest_id)
    places = find_places(snapshot.installation.settings, [one for each in statuses for one in each.releases])
    try:
        kubeconfig = await _read_kubeconfig(client, snapshot, guest_id)
        async with open_guest(guests, read_kubeconfig(kubeconfig, guest_id)) as guest:
            step = "connection"
            version = await guest.version()
            step = "objects"
            (config_maps, services), observed = await asyncio.gather(
                read_in_use(guest), observe(guest, places)
            )
    except FipopError as error:
        is_refused = step == "kubeconfig" and isinstance(error, ForbiddenError)
        cluster = next(iter(snapshot.cache.guest_clusters(guest_id)), None)
        if cluster is not None:
            error = explain_refusal(error, workspace=cluster.namespace, cluster_name=cluster.name)
        return GuestReport(guest=guest_id, step="rights" if is_refused else step, problem=str(error))
    return GuestReport(
        guest=guest_id,
        version=clean(as_text(version.get("gitVersion")), 63),
        config_map={
            clean(f"{each['metadata']['namespace']}/{GUEST_CONFIG_MAP} {key}"): clean(value)
            for each in config_maps
            for key, value in as_mapping(each.get("data")).items()
        },
        services=tuple(map(_service, services)),
        workloads=tuple(dict.fromkeys(_iterate_programs(observed))),
        programs={each.role.value: judge_program(each, observed) for each in observed.releases},
    )


async def read_guests(
    client: KubeClient, snapshot: ClusterSnapshot, guest_ids: Iterable[str]
) -> list[GuestReport]:
    """Read guests, some at once; the reports come in the order of `guest_ids`."""
    turns, guests = asyncio.Semaphore(GUESTS_AT_ONCE), GuestServers()

    async def read(guest_id: str) -> GuestReport:
        async with turns:
            return await read_guest(client, snapshot, guest_id, guests)

    try:
        return list(await asyncio.gather(*map(read, guest_ids)))
    finally:
        await guests.close()


def list_unread(reports: Iterable[GuestReport]) -> tuple[Unread, ...]:
    """Return the guests that could not be read."""
    return tuple(
        Unread(what=f"guest cluster {each.guest}", problem=each.problem, forbidden=each.step == "rights")
        for each in reports
        if each.problem
    )


def judge_program(release: Release, observed: Observed) -> Finding:
    """Judge a program of a guest as the operator does for a condition; helm is not asked here."""
    known = replace(release, owner=Owner.FIPOP) if release.owner is Owner.UNKNOWN else release
    return judge_release(
        Step(release=known), is_taken_by_harvester=is_taken_by_harvester(release, observed.around)
    )


def _iterate_programs(observed: Observed) -> Iterator[Workload]:
    yield from (each for each in observed.daemon_sets if each.runs_kube_vip)
    for release in observed.releases:
        yield from release.workloads
    yield from (each for each in observed.around if each.reads)


def _service(found: Json) -> GuestService:
    metadata = found["metadata"]
    parts = (each.part for each in find_in_use((), (found,)).parts if not each.is_pool)
    return GuestService(
        name=clean(f"{metadata.get('namespace')}/{metadata.get('name')}"),
        addresses=tuple(format_address(Address(each.family, each.first)) for each in parts),
    )


async def _read_kubeconfig(client: KubeClient, snapshot: ClusterSnapshot, guest_id: str) -> bytes:
    cluster = next(iter(snapshot.cache.guest_clusters(guest_id)), None)
    if cluster is None:
        raise FipopError("Rancher has no cluster with this id that you can read")
    name = f"{cluster.name}{KUBECONFIG_SECRET_SUFFIX}"
    secret = await client.get(SECRETS, name, namespace=cluster.namespace)
    if secret is None:
        raise FipopError(
            f"Secret {cluster.namespace}/{name} does not exist: Rancher creates it when the guest cluster is ready"
        )
    try:
        return base64.b64decode(as_text(as_mapping(secret.get("data")).get("value")), validate=True)
    except binascii.Error:
        return b""
