"""The plan of a guest cluster's floating IPs comes to rest, within its limits, whatever its Services want."""

from dataclasses import dataclass, field, replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from fipop.api import names
from fipop.api.objects import (
    EPOCH,
    FloatingIP,
    FloatingIPSpec,
    FloatingIPStatus,
    Metadata,
    PerGuest,
    digest_spec,
)
from fipop.guests.services import DemandInput, DemandPlan, NewFloatingIP, ServiceUse, plan_floating_ips
from fipop.ipam.addresses import Address, Family, format_address, parse_address

V4, V6 = Family.IPV4, Family.IPV6
BOTH = frozenset({V4, V6})
ALLOWED = {"edge": frozenset({"default"})}
"""Who may choose pool edge; another one only the namespace of its name may."""
WISHES = ((V4,), (V6,), (V4, V6))
MOST_STEPS = 60


@dataclass
class GuestCluster:
    """A guest cluster whose floating IPs are made at once, and whose provider serves what it can."""

    per_guest: PerGuest
    wishes: list[tuple[tuple[Family, ...], bool, str, str]]
    """Of each Service the families, whether one of them is enough, the namespace, and the pool that it chooses."""
    floating_ips: list[FloatingIP] = field(default_factory=list)
    used: dict[int, set[Address]] = field(default_factory=dict)
    made: int = 0

    def add(self, want: NewFloatingIP, *, is_ours: bool = True) -> None:
        """Have a floating IP with an address of each family that is wanted."""
        self.made += 1
        found = {V4: f"10.0.0.{self.made}", V6: f"fd00::{self.made:x}"}
        addresses = tuple(found[each] for each in want.families or (V4,))
        place = {"pool" if want.is_pool else "service_namespace": want.scope}
        spec = FloatingIPSpec(ipaddress=",".join(addresses), **place)
        annotations = {names.ANNOTATION_MADE: digest_spec(spec)} if is_ours else {}
        metadata = Metadata(
            namespace="c-m-a",
            name=want.name or "first",
            uid=str(self.made),
            creation_timestamp=EPOCH + timedelta(seconds=self.made),
            annotations=annotations,
        )
        self.floating_ips.append(
            FloatingIP(
                metadata=metadata, spec=spec, status=FloatingIPStatus(addresses=addresses, range="pool")
            )
        )

    def serve(self) -> None:
        """Have the provider assign what is free."""
        for number, (families, is_flexible, namespace, chosen) in enumerate(self.wishes):
            if self.used.get(number) or not self.may_wait(number):
                continue
            here = {each.spec.scope for each in self.floating_ips}
            scope = chosen or (namespace if namespace in here else "")
            pool = [
                parse_address(text)
                for each in self.floating_ips
                if each.spec.scope == scope
                for text in each.status.addresses
            ]
            free = [each for each in pool if all(each not in some for some in self.used.values())]
            found = {each.family: each for each in reversed(free) if each.family in families}
            if len(found) == len(families) or (is_flexible and found):
                self.used[number] = set(found.values())

    def may_wait(self, number: int) -> bool:
        """Whether a floating IP would help a Service: it chooses no pool, or one that exists and that it may choose."""
        _, _, namespace, chosen = self.wishes[number]
        is_there = any(each.spec.scope == chosen for each in self.floating_ips)
        return not chosen or (is_there and namespace in ALLOWED.get(chosen, {chosen}))

    def plan(self) -> DemandPlan:
        """Return what is planned when all that is idle has been so for long."""
        services = [
            ServiceUse(
                namespace=namespace,
                name=f"web-{number}",
                pool=chosen,
                addresses=frozenset(self.used.get(number, ())),
                lacking=() if self.used.get(number) else families,
                is_flexible=is_flexible,
                since=None if self.used.get(number) else EPOCH,
            )
            for number, (families, is_flexible, namespace, chosen) in enumerate(self.wishes)
        ]
        return plan_floating_ips(
            DemandInput(
                cluster="demo",
                per_guest=self.per_guest,
                families=BOTH,
                floating_ips=self.floating_ips,
                taken=frozenset(each.name for each in self.floating_ips),
                services=services,
                pool_namespaces=ALLOWED,
                idle_seconds={each.uid: 1e9 for each in self.floating_ips},
            )
        )

    def rest(self) -> DemandPlan:
        """Do what is planned until nothing is."""
        for _ in range(MOST_STEPS):
            plan = self.plan()
            for want in plan.makes:
                self.add(want)
            if plan.delete is not None:
                used = set[Address]().union(*self.used.values())
                texts = set(map(format_address, used))
                assert texts.isdisjoint(plan.delete.status.addresses), "a Service uses it"
                self.floating_ips.remove(plan.delete)
            if not plan.makes and plan.delete is None:
                return plan
            self.serve()
        raise AssertionError("it goes in circles")


@st.composite
def guest_clusters(draw: st.DrawFn) -> GuestCluster:
    most = draw(st.integers(1, 5))
    per_guest = PerGuest(
        min_allocate=draw(st.integers(0, most)),
        pre_allocate=draw(st.integers(0, most)),
        max_allocate=most,
    )
    services = st.tuples(
        st.sampled_from(WISHES),
        st.booleans(),
        st.sampled_from(["default", "shop"]),
        st.sampled_from(["", "", "dmz", "edge", "shop"]),
    )
    found = GuestCluster(per_guest, draw(st.lists(services, max_size=7)))
    found.add(NewFloatingIP(), is_ours=False)
    if draw(st.booleans()):
        found.add(NewFloatingIP(name="shop", scope="shop", is_pool=draw(st.booleans())), is_ours=False)
    for pool in draw(st.sets(st.sampled_from(["dmz", "edge"]))):
        found.add(NewFloatingIP(name=pool, scope=pool, is_pool=True), is_ours=False)
    found.serve()
    return found


@given(guest_clusters(), st.lists(st.integers(0, 6), max_size=5))
def test_it_comes_to_rest_within_its_limits_and_again_when_services_go(
    found: GuestCluster, leaving: list[int]
) -> None:
    by_hand = len(found.floating_ips)
    for number in (None, *leaving):
        if number is not None and number < len(found.wishes):
            found.wishes = [each for at, each in enumerate(found.wishes) if at != number]
            found.used = {at - (at > number): each for at, each in found.used.items() if at != number}
            found.serve()
        plan = found.rest()
        assert by_hand <= len(found.floating_ips) <= max(by_hand, found.per_guest.max_allocate)
        waiting = [at for at in range(len(found.wishes)) if not found.used.get(at) and found.may_wait(at)]
        has_room = len(found.floating_ips) < found.per_guest.max_allocate
        assert not waiting or not has_room, "a Service waits for nothing"
        assert len(plan.unserved) == len(waiting), "and it is said"
        for at, (_, _, namespace, chosen) in enumerate(found.wishes):
            is_allowed = not chosen or namespace in ALLOWED.get(chosen, {chosen})
            assert is_allowed or not found.used.get(at)


def test_addresses_in_quarantine_cost_nothing_of_what_a_guest_cluster_may_have() -> None:
    found = GuestCluster(PerGuest(max_allocate=4), [((V4,), False, "default", "")] * 2)
    found.add(NewFloatingIP(), is_ours=False)
    found.serve()
    services = [
        ServiceUse(namespace="default", name="a", addresses=frozenset({parse_address("10.0.0.1")})),
        ServiceUse(namespace="default", name="b", lacking=(V4,), since=EPOCH),
    ]
    given = DemandInput(
        cluster="demo",
        per_guest=found.per_guest,
        families=BOTH,
        floating_ips=found.floating_ips,
        services=services,
        room=0,
    )
    assert plan_floating_ips(given).limit == "maxPerGuest"
    former = {parse_address("10.0.0.9"): "demo-kubevip-2"}
    assert [each.name for each in plan_floating_ips(replace(given, former=former)).makes] == [
        "demo-kubevip-2"
    ]
