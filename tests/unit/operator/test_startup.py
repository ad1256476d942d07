"""What a new leader does first: addresses are claimed by those that have them, and what lacks something is enqueued."""

from typing import Any

import pytest

from fipop.backoff import Backoff
from fipop.errors import ApiForbiddenError, ApiUnreachableError
from fipop.operator.guests.reported import ClaimScope
from fipop.operator.queues import Key, Kind
from fipop.operator.startup import SETTLED_SECONDS, adopt_all, find_all
from fipop.state.cache import ClusterCache
from fipop.state.gate import AllocationGate
from fipop.state.guests import GuestDirectory
from tests.harness.answering_client import AnsweringClient
from tests.harness.objects import build_floating_ip, build_reservation, cache_of
from tests.harness.small_operator import SmallOperator

A, B = "c-m-a", "c-m-b"


def leader_of(cache: ClusterCache) -> tuple[GuestDirectory, AllocationGate]:
    guests = GuestDirectory(cache=cache, client=AnsweringClient())  # type: ignore[arg-type]
    return guests, AllocationGate(ClaimScope(guests).could_serve)


async def test_who_has_an_address_claims_it_oldest_first_and_one_that_fails_stops_nobody() -> None:
    cache = cache_of(
        floating_ips=[
            build_floating_ip("younger", created="2026-02-02T00:00:00Z", ipaddress="10.0.0.1"),
            build_floating_ip("broken", created="2026-02-01T00:00:00Z", ipaddress="10.0.0.2"),
            build_floating_ip("oldest", created="2026-01-02T00:00:00Z", ipaddress="10.0.0.1"),
            build_floating_ip("held", created="2026-03-01T00:00:00Z", status={"addresses": ["10.0.0.3"]}),
            build_floating_ip("without"),
        ]
    )
    steps: list[str] = []

    async def adopt(key: tuple[str, str]) -> None:
        steps.append(key[1])
        if key[1] == "broken":
            raise ApiForbiddenError(verb="create", kind="FloatingIPReservation", status=403)
        if key[1] == "oldest" and steps.count("oldest") < 3:
            raise ApiUnreachableError(verb="create", kind="FloatingIPReservation", outcome_unknown=True)

    guests, gate = leader_of(cache)
    await adopt_all(guests, gate, adopt, Backoff(first_seconds=0.0, limit_seconds=0.0))
    # A younger one with the same address does not come first because an answer was lost.
    assert steps == [*["oldest"] * 3, "broken", "younger", "held"]
    assert gate.adopted
    assert not gate.is_open()


async def adopted(
    *,
    spec: str = "10.0.0.1",
    status: str = "10.0.0.1",
    generation: int = 1,
    annotations: dict[str, str] | None = None,
    **reservation: object,
) -> list[str]:
    """Who is adopted one by one, where one floating IP names these and has this reservation."""
    named = {"addresses": [status], "range": "pool", "addressSpace": "default", "observedGeneration": 1}
    asked = build_floating_ip(
        "web", namespace="c-m-1", ipaddress=spec, status=named, annotations=annotations or {}
    )
    asked["metadata"]["generation"] = generation
    cache = cache_of(
        floating_ips=[asked],
        reservations=[build_reservation("10.0.0.1", **reservation)] if reservation else [],  # type: ignore[arg-type]
    )
    found: list[str] = []

    async def adopt(key: tuple[str, str]) -> None:
        found.append(key[1])

    guests, gate = leader_of(cache)
    await adopt_all(guests, gate, adopt)
    assert gate.adopted
    return found


MINE = {"owner": "web", "namespace": "c-m-1", "uid": "uid-c-m-1-web"}


async def test_where_reservation_spec_and_status_agree_there_is_nothing_to_adopt() -> None:
    """Ten thousand of them took 70 s, one after the other, before anything new was given out."""
    assert await adopted(**MINE) == []


@pytest.mark.parametrize(
    "unsettled",
    [
        {},
        MINE | {"spec": "10.0.0.2"},
        MINE | {"annotations": {"fiprange": "another"}},
        MINE | {"generation": 2},
        MINE | {"spec": ""},
        MINE | {"status": "10.0.0.2"},
        MINE | {"uid": "of-a-former-object"},
        MINE | {"space": "lab"},
        MINE | {"quarantined_until": "2027-01-01T00:00:00Z"},
    ],
)
async def test_who_does_not_agree_in_all_is_adopted(unsettled: dict[str, Any]) -> None:
    assert await adopted(**unsettled) == ["web"]


async def test_who_has_all_he_asks_for_waits_for_those_who_have_not() -> None:
    former = SmallOperator()
    former.add_range()
    await former.start()
    former.ask(A)
    await former.settle()

    operator = SmallOperator(former)
    operator.ask(B)
    operator.take_lead()
    delays = {each.key: each.delay_seconds for each in find_all(operator.cache)}
    assert {key: delay for key, delay in delays.items() if key.kind is Kind.FLOATING_IP} == {
        Key(Kind.FLOATING_IP, A, "web"): SETTLED_SECONDS,
        Key(Kind.FLOATING_IP, B, "web"): 0.0,
    }
    assert delays[Key(Kind.RANGE, "", "")] == 0.0
