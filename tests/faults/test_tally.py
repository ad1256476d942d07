"""What counts as a plan, and how it is printed."""

import json

from localfleet.faultproxy import Do, On, Rule
from tests.faults.plans import Plan, by_the_clock, undisturbed
from tests.faults.runner import Result
from tests.faults.tally import final, summary, table, uncounted

HARMED = Plan(scenario="moves", family="killed", rules=(Rule(on=On.WRITE, do=Do.KILL_AFTER, nth=3),))
OTHER = Plan(
    scenario="moves", family="lost", others=(Rule(on=On.WRITE, do=Do.CUT_AFTER, nth=3),), operators=2
)
RESULTS = [
    Result(plan=undisturbed("moves"), allocations=5, writes=20),
    Result(plan=HARMED, struck=1, killed=1, allocations=6),
    Result(plan=HARMED, struck=0, killed=0, allocations=5),
    Result(plan=OTHER, struck=0, allocations=5, violations=["I1", "I4"]),
    Result(plan=by_the_clock("moves")[0], killed=0, allocations=5),
    Result(plan=Plan(scenario="generated", family="spec operations", size=40), operations=41),
]


def test_references_and_harm_that_never_struck_are_no_plans() -> None:
    assert final(RESULTS) == "faults: plans=3 operations=41 allocations=26 violations=2"
    assert uncounted(RESULTS) == "not counted as plans: references=1 unstruck=2"


def test_the_table_has_them_in_columns_of_their_own() -> None:
    heads, *rows = (line.rsplit(maxsplit=7) for line in table(RESULTS).splitlines())
    found = {row[0].strip(): dict(zip(heads[1:], map(int, row[1:]), strict=True)) for row in rows}
    plans = {family: (row["plans"], row["unstruck"], row["struck"]) for family, row in found.items()}
    assert plans["undisturbed"] == (0, 0, 0)
    assert plans["killed"] == (1, 1, 1)
    assert plans["lost"] == (0, 1, 0)
    assert plans["restarts"] == (1, 0, 0)


def test_the_summary_tells_whether_harm_struck() -> None:
    assert [summary(each)["struck"] for each in RESULTS[:3]] == [0, 1, 0]
    assert json.dumps([summary(each) for each in RESULTS])
