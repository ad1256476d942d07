"""What of an end state may differ from that of the undisturbed run, told from made-up ends."""

from collections import Counter
from typing import Any

import pytest

from localfleet.faultproxy import Do, On, Rule
from tests.faults.plans import Plan, undisturbed
from tests.faults.runner import Reference, compare
from tests.harness.invariants.runs import normalize, takes_any

ONE_KILLED = Plan(scenario="moves", family="killed", rules=(Rule(on=On.WRITE, do=Do.KILL_AFTER, nth=3),))
ONE_LATE = Plan(scenario="moves", family="late", rules=(Rule(on=On.WRITE, do=Do.CUT_LATE, nth=3),))
TWO = Plan(scenario="moves", family="two writers", operators=2)


def end(*waiting: str, held: str = "10.0.0.5") -> Any:
    """A held address, and some in quarantine."""
    return {
        ("floatingipreservations", "", f"default.{address}"): {
            "metadata": {"name": f"default.{address}"},
            "spec": {
                "address": address,
                "space": "default",
                "range": "r1",
                "requested": "static",
                "owner": {"namespace": "c-m-a", "name": "fip", "cluster": "a"},
                **({"quarantinedUntil": "2026-01-01T00:10:00Z"} if address in waiting else {}),
            },
        }
        for address in (held, *waiting)
    }


def reference(now: Any) -> Reference:
    chosen = takes_any(now)
    return Reference(
        end=normalize(now, {}),
        end_of_two=normalize(now, {}, chosen=chosen),
        chosen=chosen,
        writes=9,
        created=Counter(),
        given_out=1,
        allocations=1,
    )


@pytest.mark.parametrize("plan", [undisturbed("moves"), ONE_KILLED], ids=lambda plan: plan.family)
def test_one_operator_releases_what_it_releases_without_harm_and_nothing_else(plan: Plan) -> None:
    wanted = reference(end("10.0.0.6"))
    assert compare(end("10.0.0.6"), {}, wanted, plan) == []
    for other in (end(), end("10.0.0.7"), end("10.0.0.6", "10.0.0.7")):
        assert compare(other, {}, wanted, plan)


@pytest.mark.parametrize("plan", [ONE_LATE, TWO], ids=lambda plan: plan.family)
def test_two_and_who_claims_late_may_give_more_back_and_hold_the_same(plan: Plan) -> None:
    wanted = reference(end("10.0.0.6"))
    assert compare(end("10.0.0.6", "10.0.0.7"), {}, wanted, plan) == []
    assert compare(end(), {}, wanted, plan)
    assert compare(end("10.0.0.6", held="10.0.0.9"), {}, wanted, plan)
