"""Rule "range": the conditions of a range say what is wrong with it, and what fipop understood."""

from typing import Any

import pytest

from fipop.api import names
from tests.harness.fleet import Fleet
from tests.harness.history import FLOATING_IPS, RANGES


@pytest.mark.parametrize(
    ("iprange", "spec", "ready", "texts"),
    [
        ("10.0.0.192/26", {}, ("True", "Ready"), ["62"]),
        (
            "10.0.0.200/24, fd00::7/64",
            {},
            ("True", "Ready"),
            ["10.0.0.200/24", "10.0.0.0/24", "fd00::7/64", "fd00::/64", "254 IPv4 and 2^64 IPv6"],
        ),
        ("10.0.0.0/24, 10.0.0.9-10.0.0.1", {}, ("False", "Invalid"), ['"10.0.0.9-10.0.0.1"']),
        ("10.0.0.0/24, 224.0.5.0/28", {}, ("False", "Invalid"), ['"224.0.5.0/28"', "multicast"]),
        ("10.0.0.0/24", {"draining": True}, ("False", "Draining"), []),
    ],
)
async def test_a_range_says_what_it_assigns(
    iprange: str, spec: dict[str, object], ready: tuple[str, str], texts: list[str]
) -> None:
    fleet = Fleet()
    fleet.add_range(iprange=iprange, **spec)
    await fleet.start()
    assert fleet.range_condition() == ready
    message = fleet.range_message()
    assert [each for each in texts if each not in message] == []
    assert fleet.range_condition(kind="Conflict") == ("False", "NoOverlap")


async def test_of_many_masked_parts_a_few_are_named() -> None:
    fleet = Fleet()
    fleet.add_range(iprange=",".join(f"10.{part}.0.1/24" for part in range(50)))
    await fleet.start()
    assert sum(f"10.{part}.0.1/24" in fleet.range_message() for part in range(50)) == 5


async def test_a_younger_range_names_the_older_ones_that_take_addresses_from_it() -> None:
    fleet = Fleet()
    for name, iprange, space in (
        ("away", "10.0.0.0/24", "away"),
        ("older", "10.0.0.16/28", "default"),
        ("old", "10.0.0.0/28", "default"),
        ("pool", "10.0.0.0/24", "default"),
    ):
        fleet.add_range(name, iprange, addressSpace=space)
        await fleet.pass_time(2)
    await fleet.start()
    assert fleet.range_condition(kind="Conflict") == ("True", "Overlap")
    assert "older, old" in fleet.range_message(kind="Conflict")
    assert fleet.range_condition("older", "Conflict") == ("False", "NoOverlap")


async def test_a_range_of_a_misspelt_harvester_cluster_names_those_that_exist() -> None:
    fleet = Fleet()
    for guest_id, harvester in (("c-m-a", "harvester-1"), ("c-m-b", "harvester-2")):
        fleet.add_guest(guest_id)
        fleet.put_on_harvester(guest_id, harvester)
    fleet.add_range(iprange="10.0.0.0/24", harvester="harvster-1")
    await fleet.start()
    assert fleet.range_condition() == ("True", "HarvesterNotFound")
    message = fleet.range_message()
    for text in ("254 IPv4 addresses", '"harvster-1"', '"harvester-1", "harvester-2"'):
        assert text in message


async def no_range(**ranges: dict[str, Any]) -> Fleet:
    """Have a guest cluster on "hv1" and its network "vlan1", labelled net=blue, and ranges that do not serve it."""
    fleet = Fleet()
    for name, fields in ranges.items():
        network = fields.pop("network", "")
        fleet.add_range(name, **fields)
        if network:
            fleet.annotate((RANGES, "", name), {names.ANNOTATION_HARVESTER_NETWORK: network})
    fleet.add_guest("c-m-a", is_served=True, labels={"net": "blue"})
    fleet.put_on_harvester("c-m-a", "hv1")
    await fleet.start(leader_election=False)
    return fleet


async def test_who_gets_no_address_because_of_the_network_or_names_the_range_is_told_both_networks() -> None:
    fleet = await no_range(first={"harvester": "hv1", "network": "vlan20"})
    name = "cluster-c-m-a-kubevip"
    assert fleet.condition("c-m-a", name=name) == ("False", "NetworkMismatch")
    message = fleet.message("c-m-a", name=name)
    assert ("vlan20" in message, "vlan1" in message, '"first"' in message) == (True, True, True)
    fleet.ask("c-m-a", range_name="first")
    await fleet.settle()
    assert fleet.addresses("c-m-a") == ["10.0.0.10"]
    ((_, reason, message),) = fleet.events("FloatingIP/web")
    assert (reason, "vlan20" in message, "vlan1" in message) == ("NetworkMismatch", True, True)


async def test_who_matches_no_range_is_told_what_differs_those_of_its_harvester_cluster_first() -> None:
    fleet = await no_range(
        **{name: {"harvester": "hv9"} for name in ("a", "b", "c")},
        mine={"harvester": "hv1", "clusterSelector": {"matchLabels": {"net": "green"}}},
    )
    ((_, reason, event),) = fleet.events("Cluster/cluster-c-m-a")
    assert reason == "NoMatchingRange"
    fleet.ask("c-m-a", range_name="")
    await fleet.settle()
    assert fleet.condition("c-m-a") == ("False", "NoMatchingRange")
    for message in (event, fleet.message("c-m-a")):
        assert '"mine" selects net=green' in message
        assert ("hv9" in message, '"c"' in message) == (True, False)


async def test_ranges_that_serve_only_who_names_them_are_named_after_those_with_a_selector() -> None:
    fleet = await no_range(
        **{name: {} for name in ("a", "b", "c")}, mine={"clusterSelector": {"matchLabels": {"net": "green"}}}
    )
    ((_, _, message),) = fleet.events("Cluster/cluster-c-m-a")
    assert 'Range "mine" selects net=green, which the guest cluster does not have.' in message


async def test_misspelt_annotations_are_named_in_the_conditions_of_a_range_and_of_a_floating_ip() -> None:
    fleet = Fleet()
    fleet.add_range(clusterSelector={"matchLabels": {}})
    fleet.annotate((RANGES, "", "pool"), {"harvesterNetworkname": "vlan20"})
    fleet.add_guest("c-m-a", labels={"kube-vip": "yes"})
    fleet.ask("c-m-a", range_name="")
    fleet.annotate((FLOATING_IPS, "c-m-a", "web"), {"fipRange": "typo", "updateConfigMap": "ja"})
    await fleet.start(leader_election=False)
    assert fleet.range_condition() == ("True", "Ready")
    assert "did you mean harvesterNetworkName?" in fleet.range_message()
    assert fleet.condition("c-m-a") == ("True", "Allocated")
    for text in ("did you mean fiprange?", "annotation updateConfigMap", "label kube-vip"):
        assert text in fleet.message("c-m-a")
