"""`allocate` against an oracle that enumerates addresses with `ipaddress`, and what holds in any sequence."""

import ipaddress
import os
from dataclasses import dataclass, field
from random import Random

import pytest

from fipop.cloudprovider.allocate import Refusal, ServiceRequest, allocate
from fipop.cloudprovider.pools import PoolKeys
from fipop.cloudprovider.usage import Usage, User
from fipop.ipam.addresses import Address, Family, FamilyPolicy, format_address, parse_address

IP = ipaddress.IPv4Address | ipaddress.IPv6Address
CASES_OF_A_SEED = 500
SEEDS = 40 if os.environ.get("LONG") else 4
"""40 seeds are 20,000 cases."""
POOLS = (
    "10.0.0.1-10.0.0.4",
    "10.0.0.1-10.0.0.3,fd00::1-fd00::2",
    "fd00::1-fd00::3",
    "10.0.0.0/29,fd00::/125",
    "10.0.0.2,10.0.0.6",
)
FAMILIES = ((4,), (6,), (4, 6), (6, 4))
OUTSIDE = (ipaddress.ip_address("10.9.9.9"), ipaddress.ip_address("fd99::9"))


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    uid: str
    shares: bool
    ports: frozenset[tuple[int, str]]

    def conflicts_with(self, other: "Neighbour", address: IP) -> bool:
        may_share = self.shares and other.shares and self.ports and other.ports
        return address.version == 6 or not (may_share and not self.ports & other.ports)


@dataclass(kw_only=True)
class Case:
    pool_text: str
    descending: bool
    policy: FamilyPolicy
    families: tuple[int, ...]
    me: Neighbour
    kept: list[IP]
    preferred: list[IP]
    asked: IP | None
    users: dict[IP, list[Neighbour]] = field(default_factory=dict)


def enumerate_pool(text: str) -> list[IP]:
    """Return the addresses of a pool as the documentation describes them, one by one."""
    found: list[IP] = []
    for part in text.split(","):
        if "-" in part:
            first, last = map(ipaddress.ip_address, part.split("-"))
            found += [type(first)(value) for value in range(int(first), int(last) + 1)]
        elif "/" in part:
            network = ipaddress.ip_network(part)
            found += [each for each in network if each.version == 6 or int(each) % 256 not in (0, 255)]
        else:
            found.append(ipaddress.ip_address(part))
    return sorted(set(found), key=lambda each: (each.version, int(each)))


def expect(case: Case, pool: list[IP]) -> str | list[IP]:
    """Return the addresses of a Service by enumeration, or the reason why it gets none."""

    def conflicts(address: IP) -> bool:
        others = (each for each in case.users.get(address, ()) if each.uid != case.me.uid)
        return any(case.me.conflicts_with(each, address) for each in others)

    have: dict[int, IP] = {}
    for address in case.kept:
        have.setdefault(address.version, address)
    is_single = case.policy is FamilyPolicy.SINGLE_STACK
    families = case.families[:1] if is_single else case.families
    if case.asked is not None:
        if case.asked.version not in families:
            return "InvalidAddress"
        if conflicts(case.asked):
            return "AddressInUse"
        have[case.asked.version] = case.asked
    found, is_lacking = [], False
    for version in families:
        mine = [each for each in pool if each.version == version]
        mine = mine[::-1] if case.descending else mine
        again = [each for each in case.preferred if each in mine and not conflicts(each)]
        can_share = version == 4 and case.me.shares and case.me.ports
        shared = [each for each in mine if can_share and case.users.get(each) and not conflicts(each)]
        free = [each for each in mine if not case.users.get(each)]
        choice = have.get(version) or next(iter([*again, *shared, *free]), None)
        is_lacking |= choice is None
        found += [choice] if choice is not None else []
    is_content = found and case.policy is FamilyPolicy.PREFER_DUAL_STACK
    return "PoolFull" if is_lacking and not is_content else found


def draw(chance: Random) -> Case:
    def draw_neighbour(uid: str) -> Neighbour:
        ports = chance.sample([80, 81, 443], chance.randrange(3))
        return Neighbour(
            uid=uid, shares=chance.random() < 0.5, ports=frozenset((each, "TCP") for each in ports)
        )

    text = chance.choice(POOLS)
    universe = [*enumerate_pool(text), *OUTSIDE]
    asked = chance.choice(universe) if chance.random() < 0.2 else None
    kept = chance.sample(universe, 1) if chance.random() < 0.3 else []
    case = Case(
        pool_text=text,
        descending=chance.random() < 0.3,
        policy=chance.choice(list(FamilyPolicy)),
        families=chance.choice(FAMILIES),
        me=draw_neighbour("me"),
        kept=[each for each in kept if asked is None or each.version != asked.version],
        preferred=chance.sample(universe, 2) if chance.random() < 0.3 else [],
        asked=asked,
    )
    for number in range(chance.randrange(7)):
        user = draw_neighbour(f"u{number}")
        for address in chance.sample(universe, chance.randrange(3)):
            case.users.setdefault(address, []).append(user)
    return case


def to_address(ip: IP) -> Address:
    return parse_address(str(ip))


def to_user(each: Neighbour) -> User:
    return User(uid=each.uid, name=each.uid, ports=each.ports, shares=each.shares)


def run(case: Case) -> str | list[str]:
    keys = PoolKeys({"cidr-global": case.pool_text, "search-order": "desc" if case.descending else "asc"})
    usage = Usage()
    users = {user.uid: user for each in case.users.values() for user in each}
    for uid, user in users.items():
        usage.enter(to_user(user), [to_address(ip) for ip, each in case.users.items() if user in each])
        assert uid == user.uid
    request = ServiceRequest(
        user=to_user(case.me),
        policy=case.policy,
        families=tuple(Family(each) for each in case.families),
        kept=tuple(map(to_address, case.kept)),
        preferred=tuple(map(to_address, case.preferred)),
        asked=to_address(case.asked) if case.asked is not None else None,
    )
    answer = allocate(request, keys.pool_of("shop"), usage)
    return answer.reason if isinstance(answer, Refusal) else [format_address(each) for each in answer]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_service_gets_what_enumeration_gives(seed: int) -> None:
    chance = Random(seed)
    for _ in range(CASES_OF_A_SEED):
        case = draw(chance)
        wanted = expect(case, enumerate_pool(case.pool_text))
        assert run(case) == (wanted if isinstance(wanted, str) else [str(each) for each in wanted]), case


@pytest.mark.parametrize("seed", range(20))
def test_in_any_sequence_no_address_has_two_users_that_may_not_share_it(seed: int) -> None:
    chance, usage = Random(seed), Usage()
    living: dict[str, tuple[User, tuple[Address, ...]]] = {}
    pool = PoolKeys({"cidr-global": chance.choice(POOLS)}).pool_of("shop")
    for number in range(120):
        if living and chance.random() < 0.4:
            usage.enter(living.pop(chance.choice(sorted(living)))[0], ())
            continue
        ports = frozenset({(chance.choice([80, 81, 443]), "TCP")})
        user = User(uid=f"u{number}", name=f"u{number}", ports=ports, shares=chance.random() < 0.5)
        families = tuple(Family(each) for each in chance.choice(FAMILIES))
        request = ServiceRequest(user=user, policy=chance.choice(list(FamilyPolicy)), families=families)
        answer = allocate(request, pool, usage)
        assert answer == allocate(request, pool, usage), "nothing is changed by asking"
        if not isinstance(answer, Refusal):
            living[user.uid] = user, answer
            usage.enter(user, answer)
        for holder, held in living.values():
            assert not any(usage.find_conflicting(each, holder) for each in held)


def test_a_change_of_ports_or_consent_concerns_all_users_of_the_same_address() -> None:
    usage, address = Usage(), parse_address("10.0.0.1")
    one = User(uid="one", name="one", ports=frozenset({(80, "TCP")}), shares=True)
    two = User(uid="two", name="two", ports=frozenset({(81, "TCP")}), shares=True)
    assert usage.enter(one, [address]) == frozenset()
    assert usage.enter(two, [address]) == {"one"}
    assert usage.enter(two, [address]) == frozenset()
    assert usage.enter(User(uid="two", name="two", ports=one.ports, shares=True), [address]) == {"one"}


@pytest.mark.parametrize(
    ("namespace", "pool", "reason", "waits"),
    [
        ("shop", "edge", "PoolNotAllowed", False),
        ("shop", "a b", "InvalidPool", False),
        ("shop", "", "InvalidPool", False),
        ("shop", "shop", "NoPool", True),
        ("edge", "edge", "PoolFull", True),
    ],
)
def test_only_a_service_that_may_choose_its_pool_waits(
    namespace: str, pool: str, reason: str, waits: bool
) -> None:
    keys = PoolKeys({"cidr-global": "10.0.0.1-10.0.0.4", "cidr-edge": "fd00::1"})
    request = ServiceRequest(user=User(uid="a", name="a"), families=(Family.IPV4,), pool=pool)
    answer = allocate(request, keys.pool_of(namespace, pool), Usage())
    assert isinstance(answer, Refusal)
    assert (answer.reason, answer.waits) == (reason, waits)


def test_a_pool_of_all_ipv6_costs_nothing() -> None:
    pool = PoolKeys({"cidr-global": "::/0"}).pool_of("shop")
    request = ServiceRequest(user=User(uid="a", name="a"), families=(Family.IPV6,))
    assert allocate(request, pool, Usage()) == (Address(Family.IPV6, 1),)
