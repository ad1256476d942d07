"""A guest in which several providers work at once, each behind a fault proxy of its own."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from localfleet.assets import ensure
from localfleet.certificates import build_authority
from localfleet.client import Json
from localfleet.controlplane import ControlPlane
from localfleet.faultproxy import FaultProxy, Schedule
from localfleet.faultproxy.rules import Rule
from localfleet.fleet import LocalFleet
from localfleet.helm import Helm
from localfleet.provider import ProviderProcess, install_provider
from localfleet.waiting import eventually
from tests.faults.services.plans import CLASS

NAMESPACES = tuple(f"ns-{number}" for number in range(20))
KEYS = "/api/v1/namespaces/kube-system/configmaps/kubevip"
CLASSES = {
    "KUBEVIP_ENABLE_LOADBALANCERCLASS": "true",
    "KUBEVIP_CUSTOM_LOADBALANCERCLASS_NAME": f",{CLASS}",
}
"""Services of the class and Services without one."""
SHORT_LEASE = (
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=500ms",
)
SHARING = frozenset(NAMESPACES[5:10])


class Provider:
    """A provider that is started again whenever it is killed."""

    def __init__(self, name: str, process: ProviderProcess, proxy: FaultProxy) -> None:
        self.name = name
        self.process = process
        self.proxy = proxy
        self.killed = 0
        self.ended: list[int] = []
        self._keeper: asyncio.Task[None] | None = None

    async def start(self, rules: Sequence[Rule], seed: int) -> None:
        """Start it, with this harm from its first request on."""
        self.process.arguments = SHORT_LEASE
        self.proxy.begin(Schedule(rules, seed=seed))
        self.killed, self.ended = 0, []
        await self.process.begin()
        self._keeper = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
            self._keeper = None
            await self.process.process.stop(grace_seconds=0)

    def send_signal(self, number: signal.Signals) -> None:
        if self._keeper is not None and self.process.process.is_running:
            os.kill(self.process.process.pid, number)

    async def _keep(self) -> None:
        while True:
            code = await self.process.process.wait()
            if code == -signal.SIGKILL:
                self.killed += 1
            else:
                self.ended.append(code)
                await asyncio.sleep(0.5)
            await self.process.process.start()


class Lane:
    """The control plane, its namespaces and pools, the providers, and what happened to Services."""

    def __init__(self, fleet: LocalFleet, number: int) -> None:
        self.number = number
        self.providers: dict[str, Provider] = {}
        self.history: list[Json] = []
        """Every event of every Service since the plan began."""
        self._heard: dict[str, int] = {}
        self.last_change_at = time.monotonic()
        self._fleet = fleet
        self._environment = {"SSL_CERT_FILE": os.devnull, **CLASSES}
        self._exits = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.plane: ControlPlane = await self._fleet.guest(f"lane-{self.number}", controllers=())
        self._folder = self._fleet.folder / f"lane-{self.number}-providers"
        self._folder.mkdir()
        helm = Helm(program=ensure("helm"), home=self._folder / "helm")
        # Without controllers nobody makes the account that the chart's own is like; the chart brings it.
        await install_provider(self.plane, helm)
        for namespace in NAMESPACES:
            await self.plane.create_namespace(namespace)
        await self.plane.client.create(
            KEYS.rpartition("/")[0], {"metadata": {"name": "kubevip"}, "data": build_keys()}
        )
        self._authority = build_authority(f"lane-{self.number}", datetime.now(UTC))
        self._following = asyncio.create_task(self._follow())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._following.cancel()
        for provider in self.providers.values():
            await provider.stop()
        await self._exits.aclose()

    async def provider(self, name: str) -> Provider:
        """The provider of that name; prepared where it was not yet."""
        if name in self.providers:
            return self.providers[name]
        made: Provider | None = None

        def send_signal(number: signal.Signals) -> None:
            if made is not None:
                made.send_signal(number)

        proxy = await self._exits.enter_async_context(
            FaultProxy(
                self.plane.url,
                trust=self.plane.ca_pem,
                pair=self._authority.issue_server(["127.0.0.1"]),
                send_signal=send_signal,
            )
        )
        process = ProviderProcess(
            plane=self.plane,
            folder=self._folder / name,
            ports=self._fleet.ports,
            environment=self._environment,
            server=proxy.url,
            authority=self._authority.pem,
        )
        made = self.providers[name] = Provider(name, process, proxy)
        return made

    async def services(self) -> list[Json]:
        """All Services of our namespaces."""
        found = await self.plane.client.items("/api/v1/services")
        return [each for each in found if each["metadata"]["namespace"] in NAMESPACES]

    async def catch_up(self) -> None:
        """Return when everything up to now has been heard."""
        wanted = {
            each["metadata"]["uid"]: int(each["metadata"]["resourceVersion"])
            for each in await self.services()
        }

        async def has_heard() -> bool:
            if self._following.done():
                self._following.result()
            missing = [uid for uid, version in wanted.items() if self._heard.get(uid, 0) < version]
            assert not missing, missing
            return True

        await eventually(has_heard, seconds=20.0, what="every revision")

    async def _follow(self) -> None:
        """Hear of every revision of every Service."""
        listed = await self.plane.client.get("/api/v1/services")
        version = listed["metadata"]["resourceVersion"]
        async for event in self.plane.client.watch("/api/v1/services", resource_version=version):
            assert event["type"] != "ERROR", event
            metadata = event["object"]["metadata"]
            if metadata.get("namespace") in NAMESPACES:
                self.last_change_at = time.monotonic()
                self.history.append(event)
                self._heard[metadata["uid"]] = int(metadata["resourceVersion"])


def build_keys() -> dict[str, str]:
    """Pools of their own for four namespaces, consent for five others, and one pool for all the rest."""
    own = {
        f"range-{NAMESPACES[number]}": f"10.1.{number}.1-10.1.{number}.250,2001:db8:{number}::1-2001:db8:{number}::ff"
        for number in range(1, 5)
    }
    consent = {f"allow-share-{namespace}": "true" for namespace in SHARING}
    return {**own, **consent, "cidr-global": "10.2.0.0/20,2001:db8::/108"}
