"""The interface of a range: the default of its floating IPs, what decides if they differ, and Harvester's own map."""

import json

import pytest

from fipop.api import names
from tests.harness.fleet import RANGES, Fleet

A = "c-m-a"
VISITED = 150
"""Every guest cluster was visited twice in that time."""


async def serving(*interfaces: str) -> Fleet:
    """Have a guest cluster, and a range for each interface."""
    fleet = Fleet()
    fleet.set_options(operateGuestClusterInterval="60")
    for number, interface in enumerate(interfaces):
        fleet.add_range(f"range-{number}", f"10.0.{number}.10-10.0.{number}.19", interface=interface)
    fleet.add_guest(A)
    await fleet.start(leader_election=False)
    return fleet


async def test_floating_ips_have_the_interface_of_their_range_unless_they_name_one() -> None:
    fleet = await serving("eth1")
    fleet.ask(A, range_name="range-0")
    fleet.ask(A, name="own", range_name="range-0", interface="eth5", serviceNamespace="own")
    await fleet.pass_time(VISITED)
    keys = fleet.guests[A].config_map
    assert (keys["interface-global"], keys["interface-own"]) == ("eth1", "eth5")
    fleet.change_range("range-0", interface="eth2")
    await fleet.pass_time(VISITED)
    keys = fleet.guests[A].config_map
    assert (keys["interface-global"], keys["interface-own"]) == ("eth2", "eth5")
    fleet.change_range("range-0", interface=None)
    await fleet.pass_time(VISITED)
    assert "interface-global" not in fleet.guests[A].config_map


@pytest.mark.parametrize("namespace", ["", "dmz"])
async def test_several_ranges_differ_by_namespace_and_else_the_oldest_counts(namespace: str) -> None:
    fleet = await serving("eth1", "eth2")
    fleet.ask(A, range_name="range-0")
    await fleet.pass_time(5)
    fleet.ask(A, name="second", range_name="range-1", serviceNamespace=namespace)
    await fleet.pass_time(VISITED)
    keys = fleet.guests[A].config_map
    assert keys["interface-global"] == "eth1"
    assert keys.get("interface-dmz") == ("eth2" if namespace else None)
    assert fleet.condition(A, "GuestConfigured", "second")[0] == "True"
    assert ("Interface eth2 does not count" in fleet.message(A, "GuestConfigured", "second")) != bool(
        namespace
    )
    assert fleet.message(A, "GuestConfigured") == ""


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"default/vlan1": ""}', '{"default/vlan1": 7}', '{"default/vlan2": "enp9s0"}', "x" * 70_000],
)
async def test_a_map_of_harvester_that_does_not_name_the_network_changes_nothing(text: str) -> None:
    fleet = await on_harvester(text)
    assert fleet.condition(A, "GuestConfigured") == ("True", "Configured")


@pytest.mark.parametrize("right", ["enp9s0", "auto"])
async def test_an_interface_that_contradicts_harvesters_map_is_a_condition(right: str) -> None:
    """One that kube-vip chooses contradicts nothing."""
    fleet = await on_harvester(json.dumps({"default/vlan1": "enp9s0"}))
    assert fleet.condition(A, "GuestConfigured") == ("False", "InterfaceMismatch")
    assert "enp9s0" in fleet.message(A, "GuestConfigured")
    fleet.change_range("vlan", interface=right)
    await fleet.pass_time(VISITED)
    assert fleet.condition(A, "GuestConfigured") == ("True", "Configured")
    assert fleet.guests[A].config_map["interface-global"] == right


async def on_harvester(text: str) -> Fleet:
    """Have a guest cluster on network vlan1 of a Harvester whose cloud provider lists interfaces."""
    fleet = Fleet()
    fleet.set_options(operateGuestClusterInterval="60")
    fleet.add_range("vlan", "10.0.0.10-10.0.0.19", harvester="hv1", interface="enp1s0")
    fleet.annotate((RANGES, "", "vlan"), {names.ANNOTATION_HARVESTER_NETWORK: "vlan1"})
    guest = fleet.add_guest(A)
    fleet.put_on_harvester(A, "hv1")
    metadata = {"name": "harvester-nad-mapping", "namespace": "kube-system"}
    guest.put(
        ("configmaps", "kube-system", "harvester-nad-mapping"),
        {"metadata": metadata, "data": {"interface-nad-mapping": text}},
    )
    await fleet.start(leader_election=False)
    fleet.ask(A, range_name="vlan")
    await fleet.pass_time(VISITED)
    return fleet
