"""Which address a Service gets, and who else may have it."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fipop.errors import IpamError, PoolExhaustedError, PoolFamilyMissingError
from fipop.ipam.addresses import Address, Family, FamilyPolicy, format_address, parse_address
from fipop.ipam.assignment import ALONE, AddressPool, Port, Request, Tenancy, Tenant
from fipop.ipam.guest_pool import parse_guest_pool

V4, V6 = Family.IPV4, Family.IPV6
SINGLE, PREFER, REQUIRE = FamilyPolicy
HTTP: Port = (80, "TCP")
DNS: Port = (53, "UDP")


def pool_of(text: str, *, descending: bool = False) -> AddressPool:
    return AddressPool(key="cidr-global", addresses=parse_guest_pool(text), descending=descending)


LAN = pool_of("10.0.0.1-10.0.0.3,2001:db8::1-2001:db8::2")


def at(text: str) -> Address:
    return parse_address(text)


def sharing(*ports: Port) -> Tenant:
    return Tenant(ports=frozenset(ports), consents=True)


def choose(
    tenancy: Tenancy[str],
    owner: str = "a",
    pool: AddressPool = LAN,
    policy: FamilyPolicy = SINGLE,
    families: tuple[Family, ...] = (V4,),
    tenant: Tenant = ALONE,
    *,
    is_any_family: bool = False,
) -> list[str]:
    request = Request(
        owner=owner,
        pool=pool,
        policy=policy,
        families=families,
        tenant=tenant,
        is_any_family=is_any_family,
    )
    return [format_address(address) for address in tenancy.choose(request)]


def taken(*texts: str) -> Tenancy[str]:
    tenancy: Tenancy[str] = Tenancy()
    for number, text in enumerate(texts):
        tenancy.enter(at(text), f"holder-{number}", Tenant())
    return tenancy


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
    tenancy = taken(*others)
    if isinstance(expected, list):
        assert choose(tenancy, policy=policy, families=families) == expected
        return
    with pytest.raises(PoolExhaustedError) as caught:
        choose(tenancy, policy=policy, families=families)
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
    tenancy: Tenancy[str] = Tenancy()
    tenancy.enter(at("192.0.2.7"), "a", Tenant())
    assert choose(tenancy) == ["192.0.2.7"]
    assert choose(tenancy, policy=PREFER) == ["192.0.2.7", "2001:db8::1"]


def test_the_order_is_lowest_first_or_highest_first() -> None:
    tenancy = taken("10.0.0.1", "10.0.0.3")
    assert choose(tenancy) == ["10.0.0.2"]
    assert choose(taken(), pool=pool_of("10.0.0.1-10.0.0.3", descending=True)) == ["10.0.0.3"]
    tenancy.leave(at("10.0.0.1"), "holder-0")
    assert choose(tenancy) == ["10.0.0.1"]


def test_those_with_disjoint_ports_share_where_every_namespace_allows_it() -> None:
    tenancy: Tenancy[str] = Tenancy()
    tenancy.enter(at("10.0.0.1"), "web", sharing(HTTP))
    assert choose(tenancy, "dns", tenant=sharing(DNS)) == ["10.0.0.1"]
    assert choose(tenancy, "web2", tenant=sharing(HTTP)) == ["10.0.0.2"]
    assert choose(tenancy, "bare", tenant=sharing()) == ["10.0.0.2"], "without ports"
    assert choose(tenancy, "proud", tenant=Tenant(ports=frozenset({DNS}))) == ["10.0.0.2"]
    tenancy.enter(at("10.0.0.2"), "proud", Tenant(ports=frozenset({HTTP})))
    assert choose(tenancy, "other", tenant=sharing(DNS, HTTP)) == ["10.0.0.3"], "its tenant does not consent"


def test_an_address_of_ipv6_is_shared_with_nobody() -> None:
    tenancy: Tenancy[str] = Tenancy()
    tenancy.enter(at("2001:db8::1"), "web", sharing(HTTP))
    assert choose(tenancy, "dns", families=(V6,), tenant=sharing(DNS)) == ["2001:db8::2"]
    tenancy.enter(at("2001:db8::1"), "dns", sharing(DNS))
    assert tenancy.clashing(at("2001:db8::1"), "web") == ("dns",)


def test_what_two_have_without_right_is_taken_until_both_are_gone() -> None:
    """The second was refused when it was taken over, and a third got the address when the first left."""
    tenancy = taken("10.0.0.1")
    tenancy.enter(at("10.0.0.1"), "second", Tenant())
    assert tenancy.clashing(at("10.0.0.1"), "second") == ("holder-0",)
    tenancy.leave(at("10.0.0.1"), "holder-0")
    assert tenancy.clashing(at("10.0.0.1"), "second") == ()
    assert choose(tenancy, "third") == ["10.0.0.2"]
    tenancy.leave(at("10.0.0.1"), "second")
    tenancy.leave(at("10.0.0.1"), "second")
    assert choose(tenancy, "third") == ["10.0.0.1"]


def test_tenants_can_be_listed_the_longest_there_first() -> None:
    tenancy: Tenancy[str] = Tenancy()
    tenancy.enter(at("10.0.0.1"), "web", sharing(HTTP))
    tenancy.enter(at("10.0.0.1"), "dns", sharing(DNS))
    assert list(tenancy.tenants(at("10.0.0.1"))) == ["web", "dns"]
    assert list(tenancy.addresses()) == [at("10.0.0.1")]
    assert tenancy.used(LAN) == 1, "a shared address counts once"
    assert tenancy.held_by("dns") == (at("10.0.0.1"),)


POOL = pool_of("10.0.0.1-10.0.0.4,2001:db8::1-2001:db8::2")
OWNERS = st.sampled_from("abcdef")
TENANTS = st.builds(
    lambda ports, consents: Tenant(ports=frozenset(ports), consents=consents),
    st.lists(st.sampled_from([HTTP, DNS, (443, "TCP")]), max_size=2),
    st.booleans(),
)
ADDRESSES = st.sampled_from(
    [at(f"10.0.0.{last}") for last in range(1, 6)] + [at("2001:db8::1"), at("2001:db8::2")]
)


class TenancyMachine(RuleBasedStateMachine):
    """Beside a plain list of (address, owner, tenant): every choice is the best there is, and clashes with nobody."""

    @initialize()
    def make(self) -> None:
        self.tenancy: Tenancy[str] = Tenancy()
        self.naive: dict[tuple[Address, str], Tenant] = {}

    @rule(address=ADDRESSES, owner=OWNERS, tenant=TENANTS)
    def enter(self, address: Address, owner: str, tenant: Tenant) -> None:
        self.tenancy.enter(address, owner, tenant)
        self.naive[address, owner] = tenant

    @precondition(lambda self: self.naive)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        address, owner = data.draw(st.sampled_from(sorted(self.naive)))
        self.tenancy.leave(address, owner)
        del self.naive[address, owner]

    @rule(owner=OWNERS, tenant=TENANTS, policy=st.sampled_from(FamilyPolicy), family=st.sampled_from(Family))
    def choose(self, owner: str, tenant: Tenant, policy: FamilyPolicy, family: Family) -> None:
        if any(holder == owner for _, holder in self.naive):
            return
        families = (family,) if policy is SINGLE else (family, V4 if family is V6 else V6)
        expected = {each: self._best(each, tenant) for each in families}
        request = Request(owner=owner, pool=POOL, policy=policy, families=(family,), tenant=tenant)
        try:
            found = self.tenancy.choose(request)
        except IpamError:
            assert None in expected.values()
            assert policy is not PREFER or set(expected.values()) == {None}
            return
        assert found == tuple(best for best in expected.values() if best is not None)
        for address in found:
            self.enter(address, owner, tenant)
            assert self.tenancy.clashing(address, owner) == ()

    def _best(self, family: Family, tenant: Tenant) -> Address | None:
        mine = [Address(family, value) for value in POOL.addresses.of(family).addresses()]
        by_address = {each: [t for (a, _), t in self.naive.items() if a == each] for each in mine}
        shared = [
            each
            for each, tenants in by_address.items()
            if family is V4
            and tenants
            and all(tenant.may_share_with(other) for other in tenants)
            and all(other.consents and other.ports for other in tenants)
        ]
        return next(iter(shared), next((each for each, tenants in by_address.items() if not tenants), None))

    @invariant()
    def both_know_the_same(self) -> None:
        found = {
            (address, owner): tenant
            for address in self.tenancy.addresses()
            for owner, tenant in self.tenancy.tenants(address).items()
        }
        assert found == self.naive


TenancyMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestTheTenancyAgreesWithAPlainList = TenancyMachine.TestCase
