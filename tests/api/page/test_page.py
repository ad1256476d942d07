"""The page in a real Chromium: what it shows, what it never runs, and whom it asks."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from localfleet.controlplane import ControlPlane
from localfleet.stack import (
    ALL_FLOATING_IPS,
    RANGES,
    RESERVATIONS,
    build_floating_ip,
    build_range,
    floating_ips,
)
from tests.api.emptying import wipe
from tests.api.page.conftest import CONTRAST, TOO_WIDE, serve_page
from tests.harness.browser import Tab
from tests.harness.objects import build_reservation, count_ranges

HELD = 23
CORPUS = (
    "<script>window.stolen = 1</script>",
    "\"><img src=x onerror='window.stolen=1'>",
    "'><svg/onload=window.stolen=1>",
    "javascript:window.stolen=1",
    "{{ 7 * 7 }}${7*7}<%= 7 * 7 %>",
    "</title></textarea></style><script>window.stolen=1</script>",
    '" onmouseover="window.stolen=1" autofocus onfocus="window.stolen=1" x="',
    "http://evil.example/?<iframe src=//evil.example>",
)


async def hold(
    plane: ControlPlane, address: str, owner: str, *, cluster: str, namespace: str = "default", **how: Any
) -> None:
    body = build_reservation(address, owner, namespace=namespace, cluster=cluster, **how)
    metadata = {"name": body["metadata"]["name"]}
    await plane.client.create(RESERVATIONS, {**_KIND, "metadata": metadata, "spec": body["spec"]})


_KIND = {"apiVersion": "kubefip.k8s.binbash.org/v1", "kind": "FloatingIPReservation"}


async def name_address(
    plane: ControlPlane,
    name: str,
    address: str,
    message: str,
    *,
    ready: str = "True",
    range_name: str = "vlan-10",
) -> None:
    """Make a floating IP whose status names an address, as an operator would."""
    path = floating_ips("default")
    await plane.client.create(path, build_floating_ip("default", name, cluster=name, range_name=range_name))
    condition = {
        "type": "Ready",
        "status": ready,
        "reason": "Ready" if ready == "True" else "GuestUnreachable",
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 1,
    }
    status = {
        "addresses": [address],
        "range": range_name,
        "addressSpace": "default",
        "observedGeneration": 1,
        "conditions": [condition],
    }
    await plane.client.patch(f"{path}/{name}/status", {"status": status})


async def count(plane: ControlPlane) -> None:
    """Write the statuses of the ranges, as an operator would."""
    found = [await plane.client.items(each) for each in (RANGES, ALL_FLOATING_IPS, RESERVATIONS)]
    for each in count_ranges(*found):
        name = each["metadata"]["name"]
        await plane.client.patch(f"{RANGES}/{name}/status", {"status": each["status"]})


pytestmark = pytest.mark.xdist_group("management")


@pytest_asyncio.fixture(scope="module")
async def plane(management: ControlPlane) -> AsyncIterator[ControlPlane]:
    plane = management
    await wipe(plane)
    ranges = (
        build_range(
            "vlan-10",
            "10.10.0.0/24",
            harvester="harvester",
            network="default/vlan10",
            exclude=["10.10.0.112/28"],
        ),
        build_range("vlan-30", "2001:db8:30::/64"),
        build_range("vlan-40", "10.10.0.200-10.10.0.240"),
        build_range("vlan-90", "10.90.0.0/24", harvester="harvester", network=CORPUS[0]),
    )
    for each in ranges:
        await plane.client.create(RANGES, each)
    for number in range(1, HELD + 1):
        address, name = f"10.10.0.{number}", f"guest-{number}"
        await hold(plane, address, name, cluster=f"shop-{number}", range_name="vlan-10")
        await name_address(
            plane, name, address, "the guest does not answer", ready="True" if number % 5 else "False"
        )
    for number, evil in enumerate(CORPUS, start=1):
        address, name = f"10.90.0.{number}", f"evil-{number}"
        await hold(plane, address, name, cluster=evil[:63], range_name="vlan-90")
        await name_address(plane, name, address, evil, range_name="vlan-90")
    await hold(
        plane,
        "10.10.0.50",
        "left",
        cluster="gone",
        range_name="vlan-10",
        quarantined_until="2099-01-01T00:00:00Z",
        history=[
            {"namespace": "c-m-0", "name": "left", "cluster": "gone", "releasedAt": "2026-01-01T00:00:00Z"},
            {
                "namespace": "c-m-1",
                "name": "before",
                "cluster": CORPUS[0],
                "releasedAt": "2025-01-01T00:00:00Z",
            },
        ],
    )
    await hold(plane, "2001:db8:30::7", "six", cluster="six", range_name="vlan-30")
    await plane.client.create(
        floating_ips("default"),
        build_floating_ip("default", "without", cluster="without", range_name="vlan-40"),
    )
    await count(plane)
    yield plane
    await wipe(plane)


@pytest_asyncio.fixture(scope="module")
async def url(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    async with serve_page(plane, tmp_path_factory.mktemp("page")) as url:
        yield url


@pytest.fixture
def page(tab: Tab, url: str) -> Tab:
    """A tab of which everything is noted from now on."""
    tab.complaints.clear()
    tab.requests.clear()
    return tab


def is_quiet(page: Tab, url: str) -> bool:
    """Whether there was no complaint, and no request to anybody else."""
    assert not page.complaints
    assert page.requests
    assert all(each.startswith(url) for each in page.requests), page.requests
    return True


async def test_what_strangers_wrote_stays_text(page: Tab, url: str) -> None:
    pages = ("", "range?name=vlan-90", "floating-ips", "guests", "search?q=10.10.0.50", "search?q=guest")
    evil = "search?q=%3Cscript%3Ewindow.stolen%3D1%3C%2Fscript%3E"
    for path in (*pages, evil, "range?name=%22%3E%3Cscript%3Ewindow.stolen%3D1%3C/script%3E"):
        await page.open(url + path)
        assert await page.run("window.stolen === undefined"), path
        assert (
            await page.run("document.querySelectorAll('main script, main img, main iframe, main svg').length")
            == 0
        )
        hrefs = await page.run(
            "[...document.querySelectorAll('[href],[action]')].map(each => each.href || each.action)"
        )
        assert all(each.startswith(url) for each in hrefs), hrefs
    await page.open(f"{url}floating-ips")
    text = await page.run("document.querySelector('main').innerText")
    for each in CORPUS:
        assert " ".join(each.split()) in " ".join(text.split())
    # A page that is not found is an error that the browser tells in its console, too.
    assert all("404" in each for each in page.complaints)
    assert all(each.startswith(url) for each in page.requests)


async def test_it_works_without_scripts(page: Tab, url: str) -> None:
    await page.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        await page.open(f"{url}range?name=vlan-10")
        document = await page.call("DOM.getDocument", depth=-1)
        found = await page.call(
            "DOM.querySelectorAll", nodeId=document["root"]["nodeId"], selector="a.cell.held"
        )
        assert len(found["nodeIds"]) == HELD
    finally:
        await page.call("Emulation.setScriptExecutionDisabled", value=False)


async def test_it_shows_by_itself_what_changed(page: Tab, url: str, plane: ControlPlane) -> None:
    """The script is told to look at once instead of after 15 seconds."""
    hurry = await page.call(
        "Page.addScriptToEvaluateOnNewDocument",
        source="const slow = window.setInterval; window.setInterval = (work, _) => slow(work, 300)",
    )
    try:
        await page.open(f"{url}range?name=vlan-10")
        await page.run("document.querySelector('[data-address=\"10.10.0.60\"]').focus()")
        await hold(plane, "10.10.0.60", "fresh", cluster="fresh", range_name="vlan-10")
        waits = """new Promise(done => { const look = () =>
            document.querySelector('.held[data-address="10.10.0.60"]')
                ? done(true) : setTimeout(look, 100); look(); })"""
        assert await page.run(waits)
        assert await page.run("document.activeElement.dataset.address") == "10.10.0.60"
        assert is_quiet(page, url)
    finally:
        await page.call("Page.removeScriptToEvaluateOnNewDocument", identifier=hurry["identifier"])


async def test_keyboard_and_screen_reader_get_everything(page: Tab, url: str) -> None:
    await page.open(url)
    await page.press("Tab")
    assert await page.run("document.activeElement.textContent") == "Skip to the content"
    await page.press("Enter")
    assert await page.run("document.activeElement.id") == "main"
    await page.open(f"{url}range?name=vlan-10")
    tree = (await page.call("Accessibility.getFullAXTree"))["nodes"]
    named = {
        (each["role"]["value"], each.get("name", {}).get("value", "")) for each in tree if "role" in each
    }
    assert ("searchbox", "Address, cluster, floating IP or Service") in named
    assert ("meter", "usage of vlan-10 IPv4") in named
    assert any(role == "link" and "10.10.0.1 held" in name for role, name in named)
    assert ("main", "") in named or any(role == "main" for role, _ in named)
    nameless = [each for each in tree if each.get("role", {}).get("value") in {"link", "button"}]
    assert all(each.get("name", {}).get("value") for each in nameless)


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 400)])
async def test_light_dark_and_narrow(page: Tab, url: str, scheme: str, width: int) -> None:
    await page.show_as(scheme=scheme, width=width)
    try:
        for path in ("", "range?name=vlan-10", "floating-ips", "guests"):
            await page.open(url + path)
            assert not await page.run(CONTRAST), (path, scheme)
            assert await page.run(TOO_WIDE) <= 0, f"{path} is wider than the window"
    finally:
        await page.show_as()
    assert is_quiet(page, url)
