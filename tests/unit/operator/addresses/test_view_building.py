"""What a decision is told of the cluster cache."""

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from fipop.api.models import Owner, Requested
from fipop.deadlines import NAMING_SECONDS, UNDER_WAY_SECONDS
from fipop.ipam.addresses import Family, format_address, parse_address
from fipop.kube.resources import FLOATING_IP_RESERVATIONS
from fipop.operator.addresses.allocation import RangeView
from fipop.operator.addresses.blockers import Blocker
from fipop.operator.addresses.reservations import ReservationStore
from fipop.operator.addresses.view import View
from fipop.operator.addresses.view_building import Observed, ViewBuilder
from fipop.operator.guests.reach import Reach
from fipop.state.claims import Claim
from fipop.state.gate import AllocationGate
from fipop.state.guests import GuestDirectory
from tests.harness.objects import (
    NOW,
    build_floating_ip,
    build_range,
    build_reservation,
    cache_of,
    newer,
    reservation,
)
from tests.harness.reservation_store import Reservations, look_never

V4 = Family.IPV4
POOL = build_range("pool", "10.0.0.1-10.0.0.3,fd00::1")
ME = Owner(namespace="c-m-1", name="web", uid="uid-c-m-1-web", cluster="demo")


class Bench:
    """A view builder over a cache and a store of reservations that agree in the beginning."""

    def __init__(self, *reservations: dict[str, Any], where: dict[str, Any] = POOL, **subject: Any) -> None:
        subject.setdefault("annotations", {"fiprange": "pool"})
        self.api, self.clock = Reservations(), time.monotonic()
        self.cache = cache_of(
            ranges=[where],
            floating_ips=[build_floating_ip("web", **subject)],
            reservations=list(reservations),
        )
        self.cache.monotonic = lambda: self.clock
        for each in reservations:
            self.api.objects[each["metadata"]["name"]] = each
        client = self.api
        self.reservation_store = ReservationStore(
            client=client,
            known=self.cache,
            now=lambda: NOW,
            monotonic=lambda: self.clock,
            look_again=look_never,
        )
        guests = GuestDirectory(cache=self.cache, client=client)
        reach = Reach(cache=self.cache, guests=guests)
        self._views = ViewBuilder(
            cache=self.cache,
            reservation_store=self.reservation_store,
            gate=AllocationGate(reach.could_serve, adopted=True, is_shut=False),
            guests=guests,
            carrier_of=lambda _name: None,
            removal_of=lambda _floating_ip, _cluster: None,
        )

    def view(self, **denied: Any) -> View:
        subject = self.cache.floating_ips.get("c-m-1", "web")
        assert subject is not None
        observed = Observed(
            is_live=False, denied=denied, written=frozenset(), write_backs=0, now=datetime.now(UTC)
        )
        return self._views.build(subject, observed)


def claim(address: str, range_name: str = "pool") -> Claim:
    return Claim(
        space="default",
        address=parse_address(address),
        range=range_name,
        owner=ME,
        requested=Requested.DYNAMIC,
    )


def choose(bench: Bench) -> str:
    return format_address(bench.view().holders.choose(V4, ME, "pool"))


async def test_what_this_process_wrote_is_fresh_for_a_while_and_safe_to_release() -> None:
    bench = Bench()
    await bench.reservation_store.claim(claim("10.0.0.1"))
    assert bench.view().fresh == {"default.10.0.0.1"}
    assert bench.view().unsafe_for == {"default.10.0.0.1": 0.0}
    bench.clock += NAMING_SECONDS
    assert bench.view().fresh == frozenset()
    assert bench.view().unsafe_for == {"default.10.0.0.1": 0.0}


def test_what_another_process_wrote_is_unsafe_to_release_until_nobody_can_be_about_to_name_it() -> None:
    bench = Bench(build_reservation("10.0.0.1"))
    assert bench.view().fresh == frozenset()
    assert bench.view().unsafe_for["default.10.0.0.1"] == pytest.approx(UNDER_WAY_SECONDS, abs=1)
    bench.clock += UNDER_WAY_SECONDS + 1
    assert bench.view().unsafe_for["default.10.0.0.1"] < 0


def test_what_was_denied_may_be_asked_for_again_once_its_reservation_has_changed() -> None:
    taken = build_reservation("10.0.0.1", "other")
    bench, name = Bench(taken), "default.10.0.0.1"
    known = bench.cache.reservations.get("", name)
    assert bench.view(**{name: known}).denied == {name: known}
    released = build_reservation("10.0.0.1", "other", quarantined_until="2026-03-02T00:00:00Z")
    bench.cache.observe(FLOATING_IP_RESERVATIONS, newer(released))
    assert bench.view(**{name: known}).denied == {}


def test_a_claim_whose_outcome_is_unknown_is_asked_for_again_before_any_other() -> None:
    bench = Bench()
    bench.cache.allocations.begin_claim(claim("10.0.0.3"))
    assert choose(bench) == "10.0.0.3"


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


def test_what_another_holds_by_all_that_is_known_is_told() -> None:
    bench = Bench(build_reservation("10.0.0.1", "other"), build_reservation("10.0.0.2"))
    holders = bench.view().holders
    assert holders.holder(claim("10.0.0.1")) == bench.cache.reservations.get("", "default.10.0.0.1")
    assert holders.holder(claim("10.0.0.2")) is None, "its own"
    assert holders.describe(reservation("10.0.0.1", "other")).reason == "AddressInUse"


def test_the_quota_counts_but_for_what_was_its_own() -> None:
    where = build_range("pool", "10.0.0.1-10.0.0.3", maxPerGuest=1)
    holders = Bench(build_reservation("10.0.0.1"), where=where).view().holders
    refusal = holders.refusal(claim("10.0.0.2"), is_own=False)
    assert refusal is not None
    assert refusal.reason == "QuotaExceeded"
    assert holders.refusal(claim("10.0.0.2"), is_own=True) is None
    assert holders.refusal(claim("10.0.0.1"), is_own=False) is None, "it has that one"


def test_a_range_is_told_with_what_keeps_it_from_serving() -> None:
    found = Bench().view().range
    assert isinstance(found, RangeView)
    assert (found.name, found.families) == ("pool", {Family.IPV4, Family.IPV6})
    for subject, reason in (
        (Bench(annotations={"fiprange": "missing"}), "RangeNotFound"),
        (Bench(where=build_range("pool", "nonsense")), "RangeInvalid"),
        (Bench(ipaddress="nonsense"), "InvalidSpec"),
    ):
        blocker = subject.view().range
        assert isinstance(blocker, Blocker)
        assert blocker.reason == reason
