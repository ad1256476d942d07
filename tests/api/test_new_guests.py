"""A new guest gets a floating IP soon after the last of its objects, whichever that is; what is no guest never does."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest
import pytest_asyncio

from localfleet.errors import DeadlineError
from localfleet.rancher_plan import (
    Credential,
    Guest,
    GuestKind,
    GuestPlan,
    HarvesterCluster,
    Step,
    is_possible,
)
from localfleet.stack import (
    ALL_FLOATING_IPS,
    RANGES,
    Stack,
    build_floating_ip,
    build_range,
    condition,
    floating_ips,
)
from localfleet.waiting import eventually
from tests.api.served_guest import Json, remove_range, wait_for_condition

pytestmark = pytest.mark.xdist_group("shared-stack")

WATCHED_SECONDS = 3 * 2.0
ASKED_FOR_SECONDS = 3 * 5.0
"""Three times what the documentation says: what comes this late does not come by an event."""
AT_ONCE = 8
ASKED_FOR_AT_ONCE = 30
CLUSTER = "/apis/provisioning.cattle.io/v1/namespaces/fleet-default/clusters/{}"

LINKS = (
    *(Step.HARVESTER_CONFIG, Step.CREDENTIAL, Step.PROVISIONING),
    *(Step.MANAGEMENT, Step.NAMESPACE, Step.LINK),
)
"""All of a guest's objects that its floating IP depends on."""

ASKED_FOR = (Step.HARVESTER_CONFIG, Step.CREDENTIAL)
"""What nobody may watch: it is asked for again every 3 s."""

ELSEWHERE = (Step.PROVISIONING, Step.MANAGEMENT, Step.NAMESPACE, Step.LINK)
"""The same of a guest that is not on Harvester."""


def orders_of(steps: Sequence[Step], *, last: Step) -> list[tuple[Step, ...]]:
    """Every order that Rancher's parts could take which ends with `last`."""
    return [order for order in itertools.permutations(steps) if order[-1] is last and is_possible(order)]


def cover(orders: Sequence[tuple[Step, ...]]) -> list[tuple[Step, ...]]:
    """Few of these orders, in which each two steps come in every order that they have in any of them."""
    left = {pair for order in orders for pair in itertools.combinations(order, 2)}
    chosen = []
    while left:
        best = max(orders, key=lambda order: len(left.intersection(itertools.combinations(order, 2))))
        left.difference_update(itertools.combinations(best, 2))
        chosen.append(best)
    return chosen


@dataclass(slots=True)
class Arrivals:
    """The namespaces in which a floating IP has appeared."""

    namespaces: set[str] = field(default_factory=set)

    async def follow(self, stack: Stack) -> None:
        async for event in stack.client.watch(ALL_FLOATING_IPS):
            self.namespaces.add(event["object"]["metadata"]["namespace"])

    async def of(self, namespace: str, *, seconds: float) -> None:
        """Wait until one has appeared there. Raises DeadlineError."""

        async def is_there() -> bool:
            return namespace in self.namespaces

        await eventually(is_there, seconds=seconds, what=f"a floating IP in {namespace}")


@pytest_asyncio.fixture(scope="module")
async def arrivals(stack: Stack) -> AsyncIterator[Arrivals]:
    arrivals = Arrivals()
    following = asyncio.create_task(arrivals.follow(stack))
    yield arrivals
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A Harvester cluster that only one test uses, with the /24 that begins with `net`."""

    stack: Stack
    number: int
    harvester: HarvesterCluster

    @property
    def net(self) -> str:
        return net_of(self.number)

    def plan(self, name: str, *, network: str = "default/vlan10") -> GuestPlan:
        return self.stack.player.plan_guest(
            f"{name}-{self.number}", harvester=self.harvester, network=network
        )

    async def offer(self, name: str, hosts: str, *, network: str | None = "vlan10", **spec: object) -> str:
        """Make a range for this Harvester cluster, of these hosts of its net; its name."""
        full, iprange = f"{name}-{self.number}", f"{self.net}{hosts}"
        body = build_range(full, iprange, harvester=self.harvester.display_name, network=network, **spec)
        await self.stack.client.create(RANGES, body)
        return full

    async def bring_up(self, plan: GuestPlan) -> str:
        """Bring up a guest that nobody can reach yet; where its floating IP stands, or would stand."""
        guest = await self.stack.player.create_guest(plan, order=LINKS)
        return f"{floating_ips(guest.cluster_id)}/{plan.name}-kubevip"


def net_of(number: int) -> str:
    """A /24 for every number that this run hands out."""
    return f"10.{number // 256}.{number % 256}."


async def make_site(stack: Stack, number: int) -> Site:
    harvester = await stack.player.create_harvester(f"harvester-{number}")
    return Site(stack=stack, number=number, harvester=harvester)


@pytest_asyncio.fixture
async def site(stack: Stack, numbers: Iterator[int]) -> Site:
    return await make_site(stack, next(numbers))


async def has_range(stack: Stack, path: str, name: str) -> Json:
    """Wait until a floating IP holds an address of that range."""

    async def holds() -> Json:
        found = await stack.client.get(path)
        assert (found.get("status") or {}).get("range") == name, found
        assert found["status"]["addresses"], found
        return found

    return await eventually(holds, what=f"{path} to be served from {name}")


async def arrive(
    stack: Stack,
    arrivals: Arrivals,
    plans: Sequence[GuestPlan],
    orders: Sequence[Sequence[Step]],
    *,
    at_once: int,
    seconds: float,
) -> None:
    """Bring up guests, each in its order; the floating IP of each must come so soon after its last step."""

    async def finish(guest: Guest, order: Sequence[Step]) -> None:
        assert guest.cluster_id not in arrivals.namespaces, (
            "its floating IP came before the last of its objects"
        )
        await stack.player.take(guest, order[-1])
        try:
            await arrivals.of(guest.cluster_id, seconds=seconds)
        except DeadlineError as error:
            error.add_note(f"in the order {', '.join(step.name for step in order)}")
            raise

    for begin in range(0, len(orders), at_once):
        batch = list(zip(plans, orders, strict=True))[begin : begin + at_once]
        guests = await asyncio.gather(
            *(stack.player.create_guest(plan, order=order[:-1]) for plan, order in batch)
        )
        await asyncio.gather(*(finish(guest, order) for guest, (_, order) in zip(guests, batch, strict=True)))


LASTS = [step for step in LINKS if orders_of(LINKS, last=step)]


@pytest.mark.parametrize("last", LASTS)
async def test_a_new_guest_gets_its_floating_ip_soon_after_the_last_of_its_objects(
    stack: Stack, arrivals: Arrivals, site: Site, last: Step
) -> None:
    await have_guests_arrive(stack, arrivals, site, cover(orders_of(LINKS, last=last)))


@pytest.mark.slow
@pytest.mark.parametrize("last", LASTS)
async def test_a_new_guest_gets_its_floating_ip_in_whatever_order_its_objects_come(
    stack: Stack, arrivals: Arrivals, site: Site, last: Step
) -> None:
    await have_guests_arrive(stack, arrivals, site, orders_of(LINKS, last=last))


async def have_guests_arrive(
    stack: Stack, arrivals: Arrivals, site: Site, orders: Sequence[tuple[Step, ...]]
) -> None:
    """Have a guest come in each order, all of which end with the same step."""
    range_name = await site.offer("vlan", "0/24")
    plans = [replace(site.plan("new"), name=f"new-{site.number}-{index}") for index in range(len(orders))]
    is_asked_for = orders[0][-1] in ASKED_FOR
    await arrive(
        stack,
        arrivals,
        plans,
        orders,
        at_once=ASKED_FOR_AT_ONCE if is_asked_for else AT_ONCE,
        seconds=ASKED_FOR_SECONDS if is_asked_for else WATCHED_SECONDS,
    )
    found = [
        await has_range(stack, f"{floating_ips(plan.cluster_id)}/{plan.name}-kubevip", range_name)
        for plan in plans
    ]
    assert len({address for each in found for address in each["status"]["addresses"]}) == len(plans)
    for plan, each in zip(plans, found, strict=True):
        assert each["spec"] == {"ipaddress": each["status"]["addresses"][0]}
        assert each["metadata"]["annotations"] == {
            "clustername": plan.name,
            "fiprange": range_name,
            "updateConfigMap": "true",
        }


async def test_a_guest_elsewhere_than_on_harvester_is_served_by_a_range_that_selects_it(
    stack: Stack, arrivals: Arrivals, numbers: Iterator[int]
) -> None:
    number = next(numbers)
    labels = {"site": f"dc-{number}"}
    body = build_range(f"selected-{number}", f"{net_of(number)}0/24", clusterSelector={"matchLabels": labels})
    await stack.client.create(RANGES, body)
    orders = [order for last in ELSEWHERE for order in orders_of(ELSEWHERE, last=last)]
    kinds = itertools.cycle((GuestKind.OTHER_MACHINES, GuestKind.IMPORTED, GuestKind.LEGACY))
    plans = [
        stack.player.plan_guest(f"elsewhere-{number}-{index}", kind=kind, labels=labels)
        for index, kind in zip(range(len(orders)), kinds, strict=False)
    ]
    stranger = stack.player.plan_guest(
        f"unselected-{number}", kind=GuestKind.OTHER_MACHINES, labels={"site": "another"}
    )
    await stack.player.create_guest(stranger, order=ELSEWHERE)
    await arrive(stack, arrivals, plans, orders, at_once=AT_ONCE, seconds=WATCHED_SECONDS)
    for plan in plans:
        # A legacy cluster is mirrored under the name of its management Cluster.
        path = f"{floating_ips(plan.cluster_id)}/{plan.provisioning_name}-kubevip"
        await has_range(stack, path, f"selected-{number}")
    assert await stack.client.items(floating_ips(stranger.cluster_id)) == []


@pytest_asyncio.fixture
async def everything(stack: Stack, numbers: Iterator[int]) -> AsyncIterator[str]:
    """A range that selects every cluster there is."""
    number = next(numbers)
    name = f"everything-{number}"
    await stack.client.create(
        RANGES, build_range(name, f"{net_of(number)}0/24", clusterSelector={"matchLabels": {}})
    )
    yield name
    await remove_range(stack, name)


async def test_what_is_no_guest_or_wants_none_never_gets_one_whatever_a_range_selects(
    stack: Stack, everything: str, numbers: Iterator[int]
) -> None:
    number = next(numbers)
    harvester = await stack.player.create_harvester(f"harvester-{number}")
    wanted = stack.player.plan_guest(f"wanted-{number}", kind=GuestKind.OTHER_MACHINES)
    refused = replace(
        stack.player.plan_guest(f"unwanted-{number}", kind=GuestKind.OTHER_MACHINES),
        annotations={"kubefip.k8s.binbash.org/floating-ip": "false"},
    )
    for plan in (refused, wanted):
        await stack.player.create_guest(plan, order=ELSEWHERE)
    # What came before it was decided on when the last guest is served.
    await has_range(stack, f"{floating_ips(wanted.cluster_id)}/{wanted.name}-kubevip", everything)
    for namespace in ("local", harvester.cluster_id, refused.cluster_id):
        assert await stack.client.items(floating_ips(namespace)) == []
    await stack.client.patch(
        CLUSTER.format(refused.name),
        {"metadata": {"annotations": {"kubefip.k8s.binbash.org/floating-ip": None}}},
    )
    await has_range(stack, f"{floating_ips(refused.cluster_id)}/{refused.name}-kubevip", everything)


async def test_a_range_of_another_network_never_serves(stack: Stack, site: Site) -> None:
    other = await site.offer("other", "0/25", network="vlan20")
    path = await site.bring_up(site.plan("astray"))
    await wait_for_condition(stack, path, "Allocated", "False", reason="NetworkMismatch")
    await stack.client.patch(f"{RANGES}/{other}", {"spec": {"exclude": [f"{site.net}7"]}})
    any_network = await site.offer("any", "128/25", network=None)
    await has_range(stack, path, any_network)
    in_path = await site.bring_up(site.plan("whole", network="prod/vlan20"))
    await has_range(stack, in_path, other)


async def test_a_full_range_is_passed_over_and_where_all_are_full_the_floating_ip_waits(
    stack: Stack, site: Site
) -> None:
    small = await site.offer("small", "8")
    any_network = await site.offer("any", "9", network=None)
    first = await site.bring_up(site.plan("first"))
    await has_range(stack, first, small)
    await has_range(stack, await site.bring_up(site.plan("second")), any_network)
    third = await site.bring_up(site.plan("third"))
    await wait_for_condition(stack, third, "Allocated", "False", reason="RangeFull")
    await has_range(stack, third, await site.offer("more", "16/28"))
    found = await stack.client.get(first)
    assert condition(found, "Allocated")["status"] == "True"


async def test_where_no_range_is_meant_for_a_guest_one_event_tells_it_and_a_range_that_comes_last_serves(
    stack: Stack, arrivals: Arrivals, site: Site, numbers: Iterator[int]
) -> None:
    plan = site.plan("unserved")
    path = await site.bring_up(plan)

    async def events() -> list[Json]:
        found = await stack.client.items("/api/v1/namespaces/fleet-default/events")
        return [each for each in found if each["involvedObject"]["name"] == plan.name]

    first = await eventually(events, what="an event on the cluster")
    for text in ("a", "b", "c"):
        # Each causes another round over the guest, and one over a guest that is served comes after them.
        await stack.client.patch(CLUSTER.format(plan.name), {"metadata": {"labels": {"touched": text}}})
    served = await make_site(stack, next(numbers))
    range_name = await served.offer("vlan", "0/24")
    await has_range(stack, await served.bring_up(served.plan("served")), range_name)
    found = await events()
    assert found == first, "it was written once more"
    assert [each["reason"] for each in found] == ["NoMatchingRange"]
    assert site.harvester.display_name in found[0]["message"]
    assert found[0]["involvedObject"]["kind"] == "Cluster"
    assert await stack.client.find(path) is None
    last = await site.offer("last", "0/24")
    await arrivals.of(plan.cluster_id, seconds=WATCHED_SECONDS)
    await has_range(stack, path, last)


async def test_a_harvester_cluster_that_rancher_learns_of_last_is_enough(
    stack: Stack, arrivals: Arrivals, site: Site
) -> None:
    late = HarvesterCluster(cluster_id=f"c-{site.number:05d}", display_name=f"late-harvester-{site.number}")
    for names_cluster in (True, False):
        credential = Credential(
            name=f"cc-late-{site.number}-{names_cluster}".lower(), harvester=late, names_cluster=names_cluster
        )
        plan = stack.player.plan_guest(f"early-{site.number}-{names_cluster}".lower(), credential=credential)
        await stack.player.create_guest(plan, order=LINKS)
        assert await stack.client.items(floating_ips(plan.cluster_id)) == []
    body = build_range("late", f"{site.net}0/24", harvester=late.display_name, network="vlan10")
    await stack.client.create(RANGES, body)
    await stack.player.create_harvester(late.display_name, cluster_id=late.cluster_id)
    for guest in list(stack.player.guests.values())[-2:]:
        await arrivals.of(guest.cluster_id, seconds=WATCHED_SECONDS)


async def test_a_namespace_that_holds_a_floating_ip_gets_no_second_one(stack: Stack, site: Site) -> None:
    range_name = await site.offer("vlan", "0/24")
    plan = site.plan("own")
    guest = await stack.player.create_guest(plan, order=(Step.NAMESPACE,))
    # As in people's runbooks: before its guest exists.
    body = build_floating_ip(guest.cluster_id, "own-vip", cluster=plan.name, range_name=range_name)
    await stack.client.create(floating_ips(guest.cluster_id), body)
    await has_range(stack, f"{floating_ips(guest.cluster_id)}/own-vip", range_name)
    for step in LINKS:
        if step is not Step.NAMESPACE:
            await stack.player.take(guest, step)
    await has_range(stack, await site.bring_up(site.plan("next")), range_name)
    found = await stack.client.items(floating_ips(guest.cluster_id))
    assert [each["metadata"]["name"] for each in found] == ["own-vip"]


async def test_a_floating_ip_that_is_deleted_under_a_living_guest_comes_back_with_its_address(
    stack: Stack, site: Site
) -> None:
    range_name = await site.offer("vlan", "0/24")
    path = await site.bring_up(site.plan("living"))
    before = await has_range(stack, path, range_name)
    await stack.client.delete(path)

    async def is_back() -> bool:
        found = await stack.client.get(path)
        assert found["metadata"]["uid"] != before["metadata"]["uid"]
        return bool(found["status"]["addresses"] == before["status"]["addresses"])

    await eventually(is_back, what="the floating IP to come back")
