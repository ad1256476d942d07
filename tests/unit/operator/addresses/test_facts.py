"""What a decision learns of the cluster cache."""

from typing import Any

import pytest

from fipop.api.models import Owner, Requested
from fipop.deadlines import NAMING_SECONDS, UNDER_WAY_SECONDS
from fipop.ipam.addresses import Family, format_address, parse_address
from fipop.kube.resources import FLOATING_IP_RESERVATIONS, FLOATING_IPS, PROVISIONING_CLUSTERS
from fipop.operator.addresses.facts import FactSource, bind_guest
from fipop.operator.addresses.reservations import ReservationStore
from fipop.operator.addresses.values import Blocker, Facts, RangeFacts
from fipop.operator.guests.reported import ClaimScope
from fipop.state.cache import ClusterCache
from fipop.state.claims import Claim
from fipop.state.gate import AllocationGate
from fipop.state.guests import GuestDirectory
from tests.harness.objects import (
    NOW,
    build_floating_ip,
    build_range,
    build_reservation,
    cache_of,
    floating_ip,
    held_by,
    newer,
)
from tests.harness.reservation_store import Reservations, look_never

V4 = Family.IPV4
POOL = build_range("pool", "10.0.0.1-10.0.0.3,fd00::1")
CLUSTER: dict[str, Any] = {
    "metadata": {"name": "demo", "namespace": "fleet", "uid": "uid-demo", "resourceVersion": "1"},
    "spec": {"rkeConfig": {}},
    "status": {"clusterName": "c-m-1"},
}
ME = Owner(namespace="c-m-1", name="web", uid="uid-c-m-1-web", cluster="demo")


class Bench:
    """A source of facts over a cache and a store of reservations that agree in the beginning."""

    def __init__(self, *reservations: dict[str, Any], where: dict[str, Any] = POOL, **subject: Any) -> None:
        subject.setdefault("annotations", {"fiprange": "pool"})
        self.api = Reservations()
        self.cache = cache_of(
            ranges=[where],
            floating_ips=[build_floating_ip("web", **subject)],
            reservations=list(reservations),
        )
        self.clock = self.cache.monotonic()
        self.cache.monotonic = lambda: self.clock
        for each in reservations:
            self.api.objects[each["metadata"]["name"]] = each
        client = self.api
        self.reservation_store = ReservationStore(
            client=client,
            known=self.cache,
            now=lambda: NOW,
            look_again=look_never,
        )
        guests = GuestDirectory(cache=self.cache, client=client)
        reach = ClaimScope(guests)
        self._facts = FactSource(
            cache=self.cache,
            reservation_store=self.reservation_store,
            gate=AllocationGate(reach.could_serve, adopted=True, is_shut=False),
            guests=guests,
            carrier_of=lambda _name: None,
            removal_of=lambda _floating_ip, _cluster: None,
        )

    def facts(self) -> Facts:
        subject = self.cache.floating_ips.get("c-m-1", "web")
        assert subject is not None
        return self._facts.gather(subject, is_live=False, written="", write_backs=0)

    def range(self) -> RangeFacts:
        found = self.facts().range
        assert isinstance(found, RangeFacts)
        return found


def claim(address: str, range_name: str = "pool") -> Claim:
    return Claim(
        space="default",
        address=parse_address(address),
        range=range_name,
        owner=ME,
        requested=Requested.DYNAMIC,
    )


def choose(bench: Bench) -> str:
    bench.cache.observe(PROVISIONING_CLUSTERS, CLUSTER)
    found = bench.range().free[V4]
    assert not isinstance(found, Blocker)
    return format_address(found)


async def test_what_this_process_wrote_is_fresh_for_a_while_and_safe_to_release() -> None:
    bench = Bench()
    await bench.reservation_store.claim(claim("10.0.0.1"))
    assert bench.facts().fresh == {"default.10.0.0.1"}
    assert bench.facts().unsafe_for == {"default.10.0.0.1": 0.0}
    bench.clock += NAMING_SECONDS
    assert bench.facts().fresh == frozenset()
    assert bench.facts().unsafe_for == {"default.10.0.0.1": 0.0}


def test_what_another_process_wrote_is_unsafe_to_release_until_nobody_can_be_about_to_name_it() -> None:
    bench = Bench(build_reservation("10.0.0.1"))
    assert bench.facts().fresh == frozenset()
    assert bench.facts().unsafe_for["default.10.0.0.1"] == pytest.approx(UNDER_WAY_SECONDS, abs=1)
    bench.clock += UNDER_WAY_SECONDS + 1
    assert bench.facts().unsafe_for["default.10.0.0.1"] < 0


def test_an_address_that_another_had_can_be_asked_for_once_its_reservation_has_changed() -> None:
    taken = build_reservation("10.0.0.1", "other")
    bench, name = Bench(taken, ipaddress="10.0.0.1"), "default.10.0.0.1"
    assert bench.facts().addresses[name].taken is not None
    released = build_reservation("10.0.0.1", "other", quarantined_until="2026-03-02T00:00:00Z")
    bench.cache.observe(FLOATING_IP_RESERVATIONS, newer(released))
    assert bench.facts().addresses[name].taken is None, "its own guest had it"


def test_a_claim_whose_outcome_is_unknown_is_asked_for_again_before_any_other() -> None:
    bench = Bench()
    bench.cache.allocations.begin_claim(claim("10.0.0.3"))
    assert choose(bench) == "10.0.0.3"


def test_a_claim_whose_outcome_is_unknown_is_not_asked_for_again_once_another_had_the_address() -> None:
    """It was claimed out of the quarantine of another floating IP of the guest cluster, though nobody named it."""
    bench = Bench(build_reservation("10.0.0.3", "other", quarantined_until="2026-03-02T00:00:00Z"))
    bench.cache.allocations.begin_claim(claim("10.0.0.3"))
    assert choose(bench) == "10.0.0.1"


@pytest.mark.parametrize("namespace", ["old", "c-m-1"], ids=["of the guest of before", "of its own"])
def test_of_several_former_addresses_the_one_that_was_released_last_comes_back(namespace: str) -> None:
    former = {"cluster": "demo", "namespace": namespace}
    bench = Bench(
        build_reservation("10.0.0.2", quarantined_until="2026-03-02T00:00:00Z", **former),  # type: ignore[arg-type]
        build_reservation("10.0.0.3", quarantined_until="2026-03-03T00:00:00Z", **former),  # type: ignore[arg-type]
    )
    assert choose(bench) == "10.0.0.3"


def test_a_former_address_does_not_come_back_from_another_range_or_where_it_is_refused() -> None:
    former = {"quarantined_until": "2026-03-02T00:00:00Z", "cluster": "demo"}
    assert choose(Bench(build_reservation("10.0.0.3", range_name="other", **former))) == "10.0.0.1"  # type: ignore[arg-type]
    assert choose(Bench(build_reservation("10.0.0.9", **former))) == "10.0.0.1"  # type: ignore[arg-type]


def test_an_address_that_another_holds_is_known_to_be_unavailable() -> None:
    taken = Bench(build_reservation("10.0.0.1", "other"), ipaddress="10.0.0.1").facts()
    known = taken.addresses["default.10.0.0.1"]
    assert known.taken is not None
    assert known.taken.reason == "AddressInUse"
    own = Bench(build_reservation("10.0.0.1"), ipaddress="10.0.0.1").facts().addresses["default.10.0.0.1"]
    assert own.taken is None


def test_an_address_whose_reservation_is_missing_is_of_whose_status_names_it() -> None:
    bench = Bench(ipaddress="10.0.0.1")
    other = build_floating_ip("other", namespace="c-m-2", status=held_by(["10.0.0.1"]))
    bench.cache.observe(FLOATING_IPS, other)
    known = bench.facts().addresses["default.10.0.0.1"]
    assert known.taken is not None
    assert known.taken.reason == "AddressInUse"


def test_a_quota_counts_what_the_guest_cluster_has_and_claims() -> None:
    where = build_range("pool", "10.0.0.1-10.0.0.3", maxPerGuest=1)
    bench = Bench(build_reservation("10.0.0.1"), where=where)
    bench.cache.allocations.begin_claim(claim("10.0.0.2"))
    quota = bench.range().quota
    assert quota is not None
    assert (quota.limit, quota.reserved, quota.claimed) == (1, {"default.10.0.0.1"}, {"default.10.0.0.2"})
    assert Bench().range().quota is None


def test_gathering_facts_changes_nothing() -> None:
    bench = Bench(build_reservation("10.0.0.1", "other"))
    before, now = bench.range(), bench.cache.allocations.ranges.usage("pool")
    assert (bench.range(), bench.cache.allocations.ranges.usage("pool")) == (before, now)
    assert choose(bench) == "10.0.0.2"


def test_the_owner_is_the_floating_ip_as_it_is_now_with_the_cluster_that_it_serves() -> None:
    bench = Bench(uid="uid-2")
    bench.cache.observe(PROVISIONING_CLUSTERS, CLUSTER)
    owner = bench.facts().owner
    assert (owner.key, owner.uid, owner.cluster) == (("c-m-1", "web"), "uid-2", "demo")
    taken_apart = Bench(build_reservation("10.0.0.1", uid="uid-1", cluster="demo"), uid="uid-2").facts().owner
    assert (taken_apart.uid, taken_apart.cluster) == ("uid-2", "demo"), "while Rancher takes the guest apart"
    assert Bench().facts().owner.cluster == ""


@pytest.mark.parametrize(
    ("uid", "requested", "spec", "expected"),
    [
        ("uid-of-the-dead", "static", "", Requested.DYNAMIC),
        ("uid-of-the-dead", "static", "10.0.0.1", Requested.STATIC),
        ("uid-of-the-dead", "dynamic", "10.0.0.1", Requested.DYNAMIC),
        ("", "static", "", Requested.STATIC),
    ],
)
def test_what_only_a_dead_object_of_the_name_asked_for_is_no_more_asked_for(
    uid: str, requested: str, spec: str, expected: Requested
) -> None:
    bench = Bench(build_reservation("10.0.0.1", uid=uid, requested=requested), ipaddress=spec)
    assert [each.requested for each in bench.facts().held] == [expected]


def test_a_range_is_told_with_what_keeps_it_from_serving() -> None:
    found = Bench().range()
    assert (found.name, found.families) == ("pool", {Family.IPV4, Family.IPV6})
    for subject, reason in (
        (Bench(annotations={"fiprange": "missing"}), "RangeNotFound"),
        (Bench(where=build_range("pool", "nonsense")), "RangeInvalid"),
        (Bench(ipaddress="nonsense"), "InvalidSpec"),
    ):
        blocker = subject.facts().range
        assert isinstance(blocker, Blocker)
        assert blocker.reason == reason


# The namespace of a floating IP determines its guest cluster; what a tenant may write can only object.


def build_cluster(name: str, cluster_name: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "fleet-default",
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "status": {"clusterName": cluster_name},
    }


def cache_with_clusters(*clusters: dict[str, Any]) -> ClusterCache:
    cache = cache_of()
    for cluster in clusters:
        cache.observe(PROVISIONING_CLUSTERS, cluster)
    return cache


@pytest.mark.parametrize("annotations", [{}, {"clustername": "demo"}])
def test_the_guest_is_the_cluster_whose_namespace_it_is(annotations: dict[str, str]) -> None:
    cache = cache_with_clusters(build_cluster("demo", "c-m-1"), build_cluster("shop", "c-m-2"))
    binding = bind_guest(cache, floating_ip(annotations=annotations))
    assert binding.cluster is not None
    assert (binding.cluster.name, binding.blocker) == ("demo", None)


def test_an_annotation_can_object_to_the_guest_and_never_choose_another() -> None:
    cache = cache_with_clusters(build_cluster("demo", "c-m-1"), build_cluster("shop", "c-m-2"))
    binding = bind_guest(cache, floating_ip(annotations={"clustername": "shop"}))
    assert binding.cluster is not None
    assert binding.cluster.name == "demo"
    assert binding.blocker is not None
    assert binding.blocker.reason == "ClusterMismatch"


def test_a_namespace_of_no_cluster_has_no_guest() -> None:
    binding = bind_guest(cache_with_clusters(build_cluster("shop", "c-m-2")), floating_ip())
    assert binding.blocker is not None
    assert (binding.cluster, binding.blocker.reason) == (None, "GuestNotFound")
