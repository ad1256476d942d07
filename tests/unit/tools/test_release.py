"""What `make release` refuses, before anything is built."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.release import find_tree_problems, write_checksums
from scripts.release_tools import ReleaseError, parse_registry

ROOT = Path(__file__).parents[3]
HEAD, OTHER = "a" * 40, "b" * 40


def test_a_clean_tree_with_or_without_its_tag_can_be_released() -> None:
    assert find_tree_problems("1.2.3", "", HEAD, None) == []
    assert find_tree_problems("1.2.3", "", HEAD, HEAD) == []


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (" M Makefile\n", "not committed: Makefile."),
        ("?? new file.py\n M Makefile\nA  third\n", "not committed: new file.py and 2 more."),
    ],
)
def test_a_dirty_tree_is_refused(status: str, words: str) -> None:
    [problem] = find_tree_problems("1.2.3", status, HEAD, None)
    assert words in problem


def test_a_tag_of_another_commit_is_refused() -> None:
    [problem] = find_tree_problems("1.2.3", "", HEAD, OTHER)
    assert problem == f"The tag v1.2.3 names the commit {OTHER}, not the one checked out, {HEAD}."


@pytest.mark.parametrize(
    ("text", "is_loopback"),
    [
        ("registry.example/platform", False),
        ("registry.example:5000/a/b-c/d_e", False),
        ("localhost:5000", True),
        ("localhost:5000/platform/", True),
        ("127.0.0.1:5000/x", True),
        ("127.8.9.1", True),
        ("[::1]:5000", True),
        ("[fd00::1]:5000", False),
        ("10.0.0.1:5000", False),
        ("localhost.example", False),
        ("127.0.0.1.example", False),
    ],
)
def test_plain_http_is_for_registries_of_this_machine_alone(text: str, *, is_loopback: bool) -> None:
    registry = parse_registry(text)
    assert registry.is_loopback == is_loopback
    assert registry.tls_options == (("--tls-verify=false",) if is_loopback else ())
    assert registry.name == text.removesuffix("/")


@pytest.mark.parametrize(
    "text",
    ["", "oci://registry.example", "https://registry.example", "Registry.example/x", "a b", "a/../b", "a//b"],
)
def test_what_is_no_registry_is_refused(text: str) -> None:
    with pytest.raises(ReleaseError, match="REGISTRY must be host"):
        parse_registry(text)


def release(*arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "scripts.release", *arguments]
    environment = {**os.environ, "PATH": path or os.environ["PATH"]}
    return subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_the_command_names_every_reason_in_a_line_of_its_own_and_builds_nothing(tmp_path: Path) -> None:
    file = tmp_path / "bases.toml"
    committed = (ROOT / "bases.toml").read_text(encoding="utf-8")
    file.write_text(
        "\n".join('digest = ""' if line.startswith("digest") else line for line in committed.splitlines())
    )
    target = tmp_path / "out"
    done = release(
        *("--version", "9.9.9", "--registry", "localhost:5000"),
        *("--bases", str(file), "--target", str(target)),
    )
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert all(line.startswith("release: ") for line in lines)
    for words in (
        *("in pyproject.toml is", "appVersion in Chart.yaml is", "section of CHANGELOG.md"),
        *("GO_IMAGE", "PYTHON_IMAGE", "RUNTIME_IMAGE"),
    ):
        assert sum(words in line for line in lines) == 1, words
    assert not target.exists()


def test_a_bad_registry_is_one_sentence() -> None:
    done = release("--version", "0.1.0", "--registry", "")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "REGISTRY must be host[:port][/path]" in done.stderr


def test_the_checksums_are_what_sha256sum_reads(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("b")
    (tmp_path / "a.txt").write_text("a")
    write_checksums(tmp_path)
    write_checksums(tmp_path)
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    done = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "a.txt: OK\nb.txt: OK\n")
    (tmp_path / "a.txt").write_text("c")
    done = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
