"""Our folder for temporary files, and what a killed predecessor of this process left of its own.

Below it stand kubeconfigs with tokens and charts of megabytes: a process that is killed removes neither, and the
next one in the same pod finds the same disk. Whether a folder is still in use tells the lock on its file, which the
kernel gives back when the process is gone; processes beside each other leave each other's alone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "fipop-"
_LOCK = "lock"


class WorkFolder:
    """Lends folders that only we can read; made when first asked for, gone with `close`. OSError where none can be."""

    def __init__(self) -> None:
        self._root: Path | None = None
        self._lock = -1

    def folder(self, prefix: str) -> Path:
        """Make a folder of its own; who asked for it removes it."""
        if self._root is None:
            sweep()
            self._root, self._lock = _make_root()
        return Path(tempfile.mkdtemp(prefix=prefix, dir=self._root))

    def close(self) -> None:
        """Remove all that was made; the next folder begins anew."""
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            os.close(self._lock)
            self._root = None


def sweep() -> None:
    """Remove the folders of processes that are gone; where there is no place for folders there are none."""
    try:
        parent = Path(tempfile.gettempdir())
    except OSError:
        return
    for path in parent.glob(f"{_PREFIX}*/{_LOCK}"):
        try:
            lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            continue  # another user's, or gone meanwhile
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path.parent, ignore_errors=True)
        except OSError:
            pass  # its process is alive
        finally:
            os.close(lock)


def _make_root() -> tuple[Path, int]:
    # Under another name until it is locked: nobody may take it for one that was left.
    draft = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}"))
    lock = os.open(draft / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return draft.rename(draft.with_name(draft.name[1:])), lock
