"""Every page over fleets that have an object in each state, in a real Chromium, narrow and wide."""

import os
from pathlib import Path

import pytest
from aiohttp.test_utils import TestServer

from fipop.report.page.app import Page
from fipop.report.page.snapshots import Snapshots
from fipop.report.snapshot import Snapshot
from tests.api.page.conftest import CONTRAST, TOO_WIDE
from tests.harness.browser import Tab
from tests.unit.report.every_state import FLEETS

SHOTS = os.environ.get("FIPOP_SCREENSHOTS")
"""A folder for the screenshots of the documentation: `docs/images` to take them again."""
PICTURES = {
    ("", 1400): "overview.webp",
    ("range?name=guest-vlan", 1400): "range.webp",
    ("rollout", 1400): "rollout.webp",
    ("rollout", 420): "rollout-narrow.webp",
    ("guest?id=c-m-stage09", 420): "guest-narrow.webp",
}
"""Of the unhappy week, by page and width."""
RUN_OVER = """[...document.querySelectorAll('.block, .badge, .label, nav, header, td, th, dd')]
    .filter(each => each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).display !== 'inline')
    .map(each => [each.className || each.tagName, each.textContent.trim().slice(0, 60), each.scrollWidth])"""
"""What is wider than its box."""

pytestmark = pytest.mark.xdist_group("management")


def list_paths(found: Snapshot) -> list[str]:
    """Return all pages that a fleet has."""
    ranges = [each.name for each in found.inventory.ranges.all()]
    guests = {each.namespace for each in found.inventory.floating_ips.all()}
    guests |= {each.cluster_name for each in found.inventory.clusters.all()}
    return [
        *("", "?all=1", "floating-ips", "guests", "rollout", "search?q=demo", "search?q=nobody", "nothing"),
        *(f"range?name={each}" for each in ranges),
        *(f"guest?id={each}" for each in sorted(guests)[:12]),
    ]


@pytest.mark.parametrize("width", [420, 1400])
@pytest.mark.parametrize("name", FLEETS)
async def test_every_page_of_every_fleet_fits_into_the_window(
    tab: Tab, name: str, width: int, tmp_path: Path
) -> None:
    async def read() -> Snapshot:
        return FLEETS[name]

    tab.complaints.clear()
    await tab.show_as(width=width)
    async with TestServer(Page(Snapshots(read)).build_app()) as server:
        for path in list_paths(FLEETS[name]):
            await tab.open(f"http://127.0.0.1:{server.port}/{path}")
            assert await tab.run(TOO_WIDE) <= 0, f"{path} is wider than the window"
            assert await tab.run(RUN_OVER) == [], path
            assert not await tab.run(CONTRAST), path
            if name == "an unhappy week" and (picture := PICTURES.get((path, width))):
                await tab.screenshot(Path(SHOTS or tmp_path) / picture)
    await tab.show_as()
    assert all("404" in each for each in tab.complaints), tab.complaints
