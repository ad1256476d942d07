"""Who leads when, in virtual time: candidates for one Lease, connections that fail and hang, machines that sleep."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

import pytest

from fipop.errors import StartError
from fipop.interfaces import ApiRequest
from fipop.kube.client import KubeClient
from fipop.runtime.leader_election import Annotate, LeaderElector, LeaseTimes
from tests.harness.api_in_memory import ApiInMemory, Json, Link
from tests.harness.virtual_time import in_virtual_time

NAMESPACE, NAME = "kube-fip", "fipop-operator"
KEY = "leases", NAMESPACE, NAME


def build_server() -> ApiInMemory:
    server = ApiInMemory()
    server.put(("namespaces", "", NAMESPACE), {"metadata": {"name": NAMESPACE}})
    return server


@dataclass
class Replica:
    """A process that takes part. Its machine slept for `slept` seconds more than those of others."""

    server: ApiInMemory
    name: str
    stop_seconds: float = 0.0
    slept: float = 0.0
    ended: bool = False
    """Whether it was ended at once."""
    starts: list[float] = field(default_factory=list)
    stops: list[float] = field(default_factory=list)
    told: dict[str, str] = field(default_factory=dict)
    annotate: Annotate | None = None

    def __post_init__(self) -> None:
        self.link = Link(self.server)
        self.elector = LeaderElector(
            KubeClient(self.link),
            namespace=NAMESPACE,
            name=NAME,
            identity=self.name,
            random=Random(1),
            clock=lambda: now() + self.slept,
            annotate=self.annotate or (lambda _found, _is_as_written: self.told),
            end=self._end,
        )

    @property
    def is_working(self) -> bool:
        return len(self.starts) > len(self.stops)

    def start(self) -> None:
        self.task = asyncio.create_task(self.elector.lead(self._work))

    async def stop(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError, StartError):
            await self.task

    async def _work(self) -> None:
        self.starts.append(now())
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(self.stop_seconds)
            self.stops.append(now())

    def _end(self) -> None:
        self.ended = True


def now() -> float:
    return asyncio.get_running_loop().time()


async def start_two(server: ApiInMemory, **options: float) -> tuple[Replica, Replica]:
    """The first one leads, the second stands by."""
    first, second = Replica(server, "first", **options), Replica(server, "second")
    first.start()
    await asyncio.sleep(5)
    second.start()
    await asyncio.sleep(45)
    assert (first.is_working, second.is_working) == (True, False)
    return first, second


async def until_working(replica: Replica, *, within: float) -> None:
    async with asyncio.timeout(within):
        while not replica.is_working:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.05)


def spec_of(server: ApiInMemory) -> Json:
    found: Json = server.objects[KEY]["spec"]
    return found


@in_virtual_time
async def test_a_second_order_to_stop_does_not_leave_the_work_behind() -> None:
    """SIGTERM while the lead is being lost: helm was left alone, and 5 s later the process counted as hanging."""
    replica = Replica(build_server(), "first", stop_seconds=3.0)
    replica.start()
    await until_working(replica, within=5)
    replica.task.cancel()
    await asyncio.sleep(1)
    await replica.stop()
    assert (replica.is_working, spec_of(replica.server)["holderIdentity"]) == (False, "")
    await asyncio.sleep(60)
    assert not replica.ended


@pytest.mark.parametrize("fault", ["away", "hanging"])
@in_virtual_time
async def test_a_leader_that_cannot_renew_for_eight_seconds_stops_and_ends_long_before_another_leads(
    fault: str,
) -> None:
    first, second = await start_two(build_server())

    async def fail(_request: ApiRequest) -> None:
        if fault == "away":
            raise ConnectionError("away")
        await asyncio.Event().wait()

    first.link.before = fail
    cut_at = now()
    await until_working(second, within=20)
    assert cut_at + 5 <= first.stops[0] <= cut_at + 8
    assert second.starts[0] >= first.stops[0] + 4
    with pytest.raises(StartError, match="was lost"):
        await first.task


@in_virtual_time
async def test_failures_of_renewal_for_five_seconds_stop_nothing_and_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = Replica(build_server(), "first")
    first.start()
    await asyncio.sleep(3)
    first.link.is_cut = True
    await asyncio.sleep(5)
    first.link.is_cut = False
    await asyncio.sleep(100)
    assert (len(first.starts), first.is_working) == (1, True)
    assert len([each for each in caplog.records if each.levelno >= logging.WARNING]) == 1


@in_virtual_time
async def test_an_api_server_that_takes_more_than_three_seconds_for_an_answer_has_a_leader_that_stays() -> (
    None
):
    replica = Replica(build_server(), "first")
    replica.link.before = lambda _request: asyncio.sleep(3.5)
    replica.start()
    await asyncio.sleep(300)
    assert (len(replica.starts), replica.is_working) == (1, True)


@pytest.mark.parametrize("loses", ["create", "replace"])
@in_virtual_time
async def test_a_write_with_a_lost_answer_is_found_to_be_ours(loses: str) -> None:
    replica = Replica(build_server(), "first")
    replica.link.lost[loses] = 1
    replica.start()
    await asyncio.sleep(20)
    assert (len(replica.starts), replica.is_working) == (1, True)


@in_virtual_time
async def test_a_quiet_renewal_is_one_request() -> None:
    replica = Replica(build_server(), "first")
    replica.start()
    await asyncio.sleep(1)
    replica.link.requests.clear()
    await asyncio.sleep(60)
    assert replica.link.requests == {("replace", "leases"): 30}


@in_virtual_time
async def test_a_machine_that_slept_past_the_lease_is_no_leader_from_its_first_instruction_on() -> None:
    first, _ = await start_two(build_server())
    assert first.elector.leads_for(5)
    first.slept += 60
    assert not first.elector.leads_for()
    await asyncio.sleep(3)
    assert (first.is_working, first.task.done()) == (False, True)


@in_virtual_time
async def test_a_look_ahead_ends_with_the_lease_and_not_with_the_last_renewal() -> None:
    replica = Replica(build_server(), "first")
    assert not replica.elector.leads_for()
    replica.start()
    await asyncio.sleep(0.1)
    assert replica.elector.leads_for(14)
    assert not replica.elector.leads_for(15)
    replica.link.is_cut = True
    await asyncio.sleep(6)
    assert replica.elector.leads_for(6)
    assert not replica.elector.leads_for(9)
    await replica.stop()
    assert not replica.elector.leads_for()


@in_virtual_time
async def test_a_lease_that_another_took_stops_the_work_at_the_next_renewal() -> None:
    server = build_server()
    first = Replica(server, "first")
    first.start()
    await asyncio.sleep(1)
    lease = server.objects[KEY]
    server.put(KEY, {**lease, "spec": {**lease["spec"], "holderIdentity": "somebody"}})
    await asyncio.sleep(3)
    assert not first.is_working
    assert spec_of(server)["holderIdentity"] == "somebody"


@in_virtual_time
async def test_an_edit_of_the_lease_costs_nobody_the_lead_and_is_kept() -> None:
    server = build_server()
    first = Replica(server, "first", told={"waits": "a"})
    first.start()
    await asyncio.sleep(1)
    lease = server.objects[KEY]
    server.put(KEY, {**lease, "metadata": {**lease["metadata"], "annotations": {"other": "kept"}}})
    await asyncio.sleep(5)
    assert server.objects[KEY]["metadata"]["annotations"] == {"other": "kept", "waits": "a"}
    server.remove(KEY)
    await asyncio.sleep(60)
    assert (len(first.starts), first.is_working) == (1, True)


@in_virtual_time
async def test_what_a_holder_adds_depends_on_whether_the_lease_is_as_it_wrote_it() -> None:
    """Not as an edit or a backup left it; a lost answer changes nothing."""
    server = build_server()
    seen: list[tuple[str, bool]] = []

    def annotate(found: Mapping[str, str], is_as_written: bool) -> dict[str, str]:
        seen.append((found.get("number", ""), is_as_written))
        return {"number": str(len(seen)), "gone": ""}

    first = Replica(server, "first", annotate=annotate)
    first.start()
    await asyncio.sleep(5)
    assert seen == [("", False), ("1", True), ("2", True)]
    first.link.lost["replace"] = 1
    await asyncio.sleep(4)
    assert {is_as_written for _, is_as_written in seen[1:]} == {True}
    lease = server.objects[KEY]
    server.put(KEY, {**lease, "metadata": {**lease["metadata"], "annotations": {"number": "0", "gone": "x"}}})
    await asyncio.sleep(3)
    assert ("0", False) in seen
    assert server.objects[KEY]["metadata"]["annotations"] == {"number": str(len(seen))}
    await first.stop()
    assert seen[-1] == (str(len(seen) - 1), True)


@in_virtual_time
async def test_a_lease_that_vanished_counts_as_held_until_its_time_is_over() -> None:
    server = build_server()
    first, second = await start_two(server)
    first.link.is_cut = True
    server.remove(KEY)
    await asyncio.sleep(12)
    assert not second.is_working
    await until_working(second, within=8)
    assert second.starts[0] > first.stops[0]


@pytest.mark.parametrize(
    "spec",
    [
        {"holderIdentity": "hand"},
        {"holderIdentity": "hand", "leaseDurationSeconds": None, "leaseTransitions": "x", "renewTime": 7},
        {"holderIdentity": "hand", "leaseDurationSeconds": 10**9},
        {"holderIdentity": "hand", "leaseDurationSeconds": -1},
    ],
)
@in_virtual_time
async def test_a_lease_that_was_written_by_hand_is_waited_for_like_any_other(spec: Json) -> None:
    server = build_server()
    server.put(KEY, {"metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": spec})
    replica = Replica(server, "first")
    replica.start()
    await asyncio.sleep(14)
    assert not replica.is_working
    await until_working(replica, within=4)


@in_virtual_time
async def test_a_lease_without_a_spec_is_free() -> None:
    server = build_server()
    server.put(KEY, {"metadata": {"name": NAME, "namespace": NAMESPACE}})
    replica = Replica(server, "first")
    replica.start()
    await until_working(replica, within=1)


@in_virtual_time
async def test_the_lease_is_given_up_only_after_the_work_has_stopped() -> None:
    first, second = await start_two(build_server(), stop_seconds=8.0)
    stopping = asyncio.create_task(first.stop())
    await until_working(second, within=12)
    assert second.starts[0] >= first.stops[0]
    assert not first.ended
    await stopping


@in_virtual_time
async def test_work_that_does_not_stop_ends_the_process_before_another_leads() -> None:
    first, second = await start_two(build_server(), stop_seconds=1000.0)
    first.link.is_cut = True
    while not first.ended:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.05)
    assert not second.is_working
    await until_working(second, within=4)


@in_virtual_time
async def test_work_that_fails_ends_the_lead_and_gives_up_the_lease() -> None:
    replica = Replica(build_server(), "first")

    async def fail() -> None:
        await asyncio.sleep(1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await replica.elector.lead(fail)
    assert spec_of(replica.server)["holderIdentity"] == ""
    assert not replica.elector.leads_for()


def test_times_that_leave_no_room_to_stop_are_refused() -> None:
    with pytest.raises(ValueError, match="renew deadline < duration"):
        LeaseTimes(duration_seconds=10, renew_deadline_seconds=10)
