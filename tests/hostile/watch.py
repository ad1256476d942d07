"""Watches a process of fipop from outside while others are hostile: what it holds, leaves, and whom it talks to."""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import re
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from localfleet.processes import Process

POLL_SECONDS = 0.1
LIVE_SECONDS = 2.0
_LISTENING = "0A"


@dataclass(slots=True, kw_only=True)
class Watch:
    """Looks ten times a second, from `start` to `stop`. `findings` are what must not be.

    `url` is where the process tells its health, `ports` are those that it may talk to, `secrets` what no file of its
    and no command line may hold. `callbacks` is the file that `inside` writes. With more memory than `most_mib` the
    process is killed.
    """

    process: Process
    url: str
    ports: set[int]
    secrets: tuple[bytes, ...]
    folder: Path
    callbacks: Path
    most_mib: float = math.inf
    findings: list[str] = field(default_factory=list)
    rss_mib: float = 0.0
    folder_mib: float = 0.0
    log_mib: float = 0.0
    long_callbacks: list[tuple[float, str]] = field(default_factory=list)
    _doors: set[int] = field(default_factory=set)
    _thread: threading.Thread | None = None
    _stopped: threading.Event = field(default_factory=threading.Event)
    _began: float = 0.0
    _log_began: int = 0
    _pid: int = 0

    def start(self) -> None:
        """Begin; what was before does not count, but for memory."""
        self._began, self._pid = time.monotonic(), self.process.pid
        self._log_began = self._log_bytes()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Look no more, and keep what has to be told when the operator is gone."""
        if self._thread is None or self._stopped.is_set():
            return
        self._stopped.set()
        await asyncio.to_thread(self._thread.join)
        self.read_peak()
        self.log_mib = (self._log_bytes() - self._log_began) / 2**20
        self.long_callbacks = self.callbacks_since(self._began)

    def read_peak(self) -> float:
        """Return the most memory that the process had since `forget_peak`, in MiB; `rss_mib` is the most of all."""
        try:
            status = Path(f"/proc/{self._pid}/status").read_text()
        except OSError:
            status = ""
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        if found is None:  # nobody is left, or a zombie
            self._find("the process is gone")
            return 0.0
        peak = int(found[1]) / 1024
        self.rss_mib = max(self.rss_mib, peak)
        if peak > self.most_mib:
            self._find(f"it had {peak:.0f} MiB, and was killed")
            os.kill(self._pid, signal.SIGKILL)
        return peak

    def forget_peak(self) -> None:
        """Have the kernel measure the peak of memory anew."""
        self.read_peak()
        with suppress(OSError):
            Path(f"/proc/{self._pid}/clear_refs").write_text("5")

    @property
    def stall_ms(self) -> float:
        """The longest callback of any loop, in its thread's processor time."""
        return max((took for took, _ in self.long_callbacks), default=0.0)

    def callbacks_since(self, began: float) -> list[tuple[float, str]]:
        """Return the callbacks of more than 20 ms that ended after this monotonic time, the longest first."""
        found = []
        for line in self.callbacks.read_text().splitlines() if self.callbacks.exists() else []:
            at, took, what = line.split(" ", 2)
            if float(at) >= began:
                found.append((float(took), what))
        return sorted(found, reverse=True)

    def _log_bytes(self) -> int:
        return self.process.log.stat().st_size

    def _watch(self) -> None:
        # In a thread of its own: the loop of this process is the hostile guests'.
        for number in itertools.count():
            if self._stopped.wait(POLL_SECONDS):
                return
            self._probe()
            self.read_peak()
            self._look(deep=number % 10 == 0)

    def _probe(self) -> None:
        try:
            with urllib.request.urlopen(f"{self.url}/livez", timeout=LIVE_SECONDS) as answer:
                answer.read()
        except OSError as error:  # an answer that is none of success, too
            self._find(f"/livez did not answer well within {LIVE_SECONDS:.0f} s: {error}")

    def _look(self, *, deep: bool) -> None:
        family = list(_family(self._pid))
        peers, listening = _find_peers(family)
        # The doors of helms that have just ended, too: the other end of such a connection may be gone already.
        self._doors |= listening
        for port in peers - self.ports - self._doors:
            self._find(f"a connection to port {port}")
        for pid in family[1:]:
            self._look_at(pid)
        if deep:
            self._look_at_files()

    def _look_at(self, pid: int) -> None:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return
        program = command.split(b"\0")[0].rpartition(b"/")[2]
        if program not in (b"helm", b"python", b"python3", b"python3.11", b"fipop", b""):
            self._find(f"a process {program[:50]!r}")
        if any(secret in command for secret in (*self.secrets, b"PWNED")):
            self._find("a guest's words or a secret on a command line")

    def _look_at_files(self) -> None:
        size = 0
        for path in self.folder.rglob("*"):
            try:
                if not path.is_file() or path.name.endswith(".log"):
                    continue
                length = path.stat().st_size
                size += length
                content = path.read_bytes() if length < 2**20 else b""
            except OSError:
                continue
            if (
                any(secret in content for secret in self.secrets)
                and path.name != "kubeconfig-of-the-operator"
            ):
                self._find(f"a secret in the file {path.name}")
        self.folder_mib = max(self.folder_mib, size / 2**20)
        if size > 64 * 2**20:
            self._find(f"{size / 2**20:.0f} MiB of files")

    def _find(self, what: str) -> None:
        if what not in self.findings:
            self.findings.append(what)


def _family(pid: int) -> Iterator[int]:
    """A process and all below it."""
    yield pid
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in children:
        yield from _family(int(child))


def _find_peers(family: list[int]) -> tuple[set[int], set[int]]:
    """The listening ports of others that processes have connected to, and those that they listen on themselves."""
    # Doors come and go: what is open before or after the tables are read is theirs.
    before = _inodes(family)
    lines = [
        line for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    inodes = before | _inodes(family)
    everybodys, own, connected = set(), set(), set()
    for line in lines:
        fields = line.split()
        local, remote = (int(fields[place].rpartition(":")[2], 16) for place in (1, 2))
        if fields[3] == _LISTENING:
            everybodys.add(local)
            own |= {local} if fields[9] in inodes else set()
        elif fields[9] in inodes:
            # Who has connected to us has no port that anybody listens on.
            connected.add(remote)
    return connected & everybodys - own, own


def _inodes(family: list[int]) -> set[str]:
    """The sockets that processes have open."""
    found = set()
    for pid in family:
        try:
            links = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208 - names of links that may be gone by now
        except OSError:
            continue
        for link in links:
            with suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{link}")  # noqa: PTH115
                if target.startswith("socket:["):
                    found.add(target[8:-1])
    return found
