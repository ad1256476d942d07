"""The recorded files: what makes each of them, how they are compared, how they are written."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.golden.charts import make_chart_cases, make_default_chart
from tests.golden.commands import COMMANDS, make_commands
from tests.golden.metric_names import make_metrics
from tests.golden.option_table import make_options

ROOT = Path(__file__).parents[2]
RECORDED = Path(__file__).parent / "recorded"
COMMAND = "python -m tests.golden --update"
MAX_LINES = 200
"""Of a diff that a failing test shows: the rest is seen with git diff after an update."""

Files = dict[str, str]
"""Contents by path, below the folder of the recording."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Something that is recorded: `make` makes all of its files anew. `needs_helm`: only where there is helm."""

    name: str
    make: Callable[[], Files]
    needs_helm: bool = False


def subjects() -> list[Subject]:
    """Return all subjects, in the order of their names."""
    found = [
        Subject(name="chart/cases", make=make_chart_cases, needs_helm=True),
        Subject(name="chart/defaults", make=make_default_chart, needs_helm=True),
        *(Subject(name=f"commands/{each}", make=partial(make_commands, each)) for each in COMMANDS),
        Subject(name="metrics", make=make_metrics),
        Subject(name="options", make=make_options),
    ]
    return sorted(found, key=lambda each: each.name)


def difference(subject: Subject) -> str:
    """Return a unified diff of what is recorded and what is made now; empty where they are the same."""
    lines: list[str] = []
    for path, made in sorted(subject.make().items()):
        file = RECORDED / path
        recorded = file.read_text(encoding="utf-8") if file.exists() else ""
        lines += difflib.unified_diff(
            recorded.splitlines(),
            made.splitlines(),
            f"recorded/{path}" if file.exists() else f"recorded/{path} (not there)",
            f"now/{path}",
            lineterm="",
        )
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], f"… and {len(lines) - MAX_LINES} lines more"]
    return "\n".join(lines)


def update(subject: Subject) -> list[str]:
    """Write the files of a subject; the paths of those that changed."""
    changed = []
    for path, made in sorted(subject.make().items()):
        file = RECORDED / path
        if not file.exists() or file.read_text(encoding="utf-8") != made:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(made, encoding="utf-8")
            changed.append(path)
    return changed


def explain(subject: Subject, shown: str) -> str:
    """Return what a failing test says."""
    return (
        f"{subject.name} is not as it was recorded:\n{shown}\n\n"
        f"If that is wanted: {COMMAND} {subject.name}\n"
        "and name the difference in the commit, by the fault or decision that wants it (tests/golden/README.md)."
    )
