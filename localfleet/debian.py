"""Programs out of Debian packages, unpacked without being root."""

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

from localfleet.errors import AssetError, ToolFailedError
from localfleet.progress import Progress


def unpack_package(package: str, *, progress: Progress) -> Callable[[Path], None]:
    """A function that fetches a Debian package and unpacks it into the folder it is given."""

    def unpack(folder: Path) -> None:
        if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
            raise AssetError(
                name=package, problem="not on PATH, and no Debian to fetch it from: install it and try again"
            )
        try:
            progress.run(["apt-get", "download", package], folder=folder)
        except ToolFailedError:
            # A fresh machine has no package lists. Root might fetch them for all; we fetch our own and throw
            # them away.
            _download_with_own_lists(package, folder, progress)
        for archive in folder.glob("*.deb"):
            progress.run(["dpkg-deb", "-x", str(archive), str(folder)], folder=folder)
            archive.unlink()

    return unpack


def unpack_with_dependencies(package: str, program: str, *, progress: Progress) -> Callable[[Path], None]:
    """A function that fetches a package and all that it needs and this machine has not, and unpacks them.

    `program` is the real one, below the folder; `usr/bin/<package>` starts it with the libraries that came along.
    """

    def unpack(folder: Path) -> None:
        if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
            raise AssetError(
                name=package, problem="not on PATH, and no Debian to fetch it from: install it and try again"
            )
        archives, state = folder / "archives", folder / "apt"
        (archives / "partial").mkdir(parents=True)
        (state / "lists" / "partial").mkdir(parents=True)
        lists = ["-o", f"Dir::State::Lists={state / 'lists'}", "-o", "Debug::NoLocking=1"]
        options = [*lists, "-o", f"Dir::Cache={state}", "-o", f"Dir::Cache::archives={archives}"]
        install = ["install", "--yes", "--download-only", "--no-install-recommends", package]
        try:
            progress.run(["apt-get", *options, "update"], folder=folder)
            progress.run(["apt-get", *options, *install], folder=folder)
        except ToolFailedError as error:
            raise AssetError(
                name=package, problem=f"could not be fetched; install the package and try again: {error}"
            ) from error
        for archive in archives.glob("*.deb"):
            progress.run(["dpkg-deb", "-x", str(archive), str(folder)], folder=folder)
        shutil.rmtree(archives)
        shutil.rmtree(state)
        _write_starter(folder, package, program)

    return unpack


def _write_starter(folder: Path, package: str, program: str) -> None:
    """Write `usr/bin/<package>`; where it stands is found out when it runs, as the folder is moved once."""
    libraries = sorted({path.parent.relative_to(folder) for path in folder.rglob("*.so*")})
    places = ":".join(f"$root/{shlex.quote(str(each))}" for each in libraries)
    starter = folder / "usr" / "bin" / package
    starter.parent.mkdir(parents=True, exist_ok=True)
    starter.unlink(missing_ok=True)
    text = f"""#!/bin/sh
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
LD_LIBRARY_PATH={places} exec "$root/{program}" "$@"
"""
    starter.write_text(text)
    starter.chmod(0o755)


def _download_with_own_lists(package: str, folder: Path, progress: Progress) -> None:
    state = folder / "apt"
    (state / "lists" / "partial").mkdir(parents=True)
    options = ["-o", f"Dir::State::Lists={state / 'lists'}", "-o", f"Dir::Cache={state}"]
    try:
        progress.run(["apt-get", *options, "update"], folder=folder)
        progress.run(["apt-get", *options, "download", package], folder=folder)
    except ToolFailedError as error:
        raise AssetError(
            name=package, problem=f"could not be fetched; install the package and try again: {error}"
        ) from error
    finally:
        shutil.rmtree(state)
