"""What a spec asks for, and the words for what stands in its way."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.addresses.claims import read_addresses
from fipop.addresses.request import (
    AddressRequest,
    Blocker,
    blocker_of,
    describe_holder,
    describe_namer,
    describe_reporter,
    is_made_by_us,
    read_request,
)
from fipop.ipam.addresses import Family, parse_address
from fipop.ipam.errors import RangeDrainingError
from tests.harness.objects import floating_ip, reservation

V4, V6 = Family.IPV4, Family.IPV6
BOTH = frozenset({V4, V6})
NONE: frozenset[Family] = frozenset()

policies = st.sampled_from([None, "SingleStack", "PreferDualStack", "RequireDualStack"])
family_lists = st.sampled_from([[], ["IPv4"], ["IPv6"], ["IPv4", "IPv6"], ["IPv6", "IPv4"]])
sets_of_families = st.sets(st.sampled_from([V4, V6])).map(frozenset)
addresses = st.sampled_from(["", "10.0.0.1", "fd00::1", "10.0.0.1,fd00::1", "fd00::1,10.0.0.1"])


def read(**spec: Any) -> AddressRequest | Blocker:
    return read_request(floating_ip(**{key: value for key, value in spec.items() if value is not None}))


def asked(**spec: Any) -> AddressRequest:
    found = read(**spec)
    assert isinstance(found, AddressRequest)
    return found


@pytest.mark.parametrize("text", ["", "  ", "10.0.0.1", " 10.0.0.1 ", "::ffff:10.0.0.1"])
def test_an_address_is_read_in_any_spelling_and_none_is_no_error(text: str) -> None:
    static = asked(ipaddress=text).static
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
def test_a_request_that_contradicts_itself_is_refused_with_its_words(
    spec: dict[str, Any], named: str
) -> None:
    found = read(**spec)
    assert isinstance(found, Blocker)
    assert found.reason == "InvalidSpec"
    assert named in found.message


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
        ({"ipFamilies": ["IPv6", "IPv4"], "ipFamilyPolicy": "SingleStack"}, BOTH, NONE, (V6,)),
        ({"ipFamilyPolicy": "PreferDualStack"}, frozenset({V6}), NONE, (V6,)),
        ({"ipFamilyPolicy": "PreferDualStack"}, BOTH, NONE, (V4, V6)),
        ({"ipFamilyPolicy": "PreferDualStack"}, NONE, NONE, (V4,)),
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
    assert asked(**spec).wanted(available, held) == wanted


@given(
    policy=policies, families=family_lists, text=addresses, available=sets_of_families, held=sets_of_families
)
def test_every_request_wants_some_family_ipv4_first_and_every_address_that_it_names(
    policy: str | None,
    families: list[str],
    text: str,
    available: frozenset[Family],
    held: frozenset[Family],
) -> None:
    request = read(ipFamilyPolicy=policy, ipFamilies=families, ipaddress=text)
    if isinstance(request, Blocker):
        return
    wanted = request.wanted(available, held)
    assert wanted
    assert list(wanted) == sorted(set(wanted))
    assert request.static.keys() <= set(wanted)
    assert not (request.needs_both and request.is_flexible)
    if request.needs_both:
        assert wanted == (V4, V6)


# Blockers


def test_a_message_names_the_holder_and_until_when_or_what_uses_the_address() -> None:
    holder = describe_holder(reservation("10.0.0.1", cluster="demo"))
    assert holder.reason == "AddressInUse"
    assert all(named in holder.message for named in ("10.0.0.1", "c-m-1/web", '"demo"'))
    waiting = reservation("fd00::1", quarantined_until="2026-03-01T12:10:00Z")
    assert describe_holder(waiting).reason == "AddressQuarantined"
    assert all(
        named in describe_holder(waiting).message for named in ("fd00::1", "2026-03-01 12:10:00", "c-m-1/web")
    )
    user = "Service default/web in guest cluster c-m-1 uses it."
    assert user in describe_holder(waiting, user).message


def test_the_reason_is_that_of_the_error_or_that_the_address_is_in_use() -> None:
    assert blocker_of(RangeDrainingError(range_name="pool")).reason == "RangeDraining"
    missing = describe_namer(floating_ip(namespace="c-m-2"), parse_address("10.0.0.1"))
    assert missing.reason == "AddressInUse"
    assert all(named in missing.message for named in ("10.0.0.1", "c-m-2/web"))
    used = describe_reporter("c-m-3", parse_address("10.0.0.1"))
    assert used.reason == "AddressInUse"
    assert all(named in used.message for named in ("10.0.0.1", "c-m-3"))


# Owners


@pytest.mark.parametrize(
    ("name", "ours"), [("demo-kubevip", True), ("demo-vip", False), ("shop-kubevip", False)]
)
def test_a_floating_ip_with_the_name_of_its_cluster_was_made_for_a_new_guest_cluster(
    name: str, ours: bool
) -> None:
    assert is_made_by_us(floating_ip(name, annotations={"clustername": "demo"})) is ours
    assert not is_made_by_us(floating_ip(name))


def test_what_cannot_be_read_is_passed_over_and_spellings_are_one() -> None:
    assert read_addresses(["", "x", "FD00::0:1", "fd00::1"]) == {parse_address("fd00::1")}
