"""`--help` of every program and command: the names of the options, and apart from them the pages as printed."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.golden.normal import to_yaml

WIDTH = 100
_OPTION = re.compile(r"^  (-[^ ]+(?:, -[^ ]+)*)(?: ([A-Z\[].*?))?(?=  |$)", re.MULTILINE)
_SCRIPT = Path(__file__).parent / "print_help.py"


def make_help() -> dict[str, str]:
    """Return the list of options of each command, and each page."""
    options: dict[str, object] = {}
    files: dict[str, str] = {}
    for name, page in _print_pages().items():
        files[f"texts/help/{name.replace(' ', '-')}.txt"] = page
        usage = page.partition("\n\n")[0]
        found = [" ".join(part for part in each if part) for each in _OPTION.findall(page)]
        options[name] = {"usage": " ".join(usage.split()), "options": found}
    return {"help.yaml": to_yaml(options), **files}


def _print_pages() -> dict[str, str]:
    done = subprocess.run(
        # Not as a module: click would show that in place of the program's name.
        [sys.executable, "-P", str(_SCRIPT)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": str(WIDTH), "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    pages: dict[str, str] = json.loads(done.stdout)
    return pages
