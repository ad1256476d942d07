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
CONTRAST = """(() => {
  const part = value => { const c = value / 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const light = color => { const [r, g, b] = color.match(/[\\d.]+/g).map(Number);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b); };
  const ground = each => { for (let one = each; one; one = one.parentElement) {
    const found = getComputedStyle(one).backgroundColor;
    if (!found.endsWith(', 0)') && found !== 'transparent') return found; } return 'rgb(255,255,255)'; };
  return [...document.querySelectorAll('main *, header *')].filter(each => each.children.length === 0
      && each.textContent.trim() && each.getClientRects().length && !each.closest('.text, meter'))
    .map(each => { const a = light(getComputedStyle(each).color), b = light(ground(each));
      return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), each.className, each.textContent.slice(0, 30)]; })
    .filter(([ratio]) => ratio < 4.5);
})()"""
"""What WCAG 2.2 asks of the contrast of texts (1.4.3, AA)."""
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
"""By how many pixels a page is wider than the window."""


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
