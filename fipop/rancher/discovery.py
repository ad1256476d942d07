"""From the links between Rancher's objects to one Guest; Secrets and HarvesterConfigs are only got, not watched.

The objects arrive in any order. An event of a watched object causes another discovery. The other objects are requested
again after `retry_delay_seconds`.
"""

from __future__ import annotations

from dataclasses import replace

from fipop.backoff import Backoff
from fipop.kube.resources import HARVESTER_CONFIGS, SECRETS
from fipop.rancher.credentials import parse_credential
from fipop.rancher.link_reader import LinkReader, Unreadable
from fipop.rancher.links import Discovery, Links, Waiting, build_guest, settle_without_requests, wait_for
from fipop.rancher.matching import Guest
from fipop.rancher.objects import MachinePool, credential_ref, object_ref, parse_harvester_networks

NEW_GUEST_SECONDS = 600.0
NEW_GUEST_RETRY_SECONDS = 3.0
MAX_RETRY_SECONDS = 30.0
_BACKOFF = Backoff(first_seconds=NEW_GUEST_RETRY_SECONDS, limit_seconds=MAX_RETRY_SECONDS)


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
    harvester_id = await _get_harvester_id(reader, links, pool)
    if isinstance(harvester_id, Waiting):
        return harvester_id
    if harvester_id is None:
        # An external Harvester: not in Rancher, hence without a name; ranges with a selector can serve.
        return replace(guest, networks=networks)
    harvester = links.find_management(harvester_id)
    if harvester is None or not harvester.display_name:
        message = f"the Harvester cluster {harvester_id} is not in Rancher"
        return wait_for(links, message, needs_retry=True)
    return replace(guest, harvester_cluster_name=harvester.display_name, networks=networks)


async def _get_networks(reader: LinkReader, links: Links, pool: MachinePool) -> tuple[str, ...] | Waiting:
    ref = object_ref(links.cluster.namespace, pool.config_name)
    if ref is None:
        return wait_for(links, "the machine pool names no HarvesterConfig")
    networks = await reader.read(HARVESTER_CONFIGS, ref, parse_harvester_networks)
    if isinstance(networks, Unreadable):
        return wait_for(links, networks.message, needs_retry=True)
    if isinstance(networks, str):
        message = f"the networkInfo of HarvesterConfig {ref.namespace}/{ref.name} {networks}"
        return wait_for(links, message, needs_retry=True)
    return networks


async def _get_harvester_id(reader: LinkReader, links: Links, pool: MachinePool) -> str | Waiting | None:
    ref = credential_ref(pool.credential or links.cluster.credential, links.cluster.namespace)
    if ref is None:
        return wait_for(links, "the cluster names no cloud credential")
    harvester_id = await reader.read(SECRETS, ref, parse_credential)
    if isinstance(harvester_id, Unreadable):
        return wait_for(links, harvester_id.message, needs_retry=True)
    return harvester_id
