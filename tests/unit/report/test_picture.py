"""What was read, as an index that everything is told from."""

from fipop.report.picture import read_address
from tests.harness.objects import build_floating_ip, build_range, build_reservation, held_by, v4
from tests.unit.report.pictures import build_cluster, picture

A = "10.0.0.5"


def test_spaces_are_those_of_ranges_and_of_reservations_without_one() -> None:
    found = picture(
        ranges=[build_range("pool", "10.0.0.0/24")],
        reservations=[build_reservation("10.9.0.1", space="gone")],
    )
    assert found.spaces() == ["default", "gone"]


def test_who_names_an_address_is_found_whoever_has_it() -> None:
    found = picture(
        ranges=[build_range("pool", "10.0.0.0/24")],
        floating_ips=[
            build_floating_ip("web", status=held_by([A])),
            build_floating_ip("other", status=held_by([A])),
            build_floating_ip("third", status=held_by(["10.0.0.6"])),
        ],
        reservations=[build_reservation(A)],
    )
    assert [each.name for each in found.claimants("default", v4(A))] == ["other", "web"]
    assert found.by_address["default", v4(A)].owner.name == "web"
    assert [each.address for each in found.by_owner["c-m-1", "web"]] == [A]


def test_a_cluster_is_called_as_rancher_calls_it_or_as_the_status_remembers() -> None:
    remembered = {**held_by([A]), "guest": {"cluster": "former", "id": "c-m-1", "reachable": False}}
    named = picture(floating_ips=[build_floating_ip("web", status=remembered)])
    assert named.cluster_of("c-m-1") == "former"
    assert named.cluster_of("c-m-2", "fallback") == "fallback"
    assert picture(clusters=[build_cluster("demo", "c-m-1")]).cluster_of("c-m-1") == "demo"


def test_what_is_no_address_is_none() -> None:
    assert read_address(A) == v4(A)
    assert read_address("demo") is None
