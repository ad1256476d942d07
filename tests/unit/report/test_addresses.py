"""Who has an address, and which addresses a guest has."""

import pytest

from fipop.ipam.addresses import parse_address
from fipop.report.addresses import (
    AddressReport,
    AddressState,
    find_namespaces,
    report_address,
    report_holdings,
)
from fipop.report.history import history_of_guests
from fipop.report.picture import Picture
from tests.harness.objects import build_floating_ip, build_range, build_reservation, held_by
from tests.unit.report.holders import PAST
from tests.unit.report.pictures import build_cluster, picture


def ask(found: Picture, text: str) -> AddressReport:
    (answer,) = report_address(found, parse_address(text))
    return answer


def test_a_held_address_tells_its_holder_and_its_past() -> None:
    found = picture(
        ranges=[build_range("pool", "10.0.0.0/24")],
        floating_ips=[build_floating_ip("web", status=held_by(["10.0.0.5"]))],
        reservations=[build_reservation("10.0.0.5", requested="static", history=PAST)],
        clusters=[build_cluster("demo", "c-m-1")],
    )
    answer = ask(found, "10.0.0.5")
    assert answer.state is AddressState.HELD
    assert answer.owner is not None
    assert (answer.owner.cluster, answer.owner.name) == ("demo", "web")
    assert answer.static
    assert [each.cluster for each in answer.past_owners] == ["eight", "seven"]
    assert not answer.contenders
    assert not answer.out_of_range


def test_quarantine_names_who_had_it_once() -> None:
    found = picture(
        ranges=[build_range("pool", "10.0.0.0/24")],
        reservations=[
            build_reservation(
                "10.0.0.5",
                "old",
                namespace="c-m-8",
                cluster="eight",
                quarantined_until="2026-03-01T13:00:00Z",
                history=PAST,
            )
        ],
    )
    answer = ask(found, "10.0.0.5")
    assert answer.state is AddressState.QUARANTINED
    assert answer.quarantined_until is not None
    assert answer.owner is not None
    assert answer.owner.until is not None
    assert [each.cluster for each in answer.past_owners] == ["seven"]


def test_who_names_an_address_beside_its_holder_contends() -> None:
    found = picture(
        ranges=[build_range("pool", "10.0.0.0/24")],
        floating_ips=[
            build_floating_ip("web", status=held_by(["10.0.0.5"])),
            build_floating_ip("twin", namespace="c-m-2", status=held_by(["10.0.0.5"])),
            build_floating_ip("wish", namespace="c-m-3", ipaddress="10.0.0.5"),
        ],
        reservations=[build_reservation("10.0.0.5")],
    )
    assert [each.name for each in ask(found, "10.0.0.5").contenders] == ["twin", "wish"]


def test_an_address_without_reservation_is_named() -> None:
    found = picture(
        ranges=[build_range("pool", "10.0.0.0/24")],
        floating_ips=[build_floating_ip("web", status=held_by(["10.0.0.5"]))],
    )
    assert ask(found, "10.0.0.5").state is AddressState.NAMED


@pytest.mark.parametrize(
    ("text", "state", "word"),
    [
        ("10.0.0.7", AddressState.FREE, ""),
        ("10.0.0.9", AddressState.WITHHELD, "is excluded"),
        ("10.0.0.255", AddressState.WITHHELD, "10.0.0.255"),
        ("10.1.0.1", AddressState.UNKNOWN, "of no range"),
    ],
)
def test_an_address_of_nobody(text: str, state: AddressState, word: str) -> None:
    found = picture(ranges=[build_range("pool", "10.0.0.0/24", exclude=["10.0.0.9"])])
    answer = ask(found, text)
    assert answer.state is state
    assert word in answer.remark


def test_a_space_knows_nothing_of_another() -> None:
    found = picture(
        ranges=[
            build_range("one", "10.0.0.0/24", addressSpace="one"),
            build_range("two", "10.0.0.0/24", addressSpace="two"),
        ],
        reservations=[build_reservation("10.0.0.5", space="one", range_name="one")],
    )
    answers = {each.space: each.state for each in report_address(found, parse_address("10.0.0.5"))}
    assert answers == {"one": AddressState.HELD, "two": AddressState.FREE}


def test_a_held_address_that_its_range_lost_says_so() -> None:
    found = picture(
        ranges=[build_range("pool", "10.0.0.0/28")], reservations=[build_reservation("10.0.0.200")]
    )
    assert ask(found, "10.0.0.200").out_of_range


@pytest.mark.parametrize("name", ["demo", "fleet-default/demo", "c-m-1", "web", "c-m-1/web"])
def test_a_guest_is_found_by_any_of_its_names(name: str) -> None:
    found = picture(
        ranges=[build_range("pool", "10.0.0.0/24")],
        floating_ips=[build_floating_ip("web", status=held_by(["10.0.0.5"]))],
        reservations=[build_reservation("10.0.0.5"), build_reservation("10.0.0.6", "more")],
        clusters=[build_cluster("demo", "c-m-1"), build_cluster("other", "c-m-2")],
    )
    assert find_namespaces(found, name) == ("c-m-1",)
    assert [each.address for each in report_holdings(found, "c-m-1")] == ["10.0.0.5", "10.0.0.6"]


def test_namesakes_in_two_workspaces_are_both_found() -> None:
    found = picture(
        clusters=[build_cluster("demo", "c-m-1"), build_cluster("demo", "c-m-2", namespace="fleet-two")]
    )
    assert find_namespaces(found, "demo") == ("c-m-1", "c-m-2")


def test_a_guest_that_is_gone_is_found_by_its_past() -> None:
    found = picture(reservations=[build_reservation("10.0.0.5", history=PAST)])
    assert find_namespaces(found, "seven") == ("c-m-7",)
    (tenure,) = history_of_guests(found, "seven", find_namespaces(found, "seven"))
    assert tenure.until is not None
