"""The metrics as they are scraped: legacy names to the letter, series that vanish, a port that moves."""

import asyncio
import re
import socket
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from fipop.metrics import (
    FleetSnapshot,
    GuestEvent,
    GuestSample,
    Metrics,
    MetricsPage,
    MetricsPortError,
    MetricsServer,
    PoolSample,
    RangeSample,
    RolloutSample,
    ServiceMetrics,
    ServiceSnapshot,
)

RANGE = RangeSample(
    name="guest-vlan",
    iprange="10.135.10.192/26",
    harvester_cluster="harv1",
    harvester_network="vlan10",
    capacity=62,
    used=3,
    quarantined=1,
    out_of_range=2,
)
GUEST = GuestSample(
    guest="c-m-4xk8q2vz", cluster="demo", harvester_cluster="harv1", reachable=True, last_pass=1.5e9
)
FLEET = FleetSnapshot(
    leading=True,
    ranges=(RANGE,),
    guests=(GUEST,),
    queue_depths={"guests": 7},
    bad_options=2,
    predecessor_runs=True,
    withheld_releases=40,
    floating_ips={"True": 3, "False": 1, "Unknown": 0},
    gives_out=True,
    install_queue=12,
    rollout=RolloutSample(target="c0ffee", state="Wave", guests={"pending": 9, "upgrading": 2}),
    last_answer=1.5e9,
)


class Fleet:
    """A fleet that a test changes between two scrapes."""

    def __init__(self) -> None:
        self.snapshot = FLEET
        self.metrics = Metrics(lambda: self.snapshot, version="1.2.3")

    def lines(self, prefix: str) -> list[str]:
        """Give what a scrape shows of the metrics that begin so, without the comments."""
        return [line for line in self.metrics.render().decode().splitlines() if line.startswith(prefix)]


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def test_the_four_metrics_that_users_scrape_are_there_to_the_letter(fleet: Fleet) -> None:
    for event in GuestEvent:
        fleet.metrics.count_guest_event("demo", "harv1", event, True)
    fleet.metrics.count_guest_event("demo", "harv1", GuestEvent.API_CONNECTION, False)
    fleet.metrics.count_guest_event("demo", "harv1", GuestEvent.API_CONNECTION, True)

    assert sorted(fleet.lines("kubefipoperator_")) == sorted(
        [
            (
                'kubefipoperator_fipranges_capacity{fiprange="10.135.10.192/26",fiprangename="guest-vlan",'
                'harvesterclustername="harv1",harvesternetworkname="vlan10"} 62.0'
            ),
            (
                'kubefipoperator_fipranges_reserved{fiprange="10.135.10.192/26",fiprangename="guest-vlan",'
                'harvesterclustername="harv1",harvesternetworkname="vlan10"} 4.0'
            ),
            'kubefipoperator_guestcluster_status{guestclustername="demo",harvesterclustername="harv1"} 1.0',
            *(
                f'kubefipoperator_guestcluster_events{{event="{event}",guestclustername="demo",'
                f'harvesterclustername="harv1",status="{status}"}} {count}'
                for event, status, count in (
                    ("api_connection", "success", "2.0"),
                    ("api_connection", "error", "1.0"),
                    ("configmap_management", "success", "1.0"),
                    ("kubevip_install", "success", "1.0"),
                    ("kubevipcloudprovider_install", "success", "1.0"),
                )
            ),
        ]
    )


def test_the_legacy_counter_has_no_total_in_any_line_and_is_a_counter(fleet: Fleet) -> None:
    fleet.metrics.count_guest_event("demo", "harv1", GuestEvent.CONFIG_MAP, True)

    text = fleet.metrics.render().decode()

    assert "# TYPE kubefipoperator_guestcluster_events counter\n" in text
    assert "# HELP kubefipoperator_guestcluster_events " in text
    assert "kubefipoperator_guestcluster_events_total" not in text


def test_reserved_leaves_what_can_be_given_out_now(fleet: Fleet) -> None:
    assert fleet.lines("fipop_range_addresses") == [
        'fipop_range_addresses{range="guest-vlan",state="used"} 3.0',
        'fipop_range_addresses{range="guest-vlan",state="free"} 58.0',
        'fipop_range_addresses{range="guest-vlan",state="quarantined"} 1.0',
        'fipop_range_addresses{range="guest-vlan",state="out_of_range"} 2.0',
    ]


def test_every_series_vanishes_with_its_object(fleet: Fleet) -> None:
    fleet.metrics.count_guest_event("demo", "harv1", GuestEvent.API_CONNECTION, True)
    fleet.snapshot = FleetSnapshot(leading=True)

    assert fleet.lines("kubefipoperator_") == []
    assert fleet.lines("fipop_range_addresses{") == []
    assert fleet.lines("fipop_guest_last_pass_timestamp_seconds{") == []
    assert fleet.lines("fipop_guests{") == [
        'fipop_guests{state="reachable"} 0.0',
        'fipop_guests{state="unreachable"} 0.0',
        'fipop_guests{state="unknown"} 0.0',
    ]


def test_a_guest_that_comes_back_under_its_name_counts_from_zero(fleet: Fleet) -> None:
    fleet.metrics.count_guest_event("demo", "harv1", GuestEvent.API_CONNECTION, True)
    fleet.metrics.count_guest_event("shop", "harv1", GuestEvent.API_CONNECTION, True)
    fleet.snapshot = replace(FLEET, guests=(GUEST, replace(GUEST, cluster="shop")))

    fleet.metrics.forget_guest("demo")

    assert [
        line.rpartition("guestclustername=")[2] for line in fleet.lines("kubefipoperator_guestcluster_events")
    ] == ['"shop",harvesterclustername="harv1",status="success"} 1.0']


def test_the_legacy_metrics_are_the_leaders_alone(fleet: Fleet) -> None:
    fleet.metrics.count_guest_event("demo", "harv1", GuestEvent.API_CONNECTION, True)
    fleet.snapshot = replace(FLEET, leading=False)

    assert "kubefipoperator" not in fleet.metrics.render().decode()
    assert fleet.lines("fipop_leader") == ["fipop_leader 0.0"]

    fleet.snapshot = FLEET
    assert fleet.lines("fipop_leader") == ["fipop_leader 1.0"]
    assert len(fleet.lines("kubefipoperator_")) == 4


def test_an_unreachable_guest_shows_zero_and_one_not_yet_tried_shows_nothing(fleet: Fleet) -> None:
    fleet.snapshot = replace(
        FLEET, guests=(replace(GUEST, reachable=False), replace(GUEST, cluster="new", reachable=None))
    )

    assert fleet.lines("kubefipoperator_guestcluster_status") == [
        'kubefipoperator_guestcluster_status{guestclustername="demo",harvesterclustername="harv1"} 0.0'
    ]
    assert 'fipop_guests{state="unknown"} 1.0' in fleet.lines("fipop_guests")


def test_namesakes_of_two_workspaces_share_a_series_that_is_up_only_if_both_are(fleet: Fleet) -> None:
    for states, shown in (
        ((True, False), "0.0"),
        ((False, True), "0.0"),
        ((True, True), "1.0"),
        ((None, True), "1.0"),
    ):
        fleet.snapshot = replace(
            FLEET, guests=tuple(replace(GUEST, guest=f"c-m-{n}", reachable=up) for n, up in enumerate(states))
        )
        assert fleet.lines("kubefipoperator_guestcluster_status") == [
            f'kubefipoperator_guestcluster_status{{guestclustername="demo",harvesterclustername="harv1"}} {shown}'
        ]


def test_what_happens_is_counted_in_base_units_with_total_on_counters_only(fleet: Fleet) -> None:
    metrics = fleet.metrics
    metrics.observe_queue_wait("guests", 0.2)
    metrics.observe_reconcile("FloatingIP", 0.1, success=False)
    metrics.observe_pass(2.0, success=True)
    metrics.observe_api_request("guest", "get", 404, 0.05)
    metrics.observe_api_request("management", "list", 0, 30)
    metrics.count_allocation("allocated")
    metrics.count_allocation("RangeFull")
    metrics.count_release("quarantined")
    metrics.count_helm_run("upgrade", success=False)

    shown = "\n".join(fleet.lines("fipop_"))
    for line in (
        'fipop_queue_wait_seconds_sum{queue="guests"} 0.2',
        'fipop_reconcile_duration_seconds_count{kind="FloatingIP"} 1.0',
        'fipop_reconcile_errors_total{kind="FloatingIP"} 1.0',
        'fipop_pass_duration_seconds_sum{result="success"} 2.0',
        'fipop_api_requests_total{code="4xx",target="guest",verb="get"} 1.0',
        'fipop_api_requests_total{code="0",target="management",verb="list"} 1.0',
        'fipop_allocations_total{result="allocated"} 1.0',
        'fipop_allocations_total{result="RangeFull"} 1.0',
        'fipop_address_releases_total{result="quarantined"} 1.0',
        'fipop_helm_runs_total{command="upgrade",result="error"} 1.0',
        'fipop_queue_depth{queue="guests"} 7.0',
        'fipop_floating_ips{ready="False"} 1.0',
        "fipop_allocation_open 1.0",
        "fipop_install_queue 12.0",
        'fipop_rollout_guests{phase="pending"} 9.0',
        'fipop_rollout_info{state="Wave",target="c0ffee"} 1.0',
        "fipop_api_last_answer_timestamp_seconds 1.5e+09",
        "fipop_settings_bad_options 2.0",
        "fipop_predecessor_running 1.0",
        "fipop_withheld_releases 40.0",
        'fipop_guest_last_pass_timestamp_seconds{guest="c-m-4xk8q2vz",guest_cluster="demo"} 1.5e+09',
    ):
        assert line in shown
    assert 'version="1.2.3"' in shown
    assert "_created" not in shown
    types = dict(re.findall(r"^# TYPE (fipop_\S+) (\S+)$", metrics.render().decode(), re.MULTILINE))
    assert {name for name, kind in types.items() if kind == "counter"} == {
        name for name in types if name.endswith("_total")
    }


def test_the_documentation_names_every_metric_with_its_type(fleet: Fleet) -> None:
    page = Path(__file__).parents[2].joinpath("docs/metrics.md").read_text()
    operators, _, providers = page.partition("## The cloud provider's")
    services = ServiceMetrics(lambda: ServiceSnapshot(leading=True), version="1.2.3")
    for section, shown in ((operators, fleet.metrics.render()), (providers, services.prepare()())):
        types = re.findall(r"^# TYPE ((?:fipop|kubefipoperator)_\S+) (\S+)$", shown.decode(), re.MULTILINE)
        assert len(types) > 9
        assert sorted(re.findall(r"^\| `(\w+)` \| (\w+) \|", section, re.MULTILINE)) == sorted(types)


def test_the_pools_of_a_guest_are_shown_by_their_keys() -> None:
    pool = PoolSample(key="cidr-shop", family="IPv6", total=9, used=4)
    shown = ServiceSnapshot(leading=True, pools=(pool,), waiting=3, bad_keys=1, ledger_entries=4)
    metrics = ServiceMetrics(lambda: shown, version="1.2.3")
    metrics.count_assignment("PoolFull")
    metrics.observe_assignment(0.2)
    text = metrics.prepare()().decode()
    for line in (
        'fipop_service_pool_addresses{family="IPv6",key="cidr-shop"} 9.0',
        'fipop_service_pool_used{family="IPv6",key="cidr-shop"} 4.0',
        'fipop_service_pool_free{family="IPv6",key="cidr-shop"} 5.0',
        "fipop_services_waiting 3.0",
        "fipop_service_bad_keys 1.0",
        "fipop_service_ledger_addresses 4.0",
        'fipop_service_assignments_total{result="PoolFull"} 1.0',
        "fipop_service_assignment_seconds_count 1.0",
        "fipop_leader 1.0",
    ):
        assert line in text
    assert "_created" not in text


def test_the_process_and_its_runtime_are_shown_too(fleet: Fleet) -> None:
    assert fleet.lines("process_resident_memory_bytes ")
    assert fleet.lines("python_gc_collections_total{")
    assert fleet.lines("python_info{")


def test_two_sets_of_metrics_in_one_process_do_not_meet() -> None:
    first, second = Fleet(), Fleet()
    first.metrics.count_allocation("allocated")

    assert first.lines("fipop_allocations_total{")
    assert not second.lines("fipop_allocations_total{")


LABELS = st.text(alphabet=st.characters(categories=None), max_size=30) | st.sampled_from(
    [
        '"',
        "\\",
        "\n",
        "\ud800",
        "# TYPE kubefipoperator_guestcluster_events_total counter",
        "\r\n\x00\x85\u2028",
    ]
)


@given(LABELS, LABELS, LABELS)
def test_whatever_people_write_in_names_the_text_stays_legal(name: str, cluster: str, harvester: str) -> None:
    fleet = Fleet()
    fleet.snapshot = replace(
        FLEET,
        ranges=(replace(RANGE, name=name, iprange=name, harvester_cluster=harvester),),
        guests=(replace(GUEST, cluster=cluster, harvester_cluster=harvester),),
    )
    fleet.metrics.count_guest_event(cluster, harvester, GuestEvent.API_CONNECTION, True)

    families = {
        family.name: family for family in text_string_to_metric_families(fleet.metrics.render().decode())
    }

    for legacy in ("fipranges_capacity", "fipranges_reserved", "guestcluster_status", "guestcluster_events"):
        assert len(families[f"kubefipoperator_{legacy}"].samples) == 1


@pytest.fixture
async def server(fleet: Fleet) -> AsyncIterator[MetricsServer]:
    server = MetricsServer(MetricsPage(fleet.metrics.prepare), host="127.0.0.1")
    yield server
    await server.stop()


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def url(port: int) -> str:
    return f"http://127.0.0.1:{port}/metrics"


async def test_a_scrape_is_answered_in_the_text_format_whatever_it_asks_for(
    server: MetricsServer, client: aiohttp.ClientSession
) -> None:
    port = free_port()
    await server.listen(port)

    for accept in ("application/openmetrics-text;version=1.0.0", "text/plain;version=1.0.0", "*/*"):
        async with client.get(url(port), headers={"Accept": accept}) as answer:
            assert answer.status == 200
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            assert "kubefipoperator_guestcluster_status{" in await answer.text()
    async with client.get(f"http://127.0.0.1:{port}/other") as answer:
        assert answer.status == 404


async def test_the_port_moves_and_the_old_one_is_given_up(
    server: MetricsServer, client: aiohttp.ClientSession
) -> None:
    old, new = free_port(), free_port()
    await server.listen(old)
    async with client.get(url(old)) as answer:
        await answer.read()

    await server.listen(new)

    assert server.port == new
    async with client.get(url(new)) as answer:
        assert answer.status == 200
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.get(url(old))


async def test_a_port_that_is_taken_is_reported_and_the_old_one_stays(
    server: MetricsServer, client: aiohttp.ClientSession
) -> None:
    old = free_port()
    await server.listen(old)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]

        with pytest.raises(MetricsPortError, match=f"cannot listen on metrics port {taken}: ") as error:
            await server.listen(taken)

    assert error.value.port == taken
    assert server.port == old
    async with client.get(url(old)) as answer:
        assert answer.status == 200


async def test_a_first_port_that_is_taken_leaves_a_server_that_can_listen_elsewhere(
    server: MetricsServer, client: aiohttp.ClientSession
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        with pytest.raises(MetricsPortError):
            await server.listen(other.getsockname()[1])
        assert server.port is None

    port = free_port()
    await server.listen(port)
    async with client.get(url(port)) as answer:
        assert answer.status == 200


async def test_moves_at_the_same_time_leave_one_port_open(
    server: MetricsServer, client: aiohttp.ClientSession
) -> None:
    ports = [free_port() for _ in range(4)]

    await asyncio.gather(*(server.listen(port) for port in [*ports, ports[0], ports[0]]))

    answered = []
    for port in ports:
        try:
            async with client.get(url(port)) as answer:
                answered.append(port)
                assert answer.status == 200
        except aiohttp.ClientConnectionError:
            continue
    assert answered == [server.port]


async def test_after_the_stop_nothing_listens(server: MetricsServer, client: aiohttp.ClientSession) -> None:
    port = free_port()
    await server.listen(port)

    await server.stop()

    with pytest.raises(aiohttp.ClientConnectionError):
        await client.get(url(port))


async def test_a_scrape_of_thousands_of_guests_costs_the_loop_milliseconds() -> None:
    """It took 0.9 s, in which nothing else happened: no pass, no probe, no renewal of the lease."""
    fleet = Fleet()
    guests = [replace(GUEST, guest=f"c-m-{n:08}", cluster=f"cluster-{n}") for n in range(2000)]
    fleet.snapshot = replace(FLEET, guests=tuple(guests))
    for guest in guests:
        for event in GuestEvent:
            for success in (True, False):
                fleet.metrics.count_guest_event(guest.cluster, "harv1", event, success=success)
    longest, working = 0.0, True

    async def watch() -> None:
        nonlocal longest
        while working:
            began = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - began)

    server = MetricsServer(MetricsPage(fleet.metrics.prepare), host="127.0.0.1")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    await server.listen(port)
    watching = asyncio.create_task(watch())
    async with aiohttp.ClientSession() as session:
        for _ in range(3):
            async with session.get(f"http://127.0.0.1:{port}/metrics") as response:
                assert len(await response.read()) > 500_000
    working = False
    await watching
    await server.stop()
    assert longest < 0.1, "20 ms are the aim; a slow machine may take more, rendering it all takes a second"


async def test_scrapes_at_once_are_rendered_once() -> None:
    rendered = 0

    def prepare() -> Callable[[], bytes]:
        nonlocal rendered
        rendered += 1

        def render() -> bytes:
            time.sleep(0.3)
            return b"# nothing\n"

        return render

    server = MetricsServer(MetricsPage(prepare), host="127.0.0.1")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    await server.listen(port)
    async with aiohttp.ClientSession() as session:

        async def scrape() -> bytes:
            async with session.get(f"http://127.0.0.1:{port}/metrics") as response:
                return await response.read()

        assert set(await asyncio.gather(*(scrape() for _ in range(20)))) == {b"# nothing\n"}
    await server.stop()
    assert rendered == 1
