"""What becomes of a Service: each row of section 2 of the contract on a real API server, with the chart's rights.

The rows are those of tests/harness/service_rows.py. One provider serves all of them side by side, each in a namespace
and with addresses of its own; a test then judges its row.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from localfleet.client import Json
from localfleet.controlplane import ControlPlane
from localfleet.provider import ProviderProcess
from localfleet.waiting import eventually
from tests.api.services.conftest import open_shop
from tests.api.services.shop import KEYS, Shop, build_service, condition
from tests.api.sweeping import is_load_balancer
from tests.harness.service_rows import FINALIZER, ROWS, A, Row, show

pytestmark = pytest.mark.xdist_group("management")

QUIET_SECONDS = 2.0
LATE_SECONDS = 60.0
"""For all rows together on a machine that is busy."""
Step = Callable[[], Awaitable[Any]]


@dataclass(slots=True, kw_only=True)
class Play:
    """One row in a namespace of its own. What the row does is noted in `steps`, and done by `perform`."""

    shop: Shop
    row: Row
    steps: list[Step] = field(default_factory=list)
    known_events: frozenset[str] = frozenset()

    def add(
        self,
        name: str = "web",
        *,
        ports: Iterable[int] = (80,),
        a: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        **spec: Any,
    ) -> None:
        made = build_service(name, ports=tuple(ports))
        made["metadata"] |= dict(metadata or {})
        if a is not None:
            made["metadata"].setdefault("annotations", {})[A] = a
        made["spec"] |= spec
        self._do("create", self._path(), made)

    def leave_behind(self, name: str, a: str, **spec: Any) -> None:
        left = {"labels": {"implementation": "kube-vip"}, "finalizers": [FINALIZER]}
        self.add(name, a=a, metadata=left, loadBalancerIP=a.partition(",")[0], **spec)
        ingress = [{"ip": each} for each in a.split(",")]
        self._do("patch", f"{self._path(name)}/status", {"status": {"loadBalancer": {"ingress": ingress}}})

    def change(
        self,
        name: str = "web",
        *,
        ports: Iterable[int] | None = None,
        a: str | None = None,
        annotations: Mapping[str, str | None] | None = None,
        metadata: Mapping[str, Any] | None = None,
        **spec: Any,
    ) -> None:
        changes = {key: value or None for key, value in (metadata or {}).items()}
        changed = {**(annotations or {}), **({A: a or None} if a is not None else {})}
        if changed:
            changes["annotations"] = changed
        if ports is not None:
            spec["ports"] = build_service(name, ports=tuple(ports))["spec"]["ports"]
        self._do("patch", self._path(name), {"metadata": changes, "spec": spec})

    def delete(self, name: str = "web") -> None:
        self.steps.append(partial(self.shop.client.delete, self._path(name)))

    def set_keys(self, data: Mapping[str, str]) -> None:
        wanted = {self._own_key(key): self._own_value(key, value) for key, value in data.items()}
        gone = dict.fromkeys({self._own_key(key) for key in self.row.data} - wanted.keys())
        self._do("patch", KEYS, {"data": {**gone, **wanted}})

    async def perform(self) -> None:
        """Do what is noted, in its order."""
        for step in self.steps:
            await step()
        self.steps.clear()

    async def read(self) -> list[Json]:
        """Return the Services of the row, with the addresses that the row has for them."""
        found = await self.shop.client.items(self._path())
        read: list[Json] = json.loads(self._translate(json.dumps(found), back=True))
        return read

    async def list_events(self) -> dict[str, tuple[str, str]]:
        """Return name of the object and reason of each event, by the version of the event."""
        found = await self.shop.client.items(f"/api/v1/namespaces/{self.shop.namespace}/events")
        return {
            each["metadata"]["resourceVersion"]: (each["involvedObject"]["name"], each["reason"])
            for each in found
        }

    async def has_become(self) -> bool:
        """Return whether everything is as the row says; a failed assertion names what is not."""
        found = {each["metadata"]["name"]: each for each in await self.read()}
        assert {name: show(each) for name, each in found.items()} == self.row.becomes
        if self.row.condition is not None:
            ours = condition(found["web"])
            assert (ours.get("status", ""), ours.get("reason", "")) == self.row.condition, ours
        events = await self.list_events()
        new = {events[version] for version in events.keys() - self.known_events}
        assert set(self.row.events) <= new, new
        return True

    def _do(self, verb: str, path: str, body: Json) -> None:
        own = json.loads(self._translate(json.dumps(body)))
        self.steps.append(partial(getattr(self.shop.client, verb), path, own))

    def _path(self, name: str = "") -> str:
        return self.shop.path(name).rstrip("/")

    def _own_key(self, key: str) -> str:
        """Return the key for this namespace alone."""
        prefix, _, scope = key.rpartition("-")
        return f"{prefix}-{self.shop.namespace}" if scope in {"global", "shop"} else key

    def _own_value(self, key: str, value: str) -> str:
        return value.replace("shop", self.shop.namespace) if key.startswith("allow-pool-") else value

    def _translate(self, text: str, *, back: bool = False) -> str:
        own_pool = ("dmz", f"dmz-{self.shop.namespace}")
        for row, own in (
            own_pool,
            ("10.0.0.", f"{self.shop.net}."),
            ("2001:db8::", f"{self.shop.net6}:"),
        ):
            text = text.replace(own, row) if back else text.replace(row, own)
        return text


@pytest_asyncio.fixture(scope="module")
async def plays(
    provider: ProviderProcess, service_guest: ControlPlane, shop_numbers: Iterator[int]
) -> dict[str, Play]:
    """All rows, played."""
    made = {
        name: Play(shop=await open_shop(service_guest, next(shop_numbers)), row=row)
        for name, row in ROWS.items()
    }
    marker = await open_shop(service_guest, next(shop_numbers))
    await marker.offer(2)
    for play in made.values():
        play.set_keys(play.row.data)
        if play.row.given is not None:
            play.row.given(play)
    await asyncio.gather(*(play.perform() for play in made.values()))
    await all_is_done(marker, "first")
    for play in made.values():
        play.known_events = frozenset(await play.list_events())
        play.row.then(play)
    await asyncio.gather(*(play.perform() for play in made.values()))
    await all_is_done(marker, "second")
    # A namespace that is being deleted refuses events: that comes later.
    assert 'code="403"' not in await provider.metrics(), "the rights of the chart are enough"
    return made


async def all_is_done(marker: Shop, name: str) -> None:
    """Wait until a Service that was created now has its address, and no Service changes any more."""
    await marker.open(name)
    await marker.has(name, f"{marker.net}.{1 if name == 'first' else 2}", seconds=LATE_SECONDS)

    async def read_versions() -> dict[str, str]:
        every = filter(is_load_balancer, await marker.client.items("/api/v1/services"))
        return {each["metadata"]["uid"]: each["metadata"]["resourceVersion"] for each in every}

    async def is_quiet() -> bool:
        before = await read_versions()
        await asyncio.sleep(QUIET_SECONDS)
        return await read_versions() == before

    await eventually(is_quiet, seconds=LATE_SECONDS, what="no Service changes any more")


@pytest.mark.parametrize("name", ROWS)
async def test_what_a_service_has_decides_what_it_gets(plays: dict[str, Play], name: str) -> None:
    # Events are recorded behind the writes.
    await eventually(plays[name].has_become, seconds=10.0)


async def test_a_writer_that_removes_a_again_and_again_is_waited_for_and_named_if_it_is_recorded(
    shop: Shop,
) -> None:
    """The API server records a writer that sets a field, not one that only removes some."""
    await shop.offer(2)

    async def take_away(name: str, manager: str, address: str, named: str) -> None:
        for number in range(3):
            await shop.has(name, address)
            annotations = {A: None, **({"pruned": str(number)} if manager else {})}
            await asyncio.sleep(1.1)  # the times of managers are whole seconds
            body = {"metadata": {"annotations": annotations}}
            await shop.client.patch(shop.path(name), body, field_manager=manager or "remover")
        message = await shop.warned("AnotherController", named)
        assert f"annotation {A}" in message
        assert A not in (await shop.read(name))["metadata"]["annotations"]
        await shop.has(name, address)

    writers = (("pruned", "pruner", "Field manager pruner"), ("bare", "", "An unknown writer"))
    async with asyncio.TaskGroup() as group:
        for number, (name, manager, named) in enumerate(writers, start=1):
            address = f"{shop.net}.{number}"
            await shop.open(name)
            await shop.has(name, address)
            group.create_task(take_away(name, manager, address, named))
