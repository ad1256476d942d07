"""The file of base images: what it may hold, and that only the command writes digests into it."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.release_bases import ARGUMENTS, FILE, Base, find_unresolved, main, parse_bases, render_bases
from scripts.release_tools import ReleaseError

ROOT = Path(__file__).parents[3]
DIGEST = f"sha256:{'0a' * 32}"
BASES = tuple(
    Base(argument=each, image=f"127.0.0.1:5000/bases/{each.lower()}:1.0", digest=DIGEST) for each in ARGUMENTS
)
TEXT = render_bases(BASES)


def test_what_is_written_is_read_again() -> None:
    assert parse_bases(TEXT) == BASES


def test_a_build_names_a_base_by_its_digest_alone() -> None:
    assert BASES[0].pinned == f"127.0.0.1:5000/bases/go_image@{DIGEST}"
    assert BASES[0].registry.name == "127.0.0.1:5000"


def test_a_release_is_refused_for_each_base_without_a_digest() -> None:
    assert find_unresolved(BASES) == []
    [problem] = find_unresolved([BASES[0], replace(BASES[1], digest="")])
    assert (
        "PYTHON_IMAGE (127.0.0.1:5000/bases/python_image:1.0) has no digest: run `make update-bases`"
        in problem
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[GO_IMAGE", "is not TOML"),
        ("", "must have the tables GO_IMAGE, PYTHON_IMAGE, RUNTIME_IMAGE"),
        (f'{TEXT}\n[OTHER]\nimage = "a/b:c"\n', "and no others"),
        (TEXT.replace(":1.0", "", 1), "GO_IMAGE.image must be a name with registry and tag"),
        (TEXT.replace("127.0.0.1:5000/bases/", "", 1), "GO_IMAGE.image must be a name with registry and tag"),
        (TEXT.replace(":1.0", ":1.0 --privileged", 1), "GO_IMAGE.image must be"),
        (TEXT.replace("image =", "imgae =", 1), "GO_IMAGE.image must be"),
        (TEXT.replace(DIGEST, "sha256:0", 1), "GO_IMAGE.digest must be sha256: and 64 hex digits"),
        (TEXT.replace(DIGEST, DIGEST.upper(), 1), "GO_IMAGE.digest must be"),
        (TEXT.replace(f'"{DIGEST}"', "1", 1), "GO_IMAGE.digest must be"),
    ],
)
def test_a_bad_file_is_refused_in_one_sentence(text: str, words: str) -> None:
    with pytest.raises(ReleaseError) as refused:
        parse_bases(text)
    assert words in str(refused.value)
    assert "bases.toml" in str(refused.value)


def test_the_committed_file_has_the_images_of_the_dockerfile_in_the_form_that_the_command_writes() -> None:
    text = FILE.read_text(encoding="utf-8")
    bases = parse_bases(text)
    assert render_bases(bases) == text
    dockerfile = (ROOT / "Dockerfile").read_text()
    defaults = dict(re.findall(r"^ARG (\w+_IMAGE)=(\S+)$", dockerfile, re.MULTILINE))
    assert {each.argument: each.image for each in bases} == {
        argument: f"docker.io/library/{image}" for argument, image in defaults.items()
    }


SKOPEO = """#!/bin/sh
case "$*" in
*runtime_image*) echo "reading manifest 1.0 in bases/runtime_image: manifest unknown" >&2; exit 1 ;;
*) echo '{}' ;;
esac
"""
"""What skopeo writes about an image that its registry does not have: the other two are there."""


def test_an_image_that_cannot_be_resolved_leaves_the_file_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "bin" / "skopeo"
    program.parent.mkdir()
    program.write_text(SKOPEO)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    file = tmp_path / "bases.toml"
    file.write_text(TEXT)
    assert main(["--file", str(file)]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith(
        "update-bases: Could not resolve RUNTIME_IMAGE (127.0.0.1:5000/bases/runtime_image:1.0)"
    )
    assert "manifest unknown" in errors
    assert len(errors.splitlines()) == 1
    assert file.read_text() == TEXT


def test_a_missing_file_and_a_missing_program_are_errors_and_no_tracebacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bases.toml"
    assert main(["--file", str(file)]) == 1
    file.write_text(TEXT)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["--file", str(file)]) == 1
    missing, program = capsys.readouterr().err.splitlines()
    assert "Could not read" in missing
    assert "skopeo must be installed" in program
