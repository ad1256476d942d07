"""The pages of the documentation that show commands, and what they show."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TASKS = tuple(sorted([*DOCS.glob("tutorials/*.md"), *DOCS.glob("how-to/*.md")]))
"""The pages whose commands run in tests, but for those of NOT_RUN."""
OTHERS = tuple(sorted([*DOCS.glob("runbooks/*.md"), DOCS / "reference" / "cli.md"]))
"""Further pages whose commands run."""
NOT_RUN = {
    "demo": "tests/api/test_demo.py runs the demo, which prints the path that the page shows",
    "run-beside-harvester": "nothing of Harvester runs here: the page follows from its source, and says so",
}
"""Tasks that no test runs, and why. Their commands are parsed, and their objects are read, all the same."""
_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`((?:fipop|kubectl) [^`]+)`")
_FILE = re.compile(r"# (\S+\.yaml)$")


def read_commands(page: Path) -> Iterator[str]:
    """Return the commands of a page: lines of blocks `sh`, lines after a prompt in blocks `console`, inline code."""
    text = page.read_text()
    for kind, body in _FENCE.findall(text):
        lines = [line.strip() for line in body.splitlines() if line.strip()]
        if kind == "sh":
            yield from lines
        elif kind == "console":
            yield from (line.removeprefix("$ ") for line in lines if line.startswith("$ "))
    yield from (" ".join(each.split()) for each in _INLINE.findall(_FENCE.sub("", text)))


def read_files(page: Path) -> dict[str, str]:
    """Return the YAML files of a page by the names in their first lines, which commands of the page use."""
    files = {}
    for kind, body in _FENCE.findall(page.read_text()):
        lines = body.splitlines()
        named = _FILE.match(lines[0].strip()) if kind == "yaml" else None
        if named is not None:
            margin = len(lines[0]) - len(lines[0].lstrip())
            files[named[1]] = "".join(f"{line[margin:]}\n" for line in lines)
    return files


def is_every_file_named(page: Path) -> bool:
    """Whether each YAML block of a page begins with the name of its file."""
    kinds = [kind for kind, _ in _FENCE.findall(page.read_text())]
    return kinds.count("yaml") == len(read_files(page))
