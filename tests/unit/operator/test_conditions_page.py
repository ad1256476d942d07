"""docs/reference/conditions-and-events.md has every reason and event of the operator and of the cloud provider."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import fipop
from fipop import errors
from fipop.rancher.matching import NoRange

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "conditions-and-events.md").read_text()
SOURCES = sorted(
    source
    for pattern in ("operator/**/*.py", "state/*.py", "guest/helm/*.py", "cloudprovider/*.py", "errors.py")
    for source in Path(fipop.__file__).parent.glob(pattern)
)
REFUSALS = (
    errors.AddressOutOfRangeError,
    errors.AddressSpaceChangedError,
    errors.FamilyMissingError,
    errors.RangeDrainingError,
    errors.RangeFullError,
)
"""Why a range does not give out an address."""
REASON = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-zA-Z]+)*")


def constants(tree: ast.AST) -> Iterator[str]:
    """The texts that stand for a reason: `reason="…"`, `*_REASON = "…"`, and those given to events."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "reason":
            yield from (each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            if name in {"complain", "record", "warn", "_warn", "_refuse", "unreachable", "describe_problem"}:
                yield from (each.value for each in node.args if isinstance(each, ast.Constant))


def test_every_reason_is_on_the_page() -> None:
    found = {text for source in SOURCES for text in constants(ast.parse(source.read_text()))}
    reasons = {text for text in found if isinstance(text, str) and REASON.fullmatch(text)}
    reasons |= {reason.value for reason in NoRange}
    reasons |= {error.__name__.removesuffix("Error") for error in REFUSALS}
    reasons -= {"Error"}  # what is cut off the name of an error
    assert len(reasons) > 30
    assert sorted(reason for reason in reasons if f"`{reason}`" not in PAGE) == []


def test_every_reason_of_the_page_is_given_somewhere() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    named = {reason for line in rows for reason in re.findall(r"`([A-Z][a-zA-Z]+)`", line.split("|")[1])}
    findings = Path(fipop.__file__).parent.glob("report/*.py")
    text = "\n".join(source.read_text() for source in (*SOURCES, *findings))
    given = {reason.value for reason in NoRange} | {
        error.__name__.removesuffix("Error") for error in REFUSALS
    }
    assert sorted(each for each in named - given if f'"{each}"' not in text) == []
