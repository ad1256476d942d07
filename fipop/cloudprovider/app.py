"""The cloud provider's life: start in order, work while leading, tell its health, stop in time."""

from __future__ import annotations

import asyncio
from random import Random

from fipop.boundary import ApiFactory, Clock, loop_time
from fipop.cloudprovider.keepalived_mode import KeepalivedMode
from fipop.cloudprovider.kubevip_mode import KubevipMode
from fipop.cloudprovider.modes import Mode
from fipop.cloudprovider.options import KubevipOptions, ProviderOptions
from fipop.cloudprovider.service_cache import ServiceCache
from fipop.cloudprovider.stale_leases import StaleLeases
from fipop.kube.client import KubeClient, RequestRecord
from fipop.kube.events import EventRecorder
from fipop.metrics.server import MetricsPage
from fipop.metrics.services import ServiceMetrics, ServiceSnapshot
from fipop.runtime.health import HealthFacts, HealthServer
from fipop.runtime.leader_election import LeaderElector
from fipop.runtime.lease import LeaseLock
from fipop.runtime.process import Process

ANSWER_BYTES = 16 << 20
PAGE_ITEMS = 100
"""Of each Service in a page little is kept; one of Kubernetes has at most 1.5 MiB."""


def build_provider(
    options: ProviderOptions, *, api: ApiFactory, clock: Clock, random: Random
) -> CloudProvider:
    """Build the cloud provider with all its parts over the world outside; `CloudProvider.run` starts it.

    `api` is called for each set of connections to the API server. All waiting is measured by the event loop's clock.
    """
    return CloudProvider(options, api=api, clock=clock, random=random)


class CloudProvider:
    """One process of the cloud provider.

    `run` goes on until it is cancelled and raises what it cannot survive: RestoredStoreError, StartError
    and LeaderWorkStuckError want a fresh process.
    """

    def __init__(self, options: ProviderOptions, *, api: ApiFactory, clock: Clock, random: Random) -> None:
        self._options = options
        self._api = api
        self._random = random
        self._metrics = ServiceMetrics(self._snapshot, version=options.version)
        self._client = self._build_client()
        self._vital_client = self._build_client()
        self._process = Process(
            client=self._vital_client,
            config_map=(options.mode.namespace, options.mode.config_map),
        )
        self._events = EventRecorder(
            self._client,
            now=clock.now,
            component="fipop-cloud-provider",
            instance=options.identity,
        )
        self._services = ServiceCache(self._client, chance=random)
        self._mode = self._build_mode()
        self._elector = LeaderElector(
            build_lease(options, self._vital_client, clock),
            random=random,
            clock=clock.boottime,
            times=options.lease.times if options.lease is not None else None,
        )
        self._working_since: float | None = None

    def _build_client(self) -> KubeClient:
        return KubeClient(
            self._api(),
            answer_bytes=ANSWER_BYTES,
            page_items=PAGE_ITEMS,
            on_request=self._note_request,
        )

    def _build_mode(self) -> Mode:
        options = self._options
        if isinstance(options.mode, KubevipOptions):
            return KubevipMode(
                options.mode,
                client=self._client,
                services=self._services,
                events=self._events,
                metrics=self._metrics,
                writes_at_once=options.writes_at_once,
                random=self._random,
            )
        return KeepalivedMode(
            options.mode,
            client=self._client,
            services=self._services,
            events=self._events,
            metrics=self._metrics,
            random=self._random,
        )

    async def run(self) -> None:
        """Start and work until cancelled."""
        self._working_since = loop_time()
        options, health = self._options, None
        if options.port is not None:
            more = {"/metrics": MetricsPage(self._metrics.prepare).answer}
            health = HealthServer(self._health, host=options.host, port=options.port, more=more)
            await health.start()
        try:
            async with self._vital_client, self._client:
                await self._process.take_step(self._mode.load, "configuration")
                self._process.record_started()
                await self._process.run_parts(
                    self._events.run(),
                    *self._mode.follow(),
                    self._services.follow(),
                    # Last in, first out: its work stops before what it stands on.
                    self._elector.run(self._lead),
                )
        finally:
            if health is not None:
                await health.stop()

    async def _lead(self) -> None:
        client = self._client.for_leader(lambda: self._elector.is_leader)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._mode.work(client))
            if self._options.delete_stale_leases:
                group.create_task(StaleLeases(client, self._services).run())

    def _health(self) -> HealthFacts:
        now = loop_time()
        heard = {"services": self._services.last_heard_at, **self._mode.last_heard()}
        return self._process.judge(
            silences={name: now - (at or self._working_since or now) for name, at in heard.items()},
            is_loaded=self._services.is_loaded,
        )

    def _snapshot(self) -> ServiceSnapshot:
        found = self._mode.snapshot() if self._elector.is_leader else None
        return found or ServiceSnapshot(leading=False)

    def _note_request(self, record: RequestRecord) -> None:
        self._metrics.count_request(record.verb, record.status)


def build_lease(options: ProviderOptions, client: KubeClient, clock: Clock) -> LeaseLock | None:
    """Return the Lease that the provider is elected by; None without election."""
    lease = options.lease
    if lease is None:
        return None
    return LeaseLock(
        client,
        namespace=lease.namespace,
        name=lease.name,
        identity=options.identity,
        duration_seconds=lease.times.duration_seconds,
        monotonic=clock.boottime,
    )
