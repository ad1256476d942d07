"""Compares, at every decision of a run, what the old and the new code decide: pytest -p tests.harness.both_decisions.

Facts are gathered before the old decision, which may change the ledger, and the new decision runs on a copy of them as
well: facts and result must be the same.
"""

import copy
from typing import Any

from fipop.operator.addresses import reconciler, view_building
from fipop.operator.addresses.decision import decide
from fipop.operator.addresses.facts import FactSource, Observed
from fipop.operator.addresses.holdings import plan
from fipop.operator.addresses.next_step import Confirm, MakeClaim, next_step

count = {"decisions": 0}
_build = view_building.ViewBuilder.build
_facts: list[Any] = []


def build(self: Any, floating_ip: Any, observed: Any) -> Any:
    source = FactSource(
        cache=self.cache,
        reservation_store=self.reservation_store,
        gate=self.gate,
        guests=self.guests,
        carrier_of=self.carrier_of,
        removal_of=self.removal_of,
    )
    seen = Observed(
        is_live=observed.is_live,
        denied=observed.denied,
        written=observed.written,
        write_backs=observed.write_backs,
        now=observed.now,
    )
    _facts[:] = [source.gather(floating_ip, seen)]
    assert source.gather(floating_ip, seen) == _facts[0], "gathering changed something"
    return _build(self, floating_ip, observed)


def both(view: Any) -> Any:
    (facts,) = _facts
    old = decide(view)
    new = next_step(facts, plan(facts))
    count["decisions"] += 1
    kept = {each.name: each for each in plan(facts).held.values()}
    if old != new and type(old) is type(new) and isinstance(old, Confirm | MakeClaim):
        # The same is written to several reservations of one floating IP; now IPv4 is the first of them.
        names = [
            each.reservation.name if isinstance(each, Confirm) else each.claim.name for each in (old, new)
        ]
        assert kept.keys() >= set(names), f"\nold: {old}\nnew: {new}\nfacts: {facts}"
        count["in another order"] = count.get("in another order", 0) + 1
        return new
    assert new == old, f"\nold: {old}\nnew: {new}\nfacts: {facts}"
    copied = copy.deepcopy(facts)
    assert next_step(copied, plan(copied)) == new
    assert copied == facts
    return new


view_building.ViewBuilder.build = build  # type: ignore[method-assign]
reconciler.decide = both  # type: ignore[attr-defined]


def pytest_sessionfinish() -> None:
    print(f"\ndecisions compared: {count}")  # noqa: T201
