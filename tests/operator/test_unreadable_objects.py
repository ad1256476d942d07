"""An object that does not fit its schema, as of another version of the CRD, keeps what it has and stops no other."""

import pytest

from tests.harness.fleet import Fleet, build_fleet
from tests.harness.history import RESERVATIONS


async def test_a_floating_ip_keeps_its_address_and_its_guest_cluster_stays_as_it_is() -> None:
    fleet = build_fleet("c-m-a", "c-m-b", iprange="10.0.0.1-10.0.0.3")
    fleet.ask("c-m-a", serviceNamespace="shop")
    await fleet.start()
    assert fleet.addresses("c-m-a") == ["10.0.0.1"]
    before = dict(fleet.guests["c-m-a"].config_map)
    fleet.change("c-m-a", ipFamilies=["IPv5"])
    fleet.ask("c-m-b")
    await fleet.pass_time(600)
    assert fleet.addresses("c-m-a") == ["10.0.0.1"]
    assert fleet.condition("c-m-a") == ("False", "InvalidSpec")
    assert "spec.ipFamilies.0 must be IPv4 or IPv6" in fleet.message("c-m-a")
    assert fleet.condition("c-m-a", "GuestConfigured") == ("False", "InvalidSpec")
    assert before
    assert fleet.guests["c-m-a"].config_map == before
    assert fleet.addresses("c-m-b") == ["10.0.0.2"]
    fleet.change("c-m-a", ipFamilies=["IPv4"])
    await fleet.pass_time(60)
    assert fleet.condition("c-m-a") == ("True", "Allocated")


async def test_a_range_assigns_nothing_new_and_says_which_field_is_wrong() -> None:
    fleet = Fleet()
    fleet.add_range("pool", "10.0.0.0/29")
    fleet.add_range("other", "10.0.1.0/29")
    fleet.add_guest("c-m-a")
    fleet.add_guest("c-m-b")
    fleet.ask("c-m-a", range_name="pool")
    await fleet.start()
    assert fleet.addresses("c-m-a") == ["10.0.0.1"]
    fleet.change_range("pool", maxPerGuest="many")
    fleet.ask("c-m-b", range_name="other")
    await fleet.pass_time(120)
    assert fleet.range_condition("pool") == ("False", "Invalid")
    assert "spec.maxPerGuest must be a valid integer" in fleet.range_message("pool")
    assert fleet.addresses("c-m-a") == ["10.0.0.1"]
    assert fleet.addresses("c-m-b") == ["10.0.1.1"]
    assert fleet.range_condition("other") == ("True", "Ready")


async def test_a_reservation_is_logged_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    fleet = build_fleet("c-m-a", iprange="10.0.0.1-10.0.0.3")
    fleet.reserve("10.9.0.1", "c-m-b")
    key = (RESERVATIONS, "", "default.10.9.0.1")
    obj = fleet.memory.objects[key]
    fleet.memory.put(key, {**obj, "spec": {**obj["spec"], "since": "yesterday"}})
    fleet.ask("c-m-a")
    await fleet.start()
    assert fleet.addresses("c-m-a") == ["10.0.0.1"]
    (record,) = {each.__dict__["error"] for each in caplog.records if each.msg == "Could not read object"}
    assert record == "spec.since must be a time with a zone"
    assert fleet.memory.objects[key]["spec"]["since"] == "yesterday"
