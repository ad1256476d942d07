"""A run for the second role: the real cloud provider in a real guest, and hostile Services beside well-behaved ones."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import ClientError

from localfleet.assets import ensure
from localfleet.client import ApiClient
from localfleet.controlplane import ControlPlane
from localfleet.errors import ApiError
from localfleet.fleet import LocalFleet
from localfleet.helm import Helm
from localfleet.provider import ProviderProcess, install_provider
from localfleet.waiting import eventually
from tests.api.services.shop import KEYS, of
from tests.hostile.service_kinds import AT_ONCE, GOOD_NAMESPACES, Kind, Scene, neighbour, service
from tests.hostile.watch import Watch

STALL_MS, RSS_MIB = 250.0, 110.0
MOST_MIB = 512.0
"""The provider is ended there, as a pod is at its limit: it would take the machine along."""
INSIDE = Path(__file__).with_name("inside")
PROBE_SECONDS = 0.25
PROBE_DEADLINE_SECONDS = 20.0
"""A Service waits for those that asked before it, whosever they are: three times as long as a thousand need at 150 a
second."""
TOGETHER = 4
"""So many kinds side by side: more keep the API server of a small machine from answering anybody."""
PROBES_AFTERWARDS = 3
"""So many well-behaved Services ask when a kind has done all that it does; what it costs may come after it."""
GOOD = {"well-behaved": "yes"}
_CRASHED = (b"Traceback", b"crashed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a kind cost, or several at once; `problems` are sentences."""

    kind: str
    rss_mib: float
    stall_ms: float
    wait_s: float
    api_s: float
    """The longest that the API server took to create a well-behaved Service: what no provider can make good."""
    problems: Sequence[str]


@dataclass(slots=True, kw_only=True)
class ServiceStage:
    """What all kinds share."""

    client: ApiClient
    provider: ProviderProcess
    watch: Watch
    measured: list[Measured] = field(default_factory=list)
    addresses: dict[tuple[str, str], str] = field(default_factory=dict)
    """What well-behaved Services have, by namespace and name."""
    problems: list[str] = field(default_factory=list)
    """What well-behaved Services met with since the last kind."""
    waits: list[float] = field(default_factory=list)
    answers: list[float] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _log_read: int = 0

    async def try_kinds(self, kinds: Sequence[Kind]) -> Measured:
        """Have kinds at work side by side, and judge what it cost."""
        name = ", ".join(kind.name for kind in kinds)
        began, found = time.monotonic(), len(self.watch.findings)
        self.watch.forget_peak()
        self.waits.clear()
        self.answers.clear()
        self.problems.clear()
        ends = await asyncio.gather(*(self._try(kind, AT_ONCE // len(kinds)) for kind in kinds))
        told = (*ends, *self.problems, *self.watch.findings[found:], *self._crashes())
        problems = [each for each in dict.fromkeys(told) if each]
        stall_ms, what = max(self.watch.callbacks_since(began), default=(0.0, ""))
        wait_s, rss_mib = max(self.waits, default=0.0), self.watch.read_peak()
        if stall_ms > STALL_MS:
            problems.append(f"a callback took {stall_ms:.0f} ms of processor time: {what[:200]}")
        if rss_mib >= RSS_MIB:
            problems.append(f"the provider had {rss_mib:.0f} MiB")
        found = Measured(
            kind=name,
            rss_mib=rss_mib,
            stall_ms=stall_ms,
            wait_s=wait_s,
            api_s=max(self.answers, default=0.0),
            problems=problems,
        )
        self.measured.append(found)
        return found

    async def _try(self, kind: Kind, at_once: int) -> str:
        number = next(self._numbers)
        scene = Scene(client=self.client, namespace=f"hostile-{number}", number=number, at_once=at_once)
        try:
            await scene.open()
            await kind.act(scene)
            await self.provider.metrics()
            served = len(self.waits)
            await eventually(
                lambda: self._are_served(served + PROBES_AFTERWARDS),
                seconds=2 * PROBE_DEADLINE_SECONDS,
                what="more well-behaved Services are served",
            )
            await scene.clear()
        except Exception as error:  # noqa: BLE001 - a kind that cannot be run is one that failed
            return f"{type(error).__name__}: {str(error)[:300]}"
        return ""

    async def _are_served(self, count: int) -> bool:
        return len(self.waits) >= count

    def _crashes(self) -> list[str]:
        """Return the lines of the log since the last look that tell of a crash."""
        with self.watch.process.log.open("rb") as log:
            log.seek(self._log_read)
            lines = log.readlines()
            self._log_read = log.tell()
        found = [line for line in lines if any(each in line for each in _CRASHED)]
        return [f"the provider crashed: {found[0][-400:].decode(errors='replace')}"] if found else []

    async def probe(self) -> None:
        """Have well-behaved Services ask for an address all the time, for ever."""
        async with asyncio.TaskGroup() as group:
            for number in itertools.count():
                group.create_task(self._probe(number))
                await asyncio.sleep(PROBE_SECONDS)

    async def _probe(self, number: int) -> None:
        key = f"good-{number % GOOD_NAMESPACES}", f"probe-{number}"
        path = f"/api/v1/namespaces/{key[0]}/services"
        body = service(labels=GOOD)
        body["metadata"]["name"] = key[1]
        asked = time.monotonic()
        await self.client.create(path, body)
        began = time.monotonic()
        self.answers.append(began - asked)
        try:
            async with asyncio.timeout(PROBE_DEADLINE_SECONDS):
                while not self.addresses.get(key):
                    await self._news.wait()
        except TimeoutError:
            self.problems.append(
                f"a well-behaved Service had no address after {PROBE_DEADLINE_SECONDS:.0f} s"
            )
        self.waits.append(time.monotonic() - began)
        await self.client.delete(f"{path}/{key[1]}")

    async def follow(self) -> None:
        """Keep up with the well-behaved Services, for ever."""
        while True:
            with suppress(ApiError, ClientError):
                async for event in self.client.watch("/api/v1/services", labelSelector="well-behaved=yes"):
                    self._take(event["type"] == "DELETED", event["object"])
            await asyncio.sleep(PROBE_SECONDS)

    def _take(self, is_gone: bool, obj: dict[str, dict[str, str]]) -> None:
        key, address = (obj["metadata"]["namespace"], obj["metadata"]["name"]), of(obj)
        before = self.addresses.pop(key, "")
        if before and address != before:
            self.problems.append(f"{'/'.join(key)} had {before}, and then {address or 'nothing'}")
        if is_gone:
            return
        holder = next((name for name, other in self.addresses.items() if address and other == address), None)
        if holder is not None:
            self.problems.append(f"{'/'.join(key)} and {'/'.join(holder)} have {address}, both")
        self.addresses[key] = address
        self._news.set()
        self._news.clear()


async def run_kinds(
    stage: ServiceStage,
    kinds: Sequence[Kind],
    *,
    rounds: Sequence[str] = ("alone", "together"),
    told: Callable[[Measured], object] = lambda _: None,
) -> None:
    """Run the kinds one by one, then those that may side by side, some at once; well-behaved ones ask meanwhile."""
    probing = asyncio.create_task(stage.probe())
    try:
        turns = [[kind] for kind in kinds if "alone" in rounds]
        sociable = [kind for kind in kinds if not kind.is_alone and "together" in rounds]
        turns += [sociable[first : first + TOGETHER] for first in range(0, len(sociable), TOGETHER)]
        for turn in turns:
            told(await stage.try_kinds(turn))
            if not stage.provider.process.is_running:
                break
    finally:
        probing.cancel()
        await asyncio.wait([probing])
    if not probing.cancelled() and (error := probing.exception()) is not None:
        raise error


@asynccontextmanager
async def open_service_stage(fleet: LocalFleet, name: str, *, neighbours: int) -> AsyncIterator[ServiceStage]:
    """Start everything, with so many well-behaved Services: no hostile one is there yet."""
    plane = await fleet.guest(name)
    folder = fleet.folder / f"{name}-provider"
    await install_provider(plane, Helm(program=ensure("helm"), home=fleet.folder / f"{name}-helm"))
    callbacks = fleet.folder / f"{name}-callbacks"
    provider = ProviderProcess(
        plane=plane,
        folder=folder,
        ports=fleet.ports,
        environment={"PYTHONPATH": str(INSIDE), "FIPOP_CALLBACKS": str(callbacks)},
    )
    async with AsyncExitStack() as exits:
        exits.push_async_callback(fleet.remove, plane)
        await provider.start()
        exits.push_async_callback(provider.stop)
        watch = Watch(
            process=provider.process,
            url=provider.url,
            most_mib=MOST_MIB,
            ports={int(plane.url.rpartition(":")[2])},
            secrets=(),
            folder=folder,
            callbacks=callbacks,
        )
        stage = ServiceStage(client=plane.client, provider=provider, watch=watch)
        following = asyncio.create_task(stage.follow())
        exits.callback(following.cancel)
        await _bring_up(stage, plane, neighbours)
        watch.start()
        exits.push_async_callback(watch.stop)
        yield stage


async def _bring_up(stage: ServiceStage, plane: ControlPlane, count: int) -> None:
    pools = {f"cidr-good-{number}": f"10.{50 + number}.0.0/16" for number in range(GOOD_NAMESPACES)}
    place, _, name = KEYS.rpartition("/")
    await plane.client.create(place, {"metadata": {"name": name}, "data": pools})
    for number in range(GOOD_NAMESPACES):
        await plane.create_namespace(f"good-{number}")
    for number in range(count):
        path = f"/api/v1/namespaces/good-{number % GOOD_NAMESPACES}/services"
        await plane.client.create(path, service(number, labels=GOOD))

    async def are_served() -> bool:
        return len(stage.addresses) == count and all(stage.addresses.values())

    await eventually(are_served, seconds=60, what="all well-behaved Services have an address")
    assert set(stage.addresses.values()) <= {neighbour(number) for number in range(2 * count)}
