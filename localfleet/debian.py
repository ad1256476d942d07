"""Programs out of Debian packages, unpacked without being root."""

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
