"""A life of two cloud providers over an API server in memory: a SIMULATION, with kills, lost answers and people."""

import asyncio
from random import Random
from typing import Any

from fipop.errors import FipopError
from fipop.kube.resources import SERVICES
from tests.harness.history import Change
from tests.harness.memory import Json, Memory, copy_json
from tests.harness.service_judge import A, Judge, leaks
from tests.harness.small_provider import LEDGER, Provider

SHARING, OTHERS = ("bank", "club"), ("shop", "lab")
NAMESPACES = SHARING + OTHERS
DATA = {
    "cidr-global": "10.0.0.1-10.0.0.14,2001:db8::1-2001:db8::e",
    "range-lab": "10.0.1.1-10.0.1.6,2001:db8:1::1-2001:db8:1::6",
    **{f"allow-share-{namespace}": "true" for namespace in SHARING},
}
MOST = 12
"""So many Services there are at a time: there is an address for each."""

_POLICIES: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv4", "IPv6"]},
    {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6", "IPv4"]},
)


class Life:
    """Two providers at once without election, and what people do; every revision is judged."""

    def __init__(self, seed: int) -> None:
        self.memory = Memory()
        self.judge = Judge(shares=SHARING.__contains__)
        self._chance = Random(seed)
        self._made = 0
        self.memory.listeners.append(self._take)
        self._known: dict[tuple[str, str], Json] = {}

    async def run(self, steps: int) -> list[str]:
        """Live, come to rest; what was wrong on the way or is then."""
        stop = asyncio.Event()
        workers = [asyncio.create_task(self._work(stop)) for _ in range(2)]
        for _ in range(steps):
            for _ in range(self._chance.randrange(80)):
                await asyncio.sleep(0)
            self._step()
        stop.set()
        await asyncio.gather(*workers)
        await self._rest()
        found = self.memory.objects.get(LEDGER, {})
        return [*self.judge.violations, *leaks(found, list(self.judge.now.values())), *self._unserved()]

    def _take(self, change: Change) -> None:
        if change.plural != SERVICES.plural:
            return
        if change.revision in self.memory.judge.by_people:
            self.judge.by_people.add(change.revision)
        key = (change.namespace, change.name)
        if change.obj is None:
            gone = self._known.pop(key)
            gone["metadata"]["resourceVersion"] = str(change.revision)
            self.judge.take("DELETED", gone)
            return
        kind = "MODIFIED" if key in self._known else "ADDED"
        self._known[key] = copy_json(change.obj)
        self.judge.take(kind, self._known[key])

    async def _work(self, stop: asyncio.Event) -> None:
        """One provider that is killed again and again, and started anew."""
        while not stop.is_set():
            running = Provider(self.memory, data=DATA, chance=Random(self._chance.random()))
            for _ in range(self._chance.randrange(1, 12)):
                await running.take_turn()
                try:
                    await running.prune()
                except FipopError:
                    continue
                await asyncio.sleep(0)

    def _step(self) -> None:
        draw = self._chance.random()
        there = [key for key in self.memory.objects if key[0] == SERVICES.plural]
        if len(there) < 3 or (draw < 0.5 and len(there) < MOST):
            self._create()
        elif draw < 0.65:
            self._delete(self._chance.choice(there))
        elif draw < 0.72:
            self._change(self._chance.choice(there), type=self._chance.choice(["ClusterIP", "LoadBalancer"]))
        elif draw < 0.78:
            self._change(self._chance.choice(there), loadBalancerIP=self._draw_address())
        elif draw < 0.84:
            self._change(self._chance.choice(there), **self._chance.choice(_POLICIES))
        elif draw < 0.92:
            self._change(self._chance.choice(there), selector={"run": str(self._made)})
        elif draw < 0.96:
            self._strip(self._chance.choice(there))
        elif LEDGER in self.memory.objects:
            self.memory.remove(LEDGER)

    def _create(self) -> None:
        self._made += 1
        namespace = self._chance.choice(NAMESPACES)
        port = {"port": self._chance.choice([80, 81, 443]), "protocol": "TCP"}
        spec: Json = {"type": "LoadBalancer", "ports": [port], **self._chance.choice(_POLICIES)}
        metadata: Json = {"namespace": namespace, "name": f"s{self._made}", "annotations": {}}
        draw = self._chance.random()
        if draw < 0.05:
            spec["loadBalancerIP"] = self._draw_address()
        elif draw < 0.1:
            metadata["annotations"] = {A: self._draw_address()}
        key = (SERVICES.plural, namespace, metadata["name"])
        self.memory.put(key, {"metadata": metadata, "spec": spec})

    def _delete(self, key: tuple[str, str, str]) -> None:
        self.memory.remove(key, by_people=True)

    def _change(self, key: tuple[str, str, str], **spec: Any) -> None:
        found = copy_json(self.memory.objects[key])
        self.memory.put(key, {**found, "spec": {**found["spec"], **spec}})

    def _strip(self, key: tuple[str, str, str]) -> None:
        found = copy_json(self.memory.objects[key])
        found["metadata"]["annotations"] = {}
        self.memory.put(key, found)

    def _draw_address(self) -> str:
        return f"10.0.{self._chance.choice([0, 0, 5])}.{self._chance.randrange(1, 15)}"

    async def _rest(self) -> None:
        """Have one provider bring everything to its end."""
        last = Provider(self.memory, data=DATA)
        for _ in range(3):
            await last.serve()
            await last.prune()
        await last.serve()
        self._waiting = last.waiting

    def _unserved(self) -> list[str]:
        """Tell who has nothing, though its pool is not full."""
        found = []
        for seen in self.judge.now.values():
            refused = self._waiting.get(seen.name)
            if (
                seen.is_load_balancer
                and not seen.addresses
                and (refused is None or refused.reason != "PoolFull")
            ):
                found.append(f"{seen.namespace}/{seen.name} has no address: {refused}")
        return found
