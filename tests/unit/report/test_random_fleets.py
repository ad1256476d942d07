"""Random fleets: commands, web UI and metrics agree with an independent reading of the objects.

Spaces, overlaps, quarantine, draining, exclusions, both families, and readers who may not read everything.
"""

import asyncio
import ipaddress
import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from fipop.cli.main import main
from fipop.interfaces import ApiRequest
from fipop.kube.client import KubeClient
from fipop.kube.resources import (
    FLOATING_IP_RANGES,
    FLOATING_IP_RESERVATIONS,
    FLOATING_IPS,
    PROVISIONING_CLUSTERS,
    Resource,
)
from fipop.report.page.app import Page
from fipop.report.page.snapshots import Snapshots
from fipop.report.reading import read_snapshot
from tests.golden.fleet_server import NOW, Fleet
from tests.harness.api_in_memory import Response, respond
from tests.harness.healthy_operator import build_healthy_operator
from tests.harness.invariants.view import Ip, View, excluded_by, pool_of, space_of_range, written_by
from tests.harness.objects import (
    Json,
    build_floating_ip,
    build_range,
    build_reservation,
    count_ranges,
)
from tests.unit.report.snapshots import build_cluster

EXAMPLES = 30 if settings().derandomize else 300
"""`make test` takes a tenth and always the same, `make night` fresh ones."""

V4 = [ipaddress.ip_address(f"10.0.0.{number}") for number in range(18)]
V6 = [ipaddress.ip_address("fd00::") + number for number in range(10)]
EVERYWHERE = (*V4, *V6)
SPACES = ("default", "lab")
GUESTS = ("c-m-1", "c-m-2", "c-m-3")
RANGES = ("alpha", "beta", "gamma")
_PARTS = (
    *("10.0.0.0/29", "10.0.0.4-10.0.0.9", "10.0.0.12", "10.0.0.1-10.0.0.2", "10.0.0.8/30"),
    *("fd00::/126", "fd00::2-fd00::5", "fd00::8"),
)
_EXCLUDED = ("10.0.0.5", "10.0.0.1-10.0.0.2", "fd00::3", "10.0.0.12")
LISTED = (FLOATING_IP_RANGES, FLOATING_IPS, FLOATING_IP_RESERVATIONS, PROVISIONING_CLUSTERS)


@dataclass(frozen=True, slots=True)
class World:
    """Objects as an API server serves them, and what the reader may not read."""

    ranges: tuple[Json, ...]
    floating_ips: tuple[Json, ...]
    reservations: tuple[Json, ...]
    refused: frozenset[Resource]

    def objects(self) -> dict[str, list[Json]]:
        """Return what is served, by the path of its collection."""
        clusters = [build_cluster(f"cluster-{each}", each) for each in GUESTS]
        ranges = count_ranges(self.ranges, self.floating_ips, self.reservations)
        served = zip(LISTED, (ranges, self.floating_ips, self.reservations, clusters), strict=True)
        return build_healthy_operator() | {each.path(): _complete(each, found) for each, found in served}

    @property
    def book(self) -> View:
        return View(self.ranges, self.floating_ips, self.reservations)

    def may_read(self, *resources: Resource) -> bool:
        return self.refused.isdisjoint(resources)


@st.composite
def ranges(draw: st.DrawFn) -> tuple[Json, ...]:
    found = []
    for name in draw(st.lists(st.sampled_from(RANGES), unique=True)):
        parts = draw(st.lists(st.sampled_from(_PARTS), min_size=1, max_size=3, unique=True))
        spec: dict[str, Any] = {"addressSpace": draw(st.sampled_from(SPACES))}
        if draw(st.integers(0, 4)) == 0:
            spec["draining"] = True
        if draw(st.integers(0, 2)) == 0:
            spec["exclude"] = [draw(st.sampled_from(_EXCLUDED))]
        if draw(st.booleans()):
            spec["searchOrder"] = "desc"
        created = f"2026-01-0{draw(st.integers(1, 3))}T00:00:00Z"
        used = draw(st.lists(st.tuples(st.sampled_from(EVERYWHERE), st.sampled_from(GUESTS)), max_size=3))
        reported = [{"address": str(address), "guest": guest} for address, guest in used]
        found.append(
            build_range(name, ",".join(parts), created=created, **spec) | {"status": {"reported": reported}}
        )
    return tuple(found)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    found = draw(ranges())
    own = {each["metadata"]["name"]: space_of_range(each) for each in found}
    reservations = {}
    for address in draw(st.lists(st.sampled_from(EVERYWHERE), max_size=12)):
        name = draw(st.sampled_from((*RANGES, "gone")))
        # Seldom in another space than the range's own: the range was made again.
        space = own.get(name, "default") if draw(st.integers(0, 9)) else draw(st.sampled_from(SPACES))
        until = {"quarantined_until": "2026-03-02T00:00:00Z"} if draw(st.integers(0, 3)) == 0 else {}
        guest, owner = draw(st.sampled_from(GUESTS)), draw(st.sampled_from(("web", "api")))
        reservations[space, address] = build_reservation(
            str(address), owner, namespace=guest, range_name=name, space=space, **until
        )
    floating_ips = []
    for guest, name in draw(
        st.lists(st.tuples(st.sampled_from(GUESTS), st.sampled_from(("web", "api"))), unique=True, max_size=5)
    ):
        range_name = draw(st.sampled_from((*RANGES, "gone")))
        addresses = [
            str(each) for each in draw(st.lists(st.sampled_from(EVERYWHERE), max_size=2, unique=True))
        ]
        status: Json = {}
        if draw(st.booleans()):
            status = {
                "addresses": addresses,
                "range": range_name,
                "addressSpace": own.get(range_name, "default"),
                "observedGeneration": 1,
                "conditions": [_ready(draw(st.sampled_from(("True", "False"))))],
            }
        floating_ips.append(
            build_floating_ip(
                name,
                namespace=guest,
                ipaddress=",".join(addresses),
                annotations={"fiprange": range_name},
                status=status,
            )
        )
    refused = draw(st.sets(st.sampled_from(LISTED), max_size=2)) if draw(st.integers(0, 3)) == 0 else set()
    return World(found, tuple(floating_ips), tuple(reservations.values()), frozenset(refused))


def _ready(status: str) -> Json:
    return {
        "type": "Ready",
        "status": status,
        "reason": "Ready" if status == "True" else "RangeFull",
        "message": "",
        "lastTransitionTime": "2026-02-01T00:00:00Z",
    }


def _complete(resource: Resource, objects: Iterable[Json]) -> list[Json]:
    return [{"apiVersion": resource.api_version, "kind": resource.kind, **each} for each in objects]


class Server:
    """Shows one world after the other, and runs what reads it."""

    def __init__(self) -> None:
        self._fleet = Fleet("today", has_crds=False)
        self._fleet.closed_namespaces = frozenset()

    async def close(self) -> None:
        """Nothing is open between two requests."""

    @asynccontextmanager
    async def send(self, request: ApiRequest) -> AsyncIterator[Response]:
        """Answer a request, as `fipop.interfaces.ApiServer` describes it."""
        if request.method == "POST":
            yield respond(201, self._fleet.review(request.body), NOW)
        else:
            selectors = filter(None, [dict(request.query).get("labelSelector")])
            yield respond(*self._fleet.read(request.path, selectors), NOW)

    @asynccontextmanager
    async def connect(self, _reading: object = None) -> AsyncIterator[KubeClient]:
        async with KubeClient(self) as client:
            yield client

    def _show(self, world: World) -> None:
        self._fleet.management = world.objects()
        self._fleet.refused = frozenset(each.path() for each in world.refused)

    def run(self, world: World, *arguments: str) -> tuple[int, Any]:
        """Return how a command ends, and its JSON."""
        self._show(world)
        result = CliRunner().invoke(main, [*arguments, "-o", "json"], prog_name="fipop")
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, json.loads(result.stdout) if result.stdout.strip() else None

    def page(self, world: World, *paths: str) -> list[str]:
        """Return what the web UI answers."""
        self._show(world)

        async def read() -> list[str]:
            async with self.connect() as client:
                snapshots = Snapshots(lambda: read_snapshot(client, namespace="kube-fip"))
                async with TestServer(Page(snapshots).build_app()) as served:
                    base = f"http://127.0.0.1:{served.port}"
                    async with aiohttp.ClientSession(base) as session:
                        found = [await (await session.get(path)).text() for path in paths]
                await snapshots.close()
            return found

        return asyncio.run(read())


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    found = Server()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fipop.cli.reading.ReadingOptions.connect", found.connect)
        yield found


# Who has an address


@settings(max_examples=EXAMPLES)
@given(
    world=worlds(),
    asked=st.lists(st.sampled_from(EVERYWHERE), min_size=1, max_size=3, unique=True),
    guest=st.sampled_from(GUESTS),
    name=st.sampled_from(RANGES),
    version=st.sampled_from((None, 4, 6)),
)
def test_who_and_free_say_what_the_objects_say(
    server: Server, world: World, asked: list[Ip], guest: str, name: str, version: int | None
) -> None:
    check_addresses(server, world, asked)
    check_guest(server, world, guest)
    check_free(server, world, name, version)


def check_addresses(server: Server, world: World, asked: list[Ip]) -> None:
    """`who` says of an address what the objects say."""
    book = world.book
    for address in asked:
        code, found = server.run(world, "who", str(address))
        told = {each["space"]: each for each in found["addresses"]}
        assert {each["what"] for each in found["unread"]} == unread_of(world)
        if not world.may_read(FLOATING_IP_RANGES, FLOATING_IP_RESERVATIONS, FLOATING_IPS):
            for space, each in told.items():
                is_held = (space, address) in book.held
                assert each["state"] in {"unknown", book.state(space, address)[0] if is_held else "named"}
            assert code == 4
            continue
        known = {space: book.state(space, address) for space in book.spaces()}
        known = {space: state for space, state in known.items() if state[0] != "unknown"}
        assert {space: each["state"] for space, each in told.items() if each["state"] != "unknown"} == {
            space: state for space, (state, _) in known.items()
        }
        for space, (state, range_name) in known.items():
            each = told[space]
            if state != "named":
                assert each["range"] == range_name
            holder = book.holder(space, address)
            owner = each["owner"] and (each["owner"]["namespace"], each["owner"]["name"])
            assert owner == (holder[0] if holder else None)
            assert each["outOfRange"] is (state == "held" and not _is_given(book, range_name, address, space))
            assert {(one["namespace"], one["name"]) for one in each["contenders"]} == book.others(
                space, address
            )
            having = book.others(space, address) | ({owner} if state != "quarantined" else set())
            requested_by = {(one["namespace"], one["name"]) for one in each["requestedBy"]}
            assert requested_by == book.asking(space, address) - having
        assert code == (4 if world.refused else 0 if known else 1)


def _is_given(book: View, range_name: str, address: Ip, space: str) -> bool:
    found = book.range(range_name)
    return found is not None and space_of_range(found) == space and address in book.given(found)


def check_guest(server: Server, world: World, guest: str) -> None:
    """`who` says of a guest cluster each of its addresses once."""
    _, found = server.run(world, "who", guest)
    told = [(each["space"], ipaddress.ip_address(each["address"])) for each in found["addresses"]]
    assert len(told) == len(set(told))
    if world.may_read(FLOATING_IP_RANGES, FLOATING_IP_RESERVATIONS, FLOATING_IPS):
        assert set(told) == world.book.of_guest(guest)


# How full ranges are


@settings(max_examples=EXAMPLES)
@given(world=worlds())
def test_status_check_and_web_ui_say_the_same(server: Server, world: World) -> None:
    status, check = server.run(world, "status"), server.run(world, "check")
    overview, *pages = server.page(
        world, "/", *(f"/range?name={each['metadata']['name']}" for each in world.ranges)
    )
    check_counts(world, status[1], overview)
    check_problems(world, status, check)
    check_ready(world, *check)
    check_tables(world, pages)


def check_counts(world: World, status: Any, page: str) -> None:
    """Status and web UI count ranges alike."""
    book = world.book
    cells = re.findall(r'data-range="([^"]+)" data-family="([^"]*)" data-free="([^"]*)"', page)
    rows = {(name, family): free for name, family, free in cells}
    assert {each["what"] for each in status["unread"]} >= unread_of(world)
    if not world.may_read(FLOATING_IP_RANGES):
        assert status["ranges"] == []
        assert not rows
        assert "NoRange" not in {each["reason"] for each in status["problems"]}
        return
    told = {each["name"]: each for each in status["ranges"]}
    assert set(told) == {name for name, _ in rows} == {each["metadata"]["name"] for each in world.ranges}
    for each in world.ranges:
        name = each["metadata"]["name"]
        assert told[name]["percent"] == book.percent(each)
        for family, version in (("ipv4", 4), ("ipv6", 6)):
            wanted = book.usage(each, version)
            wanted["total"] = wanted["used"] + wanted["quarantined"] + wanted["free"]
            assert told[name][family] == dict(wanted)
            assert rows.get((name, f"IPv{version}"), "0") == str(wanted["free"])
    assert full_ranges(status) == {
        each["metadata"]["name"]
        for each in world.ranges
        if book.is_full(each) and not each["spec"].get("draining")
    }


def full_ranges(status: Any) -> set[str]:
    return {each["name"] for each in status["problems"] if each["reason"] == "Full"}


def check_problems(world: World, status_result: tuple[int, Any], check_result: tuple[int, Any]) -> None:
    """What `status` calls wrong, `check` calls wrong."""
    (status_code, status), (check_code, check) = status_result, check_result
    critical = [each for each in status["problems"] if each["severity"] == "critical"]
    failed = [each for each in check["checks"] if each["severity"] == "critical"]
    assert check["passed"] is (False if failed else None if world.refused else True)
    assert len(failed) == len(critical)
    assert {each["message"] for each in failed} == {each["message"] for each in critical}
    assert status_code == {False: 1, None: 4, True: 0}[status["healthy"]]
    assert check_code == (1 if failed else 4 if world.refused else 0)
    assert {each["what"] for each in check["unread"]} >= unread_of(world)
    if world.may_read(FLOATING_IP_RESERVATIONS, FLOATING_IPS):
        twice = {each["name"] for each in status["problems"] if each["reason"] == "Duplicate"}
        assert twice == set(_had_twice(world.book))


def check_ready(world: World, code: int, check: Any) -> None:
    """A fleet that the operator calls ready passes the check."""
    book = world.book
    failed = {(each["kind"], each["name"]) for each in check["checks"] if each["severity"] == "critical"}
    ready = {
        f"{each['metadata']['namespace']}/{each['metadata']['name']}"
        for each in world.floating_ips
        if any(one["status"] == "True" for one in (each["status"] or {}).get("conditions", ()))
    }
    assert not {name for kind, name in failed if kind == "FloatingIP"} & ready
    is_ready = len(ready) == len(world.floating_ips) and not any(_had_twice(book))
    if is_ready and not any(map(book.is_full, world.ranges)):
        assert {kind for kind, _ in failed} <= {"Guest"}, "those that have no floating IP"
        assert code == (1 if failed else 4 if world.refused else 0)


def _had_twice(book: View) -> Iterator[str]:
    for space, address in {*book.held, *book.named}:
        holder = book.holder(space, address)
        if holder is not None and not holder[2] and len(book.having(space, address)) > 1:
            yield str(address)


# What is free


def check_free(server: Server, world: World, name: str, version: int | None) -> None:
    """`free` offers what nobody has, in the order of the range."""
    book = world.book
    arguments = ("free", name, "--count", "20", *(("--family", f"IPv{version}") if version else ()))
    code, found = server.run(world, *arguments)
    asked = book.range(name)
    if not world.may_read(FLOATING_IP_RANGES) or asked is None:
        assert code == (1 if world.may_read(FLOATING_IP_RANGES) else 4)
        assert found is None or not found["addresses"]
        return
    assert {each["what"] for each in found["unread"]} == unread_of(world)
    if not world.may_read(FLOATING_IP_RESERVATIONS, FLOATING_IPS):
        assert code == 4
        assert (found["addresses"], found["free"], found["used"]) == ([], None, None)
        return
    wanted = [str(each) for each in book.next_free(asked, version)]
    assert found["addresses"] == wanted
    assert found["free"] == len(wanted)
    assert code == (4 if world.refused and wanted else 0 if wanted else 1)


# The web UI


def check_tables(world: World, pages: list[str]) -> None:
    """Tables and maps of the web UI show what `who` says."""
    book = world.book
    if not world.may_read(FLOATING_IP_RANGES, FLOATING_IP_RESERVATIONS, FLOATING_IPS):
        for text in pages:
            assert {*_rows(text).values()} <= {"held", "quarantined", "named", "unknown"}
        return
    for each, text in zip(world.ranges, pages, strict=True):
        name, rows = each["metadata"]["name"], _rows(text)
        used = [(space, address) for space in book.spaces() for address in book.taken(space)]
        taken = {key: book.state(*key) for key in used}
        assert rows.items() <= {key: state for key, (state, _) in taken.items()}.items()
        assert rows.keys() >= {key for key, (_, found) in taken.items() if found == name}
        for state, address in re.findall(r'class="cell ([a-z-]+)" [^>]*data-address="([^"]+)"', text):
            assert state == _cell(book, each, ipaddress.ip_address(address)), address


_ROW = re.compile(
    r'<tr><td><a href="search[^>]*>([^<]+)</a></td>\n<td><span class="badge [^>]*>([a-z]+)</span></td>\n'
    r"(?:<td[^>]*>.*</td>\n){3}<td[^>]*>([^<]+)</td>"
)


def _rows(text: str) -> dict[tuple[str, Ip], str]:
    """Return the states of the addresses in the table of a range, by space and address."""
    return {(space, ipaddress.ip_address(address)): state for address, state, space in _ROW.findall(text)}


def _cell(book: View, found: Json, address: Ip) -> str:
    name, space = found["metadata"]["name"], space_of_range(found)
    holder, given_here = book.holder(space, address), book.given(found)
    is_in_pool, is_written = address in pool_of(found), address in written_by(found)
    rest = "excluded" if address in excluded_by(found) else "end"
    if not is_written or (is_in_pool and address not in given_here):
        rest = "other-range" if is_in_pool else "outside"
    if holder is None:
        is_free = address in given_here and not found["spec"].get("draining")
        return "free" if is_free else "excluded" if address in given_here else rest
    if len(book.having(space, address)) > 1:
        return "conflict"
    _, range_name, is_released = holder
    if range_name != name:
        return "other-range" if is_in_pool else rest
    if is_released:
        return "reported" if (space, address) in book.reported else "quarantined"
    return "held" if address in given_here else "out-of-range"


def unread_of(world: World) -> set[str]:
    """Return how reports name what may not be read."""
    words = {
        FLOATING_IP_RANGES: "floating IP ranges",
        FLOATING_IPS: "floating IPs",
        FLOATING_IP_RESERVATIONS: "reservations",
        PROVISIONING_CLUSTERS: "Rancher's clusters",
    }
    return {words[each] for each in world.refused}
