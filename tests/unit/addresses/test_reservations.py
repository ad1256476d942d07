"""Who can take an address that is reserved: DESIGN's rule, row by row."""

from dataclasses import replace
from typing import Any

import pytest

from fipop.addresses.claims import Claim
from fipop.addresses.holders import can_take
from fipop.addresses.in_use import AddressUser, InUseAddresses, Source, build_parts
from fipop.addresses.inventory import Inventory
from fipop.api.objects import FloatingIPReservation, Owner, Requested
from fipop.ipam.addresses import parse_address
from fipop.kube.resources import PROVISIONING_CLUSTERS
from tests.harness.objects import NOW, reservation
from tests.unit.report.snapshots import build_cluster

ADDRESS = "10.0.0.1"
OLD = Owner(namespace="c-m-old", name="web", uid="u-1", cluster="demo", workspace="fleet-default")
REBUILT = replace(OLD, namespace="c-m-new", uid="u-2")
"""The floating IP of the same name, in a guest cluster that has the name and the workspace of the former one."""
STRANGER = Owner(namespace="c-m-x", name="api", uid="u-3", cluster="shop", workspace="fleet-default")


def former(*, held: bool = False, **owner: Any) -> FloatingIPReservation:
    until = None if held else "2026-03-02T00:00:00Z"
    found = reservation(ADDRESS, quarantined_until=until)
    return replace(found, spec=replace(found.spec, owner=replace(OLD, **owner)))


def asks(owner: Owner, *, by_name: bool = False, range_name: str = "pool") -> Claim:
    requested = Requested.STATIC if by_name else Requested.DYNAMIC
    address = parse_address(ADDRESS)
    return Claim(space="default", address=address, range=range_name, owner=owner, requested=requested)


def takes(known: FloatingIPReservation, claim: Claim, *, is_gone: bool = False, uses: bool = False) -> bool:
    """`is_gone`: the former guest cluster left Rancher; `uses`: that of the claimant uses the address."""
    inventory = Inventory()
    inventory.observe(PROVISIONING_CLUSTERS, build_cluster("new", "c-m-new"))
    if not is_gone:
        inventory.observe(PROVISIONING_CLUSTERS, build_cluster("demo", "c-m-old"))
    if uses:
        user = AddressUser(kind="Service", namespace="shop", name="web")
        found = InUseAddresses(build_parts(user, [parse_address(ADDRESS)]))
        inventory.reports.take(claim.owner.namespace, Source.OBJECTS, NOW, found)
    return can_take(inventory, known, claim)


@pytest.mark.parametrize(
    ("claim", "taken"),
    [
        (asks(OLD), True),
        (asks(replace(OLD, uid="u-9")), True),
        (asks(replace(OLD, name="other"), by_name=True), False),
        (asks(REBUILT), False),
        (asks(STRANGER, by_name=True), False),
    ],
    ids=["its owner", "its owner, created again", "the same guest cluster", "the rebuilt one", "another"],
)
@pytest.mark.parametrize("is_gone", [False, True])
def test_a_held_address_is_its_owners_alone(claim: Claim, taken: bool, is_gone: bool) -> None:
    assert takes(former(held=True), claim, is_gone=is_gone, uses=True) is taken


@pytest.mark.parametrize(
    ("claim", "taken"),
    [
        (asks(OLD), True),
        (asks(replace(OLD, uid="u-9")), True),
        (asks(replace(OLD, name="other"), by_name=True), True),
        (asks(replace(OLD, name="other")), False),
        (asks(REBUILT), False),
        (asks(REBUILT, by_name=True), False),
        (asks(STRANGER, by_name=True), False),
    ],
    ids=[
        "who had it",
        "who had it, created again",
        "who names it in the same guest cluster",
        "who does not name it there",
        "a namesake while the guest cluster exists",
        "a namesake that names it",
        "another",
    ],
)
def test_an_address_in_quarantine_can_be_taken_by(claim: Claim, taken: bool) -> None:
    assert takes(former(), claim) is taken


@pytest.mark.parametrize(
    ("claim", "taken"),
    [
        (asks(REBUILT), True),
        (asks(replace(REBUILT, workspace="fleet-lab")), False),
        (asks(replace(REBUILT, cluster="shop")), False),
        (asks(replace(REBUILT, name="other")), False),
        (asks(REBUILT, range_name="other"), False),
        (asks(replace(STRANGER, name="web"), by_name=True), False),
    ],
    ids=[
        "the same",
        "of another workspace",
        "of another cluster",
        "another name",
        "another range",
        "another",
    ],
)
def test_if_its_guest_cluster_is_gone_by_the_floating_ip_that_replaces_it(claim: Claim, taken: bool) -> None:
    assert takes(former(), claim, is_gone=True) is taken


def test_without_a_cluster_name_nothing_is_the_same_cluster() -> None:
    assert not takes(former(cluster=""), asks(replace(REBUILT, cluster="")), is_gone=True)


@pytest.mark.parametrize("uses", [False, True])
def test_an_imported_cluster_that_is_registered_again_takes_what_it_uses(uses: bool) -> None:
    known = former(imported=True)
    assert takes(known, asks(replace(REBUILT, imported=True)), is_gone=True, uses=uses) is uses
    assert not takes(known, asks(STRANGER, by_name=True), is_gone=True, uses=uses)
