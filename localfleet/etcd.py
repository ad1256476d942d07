"""The store of one or several control planes."""

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp

from localfleet.ports import Ports
from localfleet.processes import Process, build_environment
from localfleet.servers import start_server

_START_SECONDS = 90.0
"""It takes less than a second on an idle machine. A machine that is loaded must not fail a run."""
_QUOTA_BYTES = 8 * 1024**3


class Etcd:
    """One etcd with its data in `folder`.

    It can be stopped and started again at the same port with the same data.
    """

    def __init__(self, name: str, *, folder: Path, ports: Ports, programs: Mapping[str, Path]) -> None:
        self.name = name
        self._folder = folder
        self._data = folder / f"{name}.etcd"
        self._ports = ports
        self._program = programs["etcd"]
        self._port = 0
        self._process: Process | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def process(self) -> Process:
        assert self._process is not None, "etcd was not started"
        return self._process

    async def start(self) -> None:
        """Start it; the second time at the port and with the data of the first."""
        if self._process is None:
            self._port, self._process = await start_server(
                self._ports, self._build, self._is_healthy, timeout_seconds=_START_SECONDS
            )
            return
        await self._process.start()
        await self._process.wait_until(lambda: self._is_healthy(self._port), timeout_seconds=_START_SECONDS)

    async def stop(self) -> None:
        """Stop it abruptly. Its data stay until the folder goes."""
        if self._process is not None:
            await self._process.stop(grace_seconds=0)

    async def snapshot(self, target: Path) -> None:
        """Copy the store as it is now into the new folder `target`.

        The copy is made while etcd is frozen: all it has acknowledged is then in its files, for it writes a
        record before it answers. Clients notice nothing but a pause of some milliseconds.
        """
        self.process.pause()
        try:
            await asyncio.to_thread(shutil.copytree, self._data, target)
        finally:
            self.process.resume()

    async def restore(self, source: Path) -> None:
        """Put an earlier `snapshot` in the place of the store, and start it at the same port.

        As after a real restore, revisions begin again where the snapshot was taken: API servers on this etcd
        have to be restarted, as their caches are ahead of it.
        """
        await self.stop()
        await asyncio.to_thread(shutil.rmtree, self._data)
        await asyncio.to_thread(shutil.copytree, source, self._data)
        await self.start()

    def _build(self, port: int) -> Process:
        url = f"http://127.0.0.1:{port}"
        # Nobody ever talks to a single member as its peer: any port does.
        peer = "http://127.0.0.1:0"
        argv: list[str | Path] = [
            self._program,
            f"--name={self.name}",
            f"--data-dir={self._data}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster={self.name}={peer}",
            # Data that outlive a power cut are of no use here; waiting for the disk would be most of the
            # time.
            "--unsafe-no-fsync",
            f"--quota-backend-bytes={_QUOTA_BYTES}",
            "--log-level=warn",
        ]
        return Process(
            self.name,
            argv,
            log=self._folder / f"{self.name}.log",
            environment=build_environment(self._folder),
        )

    async def _is_healthy(self, port: int) -> bool:
        timeout = aiohttp.ClientTimeout(total=2)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"http://127.0.0.1:{port}/health") as answer,
            ):
                return answer.ok
        except (aiohttp.ClientError, TimeoutError):
            return False
