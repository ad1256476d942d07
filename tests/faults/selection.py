"""Which plans are run: what is asked for, and of each kind of harm a share for each story."""

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence

from tests.faults import plans as made
from tests.faults.crowd import CROWD, crowd
from tests.faults.outages import OUTAGE, outages
from tests.faults.plans import Plan
from tests.faults.runner import Reference
from tests.faults.scenarios import ALL, SLOW
from tests.faults.shown import Event

SCENARIOS = (*ALL, OUTAGE, CROWD)
WITH_A_LEADER = frozenset({"appear", "moves", "burst", "demand"})
"""Leases take their time to run out: a few stories do."""

_SLOW_PLANS = 4


def stories(options: argparse.Namespace) -> list[str]:
    """The stories whose undisturbed runs are needed."""
    asked = [plan.scenario for plan in options.replay] or options.scenario or list(ALL)
    return [name for name in dict.fromkeys(asked) if name in ALL]


def select(
    options: argparse.Namespace,
    references: Mapping[str, Reference],
    shown: Mapping[str, frozenset[Event]],
) -> list[Plan]:
    """The plans of one call, in their order."""
    chosen = list(options.replay) or _ask_for(options, references, shown)
    start = options.every // 2 if options.start is None else options.start % options.every
    return chosen[start :: options.every]


def _ask_for(
    options: argparse.Namespace,
    references: Mapping[str, Reference],
    shown: Mapping[str, frozenset[Event]],
) -> list[Plan]:
    """Without a word on scenarios all of them: those of many minutes first, the others mixed."""
    asked = options.scenario or SCENARIOS
    first = [crowd(options.crowd)] if CROWD in asked else []
    first += outages() if OUTAGE in asked else []
    return first + mix(choose(references, shown))


def mix(plans: Sequence[Plan]) -> list[Plan]:
    """Spread the plans of each story evenly: what waits in one story leaves the processors to what works in others."""
    kinds = [(plan.scenario, plan.election) for plan in plans]
    sizes, before = Counter(kinds), Counter[tuple[str, bool]]()
    placed: list[tuple[float, int]] = []
    for number, kind in enumerate(kinds):
        placed.append(((before[kind] + 0.5) / sizes[kind], number))
        before[kind] += 1
    return [plans[number] for _, number in sorted(placed)]


def choose(references: Mapping[str, Reference], shown: Mapping[str, frozenset[Event]]) -> list[Plan]:
    """Every write of every story, and of each other kind of harm a share for each story.

    `shown` are the events of each story's undisturbed run; a share is taken of what can strike.
    """
    chosen: list[Plan] = []
    for number, (name, reference) in enumerate(references.items()):
        if name in SLOW:
            step = max(1, reference.writes // _SLOW_PLANS)
            chosen += made.at_every_write(name, reference.writes)[::step]
            continue
        chosen += made.at_every_write(name, reference.writes)
        for plans, share in (
            (made.at_rates(name, seed=10 + number), 4),
            (made.about_events(name, shown.get(name)), 3),
            (made.at_the_start(name), 3),
            (made.with_two(name, seed=20 + number), 3),
            (made.by_the_clock(name), 4),
        ):
            chosen += plans[number % share :: share]
    for name in references:
        if name in WITH_A_LEADER:
            chosen += made.with_a_leader(name)
    return chosen
