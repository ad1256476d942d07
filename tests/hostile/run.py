"""A run: the real operator, a real management cluster, well-behaved guests, and hostile ones beside them."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import ClientError

from localfleet.assets import ensure
from localfleet.chartrepo import ChartRepository
from localfleet.errors import ApiError
from localfleet.fleet import LocalFleet
from localfleet.helm import PUBLISHED, Helm
from localfleet.rancher_plan import REAL_ORDER, GuestKind, Step
from localfleet.simulated import SimulatedGuest
from localfleet.stack import GROUP, RANGES, Stack, build_floating_ip, build_range, floating_ips, open_stack
from localfleet.waiting import eventually
from tests.hostile.behind import Behind
from tests.hostile.cases import Case
from tests.hostile.watch import Watch

Json = dict[str, Any]

TOKEN = "kubeconfig-u-hostile:verysecrettoken"
INSIDE = Path(__file__).with_name("inside")
AT_ONCE = 32
PROBE_SECONDS = 0.5
PROBE_DEADLINE_SECONDS = 60.0
CLUSTERS = "/apis/provisioning.cattle.io/v1/namespaces/fleet-default/clusters"
HARVESTER = "harvester-cluster1"
LIVING = [step for step in REAL_ORDER if step not in (Step.KUBECONFIG, Step.TOKEN)]


@dataclass(slots=True)
class Waits:
    """How long well-behaved guests waited, in seconds: for a new address, and for a pass that brings it."""

    address: list[float] = field(default_factory=list)
    passes: list[float] = field(default_factory=list)
    missed: int = 0

    def p99(self) -> tuple[float, float]:
        """Give the p99 of both."""
        return _p99(self.address), _p99(self.passes)


@dataclass(slots=True)
class Trap:
    """Where redirects lead: nobody may come. `visits` counts who did."""

    visits: int = 0
    port: int = 0
    _server: asyncio.Server | None = field(default=None, repr=False)

    async def open(self) -> None:
        """Listen, in plain HTTP."""

        async def caught(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.visits += 1
            writer.close()

        self._server = await asyncio.start_server(caught, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()


def _p99(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] if ordered else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one case ended; `problem` is "" where all was as it should be."""

    case: str
    problem: str
    told: str = ""


@dataclass(slots=True, kw_only=True)
class Stage:
    """What all cases share."""

    stack: Stack
    behind: Behind
    watch: Watch
    neighbours: list[str] = field(default_factory=list)
    behave: bool = False
    """Every hostile guest behaves: what its presence alone costs the others."""
    floating_ips: dict[tuple[str, str], Json] = field(default_factory=dict)
    """All of them as they were told of last, by namespace and name."""
    waits: Waits = field(default_factory=Waits)
    outcomes: list[Outcome] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    async def try_case(self, case: Case) -> None:
        """Bring one hostile guest, wait for two passes and what is told of them, and take it away."""
        number = next(self._numbers)
        name = f"hostile-{number}"
        try:
            problem, told = await self._try(case, name)
        except Exception as error:  # noqa: BLE001 - a case that cannot be run is one that failed
            problem, told = f"{type(error).__name__}: {error}", ""
        self.outcomes.append(Outcome(case=case.name, problem=problem, told=told))

    async def _try(self, case: Case, name: str) -> tuple[str, str]:
        player, client = self.stack.player, self.stack.client
        labels = {"kube-vip": "true"} if case.opted_in else {}
        plan = player.plan_guest(name, kind=GuestKind.OTHER_MACHINES, labels=labels)
        guest_id = plan.cluster_id
        await self.behind.add(guest_id, None if self.behave else case.name)
        config = self._kubeconfig(guest_id)
        content = config if self.behave or case.change is None else case.change(config)
        value = content if isinstance(content, bytes) else json.dumps(content).encode()
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": plan.kubeconfig_secret, "namespace": "fleet-default"},
            "data": {"value": base64.b64encode(value).decode()},
        }
        await client.create("/api/v1/namespaces/fleet-default/secrets", secret)
        await player.create_guest(plan, order=LIVING)
        path = floating_ips(guest_id)
        body = build_floating_ip(guest_id, "web", cluster=name, range_name="others")
        await client.create(path, body)
        try:
            told = await self._told(case, guest_id, generation=1)
            seen = await self.behind.seen(guest_id)
            await client.patch(f"{path}/web", {"spec": {"allowShare": True}})
            if seen and not case.hangs:
                await eventually(
                    lambda: self._is_asked_again(guest_id, seen),
                    seconds=case.settles_seconds,
                    what="a second pass",
                )
            told = await self._told(case, guest_id, generation=2)
        except Exception as error:  # noqa: BLE001 - told with what stood there
            found = await client.get(f"{path}/web")
            return f"{type(error).__name__}: {str(error)[:200]}", _sentences(found)
        finally:
            annotations = {"kubefip.k8s.binbash.org/paused": "true"}
            await client.patch(f"{CLUSTERS}/{name}", {"metadata": {"annotations": annotations}})
        return self._judge(told), told

    async def _is_asked_again(self, guest_id: str, before: int) -> bool:
        return await self.behind.seen(guest_id) > before

    async def _told(self, case: Case, guest_id: str, *, generation: int) -> str:
        async def is_told() -> str | None:
            found = self.floating_ips[guest_id, "web"]
            status = found.get("status") or {}
            text = _sentences(found)
            wanted = '"Configured"' if self.behave else case.says
            is_there = status.get("observedGeneration", 0) >= generation and re.search(
                wanted, text, re.IGNORECASE
            )
            return text if is_there else None

        return await eventually(is_told, seconds=case.settles_seconds, what=f'"{case.says}" to be told')

    def _judge(self, told: str) -> str:
        if "PWNED\x07" in told or "\x1b" in told or "\u202e" in told:
            return "a guest's characters in a status"
        if len(told) > 6000:
            return f"a status of {len(told)} characters"
        return ""

    def _kubeconfig(self, guest_id: str) -> Json:
        ca = base64.b64encode(self.behind.ca_pem.encode()).decode()
        cluster = {"server": self.behind.url_of(guest_id), "certificate-authority-data": ca}
        return {
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
            "contexts": [{"name": "d", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "d",
        }

    async def probe(self, stop: asyncio.Event) -> None:
        """Have a well-behaved guest ask for an address twice a second, and take the times."""
        probes: set[asyncio.Task[None]] = set()
        for number in itertools.count():
            if stop.is_set():
                break
            probes.add(asyncio.create_task(self._probe(number)))
            await asyncio.sleep(PROBE_SECONDS)
        await asyncio.gather(*probes)

    async def _probe(self, number: int) -> None:
        guest_id = self.neighbours[number % len(self.neighbours)]
        namespace = f"probe-{number}"
        path = floating_ips(guest_id)
        name = f"probe-{number}-{int(time.monotonic())}"
        route = self.stack.proxy.guests[guest_id].target
        assert isinstance(route, SimulatedGuest)
        key = f"cidr-{namespace}"
        began = time.monotonic()
        body = build_floating_ip(guest_id, name, range_name="probes", serviceNamespace=namespace)
        await self.stack.client.create(path, body)
        try:
            await self._until(lambda: self._has_address(guest_id, name))
            self.waits.address.append(time.monotonic() - began)
            held = time.monotonic()

            def is_written() -> bool:
                found = route.get("configmaps", "kube-system", "kubevip")
                return key in ((found or {}).get("data") or {})

            await self._until(is_written)
            self.waits.passes.append(time.monotonic() - held)
        except TimeoutError:
            self.waits.missed += 1
        await self.stack.client.delete(f"{path}/{name}")

    def _has_address(self, namespace: str, name: str) -> bool:
        return bool((self.floating_ips.get((namespace, name), {}).get("status") or {}).get("addresses"))

    async def _until(self, look: Callable[[], bool]) -> None:
        async with asyncio.timeout(PROBE_DEADLINE_SECONDS):
            while not look():  # noqa: ASYNC110 - it costs less than to be told of every change
                await asyncio.sleep(0.02)

    async def follow(self) -> None:
        """Keep `floating_ips` by a watch: whoever asks the API server again and again slows what is measured."""
        while True:
            with suppress(ApiError, ClientError):
                async for event in self.stack.client.watch(f"{GROUP}/floatingips"):
                    metadata = event["object"].get("metadata", {})
                    self.floating_ips[metadata.get("namespace"), metadata.get("name")] = event["object"]
            await asyncio.sleep(PROBE_SECONDS)


def _sentences(floating_ip: Json) -> str:
    conditions = (floating_ip.get("status") or {}).get("conditions") or []
    return json.dumps(
        [[each["type"], each["reason"], each.get("message", "")] for each in conditions], ensure_ascii=False
    )


async def run_cases(
    stage: Stage, cases: Iterable[Case], *, rounds: Sequence[str] = ("alone", "together")
) -> None:
    """Run kinds that hang side by side, the others one by one and then many at once; others ask meanwhile."""
    chosen = list(cases)
    stop = asyncio.Event()
    probing = asyncio.create_task(stage.probe(stop))
    try:
        hanging = asyncio.gather(*(stage.try_case(case) for case in chosen if case.hangs))
        brisk = [case for case in chosen if not case.hangs]
        if "alone" in rounds:
            for case in brisk:
                await stage.try_case(case)
        if "together" in rounds:
            room = asyncio.Semaphore(AT_ONCE)

            async def try_in(case: Case) -> None:
                async with room:
                    await stage.try_case(case)

            await asyncio.gather(*(try_in(case) for case in brisk))
        await hanging
    finally:
        stop.set()
        await probing


@asynccontextmanager
async def open_stage(fleet: LocalFleet, name: str, *, neighbours: int) -> AsyncIterator[Stage]:
    """Start everything: no hostile guest is there yet."""
    async with AsyncExitStack() as exits:
        repository = await exits.enter_async_context(ChartRepository())
        helm = Helm(program=ensure("helm"), home=fleet.folder / f"{name}-pack")
        for chart in PUBLISHED:
            repository.publish(await helm.pack(chart, fleet.folder / f"{name}-charts"))
        settings = {
            "kubevipGuestInstall": "clusterlabel",
            "kubevipChartRepoUrl": repository.url,
            "operateGuestClusterInterval": "3600",
        }
        stack = await exits.enter_async_context(open_stack(fleet, name, settings=settings))
        trap = Trap()
        await trap.open()
        exits.push_async_callback(trap.close)
        behind = await exits.enter_async_context(Behind(trap.port))
        for range_name, pool in (
            ("neighbours", "10.10.0.0/16"),
            ("probes", "10.20.0.0/16"),
            ("others", "10.30.0.0/16"),
        ):
            harvester = HARVESTER if range_name == "neighbours" else None
            await stack.client.create(RANGES, build_range(range_name, pool, harvester=harvester))
        callbacks = fleet.folder / f"{name}-callbacks"
        watched = {"PYTHONPATH": str(INSIDE), "FIPOP_CALLBACKS": str(callbacks)}
        operator = await stack.installation.operator(fleet.ports, name="operator-0", environment=watched)
        stack.operators.append(operator)
        await operator.start()
        ports = {_port(url) for url in (stack.plane.url, stack.proxy.url, repository.url)} | {behind.port}
        watch = Watch(
            process=operator.process,
            url=operator.health_url,
            ports=ports,
            secrets=(TOKEN.encode(),),
            folder=stack.installation.folder / "operator-0",
            callbacks=callbacks,
        )
        stage = Stage(stack=stack, behind=behind, watch=watch)
        following = asyncio.create_task(stage.follow())
        exits.callback(following.cancel)
        await _bring_up(stage, neighbours)
        watch.start()
        try:
            yield stage
        finally:
            await watch.stop()
            if trap.visits:
                watch.findings.append(f"{trap.visits} connections to where a redirect led")


async def _bring_up(stage: Stage, count: int) -> None:
    room = asyncio.Semaphore(8)

    async def create(number: int) -> None:
        async with room:
            plan = stage.stack.player.plan_guest(f"neighbour-{number}")
            await stage.stack.player.create_guest(plan, SimulatedGuest())
            stage.neighbours.append(plan.cluster_id)

    await asyncio.gather(*(create(number) for number in range(count)))

    async def are_written() -> bool:
        targets = [stage.stack.proxy.guests[each].target for each in stage.neighbours]
        return all(
            isinstance(each, SimulatedGuest) and each.get("configmaps", "kube-system", "kubevip")
            for each in targets
        )

    await eventually(are_written, seconds=180, what="all neighbours to have their address")


def _port(url: str) -> int:
    return int(url.rstrip("/").rpartition(":")[2].partition("/")[0])
