"""Check that the links of the documentation, and the pages that the program names, exist."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts.prose_texts import ROOT, find_pages, name_of, parse_markdown

PROGRAM = (
    "fipop/**/*.py",
    "templates/*",
    "files/*",
    "values.yaml",
    "questions.yaml",
    "crds/*.yaml",
    "examples/*",
)
"""The files in which the program names pages of the documentation."""
_ADVICE = re.compile(r"(?<![\w/])docs/[\w./-]+\.md(?:#[\w-]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenLink:
    """A link that leads nowhere."""

    file: str
    line: int
    message: str


def find_broken_links(pages: Mapping[Path, str] | None = None) -> Iterator[BrokenLink]:
    """Return the relative links of pages, given with their texts, that lead to no file or to no heading."""
    texts = pages if pages is not None else {path: path.read_text(encoding="utf-8") for path in find_pages()}
    for path, text in texts.items():
        for line, target in find_links(text):
            problem = _check(path, target, texts)
            if problem:
                yield BrokenLink(file=name_of(path), line=line, message=f"the link {target} {problem}")


def find_broken_advice() -> Iterator[BrokenLink]:
    """Return the pages that the program names and that do not exist."""
    files = sorted({path for pattern in PROGRAM for path in ROOT.glob(pattern) if path.is_file()})
    for path in files:
        if path.suffix not in {".py", ".yaml", ".txt", ".tpl", ".json"}:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            for target in _ADVICE.findall(line):
                problem = _check(ROOT / "README.md", target, {})
                if problem:
                    yield BrokenLink(file=name_of(path), line=number, message=f"the page {target} {problem}")


def find_links(text: str) -> Iterator[tuple[int, str]]:
    """Return the targets of the links and images of a Markdown text, each with its line; hosts are left out."""
    for line, token in parse_markdown(text):
        for child in token.children or ():
            target = child.attrs.get("href") or child.attrs.get("src")
            if isinstance(target, str) and not re.match(r"[a-z]+:", target):
                yield line, target


def find_anchors(text: str) -> set[str]:
    """Return the anchors of the headings of a Markdown text, as GitHub makes them."""
    found: dict[str, int] = {}
    heading = False
    for _, token in parse_markdown(text):
        if token.type == "inline" and heading:
            words = "".join(child.content for child in token.children or ())
            anchor = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
            found[anchor] = found.get(anchor, 0) + 1
        heading = token.type == "heading_open"
    return {
        anchor if number == 0 else f"{anchor}-{number}"
        for anchor, count in found.items()
        for number in range(count)
    }


def _check(page: Path, target: str, texts: Mapping[Path, str]) -> str:
    name, _, fragment = target.partition("#")
    path = (page.parent / name).resolve() if name else page
    if path not in texts and not path.exists():
        return "leads to no file"
    if not fragment or path.suffix != ".md":
        return ""
    text = texts[path] if path in texts else path.read_text(encoding="utf-8")
    return "" if fragment in find_anchors(text) else "leads to no heading of that page"
