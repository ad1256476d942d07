"""The operator's life: start in order, work while leading, tell its health, stop in time."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import SystemRandom

from fipop.api import names
from fipop.deadlines import LEASE_DURATION_SECONDS
from fipop.guest.guest_pass import GuestSessions
from fipop.guest.helm.chart_access import ChartAccessReader
from fipop.guest.helm.chart_cache import ChartCache
from fipop.guest.helm.runner import HelmRunner, find_helm
from fipop.guest.helm.work_folder import sweep
from fipop.guest.limits import GuestLimits
from fipop.kube.client import KubeClient, RequestRecord
from fipop.kube.connection import Connection
from fipop.kube.events import EventRecorder
from fipop.kube.lease import LeaseLock
from fipop.kube.limits import ReadLimits
from fipop.metrics.exposition import Metrics
from fipop.metrics.samples import FleetSnapshot
from fipop.metrics.server import MetricsPage, MetricsServer
from fipop.operator.configuration import Configuration, read_defaults
from fipop.operator.crds import find_our_age, read_crds, settle_crds
from fipop.operator.manager import Manager
from fipop.operator.memory_limit import most_helms, read_memory_limit
from fipop.operator.predecessor import Predecessor
from fipop.operator.queues import OBJECT_CONCURRENCY, build_queues
from fipop.operator.snapshot import build_snapshot
from fipop.runtime.health import HealthFacts, HealthServer
from fipop.runtime.kopf.operator import KopfOperator, build_settings
from fipop.runtime.leader_election import LeaderElector, boottime
from fipop.runtime.process import VITAL_CONNECTIONS, Process
from fipop.runtime.relist import Relister
from fipop.settings.options import Settings
from fipop.state.cache import WATCHED, ClusterCache
from fipop.texts import clean

logger = logging.getLogger(__name__)
requests = logging.getLogger("fipop.requests")

TRACE = 5
GC_THRESHOLDS = (20_000, 20, 20)
MANAGEMENT_ANSWER_BYTES = 512 * 1024 * 1024
VISITS_AT_ONCE = 64
"""How many guest clusters are talked to at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorOptions:
    """What the command line says: fixed for the life of the process. kube-fip-config holds the rest."""

    connection: Connection
    identity: str
    """A name that no other process has."""
    version: str
    namespace: str = names.OPERATOR_NAMESPACE
    health_host: str | None = None
    health_port: int = 8081
    settings_defaults: Path | None = None
    crds: Path | None = None
    """The folder with our CRDs: the cluster's are compared with them."""
    update_crds: bool = True
    """Whether the cluster's CRDs are updated."""
    leader_election: bool = True
    allow_loopback_guests: bool = False
    helm: str | None = None
    resync_seconds: float = 300.0


class Operator:
    """One process of the operator role.

    `run` goes on until it is cancelled and raises what it cannot survive: RestoredStoreError, AuthorityReplacedError
    and LeaderWorkStuckError want a fresh process. `set_log_level` is told of every change of the option.
    """

    def __init__(self, options: OperatorOptions, *, set_log_level: Callable[[Settings], None]) -> None:
        self._options = options
        self._set_log_level = set_log_level
        self._kopf: KopfOperator | None = None
        self._manager: Manager | None = None
        self._working_since: float | None = None
        self._crds = read_crds(options.crds) if options.crds is not None else []
        build_client = partial(
            KubeClient,
            options.connection,
            limits=ReadLimits(answer_bytes=MANAGEMENT_ANSWER_BYTES, list_bytes=MANAGEMENT_ANSWER_BYTES),
            on_request=partial(self._note_request, "management"),
            user_agent=f"fipop/{options.version}",
        )
        self._client = build_client(max_connections=OBJECT_CONCURRENCY + 8)
        self._vital_client = build_client(max_connections=VITAL_CONNECTIONS)
        self._process = Process(
            client=self._vital_client,
            connection=options.connection,
            config_map=(options.namespace, names.SETTINGS_CONFIG_MAP),
        )
        self._events = EventRecorder(self._client, instance=options.identity)
        self._configuration = Configuration(
            client=self._client,
            events=self._events,
            namespace=options.namespace,
            defaults=read_defaults(options.settings_defaults),
        )
        self._elector = LeaderElector(self._lease(), random=SystemRandom())
        self._metrics = Metrics(self._snapshot, version=options.version)
        self._serving: asyncio.Task[None] | None = None
        self._most_helms = most_helms(read_memory_limit())
        self._helm = HelmRunner(
            find_helm(options.helm),
            concurrency=self._helm_concurrency(),
            observe=lambda command, success: self._metrics.count_helm_run(command, success=success),
        )
        read_access = ChartAccessReader(client=self._client, namespace=options.namespace).read
        limits = GuestLimits(
            helm=self._helm,
            charts=ChartCache(self._helm, read_access=read_access),
            allow_loopback=options.allow_loopback_guests,
            slots=asyncio.Semaphore(VISITS_AT_ONCE),
            observe_request=partial(self._note_request, "guest"),
        )
        self._cache = ClusterCache()
        self._sessions = GuestSessions(limits)
        self._relister = Relister(
            [self._cache.feed(resource) for resource in WATCHED],
            lister=self._client,
            random=SystemRandom(),
            every_seconds=options.resync_seconds,
            on_round=self._check_owners,
        )
        self._predecessor = Predecessor(self._client)

    async def run(self) -> None:
        """Start and work until cancelled."""
        health = HealthServer(self._health, host=self._options.health_host, port=self._options.health_port)
        await health.start()
        try:
            # Now, not with our first helm: a standby may run none for weeks, and there are kubeconfigs in them.
            await asyncio.to_thread(sweep)
            async with self._vital_client, self._client:
                await self._start()
                await self._work()
        finally:
            if self._serving is not None:
                self._serving.cancel()
                await asyncio.wait({self._serving})
            await self._sessions.close()
            await health.stop()

    async def _start(self) -> None:
        """Take the settings in, bring the CRDs up to date: again and again until the API server lets us."""
        await self._process.take_step(self._configuration.load, "settings")
        self._settings_changed(self._configuration.settings, self._configuration.settings)
        self._configuration.listeners.append(self._settings_changed)
        self._serving = asyncio.create_task(self._serve_metrics())
        crds, update = self._crds, self._options.update_crds
        await self._process.take_step(lambda: settle_crds(self._client, crds, update=update), "schema")
        await self._process.take_step(self._find_our_age, "schema")
        self._process.record_started()

    async def _work(self) -> None:
        """Run everything that runs at once; the first that fails ends the rest."""
        # What was loaded until now is never garbage; to look through it at each full collection takes 0.2 s.
        gc.collect()
        gc.freeze()
        # Little of what a request leaves holds itself: to look for it as often as usual costs 4 % of the processor.
        gc.set_threshold(*GC_THRESHOLDS)
        self._working_since = time.monotonic()
        await self._process.run_parts(
            self._events.run(),
            self._configuration.follow(),
            self._watch(),
            self._relister.run(),
            # Last in, first out: its work stops before what it stands on.
            self._elector.run(self._lead),
        )

    async def _watch(self) -> None:
        """Watch from the first lists on: they are here long before kopf's, and what is missing is not served yet."""
        await self._relister.wait_loaded()
        self._kopf = KopfOperator(
            self._options.connection,
            {resource: self._cache.feed(resource).take_event for resource in WATCHED},
            build_settings(SystemRandom()),
            on_gap=self._relister.request,
        )
        await self._kopf.run()

    async def _lead(self) -> None:
        """Work as the leader, until cancelled; not while the predecessor works, whose objects those are until then."""
        while True:
            await self._predecessor.wait(runs=False)
            working = asyncio.create_task(self._work_as_leader())
            watching = asyncio.create_task(self._predecessor.wait(runs=True))
            try:
                await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
                if working.done():
                    return working.result()
            finally:
                for task in (watching, working):
                    task.cancel()
                await asyncio.wait({watching, working})

    async def _work_as_leader(self) -> None:
        self._manager = Manager(
            client=self._client.for_leader(lambda: self._elector.is_leader),
            cache=self._cache,
            events=self._events,
            configuration=self._configuration,
            elector=self._elector,
            metrics=self._metrics,
            sessions=self._sessions,
            queues=build_queues(self._metrics, SystemRandom()),
            namespace=self._options.namespace,
        )
        try:
            await self._manager.run(
                self._relister.refresh,
                passes=VISITS_AT_ONCE * 2,
                installs=self._helm_concurrency(),
            )
        finally:
            self._manager = None

    async def _serve_metrics(self) -> None:
        await MetricsServer(MetricsPage(self._metrics.prepare)).serve(
            wanted=lambda: self._configuration.settings.metrics_port,
            complain=partial(self._configuration.complain, "PortTaken"),
        )

    async def _find_our_age(self) -> None:
        self._cache.inheritance.ours_since = await find_our_age(self._client)

    def _settings_changed(self, before: Settings, after: Settings) -> None:
        self._set_log_level(after)
        if self._manager is not None and after != before:
            self._manager.settings_changed(before, after)
        self._resize_helm()

    def _helm_concurrency(self) -> int:
        """Return how many helm processes can run at once: what the option says, if the memory limit allows it."""
        wanted = self._configuration.settings.helm_concurrency
        return wanted if self._most_helms is None else min(wanted, self._most_helms)

    def _resize_helm(self) -> None:
        wanted, count = self._configuration.settings.helm_concurrency, self._helm_concurrency()
        if count < wanted:
            message = (
                f"Option helmConcurrency is {wanted}: fipop runs only {count} helm processes at once. Increase the "
                "memory limit of the pod to run more."
            )
            self._configuration.complain("UnwiseOption", message)
        self._helm.resize(count)
        if self._manager is not None:
            self._manager.queues.installs.resize(count)

    def _check_owners(self) -> None:
        """After a round of lists: look at every reservation whose floating IP is not in its list."""
        if self._manager is not None:
            self._manager.check_owners()

    def _lease(self) -> LeaseLock | None:
        if not self._options.leader_election:
            return None
        return LeaseLock(
            self._vital_client,
            namespace=self._options.namespace,
            name=names.LEASE_NAME,
            identity=self._options.identity,
            duration_seconds=LEASE_DURATION_SECONDS,
            monotonic=boottime,
            annotations=lambda: {
                names.ANNOTATION_WAITS: self._manager.describe_waits() if self._manager else ""
            },
        )

    def _health(self) -> HealthFacts:
        return self._process.judge(silences=self._silences(), is_loaded=self._relister.loaded)

    def _silences(self) -> dict[str, float]:
        """Return for how long each watch has shown no life, that of the settings too."""
        if self._working_since is None:
            return {}
        heard = self._configuration.last_heard_at
        since = time.monotonic() - (heard if heard is not None else self._working_since)
        return {**(self._kopf.silences() if self._kopf is not None else {}), names.SETTINGS_CONFIG_MAP: since}

    def _snapshot(self) -> FleetSnapshot:
        since_read = self._process.reads.since_read
        return replace(
            build_snapshot(self._cache, self._manager),
            leading=self._elector.is_leader,
            bad_options=len(self._configuration.bad_options),
            predecessor_runs=bool(self._predecessor.runs),
            last_answer=None if since_read is None else time.time() - since_read,
        )

    def _note_request(self, target: str, record: RequestRecord) -> None:
        self._metrics.observe_api_request(target, record.verb, record.status, record.duration_seconds)
        if requests.isEnabledFor(TRACE):
            path = clean(record.path)  # helm's hold names that a guest gave
            fields = {"target": target, "verb": record.verb, "path": path, "status": record.status}
            requests.log(TRACE, "Request", extra=fields)
