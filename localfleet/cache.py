"""A cache of folders that are complete or absent, also when builders run in parallel or are killed."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_UNFINISHED = ".unfinished-"
_LOCK_POLL_SECONDS = 0.2


class Cache:
    """Folders by key below `root`.

    A folder appears under its key by one rename, after all in it is on disk.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def find(self, key: str) -> Path | None:
        """The folder of `key`, if it was finished once."""
        folder = self._root / key
        return folder if folder.is_dir() else None

    def make(self, key: str, fill: Callable[[Path], None], *, on_wait: Callable[[], None]) -> Path:
        """The folder of `key`, filled by `fill` unless it is there.

        One builder works at a time, whatever the key: two compilers side by side need twice the memory and
        are no faster. The others call `on_wait` now and then, until it is their turn or what they want is there.
        """
        while (found := self.find(key)) is None:
            with self._lock() as is_ours:
                if is_ours:
                    return self.find(key) or self._fill(key, fill)
            on_wait()
            time.sleep(_LOCK_POLL_SECONDS)
        return found

    def _fill(self, key: str, fill: Callable[[Path], None]) -> Path:
        # Whoever holds the lock is the only builder, so any unfinished folder belongs to one that was killed.
        for leftover in self._root.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(leftover)
        unfinished = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=self._root))
        try:
            unfinished.chmod(0o755)
            fill(unfinished)
            # A rename may reach the disk before the content does: a power cut would leave empty programs for
            # ever.
            os.sync()
            return unfinished.rename(self._root / key)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)

    @contextmanager
    def _lock(self) -> Iterator[bool]:
        self._root.mkdir(parents=True, exist_ok=True)
        # The kernel gives the lock back when its holder dies, which a file that merely exists would not.
        with (self._root / ".lock").open("w") as lock:
            yield _try_lock(lock.fileno())


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
