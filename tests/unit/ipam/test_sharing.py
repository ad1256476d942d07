"""Which address a Service gets, and who else may have it."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fipop.ipam.addresses import Address, Family, FamilyPolicy, format_address, parse_address
from fipop.ipam.allocator import AddressPool, AddressUser, Port, Reason
from fipop.ipam.errors import IpamError, PoolExhaustedError, PoolFamilyMissingError
from fipop.ipam.pool import parse_guest_pool
from fipop.ipam.sharing import Request, Sharing, can_share

V4, V6 = Family.IPV4, Family.IPV6
SINGLE, PREFER, REQUIRE = FamilyPolicy
HTTP: Port = (80, "TCP")
DNS: Port = (53, "UDP")


def pool_of(text: str, *, descending: bool = False) -> AddressPool:
    return AddressPool(name="cidr-global", addresses=parse_guest_pool(text), descending=descending)


ALONE = AddressUser(Reason.RESERVED, "a")
LAN = pool_of("10.0.0.1-10.0.0.3,2001:db8::1-2001:db8::2")


def at(text: str) -> Address:
    return parse_address(text)


def user(owner: str, *ports: Port, consents: bool = False) -> AddressUser[str]:
    return AddressUser(Reason.RESERVED, owner, ports=frozenset(ports), consents=consents)


def open_to(owner: str, *ports: Port) -> AddressUser[str]:
    return user(owner, *ports, consents=True)


def choose(
    sharing: Sharing[str],
    asks: AddressUser[str] = ALONE,
    pool: AddressPool = LAN,
    policy: FamilyPolicy = SINGLE,
    families: tuple[Family, ...] = (V4,),
    *,
    is_any_family: bool = False,
) -> list[str]:
    request = Request(user=asks, pool=pool, policy=policy, families=families, is_any_family=is_any_family)
    return [format_address(address) for address in sharing.choose(request)]


def taken(*texts: str) -> Sharing[str]:
    sharing: Sharing[str] = Sharing()
    for number, text in enumerate(texts):
        sharing.enter(at(text), user(f"holder-{number}"))
    return sharing


@pytest.mark.parametrize(
    ("policy", "families", "others", "expected"),
    [
        (SINGLE, (V4,), (), ["10.0.0.1"]),
        (SINGLE, (V6, V4), (), ["2001:db8::1"]),
        (PREFER, (V4,), (), ["10.0.0.1", "2001:db8::1"]),
        (PREFER, (V6, V4), (), ["2001:db8::1", "10.0.0.1"]),
        (PREFER, (V4,), ("2001:db8::1", "2001:db8::2"), ["10.0.0.1"]),
        (PREFER, (V4,), ("10.0.0.1", "10.0.0.2", "10.0.0.3"), ["2001:db8::1"]),
        (REQUIRE, (V6, V4), (), ["2001:db8::1", "10.0.0.1"]),
        (
            REQUIRE,
            (V4,),
            ("2001:db8::1", "2001:db8::2"),
            ("IPv6", 2),
        ),
        (
            SINGLE,
            (V4,),
            ("10.0.0.1", "10.0.0.2", "10.0.0.3"),
            ("IPv4", 3),
        ),
    ],
)
def test_policies_families_and_exhaustion(
    policy: FamilyPolicy,
    families: tuple[Family, ...],
    others: tuple[str, ...],
    expected: list[str] | tuple[str, int],
) -> None:
    sharing = taken(*others)
    if isinstance(expected, list):
        assert choose(sharing, policy=policy, families=families) == expected
        return
    with pytest.raises(PoolExhaustedError) as caught:
        choose(sharing, policy=policy, families=families)
    assert caught.value.key == "cidr-global"
    assert (caught.value.family, caught.value.total) == expected


@pytest.mark.parametrize("policy", list(FamilyPolicy))
def test_a_family_that_the_pool_has_not_is_told_apart_from_a_full_one(policy: FamilyPolicy) -> None:
    only_v4 = pool_of("10.0.0.1")
    families = (V6,) if policy is SINGLE else (V4,)
    if policy is PREFER:
        assert choose(taken(), pool=only_v4, policy=policy) == ["10.0.0.1"]
        with pytest.raises(PoolExhaustedError):
            choose(taken("10.0.0.1"), pool=only_v4, policy=policy)
        return
    with pytest.raises(PoolFamilyMissingError) as caught:
        choose(taken(), pool=only_v4, policy=policy, families=families)
    assert (caught.value.key, caught.value.family) == ("cidr-global", "IPv6")


def test_without_a_family_the_pool_decides() -> None:
    assert choose(taken(), pool=pool_of("2001:db8::5"), is_any_family=True) == ["2001:db8::5"]
    assert choose(taken(), is_any_family=True) == ["10.0.0.1"]


def test_who_has_an_address_keeps_it_also_outside_its_pool() -> None:
    """It got a second one."""
    sharing: Sharing[str] = Sharing()
    sharing.enter(at("192.0.2.7"), ALONE)
    assert choose(sharing) == ["192.0.2.7"]
    assert choose(sharing, policy=PREFER) == ["192.0.2.7", "2001:db8::1"]


def test_the_order_is_lowest_first_or_highest_first() -> None:
    sharing = taken("10.0.0.1", "10.0.0.3")
    assert choose(sharing) == ["10.0.0.2"]
    assert choose(taken(), pool=pool_of("10.0.0.1-10.0.0.3", descending=True)) == ["10.0.0.3"]
    sharing.leave(at("10.0.0.1"), user("holder-0"))
    assert choose(sharing) == ["10.0.0.1"]


def test_those_with_disjoint_ports_share_where_every_namespace_allows_it() -> None:
    sharing: Sharing[str] = Sharing()
    sharing.enter(at("10.0.0.1"), open_to("web", HTTP))
    assert choose(sharing, open_to("dns", DNS)) == ["10.0.0.1"]
    assert choose(sharing, open_to("web2", HTTP)) == ["10.0.0.2"]
    assert choose(sharing, open_to("bare")) == ["10.0.0.2"], "without ports"
    assert choose(sharing, user("proud", DNS)) == ["10.0.0.2"]
    sharing.enter(at("10.0.0.2"), user("proud", HTTP))
    assert choose(sharing, open_to("other", DNS, HTTP)) == ["10.0.0.3"], "its user does not consent"


def test_an_address_of_ipv6_is_shared_with_nobody() -> None:
    sharing: Sharing[str] = Sharing()
    sharing.enter(at("2001:db8::1"), open_to("web", HTTP))
    assert choose(sharing, open_to("dns", DNS), families=(V6,)) == ["2001:db8::2"]
    sharing.enter(at("2001:db8::1"), open_to("dns", DNS))
    assert sharing.conflicting(at("2001:db8::1"), "web") == ("dns",)


def test_what_two_have_without_right_is_taken_until_both_are_gone() -> None:
    """The second was refused when it was taken over, and a third got the address when the first left."""
    sharing = taken("10.0.0.1")
    sharing.enter(at("10.0.0.1"), user("second"))
    assert sharing.conflicting(at("10.0.0.1"), "second") == ("holder-0",)
    sharing.leave(at("10.0.0.1"), user("holder-0"))
    assert sharing.conflicting(at("10.0.0.1"), "second") == ()
    assert choose(sharing, user("third")) == ["10.0.0.2"]
    sharing.leave(at("10.0.0.1"), user("second"))
    sharing.leave(at("10.0.0.1"), user("second"))
    assert choose(sharing, user("third")) == ["10.0.0.1"]


def test_the_users_of_an_address_are_listed_by_owner() -> None:
    sharing: Sharing[str] = Sharing()
    sharing.enter(at("10.0.0.1"), open_to("web", HTTP))
    sharing.enter(at("10.0.0.1"), open_to("dns", DNS))
    assert [each.owner for each in sharing.users(at("10.0.0.1"))] == ["dns", "web"]
    assert list(sharing.addresses()) == [at("10.0.0.1")]
    assert sharing.held_by("dns") == {at("10.0.0.1"): open_to("dns", DNS)}


def test_of_several_shareable_addresses_the_first_in_the_order_of_the_pool_is_chosen() -> None:
    sharing: Sharing[str] = Sharing()
    for text in ("10.0.0.2", "10.0.0.3"):
        sharing.enter(at(text), open_to(f"web-{text}", HTTP))
    for descending, expected in ((False, "10.0.0.2"), (True, "10.0.0.3")):
        pool = pool_of("10.0.0.1-10.0.0.4", descending=descending)
        assert choose(sharing, open_to("dns", DNS), pool=pool) == [expected]


POOL = pool_of("10.0.0.1-10.0.0.4,2001:db8::1-2001:db8::2")
OWNERS = st.sampled_from("abcdef")
USERS = st.builds(
    lambda owner, ports, consents: user(owner, *ports, consents=consents),
    OWNERS,
    st.lists(st.sampled_from([HTTP, DNS, (443, "TCP")]), max_size=2),
    st.booleans(),
)
ADDRESSES = st.sampled_from(
    [at(f"10.0.0.{last}") for last in range(1, 6)] + [at("2001:db8::1"), at("2001:db8::2")]
)


class SharingMachine(RuleBasedStateMachine):
    """Beside a plain dict of users: every choice is the best there is, and conflicts with no other user."""

    @initialize()
    def make(self) -> None:
        self.sharing: Sharing[str] = Sharing()
        self.naive: dict[tuple[Address, str], AddressUser[str]] = {}

    @rule(address=ADDRESSES, enters=USERS)
    def enter(self, address: Address, enters: AddressUser[str]) -> None:
        self.sharing.enter(address, enters)
        self.naive[address, enters.owner] = enters

    @precondition(lambda self: self.naive)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        address, owner = data.draw(st.sampled_from(sorted(self.naive)))
        self.sharing.leave(address, self.naive.pop((address, owner)))

    @rule()
    def forget_pools(self) -> None:
        self.sharing.forget_pools()

    @rule(asks=USERS, policy=st.sampled_from(FamilyPolicy), family=st.sampled_from(Family))
    def choose(self, asks: AddressUser[str], policy: FamilyPolicy, family: Family) -> None:
        if any(holder == asks.owner for _, holder in self.naive):
            return
        families = (family,) if policy is SINGLE else (family, V4 if family is V6 else V6)
        expected = {each: self._best(each, asks) for each in families}
        request = Request(user=asks, pool=POOL, policy=policy, families=(family,))
        try:
            found = self.sharing.choose(request)
        except IpamError:
            assert None in expected.values()
            assert policy is not PREFER or set(expected.values()) == {None}
            return
        assert found == tuple(best for best in expected.values() if best is not None)
        for address in found:
            self.enter(address, asks)
            assert self.sharing.conflicting(address, asks.owner) == ()

    def _best(self, family: Family, asks: AddressUser[str]) -> Address | None:
        mine = [Address(family, value) for value in POOL.addresses.of(family).addresses()]
        by_address = {each: [found for (a, _), found in self.naive.items() if a == each] for each in mine}
        shared = [
            each
            for each, users in by_address.items()
            if family is V4
            and users
            and all(can_share(asks, other) for other in users)
            and all(other.consents and other.ports for other in users)
        ]
        return next(iter(shared), next((each for each, users in by_address.items() if not users), None))

    @invariant()
    def both_know_the_same(self) -> None:
        found = {
            (address, each.owner): each
            for address in self.sharing.addresses()
            for each in self.sharing.users(address)
        }
        assert found == self.naive
        for owner in {owner for _, owner in self.naive}:
            held = {address: each for (address, holder), each in self.naive.items() if holder == owner}
            assert self.sharing.held_by(owner) == held


SharingMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestSharingAgreesWithAPlainDict = SharingMachine.TestCase
