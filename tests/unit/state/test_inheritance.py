"""What the predecessor left is its owners', and nothing that is asked for since."""

from datetime import UTC, datetime

from fipop.kube.resources import FLOATING_IPS
from fipop.state.inheritance import Inheritance
from tests.harness.objects import build_floating_ip, cache_of


def test_an_object_of_the_predecessor_is_inherited_until_it_is_served() -> None:
    refused = {"conditions": [{"type": "Ready", "status": "False", "reason": "RangeNotFound"}]}
    served = refused | {"addresses": ["10.0.0.1"]}
    cache = cache_of(
        floating_ips=[
            build_floating_ip("old", status=refused),
            build_floating_ip("served", status=served),
            build_floating_ip("new", created="2026-09-01T00:00:00Z"),
        ]
    )
    inheritance = Inheritance(ours_since=datetime(2026, 6, 1, tzinfo=UTC))
    inherited = {each.name for each in cache.floating_ips.all() if inheritance.is_inherited(each)}
    assert inherited == {"old"}


def test_what_a_spec_names_after_the_adoption_is_no_inheritance() -> None:
    """Any address, the gateway too, could have been had by an old object that had none."""
    out_of_range = {"conditions": [{"type": "Allocated", "status": "False", "reason": "AddressOutOfRange"}]}
    cache = cache_of(
        floating_ips=[
            build_floating_ip("kept", ipaddress="10.0.0.1"),
            build_floating_ip("empty"),
            build_floating_ip("refused", ipaddress="10.0.0.254", status=out_of_range),
        ]
    )
    inheritance = Inheritance(ours_since=datetime(2026, 6, 1, tzinfo=UTC))
    inheritance.note(cache.floating_ips.all())
    for later in (
        build_floating_ip("empty", ipaddress="10.0.0.254"),
        build_floating_ip("young", ipaddress="10.0.0.2"),
    ):
        cache.observe(FLOATING_IPS, later)
    assert {each.name for each in cache.floating_ips.all() if inheritance.is_inherited(each)} == {"kept"}
    inheritance.note(cache.floating_ips.all())
    inherited = {each.name for each in cache.floating_ips.all() if inheritance.is_inherited(each)}
    assert inherited == {"kept", "empty", "young"}, "the next leader adopts what is there then"
