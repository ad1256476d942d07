import pytest

from fipop.ipam.addresses import parse_address
from fipop.operator.addresses.guest_binding import GuestBinding
from fipop.operator.addresses.ownership import (
    build_owner,
    inherit,
    is_made_by_us,
    read_addresses,
)
from fipop.rancher.objects import parse_provisioning_cluster
from tests.harness.objects import floating_ip, reservation

DEMO = parse_provisioning_cluster(
    {
        "metadata": {"name": "demo", "namespace": "fleet-default", "uid": "uid-demo", "resourceVersion": "1"},
        "spec": {"rkeConfig": {}},
        "status": {"clusterName": "c-m-1"},
    }
)


@pytest.mark.parametrize(
    ("name", "ours"), [("demo-kubevip", True), ("demo-vip", False), ("shop-kubevip", False)]
)
def test_what_is_named_after_its_cluster_was_made_for_a_new_guest(name: str, ours: bool) -> None:
    assert is_made_by_us(floating_ip(name, annotations={"clustername": "demo"})) is ours
    assert not is_made_by_us(floating_ip(name))


def test_the_owner_is_the_floating_ip_as_it_is_now_with_the_cluster_that_it_serves() -> None:
    owner = build_owner(floating_ip(uid="uid-2"), GuestBinding(cluster=DEMO), ())
    assert (owner.key, owner.uid, owner.cluster) == (("c-m-1", "web"), "uid-2", "demo")


def test_while_rancher_takes_a_guest_apart_its_cluster_stays_known() -> None:
    before = reservation("10.0.0.1", uid="uid-1", cluster="demo")
    owner = build_owner(floating_ip(uid="uid-2"), GuestBinding(cluster=None), (before,))
    assert (owner.uid, owner.cluster) == ("uid-2", "demo")
    assert build_owner(floating_ip(), GuestBinding(cluster=None), ()).cluster == ""


def test_what_cannot_be_read_is_passed_over_and_spellings_are_one() -> None:
    assert read_addresses(["", "x", "FD00::0:1", "fd00::1"]) == {parse_address("fd00::1")}


def test_what_only_a_dead_object_of_the_name_asked_for_is_no_more_asked_for() -> None:
    asked = reservation("10.0.0.1", uid="uid-of-the-dead", requested="static")
    chosen = reservation("10.0.0.1", uid="uid-of-the-dead", requested="dynamic")
    made_again = floating_ip()
    restored = floating_ip(ipaddress="10.0.0.1")
    assert [each.requested.value for each in inherit((asked, chosen), made_again)] == ["dynamic", "dynamic"]
    assert [each.requested.value for each in inherit((asked, chosen), restored)] == ["static", "dynamic"]
    own = reservation("10.0.0.1", requested="static", uid=made_again.uid)
    assert inherit((own,), made_again) == (own,)
