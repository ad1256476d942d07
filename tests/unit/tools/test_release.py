"""What scripts/release.sh refuses, before anything is built."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
AUTHOR = {f"GIT_{who}_{what}": what for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
FILES = (
    "Chart.yaml",
    "Makefile",
    "README.md",
    "pyproject.toml",
    "scripts/release.sh",
    "examples/guest-cloud-provider.yaml",
)


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", *arguments], cwd=folder, env={**os.environ, **AUTHOR}, check=True, capture_output=True
    )


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository that is ready to be released as 0.1.0, but for the Python environment."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 0.1.0 (2026-12-01)\n")
    (tmp_path / "scripts/release.sh").chmod(0o755)
    (tmp_path / "docs").mkdir()
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=Change")


def release(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [folder / "scripts" / "release.sh", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("file", "old", "new", "sentence"),
    [
        (
            "pyproject.toml",
            'version = "0.1.0"',
            'version = "0.2.0"',
            'pyproject.toml has the version "0.2.0", not',
        ),
        (
            "Chart.yaml",
            "\nversion: 0.1.0",
            "\nversion: 0.2.0",
            'version in Chart.yaml has the version "0.2.0", not',
        ),
        (
            "Chart.yaml",
            "appVersion: 0.1.0",
            "appVersion: 0.2.0",
            'appVersion in Chart.yaml has the version "0.2.0"',
        ),
        (
            "README.md",
            "fipop --version 0.1.0",
            "fipop --version 0.0.9",
            'has the version "0.0.9", not 0.1.0.',
        ),
        ("CHANGELOG.md", "(2026-12-01)", "(not released)", 'must be "## 0.1.0 (YYYY-MM-DD)".'),
        ("README.md", "", "", "The Python environment is missing: run `make setup`."),
    ],
)
def test_everything_that_names_the_version_must_agree(
    clone: Path, file: str, old: str, new: str, sentence: str
) -> None:
    text = (clone / file).read_text()
    assert old in text
    (clone / file).write_text(text.replace(old, new) if old else f"{text}\n")
    commit(clone)
    done = release(clone, "0.1.0", "registry.example/platform")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert sentence in line


def test_a_tree_with_changes_and_a_tag_of_another_commit_are_refused(clone: Path) -> None:
    (clone / "stray").write_text("")
    done = release(clone, "0.1.0", "registry.example/platform")
    assert (done.returncode, done.stderr) == (
        1,
        "release: The tree has changes that are not committed: stray.\n",
    )
    git(clone, "tag", "v0.1.0")
    commit(clone)
    done = release(clone, "0.1.0", "registry.example/platform")
    assert done.returncode == 1
    assert "The tag v0.1.0 names another commit" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [(), ("0.1.0",), ("0.1", "r.example"), ("v0.1.0", "r.example"), ("0.1.0", "https://r.example")],
)
def test_wrong_arguments_end_with_2_and_a_sentence(arguments: tuple[str, ...]) -> None:
    done = release(ROOT, *arguments)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_help_names_the_exit_codes() -> None:
    done = release(ROOT, "--help")
    assert done.returncode == 0
    assert "Exit codes: 0 released, 1 refused or failed, 2 wrong arguments." in done.stdout
