"""Reads a snapshot of a management cluster with the reader's own rights. What is refused is named and left out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from http import HTTPStatus
from typing import Any, TypeVar

from fipop.addresses.inventory import Inventory
from fipop.api import names
from fipop.api.codec import parse_time
from fipop.api.guest_problems import read_problems
from fipop.api.options import find_binary, read_texts
from fipop.errors import ApiError, FipopError, ForbiddenError
from fipop.jsons import Json, as_list, as_mapping, as_text
from fipop.kube.client import KubeClient
from fipop.kube.resources import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    FLOATING_IP_RANGES,
    FLOATING_IP_RESERVATIONS,
    FLOATING_IPS,
    LEASES,
    MANAGEMENT_CLUSTERS,
    PROVISIONING_CLUSTERS,
    Resource,
)
from fipop.operator.crds import revision_of
from fipop.operator.installations import read_leader_namespace
from fipop.operator.predecessor import find_predecessors, has_replicas
from fipop.report.snapshot import (
    SCHEMA_REVISIONS,
    DeploymentState,
    Installation,
    Kind,
    LeaderLease,
    Snapshot,
    Unread,
)
from fipop.rollout.kept import parse_rollout
from fipop.rollout.parts import BLOCKED, parse_parts
from fipop.rollout.targets import describe_news
from fipop.settings.options import NOTHING_KNOWN, find_unknown, parse_settings, warnings

T = TypeVar("T")

LIST_SECONDS = 60.0
_OPERATOR_LABELS = "app.kubernetes.io/name=fipop,app.kubernetes.io/component!=web"


async def read_snapshot(client: KubeClient, *, namespace: str, about_operator: bool = True) -> Snapshot:
    """Read the management cluster once; the operator itself is in `namespace`.

    Raises ApiError if the API server does not answer or refuses the credential, and NotManagementClusterError.
    """
    reader, inventory = SnapshotReader(client), Inventory(reads_guests=False)
    # A floating IP without a status is in the space of its range.
    await reader.fill(inventory, Kind.RANGES, FLOATING_IP_RANGES)
    lists = [
        reader.fill(inventory, Kind.RESERVATIONS, FLOATING_IP_RESERVATIONS),
        reader.fill(inventory, Kind.FLOATING_IPS, FLOATING_IPS),
        reader.fill(inventory, Kind.CLUSTERS, PROVISIONING_CLUSTERS),
        reader.fill(inventory, Kind.MANAGEMENT, MANAGEMENT_CLUSTERS),
    ]
    await asyncio.gather(*lists)
    if reader.unknown >= {Kind.RANGES, Kind.CLUSTERS}:
        raise NotManagementClusterError("has neither Rancher nor fipop: is it the management cluster?")
    # What guest clusters use is known from the statuses of the ranges alone: it counts nowhere else.
    inventory.recall_reports(lambda _guest_id: True)
    installation = (
        await reader.read_installation(namespace) if about_operator else Installation(namespace=namespace)
    )
    return Snapshot(
        now=client.server_now(),
        inventory=inventory,
        installation=installation,
        unread=tuple(sorted(reader.unread, key=lambda each: each.what)),
    )


class NotManagementClusterError(FipopError):
    """The API server knows neither the kinds of fipop nor those of Rancher."""


class SnapshotReader:
    """Reads one thing after the other, and notes in `unread` what it could not read."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self.unread: list[Unread] = []
        self.unknown: set[str] = set()
        """What the API server does not know."""

    async def fill(self, inventory: Inventory, what: str, resource: Resource) -> None:
        """Put all objects of a kind into the inventory as their pages arrive; none is kept as it was served."""
        read = self._client.list(
            resource,
            project=lambda found: inventory.observe(resource, found),
            timeout_seconds=LIST_SECONDS,
        )
        await self.attempt(what, resource, "list", read)

    async def get(
        self, what: str, resource: Resource, name: str, *, namespace: str | None = None
    ) -> Json | None:
        """Return an object; None if it does not exist or could not be read."""
        read = self._client.get(resource, name, namespace=namespace)
        return await self.attempt(what, resource, "get", read, namespace=namespace)

    async def attempt(
        self, what: str, resource: Resource, verb: str, read: Awaitable[T], *, namespace: str | None = None
    ) -> T | None:
        """Wait for a read; None, and an entry in `unread`, if it was refused or failed."""
        try:
            return await read
        except ForbiddenError:
            right = f"{verb} {resource.full_name}" + (f" in {namespace}" if namespace else "")
            self.unread.append(Unread(what=what, problem=f"missing right: {right}", forbidden=True))
        except ApiError as error:
            if error.status in (0, HTTPStatus.UNAUTHORIZED):  # 0: there was no answer
                raise
            problem = str(error)
            if error.status == HTTPStatus.NOT_FOUND:
                problem = f"the API server does not know {resource.plural}"
                self.unknown.add(what)
            self.unread.append(Unread(what=what, problem=problem))
        return None

    async def read_installation(self, namespace: str) -> Installation:
        """Read what belongs to the operator itself."""
        before = len(self.unread)
        found = self._client.list(DEPLOYMENTS, namespace=namespace, label_selector=_OPERATOR_LABELS)
        own = await self.attempt(Kind.DEPLOYMENT, DEPLOYMENTS, "list", found, namespace=namespace)
        predecessors = await self.attempt(
            Kind.PREDECESSOR,
            DEPLOYMENTS,
            "get",
            find_predecessors(self._client, namespace),
            namespace=names.OPERATOR_NAMESPACE,
        )
        lease, config, rollout, *crds = await asyncio.gather(
            self.get(Kind.LEASE, LEASES, names.LEASE_NAME, namespace=namespace),
            self.get(Kind.OPTIONS, CONFIG_MAPS, names.SETTINGS_CONFIG_MAP, namespace=namespace),
            self.get(Kind.ROLLOUT, CONFIG_MAPS, names.ROLLOUT_CONFIG_MAP, namespace=namespace),
            *(self.get(Kind.CRDS, CUSTOM_RESOURCE_DEFINITIONS, name) for name in SCHEMA_REVISIONS),
        )
        failed = {each.what for each in self.unread[before:]}
        kept = as_mapping((rollout or {}).get("data"))
        self.unread = list(dict.fromkeys(self.unread))
        texts = read_texts(config or {})
        # As an operator that starts now: it knows no last good value.
        settings, bad = parse_settings(texts, NOTHING_KNOWN)
        state = parse_rollout(kept)
        parts = parse_parts(kept.get("guests", ""))
        waits, news = as_text(kept.get("waits")), ""
        if config is not None and state is not None and parts and not bad:
            asked = as_mapping(config["metadata"].get("annotations")).get(names.ANNOTATION_ROLLOUT)
            news = describe_news(settings, as_text(asked), state)
        revisions = (revision_of(crd) if crd is not None else None for crd in crds)
        schemas = dict(zip(SCHEMA_REVISIONS, revisions, strict=True))
        leader_namespace = next(filter(None, (read_leader_namespace(crd or {}) for crd in crds)), "")
        return Installation(
            namespace=namespace,
            leader_namespace=leader_namespace,
            leadership=read_leadership(lease, leads=leader_namespace in ("", namespace)) if lease else None,
            workload=read_workload(own.items[0]) if own is not None and own.items else None,
            running_predecessor=next(map(_place_of, filter(has_replicas, predecessors or ())), ""),
            schemas=schemas if Kind.CRDS not in failed else {},
            has_settings=None if Kind.OPTIONS in failed else config is not None,
            settings=settings,
            bad_options=bad,
            unwise_options=(*warnings(settings), *find_unknown(texts), *find_binary(config or {})),
            rollout=state,
            rollout_parts=parts,
            rollout_waits=f"{news} {waits}".strip() if waits.startswith(BLOCKED) else news or waits,
        )


def read_leadership(lease: Json, *, leads: bool = True) -> LeaderLease:
    """Read the operator's Lease; its holder counts if this installation `leads`, and not one in another namespace."""
    spec = as_mapping(lease.get("spec"))
    annotations = as_mapping(as_mapping(lease.get("metadata")).get("annotations"))
    duration = spec.get("leaseDurationSeconds")
    return LeaderLease(
        holder=as_text(spec.get("holderIdentity")) if leads else "",
        renewed=parse_time(spec.get("renewTime")),
        duration_seconds=float(duration) if isinstance(duration, int) else 0.0,
        waits=tuple(as_text(annotations.get(names.ANNOTATION_WAITS)).splitlines()),
        problems=read_problems(as_text(annotations.get(names.ANNOTATION_GUEST_PROBLEMS))),
    )


def _place_of(deployment: Json) -> str:
    metadata = as_mapping(deployment.get("metadata"))
    return f"{as_text(metadata.get('namespace'))}/{as_text(metadata.get('name'))}"


def read_workload(deployment: Json) -> DeploymentState:
    """Read the Deployment of the operator."""
    spec, status = as_mapping(deployment.get("spec")), as_mapping(deployment.get("status"))
    pod = as_mapping(as_mapping(spec.get("template")).get("spec"))
    containers: list[Any] = as_list(pod.get("containers"))
    wanted, ready = spec.get("replicas", 1), status.get("readyReplicas", 0)
    return DeploymentState(
        image=as_text(as_mapping(containers[0] if containers else None).get("image")),
        service_account=as_text(pod.get("serviceAccountName")),
        wanted=wanted if isinstance(wanted, int) else 0,
        ready=ready if isinstance(ready, int) else 0,
    )
