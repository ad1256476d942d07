"""One plan: providers at work, people, harm, then rest; what was so at every revision, and what is left."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from localfleet.errors import ApiError, DeadlineError
from localfleet.waiting import eventually
from tests.faults.services.lane import SHARING, Lane, Provider
from tests.faults.services.people import People
from tests.faults.services.plans import CLASS, Plan
from tests.harness.crashes import find_crashes
from tests.harness.service_judge import Judge

QUIET_SECONDS = 1.0
REST_SECONDS = 60.0
LOST_LEASE = 1
"""The exit code of a provider that lost a Lease."""
CROWD_REST_SECONDS = 240.0


@dataclass(slots=True, kw_only=True)
class Result:
    """What came of a plan."""

    plan: Plan
    violations: list[str] = field(default_factory=list)
    operations: int = 0
    allocations: int = 0
    struck: int = 0
    killed: int = 0
    seconds: float = 0.0


async def run_plan(lane: Lane, plan: Plan) -> Result:
    """Run a plan on a lane, and leave nothing behind there."""
    began, result = time.monotonic(), Result(plan=plan)
    lane.history.clear()
    providers = [await lane.provider(name) for name in plan.providers]
    for number, provider in enumerate(providers):
        await provider.start(plan.rules.get(provider.name, ()), plan.seed + number)
    people = People(lane, plan)
    try:
        for provider in providers:
            await eventually(provider.process.is_ready, seconds=30.0, what=f"{provider.name} is ready")
        await eventually(lambda: _leads(providers), seconds=60.0, what="somebody leads")
        await people.live()
        await _rest(lane, plan, result)
        await _judge(lane, people, result)
        await _clean_up(lane, result)
    finally:
        for provider in providers:
            result.struck += provider.proxy.schedule.struck
            result.killed += provider.killed
            if any(code != LOST_LEASE for code in provider.ended):
                result.violations.append(f"{provider.name} ended by itself with {provider.ended}")
            result.violations += find_crashes(provider.process.process.log)[:3]
            await provider.stop()
            await provider.proxy.settle()
    result.operations = people.operations
    result.seconds = time.monotonic() - began
    return result


async def _leads(providers: Sequence[Provider]) -> bool:
    """Whether one of them works: who is elected waits for the Lease of one that was killed."""
    texts = [await each.process.metrics() for each in providers]
    return any("fipop_leader 1.0" in text for text in texts)


async def _rest(lane: Lane, plan: Plan, result: Result) -> None:
    """End the harm, and wait until nobody changes anything any more and everybody has what is due."""
    for name in plan.providers:
        proxy = lane.providers[name].proxy
        result.struck += proxy.schedule.struck
        proxy.begin(type(proxy.schedule)())
        await proxy.settle()

    async def is_at_rest() -> bool:
        lacking = await _lacking(lane)
        assert not lacking, lacking[:5]
        return time.monotonic() - lane.last_change_at > QUIET_SECONDS

    try:
        seconds = CROWD_REST_SECONDS if plan.steps > 1000 else REST_SECONDS
        await eventually(is_at_rest, seconds=seconds, what="rest")
    except DeadlineError as error:
        result.violations.append(f"no rest: {error}")


async def _lacking(lane: Lane) -> list[str]:
    """Tell which Services have not what they ask for."""
    found = []
    for service in await lane.services():
        metadata, spec = service["metadata"], service["spec"]
        if spec["type"] != "LoadBalancer" or spec.get("loadBalancerClass") not in (None, CLASS):
            continue
        finalizers = metadata.get("finalizers") or ()
        has = (metadata.get("annotations") or {}).get("kube-vip.io/loadbalancerIPs")
        if not has or not finalizers:
            found.append(f"{metadata['namespace']}/{metadata['name']}: {has} {finalizers}")
    return found


async def _judge(lane: Lane, people: People, result: Result) -> None:
    await lane.catch_up()
    judge = Judge(shares=lambda seen: seen.namespace in SHARING, by_people=people.by_people)
    for event in lane.history:
        judge.take(event["type"], event["object"])
    result.violations += judge.violations
    result.allocations = judge.allocations
    result.violations += await _untold(lane, judge)


async def _untold(lane: Lane, judge: Judge) -> list[str]:
    """Tell which clashes, that people made, nobody was told of within 5 s of rest."""

    async def are_told() -> bool:
        events = await lane.plane.client.items("/api/v1/events")
        told = {each["involvedObject"]["uid"] for each in events if each["reason"] == "AddressInUse"}
        missing = [
            f"{address} of {one.namespace}/{one.name} and {other.namespace}/{other.name}"
            for one, other, address in judge.clashes()
            if not {one.uid, other.uid} & told
        ]
        assert not missing, missing[:5]
        return True

    try:
        # Events are paced, 20 a second: hundreds of clashes at once take their time.
        seconds = 5.0 + len(judge.clashes()) / 10
        await eventually(are_told, seconds=seconds, what="clashes are told")
    except DeadlineError as error:
        return [f"untold: {error}"]
    return []


async def _clean_up(lane: Lane, result: Result) -> None:
    """Delete every Service; in the end no address is held."""

    async def delete(namespace: str, name: str) -> None:
        try:
            await lane.plane.client.delete(f"/api/v1/namespaces/{namespace}/services/{name}")
        except ApiError:
            return

    async def are_gone() -> bool:
        left = await lane.services()
        for each in left:
            if each["spec"].get("loadBalancerClass") and not each["metadata"].get("deletionTimestamp"):
                await delete(each["metadata"]["namespace"], each["metadata"]["name"])
        assert not left, [each["metadata"]["name"] for each in left[:5]]
        return True

    names = [(each["metadata"]["namespace"], each["metadata"]["name"]) for each in await lane.services()]
    slots = asyncio.Semaphore(16)

    async def delete_one(namespace: str, name: str) -> None:
        async with slots:
            await delete(namespace, name)

    await asyncio.gather(*(delete_one(*each) for each in names))
    try:
        await eventually(are_gone, seconds=CROWD_REST_SECONDS, what="all is free")
    except DeadlineError as error:
        result.violations.append(f"not free: {error}")
