from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from fipop.kube.resources import (
    FLOATING_IPS,
    MANAGEMENT_CLUSTERS,
    NAMESPACES,
    PROVISIONING_CLUSTERS,
    Resource,
)
from fipop.operator.guests import GuestDirectory
from fipop.operator.observations import unreachable
from fipop.operator.world import World
from fipop.rancher.discovery import Waiting
from tests.unit.operator.objects import Json, build_floating_ip, world_of

GUEST = "c-m-1"
POOL = {
    "name": "pool1",
    "controlPlaneRole": True,
    "machineConfigRef": {"kind": "HarvesterConfig", "name": "nc-demo"},
}


class NothingToRead:
    """Neither the HarvesterConfig nor the credential can be had."""

    async def get(self, _resource: Resource, _name: str, **_: object) -> Json | None:
        return None


def _observe(world: World, resource: Resource, name: str, namespace: str = "", **parts: Any) -> None:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "7"}
    world.observe(resource, {"metadata": metadata, **parts})


def _directory(spec: Mapping[str, Any]) -> GuestDirectory:
    world = world_of()
    connected = {"conditions": [{"type": "Connected", "status": "True"}], "provider": "rke2"}
    _observe(world, MANAGEMENT_CLUSTERS, GUEST, spec={"displayName": "demo"}, status=connected)
    _observe(world, NAMESPACES, GUEST)
    _observe(world, PROVISIONING_CLUSTERS, "demo", "fleet-default", spec=spec, status={"clusterName": GUEST})
    return GuestDirectory(world=world, client=NothingToRead())  # type: ignore[arg-type]


async def test_a_guest_whose_network_cannot_be_found_out_is_known_for_passes() -> None:
    directory = _directory({"rkeConfig": {"machinePools": [POOL]}})
    found = await directory.discover(GUEST)
    assert isinstance(found, Waiting)
    known = directory.known(GUEST)
    assert known is not None
    assert known.connected
    assert [each.id for each in directory.all()] == [GUEST]


async def test_a_leader_starts_with_nothing_that_was_found_before() -> None:
    directory = _directory({"rkeConfig": {}})
    await directory.discover(GUEST)
    directory.observe(GUEST, unreachable("GuestUnreachable", "no answer", installs=False))
    directory.start_afresh()
    assert directory.known(GUEST) is None
    assert directory.observation(GUEST) is None


def test_an_object_of_the_predecessor_is_inherited_until_it_is_served() -> None:
    refused = {"conditions": [{"type": "Ready", "status": "False", "reason": "RangeNotFound"}]}
    served = refused | {"addresses": ["10.0.0.1"]}
    world = world_of(
        floating_ips=[
            build_floating_ip("old", status=refused),
            build_floating_ip("served", status=served),
            build_floating_ip("new", created="2026-09-01T00:00:00Z"),
        ]
    )
    directory = GuestDirectory(
        world=world,
        client=NothingToRead(),  # type: ignore[arg-type]
        ours_since=datetime(2026, 6, 1, tzinfo=UTC),
    )
    inherited = {each.name for each in world.floating_ips.all() if directory.is_inherited(each)}
    assert inherited == {"old"}


def test_what_a_spec_names_after_the_adoption_is_no_inheritance() -> None:
    """Any address, the gateway too, could have been had by an old object that had none."""
    out_of_range = {"conditions": [{"type": "Allocated", "status": "False", "reason": "AddressOutOfRange"}]}
    world = world_of(
        floating_ips=[
            build_floating_ip("kept", ipaddress="10.0.0.1"),
            build_floating_ip("empty"),
            build_floating_ip("refused", ipaddress="10.0.0.254", status=out_of_range),
        ]
    )
    directory = GuestDirectory(
        world=world,
        client=NothingToRead(),  # type: ignore[arg-type]
        ours_since=datetime(2026, 6, 1, tzinfo=UTC),
    )
    directory.note_inheritance()
    for later in (
        build_floating_ip("empty", ipaddress="10.0.0.254"),
        build_floating_ip("young", ipaddress="10.0.0.2"),
    ):
        world.observe(FLOATING_IPS, later)
    assert {each.name for each in world.floating_ips.all() if directory.is_inherited(each)} == {"kept"}
    directory.start_afresh()
    assert directory.inheritance is None
