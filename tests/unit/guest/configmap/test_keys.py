"""Which keys a guest's ConfigMap is to have."""

from datetime import timedelta

import pytest

from fipop.api.objects import FloatingIP
from fipop.guest.configmap.keys import Contradiction, DesiredKeys, as_cidr, build_keys
from fipop.ipam.errors import AddressSyntaxError
from tests.harness.tasks import START, addresses_of, asking
from tests.unit.guest.configmap.keys import FIRST


def keys(*floating_ips: FloatingIP, granted: frozenset[str] | None = None) -> dict[str, str]:
    granted = addresses_of(*floating_ips) if granted is None else granted
    return {key.name: key.value for key in build_keys(floating_ips, granted).keys}


def test_an_address_is_a_pool_of_one() -> None:
    assert [as_cidr(text) for text in ("10.0.0.1", "fd00::1")] == ["10.0.0.1/32", "fd00::1/128"]
    with pytest.raises(AddressSyntaxError):
        as_cidr("junk")


def test_the_namespace_shapes_the_keys() -> None:
    wanted = asking(
        addresses=("10.0.0.1", "fd00::1"), service_namespace="prod", allow_share=False, interface="eth1"
    )
    assert keys(wanted) == {
        "cidr-prod": "10.0.0.1/32,fd00::1/128",
        "allow-share-prod": "false",
        "interface-prod": "eth1",
    }


def test_a_floating_ip_without_an_address_asks_for_nothing() -> None:
    assert keys(asking(addresses=(), interface="eth0")) == {}


def test_only_what_was_granted_is_written_into_a_guest() -> None:
    both = asking(addresses=("10.0.0.1", "fd00::2"), service_namespace="shop", allow_share=True)
    granted = frozenset({"fd00::2", "10.0.0.3"})
    assert keys(both, granted=granted) == {"cidr-shop": "fd00::2/128", "allow-share-shop": "true"}


def test_who_was_granted_nothing_wants_no_key() -> None:
    assert keys(asking(interface="eth0"), granted=frozenset()) == {}


def test_pools_are_joined_in_the_order_of_creation_then_name_whatever_the_order_given() -> None:
    older = asking("z", addresses=("10.0.0.9",), created=START - timedelta(days=1))
    same = asking("a", addresses=("10.0.0.5",))
    expected = {"cidr-global": "10.0.0.9/32,10.0.0.5/32,10.0.0.1/32"}
    assert keys(FIRST, same, older) == keys(older, same, FIRST) == keys(same, older, FIRST) == expected


def test_of_contradicting_words_the_oldest_stands_and_the_others_are_named() -> None:
    first = asking("first", interface="eth0", allow_share=True)
    second = asking(
        "second",
        created=START + timedelta(days=1),
        addresses=("10.0.0.2",),
        interface="eth1",
        allow_share=True,
    )
    desired = build_keys([second, first], addresses_of(first, second))
    assert {key.name: key.value for key in desired.keys}["interface-global"] == "eth0"
    assert desired.contradictions == (
        Contradiction(floating_ip=("c-m-a", "second"), key="interface-global", wanted="eth1", used="eth0"),
    )


def test_desired_keys_are_empty_by_default() -> None:
    assert DesiredKeys().keys == ()
