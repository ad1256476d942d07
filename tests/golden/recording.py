"""The two recordings, of the chart and of the commands: what is made now, and what is recorded.

`python -m tests.golden.recording`, which is `make golden`, writes both again.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.golden.charts import make_chart
from tests.golden.commands import make_commands

RECORDED = Path(__file__).parent / "recorded"
RECORDINGS: dict[str, Callable[[], dict[str, str]]] = {"chart": make_chart, "commands": make_commands}
"""By the name of its folder, what makes the text of each of its files."""


def read(name: str) -> dict[str, str]:
    """Return the text of each recorded file, by its name."""
    return {file.name: file.read_text(encoding="utf-8") for file in (RECORDED / name).iterdir()}


def write(name: str) -> None:
    """Record what is made now, and nothing else."""
    made = RECORDINGS[name]()
    shutil.rmtree(RECORDED / name)
    (RECORDED / name).mkdir()
    for file, text in made.items():
        (RECORDED / name / file).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for each in RECORDINGS:
        write(each)
