"""The page: what it answers, to whom, and that no stranger's word is more than text in it."""

import re
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio
from aiohttp.test_utils import TestServer

from fipop.report.page.app import Page, build_environment, is_local_host
from fipop.report.page.snapshots import Snapshots
from fipop.report.snapshot import Snapshot
from tests.harness.objects import build_range, build_reservation
from tests.unit.report.page.pages import Cluster
from tests.unit.report.snapshots import snapshot


@pytest_asyncio.fixture
async def address() -> AsyncIterator[str]:
    async with TestServer(Page(Snapshots(Cluster().read)).build_app()) as server:
        yield f"http://127.0.0.1:{server.port}"


PATHS = (
    *("/", "/range?name=pool", "/range?name=wide", "/range?name=wide&block=10.1.7.0/24", "/floating-ips"),
    *("/floating-ips?ready=False", "/guests", "/guests?reachable=no", "/search?q=demo", "/search"),
    *(
        "/search?q=%3Cscript%3Ealert(1)%3C/script%3E",
        "/range?name=%3Cscript%3E",
        "/range?name=wide&block=%3Cb%3E",
    ),
)


@pytest.mark.parametrize("path", PATHS)
async def test_no_page_holds_what_a_stranger_wrote_but_as_text(address: str, path: str) -> None:
    async with aiohttp.ClientSession() as session, session.get(address + path) as answer:
        text = await answer.text()
        assert answer.status in {200, 404}
        assert "<script>alert" not in text
        assert "<img" not in text
        assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
        assert "unsafe" not in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert " style=" not in text, "the policy would drop it"
        for link in _links(text):
            assert not link.startswith(("/", "http")), link


def _links(text: str) -> list[str]:
    parts = [
        part.partition('"')[0] for word in (' href="', ' src="', ' action="') for part in text.split(word)[1:]
    ]
    return [part for part in parts if not part.startswith("#")]


@pytest.mark.parametrize("bind", ["127.0.0.1", "0.0.0.0"])
async def test_a_name_that_leads_to_this_machine_is_refused(bind: str) -> None:
    """In a pod it listens on all addresses, and `kubectl port-forward` leads to its loopback."""
    app = Page(Snapshots(Cluster().read)).build_app()
    async with TestServer(app, host=bind) as server, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{server.port}/"
        async with session.get(url, headers={"Host": "evil.example:80"}) as answer:
            assert answer.status == 421
        async with session.get(url) as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    ("method", "path", "host", "status"),
    [
        *(("GET", "/nothing", "", 404), ("POST", "/", "", 405), ("GET", "/healthz", "", 200)),
        *(("GET", "/page.css", "", 200), ("GET", "/", "evil.example", 421)),
    ],
)
async def test_every_answer_has_the_headers_that_keep_a_browser_safe(
    address: str, method: str, path: str, host: str, status: int
) -> None:
    headers = {"Host": host} if host else {}
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, address + path, headers=headers) as answer,
    ):
        assert answer.status == status
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize(
    ("host", "local"),
    [
        *(("127.0.0.1:8090", True), ("localhost", True), ("LOCALHOST.:1", True), ("[::1]:80", True)),
        *(("::1", True), ("127.8.8.8", True), ("10.0.0.1", False), ("127.0.0.1.evil.example", False)),
        *(("", False), ("localhost.evil.example:80", False), ("0.0.0.0", False)),
    ],
)
def test_which_hosts_are_this_machine(host: str, local: bool) -> None:
    assert is_local_host(host) is local


async def test_the_overview_shows_problems_first_then_ranges_and_whoever_waits(address: str) -> None:
    async with aiohttp.ClientSession() as session, session.get(address) as answer:
        text = await answer.text()
    sections = re.findall(r'<section aria-labelledby="(\w+)"', text)
    assert sections == ["problems", "ranges", "waiting", "without", "rollout", "sum", "unread"]
    assert re.findall(r'data-waiting="([^"]+)"', text) == ["c-m-2/wish"]
    assert re.findall(r'data-without="([^"]+)"', text) == ["c-m-3"]


async def test_a_guest_cluster_shows_each_floating_ip_with_its_conditions(address: str) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"{address}/guests") as answer:
        text = await answer.text()
    assert re.search("web .*10.0.0.5.*<span", text)
    assert re.search("wish .*<span", text)


async def test_the_rollout_shows_its_phase_and_the_names_of_whoever_failed(address: str) -> None:
    async with aiohttp.ClientSession() as session, session.get(address) as answer:
        text = (await answer.text()).partition('id="rollout"')[2]
    assert "Stopped" in text
    assert 'q=c-m-2">shop</a>' in text


async def test_each_family_of_a_range_has_a_row_and_a_large_number_is_a_power_of_two() -> None:
    ranges = [build_range("dual", "10.0.0.1-10.0.0.10,fd00::/64"), build_range("broken", "nonsense")]

    async def read() -> Snapshot:
        return snapshot(ranges=ranges, reservations=[build_reservation("10.0.0.5", range_name="dual")])

    async with TestServer(Page(Snapshots(read)).build_app()) as server, aiohttp.ClientSession() as session:

        async def show(path: str) -> str:
            async with session.get(f"http://127.0.0.1:{server.port}{path}") as answer:
                return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", await answer.text()))

        overview, dual, broken = [
            await show(each) for each in ("/", "/range?name=dual", "/range?name=broken")
        ]
    assert "dual default IPv4 10.0 % 10.0 % 1 0 9 10 Ready" in overview
    assert "dual default IPv6 0.0 % 0.0 % 0 0 2^64 2^64 Ready" in overview
    assert "broken default unknown Invalid" in overview
    assert "IPv4: 10.0 % 10.0 % 1 used, 0 in quarantine, 9 free of 10." in dual
    assert "IPv6: 0.0 % 0.0 % 0 used, 0 in quarantine, 2^64 free of 2^64." in dual
    assert "100" not in broken


def test_every_template_escapes() -> None:
    environment = build_environment()
    assert environment.autoescape is True
    for name in environment.list_templates():
        source, _, _ = environment.loader.get_source(environment, name)  # type: ignore[union-attr]
        assert "|safe" not in source.replace(" ", "")
        assert "autoescape" not in source
