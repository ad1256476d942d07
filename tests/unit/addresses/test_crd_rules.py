"""The rules of the CRDs beside the core that reads the same texts: what the core takes, the API server must not refuse.

The rules are the API server's own, read from `crds/`; their regular expressions mean the same here and there.
"""

import re

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from fipop.addresses.request import Blocker, read_request
from fipop.api.objects import FloatingIP, FloatingIPSpec, Metadata
from fipop.ipam.addresses import explode_address, parse_address
from fipop.ipam.errors import IpamError
from fipop.ipam.pool import parse_pool
from tests.chart.rendering import ROOT, Object


def spec_of(plural: str) -> Object:
    crd = yaml.safe_load((ROOT / "crds" / f"{plural}.yaml").read_text())
    spec: Object = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    return spec


def expressions_of(schema: Object) -> list[tuple[bool, re.Pattern[str]]]:
    """Return the regular expressions of a text with whether it must match them, or must not."""
    rules = " ".join(each["rule"] for each in schema["x-kubernetes-validations"])
    found = re.findall(r"(!?)(?:self|\(self \+ ','\))\.matches\(r'(.+?)'\)", rules)
    return [(not negation, re.compile(text, re.ASCII)) for negation, text in found]


POOL = expressions_of(spec_of("floatingipranges")["iprange"])
EXCLUSION = expressions_of(spec_of("floatingipranges")["exclude"]["items"])
((_, ADDRESSES),) = expressions_of(spec_of("floatingips")["ipaddress"])
RESERVED = re.compile(spec_of("floatingipreservations")["address"]["pattern"])

BLANKS = st.text(" \t\n", max_size=2)
V4 = st.ip_addresses(v=4).map(str) | st.sampled_from(["0.0.0.0", "255.255.255.255", "10.0.0.1", "10.0.0.01"])
V6 = st.ip_addresses(v=6).flatmap(
    lambda ip: st.sampled_from(
        [str(ip), ip.exploded, str(ip).upper(), f"::ffff:{ip.packed[0]}.0.0.1", "::", "::1"]
    )
)
ADDRESS = V4 | V6
LENGTH = st.integers(0, 130).map(str)


@st.composite
def parts(draw: st.DrawFn) -> str:
    first, last = draw(ADDRESS), draw(ADDRESS)
    blanks = [draw(BLANKS) for _ in range(4)]
    tail = draw(
        st.sampled_from(["", f"{blanks[1]}/{blanks[2]}{draw(LENGTH)}", f"{blanks[1]}-{blanks[2]}{last}"])
    )
    return f"{blanks[0]}{first}{tail}{blanks[3]}"


POOL_TEXTS = st.lists(parts(), min_size=1, max_size=4).map(",".join) | st.text(
    "0123456789abcf:.,/- %\n", max_size=40
)


def is_taken(rules: list[tuple[bool, re.Pattern[str]]], text: str) -> bool:
    return all((pattern.search(text + "," * wanted) is not None) == wanted for wanted, pattern in rules)


@given(POOL_TEXTS)
@example("::ffff:0.0.0.0/128")
@example("10.0.0.1\n")
def test_a_pool_that_the_core_reads_is_taken_by_the_api_server(text: str) -> None:
    try:
        parse_pool(text)
    except IpamError:
        return
    assert is_taken(POOL, text)
    assert is_taken(EXCLUSION, text)


@given(st.lists(ADDRESS, max_size=3), st.lists(BLANKS, min_size=3, max_size=3))
def test_addresses_that_the_core_reads_are_taken_by_the_api_server(
    texts: list[str], blanks: list[str]
) -> None:
    text = ",".join(f"{blank}{each}{blank}" for each, blank in zip(texts, blanks, strict=False))
    floating_ip = FloatingIP(metadata=Metadata(name="a"), spec=FloatingIPSpec(ipaddress=text))
    if isinstance(read_request(floating_ip), Blocker):
        return
    # Two addresses, of which one is IPv4 as IPv6: no one writes that, and the rule cannot tell it from two of IPv6.
    if sum(":" in each for each in texts) == len(texts) > 1:
        return
    assert ADDRESSES.search(text)


@given(ADDRESS)
def test_every_address_is_reserved_in_a_form_that_the_api_server_takes(text: str) -> None:
    try:
        address = parse_address(text)
    except IpamError:
        return
    assert RESERVED.search(explode_address(address))
    assert not explode_address(address).startswith("0000:0000:0000:0000:0000:ffff:")
