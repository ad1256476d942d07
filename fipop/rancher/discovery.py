"""From the links between Rancher's objects to one Guest; Secrets and HarvesterConfigs are only got, not watched.

The objects arrive in any order. An event of a watched object causes another discovery. The other objects are requested
again with a pause that grows.
"""

from __future__ import annotations

from dataclasses import replace

from fipop.backoff import Backoff
from fipop.kube.resources import HARVESTER_CONFIGS, SECRETS
from fipop.rancher.credentials import Credential, parse_credential
from fipop.rancher.link_reader import LinkReader, Unreadable
from fipop.rancher.links import Discovery, Links, Waiting, build_guest, settle_without_requests
from fipop.rancher.matching import Guest
from fipop.rancher.objects import (
    MachinePool,
    ManagementCluster,
    ObjectRef,
    credential_ref,
    object_ref,
    parse_harvester_networks,
)

LOCAL_CLUSTER = "local"
NEW_GUEST_SECONDS = 600.0
NEW_GUEST_RETRY_SECONDS = 3.0
MAX_RETRY_SECONDS = 30.0
LINKS_BACKOFF = Backoff(first_seconds=NEW_GUEST_RETRY_SECONDS, limit_seconds=MAX_RETRY_SECONDS)


def retry_delay_seconds(age_seconds: float, failures: int) -> float:
    """Return the seconds until a guest cluster is visited again: 3 while it is new, then doubled up to 30.

    `failures` counts the failed attempts since it stopped being new, or since the start of this process.
    """
    if age_seconds < NEW_GUEST_SECONDS:
        return NEW_GUEST_RETRY_SECONDS
    return LINKS_BACKOFF.step_seconds(failures + 1)


async def discover_guest(reader: LinkReader, links: Links) -> Discovery:
    """Resolve the links of one provisioning Cluster, with at most two requests.

    Raises ApiError where the API server did not answer as it should (a refused or missing object is no error).
    """
    settled = settle_without_requests(links)
    if settled is not None:
        return settled
    guest, known = build_guest(links), links.known
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


async def _resolve_harvester(reader: LinkReader, links: Links, guest: Guest) -> Guest | Waiting:
    """Return the guest cluster with the Harvester cluster and the networks of its machines, if it is on one."""
    pool = links.cluster.harvester_pool
    if pool is None:
        return guest
    networks = await _get_networks(reader, links, pool)
    if isinstance(networks, Waiting):
        return networks
    ref = credential_ref(pool.credential or links.cluster.credential, links.cluster.namespace)
    if ref is None:
        return Waiting(message="the cluster names no cloud credential")
    credential = await reader.read(SECRETS, ref, parse_credential)
    if isinstance(credential, Unreadable):
        return Waiting(message=credential.message, needs_retry=True)
    found = _find_harvester(links, ref, credential)
    if isinstance(found, Waiting):
        return found
    harvester, warning = found
    # An external Harvester is not in Rancher, hence without a name; ranges with a selector can serve.
    name = harvester.display_name if harvester is not None else None
    return replace(guest, harvester_cluster_name=name, networks=networks, warning=warning)


def _find_harvester(
    links: Links, ref: ObjectRef, credential: Credential
) -> tuple[ManagementCluster | None, str] | Waiting:
    """Return the Harvester cluster of a credential, None for an external one, with what is wrong with the credential.

    Rancher makes machines where the kubeconfig leads to. So if that is a Harvester cluster of Rancher, it counts,
    whatever id stands beside it.
    """
    by_id, by_server = (
        links.find_management(each) if each is not None else None
        for each in (credential.cluster_id, credential.server_id)
    )
    what = f"cloud credential {ref.namespace}/{ref.name}"
    wanted = credential.cluster_id or credential.server_id
    if wanted is None:
        lack = f"The {what} has neither a clusterId nor a kubeconfig that can be read. Create it again in Rancher."
        return None, "" if credential.has_server else lack
    is_there = by_server is not None and by_server.is_harvester
    found = by_server if is_there or by_id is None else by_id
    # Harvester itself serves its kubeconfig as its own "local": that is none of this Rancher's clusters.
    is_own = credential.server_id == LOCAL_CLUSTER and not is_there
    is_split = credential.server_id not in (None, wanted) and not is_own
    if found is None or not found.display_name:
        leads = f", nor is {credential.server_id}, to which its kubeconfig leads" if is_split else ""
        message = (
            f"the Harvester cluster {wanted} of {what} is not in Rancher{leads}. If it was registered again, choose a "
            "credential of its present registration, or correct clusterId and kubeconfig of this one"
        )
        return Waiting(message=message, needs_retry=True)
    if not is_split:
        return found, ""
    counts = (
        "the kubeconfig"
        if found is by_server
        else "the clusterId, as the other one is no Harvester of Rancher"
    )
    return found, (
        f"The {what} contradicts itself: its clusterId is {wanted}, and its kubeconfig leads to "
        f"{credential.server_id}. fipop goes by {counts}. Correct the credential."
    )


async def _get_networks(reader: LinkReader, links: Links, pool: MachinePool) -> tuple[str, ...] | Waiting:
    ref = object_ref(links.cluster.namespace, pool.config_name)
    if ref is None:
        return Waiting(message="the machine pool names no HarvesterConfig")
    networks = await reader.read(HARVESTER_CONFIGS, ref, parse_harvester_networks)
    if isinstance(networks, Unreadable):
        return Waiting(message=networks.message, needs_retry=True)
    if isinstance(networks, str):
        message = f"the networkInfo of HarvesterConfig {ref.namespace}/{ref.name} {networks}"
        return Waiting(message=message, needs_retry=True)
    return networks
