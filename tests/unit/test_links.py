"""Links between pages, and the pages that the program names, lead to a file and to a heading of it."""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAM = (
    "fipop/**/*.py",
    "templates/**/*",
    "files/*",
    "values.yaml",
    "questions.yaml",
    "crds/*",
    "examples/*",
)
ADVICE = re.compile(r"(?<![\w/])docs/[\w./-]+\.md(?:#[\w-]+)?")


@cache
def tokens(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))


def links(page: Path) -> Iterator[str]:
    """Yield the targets of the links and images of a page that name no host."""
    for token in tokens(page):
        for child in token.children or ():
            target = child.attrs.get("href") or child.attrs.get("src")
            if isinstance(target, str) and not re.match(r"[a-z]+:", target):
                yield target


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    seen: Counter[str] = Counter()
    found = set()
    for opening, token in zip(tokens(page), tokens(page)[1:], strict=False):
        if opening.type == "heading_open":
            words = "".join(child.content for child in token.children or ())
            anchor = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
            found.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
            seen[anchor] += 1
    return found


def is_broken(page: Path, target: str) -> bool:
    name, _, fragment = target.partition("#")
    path = (page.parent / name).resolve() if name else page
    return not path.exists() or bool(fragment and path.suffix == ".md" and fragment not in anchors(path))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert [target for target in links(page) if is_broken(page, target)] == []


def test_the_pages_that_the_program_names_exist() -> None:
    files = sorted({path for pattern in PROGRAM for path in ROOT.glob(pattern) if path.is_file()})
    named = {
        (path.relative_to(ROOT).as_posix(), target)
        for path in files
        if path.suffix in {".py", ".yaml", ".txt", ".tpl", ".json"}
        for target in ADVICE.findall(path.read_text(encoding="utf-8"))
    }
    assert named
    assert {(file, target) for file, target in named if is_broken(ROOT / "README.md", target)} == set()


def test_a_link_to_no_file_and_one_to_no_heading_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A range: `max`, and more\n\n## Same\n\n## Same\n\n[a](#same-1) [b](none.md) ![c](page.md#none)\n"
    )
    assert anchors(page) == {"a-range-max-and-more", "same", "same-1"}
    assert [each for each in links(page) if is_broken(page, each)] == ["none.md", "page.md#none"]
