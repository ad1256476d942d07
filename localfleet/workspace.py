"""The temporary folder of one fleet: removed at the end, and after a kill by whoever comes next."""

import fcntl
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

_PREFIX = "fipop-fleet-"
_LOCK = ".lock"


class Workspace:
    """A private temporary folder, `path`. Use it as a context manager."""

    def __init__(self, parent: Path | None = None) -> None:
        self._parent = parent or Path(tempfile.gettempdir())

    def __enter__(self) -> Self:
        _remove_abandoned(self._parent)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=self._parent))
        # Held as long as we live; a free lock tells others that the folder's owner is dead. So it must not have its
        # name before it is held.
        unnamed = self.path / f"{_LOCK}-to-be"
        self._lock = unnamed.open("w")
        fcntl.flock(self._lock.fileno(), fcntl.LOCK_EX)
        unnamed.rename(self.path / _LOCK)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A process on its way out may still write while we remove.
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _remove_abandoned(parent: Path) -> None:
    for lock in parent.glob(f"{_PREFIX}*/{_LOCK}"):
        try:
            with lock.open("r") as handle:
                fcntl.flock(handle.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
        except OSError:
            continue  # in use, another user's, or gone meanwhile
