"""The keys of the kubevip ConfigMap, as CLOUDPROVIDER.md §1 has them."""

from __future__ import annotations

import pytest

from fipop.cloudprovider.pools import PoolKeys
from fipop.ipam.addresses import Address, Family, format_address


def first_of(data: dict[str, str], namespace: str = "shop") -> tuple[str, str]:
    """The key that serves a namespace, and its first address, or what else is told of it."""
    found = PoolKeys(data).pool_of(namespace)
    if found is None:
        return "", ""
    if found.pool is None:
        return found.key, "DHCP" if found.is_dhcp else str(found.problem)
    pool = found.pool
    family = next(each for each in Family if pool.addresses.of(each))
    values = pool.addresses.of(family).addresses(descending=pool.descending)
    return found.key, format_address(Address(family, next(values)))


OWN_CIDR, OWN_RANGE = {"cidr-shop": "10.0.1.0/24"}, {"range-shop": "10.0.2.1-10.0.2.9"}
NAMED = {"cidr-dmz": "10.0.3.0/24", "namespaces-dmz": "other, shop"}
GLOBAL_CIDR, GLOBAL_RANGE = {"cidr-global": "10.0.4.0/24"}, {"range-global": "10.0.5.1-10.0.5.9"}


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (OWN_CIDR | OWN_RANGE | NAMED | GLOBAL_CIDR | GLOBAL_RANGE, "cidr-shop"),
        (OWN_RANGE | NAMED | GLOBAL_CIDR | GLOBAL_RANGE, "range-shop"),
        (NAMED | GLOBAL_CIDR | GLOBAL_RANGE, "cidr-dmz"),
        (GLOBAL_CIDR | GLOBAL_RANGE, "cidr-global"),
        (GLOBAL_RANGE, "range-global"),
        ({"cidr-other": "10.0.0.0/24"}, ""),
    ],
)
def test_the_first_key_that_is_there_is_the_one_pool(data: dict[str, str], key: str) -> None:
    """In kube-vip-cloud-provider a global CIDR beats the range of a namespace."""
    assert first_of(data)[0] == key


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"cidr-shop": "10.0.1.0/24"}, "10.0.1.1"),
        ({"cidr-shop": "10.0.1.0/24", "search-order": "desc"}, "10.0.1.254"),
        ({"cidr-shop": "10.0.1.8/30", "skip-end-ips-in-cidr": "true"}, "10.0.1.9"),
        ({"cidr-shop": "10.0.1.8/30", "exclude-shop": "10.0.1.8"}, "10.0.1.9"),
        ({"cidr-shop": "10.0.1.8/30", "exclude-global": "10.0.1.8"}, "10.0.1.8"),
        ({"range-shop": "10.0.1.8/30"}, "10.0.1.8"),
        ({"cidr-shop": "10.0.1.7-10.0.1.9"}, "10.0.1.7"),
        ({"cidr-shop": " 0.0.0.0/32 "}, "DHCP"),
        ({"cidr-shop": "::/128"}, "DHCP"),
        ({"cidr-shop": "", "cidr-global": "10.0.4.0/24"}, "Key cidr-shop is empty. Set a pool."),
        (
            {"cidr-shop": "10.0.1.0/24", "draining-shop": "true"},
            "Key cidr-shop is draining (draining-shop) and assigns no addresses.",
        ),
        ({"cidr-shop": "10.0.1.0/24", "draining-global": "true"}, "10.0.1.1"),
        (
            {"cidr-shop": "nonsense"},
            'Key cidr-shop is invalid: part 1 of the pool, "nonsense", is not an IPv4 or IPv6 address.',
        ),
        (
            {"cidr-shop": "10.0.1.1", "exclude-shop": "x"},
            'Key cidr-shop is invalid: part 1 of exclusion 1, "x", is not an IPv4 or IPv6 address.',
        ),
    ],
)
def test_what_a_key_gives_out_or_why_nothing(data: dict[str, str], told: str) -> None:
    assert first_of(data)[1] == told


@pytest.mark.parametrize(
    ("data", "allowed"),
    [
        ({}, False),
        ({"allow-share-global": "true"}, True),
        ({"allow-share-global": "true", "allow-share-shop": "false"}, False),
        ({"allow-share-shop": "T"}, True),
        ({"allow-share-shop": "yes"}, False),
        ({"allow-share-other": "true"}, False),
    ],
)
def test_sharing_is_the_word_of_the_namespace_else_the_global_one(
    data: dict[str, str], allowed: bool
) -> None:
    assert PoolKeys(data | OWN_CIDR).allows_sharing("shop") is allowed


def test_the_interface_is_that_of_the_namespace_else_the_global_one() -> None:
    assert PoolKeys({}).interface_of("shop") is None
    assert PoolKeys({"interface-global": "eth0"}).interface_of("shop") == "eth0"
    assert PoolKeys({"interface-global": "eth0", "interface-shop": "eth1"}).interface_of("shop") == "eth1"


def test_every_key_that_cannot_be_read_is_told_and_harms_no_other() -> None:
    keys = PoolKeys(
        {"cidr-shop": "nonsense", "cidr-global": "10.0.4.0/24", "allow-share-global": "yes", "note": "hello"}
    )
    assert list(keys.problems()) == ["cidr-shop", "allow-share-global"]
    assert all(named in keys.problems()["allow-share-global"] for named in ("allow-share-global", '"yes"'))
    other = keys.pool_of("other")
    assert other is not None
    assert other.problem is None


def test_a_pool_whose_text_stays_is_the_same_when_other_keys_change() -> None:
    before = PoolKeys(OWN_CIDR)
    assert before.pool_of("shop") is before.pool_of("shop")
    after = PoolKeys(OWN_CIDR | GLOBAL_CIDR, before)
    first, second = before.pool_of("shop"), after.pool_of("shop")
    assert first is not None
    assert second is not None
    assert first.pool is second.pool
    assert [each.key for each in after.pools()] == ["cidr-global", "cidr-shop"]


def test_pools_by_the_thousand_serve_and_the_first_thousand_are_told_of() -> None:
    data = {f"cidr-{number:05}": f"10.{number // 250}.{number % 250}.0/24" for number in range(5000)}
    keys = PoolKeys(data | {f"draining-{number}": "no word" for number in range(5000)})
    assert len(keys.pools()) == 1000
    assert len(keys.problems()) == 1000
    last = keys.pool_of("04999")
    assert last is not None
    assert last.pool is not None


@pytest.mark.parametrize(
    "value", [0x0A000100, 0x0A000105, 0x0A0001FF, 0x0A000200, 0x0A000300, 0x0A0003FF, 0x0A000500]
)
def test_an_address_is_in_the_pools_exactly_where_one_of_them_has_it(value: int) -> None:
    keys = PoolKeys(
        {
            "cidr-shop": "10.0.1.0/24",
            "range-other": "10.0.1.200-10.0.2.0",
            "cidr-x": "10.0.3.0/24,fd00::/120",
            "cidr-y": "x",
        }
    )
    for address in (Address(Family.IPV4, value), Address(Family.IPV6, 0xFD << 120 | value & 0xFFF)):
        has = [each.pool is not None and address in each.pool.addresses for each in keys.pools()]
        assert keys.have(address) is any(has)
