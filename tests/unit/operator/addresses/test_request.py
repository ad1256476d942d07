from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.ipam.addresses import Family, parse_address
from fipop.operator.addresses.request import (
    SpecError,
    in_order,
    needs_every_family,
    read_request,
    wanted_families,
)
from tests.harness.objects import floating_ip

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


@pytest.mark.parametrize(
    ("families", "order"),
    [([], [V4, V6]), (["IPv4"], [V4, V6]), (["IPv6"], [V6, V4]), (["IPv6", "IPv4"], [V6, V4])],
)
def test_addresses_are_written_in_the_order_of_the_families_that_the_spec_names(
    families: list[str], order: list[Family]
) -> None:
    held = {V4: parse_address("10.0.0.1"), V6: parse_address("fd00::1")}
    request = read(ipFamilies=families, ipFamilyPolicy="PreferDualStack")
    assert [address.family for address in in_order(request, held)] == order
