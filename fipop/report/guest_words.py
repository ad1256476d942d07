"""What a guest itself says, asked with the reader's own access to its kubeconfig Secret."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fipop.api.names import GUEST_CONFIG_MAP, KUBECONFIG_SECRET_SUFFIX
from fipop.deadlines import GUEST_REQUEST_SECONDS
from fipop.errors import FipopError, KubeAccessError
from fipop.guest.helm.releases import SELECTOR, ReleaseRecord, parse_record
from fipop.guest.in_use import addresses_in, parse_service
from fipop.guest.kubeconfig import parse_kubeconfig
from fipop.guest.observed import read_config_maps
from fipop.guest.workloads import Workload, parse_daemon_set, parse_deployment
from fipop.ipam.addresses import Address
from fipop.jsons import Json, as_mapping, as_text
from fipop.kube.connection import Connection
from fipop.kube.limits import GUEST_LIMITS, GUEST_SESSION_BYTES, Allowance
from fipop.kube.reader import KubeReader
from fipop.kube.resources import DAEMON_SETS, DEPLOYMENTS, SECRETS, SERVICES
from fipop.report.picture import Picture, read_address
from fipop.texts import clean


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceWords:
    """A Service of type LoadBalancer in a guest, and the addresses that it carries."""

    name: str
    addresses: tuple[str, ...]


GUESTS_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestWords:
    """What a guest says; `problem` is why it says nothing.

    `config_map` are the keys of its ConfigMaps `kubevip`, `namespace/key`; `workloads` what runs kube-vip and the cloud
    provider there; `releases` the revisions that helm keeps. All texts are cleaned.
    """

    guest: str
    problem: str = ""
    step: str = ""
    """Where it failed: `kubeconfig`, `connection` or `objects`."""
    version: str = ""
    config_map: Mapping[str, str] = field(default_factory=dict)
    services: tuple[ServiceWords, ...] = ()
    workloads: tuple[Workload, ...] = ()
    releases: tuple[ReleaseRecord, ...] = ()

    def addresses(self) -> frozenset[Address]:
        """Give the single addresses that its ConfigMaps name."""
        texts = [part for value in self.config_map.values() for part in value.split(",")]
        found = (read_address(text.strip().removesuffix("/32").removesuffix("/128")) for text in texts)
        return frozenset(each for each in found if each is not None)


async def read_guest_words(
    client: KubeReader, picture: Picture, guest_id: str, *, allow_loopback: bool = False
) -> GuestWords:
    """Ask a guest; what fails is in the answer, with the step at which it failed."""
    cluster = next((each for each in picture.facts.clusters if each.cluster_name == guest_id), None)
    if cluster is None:
        return GuestWords(
            guest=guest_id, step="kubeconfig", problem="Rancher has no cluster of this id that you may read"
        )
    name = f"{cluster.name}{KUBECONFIG_SECRET_SUFFIX}"
    try:
        secret = await client.get(SECRETS, name, namespace=cluster.namespace)
        if secret is None:
            problem = (
                f"there is no Secret {cluster.namespace}/{name}: Rancher makes it when the guest is ready"
            )
            return GuestWords(guest=guest_id, step="kubeconfig", problem=problem)
        connection = parse_kubeconfig(
            _kubeconfig_in(secret), guest_id=guest_id, allow_loopback=allow_loopback
        )
    except FipopError as error:
        return GuestWords(guest=guest_id, step="kubeconfig", problem=str(error))
    return await ask_guest(guest_id, connection)


async def read_all_guest_words(
    client: KubeReader, picture: Picture, guest_ids: Iterable[str], *, allow_loopback: bool = False
) -> list[GuestWords]:
    """Ask guests, some at once; the answers come in the order of `guest_ids`."""
    turns = asyncio.Semaphore(GUESTS_AT_ONCE)

    async def ask(guest_id: str) -> GuestWords:
        async with turns:
            return await read_guest_words(client, picture, guest_id, allow_loopback=allow_loopback)

    return list(await asyncio.gather(*map(ask, guest_ids)))


async def ask_guest(guest_id: str, connection: Connection) -> GuestWords:
    """Ask a guest that can be connected to, within the bounds that the operator has for guests."""
    try:
        client = KubeReader(
            connection,
            timeout_seconds=GUEST_REQUEST_SECONDS,
            limits=GUEST_LIMITS,
            allowance=Allowance(GUEST_SESSION_BYTES),
            max_connections=2,
            user_agent="fipop",
        )
    except KubeAccessError as error:
        return GuestWords(guest=guest_id, step="kubeconfig", problem=str(error))
    async with client:
        try:
            version = await client.version()
        except FipopError as error:
            return GuestWords(guest=guest_id, step="connection", problem=str(error))
        try:
            config_maps, services, daemon_sets, deployments, secrets = await asyncio.gather(
                read_config_maps(client),
                client.list(SERVICES, project=parse_service),
                client.list(DAEMON_SETS, project=parse_daemon_set),
                client.list(DEPLOYMENTS, project=parse_deployment),
                client.list(SECRETS, label_selector=SELECTOR, metadata_only=True, project=parse_record),
            )
        except FipopError as error:
            return GuestWords(guest=guest_id, step="objects", problem=str(error))
    return GuestWords(
        guest=guest_id,
        version=clean(as_text(version.get("gitVersion")), 63),
        config_map={
            clean(f"{each['metadata']['namespace']}/{GUEST_CONFIG_MAP} {key}"): clean(value)
            for each in config_maps
            for key, value in as_mapping(each.get("data")).items()
        },
        services=tuple(_service(each) for each in services.items if "spec" in each),
        workloads=tuple(each for each in (*daemon_sets.items, *deployments.items) if each.roles),
        releases=tuple(each for each in secrets.items if each is not None),
    )


def _service(found: Json) -> ServiceWords:
    metadata = found["metadata"]
    carried = addresses_in((), (found,)).single
    return ServiceWords(
        name=clean(f"{metadata.get('namespace')}/{metadata.get('name')}"),
        addresses=tuple(str(address) for address in carried),
    )


def _kubeconfig_in(secret: Json) -> bytes:
    try:
        return base64.b64decode(as_text(as_mapping(secret.get("data")).get("value")), validate=True)
    except binascii.Error:
        return b""
