"""The requirement files are the same on every machine."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "requirements").glob("*.txt"))
OF_ONE_MACHINE = re.compile(r"(?:^|[\s=@'\"])(?:/|~|file:\S|[A-Za-z]:\\)|://")


def wrong_lines(text: str) -> list[str]:
    """Return the lines that are an option of pip, or that name an absolute path or a host."""
    return [
        line
        for line in text.splitlines()
        if line.startswith("-") or OF_ONE_MACHINE.search(line.partition("--hash=")[0])
    ]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_requirement_file_has_no_option_lines_and_names_no_machine(file: Path) -> None:
    assert wrong_lines(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_requirement_is_pinned_by_version_and_hash(file: Path) -> None:
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line and line[0] not in " #"]
    assert lines
    assert [
        line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+(\[.+\])?==\S+( ; .+)? \\", line)
    ] == []


@pytest.mark.parametrize(
    "line",
    [
        "--find-links /srv/wheels",
        "--index-url https://packages.example/simple",
        "-r other.txt",
        "-e .",
        "fipop @ file:///srv/fipop",
        "    # via -r /srv/fipop/main.in",
        "#    pip-compile --output-file=/srv/main.txt",
        "#   -c ~/main.txt",
    ],
)
def test_a_line_of_one_machine_is_found(line: str) -> None:
    assert wrong_lines(
        f"aiohttp==3.14.5 \\\n    --hash=sha256:00\n    # via\n    #   -c requirements/main.txt\n{line}\n"
    ) == [line]
