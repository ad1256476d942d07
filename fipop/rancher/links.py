"""The links between Rancher's objects that need no request: how a guest cluster is reached, not what it stands on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from fipop.rancher.matching import Guest
from fipop.rancher.objects import (
    LABEL_PROVIDER,
    PROVIDER_HARVESTER,
    ManagementCluster,
    NamespaceInfo,
    ProvisioningCluster,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A link is missing.

    `needs_retry`: it must be asked for again, no event of the guest's own objects will tell. `guest` is there when
    visits can serve the guest all the same (a credential deleted long after the guest was made must not stop them).
    `is_resolved`: what it stands on was known before. If not, no range can be chosen for it.
    """

    message: str
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


def resolve_cached(links: Links) -> Discovery:
    """Resolve what needs no request: how a guest is reached, not what it stands on."""
    return settle_without_requests(links) or build_guest(links)


def settle_without_requests(links: Links) -> Waiting | NotAGuest | None:
    """Return why nothing can be resolved, if that is known without a request."""
    cluster, management = links.cluster, links.management
    if not is_guest(cluster, management, is_unknown_kind=links.is_unknown_kind):
        return NotAGuest()
    name = cluster.cluster_name
    if not name:
        return Waiting(message="Rancher has not named the cluster's namespace yet")
    if cluster.is_deleting:
        return None
    if management is None:
        return Waiting(message=f"management Cluster {name} does not exist")
    if cluster.is_imported and not (management.provider or links.is_unknown_kind):
        return _wait_for_provider(links)
    if links.namespace is None:
        return Waiting(message=f"namespace {name} does not exist")
    return None


def is_guest(
    cluster: ProvisioningCluster, management: ManagementCluster | None, *, is_unknown_kind: bool = False
) -> bool:
    """Return whether a cluster is neither Rancher's own nor a Harvester cluster."""
    if cluster.cluster_name == "local" or (management is not None and management.is_internal):
        return False
    # Rancher's pages label an imported Harvester before anything has connected to it. Later the label says nothing: on
    # a guest cluster that is served, it would make its addresses look unused.
    unfound = management is None or not (management.provider or is_unknown_kind)
    labelled = unfound and cluster.labels.get(LABEL_PROVIDER) == PROVIDER_HARVESTER
    return not (labelled or (management is not None and management.is_harvester))


def _wait_for_provider(links: Links) -> Waiting:
    """Wait until it is known what an imported cluster is; once it is ready, only time and its nodes tell."""
    message = "Rancher has not detected the provider of the imported cluster yet"
    is_ready = links.management is not None and links.management.ready_since is not None
    return Waiting(message=message, needs_retry=is_ready)


def build_guest(links: Links) -> Guest:
    """Build a guest cluster of which it is not resolved what it stands on."""
    cluster, management, namespace = links.cluster, links.management, links.namespace
    return Guest(
        cluster=cluster,
        display_name=(management.display_name if management is not None else "") or cluster.display_name,
        connected=management is not None and management.connected,
        deleting=cluster.is_deleting
        or management is None
        or management.is_deleting
        or namespace is None
        or namespace.terminating,
        provisioned=management is None or management.provisioned,
    )
