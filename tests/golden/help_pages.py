"""`--help` of every program and command: the names of the options, and apart from them the pages as printed."""

import importlib
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import click
from click.testing import CliRunner

from tests.golden.normal import to_yaml

WIDTH = 100
_OPTION = re.compile(r"^  (-[^ ]+(?:, -[^ ]+)*)(?: ([A-Z\[].*?))?(?=  |$)", re.MULTILINE)


def make_help() -> dict[str, str]:
    """Return the list of options of each command, and each page."""
    options: dict[str, object] = {}
    pages: dict[str, str] = {}
    known: list[object] = []
    for program, target in sorted(_programs().items()):
        module, _, attribute = target.partition(":")
        entry = getattr(importlib.import_module(module), attribute)
        # Of another name of a program its first page: the rest is the same.
        commands = [] if entry in known else _commands(entry)
        known.append(entry)
        for arguments in ([], *([each] for each in commands)):
            page = _help_of(program, entry, arguments)
            name = " ".join([program, *arguments])
            pages[f"texts/help/{name.replace(' ', '-')}.txt"] = page
            usage = page.partition("\n\n")[0]
            found = [" ".join(part for part in each if part) for each in _OPTION.findall(page)]
            options[name] = {"usage": " ".join(usage.split()), "options": found}
    return {"help.yaml": to_yaml(options), **pages}


def _help_of(program: str, entry: object, arguments: list[str]) -> str:
    environment = {"NO_COLOR": "1", "COLUMNS": str(WIDTH)}
    if isinstance(entry, click.Command):
        runner = CliRunner()
        page = runner.invoke(
            entry, [*arguments, "--help"], prog_name=program, terminal_width=WIDTH, env=environment
        )
        assert page.exit_code == 0, page.output
        return page.stdout
    # It reads the command line of its process itself.
    name = getattr(entry, "__name__", "")
    code = f"import sys; sys.argv = [{program!r}, '--help']; from {entry.__module__} import {name}; {name}()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return done.stdout


def _programs() -> dict[str, str]:
    """Return what an installation has as commands, and where pyproject.toml says that each begins."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    scripts: dict[str, str] = project["scripts"]
    return scripts


def _commands(entry: object) -> list[str]:
    return sorted(entry.list_commands(click.Context(entry))) if isinstance(entry, click.Group) else []
