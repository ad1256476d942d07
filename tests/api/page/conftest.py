"""The page, served by `fipop web` as a process, over a real management cluster, in a real browser."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from localfleet.assets import ensure
from localfleet.controlplane import ControlPlane
from localfleet.processes import Process
from tests.harness.browser import Tab, open_browser

_READY_SECONDS = 30.0


@asynccontextmanager
async def serve_page(plane: ControlPlane, folder: Path) -> AsyncIterator[str]:
    """Run `fipop web`; its address."""
    log = folder / "web.log"
    program = Path(sys.executable).parent / "fipop"
    argv = [str(program), "web", "--port", "0", "--kubeconfig", str(plane.admin_kubeconfig)]
    process = Process("fipop web", argv, log=log, environment={"HOME": str(folder), "PATH": "/usr/bin:/bin"})
    await process.start()
    found: list[str] = []

    async def is_up() -> bool:
        found[:] = re.findall(r"http://\S+/", await asyncio.to_thread(log.read_text))
        return bool(found)

    await process.wait_until(is_up, timeout_seconds=_READY_SECONDS)
    yield found[0]
    await process.stop()
    assert await process.wait() == 0
    assert "Traceback" not in await asyncio.to_thread(log.read_text)


@pytest_asyncio.fixture(scope="package")
async def tab(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Tab]:
    """One tab of a Chromium."""
    async with open_browser(ensure("chromium"), tmp_path_factory.mktemp("browser")) as tab:
        yield tab
