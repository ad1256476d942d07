"""The chart's RBAC, verb by verb: an operator that begins with no rights gets each one when it was refused it.

What it never asks for in a life with everything in it, the chart need not grant; what it asks for and the chart does
not grant, it cannot do.

At each change tests/golden holds the chart to the rights that are recorded, and every test of this folder that has
an operator runs it with these rights and no others. That each of them is needed is for the slow tests.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio

from localfleet.client import Json
from localfleet.errors import DeadlineError
from localfleet.faultproxy import Do, On, Rule, Schedule
from localfleet.fleet import LocalFleet
from localfleet.installation import NAMESPACE, RELEASE
from localfleet.rancher_plan import Guest
from localfleet.simulated import SimulatedGuest
from localfleet.stack import (
    ALL_FLOATING_IPS,
    RANGES,
    RESERVATIONS,
    Stack,
    build_floating_ip,
    build_range,
    condition,
    floating_ips,
    open_stack,
)
from localfleet.waiting import eventually
from tests.api.chart_source import pack_charts
from tests.api.proxied import Asked, Proxied, SeeingProxy, proxied
from tests.chart.test_access import Grant, read_recorded_grants

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("access")]

RBAC = "/apis/rbac.authorization.k8s.io/v1"
CLUSTER_ROLE = f"{RBAC}/clusterroles/{RELEASE}"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
EVENTS = "/api/v1/namespaces/{}/events"
QUARANTINE_SECONDS = 90.0
STEP_SECONDS = 120.0


@dataclass(slots=True, kw_only=True)
class Rights:
    """The roles of the installed chart, taken away and given back grant by grant.

    `refused` has the refused requests that led to a grant, `uncovered` those that nothing in the chart allows.
    """

    stack: Stack
    all: frozenset[Grant]
    granted: set[Grant] = field(default_factory=set)
    refused: dict[Grant, Asked] = field(default_factory=dict)
    uncovered: list[Asked] = field(default_factory=list)

    async def give_on_refusal(self, proxy: SeeingProxy) -> None:
        """Look at what the operator is refused, for ever, and grant that and nothing else."""
        read = 0
        while True:
            news, read = proxy.asked[read:], len(proxy.asked)
            due = set()
            for asked in news:
                if asked.status == 403:
                    found = [grant for grant in self.all if covers(grant, asked)]
                    self.uncovered += [] if found else [asked]
                    due |= set(found) - self.granted
                    for grant in found:
                        self.refused.setdefault(grant, asked)
            if due:
                self.granted |= due
                await self.write({grant[0] for grant in due})
            await asyncio.sleep(0.05)

    async def write(self, namespaces: Iterable[str]) -> None:
        """Make the roles grant just `granted`; a namespace is "" for the ClusterRole."""
        for namespace in namespaces:
            rules = [rule_of(grant) for grant in sorted(self.granted) if grant[0] == namespace]
            await self.stack.client.patch(role_path(namespace), {"rules": rules})


def role_path(namespace: str) -> str:
    if not namespace:
        return CLUSTER_ROLE
    name = RELEASE if namespace == NAMESPACE else f"{RELEASE}-secrets"
    return f"{RBAC}/namespaces/{namespace}/roles/{name}"


def split(grant: Grant) -> tuple[str, str]:
    """The resource of a grant, with its subresource, and the name it is for."""
    resource, _, rest = grant[2].partition("/")
    return (f"{resource}/{rest}", "") if rest == "status" else (resource, rest)


def rule_of(grant: Grant) -> Json:
    _, group, _, verb = grant
    resource, name = split(grant)
    names = {"resourceNames": [name]} if name else {}
    return {"apiGroups": [group], "resources": [resource], "verbs": [verb], **names}


def covers(grant: Grant, asked: Asked) -> bool:
    namespace, group, _, verb = grant
    resource, name = split(grant)
    return (
        namespace in {"", asked.namespace}
        and (group, resource, verb) == (asked.group, asked.resource, asked.verb)
        and name in {"", asked.name}
    )


class Story:
    """Everything that the operator ever does in the management cluster."""

    def __init__(self, stack: Stack, watched: Proxied, rights: Rights) -> None:
        self.stack = stack
        self.watched = watched
        self.rights = rights
        self.attempts = 0

    async def prepare(self) -> None:
        """What is there before the operator: its CRDs as an older version left them, and no right at all."""
        for crd in await self.stack.client.items(CRDS):
            if crd["metadata"]["name"].endswith(".kubefip.k8s.binbash.org"):
                older = {"metadata": {"annotations": {"kubefip.k8s.binbash.org/schema-revision": "0"}}}
                await self.stack.client.patch(f"{CRDS}/{crd['metadata']['name']}", older)
        await self.rights.write({grant[0] for grant in self.rights.all})

    async def serve_a_guest(self) -> None:
        pool = build_range(
            "vlan", "10.9.0.0/28", harvester="harvester-cluster1", network="vlan10", quarantineSeconds=1
        )
        await self.stack.client.create(RANGES, pool)
        guest = await self.bring_up("served", "default/vlan10")
        await self.is_ready(guest.cluster_id, "served-kubevip")

    async def bring_up(self, name: str, network: str) -> Guest:
        return await self.stack.player.create_guest(
            self.stack.player.plan_guest(name, network=network), SimulatedGuest(latency_seconds=0.0)
        )

    async def is_ready(self, namespace: str, name: str) -> None:
        async def ready() -> bool:
            found = await self.stack.floating_ip(namespace, name)
            return condition(found, "Ready").get("status") == "True"

        await eventually(ready, seconds=STEP_SECONDS, what=f"{name} to be ready")

    async def serve_services(self) -> None:
        """Have a floating IP made for Services, and let go."""
        await self.stack.set_options(serviceVisitSeconds="1")
        limits = {"minAllocate": 2, "maxAllocate": 2, "releaseAfterSeconds": 10}
        await self.stack.client.patch(f"{RANGES}/vlan", {"spec": {"perGuest": limits}})

        async def names() -> set[str]:
            return {each["metadata"]["name"] for each in await self.stack.client.items(ALL_FLOATING_IPS)}

        async def is_made() -> bool:
            return "served-kubevip-2" in await names()

        async def is_gone() -> bool:
            return "served-kubevip-2" not in await names()

        await eventually(is_made, seconds=STEP_SECONDS, what="a floating IP for Services")
        await self.stack.client.patch(f"{RANGES}/vlan", {"spec": {"perGuest": {**limits, "minAllocate": 1}}})
        await eventually(is_gone, seconds=STEP_SECONDS, what="its end")
        await self.stack.client.patch(f"{RANGES}/vlan", {"spec": {"perGuest": None}})

    async def use_a_stale_view(self) -> None:
        """Have a status of a range be in conflict with a version that was not seen yet."""
        stale = Rule(on=On.WRITE, do=Do.STATUS, nth=1, count=3, plural="floatingipranges", status=409)
        self.watched.proxy.begin(Schedule((stale,)))
        await self.stack.plane.create_namespace("asking")
        await self.stack.client.create(
            floating_ips("asking"), build_floating_ip("asking", "passing", range_name="vlan")
        )

        async def counted() -> bool:
            found = await self.stack.client.get(f"{RANGES}/vlan")
            return bool(found["status"]["capacity"]["used"] == 2)

        await eventually(counted, seconds=STEP_SECONDS)

    async def let_go(self) -> None:
        """Delete a floating IP, and wait until its address is free again: a quarantine lasts at least 90 s."""
        await self.stack.client.delete(f"{floating_ips('asking')}/passing")

        async def is_free() -> bool:
            return len(await self.stack.client.items(RESERVATIONS)) == 1

        await eventually(is_free, seconds=QUARANTINE_SECONDS + STEP_SECONDS)

    async def roll_out_thrice(self, folder: Path) -> None:
        """Ask for releases and then for others, twice: a rollout begins, is written again, and gives way to another."""
        vip, provider = (await pack_charts(folder))[1::2]
        await self.stack.set_options(
            kubevipGuestInstall="enabled",
            kubevipUpdate="true",
            kubevipChartRef=f"file://{vip}",
            kubevipCloudProviderChartRef=f"file://{provider}",
        )
        rollout = f"/api/v1/namespaces/{NAMESPACE}/configmaps/fipop-rollout"

        async def targets() -> set[str]:
            found = await self.stack.client.find(rollout) or {}
            return {found["data"]["target"]} if found.get("data") else set()

        before = await eventually(targets, seconds=STEP_SECONDS, what="a target")
        for interface in ("eth6", "eth7"):
            await self.stack.set_options(kubevipChartValues=f"env: {{vip_interface: {interface}}}\n")

            async def has_given_way(former: frozenset[str] = frozenset(before)) -> bool:
                return bool(await targets()) and not former & await targets()

            await eventually(has_given_way, seconds=STEP_SECONDS, what="a target to give way to the next one")
            before = await targets()

    async def write_again(self) -> None:
        """Have the guest written long after its address was claimed: its reservation is asked for first."""
        path = f"{ALL_FLOATING_IPS}"
        served = next(
            each
            for each in await self.stack.client.items(path)
            if each["metadata"]["name"] == "served-kubevip"
        )
        namespace = served["metadata"]["namespace"]
        item = f"{floating_ips(namespace)}/served-kubevip"
        await self.stack.client.patch(item, {"spec": {"serviceNamespace": "late"}})
        guest = self.stack.proxy.guests[namespace].target
        assert isinstance(guest, SimulatedGuest)

        async def is_written() -> bool:
            found = guest.get("configmaps", "kube-system", "kubevip")
            return found is not None and "cidr-late" in found["data"]

        await eventually(is_written, seconds=STEP_SECONDS, what="the guest's ConfigMap")

    async def complain(self) -> None:
        """Have an event about a bad option."""
        await eventually(
            self.ask_for_the_impossible, seconds=STEP_SECONDS, what="an event about a bad option"
        )

    async def ask_for_the_impossible(self) -> Json | None:
        """Set bad options until there is an event, which is returned; then a good one again.

        The first event is refused, and none is sent twice.
        """
        self.attempts += 1
        await self.stack.set_options(logLevel=f"Loud{self.attempts // 10}")
        events = await self.stack.client.items(EVENTS.format(NAMESPACE))
        found = next((each for each in events if each["reason"] == "BadOption"), None)
        if found is not None:
            await self.stack.set_options(logLevel="Info")
        return found


@pytest_asyncio.fixture(scope="module")
async def story(fleet: LocalFleet, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Story]:
    async with open_stack(fleet, "access") as stack, proxied(stack, "watched") as watched:
        rights = Rights(stack=stack, all=read_recorded_grants())
        story = Story(stack, watched, rights)
        await story.prepare()
        giving = asyncio.create_task(rights.give_on_refusal(watched.proxy))
        try:
            await watched.operator.start()
            await story.serve_a_guest()
            await story.serve_services()
            await story.use_a_stale_view()
            await story.let_go()
            await story.complain()
            await story.write_again()
            await story.roll_out_thrice(tmp_path_factory.mktemp("charts"))
        except DeadlineError as error:
            error.add_note(watched.operator.process.read_log())
            raise
        finally:
            giving.cancel()
        yield story


@pytest.mark.parametrize(
    "grant", sorted(read_recorded_grants()), ids=lambda grant: " ".join(filter(None, grant))
)
def test_the_operator_cannot_do_its_work_without(story: Story, grant: Grant) -> None:
    assert grant in story.rights.refused, "the operator never asked for it: the chart need not grant it"
    asked = story.rights.refused[grant]
    answers = [each.status for each in story.watched.proxy.asked if each[:5] == asked[:5]]
    assert answers[-1] != 403, "and it is refused still"


def test_the_operator_asks_for_nothing_that_the_chart_does_not_grant(story: Story) -> None:
    assert story.rights.uncovered == []
    refused = [asked for asked in story.watched.proxy.asked if asked.status == 403]
    assert refused, "nothing was refused: the proxy saw nothing"


async def test_nothing_is_granted_by_wildcard_in_the_cluster(story: Story) -> None:
    roles = [await story.stack.client.get(CLUSTER_ROLE)]
    roles += await story.stack.client.items(f"{RBAC}/roles", fieldSelector="")
    ours = [role for role in roles if role["metadata"]["name"].startswith(RELEASE)]
    assert len(ours) == 5, [role["metadata"]["name"] for role in ours]
    for role in ours:
        for rule in role["rules"]:
            words = rule["apiGroups"] + rule["resources"] + rule["verbs"] + rule.get("resourceNames", [])
            assert "*" not in "".join(words)
