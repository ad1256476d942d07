"""Read the texts that readers of fipop see: documentation, help of commands, and the texts of the chart.

Code in a text is one word, CODE, so that only prose is judged.
"""

from __future__ import annotations

import importlib
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[1]
CODE = "\N{OBJECT REPLACEMENT CHARACTER}"
"""Stands for a piece of code within a text."""
TEXT_KEYS = frozenset({"description", "group", "label", "message", "messageExpression", "summary", "title"})
"""The keys of YAML and JSON files whose values are texts for readers."""
_MARKDOWN = MarkdownIt("commonmark").enable("table")
_ACTION = re.compile(r"\{\{(?:`.*?`|.*?)\}\}")
_ACTION_LINE = re.compile(r"^\s*\{\{.*\}\}$", re.MULTILINE)
_CODE = re.compile(r"`[^`]*`|\{\{.*?\}\}", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A paragraph, a list item, a table cell or a heading; a comment or a description of the chart."""

    file: str
    """The path from the root of the repository, or the command whose help it is."""
    line: int
    """Where it begins; 1 for the help of a command."""
    text: str
    """With line breaks as in the file."""

    def line_of(self, position: int) -> int:
        """Return the line of the file that a position of the text is in."""
        return self.line + self.text.count("\n", 0, position)


def read_all() -> Iterator[Passage]:
    """Return the passages of everything that readers see."""
    for path in find_pages():
        yield from read_markdown(path.read_text(encoding="utf-8"), name_of(path))
    for pattern in ("questions.yaml", "values.schema.json", "Chart.yaml", "crds/*.yaml", "files/*.yaml"):
        for path in sorted(ROOT.glob(pattern)):
            yield from read_values(path.read_text(encoding="utf-8"), name_of(path))
    for pattern in ("values.yaml", "examples/*.yaml"):
        for path in sorted(ROOT.glob(pattern)):
            yield from read_comments(path.read_text(encoding="utf-8"), name_of(path))
    notes = ROOT / "templates" / "NOTES.txt"
    yield from read_plain(notes.read_text(encoding="utf-8"), name_of(notes))
    yield from read_help()


def find_pages() -> list[Path]:
    """Return the Markdown files of the repository that readers see."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(path: Path) -> str:
    """Return a path as it is named in messages and in the file of exceptions."""
    return path.relative_to(ROOT).as_posix()


def parse_markdown(text: str) -> Iterator[tuple[int, Token]]:
    """Return the tokens of a Markdown text, each with the line at which its block begins."""
    line = 1
    for token in _MARKDOWN.parse(text):
        if token.map is not None:
            line = token.map[0] + 1
        yield line, token


def read_markdown(text: str, file: str) -> Iterator[Passage]:
    """Return the passages of a Markdown text, without its blocks of code."""
    for line, token in parse_markdown(text):
        if token.type == "inline":
            yield Passage(file=file, line=line, text="".join(map(_to_text, token.children or ())))


def _to_text(token: Token) -> str:
    match token.type:
        case "text":
            return token.content
        case "code_inline":
            return CODE
        case "softbreak" | "hardbreak":
            return "\n"
    return ""


def read_values(text: str, file: str) -> Iterator[Passage]:
    """Return the values of TEXT_KEYS in a YAML or JSON text, which may be a template."""
    plain = _ACTION.sub(CODE, _ACTION_LINE.sub("#", text))
    for document in yaml.compose_all(plain, Loader=yaml.SafeLoader):
        yield from _values_of(document, file)


def _values_of(node: yaml.Node | None, file: str) -> Iterator[Passage]:
    if isinstance(node, yaml.SequenceNode):
        for each in node.value:
            yield from _values_of(each, file)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(value, yaml.ScalarNode) and key.value in TEXT_KEYS:
                line = value.start_mark.line + 1
                yield Passage(file=file, line=line, text=_CODE.sub(CODE, value.value))
            yield from _values_of(value, file)


def read_comments(text: str, file: str) -> Iterator[Passage]:
    """Return the comments of a YAML text, one passage for adjoining lines."""
    yield from _blocks(text, file, re.compile(r"^\s*#\s?(.*)$"))


def read_plain(text: str, file: str) -> Iterator[Passage]:
    """Return the paragraphs of a plain text; lines that are indented are code."""
    yield from _blocks(_CODE.sub(CODE, text), file, re.compile(r"^(\S.*)$"))


def _blocks(text: str, file: str, wanted: re.Pattern[str]) -> Iterator[Passage]:
    block: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        found = wanted.match(line)
        if found and found[1].strip():
            block.append(found[1])
        elif block:
            yield Passage(file=file, line=number - len(block), text=_CODE.sub(CODE, "\n".join(block)))
            block = []


def read_help() -> Iterator[Passage]:
    """Return the help texts of all commands that an installation has."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    known: list[click.Command] = []
    for name, target in sorted(project["scripts"].items()):
        module, _, attribute = target.partition(":")
        entry = getattr(importlib.import_module(module), attribute)
        # Another name of a program has the same help.
        if isinstance(entry, click.Command) and entry not in known:
            known.append(entry)
            yield from read_command(entry, name)


def read_command(command: click.Command, name: str) -> Iterator[Passage]:
    """Return the help texts of a command and of those below it."""
    texts = [command.help, command.short_help, command.epilog]
    texts.extend(each.help for each in command.params if isinstance(each, click.Option))
    for text in texts:
        if text:
            yield Passage(file=f"{name} --help", line=1, text=_CODE.sub(CODE, text))
    if isinstance(command, click.Group):
        context = click.Context(command)
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            if found is not None:
                yield from read_command(found, f"{name} {each}")
