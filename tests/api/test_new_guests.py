"""A new guest gets a floating IP soon after the last of its objects, whichever that is."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest
import pytest_asyncio

from localfleet.errors import DeadlineError
from localfleet.rancher_plan import (
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
    build_range,
    floating_ips,
)
from localfleet.waiting import eventually
from tests.api.served_guest import Json

pytestmark = pytest.mark.xdist_group("shared-stack")

WATCHED_SECONDS = 3 * 2.0
ASKED_FOR_SECONDS = 3 * 5.0
"""Three times what the documentation says: what comes this late does not come by an event."""
AT_ONCE = 8
ASKED_FOR_AT_ONCE = 30

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
) -> None:
    """Bring up guests, each in its order; the floating IP of each must come soon after its last step."""

    async def finish(guest: Guest, order: Sequence[Step]) -> None:
        assert guest.cluster_id not in arrivals.namespaces, (
            "its floating IP came before the last of its objects"
        )
        await stack.player.take(guest, order[-1])
        seconds = ASKED_FOR_SECONDS if order[-1] in ASKED_FOR else WATCHED_SECONDS
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


async def test_a_new_guest_gets_its_floating_ip_soon_after_the_last_of_its_objects(
    stack: Stack, arrivals: Arrivals, site: Site
) -> None:
    """One guest for each object that can be the last: all orders are tried at night."""
    await have_guests_arrive(stack, arrivals, site, [orders_of(LINKS, last=last)[0] for last in LASTS])


@pytest.mark.slow
@pytest.mark.parametrize("last", LASTS)
async def test_a_new_guest_gets_its_floating_ip_in_whatever_order_its_objects_come(
    stack: Stack, arrivals: Arrivals, site: Site, last: Step
) -> None:
    await have_guests_arrive(stack, arrivals, site, orders_of(LINKS, last=last))


async def have_guests_arrive(
    stack: Stack, arrivals: Arrivals, site: Site, orders: Sequence[tuple[Step, ...]]
) -> None:
    """Have a guest come in each order."""
    range_name = await site.offer("vlan", "0/24")
    plans = [replace(site.plan("new"), name=f"new-{site.number}-{index}") for index in range(len(orders))]
    is_asked_for = orders[0][-1] in ASKED_FOR
    await arrive(stack, arrivals, plans, orders, at_once=ASKED_FOR_AT_ONCE if is_asked_for else AT_ONCE)
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
    orders = [orders_of(ELSEWHERE, last=last)[0] for last in ELSEWHERE if orders_of(ELSEWHERE, last=last)]
    kinds = (GuestKind.OTHER_MACHINES, GuestKind.IMPORTED, GuestKind.LEGACY)
    orders = [order for order in orders for _ in kinds]
    plans = [
        stack.player.plan_guest(f"elsewhere-{number}-{index}", kind=kinds[index % len(kinds)], labels=labels)
        for index in range(len(orders))
    ]
    stranger = stack.player.plan_guest(
        f"unselected-{number}", kind=GuestKind.OTHER_MACHINES, labels={"site": "another"}
    )
    await stack.player.create_guest(stranger, order=ELSEWHERE)
    await arrive(stack, arrivals, plans, orders, at_once=AT_ONCE)
    for plan in plans:
        # A legacy cluster is mirrored under the name of its management Cluster.
        path = f"{floating_ips(plan.cluster_id)}/{plan.provisioning_name}-kubevip"
        await has_range(stack, path, f"selected-{number}")
    assert await stack.client.items(floating_ips(stranger.cluster_id)) == []
