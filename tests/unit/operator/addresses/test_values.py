"""Requests, blockers and owners: what values alone say."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.ipam.addresses import Family, parse_address
from fipop.ipam.errors import RangeDrainingError
from fipop.operator.addresses.values import (
    SpecError,
    blocker_of,
    describe_conflicting_owner,
    describe_holder,
    is_made_by_us,
    needs_every_family,
    read_request,
    wanted_families,
)
from fipop.state.claims import read_addresses
from tests.harness.objects import floating_ip, reservation

V4, V6 = Family.IPV4, Family.IPV6
BOTH = frozenset({V4, V6})
NONE: frozenset[Family] = frozenset()

policies = st.sampled_from([None, "SingleStack", "PreferDualStack", "RequireDualStack"])
family_lists = st.sampled_from([[], ["IPv4"], ["IPv6"], ["IPv4", "IPv6"], ["IPv6", "IPv4"]])
sets_of_families = st.sets(st.sampled_from([V4, V6])).map(frozenset)
addresses = st.sampled_from(["", "10.0.0.1", "fd00::1", "10.0.0.1,fd00::1", "fd00::1,10.0.0.1"])


def read(**spec: Any):
    return read_request(floating_ip(**{key: value for key, value in spec.items() if value is not None}))


@pytest.mark.parametrize("text", ["", "  ", "10.0.0.1", " 10.0.0.1 ", "::ffff:10.0.0.1"])
def test_an_address_is_read_in_any_spelling_and_none_is_no_error(text: str) -> None:
    static = read(ipaddress=text).static
    assert dict(static) == ({V4: parse_address("10.0.0.1")} if text.strip() else {})


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"ipaddress": "10.0.0.256"}, '"10.0.0.256"'),
        ({"ipaddress": "10.0.0.1,"}, '""'),
        ({"ipaddress": "fe80::1%eth0"}, "fe80::1%eth0"),
        ({"ipaddress": "10.0.0.1,10.0.0.2"}, "IPv4"),
        ({"ipaddress": "fd00::1,fd00::2"}, "IPv6"),
        ({"ipaddress": "10.0.0.1,fd00::1", "ipFamilyPolicy": "SingleStack"}, "SingleStack"),
        ({"ipaddress": "10.0.0.1", "ipFamilies": ["IPv6"]}, "IPv6"),
        ({"ipaddress": "10.0.0.1,fd00::1", "ipFamilies": ["IPv6"]}, "IPv4"),
    ],
)
def test_a_wish_that_contradicts_itself_is_refused_with_its_words(spec: dict[str, Any], named: str) -> None:
    with pytest.raises(SpecError) as caught:
        read(**spec)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "available", "held", "wanted"),
    [
        ({}, BOTH, NONE, (V4,)),
        ({}, frozenset({V6}), NONE, (V6,)),
        ({}, NONE, NONE, (V4,)),
        ({}, BOTH, frozenset({V6}), (V6,)),
        ({}, BOTH, BOTH, (V4, V6)),
        ({"ipFamilyPolicy": "SingleStack"}, BOTH, BOTH, (V4,)),
        ({"ipFamilies": ["IPv6"]}, BOTH, NONE, (V6,)),
        ({"ipFamilies": ["IPv6"]}, frozenset({V4}), frozenset({V4}), (V6,)),
        ({"ipFamilies": ["IPv6", "IPv4"]}, frozenset({V4}), NONE, (V4, V6)),
        ({"ipFamilyPolicy": "PreferDualStack"}, frozenset({V6}), NONE, (V6,)),
        ({"ipFamilyPolicy": "PreferDualStack"}, BOTH, NONE, (V4, V6)),
        ({"ipFamilyPolicy": "PreferDualStack"}, frozenset({V4}), BOTH, (V4, V6)),
        ({"ipFamilyPolicy": "PreferDualStack", "ipaddress": "fd00::1"}, frozenset({V4}), NONE, (V4, V6)),
        ({"ipFamilyPolicy": "RequireDualStack"}, frozenset({V4}), NONE, (V4, V6)),
        ({"ipaddress": "fd00::1"}, BOTH, frozenset({V4}), (V6,)),
        ({"ipaddress": "fd00::1,10.0.0.1"}, BOTH, NONE, (V4, V6)),
    ],
)
def test_the_families_to_hold_follow_from_policy_families_addresses_range_and_what_is_held(
    spec: dict[str, Any],
    available: frozenset[Family],
    held: frozenset[Family],
    wanted: tuple[Family, ...],
) -> None:
    assert wanted_families(read(**spec), available, held) == wanted


@given(
    policy=policies, families=family_lists, text=addresses, available=sets_of_families, held=sets_of_families
)
def test_every_wish_that_can_be_read_wants_some_family_ipv4_first_and_every_address_that_it_names(
    policy: str | None,
    families: list[str],
    text: str,
    available: frozenset[Family],
    held: frozenset[Family],
) -> None:
    try:
        request = read(ipFamilyPolicy=policy, ipFamilies=families, ipaddress=text)
    except SpecError:
        return
    wanted = wanted_families(request, available, held)
    assert wanted
    assert list(wanted) == sorted(set(wanted))
    assert request.static.keys() <= set(wanted)
    if needs_every_family(request):
        assert wanted == (V4, V6)


# Blockers


def test_who_stands_in_the_way_is_named_with_the_time_or_with_who_carries_the_address() -> None:
    holder = describe_holder(reservation("10.0.0.1", cluster="demo"))
    assert holder.reason == "AddressInUse"
    assert all(named in holder.message for named in ("10.0.0.1", "c-m-1/web", '"demo"'))
    waiting = reservation("fd00::1", quarantined_until="2026-03-01T12:10:00Z")
    assert describe_holder(waiting).reason == "AddressQuarantined"
    assert all(
        named in describe_holder(waiting).message for named in ("fd00::1", "2026-03-01 12:10:00", "c-m-1/web")
    )
    carried = describe_holder(waiting, "Service default/web in guest c-m-1 carries fd00::1")
    assert "Service default/web in guest c-m-1 carries fd00::1" in carried.message


def test_the_reason_is_that_of_the_error_or_that_the_address_is_in_use() -> None:
    assert blocker_of(RangeDrainingError(range_name="pool")).reason == "RangeDraining"
    missing = describe_conflicting_owner(("c-m-2", "web"), parse_address("10.0.0.1"))
    assert missing.reason == "AddressInUse"
    assert all(named in missing.message for named in ("10.0.0.1", "c-m-2/web"))


# Owners


@pytest.mark.parametrize(
    ("name", "ours"), [("demo-kubevip", True), ("demo-vip", False), ("shop-kubevip", False)]
)
def test_what_is_named_after_its_cluster_was_made_for_a_new_guest(name: str, ours: bool) -> None:
    assert is_made_by_us(floating_ip(name, annotations={"clustername": "demo"})) is ours
    assert not is_made_by_us(floating_ip(name))


def test_what_cannot_be_read_is_passed_over_and_spellings_are_one() -> None:
    assert read_addresses(["", "x", "FD00::0:1", "fd00::1"]) == {parse_address("fd00::1")}
