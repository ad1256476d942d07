"""Who has an address, and who can take one that another had."""

from __future__ import annotations

from fipop.addresses.claims import Claim, names_address
from fipop.addresses.inventory import Inventory
from fipop.addresses.request import Blocker, describe_holder, describe_namer, describe_wait
from fipop.api.objects import FloatingIP, FloatingIPReservation, Requested


def can_take(inventory: Inventory, known: FloatingIPReservation, claim: Claim) -> bool:
    """Return whether a claimant can have a reservation that exists.

    One that is held, only its owner. One in quarantine, who had it, and who names it in the same guest cluster. Or the
    floating IP of the same name and range, whose guest cluster of the same name and workspace replaces one that is
    gone; if that lives on outside of Rancher, only if its successor uses the address: it is the same one. Where Rancher
    names a cluster by its id, its name is what people call it, if no other Cluster of the workspace is called so.
    """
    former, owner = known.spec.owner, claim.owner
    if known.is_held or former.key == owner.key:
        return former.key == owner.key
    if former.namespace == owner.namespace:
        return claim.requested is Requested.STATIC
    is_successor = (*former.lineage, known.spec.range) == (*owner.lineage, claim.range) and bool(
        owner.cluster
    )
    if not is_successor or inventory.exists(former.namespace):
        return False
    is_called_so = bool(former.display_name or owner.display_name)
    if is_called_so:
        called = inventory.find_known_as(owner.workspace, owner.known_as)
        if [each.cluster_name for each in called] != [owner.namespace]:
            return False
    # A user who can edit a cluster chooses its display name: that alone gives no address either.
    is_proven = not (former.imported or is_called_so)
    return is_proven or inventory.reports.find_user(owner.namespace, claim.address) is not None


def find_holder(inventory: Inventory, claim: Claim) -> Blocker | None:
    """Return who has an address, by its reservation or its status; None if the claimant can have it."""
    known = inventory.reservation(claim.space, claim.address)
    if known is not None and can_take(inventory, known, claim):
        return None
    if known is not None:
        return describe_holder(known, describe_wait(inventory, known))
    mine = inventory.floating_ips.get(*claim.owner.key)
    for namer in inventory.named_by(claim.space, claim.address):
        if mine is None or namer.key == claim.owner.key:
            return None
        if names_address(namer, claim.space, claim.address) or is_older(namer, mine):
            return describe_namer(namer, claim.address)
    return None


def is_older(one: FloatingIP, other: FloatingIP) -> bool:
    """Return whether a floating IP is older; of two of the same second, the one whose name comes first."""
    return (one.created, one.key) < (other.created, other.key)
