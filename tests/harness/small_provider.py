"""A cloud provider over an API server in memory: a SIMULATION, made of the product's own parts. One life of it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from fipop.cloudprovider.assigning import AddressAssigner, carried_by
from fipop.cloudprovider.choosing import Refused
from fipop.cloudprovider.kubevip import LATER, ServiceReconciler
from fipop.cloudprovider.ledger import NAME, NAMESPACE, Entry, Ledger
from fipop.cloudprovider.ledger_store import LedgerStore
from fipop.cloudprovider.notices import Notices
from fipop.cloudprovider.occupancy import Occupancy, ServiceStore
from fipop.cloudprovider.pools import PoolKeys
from fipop.cloudprovider.service_cache import ServiceDoor
from fipop.cloudprovider.services import ADDRESSES, Service, parse_service
from fipop.errors import ApiServerError, ApiUnreachableError, FipopError
from fipop.ipam.addresses import Address, format_address
from fipop.kube.resources import CONFIG_MAPS, SERVICES
from fipop.metrics.services import ServiceMetrics, ServiceSnapshot
from fipop.runtime.workqueue import RetryAfter
from tests.harness.memory import Json, Memory, MemoryClient, copy_json

LEDGER = (CONFIG_MAPS.plural, NAMESPACE, NAME)
DATA = {"cidr-global": "10.0.0.1-10.0.0.9,2001:db8::1-2001:db8::9"}
ROUNDS = 8


class Loop(MemoryClient):
    """Answers after some turns of the loop; some calls fail before they are done, of some the answer is lost."""

    async def _before(self, verb: str, resource: Any, name: str) -> None:
        await self._wait()
        if self._chance.random() < self.trouble:
            raise ApiServerError(verb=verb, kind=resource.kind, name=name, status=500)

    async def _after(self, verb: str, resource: Any, name: str, made: Json) -> Json:
        answer: Json = copy_json(made)
        await self._wait()
        if self._chance.random() < self.trouble:
            raise ApiUnreachableError(verb=verb, kind=resource.kind, name=name, reason="ConnectionCut")
        return answer

    async def _wait(self) -> None:
        # Once in a while a writer is frozen for long.
        turns = self._chance.choices([0, 1, 3, 300], [10, 10, 5, 1])[0] if self.trouble else 0
        for _ in range(turns):
            await asyncio.sleep(0)


@dataclass(slots=True)
class Listed:
    """A list as an API server would give it."""

    items: list[Json]
    resource_version: int


class Said:
    """What the events say."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def record(self, about: Any, _type: object, reason: str, message: str) -> None:
        self.events.append((about.name, reason, message))


class Provider:
    """One provider over the API server in memory: without `chance` it sees everything at once, with it late."""

    def __init__(
        self,
        memory: Memory,
        *,
        data: dict[str, str] | None = None,
        chance: Random | None = None,
        class_name: str | None = None,
        client: MemoryClient | None = None,
    ) -> None:
        self.suspects: list[str] = []
        self.memory, self.data, self.said = memory, data if data is not None else dict(DATA), Said()
        self._chance = chance
        self.client = client or Loop(memory, chance or Random(1), trouble=0.02 if chance is not None else 0.0)
        self.store = ServiceStore(parse_service, kind="Service")
        self.occupancy = Occupancy(self.store)
        # As a term of the product: the ledger is not touched before the pools are known.
        self.occupancy.take_keys(PoolKeys(self.data))
        self.ledger = LedgerStore(self.client, carried=self._carried, listener=self._learn)
        self.again: set[str] = set()
        door = ServiceDoor(self.client, self)  # type: ignore[arg-type]
        self.reconciler = ServiceReconciler(
            services=self.store,
            assigner=AddressAssigner(
                client=door,
                ledger=self.ledger,
                occupancy=self.occupancy,
                list_live=self._list,
            ),
            notices=Notices(
                client=door,
                events=self.said,  # type: ignore[arg-type]
                occupancy=self.occupancy,
                now=lambda: memory.now,
                look_again=self.again.update,
            ),
            metrics=ServiceMetrics(lambda: ServiceSnapshot(leading=True), version="0"),
            class_name=class_name,
            writes_at_once=16,
            suspect=self.suspects.append,
        )

    @property
    def waiting(self) -> dict[str, Refused]:
        """Who waits, by name."""
        return {name: refused for (_, name), refused in self.reconciler.waiting.items()}

    @property
    def overwritten(self) -> int:
        """How many Services are left to another controller, as the metrics show it."""
        return sum(each.is_left_alone for each in self.store.all())

    def _learn(self, ledger: Ledger | None) -> None:
        self.suspects.extend(self.occupancy.take_ledger(ledger)[1])

    def take(self, obj: Json) -> None:
        """Take in a Service as an answer shows it."""
        change = self.store.put(obj)
        if change is not None:
            self.occupancy.take_service(change)

    def see(self) -> None:
        """Take in what is there now."""
        items = [copy_json(obj) for key, obj in self.memory.objects.items() if key[0] == SERVICES.plural]
        listing = Listed(items, self.memory.version)
        for change in self.store.resync(listing, seen_before=self.store.highest_version):
            self.occupancy.take_service(change)
        self.occupancy.take_keys(PoolKeys(self.data))

    async def take_turn(self, only: Callable[[str], bool] = bool) -> bool:
        """Look at every Service once; whether one is to be looked at again."""
        if self._chance is None or self._chance.random() < 0.3:
            self.see()
        names = [each.key for each in self.store.all() if only(each.name)]
        answers = await asyncio.gather(
            *(self.reconciler.reconcile(name) for name in names), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, FipopError):
                raise answer
        # One to be looked at in half a minute, or in an hour, has nothing more to come now.
        return any(isinstance(answer, RetryAfter) and answer.seconds < LATER.seconds for answer in answers)

    async def serve(self, only: Callable[[str], bool] = bool) -> None:
        """Serve whoever waits, until nothing changes any more."""
        self.occupancy.take_keys(PoolKeys(self.data))
        await self.ledger.read()
        for _ in range(ROUNDS):
            version = self.memory.version
            if not await self.take_turn(only) and self.memory.version == version:
                return
        raise AssertionError("it does not end")

    async def prune(self) -> int:
        """Take out of the ledger what may go."""
        return await self.ledger.prune(every_tenant)

    async def _list(self) -> list[Service]:
        await asyncio.sleep(0)
        items = [copy_json(obj) for key, obj in self.memory.objects.items() if key[0] == SERVICES.plural]
        await asyncio.sleep(0)
        for obj in items:
            self.take(obj)
        return [parse_service(obj) for obj in items]

    async def _carried(self) -> list[tuple[Address, Entry]]:
        return carried_by(await self._list(), self.occupancy.keys)


def every_tenant(ledger: Ledger) -> list[tuple[Address, Entry]]:
    return [(address, entry) for address, each in ledger.entries.items() for entry in each.values()]


def add(
    memory: Memory, name: str, *, namespace: str = "shop", ports: tuple[int, ...] = (80,), **spec: Any
) -> None:
    """Create a Service as its user does."""
    body = {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"type": "LoadBalancer", "ports": [{"port": port} for port in ports], **spec},
    }
    memory.put((SERVICES.plural, namespace, name), body)


def change(memory: Memory, name: str, *, a: str | None = None, **spec: Any) -> None:
    """Change a Service as its user does; `a` "" takes the annotation away."""
    key = (SERVICES.plural, "shop", name)
    found = copy_json(memory.objects[key])
    if a is not None:
        found["metadata"]["annotations"] = {**(found["metadata"].get("annotations") or {}), ADDRESSES: a}
    memory.put(key, {**found, "spec": {**found["spec"], **spec}})


def addresses(memory: Memory, name: str, namespace: str = "shop") -> str:
    """What its annotation says."""
    obj = memory.objects[SERVICES.plural, namespace, name]
    return str((obj["metadata"].get("annotations") or {}).get(ADDRESSES, ""))


def names_of(memory: Memory) -> list[str]:
    """The names of all Services."""
    return [key[2] for key in memory.objects if key[0] == SERVICES.plural]


class Judge:
    """Looks at every revision: of the addresses that a provider wrote none has two holders that may not share it."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.by_users: set[str] = set()
        self.violations: list[str] = []
        self.assignments = 0
        self._had: set[tuple[str, str]] = set()
        memory.listeners.append(lambda _change: self._look())

    def _look(self) -> None:
        holders: dict[str, list[str]] = {}
        for key, obj in self.memory.objects.items():
            if key[0] == SERVICES.plural and obj["spec"].get("type") == "LoadBalancer":
                for address in parse_service(obj).annotated:
                    holders.setdefault(format_address(address), []).append(key[2])
        had = {(address, name) for address, names in holders.items() for name in names}
        self.assignments += len(had - self._had)
        self._had = had
        for address, names in holders.items():
            if len(names) > 1 and not self.by_users & set(names):
                self.violations.append(f"{address}: {names}")
