"""Reads the facts of a report, with no more than the reader's own rights: what is refused is named and left out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from fipop.api import names
from fipop.api.conditions import parse_time
from fipop.api.parsing import parse_floating_ip, parse_range, parse_reservation
from fipop.errors import ApiError, ApiForbiddenError, ApiNotFoundError, ApiUnreachableError
from fipop.jsons import Json, as_list, as_mapping, as_text
from fipop.kube.reader import KubeReader
from fipop.kube.resources import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    FLOATING_IP_RANGES,
    FLOATING_IP_RESERVATIONS,
    FLOATING_IPS,
    LEASES,
    PROVISIONING_CLUSTERS,
    Resource,
)
from fipop.operator.crds import revision_of
from fipop.operator.rollout.progress import parse_state
from fipop.rancher.objects import parse_provisioning_cluster
from fipop.report.facts import SCHEMA_REVISIONS, Facts, Installation, Leadership, Unread, Workload
from fipop.settings.options import DEFAULTS, parse_settings, warnings

T = TypeVar("T")

LIST_SECONDS = 60.0
_OPERATOR_LABELS = "app.kubernetes.io/name=fipop,app.kubernetes.io/component!=web"


async def read_facts(client: KubeReader, *, namespace: str, about_operator: bool = True) -> Facts:
    """Look once at the management cluster; the operator itself is in `namespace`.

    Raises ApiUnreachableError and ApiUnauthorizedError: who does not come in learns nothing.
    """
    reader = FactReader(client)
    reservations, ranges, floating_ips, clusters = await asyncio.gather(
        reader.list("reservations", FLOATING_IP_RESERVATIONS, parse_reservation),
        reader.list("floating IP ranges", FLOATING_IP_RANGES, parse_range),
        reader.list("floating IPs", FLOATING_IPS, parse_floating_ip),
        reader.list("Rancher's clusters", PROVISIONING_CLUSTERS, parse_provisioning_cluster),
    )
    facts = Facts(
        now=client.server_now(),
        ranges=ranges,
        floating_ips=floating_ips,
        reservations=reservations,
        clusters=clusters,
    )
    if about_operator:
        facts = replace(facts, installation=await reader.read_installation(namespace))
    return replace(facts, unread=tuple(sorted(reader.unread, key=lambda each: each.what)))


class FactReader:
    """Reads one thing after the other, and notes in `unread` what it could not read."""

    def __init__(self, client: KubeReader) -> None:
        self._client = client
        self.unread: list[Unread] = []

    async def list(self, what: str, resource: Resource, parse: Callable[[Json], T]) -> tuple[T, ...]:
        """Give all objects of a kind; none where they could not be read."""
        read = self._client.list(resource, project=parse, timeout_seconds=LIST_SECONDS)
        listing = await self.attempt(what, resource, "list", read)
        return listing.items if listing is not None else ()

    async def get(
        self, what: str, resource: Resource, name: str, *, namespace: str | None = None
    ) -> Json | None:
        """Give an object; None where it is not there or could not be read."""
        read = self._client.get(resource, name, namespace=namespace)
        return await self.attempt(what, resource, "get", read, namespace=namespace)

    async def attempt(
        self, what: str, resource: Resource, verb: str, read: Awaitable[T], *, namespace: str | None = None
    ) -> T | None:
        """Wait for a read; None, and a note, where it was refused or failed."""
        try:
            return await read
        except ApiForbiddenError:
            place = f" in {namespace}" if namespace else ""
            right = f"{verb} {resource.plural}{'.' + resource.group if resource.group else ''}{place}"
            self.unread.append(Unread(what=what, problem=f"missing right: {right}", forbidden=True))
        except ApiNotFoundError:
            self.unread.append(Unread(what=what, problem=f"the API server does not know {resource.plural}"))
        except ApiUnreachableError:
            raise
        except ApiError as error:
            if error.status == _UNAUTHORIZED:
                raise
            self.unread.append(Unread(what=what, problem=str(error)))
        return None

    async def read_installation(self, namespace: str) -> Installation:
        """Look at what belongs to the operator itself."""
        before = len(self.unread)
        own = await self._find_own(namespace)
        lease, predecessor, config, rollout, *crds = await asyncio.gather(
            self.get("the operator's Lease", LEASES, names.LEASE_NAME, namespace=namespace),
            self.get(
                "kube-fip-operator",
                DEPLOYMENTS,
                names.PREDECESSOR_DEPLOYMENT,
                namespace=names.OPERATOR_NAMESPACE,
            ),
            self.get("the options", CONFIG_MAPS, names.SETTINGS_CONFIG_MAP, namespace=namespace),
            self.get("the rollout", CONFIG_MAPS, names.ROLLOUT_CONFIG_MAP, namespace=namespace),
            *(self.get("fipop's CRDs", CUSTOM_RESOURCE_DEFINITIONS, name) for name in SCHEMA_REVISIONS),
        )
        failed = {each.what for each in self.unread[before:]}
        self.unread = list(dict.fromkeys(self.unread))
        data = as_mapping((config or {}).get("data"))
        settings, bad = parse_settings({key: as_text(value) for key, value in data.items()}, DEFAULTS)
        return Installation(
            namespace=namespace,
            leadership=read_leadership(lease) if lease is not None else None,
            workload=own,
            predecessor=read_workload(predecessor) if predecessor is not None else None,
            schemas={}
            if "fipop's CRDs" in failed
            else {name: read_revision(crd) for name, crd in zip(SCHEMA_REVISIONS, crds, strict=True)},
            has_settings=None if "the options" in failed else config is not None,
            settings=settings,
            bad_options=bad,
            unwise_options=warnings(settings),
            rollout=parse_state(as_mapping(rollout.get("data"))) if rollout is not None else None,
        )

    async def _find_own(self, namespace: str) -> Workload | None:
        read = self._client.list(DEPLOYMENTS, namespace=namespace, label_selector=_OPERATOR_LABELS)
        what = "the operator's Deployment"
        listing = await self.attempt(what, DEPLOYMENTS, "list", read, namespace=namespace)
        items = listing.items if listing is not None else ()
        return read_workload(items[0]) if items else None


_UNAUTHORIZED = 401


def read_leadership(lease: Json) -> Leadership:
    """Read the operator's Lease."""
    spec = as_mapping(lease.get("spec"))
    duration = spec.get("leaseDurationSeconds")
    return Leadership(
        holder=as_text(spec.get("holderIdentity")),
        renewed=parse_time(spec.get("renewTime")),
        duration_seconds=float(duration) if isinstance(duration, int) else 0.0,
    )


def read_workload(deployment: Json) -> Workload:
    """Read a Deployment."""
    spec, status = as_mapping(deployment.get("spec")), as_mapping(deployment.get("status"))
    pod = as_mapping(as_mapping(spec.get("template")).get("spec"))
    containers: list[Any] = as_list(pod.get("containers"))
    wanted, ready = spec.get("replicas", 1), status.get("readyReplicas", 0)
    return Workload(
        image=as_text(as_mapping(containers[0] if containers else None).get("image")),
        service_account=as_text(pod.get("serviceAccountName")),
        wanted=wanted if isinstance(wanted, int) else 0,
        ready=ready if isinstance(ready, int) else 0,
    )


def read_revision(crd: Json | None) -> int | None:
    """Give the revision of a schema of ours: 0 for the predecessor's, None where there is no such CRD."""
    return None if crd is None else revision_of(crd)
