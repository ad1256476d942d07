"""The page: what it answers, to whom, and that no stranger's word is more than text in it."""

import re
from collections.abc import AsyncIterator, Sequence

import aiohttp
import pytest
import pytest_asyncio
from aiohttp.test_utils import TestServer

from fipop.api.conditions import Verdict
from fipop.report.maps import CellState
from fipop.report.page.app import Page, build_environment, is_local_host
from fipop.report.page.snapshots import Snapshots
from fipop.report.snapshot import Snapshot
from tests.harness.objects import build_floating_ip, build_range, build_reservation, held_by
from tests.unit.report.every_state import ADDRESSES, ASKED, CASES, FLEETS, RANGE_CASES, Case, build_conditions
from tests.unit.report.page.pages import Cluster
from tests.unit.report.snapshots import build_cluster, build_management, snapshot


@pytest_asyncio.fixture
async def address() -> AsyncIterator[str]:
    async with TestServer(Page(Snapshots(Cluster().read)).build_app()) as server:
        yield f"http://127.0.0.1:{server.port}"


PATHS = (
    *("/", "/range?name=pool", "/range?name=wide", "/range?name=wide&block=10.1.7.0/24", "/floating-ips"),
    *("/floating-ips?ready=False", "/guests", "/guests?reachable=no", "/search?q=demo", "/search"),
    *("/rollout", "/guest?id=c-m-1", "/guest?id=c-m-2", "/guest?id=%3Cscript%3Ealert(1)%3C/script%3E"),
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
        *(("GET", "/page.css", "", 200), ("GET", "/", "evil.example", 421), ("GET", "/", "", 200)),
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


async def test_the_overview_shows_problems_first_with_what_waits_then_ranges(address: str) -> None:
    async with aiohttp.ClientSession() as session, session.get(address) as answer:
        text = await answer.text()
    sections = re.findall(r'<section aria-labelledby="(\w+)"', text)
    assert sections == ["problems", "ranges", "rollout", "sum", "unread"]
    assert '<a href="guest?id=c-m-2">FloatingIP c-m-2/wish</a>' in text
    assert '<a href="guest?id=c-m-3">Guest ' in text


@pytest.mark.parametrize(
    ("path", "status", "nearest"),
    [
        ("/search?q=shoq", 200, "shop"),
        ("/range?name=poool", 404, "pool"),
        ("/guest?id=dem", 404, "demo"),
        ("/search?q=entirely-else", 200, ""),
    ],
)
async def test_what_is_not_found_shows_what_was_searched_and_the_nearest(
    address: str, path: str, status: int, nearest: str
) -> None:
    async with aiohttp.ClientSession() as session, session.get(address + path) as answer:
        text = await answer.text()
    assert answer.status == status
    assert ("Nothing has “" in text) == path.startswith("/search")
    assert "None." not in text
    assert re.findall(r'Did you mean <a href="search\?q=(\w+)">', text) == ([nearest] if nearest else [])


async def test_the_rollout_shows_its_phase_and_the_part_of_each_guest_cluster() -> None:
    overview, page = [
        text for _, text in (await read_pages(FLEETS["rollout Stopped"], "/", "/rollout")).values()
    ]
    assert "Stopped" in overview.partition('id="rollout"')[2]
    assert '<a href="rollout">' in overview
    rows = [re.sub(r"<[^>]+>", " ", row).split() for row in re.findall(r"<tr>.*?</tr>", page, re.DOTALL)]
    assert ["demo", "c-m-1"] in [row[:2] for row in rows]
    parts = {row[2] for row in rows if row[1].startswith("c-m-")}
    assert parts >= {"failed", "progressing", "pending", "skipped", "succeeded"}
    assert [row for row in rows if "canary" in row]
    assert "Why failed." in page
    assert "<code>fipop rollout undo</code>" in page
    (_, none), *_ = (await read_pages(FLEETS["nothing"], "/rollout")).values()
    assert "There is no rollout" in none


async def test_a_guest_cluster_has_a_page_with_all_that_is_known_of_it() -> None:
    pages = await read_pages(
        ADDRESSES, "/guest?id=c-m-1", "/guest?id=c-m-4", "/guest?id=c-m-5", "/guest?id=nobody"
    )
    (_, whole), (_, held), (_, bare), (status, _) = pages.values()
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", whole))
    for shown in ("fleet-default/demo", "at least every 480 s", "10.0.0.5", "also used by c-m-2/twin"):
        assert shown in text
    assert "c-m-4/plain" in held, "its reservation names it, and Rancher has no Cluster"
    assert "Rancher has no Cluster with this id." in held
    assert "It has no FloatingIP." in bare
    assert status == 404


async def test_each_name_is_a_link_to_the_page_of_its_object() -> None:
    pages = await read_pages(
        ADDRESSES, "/", "/?all=1", "/floating-ips", "/guests", "/range?name=states", "/search?q=10.0.0.5"
    )
    links = {
        path: set(re.findall(r'<a (?:class="[^"]*" )?href="([^"]+)"', text))
        for path, (_, text) in pages.items()
    }
    assert {"range?name=full", "search?q=10.0.0.5", "guest?id=c-m-2"} <= links["/?all=1"]
    for path in ("/floating-ips", "/guests", "/search?q=10.0.0.5"):
        assert {"guest?id=c-m-2", "search?q=10.0.0.5"} <= links[path], path
    assert "guest?id=c-m-3" in links["/search?q=10.0.0.5"], "whoever asks for it"


async def test_a_search_finds_a_cluster_by_what_people_call_it_and_shows_both_names() -> None:
    named = [build_cluster(each, f"c-m-{each}", namespace=f"fleet-{each}") for each in ("shop", "berlin")]
    found = snapshot(
        ranges=[build_range("pool", "10.0.0.0/24")],
        floating_ips=[build_floating_ip("web", namespace="c-m-shop", status=held_by(["10.0.0.5"]))],
        reservations=[build_reservation("10.0.0.5", namespace="c-m-shop", cluster="shop")],
        clusters=named,
        management=[build_management("c-m-shop", "berlin")],
    )
    ((_, text),) = (await read_pages(found, "/search?q=berlin")).values()
    assert "shop (berlin)" in text
    assert "fits 2 guest clusters: fleet-berlin/berlin, fleet-shop/shop (berlin)." in text


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
    assert "IPv4 10.0 % 10.0 % : 1 used, 0 in quarantine, 9 free of 10." in dual
    assert "IPv6 0.0 % 0.0 % : 0 used, 0 in quarantine, 2^64 free of 2^64." in dual
    assert "100" not in broken


@pytest.mark.parametrize(
    ("path", "chosen"),
    [
        *(("/floating-ips", "All"), ("/floating-ips?ready=False", "Not ready"), ("/guests", "All")),
        ("/guests?reachable=no", "Unreachable"),
    ],
)
async def test_a_list_shows_which_filter_is_chosen(path: str, chosen: str) -> None:
    ((_, text),) = (await read_pages(ADDRESSES, path)).values()
    assert re.findall(r'aria-current="page">([^<]+)<', text) == [chosen]


def test_every_template_escapes() -> None:
    environment = build_environment()
    assert environment.autoescape is True
    for name in environment.list_templates():
        source, _, _ = environment.loader.get_source(environment, name)  # type: ignore[union-attr]
        assert "|safe" not in source.replace(" ", "")
        assert "autoescape" not in source


# Whatever there is in a fleet


async def read_pages(found: Snapshot, *paths: str) -> dict[str, tuple[int, str]]:
    """Return the status and the text of each page over a fleet."""

    async def read() -> Snapshot:
        return found

    async with (
        TestServer(Page(Snapshots(read)).build_app()) as server,
        aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session,
    ):
        pages = {}
        for path in paths:
            async with session.get(path) as answer:
                pages[path] = answer.status, await answer.text()
    return pages


@pytest.mark.parametrize("name", FLEETS)
async def test_every_page_shows_every_fleet(name: str) -> None:
    found = FLEETS[name]
    ranges = [f"/range?name={each.name}" for each in found.inventory.ranges.all()]
    guests = list(dict.fromkeys(each.namespace for each in found.inventory.floating_ips.all()))
    pages = await read_pages(
        found,
        *("/", "/?all=1", "/floating-ips", "/guests", "/guests?reachable=no", "/search", "/rollout"),
        # One of many that differ by their condition alone: a number that is prime to those of what differs beside it.
        *(f"/guest?id={each}" for each in guests[:: 7 if len(guests) > 50 else 1]),
        *(f"/floating-ips?ready={each.value}" for each in Verdict),
        *(f"/search?q={each}" for each in ASKED),
        *(*ranges, *(f"{each}&block=10.7.7.0/24" for each in ranges)),
    )
    assert {
        path: status for path, (status, text) in pages.items() if status != 200 or "<nav" not in text
    } == {}


async def test_each_condition_that_is_wrong_is_on_the_overview_and_on_the_pages_of_its_objects() -> None:
    # A table has PAGE_ROWS rows.
    for cases in (CASES[::2], CASES[1::2]):
        await check_overview(cases)


async def check_overview(cases: Sequence[Case]) -> None:
    pages = await read_pages(build_conditions(cases), "/?all=1", "/guests", "/floating-ips")
    (_, overview), *others = pages.values()
    wrong = {each for each in cases if not each.is_good}
    assert {each for each in wrong if each.message not in overview} == set()
    # The page of a guest cluster shows Ready by its reason, and these pages show PAGE_ROWS rows.
    shown = {each for each in wrong if each.type != "Ready" and each.reason}
    for _, text in others:
        assert {each for each in shown if f"{each.type}={each.status}" not in text} == set()
    assert {each.message for each in RANGE_CASES} <= set(
        re.findall(r"Message \d+ has the remedy\.", overview)
    )


async def test_the_map_has_a_cell_of_each_state() -> None:
    pages = await read_pages(
        ADDRESSES, *(f"/range?name={each.name}" for each in ADDRESSES.inventory.ranges.all())
    )
    cells = {each for _, text in pages.values() for each in re.findall(r'class="cell ([a-z-]+)" href', text)}
    outside = {
        each for _, text in pages.values() for each in re.findall(r'class="cell (outside)" title', text)
    }
    assert cells | outside == set(CellState)


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/nothing", 404, "This page does not exist."),
        ("/range?name=nowhere", 404, "Range &#34;nowhere&#34; does not exist."),
        ("/range?name=states&block=1.2.3.4/5", 404, "Range &#34;states&#34; has no such block."),
    ],
)
async def test_what_is_not_there_is_a_sentence_with_the_navigation(
    path: str, status: int, sentence: str
) -> None:
    ((found, text),) = (await read_pages(ADDRESSES, path)).values()
    assert (found, f"<p>{sentence}</p>" in text, "<nav" in text) == (status, True, True)


async def test_an_unforeseen_error_is_a_page_and_a_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster()
    cluster.error = RuntimeError("boom")
    app = Page(Snapshots(cluster.read)).build_app()
    async with (
        TestServer(app) as server,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{server.port}/guests") as answer,
    ):
        text = await answer.text()
    assert (answer.status, "Content-Security-Policy" in answer.headers) == (500, True)
    assert ("<nav" in text, "The log of fipop web has the cause." in text, "boom" in text) == (
        True,
        True,
        False,
    )
    (record,) = (each for each in caplog.records if each.name.startswith("fipop"))
    assert (record.exc_info is not None, "boom" in caplog.text) == (True, True)
