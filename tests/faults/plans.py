"""Plans: which scenario, which harm. One line of JSON each, so that a failed one is run again by one command."""

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from localfleet.faultproxy import Do, On, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`rules` are for the first operator, `others` for the second where there are two.

    With `election` the operators choose a leader by the Lease, else all of them work at once. `family` is for the
    table of results alone. `size` is how many floating IPs a crowd has.
    """

    scenario: str
    family: str
    rules: tuple[Rule, ...] = ()
    others: tuple[Rule, ...] = ()
    operators: int = 1
    election: bool = False
    seed: int = 0
    restart_every_seconds: float = 0.0
    size: int = 0

    @property
    def is_disturbed(self) -> bool:
        """Whether anything is done to it but to watch: the undisturbed run of a story is the reference of its plans."""
        return self != undisturbed(self.scenario)

    def to_line(self) -> str:
        """As one line of JSON."""
        data: dict[str, Any] = {"scenario": self.scenario, "family": self.family, "seed": self.seed}
        if self.rules:
            data["rules"] = [rule.to_json() for rule in self.rules]
        if self.others:
            data["others"] = [rule.to_json() for rule in self.others]
        if self.operators != 1:
            data["operators"] = self.operators
        if self.election:
            data["election"] = True
        if self.restart_every_seconds:
            data["restart_every_seconds"] = self.restart_every_seconds
        if self.size:
            data["size"] = self.size
        return json.dumps(data)

    @classmethod
    def from_line(cls, line: str) -> "Plan":
        """Back from `to_line`."""
        data = json.loads(line)
        for side in ("rules", "others"):
            data[side] = tuple(Rule.from_json(rule) for rule in data.get(side, ()))
        return cls(**data)


def undisturbed(scenario: str) -> Plan:
    return Plan(scenario=scenario, family="undisturbed")


def at_every_write(scenario: str, writes: int) -> list[Plan]:
    """Every write that the undisturbed run made, hit in every way that leaves its writer in the dark."""
    ways = (
        ("killed before a write", Do.KILL_BEFORE, 0.0, 1),
        ("killed after a write", Do.KILL_AFTER, 0.0, 1),
        # A lost answer leaves the same in the store as a kill after the write: a part of them will do.
        ("answer lost", Do.CUT_AFTER, 0.0, 7),
        ("write comes late", Do.CUT_LATE, 1.5, 8),
    )
    return [
        Plan(
            scenario=scenario,
            family=family,
            rules=(Rule(on=On.WRITE, nth=number, do=do, seconds=seconds),),
        )
        for family, do, seconds, step in ways
        for number in range(1, writes + 1, step)
    ]


def at_rates(scenario: str, seed: int) -> list[Plan]:
    """Answers that fail by chance, all through the run."""
    kinds = (
        ("409 by chance", Rule(on=On.WRITE, do=Do.STATUS, status=409, rate=0.2)),
        ("410 by chance", Rule(on=On.LIST, do=Do.STATUS, status=410, rate=0.3)),
        ("422 by chance", Rule(on=On.WRITE, do=Do.STATUS, status=422, rate=0.1)),
        ("429 by chance", Rule(on=On.REQUEST, do=Do.STATUS, status=429, rate=0.15, seconds=1)),
        ("500 by chance", Rule(on=On.REQUEST, do=Do.STATUS, status=500, rate=0.3)),
        ("500 after work", Rule(on=On.WRITE, do=Do.STATUS_AFTER, status=500, rate=0.3)),
        ("504 after work", Rule(on=On.WRITE, do=Do.STATUS_AFTER, status=504, rate=0.3)),
        ("answers lost by chance", Rule(on=On.WRITE, do=Do.CUT_AFTER, rate=0.3)),
        ("requests lost by chance", Rule(on=On.REQUEST, do=Do.CUT_BEFORE, rate=0.3)),
        ("slow by chance", Rule(on=On.REQUEST, do=Do.DELAY, rate=0.3, seconds=0.7)),
        ("late by chance", Rule(on=On.WRITE, do=Do.CUT_LATE, rate=0.2, seconds=1.0)),
        ("killed by chance", Rule(on=On.WRITE, do=Do.KILL_AFTER, rate=0.06)),
    )
    return [Plan(scenario=scenario, family=family, rules=(rule,), seed=seed) for family, rule in kinds]


def about_events(scenario: str, shown: Collection[tuple[str, str]] | None = None) -> list[Plan]:
    """Watches that show too little, too much, too late, or break.

    `shown` are types and resources of the events of the undisturbed run: plans that could strike none are left out.
    Without it all are made.
    """
    plans = []
    for plural in ("floatingips", "floatingipreservations", "floatingipranges"):
        rules = (
            ("DELETED withheld", Rule(on=On.EVENT, do=Do.WITHHOLD, rate=1.0, event="DELETED", plural=plural)),
            ("ADDED withheld", Rule(on=On.EVENT, do=Do.WITHHOLD, rate=0.5, event="ADDED", plural=plural)),
            (
                "MODIFIED withheld",
                Rule(on=On.EVENT, do=Do.WITHHOLD, rate=0.5, event="MODIFIED", plural=plural),
            ),
            ("old events again", Rule(on=On.EVENT, do=Do.REPLAY, rate=0.7, plural=plural)),
            ("events late", Rule(on=On.EVENT, do=Do.HOLD, rate=0.3, seconds=0.8, plural=plural)),
            ("watch ends with 410", Rule(on=On.EVENT, do=Do.GONE, rate=0.2, plural=plural)),
            ("watch ends with 500", Rule(on=On.EVENT, do=Do.ERROR, rate=0.15, plural=plural)),
        )
        plans += [Plan(scenario=scenario, family=family, rules=(rule,), seed=1) for family, rule in rules]
    blind = (
        Rule(on=On.EVENT, do=Do.WITHHOLD, rate=1.0, event="DELETED"),
        Rule(on=On.EVENT, do=Do.GONE, rate=0.1),
    )
    plans.append(Plan(scenario=scenario, family="410 while blind", rules=blind, seed=2))
    all_old = (Rule(on=On.EVENT, do=Do.REPLAY, rate=1.0),)
    plans.append(Plan(scenario=scenario, family="old events again", rules=all_old, seed=3))
    if shown is None:
        return plans
    return [plan for plan in plans if any(_may_strike(rule, shown) for rule in plan.rules)]


def _may_strike(rule: Rule, shown: Collection[tuple[str, str]]) -> bool:
    return any(rule.event in {"", event} and rule.plural in {"", plural} for event, plural in shown)


def at_the_start(scenario: str) -> list[Plan]:
    """Lists and watches that fail while the operator starts."""
    return [
        Plan(scenario=scenario, family=family, rules=(rule,))
        for family, rule in (
            ("lists fail at first", Rule(on=On.LIST, do=Do.STATUS, status=500, nth=1, count=12)),
            ("one list fails", Rule(on=On.LIST, do=Do.STATUS, status=503, nth=2, plural="floatingips")),
            (
                "one list fails",
                Rule(on=On.LIST, do=Do.CUT_BEFORE, nth=1, count=2, plural="floatingipreservations"),
            ),
            ("watches fail at first", Rule(on=On.WATCH, do=Do.STATUS, status=500, nth=1, count=8)),
            ("reads fail at first", Rule(on=On.GET, do=Do.STATUS, status=500, nth=1, count=10)),
            ("first write hangs", Rule(on=On.WRITE, do=Do.HANG, seconds=17, nth=4)),
        )
    ]


def with_two(scenario: str, seed: int) -> list[Plan]:
    """Two operators, both at work."""
    lossy = Rule(on=On.WRITE, do=Do.CUT_AFTER, rate=0.2)
    kinds: tuple[tuple[str, tuple[Rule, ...], tuple[Rule, ...]], ...] = (
        ("two writers", (), ()),
        ("two writers, one slow", (Rule(on=On.WRITE, do=Do.DELAY, rate=0.5, seconds=0.6),), ()),
        ("two writers, both lose answers", (lossy,), (lossy,)),
        ("two writers, one killed", (Rule(on=On.WRITE, do=Do.KILL_AFTER, rate=0.1),), ()),
        ("two writers, one stale", (Rule(on=On.EVENT, do=Do.HOLD, rate=0.3, seconds=1.5),), ()),
        ("two writers, one frozen", (Rule(on=On.WRITE, do=Do.FREEZE_BEFORE, rate=0.1, seconds=4),), ()),
    )
    return [
        Plan(scenario=scenario, family=family, rules=rules, others=others, operators=2, seed=seed)
        for family, rules, others in kinds
    ]


def with_a_leader(scenario: str) -> list[Plan]:
    """Two operators that elect a leader, who is killed, or sleeps longer than his lease."""
    return [
        Plan(scenario=scenario, family=family, rules=(rule,), others=(rule,), operators=2, election=True)
        for family, rule in (
            ("leader killed", Rule(on=On.WRITE, do=Do.KILL_AFTER, nth=5)),
            ("leader killed", Rule(on=On.WRITE, do=Do.KILL_BEFORE, nth=9)),
            ("leader sleeps past its lease", Rule(on=On.WRITE, do=Do.FREEZE_BEFORE, nth=6, seconds=25)),
            ("leader sleeps past its lease", Rule(on=On.WRITE, do=Do.FREEZE_AFTER, nth=8, seconds=25)),
        )
    ]


def by_the_clock(scenario: str) -> list[Plan]:
    """Killed again and again, whatever it does."""
    return [
        Plan(scenario=scenario, family="restarts", restart_every_seconds=seconds)
        for seconds in (0.7, 1.1, 1.7, 2.6)
    ]
