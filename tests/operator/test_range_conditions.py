"""Rule "range": the conditions of a range say what is wrong with it, and what fipop understood."""

import pytest

from tests.harness.fleet import Fleet

MAX_COUNT = 2**63 - 1
"""The largest count that a status can hold."""


@pytest.mark.parametrize(
    ("iprange", "spec", "ready", "texts"),
    [
        ("10.0.0.192/26", {}, ("True", "Ready"), ["62"]),
        (
            "10.0.0.200/24, fd00::7/64",
            {},
            ("True", "Ready"),
            ["10.0.0.200/24", "10.0.0.0/24", "fd00::7/64", "fd00::/64", str(MAX_COUNT)],
        ),
        ("10.0.0.0/24, 10.0.0.9-10.0.0.1", {}, ("False", "Invalid"), ['"10.0.0.9-10.0.0.1"']),
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
    for text in ("254 addresses", '"harvster-1"', '"harvester-1", "harvester-2"'):
        assert text in message
