"""A fixed part of what `make night PART=faults` runs: one plan of each kind of harm, against a real API server.

One plan shows at each change that lane, proxy and judge work; the others are slow.
"""

import pytest

from localfleet.faultproxy import Do, On, Rule
from tests.faults.crowd import crowd, run_crowd
from tests.faults.generator import run_generated
from tests.faults.lane import Lane
from tests.faults.plans import Plan, undisturbed
from tests.faults.runner import Reference, Result, run_plan

CHOSEN = (
    Plan(scenario="moves", family="killed", rules=(Rule(on=On.WRITE, do=Do.KILL_AFTER, nth=22),)),
    Plan(scenario="burst", family="lost", rules=(Rule(on=On.WRITE, do=Do.CUT_AFTER, rate=0.2),), seed=5),
    Plan(
        scenario="returns",
        family="blind",
        rules=(
            Rule(on=On.EVENT, do=Do.WITHHOLD, rate=1.0, event="DELETED"),
            Rule(on=On.EVENT, do=Do.GONE, rate=0.1),
        ),
    ),
    Plan(scenario="claims", family="old", rules=(Rule(on=On.EVENT, do=Do.REPLAY, rate=1.0),)),
    Plan(scenario="adopt", family="errors", rules=(Rule(on=On.REQUEST, do=Do.STATUS, status=500, rate=0.2),)),
    Plan(
        scenario="appear",
        family="two",
        operators=2,
        rules=(Rule(on=On.WRITE, do=Do.DELAY, rate=0.5, seconds=0.4),),
    ),
)


class References:
    """The undisturbed runs, each made when it is first wanted."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._known: dict[str, Reference] = {}

    async def of(self, scenario: str) -> Reference:
        if scenario not in self._known:
            result = await run_plan(self._lane, undisturbed(scenario), None)
            assert explain(result) == ""
            self._known[scenario] = Reference.of(result)
        return self._known[scenario]


@pytest.fixture(scope="module")
def references(lane: Lane) -> References:
    return References(lane)


def explain(result: Result) -> str:
    """What went wrong, with the plan that shows it again; nothing where nothing did."""
    if not result.violations:
        return ""
    return "\n".join([result.plan.to_line(), *result.violations, result.log[-8000:]])


@pytest.mark.parametrize(
    "plan",
    [CHOSEN[0], *(pytest.param(plan, marks=pytest.mark.slow) for plan in CHOSEN[1:])],
    ids=lambda plan: f"{plan.scenario}-{plan.family}",
)
async def test_the_end_is_that_of_an_undisturbed_run_and_no_revision_breaks_an_invariant(
    lane: Lane, references: References, plan: Plan
) -> None:
    result = await run_plan(lane, plan, await references.of(plan.scenario))
    assert explain(result) == ""
    assert result.struck > 0 or result.killed > 0


@pytest.mark.slow
async def test_a_sequence_of_edits_ends_as_a_fresh_create(lane: Lane) -> None:
    plan = Plan(scenario="generated", family="spec operations", seed=2, size=30)
    result = await run_generated(lane, plan)
    assert explain(result) == ""
    assert result.operations >= 30


@pytest.mark.slow
async def test_two_operators_give_a_crowd_each_its_own_address(lane: Lane) -> None:
    result = await run_crowd(lane, crowd(150, seed=3))
    assert explain(result) == ""
    assert result.allocations >= 150
