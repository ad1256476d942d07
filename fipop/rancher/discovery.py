"""From the links between Rancher's objects to one Guest; Secrets and HarvesterConfigs are only got, not watched.

The objects arrive in any order. An event of a watched object causes another discovery. The other objects are requested
again after `retry_delay_seconds`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from fipop.backoff import Backoff
from fipop.kube.resources import HARVESTER_CONFIGS, SECRETS
from fipop.rancher.credentials import parse_credential
from fipop.rancher.link_reader import LinkReader, Unreadable
from fipop.rancher.matching import Guest
from fipop.rancher.objects import (
    LABEL_PROVIDER,
    PROVIDER_HARVESTER,
    MachinePool,
    ManagementCluster,
    NamespaceInfo,
    ProvisioningCluster,
    credential_ref,
    object_ref,
    parse_harvester_networks,
)

NEW_GUEST_SECONDS = 600.0
NEW_GUEST_RETRY_SECONDS = 3.0
MAX_RETRY_SECONDS = 30.0
_BACKOFF = Backoff(first_seconds=NEW_GUEST_RETRY_SECONDS, limit_seconds=MAX_RETRY_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A link is missing.

    `needs_retry`: it must be asked for again, no event of the guest's own objects will tell; its age counts from
    `created`, the time of the provisioning Cluster. `guest` is there when passes can serve the guest all the same
    (a credential deleted long after the guest was made must not stop them). `is_resolved`: what it stands on was known
    before. If not, no range can be chosen for it.
    """

    message: str
    created: datetime
    needs_retry: bool = False
    guest: Guest | None = None
    is_resolved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NotAGuest:
    """The cluster never gets a floating IP: it is Rancher's own, or a Harvester cluster."""


Discovery: TypeAlias = Guest | Waiting | NotAGuest


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """What the caller knows of one guest.

    `find_management` looks up any management Cluster by its name; `known` is what was resolved last. `is_unknown_kind`:
    Rancher has had its time to find out what the cluster is, and has not.
    """

    cluster: ProvisioningCluster
    management: ManagementCluster | None
    namespace: NamespaceInfo | None
    find_management: Callable[[str], ManagementCluster | None]
    known: Guest | None = None
    is_unknown_kind: bool = False


def choose_cluster(
    clusters: Iterable[ProvisioningCluster], management: ManagementCluster | None
) -> ProvisioningCluster | None:
    """Choose, of the provisioning Clusters that name one guest as theirs, the one that it is.

    Normally there is one. A second can be left by a restore, or made to deceive. The one in the workspace of the
    management Cluster comes first, then one that is not being deleted, then the oldest.
    """
    workspace = management.workspace if management is not None else ""
    return min(
        clusters,
        key=lambda each: (
            each.namespace != workspace,
            each.is_deleting,
            each.created,
            each.key,
        ),
        default=None,
    )


def retry_delay_seconds(age_seconds: float, failures: int) -> float:
    """Return the seconds until a link is requested again: 3 while the guest is new, then doubled up to 30.

    `failures` counts the failed attempts since the guest stopped being new, or since the start of this process.
    """
    if age_seconds < NEW_GUEST_SECONDS:
        return NEW_GUEST_RETRY_SECONDS
    return _BACKOFF.step_seconds(failures + 1)


async def discover_guest(reader: LinkReader, links: Links) -> Discovery:
    """Resolve the links of one provisioning Cluster, with at most two requests.

    Raises ApiError where the API server did not answer as it should (a refused or missing object is no error).
    """
    settled = _settle_without_requests(links)
    if settled is not None:
        return settled
    guest, known = _build_guest(links), links.known
    found = await _resolve_harvester(reader, links, guest)
    if isinstance(found, Guest):
        return found
    pool = guest.cluster.harvester_pool
    if known and (known.cluster.uid, known.cluster.harvester_pool) == (guest.cluster.uid, pool):
        # A Secret that cannot be read now does not refute what it said before. It is requested again all the same.
        guest = replace(guest, harvester_cluster_name=known.harvester_cluster_name, networks=known.networks)
        found = replace(found, is_resolved=True)
    # What Rancher has removed already of a cluster that is being deleted does not return.
    return guest if guest.cluster.is_deleting else replace(found, guest=guest)


def glimpse_guest(links: Links) -> Discovery:
    """Resolve what needs no request: how a guest is reached, not what it stands on."""
    return _settle_without_requests(links) or _build_guest(links)


def _settle_without_requests(links: Links) -> Waiting | NotAGuest | None:
    cluster, management = links.cluster, links.management
    if cluster.cluster_name == "local" or (management is not None and management.is_internal):
        return NotAGuest()
    # Rancher's pages label an imported Harvester before anything has connected to it. Later the label says nothing: on
    # a guest cluster that is served, it would make its addresses look unused.
    unfound = management is None or not (management.provider or links.is_unknown_kind)
    labelled = unfound and cluster.labels.get(LABEL_PROVIDER) == PROVIDER_HARVESTER
    if labelled or (management is not None and management.is_harvester):
        return NotAGuest()
    name = cluster.cluster_name
    if not name:
        return _wait(links, "Rancher has not named the cluster's namespace yet")
    if cluster.is_deleting:
        return None
    if management is None:
        return _wait(links, f"management Cluster {name} does not exist")
    if cluster.is_imported and not (management.provider or links.is_unknown_kind):
        return _wait_for_provider(links)
    if links.namespace is None:
        return _wait(links, f"namespace {name} does not exist")
    return None


async def _resolve_harvester(reader: LinkReader, links: Links, guest: Guest) -> Guest | Waiting:
    """Return the guest cluster with the Harvester cluster and the networks of its machines, if it is on one."""
    pool = links.cluster.harvester_pool
    if pool is None:
        return guest
    networks = await _get_networks(reader, links, pool)
    if isinstance(networks, Waiting):
        return networks
    harvester_id = await _get_harvester_id(reader, links, pool)
    if isinstance(harvester_id, Waiting):
        return harvester_id
    if harvester_id is None:
        # An external Harvester: not in Rancher, hence without a name; ranges with a selector can serve.
        return replace(guest, networks=networks)
    harvester = links.find_management(harvester_id)
    if harvester is None or not harvester.display_name:
        message = f"the Harvester cluster {harvester_id} is not in Rancher"
        return _wait(links, message, needs_retry=True)
    return replace(guest, harvester_cluster_name=harvester.display_name, networks=networks)


async def _get_networks(reader: LinkReader, links: Links, pool: MachinePool) -> tuple[str, ...] | Waiting:
    ref = object_ref(links.cluster.namespace, pool.config_name)
    if ref is None:
        return _wait(links, "the machine pool names no HarvesterConfig")
    networks = await reader.read(HARVESTER_CONFIGS, ref, parse_harvester_networks)
    if isinstance(networks, Unreadable):
        return _wait(links, networks.message, needs_retry=True)
    if isinstance(networks, str):
        message = f"the networkInfo of HarvesterConfig {ref.namespace}/{ref.name} {networks}"
        return _wait(links, message, needs_retry=True)
    return networks


async def _get_harvester_id(reader: LinkReader, links: Links, pool: MachinePool) -> str | Waiting | None:
    ref = credential_ref(pool.credential or links.cluster.credential, links.cluster.namespace)
    if ref is None:
        return _wait(links, "the cluster names no cloud credential")
    harvester_id = await reader.read(SECRETS, ref, parse_credential)
    if isinstance(harvester_id, Unreadable):
        return _wait(links, harvester_id.message, needs_retry=True)
    return harvester_id


def _wait_for_provider(links: Links) -> Waiting:
    """Wait until it is known what an imported cluster is; once it is ready, only time and its nodes tell."""
    message = "Rancher has not detected the provider of the imported cluster yet"
    is_ready = links.management is not None and links.management.ready_since is not None
    return _wait(links, message, needs_retry=is_ready)


def _wait(links: Links, message: str, *, needs_retry: bool = False) -> Waiting:
    return Waiting(message=message, created=links.cluster.created, needs_retry=needs_retry)


def _build_guest(links: Links) -> Guest:
    """Build a guest cluster of which it is not resolved what it stands on."""
    cluster, management, namespace = links.cluster, links.management, links.namespace
    return Guest(
        cluster=cluster,
        connected=management is not None and management.connected,
        deleting=cluster.is_deleting
        or management is None
        or management.is_deleting
        or namespace is None
        or namespace.terminating,
        provisioned=management is None or management.provisioned,
    )
