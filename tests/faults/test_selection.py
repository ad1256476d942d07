"""Which plans a call comes to, told from made-up references."""

from collections import Counter

import pytest

from tests.faults import plans
from tests.faults.options import parse
from tests.faults.runner import Reference
from tests.faults.scenarios import ALL, SCENARIOS, SLOW
from tests.faults.selection import choose, families, mix, select, stories

EVENTS = frozenset(
    (event, plural)
    for event in ("ADDED", "MODIFIED", "DELETED")
    for plural in ("floatingips", "floatingipreservations")
)


def reference(writes: int) -> Reference:
    return Reference(
        end={},
        end_of_two={},
        chosen=frozenset(),
        writes=writes,
        created=Counter(),
        given_out=0,
        allocations=0,
    )


def references(writes: int = 36) -> dict[str, Reference]:
    return {name: reference(writes) for name in ALL}


def asked(*arguments: str) -> list[plans.Plan]:
    options = parse(arguments)
    return select(options, {name: reference(36) for name in stories(options)}, {})


@pytest.mark.parametrize("writes", [0, 1, 3, 4, 40])
def test_a_slow_story_has_a_few_plans_however_little_it_writes(writes: int) -> None:
    for name in SLOW:
        chosen = choose({name: reference(writes)}, {})
        assert bool(chosen) == bool(writes)
        assert len(chosen) <= 13


def test_every_write_of_every_other_story_is_hit() -> None:
    chosen = choose(references(), {})
    for name in SCENARIOS:
        hit = {
            plan.rules[0].nth
            for plan in chosen
            if (plan.scenario, plan.family) == (name, "killed after a write")
        }
        assert hit == set(range(1, 37))


def test_shares_are_taken_of_what_can_strike() -> None:
    chosen = choose(references(), dict.fromkeys(ALL, EVENTS))
    of_events = [plan for plan in chosen for rule in plan.rules if rule.on == "event" and not plan.others]
    assert not [plan for plan in of_events if plan.rules[0].plural == "floatingipranges"]
    assert all(sum(plan.scenario == name for plan in of_events) >= 5 for name in SCENARIOS)


def test_a_full_run_has_at_least_a_thousand_operations_and_all_kinds_of_harm() -> None:
    chosen = asked()
    assert sum(plan.size for plan in chosen if plan.scenario == "generated") >= 1000
    assert {plan.family for plan in chosen} == families()
    assert [plan.scenario for plan in chosen[:3]] == ["crowd", "outage", "outage"]


def test_the_stories_are_mixed_and_none_is_lost() -> None:
    moves, burst = plans.at_every_write("moves", 20), plans.at_every_write("burst", 10)
    mixed = mix([*moves, *burst])
    assert [plan for plan in mixed if plan.scenario == "moves"] == moves
    assert [plan for plan in mixed if plan.scenario == "burst"] == burst
    for half in (mixed[: len(mixed) // 2], mixed[len(mixed) // 2 :]):
        assert 0.6 < sum(plan.scenario == "moves" for plan in half) / len(half) < 0.75


def test_no_reference_is_among_the_plans_and_no_plan_is_there_twice() -> None:
    chosen = asked()
    assert all(plan.is_disturbed for plan in chosen)
    assert len({plan.to_line() for plan in chosen}) == len(chosen)


def test_what_is_asked_for_is_chosen() -> None:
    assert {plan.scenario for plan in asked("--scenario", "moves", "crowd")} == {"moves", "crowd"}
    assert stories(parse(["--scenario", "crowd", "burst"])) == ["burst"]
    assert [plan.size for plan in asked("--scenario", "crowd", "--crowd", "70")] == [70]
    assert {plan.family for plan in asked("--family", "answer")} >= {
        "answer lost",
        "two writers, both lose answers",
    }
    assert len(asked("--scenario", "moves", "--limit", "3")) == 3
    moves = asked("--scenario", "moves")
    assert asked("--scenario", "moves", "--every", "5") == moves[2::5]
    assert asked("--scenario", "moves", "--every", "5", "--start", "8") == moves[3::5]
    assert asked("--scenario", "outage", "--family", "killed") == []
