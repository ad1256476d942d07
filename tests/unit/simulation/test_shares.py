"""What the simulation holds for an address that was given to two from one range."""

from typing import Any

from fipop.kube.resources import FLOATING_IP_RESERVATIONS
from tests.faults.history import Change
from tests.unit.simulation.shares import Shares

HERE, THERE = "default.10.0.0.11", "lab.10.0.0.11"


def reservation(name: str, owner: str, range_name: str, **spec: object) -> dict[str, Any]:
    space, _, address = name.partition(".")
    who = {"namespace": "crowd", "name": owner, "uid": "u"}
    return {"spec": {"space": space, "address": address, "range": range_name, "owner": who, **spec}}


def told(*changes: tuple[str, dict[str, Any] | None], by_people: frozenset[int] = frozenset()) -> list[str]:
    """What is told after these changes, whose revisions count from 1."""
    shares = Shares(by_people=by_people)
    for revision, (name, obj) in enumerate(changes, 1):
        shares.hear(
            Change(
                revision=revision,
                at=0.0,
                plural=FLOATING_IP_RESERVATIONS.plural,
                namespace="",
                name=name,
                obj=obj,
            )
        )
    return shares.among((HERE, THERE))


def test_what_one_range_gives_to_two_in_two_spaces_is_shared() -> None:
    found = told((HERE, reservation(HERE, "a", "pool")), (THERE, reservation(THERE, "b", "pool")))
    assert found == ["('pool', '10.0.0.11') has [('crowd', 'a'), ('crowd', 'b')]"]


def test_of_two_ranges_it_is_not_nor_where_one_has_both() -> None:
    assert not told((HERE, reservation(HERE, "a", "pool")), (THERE, reservation(THERE, "b", "other")))
    assert not told((HERE, reservation(HERE, "a", "pool")), (THERE, reservation(THERE, "a", "pool")))


def test_who_keeps_his_address_and_names_another_range_was_not_given_it() -> None:
    assert not told(
        (HERE, reservation(HERE, "a", "other")),
        (THERE, reservation(THERE, "b", "pool")),
        (HERE, reservation(HERE, "a", "pool")),
    )


def test_but_who_is_given_it_after_that_is() -> None:
    assert told(
        (HERE, reservation(HERE, "a", "other")),
        (HERE, reservation(HERE, "a", "pool")),
        (THERE, reservation(THERE, "b", "pool")),
    )


def test_what_came_back_from_a_quarantine_was_given_anew() -> None:
    assert told(
        (HERE, reservation(HERE, "a", "pool")),
        (HERE, reservation(HERE, "a", "pool", quarantinedUntil="2026-01-01T00:00:00Z")),
        (THERE, reservation(THERE, "b", "other")),
        (THERE, reservation(THERE, "b", "pool")),
        (HERE, reservation(HERE, "a", "pool")),
    )


def test_what_people_deleted_is_had_all_the_same() -> None:
    changes = (
        (HERE, reservation(HERE, "a", "pool")),
        (THERE, reservation(THERE, "b", "other")),
        (HERE, None),
        (THERE, reservation(THERE, "b", "pool")),
        (HERE, reservation(HERE, "a", "pool")),
    )
    assert not told(*changes, by_people=frozenset({3}))
