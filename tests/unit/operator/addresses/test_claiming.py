"""What becomes of a plan, with the books of a world and reservations in memory."""

from typing import Any

import pytest

from fipop.api.models import Owner, Requested, Reservation
from fipop.errors import ApiUnreachableError
from fipop.ipam.addresses import Family, format_address, parse_address
from fipop.kube.resources import FLOATING_IP_RESERVATIONS
from fipop.operator.addresses.allocation import Blocker, DesiredAddress, Plan
from fipop.operator.addresses.claiming import Claimer, Outcome, describe_holder
from fipop.operator.addresses.reservations import ReservationStore
from fipop.state.cache import ClusterCache
from tests.harness.objects import (
    NOW,
    build_range,
    build_reservation,
    cache_of,
    floating_ip,
    held_by,
    reservation,
)
from tests.harness.reservation_store import Reservations

V4, V6 = Family.IPV4, Family.IPV6
POOL = build_range("pool", "10.0.0.1-10.0.0.3,fd00::1")
ME = Owner(namespace="c-m-1", name="web", uid="uid-c-m-1-web", cluster="demo")


class Bench:
    """A claimer over a world and a store of reservations that agree in the beginning."""

    def __init__(self, *reservations: dict[str, Any]) -> None:
        self.api = Reservations()
        self.cache: ClusterCache = cache_of(ranges=[POOL], reservations=list(reservations))
        for each in reservations:
            self.api.objects[each["metadata"]["name"]] = each
        self.carriers: dict[str, str] = {}
        reservation_store = ReservationStore(
            client=self.api,  # type: ignore[arg-type] # the four calls that a desk makes
            lookup=lambda name: self.cache.reservations.get("", name),
            observe=self._observe,
            forget=lambda gone: self.cache.forget(FLOATING_IP_RESERVATIONS, gone),
            now=lambda: NOW,
        )
        self.claimer = Claimer(
            cache=self.cache, reservation_store=reservation_store, carrier_of=self.carriers.get
        )

    def _observe(self, answer: dict[str, Any]) -> Reservation:
        self.cache.observe(FLOATING_IP_RESERVATIONS, answer)
        found = self.cache.reservations.get("", answer["metadata"]["name"])
        assert found is not None
        return found

    async def carry_out(self, plan: Plan, *, had: tuple[str, ...] = ()) -> Outcome:
        status = held_by(list(had)) if had else {}
        return await self.claimer.carry_out(
            plan, floating_ip=floating_ip(status=status), owner=ME, space="default", range_name="pool"
        )


def desired(
    family: Family, address: str | None = None, replaces: Reservation | None = None
) -> DesiredAddress:
    return DesiredAddress(
        family=family,
        address=parse_address(address) if address else None,
        requested=Requested.STATIC if address else Requested.DYNAMIC,
        replaces=replaces,
    )


def addresses(outcome: Outcome) -> list[str]:
    return [format_address(parse_address(each.address)) for _, each in sorted(outcome.held.items())]


async def test_both_families_are_claimed_ipv4_first() -> None:
    bench = Bench()
    outcome = await bench.carry_out(Plan(keep=(), claim=(desired(V4), desired(V6)), all_or_nothing=True))
    assert addresses(outcome) == ["10.0.0.1", "fd00::1"]
    assert bench.api.writes == ["create default.10.0.0.1", "create default.fd000000000000000000000000000001"]


@pytest.mark.parametrize(
    "second",
    [desired(V6), desired(V6, "fd00::1")],
    ids=["the family is used up", "the address is taken"],
)
async def test_both_families_or_none_writes_nothing_where_one_is_known_not_to_be_had(
    second: DesiredAddress,
) -> None:
    bench = Bench(build_reservation("fd00::1", "other"))
    outcome = await bench.carry_out(Plan(keep=(), claim=(desired(V4), second), all_or_nothing=True))
    assert (addresses(outcome), bench.api.writes) == ([], [])
    assert outcome.blockers


async def test_what_was_begun_is_undone_where_the_second_turns_out_to_be_taken() -> None:
    bench = Bench()
    # Another operator has it, and nothing here knows yet.
    taken = build_reservation("fd00::1", "other")
    bench.api.objects[taken["metadata"]["name"]] = taken
    outcome = await bench.carry_out(
        Plan(keep=(), claim=(desired(V4, "10.0.0.1"), desired(V6, "fd00::1")), all_or_nothing=True)
    )
    assert addresses(outcome) == []
    assert bench.api.writes == ["create default.10.0.0.1", "delete default.10.0.0.1"]
    assert outcome.blockers[0].reason == "AddressInUse"


async def test_an_undo_leaves_what_the_floating_ip_had_and_does_not_touch_what_another_may_be_naming() -> (
    None
):
    mine, before = (build_reservation(text, cluster="demo") for text in ("10.0.0.1", "10.0.0.2"))
    bench = Bench(mine)
    kept = bench.cache.reservations.get("", "default.10.0.0.1")
    assert kept is not None
    plan = Plan(keep=(kept,), blockers=(Blocker(reason="RangeFull", message="no IPv6"),), all_or_nothing=True)
    assert addresses(await bench.carry_out(plan, had=("10.0.0.1",))) == ["10.0.0.1"]

    bench = Bench(before)
    begun = bench.cache.reservations.get("", "default.10.0.0.2")
    assert begun is not None
    plan = Plan(keep=(begun,), blockers=plan.blockers, all_or_nothing=True)
    outcome = await bench.carry_out(plan)
    assert addresses(outcome) == []
    assert outcome.undone, "it is given back like all that is held in excess"
    assert bench.api.writes == []


async def test_an_undo_does_not_free_what_it_took_out_of_a_quarantine() -> None:
    """What was found in a guest without an owner has no history, and its guest carries it all the same."""
    bench = Bench(build_reservation("10.0.0.1", quarantined_until="2026-03-02T00:00:00Z"))
    taken = build_reservation("fd00::1", "other")
    bench.api.objects[taken["metadata"]["name"]] = taken
    plan = Plan(keep=(), claim=(desired(V4, "10.0.0.1"), desired(V6, "fd00::1")), all_or_nothing=True)
    assert addresses(await bench.carry_out(plan)) == []
    assert bench.api.writes == ["replace default.10.0.0.1", "replace default.10.0.0.1"]
    found = bench.cache.reservations.get("", "default.10.0.0.1")
    assert found is not None
    assert not found.is_held


async def test_the_old_address_stays_where_its_replacement_is_not_to_be_had() -> None:
    bench = Bench(build_reservation("10.0.0.1"), build_reservation("10.0.0.2", "other"))
    old = bench.cache.reservations.get("", "default.10.0.0.1")
    outcome = await bench.carry_out(Plan(keep=(), claim=(desired(V4, "10.0.0.2", old),)), had=("10.0.0.1",))
    assert addresses(outcome) == ["10.0.0.1"]
    assert outcome.blockers[0].reason == "AddressInUse"


async def test_both_or_none_keeps_the_old_address_of_one_family_where_the_other_is_not_to_be_had() -> None:
    bench = Bench(build_reservation("10.0.0.1", cluster="demo"))
    old = bench.cache.reservations.get("", "default.10.0.0.1")
    blocker = Blocker(reason="FamilyMissing", message="no IPv6")
    plan = Plan(keep=(), claim=(desired(V4, "10.0.0.2", old),), blockers=(blocker,), all_or_nothing=True)
    assert addresses(await bench.carry_out(plan, had=("10.0.0.1",))) == ["10.0.0.1"]
    assert bench.api.writes == []


@pytest.mark.parametrize(("taken", "stays"), [(True, ["fd00::1"]), (False, ["10.0.0.2"])])
async def test_a_family_that_is_wanted_no_more_stays_until_the_other_is_there(
    taken: bool, stays: list[str]
) -> None:
    bench = Bench(build_reservation("fd00::1"), *([build_reservation("10.0.0.2", "other")] if taken else []))
    surplus = next(each for each in bench.cache.reservations.all() if each.owner.name == "web")
    outcome = await bench.carry_out(Plan(keep=(), claim=(desired(V4, "10.0.0.2"),), surplus=(surplus,)))
    assert addresses(outcome) == stays


async def test_one_family_is_enough_where_both_are_only_preferred() -> None:
    bench = Bench(build_reservation("fd00::1", "other"))
    outcome = await bench.carry_out(Plan(keep=(), claim=(desired(V4), desired(V6)), content_with_one=True))
    assert addresses(outcome) == ["10.0.0.1"]
    assert [each.tolerable for each in outcome.blockers] == [True]


async def test_an_unknown_outcome_is_asked_for_again_before_any_other_address() -> None:
    bench = Bench()
    bench.api.cut = True
    plan = Plan(keep=(), claim=(desired(V4),))
    with pytest.raises(ApiUnreachableError):
        await bench.carry_out(plan)
    assert addresses(await bench.carry_out(plan)) == ["10.0.0.1"]
    # What was found to be there already is written anew before a status names it.
    assert bench.api.writes == ["create default.10.0.0.1", "replace default.10.0.0.1"]
    known = bench.cache.reservations.get("", "default.10.0.0.1")
    assert known is not None
    await bench.carry_out(Plan(keep=(known,)), had=("10.0.0.1",))
    assert len(bench.api.writes) == 2


async def test_an_open_claim_of_a_wish_that_is_no_more_keeps_no_address_from_others() -> None:
    bench = Bench(build_reservation("10.0.0.3"))
    bench.api.cut = True
    with pytest.raises(ApiUnreachableError):
        await bench.carry_out(Plan(keep=(), claim=(desired(V4),)))
    bench.api.objects.pop("default.10.0.0.1")  # it was cut before it was done
    kept = bench.cache.reservations.get("", "default.10.0.0.3")
    assert kept is not None
    await bench.carry_out(Plan(keep=(kept,)))
    assert format_address(bench.cache.allocations.next_free("pool", V4, ("c-m-1", "other"))) == "10.0.0.1"


async def test_of_several_former_addresses_the_one_that_was_released_last_comes_back() -> None:
    bench = Bench(
        build_reservation(
            "10.0.0.1", cluster="demo", namespace="old", quarantined_until="2026-03-02T00:00:00Z"
        ),
        build_reservation(
            "10.0.0.2", cluster="demo", namespace="old", quarantined_until="2026-03-03T00:00:00Z"
        ),
    )
    assert addresses(await bench.carry_out(Plan(keep=(), claim=(desired(V4),)))) == ["10.0.0.2"]


async def test_candidates_that_others_took_meanwhile_are_passed_over() -> None:
    bench = Bench()
    for address in ("10.0.0.1", "10.0.0.2"):
        taken = build_reservation(address, "other")
        bench.api.objects[taken["metadata"]["name"]] = taken
    assert addresses(await bench.carry_out(Plan(keep=(), claim=(desired(V4),)))) == ["10.0.0.3"]


async def test_a_kept_reservation_that_is_another_s_by_now_is_not_counted_as_held() -> None:
    bench = Bench(build_reservation("10.0.0.1", uid="uid-of-before"))
    kept = bench.cache.reservations.get("", "default.10.0.0.1")
    assert kept is not None
    theirs = build_reservation("10.0.0.1", "other")
    bench.cache.observe(FLOATING_IP_RESERVATIONS, theirs)
    bench.api.objects["default.10.0.0.1"] = theirs
    outcome = await bench.carry_out(Plan(keep=(kept,)))
    assert addresses(outcome) == []
    assert outcome.blockers[0].reason == "AddressInUse"


def test_who_stands_in_the_way_is_named_with_the_time_or_with_who_carries_the_address() -> None:
    holder = describe_holder(reservation("10.0.0.1", cluster="demo"))
    assert holder.reason == "AddressInUse"
    assert holder.message == 'address 10.0.0.1 is held by floating IP c-m-1/web of cluster "demo"'
    waiting = reservation("fd00::1", quarantined_until="2026-03-01T12:10:00Z")
    assert describe_holder(waiting).reason == "AddressQuarantined"
    assert describe_holder(waiting).message == (
        "address fd00::1 is in quarantine until 2026-03-01 12:10:00 UTC or later, after c-m-1/web"
    )
    carried = describe_holder(waiting, "Service default/web in guest c-m-1 carries fd00::1")
    assert carried.message.endswith("and as long as Service default/web in guest c-m-1 carries fd00::1")


async def test_what_stays_for_want_of_a_replacement_is_for_its_owner_as_he_is_now() -> None:
    former = build_reservation("10.0.0.1", owner="web", uid="uid-of-the-dead")
    bench = Bench(former, build_reservation("10.0.0.2", owner="other"))
    held = reservation("10.0.0.1", owner="web", uid="uid-of-the-dead")
    wanted = desired(V4, "10.0.0.2", replaces=held)
    plan = Plan(keep=(), claim=(wanted,), blockers=(), all_or_nothing=False)
    outcome = await bench.carry_out(plan)
    assert outcome.blockers
    assert outcome.held[V4].owner == ME
    assert bench.api.objects["default.10.0.0.1"]["spec"]["owner"]["uid"] == ME.uid
