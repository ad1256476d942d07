"""The decision as it was, beside the one of today: imported as a plugin, it compares both at each step."""

import atexit
import os
from collections import Counter

from fipop.operator import dry_run
from fipop.operator.addresses import reconciler
from fipop.operator.addresses.holdings import Holdings
from fipop.operator.addresses.next_step import Step, next_step
from fipop.operator.addresses.values import Facts
from tests.harness.old_decision import holdings as old_holdings
from tests.harness.old_decision import steps as old_steps

counts: Counter[str] = Counter()


def compare(facts: Facts, found: Holdings) -> Step:
    old = old_holdings.plan(facts)
    step = next_step(facts, found)
    old_step = old_steps.next_step(facts, old)  # type: ignore[arg-type]
    for now, before in ((step, old_step), (found.held, old.held), (found.claims, old.claims)):
        is_equal = repr(now) == repr(before)
        counts["equal" if is_equal else "different"] += 1
        if not is_equal:
            with open("/tmp/differences.txt", "a", encoding="utf-8") as file:
                file.write(f"{facts}\n  now    {now}\n  before {before}\n\n")
    counts["decisions"] += 1
    return step


reconciler.next_step = compare  # type: ignore[attr-defined]
dry_run.next_step = compare  # type: ignore[attr-defined]


@atexit.register
def write() -> None:
    with open("/tmp/decisions.txt", "a", encoding="utf-8") as file:
        file.write(f"{os.getpid()} {dict(counts)}\n")
