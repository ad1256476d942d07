"""The protocol of reservations, against a store in memory that knows names, uids and versions as an API server does."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fipop.api.models import Owner
from fipop.api.parsing import parse_reservation
from fipop.errors import ApiAlreadyExistsError, ApiConflictError, ApiUnreachableError
from fipop.ipam.addresses import parse_address
from fipop.operator.addresses.reservations import is_former_owner
from fipop.state.claims import reservation_name
from tests.harness.objects import NOW, Json
from tests.harness.reservation_store import Reservations
from tests.unit.operator.addresses.claims import Operator, claim, owner


def held(api: Reservations) -> dict[str, Owner]:
    found = {name: parse_reservation(obj) for name, obj in api.objects.items()}
    return {name: each.owner for name, each in found.items() if each.is_held}


@pytest.mark.parametrize(
    ("address", "name"),
    [("10.0.0.1", "default.10.0.0.1"), ("fd00::1", "default.fd000000000000000000000000000001")],
)
def test_the_name_of_a_reservation_is_its_space_and_address(address: str, name: str) -> None:
    assert reservation_name("default", parse_address(address)) == name


async def test_a_free_address_is_granted_to_who_asks_first_and_the_second_is_told_whose_it_is() -> None:
    api = Reservations()
    first = await Operator(api).reservation_store.claim(claim(owner("first")))
    second = await Operator(api).reservation_store.claim(claim(owner("second")))
    assert first is not None
    assert second is None
    assert held(api) == {"default.10.0.0.1": owner("first")}


async def test_what_is_mine_is_granted_again_without_a_write() -> None:
    api = Reservations()
    operator = Operator(api)
    await operator.reservation_store.claim(claim(owner()))
    api.writes.clear()
    other = Operator(api)
    assert await operator.reservation_store.claim(claim(owner())) is None, "it is not newly assigned"
    assert await other.reservation_store.claim(claim(owner())) is None
    assert other.known["default.10.0.0.1"].owner == owner(), "it knows by now who has it"
    assert api.writes == []


async def test_a_lost_answer_is_asked_for_again_under_the_same_name_and_found_granted() -> None:
    api = Reservations()
    operator = Operator(api)
    api.cut = True
    with pytest.raises(ApiUnreachableError) as error:
        await operator.reservation_store.claim(claim(owner()))
    assert error.value.outcome_unknown
    assert await operator.reservation_store.claim(claim(owner())) is None
    assert operator.known["default.10.0.0.1"].owner == owner()
    assert api.writes == ["create default.10.0.0.1"]


async def test_an_owner_that_was_made_again_takes_its_address_over_by_a_swap() -> None:
    api = Reservations()
    await Operator(api).reservation_store.claim(claim(owner(uid="uid-1")))
    before = parse_reservation(api.objects["default.10.0.0.1"])
    operator = Operator(api, NOW + timedelta(days=1))
    operator.look()
    assert await operator.reservation_store.claim(claim(owner(uid="uid-2"))) is None, (
        "it is not newly assigned"
    )
    after = operator.known["default.10.0.0.1"]
    assert (after.owner.uid, after.uid, after.since) == ("uid-2", before.uid, before.since)


async def test_who_meets_the_reservation_of_another_gets_nothing_and_knows_of_it_then() -> None:
    """Not even what its guest cluster had: only who names such an address gets it, so all is decided again."""
    api = Reservations()
    behind, other = Operator(api), Operator(api)
    granted = await other.reservation_store.claim(claim(owner("first")))
    assert granted is not None
    await other.reservation_store.quarantine(granted, seconds=600)
    assert await behind.reservation_store.claim(claim(owner("second"))) is None
    assert behind.known["default.10.0.0.1"].owner == owner("first")
    assert held(api) == {}


async def test_a_release_keeps_who_had_it_and_for_how_long_nobody_else_gets_it() -> None:
    api = Reservations()
    operator = Operator(api)
    granted = await operator.reservation_store.claim(claim(owner()))
    released = await operator.reservation_store.quarantine(granted, seconds=600)
    assert released.quarantined_until == NOW + timedelta(seconds=600)
    assert [(past.name, past.cluster, past.released_at) for past in released.history] == [
        ("web", "demo", NOW)
    ]
    assert (
        await operator.reservation_store.claim(claim(owner("other", cluster="shop", namespace="c-m-9")))
        is None
    )


async def test_a_quarantine_is_never_shorter_than_its_range_says_though_written_in_whole_seconds() -> None:
    api = Reservations()
    operator = Operator(api)
    granted = await operator.reservation_store.claim(claim(owner()))
    operator.reservation_store.now = lambda: NOW + timedelta(milliseconds=300)
    released = await operator.reservation_store.quarantine(granted, seconds=2)
    assert released.quarantined_until == NOW + timedelta(seconds=3)


@pytest.mark.parametrize(
    ("who", "range_name", "returns"),
    [
        (owner(), "pool", True),
        (owner(uid="uid-2"), "pool", True),
        (owner(namespace="c-m-2"), "pool", True),
        (owner(), "other", True),
        (owner(namespace="c-m-2"), "other", False),
        (owner(namespace="c-m-2", cluster="shop"), "pool", False),
        (owner("api", cluster="demo"), "pool", True),  # of the same guest cluster: who names it gets it
        (owner("api", namespace="c-m-2"), "pool", False),
    ],
)
async def test_a_quarantined_address_goes_back_to_the_floating_ip_of_that_name_of_that_cluster_and_range(
    who: Owner, range_name: str, returns: bool
) -> None:
    api = Reservations()
    operator = Operator(api)
    granted = await operator.reservation_store.claim(claim(owner()))
    await operator.reservation_store.quarantine(granted, seconds=600)
    answer = await operator.reservation_store.claim(claim(who, range_name=range_name))
    assert (answer is not None) is returns


def test_who_has_no_cluster_is_nobodys_former_owner() -> None:
    known = parse_reservation(
        {"metadata": {"name": "x"}, "spec": {"owner": {"namespace": "a", "name": "web"}, "range": "pool"}}
    )
    assert not is_former_owner(known, Owner(namespace="b", name="web", uid="u"), "pool")


async def test_the_history_of_owners_is_short() -> None:
    api = Reservations()
    operator = Operator(api)
    for _ in range(9):
        granted = await operator.reservation_store.claim(claim(owner()))
        await operator.reservation_store.quarantine(granted, seconds=1)
    assert len(operator.known["default.10.0.0.1"].history) == 5


async def test_what_changed_since_it_was_seen_is_neither_freed_nor_released() -> None:
    api = Reservations()
    operator, other = Operator(api), Operator(api)
    granted = await operator.reservation_store.claim(claim(owner()))
    released = await operator.reservation_store.quarantine(granted, seconds=1)
    other.look()
    await other.reservation_store.claim(claim(owner()))
    operator.look()  # a watch may have brought the news while the free was being decided
    assert not await operator.reservation_store.free(released)
    with pytest.raises(ApiConflictError):
        await operator.reservation_store.quarantine(granted, seconds=1)
    assert held(api) == {"default.10.0.0.1": owner()}
    assert operator.known["default.10.0.0.1"].is_held, "the next round starts from the truth"


async def test_a_guest_is_written_only_with_what_is_still_its_own() -> None:
    api = Reservations()
    operator = Operator(api)
    granted = await operator.reservation_store.claim(claim(owner()))
    name = "default.10.0.0.1"
    assert await operator.reservation_store.is_held_by(name, owner())
    assert not await operator.reservation_store.is_held_by(name, owner(uid="uid-2"))
    assert not await operator.reservation_store.is_held_by(name, owner("other"))
    await operator.reservation_store.quarantine(granted, seconds=1)
    assert not await operator.reservation_store.is_held_by(name, owner())
    assert not await operator.reservation_store.is_held_by("default.10.0.0.2", owner())


async def test_an_address_found_in_a_guest_is_quarantined_unless_it_is_on_the_books() -> None:
    api = Reservations()
    operator = Operator(api)
    found = claim(Owner(namespace="c-m-1", name="", uid="", cluster="demo"))
    quarantined = await operator.reservation_store.quarantine_unowned(found, seconds=60)
    assert quarantined is not None
    assert quarantined.quarantined_until == NOW + timedelta(seconds=60)
    assert await operator.reservation_store.quarantine_unowned(found, seconds=60) is None
    stranger = owner("other", namespace="c-m-9", cluster="shop")
    assert await operator.reservation_store.claim(claim(stranger)) is None


class ManyDesks(RuleBasedStateMachine):
    """Desks that are behind, whose answers get lost, on the same addresses: each has one owner at most, always."""

    @initialize()
    def start(self) -> None:
        self.api = Reservations()
        self.operators = [Operator(self.api) for _ in range(3)]
        self.before: dict[str, Owner] = {}
        self.released: set[str] = set()

    def _run(self, coroutine: Any) -> Any:
        try:
            return asyncio.run(coroutine)
        except (ApiConflictError, ApiAlreadyExistsError, ApiUnreachableError):
            return None

    @rule(index=st.integers(0, 2))
    def look(self, index: int) -> None:
        self.operators[index].look()

    @rule()
    def lose_the_next_answer(self) -> None:
        self.api.cut = True

    @rule(
        index=st.integers(0, 2),
        host=st.integers(1, 2),
        name=st.sampled_from(["a", "b"]),
        uid=st.sampled_from(["u1", "u2"]),
    )
    def claim(self, index: int, host: int, name: str, uid: str) -> None:
        wanted = claim(owner(name, uid=uid), f"10.0.0.{host}")
        answer = self._run(self.operators[index].reservation_store.claim(wanted))
        # What it held before rests on what it knows; what it is given now is its own.
        if answer is not None:
            assert held(self.api)[wanted.name] == wanted.owner

    @rule(index=st.integers(0, 2), host=st.integers(1, 2), ends=st.booleans())
    def let_go(self, index: int, host: int, ends: bool) -> None:
        operator, name = self.operators[index], f"default.10.0.0.{host}"
        known = operator.known.get(name)
        if known is None:
            return
        self.released.add(name)
        if known.is_held:
            self._run(operator.reservation_store.quarantine(known, seconds=1))
        elif ends:
            self._run(operator.reservation_store.free(known))

    @invariant()
    def an_address_changes_its_owner_through_release_only(self) -> None:
        if not hasattr(self, "api"):
            return
        now = held(self.api)
        for name, who in now.items():
            before = self.before.get(name)
            assert before is None or before.key == who.key or name in self.released
        self.before = now
        self.released.clear()


TestManyDesks = ManyDesks.TestCase
TestManyDesks.settings = settings(max_examples=60, stateful_step_count=30)


async def test_a_reservation_that_came_while_its_absence_was_on_its_way_is_not_forgotten() -> None:
    api = Reservations()
    operator = Operator(api)
    other = Operator(api)

    class SlowToSayNo:
        """Answers that there is none, and before that answer arrives a watch event brings one."""

        async def get(self, _resource: object, _name: str) -> Json | None:
            await other.reservation_store.claim(claim(owner("other")))
            operator.look()
            return None

    operator.reservation_store.client = SlowToSayNo()  # type: ignore[assignment]
    assert not await operator.reservation_store.is_held_by("default.10.0.0.1", owner())
    assert operator.known["default.10.0.0.1"].owner.name == "other"


@pytest.mark.parametrize(
    ("lives", "imported", "namespace", "returns"),
    [
        (False, False, "c-m-2", True),
        (True, False, "c-m-2", False),
        (False, True, "c-m-2", False),
        (True, True, "c-m-1", True),
    ],
)
async def test_an_address_in_quarantine_returns_to_a_namesake_only_when_the_former_guest_is_gone(
    lives: bool, imported: bool, namespace: str, returns: bool
) -> None:
    api = Reservations()
    operator = Operator(api)
    operator.reservation_store.lives = lambda guest_id: lives and guest_id == "c-m-1"
    former = replace(owner(), imported=imported)
    granted = await operator.reservation_store.claim(claim(former))
    assert granted is not None
    await operator.reservation_store.quarantine(granted, seconds=600)

    answer = await operator.reservation_store.claim(claim(owner(namespace=namespace, uid="uid-2")))
    assert (answer is not None) is returns


async def test_each_assignment_and_release_is_one_line_with_fields_that_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """docs/reference/cli.md shows the query: the names of the fields are a contract."""
    caplog.set_level("INFO", logger="fipop")
    store = Operator(Reservations()).reservation_store
    granted = await store.claim(claim(owner()))
    assert granted is not None
    await store.claim(claim(owner()))
    await store.quarantine(granted, seconds=60)
    fields = ("event", "address", "space", "range", "namespace", "floating_ip", "cluster")
    lines = [{name: vars(record)[name] for name in fields} for record in caplog.records]
    assert [line.pop("event") for line in lines] == ["assigned", "released"]
    assert lines[0] == lines[1]
    assert lines[0]["address"] == "10.0.0.1"
    assert (lines[0]["namespace"], lines[0]["floating_ip"], lines[0]["cluster"]) == ("c-m-1", "web", "demo")
