from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fipop.errors import (
    AddressHeldError,
    AddressNotHeldError,
    AddressOutOfRangeError,
    AddressQuarantinedError,
    FamilyMissingError,
    NoAddressError,
    RangeDrainingError,
    RangeFullError,
    RequestError,
)
from fipop.ipam.addresses import DHCP, Address, Family, parse_address
from fipop.ipam.assignment import Assigner, FamilyPolicy, Request
from fipop.ipam.ledger import Ledger, Range, Record
from fipop.ipam.pool import parse_pool

V4, V6 = Family.IPV4, Family.IPV6
SINGLE, PREFER, REQUIRE = FamilyPolicy
LATER = datetime(2026, 8, 1, tzinfo=UTC)
HTTP = frozenset({(80, "TCP")})
HTTPS = frozenset({(443, "TCP")})
DNS = frozenset({(53, "UDP"), (53, "TCP")})
DNS_UDP = frozenset({(53, "UDP")})
SHARED = frozenset({"lan"})


def at(text: str) -> Address:
    return parse_address(text)


def make_assigner(*, shared_overlaps: bool = False, descending: bool = False, **pools: str) -> Assigner[str]:
    assigner = Assigner(Ledger[str](shared_overlaps=shared_overlaps))
    for name, text in pools.items():
        pool = parse_pool(text, allow_dhcp=True)
        assigner.ledger.set_range(Range(name=name, pool=pool, descending=descending))
    return assigner


def ask(assigner: Assigner[str], owner: str, **asked: object) -> list[str]:
    request = Request(**{"owner": owner, "pools": ("lan",), **asked})  # type: ignore[arg-type]
    return [str(address) for address in assigner.assign(request)]


def records(assigner: Assigner[str]) -> list[tuple[str, str | None]]:
    return [(str(address), record.owner) for address, record in assigner.ledger.records()]


# Families


@pytest.mark.parametrize(
    ("policy", "families", "expected"),
    [
        (SINGLE, (), ["10.0.0.1"]),
        (SINGLE, (V4,), ["10.0.0.1"]),
        (SINGLE, (V6,), ["2001:db8::1"]),
        (SINGLE, (V6, V4), ["2001:db8::1"]),
        (PREFER, (), ["10.0.0.1", "2001:db8::1"]),
        (PREFER, (V6,), ["2001:db8::1", "10.0.0.1"]),
        (PREFER, (V6, V4), ["2001:db8::1", "10.0.0.1"]),
        (REQUIRE, (), ["10.0.0.1", "2001:db8::1"]),
        (REQUIRE, (V4, V6), ["10.0.0.1", "2001:db8::1"]),
        (REQUIRE, (V6, V4), ["2001:db8::1", "10.0.0.1"]),
    ],
)
def test_addresses_come_by_policy_in_the_order_of_the_families(
    policy: FamilyPolicy, families: tuple[Family, ...], expected: list[str]
):
    assigner = make_assigner(lan="10.0.0.1-10.0.0.9,2001:db8::1-2001:db8::9")
    assert ask(assigner, "a", policy=policy, families=families) == expected


def test_single_stack_takes_the_family_that_the_pool_has():
    assert ask(make_assigner(lan="2001:db8::1"), "a") == ["2001:db8::1"]


def test_single_stack_does_not_change_its_family_when_the_pool_is_full():
    assigner = make_assigner(lan="10.0.0.1,2001:db8::1")
    ask(assigner, "a")
    with pytest.raises(RangeFullError, match="every IPv4"):
        ask(assigner, "b")


@pytest.mark.parametrize(("pool", "expected"), [("10.0.0.1", ["10.0.0.1"]), ("2001:db8::1", ["2001:db8::1"])])
def test_prefer_dual_stack_is_content_with_the_only_family_of_the_pool(pool: str, expected: list[str]):
    assert ask(make_assigner(lan=pool), "a", policy=PREFER) == expected


def test_prefer_dual_stack_is_content_with_the_only_family_that_has_any_left():
    assigner = make_assigner(lan="10.0.0.1,2001:db8::1-2001:db8::2")
    assert ask(assigner, "a", policy=PREFER) == ["10.0.0.1", "2001:db8::1"]
    assert ask(assigner, "b", policy=PREFER) == ["2001:db8::2"]
    with pytest.raises(RangeFullError):
        ask(assigner, "c", policy=PREFER)


def test_prefer_dual_stack_on_a_full_pool_says_full_not_that_a_family_is_missing():
    assigner = make_assigner(lan="2001:db8::1")
    ask(assigner, "a")
    with pytest.raises(RangeFullError, match="every IPv6"):
        ask(assigner, "b", policy=PREFER)


@pytest.mark.parametrize("pool", ["10.0.0.1", "2001:db8::1"])
def test_require_dual_stack_takes_both_or_neither(pool: str):
    assigner = make_assigner(lan=pool)
    with pytest.raises(FamilyMissingError):
        ask(assigner, "a", policy=REQUIRE)
    assert records(assigner) == []


def test_require_dual_stack_leaves_no_trace_where_one_family_is_full():
    assigner = make_assigner(lan="10.0.0.1-10.0.0.9,2001:db8::1")
    ask(assigner, "a", families=(V6,))
    with pytest.raises(RangeFullError, match="IPv6"):
        ask(assigner, "b", policy=REQUIRE)
    assert records(assigner) == [("2001:db8::1", "a")]
    assert ask(assigner, "c") == ["10.0.0.1"]


def test_a_refused_request_does_not_end_a_quarantine():
    assigner = make_assigner(lan="10.0.0.1-10.0.0.9")
    assigner.ledger.adopt(at("10.0.0.4"), "a", "lan", quarantined_until=LATER)
    with pytest.raises(FamilyMissingError):
        ask(assigner, "a", policy=REQUIRE)
    assert assigner.ledger.record(at("10.0.0.4")) == Record("a", "lan", LATER)
    assert ask(assigner, "a") == ["10.0.0.4"]


def test_asking_again_gives_what_is_held_and_completes_what_is_missing():
    assigner = make_assigner(lan="10.0.0.1-10.0.0.9,2001:db8::1")
    assert ask(assigner, "a") == ask(assigner, "a") == ["10.0.0.1"]
    assert ask(assigner, "a", policy=REQUIRE) == ["10.0.0.1", "2001:db8::1"]
    assert assigner.held_by("a") == (at("10.0.0.1"), at("2001:db8::1"))


def test_what_is_held_stays_when_the_pool_shrinks():
    assigner = make_assigner(lan="10.0.0.1-10.0.0.9")
    ask(assigner, "a", static=(at("10.0.0.9"),))
    assigner.ledger.set_range(Range(name="lan", pool=parse_pool("10.0.0.1-10.0.0.4")))
    assert ask(assigner, "a") == ["10.0.0.9"]
    assert ask(assigner, "a", static=(at("10.0.0.9"),)) == ["10.0.0.9"]


# Static addresses


def test_a_static_address_is_given_whatever_the_search_order():
    assigner = make_assigner(lan="10.0.0.1-10.0.0.9,2001:db8::1-2001:db8::9")
    assert ask(assigner, "a", static=(at("10.0.0.7"),)) == ["10.0.0.7"]
    assert ask(assigner, "b", static=(at("2001:db8::7"),)) == ["2001:db8::7"]


def test_two_static_addresses_come_in_the_order_of_the_families():
    assigner = make_assigner(lan="10.0.0.1-10.0.0.9,2001:db8::1-2001:db8::9")
    static = (at("10.0.0.7"), at("2001:db8::7"))
    assert ask(assigner, "a", static=static, policy=REQUIRE, families=(V6, V4)) == ["2001:db8::7", "10.0.0.7"]


@pytest.mark.parametrize("policy", [PREFER, REQUIRE])
def test_a_static_address_of_one_family_is_completed_by_the_other(policy: FamilyPolicy):
    assigner = make_assigner(lan="10.0.0.1-10.0.0.9,2001:db8::1-2001:db8::9")
    assert ask(assigner, "a", static=(at("2001:db8::7"),), policy=policy) == ["10.0.0.1", "2001:db8::7"]


@pytest.mark.parametrize("policy", [SINGLE, PREFER, REQUIRE])
def test_a_static_address_that_is_taken_is_not_replaced_by_another(policy: FamilyPolicy):
    assigner = make_assigner(lan="10.0.0.1-10.0.0.9,2001:db8::1-2001:db8::9")
    ask(assigner, "a", static=(at("10.0.0.7"),))
    with pytest.raises(AddressHeldError, match="held by a"):
        ask(assigner, "b", static=(at("10.0.0.7"),), policy=policy)
    assert records(assigner) == [("10.0.0.7", "a")]


def test_a_static_address_out_of_range_or_in_quarantine_is_refused():
    assigner = make_assigner(lan="10.0.0.1-10.0.0.9")
    with pytest.raises(AddressOutOfRangeError):
        ask(assigner, "a", static=(at("10.0.0.10"),))
    assigner.ledger.adopt(at("10.0.0.7"), "former", "lan", quarantined_until=LATER)
    with pytest.raises(AddressQuarantinedError):
        ask(assigner, "a", static=(at("10.0.0.7"),))
    assert ask(assigner, "former", static=(at("10.0.0.7"),)) == ["10.0.0.7"]


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"static": ("10.0.0.1", "10.0.0.2"), "policy": REQUIRE}, "at most one address of a family"),
        ({"static": ("10.0.0.1", "2001:db8::1")}, "SingleStack takes one address"),
        ({"static": ("10.0.0.1",), "families": (V6,)}, "10.0.0.1 is asked for, but only IPv6 is wanted"),
    ],
)
def test_a_request_that_contradicts_itself_is_told_so(asked: dict[str, object], problem: str):
    assigner = make_assigner(lan="10.0.0.1-10.0.0.9,2001:db8::1-2001:db8::9")
    static = tuple(at(text) for text in asked.pop("static"))  # type: ignore[attr-defined]
    with pytest.raises(RequestError, match=problem):
        ask(assigner, "a", static=static, **asked)
    assert records(assigner) == []


# DHCP


def test_every_request_to_a_dhcp_pool_gets_0_0_0_0_and_holds_nothing():
    assigner = make_assigner(lan="0.0.0.0/32")
    assert [ask(assigner, owner) for owner in "abc"] == [["0.0.0.0"]] * 3
    assert records(assigner) == []
    assert assigner.held_by("a") == ()


def test_dhcp_for_ipv4_goes_with_addresses_for_ipv6():
    assigner = make_assigner(lan="0.0.0.0/32,2001:db8::1-2001:db8::9")
    assert ask(assigner, "a", policy=REQUIRE, families=(V6, V4)) == ["2001:db8::1", "0.0.0.0"]


def test_one_service_may_ask_for_dhcp_where_the_pool_has_addresses():
    assigner = make_assigner(lan="10.0.0.1")
    assert ask(assigner, "a", static=(DHCP,)) == ["0.0.0.0"]
    assert ask(assigner, "b") == ["10.0.0.1"]


def test_a_draining_dhcp_pool_serves_nobody():
    assigner = make_assigner()
    pool = parse_pool("0.0.0.0/32", allow_dhcp=True)
    assigner.ledger.set_range(Range(name="lan", pool=pool, draining=True))
    with pytest.raises(RangeDrainingError):
        ask(assigner, "a")


# Sharing


def test_services_with_disjoint_ports_share_the_lowest_fitting_address():
    assigner = make_assigner(lan="10.0.0.1-10.0.0.9")
    assert ask(assigner, "web", ports=HTTP, shared_pools=SHARED) == ["10.0.0.1"]
    assert ask(assigner, "web2", ports=HTTP, shared_pools=SHARED) == ["10.0.0.2"]
    assert ask(assigner, "tls", ports=HTTPS, shared_pools=SHARED) == ["10.0.0.1"]
    assert ask(assigner, "dns", ports=DNS, shared_pools=SHARED) == ["10.0.0.1"]
    assert ask(assigner, "dns2", ports=DNS_UDP, shared_pools=SHARED) == ["10.0.0.2"]
    assert assigner.tenants(at("10.0.0.1")) == {"web": HTTP, "tls": HTTPS, "dns": DNS}


def test_the_lowest_fitting_address_is_shared_in_a_descending_pool_too():
    assigner = make_assigner(lan="10.0.0.1-10.0.0.9", descending=True)
    assert ask(assigner, "web", ports=HTTP, shared_pools=SHARED) == ["10.0.0.9"]
    assert ask(assigner, "web2", ports=HTTP, shared_pools=SHARED) == ["10.0.0.8"]
    assert ask(assigner, "tls", ports=HTTPS, shared_pools=SHARED) == ["10.0.0.8"]


def test_the_same_port_of_another_protocol_does_not_collide():
    assigner = make_assigner(lan="10.0.0.1")
    tcp = frozenset({(53, "TCP")})
    assert ask(assigner, "a", ports=tcp, shared_pools=SHARED) == ["10.0.0.1"]
    assert ask(assigner, "b", ports=DNS_UDP, shared_pools=SHARED) == ["10.0.0.1"]


def test_one_address_serves_a_second_service_only_where_sharing_is_on():
    assigner = make_assigner(lan="10.0.0.1/32")
    ask(assigner, "web", ports=HTTP)
    with pytest.raises(RangeFullError):
        ask(assigner, "tls", ports=HTTPS)
    assert ask(assigner, "tls", ports=HTTPS, shared_pools=SHARED) == ["10.0.0.1"]


def test_a_service_without_ports_shares_with_nobody():
    assigner = make_assigner(lan="10.0.0.1-10.0.0.9")
    assert ask(assigner, "bare", shared_pools=SHARED) == ["10.0.0.1"]
    assert ask(assigner, "web", ports=HTTP, shared_pools=SHARED) == ["10.0.0.2"]
    assert ask(assigner, "bare2", shared_pools=SHARED) == ["10.0.0.3"]


def test_ipv6_addresses_are_not_shared():
    assigner = make_assigner(lan="2001:db8::1-2001:db8::9")
    assert ask(assigner, "web", ports=HTTP, shared_pools=SHARED) == ["2001:db8::1"]
    assert ask(assigner, "tls", ports=HTTPS, shared_pools=SHARED) == ["2001:db8::2"]
    with pytest.raises(AddressHeldError, match="held by web"):
        ask(assigner, "dns", ports=DNS, shared_pools=SHARED, static=(at("2001:db8::1"),))
    with pytest.raises(AddressHeldError, match="held by web"):
        assigner.adopt(at("2001:db8::1"), "dns", "lan", DNS)


def test_only_addresses_of_the_pool_are_shared():
    assigner = make_assigner(lan="10.0.0.1-10.0.0.9")
    assigner.adopt(at("10.0.0.99"), "outside", "lan", HTTP)
    assigner.ledger.adopt(at("10.0.0.1"), "alone", "lan")
    assert ask(assigner, "tls", ports=HTTPS, shared_pools=SHARED) == ["10.0.0.2"]


def test_a_draining_pool_lets_nobody_in_to_share():
    assigner = make_assigner(lan="10.0.0.1-10.0.0.9")
    ask(assigner, "web", ports=HTTP, shared_pools=SHARED)
    pool = parse_pool("10.0.0.1-10.0.0.9")
    assigner.ledger.set_range(Range(name="lan", pool=pool, draining=True))
    with pytest.raises(RangeDrainingError):
        ask(assigner, "tls", ports=HTTPS, shared_pools=SHARED)


def test_a_static_address_is_shared_by_the_same_rules():
    assigner = make_assigner(lan="10.0.0.1-10.0.0.9")
    static = (at("10.0.0.5"),)
    ask(assigner, "web", ports=HTTP, static=static, shared_pools=SHARED)
    assert ask(assigner, "tls", ports=HTTPS, static=static, shared_pools=SHARED) == ["10.0.0.5"]
    assert ask(assigner, "tls", ports=HTTPS, static=static, shared_pools=SHARED) == ["10.0.0.5"]
    for ports, shared in ((HTTP, SHARED), (DNS, frozenset()), (frozenset(), SHARED)):
        with pytest.raises(AddressHeldError, match="held by web"):
            ask(assigner, "late", ports=ports, static=static, shared_pools=shared)


def test_a_shared_address_is_free_after_its_last_tenant():
    assigner = make_assigner(lan="10.0.0.1")
    for owner, ports in (("web", HTTP), ("tls", HTTPS), ("dns", DNS)):
        ask(assigner, owner, ports=ports, shared_pools=SHARED)
    assigner.withdraw(at("10.0.0.1"), "web", until=LATER)
    assert records(assigner) == [("10.0.0.1", "tls")]
    assert ask(assigner, "web2", ports=HTTP, shared_pools=SHARED) == ["10.0.0.1"]
    for owner in ("web2", "tls"):
        assigner.withdraw(at("10.0.0.1"), owner)
    assert records(assigner) == [("10.0.0.1", "dns")]
    assigner.withdraw(at("10.0.0.1"), "dns")
    assert records(assigner) == []
    assert ask(assigner, "bare") == ["10.0.0.1"]


def test_the_last_tenant_may_leave_an_address_in_quarantine():
    assigner = make_assigner(lan="10.0.0.1-10.0.0.2")
    ask(assigner, "web", ports=HTTP)
    assigner.withdraw(at("10.0.0.1"), "web", until=LATER)
    assert assigner.ledger.record(at("10.0.0.1")) == Record("web", "lan", LATER)
    assert ask(assigner, "tls", ports=HTTPS, shared_pools=SHARED) == ["10.0.0.2"]
    assert assigner.ledger.due(LATER + timedelta(days=1)) == (at("10.0.0.1"),)


def test_only_a_tenant_can_be_withdrawn():
    assigner = make_assigner(lan="10.0.0.1")
    ask(assigner, "web", ports=HTTP)
    with pytest.raises(AddressNotHeldError, match="not held by tls, but by web"):
        assigner.withdraw(at("10.0.0.1"), "tls")


def test_changed_ports_count_from_then_on():
    assigner = make_assigner(lan="10.0.0.1-10.0.0.2")
    ask(assigner, "web", ports=HTTP, shared_pools=SHARED)
    ask(assigner, "web", ports=HTTPS, shared_pools=SHARED)
    assert ask(assigner, "new", ports=HTTP, shared_pools=SHARED) == ["10.0.0.1"]
    assigner.adopt(at("10.0.0.1"), "new", "lan", DNS)
    assert ask(assigner, "web3", ports=HTTP, shared_pools=SHARED) == ["10.0.0.1"]


def test_ports_that_would_collide_on_a_shared_address_are_refused():
    assigner = make_assigner(lan="10.0.0.1-10.0.0.2")
    ask(assigner, "web", ports=HTTP, shared_pools=SHARED)
    ask(assigner, "tls", ports=HTTPS, shared_pools=SHARED)
    with pytest.raises(AddressHeldError, match="held by web"):
        ask(assigner, "tls", ports=HTTP, shared_pools=SHARED)
    with pytest.raises(AddressHeldError, match="held by web"):
        assigner.adopt(at("10.0.0.1"), "tls", "lan", HTTP)
    with pytest.raises(AddressHeldError):
        assigner.adopt(at("10.0.0.1"), "other", "lan")
    assert assigner.tenants(at("10.0.0.1")) == {"web": HTTP, "tls": HTTPS}


# Several pools


def test_the_pools_of_a_namespace_come_before_the_global_ones_always():
    """kube-vip's cloud provider let a global CIDR silently beat a namespace's range."""
    assigner = make_assigner(team="10.9.0.1-10.9.0.2", everyone="10.0.0.0/24")
    asked = {"pools": ("team",), "global_pools": ("everyone",)}
    assert [ask(assigner, owner, **asked) for owner in "abc"] == [["10.9.0.1"], ["10.9.0.2"], ["10.0.0.0"]]


def test_families_may_come_from_different_pools():
    assigner = make_assigner(team="10.9.0.1", everyone="10.0.0.1,2001:db8::1")
    asked = {"pools": ("team",), "global_pools": ("everyone",), "policy": REQUIRE}
    assert ask(assigner, "a", **asked) == ["10.9.0.1", "2001:db8::1"]


def test_a_dhcp_pool_of_the_namespace_wins_over_global_addresses():
    assigner = make_assigner(team="0.0.0.0/32", everyone="10.0.0.1")
    assert ask(assigner, "a", pools=("team",), global_pools=("everyone",)) == ["0.0.0.0"]


def test_a_static_address_is_found_in_any_pool_of_the_request():
    assigner = make_assigner(team="10.9.0.1", everyone="10.0.0.1")
    asked = {"pools": ("team",), "global_pools": ("everyone",)}
    assert ask(assigner, "a", static=(at("10.0.0.1"),), **asked) == ["10.0.0.1"]
    assert assigner.ledger.record(at("10.0.0.1")) == Record("a", "everyone")


def test_where_no_pool_can_serve_each_says_why():
    assigner = make_assigner(team="10.9.0.1", everyone="2001:db8::1")
    asked = {"pools": ("team", "gone"), "global_pools": ("everyone",), "families": (V4,)}
    ask(assigner, "a", **asked)
    with pytest.raises(NoAddressError) as caught:
        ask(assigner, "b", **asked)
    assert [type(cause).__name__ for cause in caught.value.causes] == [
        "RangeFullError",
        "RangeUnknownError",
        "FamilyMissingError",
    ]
    assert str(caught.value).startswith('no IPv4 address: range "team" is full: every IPv4 address is held')


def test_a_request_without_pools_is_told_so():
    with pytest.raises(NoAddressError, match="there is no range to ask"):
        ask(make_assigner(), "a", pools=())


def test_overlapping_pools_of_two_namespaces_see_each_others_holders():
    assigner = make_assigner(shared_overlaps=True, red="10.0.0.1-10.0.0.2", blue="10.0.0.1-10.0.0.2")
    assert ask(assigner, "a", pools=("red",)) == ["10.0.0.1"]
    assert ask(assigner, "b", pools=("blue",)) == ["10.0.0.2"]
    with pytest.raises(RangeFullError):
        ask(assigner, "c", pools=("red",))
