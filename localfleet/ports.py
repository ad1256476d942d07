"""Loopback ports that stay ours while the process on them is down."""

import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from localfleet.errors import NoFreePortError

_LOWEST = 20_000
_TRIES = 200
_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")


class Ports:
    """Hands out free ports of 127.0.0.1, each reserved against this user's other fleets until `release`.

    Below the range from which the kernel takes the local ends of connections: otherwise a port could be taken
    by anybody's connection while its server is being restarted. The reservation is a lock on a file, which
    the kernel gives back when we die. `candidates` are tried instead of a random choice.
    """

    def __init__(self, folder: Path | None = None, candidates: Sequence[int] = ()) -> None:
        self._folder = folder or Path(tempfile.gettempdir()) / f"fipop-ports-{os.getuid()}"
        self._candidates = candidates
        self._held: dict[int, IO[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for port in tuple(self._held):
            self.release(port)

    def reserve(self) -> int:
        """A port on which nobody listens. Raises NoFreePortError."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        candidates = self._candidates or _random_candidates()
        for port in candidates:
            lock = (self._folder / str(port)).open("wb")
            if _try_lock(lock) and is_free(port):
                self._held[port] = lock
                return port
            lock.close()
        raise NoFreePortError(tried=len(candidates))

    def release(self, port: int) -> None:
        self._held.pop(port).close()


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of 127.0.0.1 now."""
    with socket.socket() as probe:
        # As servers do: the remains of closed connections are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _random_candidates() -> Sequence[int]:
    # Chance only spreads the fleets; the locks decide.
    first_ephemeral = int(_RANGE_FILE.read_text().split()[0])
    return random.sample(range(_LOWEST, max(first_ephemeral, _LOWEST + _TRIES)), _TRIES)


def _try_lock(lock: IO[bytes]) -> bool:
    try:
        fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
