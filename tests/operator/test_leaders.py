"""A process leads once: it ends with its lead, and the one that a kubelet starts in its place waits.

Of two installations in two namespaces one leads, whatever happens to the other and to the CRD that names it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby

import pytest

from fipop.api import names
from fipop.interfaces import ApiRequest
from localfleet.simulated import Answer
from tests.harness.fleet import FLOATING_IPS, NAMESPACE, RANGES, RESERVATIONS, Fleet, Running, build_fleet

A, B, X, Y = "c-m-a", "c-m-b", "10.0.0.10", "10.0.0.11"
ELSEWHERE, NOBODY = "elsewhere", "c-m-nobody"
KEPT = 5
CRD = ("customresourcedefinitions", "", f"{RESERVATIONS}.kubefip.k8s.binbash.org")


async def build_pair() -> Fleet:
    """Return a fleet with two replicas, one of which leads."""
    fleet = build_fleet(A, B, iprange="10.0.0.10-10.0.0.30")
    await fleet.start()
    await fleet.start()
    return fleet


async def seconds_until_served(fleet: Fleet, guest_id: str, name: str) -> float:
    """Return how long a new floating IP waits for its address; 1,000 if longer."""
    fleet.ask(guest_id, name=name)
    began = fleet.now
    while not fleet.addresses(guest_id, name) and (fleet.now - began).total_seconds() < 1000:
        await fleet.pass_time(0.5)
    return (fleet.now - began).total_seconds()


async def test_a_process_that_loses_the_lead_ends_and_the_one_after_it_stands_by() -> None:
    fleet = await build_pair()
    former = fleet.leader
    former.link.is_cut = True
    await fleet.pass_time(9)
    assert former.restarts == 1
    former.link.is_cut = False
    assert await seconds_until_served(fleet, A, "web") < 20
    await fleet.pass_time(600)
    assert (former.restarts, former.is_alive, fleet.leader is former) == (1, True, False)
    assert fleet.problems == []


async def test_a_process_that_loses_the_lead_writes_nothing_from_then_on() -> None:
    """Its requests arrive, but those for its Lease."""
    fleet = await build_pair()
    former = fleet.leader
    former.link.refuse = lambda verb, target, _request: target.plural == "leases" and verb != "get"
    await fleet.pass_time(9)
    writes = former.link.requests.copy()
    fleet.ask(A)
    await fleet.pass_time(3)
    assert not [each for each in (former.link.requests - writes) if each[0] not in {"get", "list"}]
    assert fleet.addresses(A) == []


@pytest.mark.parametrize(("seconds", "restarts"), [(5, 0), (30, 1), (600, 1)])
async def test_after_an_outage_of_the_api_server_addresses_are_assigned_again(
    seconds: float, restarts: int
) -> None:
    """The leader restarts once, however long it lasts, and the standby not at all."""
    fleet = await build_pair()
    leader = fleet.leader
    for each in fleet.operators:
        each.link.is_cut = True
    await fleet.pass_time(seconds)
    for each in fleet.operators:
        each.link.is_cut = False
    assert await seconds_until_served(fleet, A, "web") <= 30
    assert {each.restarts for each in fleet.operators if each is leader} == {restarts}
    assert {each.restarts for each in fleet.operators if each is not leader} == {0}
    assert fleet.problems == []


async def test_five_losses_of_the_lead_within_ten_minutes_delay_new_addresses_by_less_than_a_minute_each() -> (
    None
):
    fleet = await build_pair()
    waits = []
    for number in range(5):
        leader = fleet.leader
        leader.link.is_cut = True
        waits.append(await seconds_until_served(fleet, A, f"web-{number}"))
        leader.link.is_cut = False
        await fleet.pass_time(100 - waits[-1])
    assert max(waits) < 60
    assert sum(each.restarts for each in fleet.operators) == 5
    assert fleet.problems == []


async def test_a_leader_beside_which_kube_fip_operator_starts_ends_once_and_waits() -> None:
    fleet = await build_pair()
    leader = fleet.leader
    fleet.scale_predecessor(1)
    await fleet.pass_time(600)
    assert [each.restarts for each in fleet.operators] == [
        1 if each is leader else 0 for each in fleet.operators
    ]
    fleet.ask(A)
    await fleet.pass_time(60)
    assert fleet.held() == {}
    fleet.scale_predecessor(0)
    await fleet.pass_time(30)
    assert fleet.addresses(A) == [X]


async def test_a_machine_that_was_suspended_ends_its_process_which_starts_again_at_once() -> None:
    fleet = build_fleet(A)
    running = await fleet.start()
    fleet.jump(60)
    fleet.ask(A)
    await fleet.pass_time(15)
    assert (running.restarts, fleet.addresses(A)) == (1, [X])


async def test_a_leader_whose_lease_cannot_be_written_for_conflicts_waits_between_attempts() -> None:
    """Such as beside a controller that labels the Lease again and again."""
    fleet = await build_pair()
    former = fleet.leader
    conflict = Answer(
        status=409, body={"kind": "Status", "status": "Failure", "code": 409, "reason": "Conflict"}
    )

    async def take_time(_request: ApiRequest) -> None:
        await asyncio.sleep(0.01)

    former.link.before = take_time
    former.link.forge = lambda verb, target, _request: (
        conflict if (verb, target.plural) == ("replace", "leases") else None
    )
    before = former.link.requests["replace", "leases"]
    await fleet.pass_time(9)
    assert former.restarts == 1
    assert former.link.requests["replace", "leases"] - before <= 20


@dataclass(slots=True)
class Installations:
    """Two installations, in two namespaces, each of one replica; `writes` says whose each write of an address was."""

    fleet: Fleet = field(
        default_factory=lambda: build_fleet(A, iprange="10.0.1.0-10.0.9.0", quarantineSeconds=90)
    )
    writes: list[str] = field(default_factory=list)
    running: dict[str, Running] = field(default_factory=dict)
    asked: int = 0

    def __post_init__(self) -> None:
        self.fleet.memory.put(("namespaces", "", ELSEWHERE), {"metadata": {"name": ELSEWHERE}})
        self.fleet.opt_in(A)
        self.fleet.ask(A)

    def begin(self, namespace: str) -> None:
        """Install fipop there."""
        running = self.fleet.begin(namespace=namespace)
        running.link.before = partial(self.see, namespace)
        self.running[namespace] = running

    def uninstall(self, namespace: str) -> None:
        """Delete the namespace with all that is in it; its process never ends in order."""
        running = self.running.pop(namespace)
        running.link.is_cut = True
        running.task.cancel()
        self.delete(namespace)

    def delete(self, namespace: str) -> None:
        """Delete the namespace with all that is in it, but for the process."""
        for key in [("namespaces", "", namespace), *self.fleet.memory.objects]:
            if namespace in key and key in self.fleet.memory.objects:
                self.fleet.memory.remove(key)

    async def work(self, seconds: float) -> list[str]:
        """Ask for an address every 2 s and give it up; return whose work it was, in order, without repetitions.

        It is for a namespace of no guest cluster: nothing but addresses is to be done.
        """
        self.writes.clear()
        for _ in range(int(seconds / 2)):
            self.asked += 1
            self.fleet.ask(NOBODY, name=f"web-{self.asked}")
            if self.asked > KEPT:
                self.fleet.give_up(NOBODY, f"web-{self.asked - KEPT}")
            await self.fleet.pass_time(2)
        assert self.fleet.problems == []
        assert self.fleet.helm.runs.count(("upgrade", self.url)) <= len(self.fleet.guests[A].releases)
        return [namespace for namespace, _ in groupby(self.writes)]

    @property
    def url(self) -> str:
        return f"https://rancher.example/k8s/clusters/{A}"

    @property
    def named(self) -> str:
        """The namespace that the CRD names."""
        annotations = self.fleet.memory.objects[CRD]["metadata"].get("annotations") or {}
        return str(annotations.get("kubefip.k8s.binbash.org/leader-namespace", ""))

    def name(self, namespace: str | None) -> None:
        """Have the CRD name a namespace, by hand; None: none."""
        found = self.fleet.memory.objects[CRD]
        annotations = {"kubefip.k8s.binbash.org/leader-namespace": namespace} if namespace is not None else {}
        self.fleet.write(CRD, {**found, "metadata": {**found["metadata"], "annotations": annotations}})

    async def see(self, namespace: str, request: ApiRequest) -> None:
        """Note whose request writes an address."""
        target = self.fleet.memory.parse(request.path)
        plural = target.plural if target is not None else ""
        if request.method != "GET" and plural in {FLOATING_IPS, RANGES, RESERVATIONS}:
            self.writes.append(namespace)


async def build_two(*, apart_seconds: float = 5.0) -> Installations:
    """Return two installations, of which that in NAMESPACE leads if it began earlier."""
    both = Installations()
    both.begin(NAMESPACE)
    await both.fleet.pass_time(apart_seconds)
    both.begin(ELSEWHERE)
    await both.fleet.pass_time(10)
    return both


@pytest.mark.parametrize("apart_seconds", [0.0, 0.5, 60.0])
async def test_of_two_installations_one_works_and_each_guest_cluster_is_installed_once(
    apart_seconds: float,
) -> None:
    both = await build_two(apart_seconds=apart_seconds)
    assert await both.work(120) == [both.named]
    assert both.fleet.helm.runs.count(("upgrade", both.url)) == 2
    assert [each.restarts for each in both.fleet.operators] == [0, 0]
    await both.fleet.pass_time(600)
    version = both.fleet.memory.version
    await both.fleet.pass_time(200)
    assert both.fleet.commits_since(version) == []


LOSSES: dict[str, tuple[Callable[[Installations], object], float]] = {
    "killed": (lambda both: both.fleet.kill(both.running[NAMESPACE]), 25),
    "stopped": (lambda both: both.fleet.stop(both.running[NAMESPACE]), 25),
    "uninstalled": (lambda both: both.uninstall(NAMESPACE), 25),
}


@pytest.mark.parametrize("loss", LOSSES)
async def test_an_installation_that_waits_leads_when_the_other_one_is_gone(loss: str) -> None:
    both = await build_two()
    assert await both.work(30) == [NAMESPACE]
    lose, seconds = LOSSES[loss]
    if (waited := lose(both)) is not None:
        await waited  # type: ignore[misc]
    await both.fleet.pass_time(seconds)
    assert await both.work(60) == [ELSEWHERE]
    assert both.named == ELSEWHERE
    both.fleet.memory.put(("namespaces", "", NAMESPACE), {"metadata": {"name": NAMESPACE}})
    both.begin(NAMESPACE)
    assert await both.work(60) == [ELSEWHERE], "the former one waits now"
    assert both.fleet.helm.runs.count(("upgrade", both.url)) == 2


@pytest.mark.parametrize("late_seconds", [0.0, 2.2])
async def test_a_leader_whose_namespace_is_deleted_ends_before_another_installation_leads(
    late_seconds: float,
) -> None:
    """Its Lease is deleted before its pod, and cannot be created again."""
    both = await build_two()
    assert await both.work(30) == [NAMESPACE]
    await both.fleet.pass_time(late_seconds)
    both.delete(NAMESPACE)
    assert await both.work(60) == [NAMESPACE, ELSEWHERE]


async def test_another_installation_does_not_lead_while_a_replica_of_the_leader_is_replaced() -> None:
    """As in each upgrade of the chart: the Lease is free for a moment."""
    both = await build_two()
    for _ in range(3):
        await both.fleet.stop(both.running[NAMESPACE])
        await both.fleet.pass_time(5)
        both.begin(NAMESPACE)
        assert await both.work(30) == [NAMESPACE]


async def test_a_leader_whose_lease_somebody_deletes_keeps_the_lead() -> None:
    both = await build_two()
    for _ in range(5):
        assert await both.work(10) == [NAMESPACE]
        both.fleet.memory.remove(("leases", NAMESPACE, names.LEASE_NAME))
        await both.fleet.pass_time(0.7)
    assert await both.work(60) == [NAMESPACE]


@pytest.mark.parametrize(
    ("named", "late_seconds"),
    [(None, 0.0), ("", 2.7), ("gone", 0.0), ("No namespace", 2.7), (ELSEWHERE, 0.0), (ELSEWHERE, 2.7)],
)
async def test_whatever_is_written_over_the_name_of_the_leader_one_works(
    named: str | None, late_seconds: float
) -> None:
    """By a tool that replaces the CRD, or by hand: then the one that is named leads, after the other one ended."""
    both = await build_two()
    assert await both.work(30 + late_seconds) == [NAMESPACE]
    both.name(named)
    found = await both.work(60)
    assert found == ([NAMESPACE, ELSEWHERE] if named == ELSEWHERE else [NAMESPACE])
    assert both.named == found[-1]


async def test_a_leader_that_was_suspended_past_its_lease_finds_the_other_installation_at_work() -> None:
    both = await build_two()
    assert await both.work(30) == [NAMESPACE]
    former = both.running[NAMESPACE]
    former.link.is_cut = True
    await both.work(40)
    former.link.is_cut = False
    assert await both.work(60) == [ELSEWHERE]


async def test_a_replica_that_takes_its_lease_while_another_installation_takes_over_ends() -> None:
    """Its Lease was free for so long that the other one was about to name itself, and did so after it was read."""
    both = await build_two()
    await both.fleet.stop(both.running[NAMESPACE])
    other = both.running[ELSEWHERE].link

    async def delay(request: ApiRequest) -> None:
        await both.see(ELSEWHERE, request)
        if request.method == "PATCH" and "customresourcedefinitions" in request.path:
            other.before = partial(both.see, ELSEWHERE)
            both.begin(NAMESPACE)
            await asyncio.sleep(3)

    other.before = delay
    assert both.named == NAMESPACE
    await both.fleet.pass_time(30)
    assert await both.work(60) == [both.named] == [ELSEWHERE]


async def test_an_installation_that_may_not_read_the_lease_of_the_other_one_waits() -> None:
    both = await build_two()
    both.running[ELSEWHERE].link.refuse = lambda _verb, target, _request: (
        target.plural == "leases" and target.namespace == NAMESPACE
    )
    await both.fleet.kill(both.running[NAMESPACE])
    await both.fleet.pass_time(60)
    assert await both.work(60) == []
    both.running[ELSEWHERE].link.refuse = lambda _verb, _target, _request: False
    await both.fleet.pass_time(30)
    assert await both.work(60) == [ELSEWHERE]
