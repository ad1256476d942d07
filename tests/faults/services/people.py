"""What people do with Services while providers are disturbed: drawn from a seed, and told to the judge."""

import asyncio
import contextlib
from random import Random
from typing import Any

from localfleet.client import Json
from localfleet.errors import ApiError
from tests.faults.services.lane import NAMESPACES, Lane
from tests.faults.services.plans import CLASS, Plan
from tests.harness.service_judge import A

WRITERS = 4
_POLICIES: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"ipFamilyPolicy": "PreferDualStack"},
    {"ipFamilyPolicy": "RequireDualStack"},
)


class People:
    """Does the steps of a plan, several at once. `operations` counts them, `by_people` has their revisions."""

    def __init__(self, lane: Lane, plan: Plan) -> None:
        self._lane = lane
        self._plan = plan
        self._chance = Random(plan.seed)
        self._names: list[tuple[str, str]] = []
        self._made = 0
        self.operations = 0
        self.by_people: set[int] = set()
        self.static: set[str] = set()

    async def live(self) -> None:
        """Do everything, and return when it is done."""
        steps = iter(range(self._plan.steps))

        async def work() -> None:
            for number in steps:
                with contextlib.suppress(ApiError):  # it was gone, or changed meanwhile
                    await self._step(number)
                self.operations += 1
                if self._plan.steps < 1000:
                    await asyncio.sleep(self._chance.random() * 0.2)

        await asyncio.gather(*(work() for _ in range(WRITERS)))

    async def _step(self, number: int) -> None:
        draw = self._chance.random()
        if draw < 0.55 or len(self._names) < 3:
            await self._create()
        elif draw < 0.7:
            namespace, name = self._names.pop(self._chance.randrange(len(self._names)))
            await self._lane.plane.client.delete(_path(namespace, name))
        elif draw < 0.8:
            await self._patch({"spec": {"type": self._chance.choice(["ClusterIP", "LoadBalancer"])}})
        elif draw < 0.87:
            await self._patch({"spec": {"loadBalancerIP": self._draw_address()}})
        elif draw < 0.92:
            await self._patch({"metadata": {"annotations": {A: None}}})
        else:
            await self._patch({"metadata": {"annotations": {"touched": str(number)}}})

    async def _create(self) -> None:
        self._made += 1
        namespace, name = self._chance.choice(NAMESPACES), f"s{self._plan.seed}-{self._made}"
        port = self._chance.choice([80, 81, 443, 5432])
        spec: Json = {
            "type": "LoadBalancer",
            "ports": [{"port": port}],
            "allocateLoadBalancerNodePorts": False,
            **self._chance.choice(_POLICIES),
        }
        metadata: Json = {"name": name}
        draw = self._chance.random()
        if draw < 0.06:
            spec["loadBalancerIP"] = self._draw_address()
        elif draw < 0.12:
            metadata["annotations"] = {A: self._draw_address()}
        elif self._plan.seed % 5 == 0 and draw < 0.5:
            spec["loadBalancerClass"] = CLASS
        path = f"/api/v1/namespaces/{namespace}/services"
        self._note(await self._lane.plane.client.create(path, {"metadata": metadata, "spec": spec}))
        self._names.append((namespace, name))

    def _draw_address(self) -> str:
        """Draw an address of the common pool, one that is given out soon at times."""
        return f"10.2.{self._chance.choice([0, 0, 9])}.{self._chance.randrange(1, 60)}"

    async def _patch(self, patch: Json) -> None:
        namespace, name = self._chance.choice(self._names)
        self._note(await self._lane.plane.client.patch(_path(namespace, name), patch))

    def _note(self, made: Json) -> None:
        self.by_people.add(int(made["metadata"]["resourceVersion"]))


def _path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/services/{name}"
