"""Print the help of each program and command as JSON: each page as a new process prints it, forked from this one."""

import importlib
import json
import os
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

_COMMAND = re.compile(r"^  ([a-z][\w-]*)", re.MULTILINE)
"""One line of the list of commands."""


_HEAVY = ("aiohttp.web", "jinja2", "kopf", "kubernetes.client", "prometheus_client", "pyhelm3")
"""What the commands import of others: once here, not once in each fork."""


def main() -> None:
    """Print the pages by the words that ask for them."""
    for name in _HEAVY:
        importlib.import_module(name)
    pages: dict[str, str] = {}
    known: list[object] = []
    for program, target in sorted(read_programs().items()):
        module, _, attribute = target.partition(":")
        entry = getattr(importlib.import_module(module), attribute)
        pages[program] = run_forked(entry, [program, "--help"])
        # Of another name of a program its first page: the rest is the same.
        if entry not in known:
            for command in _COMMAND.findall(pages[program].partition("Commands:\n")[2]):
                pages[f"{program} {command}"] = run_forked(entry, [program, command, "--help"])
        known.append(entry)
    json.dump(pages, sys.stdout)


def read_programs() -> dict[str, str]:
    """Return what an installation has as commands, and where pyproject.toml says that each begins."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    scripts: dict[str, str] = project["scripts"]
    return scripts


def run_forked(entry: Callable[[], object], argv: list[str]) -> str:
    """Return what a program prints when it is started like that."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writer, 1)
        os.close(reader)
        sys.argv = argv
        code = 1
        try:
            entry()
        except SystemExit as ended:
            code = int(ended.code or 0)
        sys.stdout.flush()
        os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, f"{argv} ends with {status}"
    return text


if __name__ == "__main__":
    main()
