"""What the results of a run come to."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from tests.faults.plans import Plan
from tests.faults.runner import Result

_COLUMNS = ("plans", "unstruck", "struck", "killed", "writes", "allocations", "violations")


def is_unstruck(result: Result) -> bool:
    """Whether a plan has rules and none did harm: it shows no more than the reference."""
    plan: Plan = result.plan
    return bool(plan.rules or plan.others) and not result.struck and not result.killed


def is_counted(result: Result) -> bool:
    """Whether it is a plan that did what it is for, and no reference."""
    return result.plan.is_disturbed and not is_unstruck(result)


def table(results: Sequence[Result]) -> str:
    """What came of each family."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        rows[result.plan.family].update(
            plans=is_counted(result),
            unstruck=is_unstruck(result),
            struck=result.struck > 0 or bool(result.killed),
            killed=result.killed,
            writes=result.writes,
            allocations=result.allocations,
            violations=bool(result.violations),
        )
    lines = [f"{'fault':34s}" + "".join(f"{column:>12s}" for column in _COLUMNS)]
    for family, row in rows.items():
        lines.append(f"{family:34s}" + "".join(f"{row[column]:12d}" for column in _COLUMNS))
    return "\n".join(lines)


def uncounted(results: Sequence[Result]) -> str:
    """What the number of plans leaves out."""
    references = sum(not result.plan.is_disturbed for result in results)
    unstruck = sum(is_unstruck(result) for result in results)
    return f"not counted as plans: references={references} unstruck={unstruck}"


def final(results: Sequence[Result]) -> str:
    """The last line of a run."""
    return (
        f"faults: plans={sum(is_counted(each) for each in results)} "
        f"allocations={sum(each.allocations for each in results)} "
        f"violations={sum(len(each.violations) for each in results)}"
    )


def summary(result: Result) -> dict[str, object]:
    """A result as JSON."""
    return {
        "plan": result.plan.to_line(),
        "seconds": round(result.seconds, 1),
        "struck": result.struck,
        "killed": result.killed,
        "writes": result.writes,
        "violations": result.violations,
    }
