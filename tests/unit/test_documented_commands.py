"""Every `fipop` command that the documentation shows is one that the program takes."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml

from fipop.cli.main import main
from tests.harness.documentation import TASKS, is_every_file_named, read_commands, read_files

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
_COMMAND = re.compile(r"(?:^\s*(?:\$ )?|`|exec \S+ -- |; )((?:kubectl fip|fipop) [^`\n#|>\\]*)", re.MULTILINE)
_PLACEHOLDERS = {"RANGE": "guest-vlan", "NAME": "demo", "ADDRESS": "10.0.0.5", "ADDRESS|CLUSTER": "demo"}


def commands() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for found in _COMMAND.findall(page.read_text()):
            yield page.name, found.strip().rstrip(".:,;")


ALL = sorted({(page, text) for page, text in commands() if not text.startswith("fipop .")})


@pytest.mark.parametrize(("page", "text"), ALL)
def test_a_shown_command_is_one_that_the_program_takes(page: str, text: str) -> None:
    words = [_PLACEHOLDERS.get(word, word) for word in shlex.split(text.replace("…", "x"))]
    arguments = words[2:] if words[0] == "kubectl" else words[1:]
    if not arguments or arguments[0] not in main.list_commands(click.Context(main)):
        pytest.skip("a sentence, no command")
    command = main.get_command(click.Context(main), arguments[0])
    assert command is not None
    parser = command.make_parser(click.Context(command, info_name=arguments[0]))
    try:
        parser.parse_args(list(arguments[1:]))
    except click.UsageError as error:
        raise AssertionError(f"{page}: {text}: {error.message}") from error


def test_the_pages_show_every_command_of_people() -> None:
    shown = {text.split()[1] for _, text in ALL if len(text.split()) > 1}
    assert {"status", "who", "free", "check", "adopt", "web", "rollout"} <= shown


def test_a_file_is_applied_so_that_a_page_can_be_followed_again() -> None:
    assert not [
        page.name for page in PAGES if re.search(r"kubectl .*(create|replace) .*-f ", page.read_text())
    ]


def merge(base: Any, over: Any) -> Any:
    """Return helm values with those of a file over them."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    return {**base, **{key: merge(base.get(key), value) for key, value in over.items()}}


PROGRAMS = (
    r"(fipop|kubectl|helm|make|docker|pipx|skopeo|sha256sum|curl|dig|cosign|jq) ",
    r"source <\(_FIPOP_COMPLETE=",
    r"export KUBECONFIG=",
)
"""What the tasks start."""


@pytest.mark.parametrize("page", TASKS, ids=lambda page: page.stem)
def test_a_task_starts_programs_that_a_reader_has(page: Path) -> None:
    strange = [each for each in read_commands(page) if not re.match("|".join(PROGRAMS), each)]
    assert not strange


@pytest.mark.parametrize("page", TASKS, ids=lambda page: page.stem)
def test_the_files_of_a_task_have_names_and_can_be_read(page: Path) -> None:
    assert is_every_file_named(page)
    texts = {name: text.replace("sha256:…", f"sha256:{'0' * 64}") for name, text in read_files(page).items()}
    files = {name: yaml.safe_load(text) for name, text in texts.items()}
    commands = "\n".join(read_commands(page))
    used, written = (
        set(re.findall(each, commands)) for each in (r"(?<![/\w.-])[\w-]+\.yaml\b", r"> (\S+\.yaml)")
    )
    assert used - written <= files.keys() | {"fipop-values.yaml"}
    schema = json.loads((ROOT / "values.schema.json").read_text())
    defaults = yaml.safe_load((ROOT / "values.yaml").read_text())
    for name, found in files.items():
        if name.startswith(("values", "fipop-values")):
            jsonschema.validate(merge(defaults, found), schema)
        else:
            assert {"apiVersion", "data", "spec"} & found.keys(), name
