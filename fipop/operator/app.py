"""The operator's life: start in order, work while leading, tell its health, stop in time."""

from __future__ import annotations

import asyncio
import logging
import secrets
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from fipop.addresses.guests import GuestRecords
from fipop.addresses.inventory import Inventory
from fipop.addresses.stores import WATCHED
from fipop.api import names
from fipop.guests.access import GuestClients
from fipop.guests.record import GuestRecord
from fipop.helm.chart_store import ChartStore
from fipop.helm.command import Helm, empty_folder
from fipop.helm.process import HelmProcess
from fipop.interfaces import ApiFactory, Clock, end_process
from fipop.kube.client import KubeClient, RequestRecord
from fipop.kube.events import EventRecorder
from fipop.kube.guests import GuestFactory
from fipop.kube.resources import Resource
from fipop.metrics import counters
from fipop.metrics.gauges import Gauges, build_registry
from fipop.operator.crds import find_our_age, read_crds, settle_crds
from fipop.operator.installations import Installations
from fipop.operator.manager import Manager
from fipop.operator.metrics import OperatorState, read_fleet, render_fleet
from fipop.operator.predecessor import Predecessor
from fipop.runtime.configuration import Configuration
from fipop.runtime.http import ProbeServer
from fipop.runtime.informer import Informer, Relister, Watch
from fipop.runtime.leader_election import LeaderElector
from fipop.runtime.process import Process
from fipop.runtime.queues import build_queues
from fipop.settings.options import Settings
from fipop.settings.values import TRACE
from fipop.texts import clean

logger = logging.getLogger(__name__)
requests = logging.getLogger("fipop.requests")

VISITS_AT_ONCE = 256
"""As many as 2,000 guest clusters need of which a tenth hangs for the time of one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorOptions:
    """What the command line says: fixed for the life of the process. kube-fip-config holds the rest."""

    identity: str
    """A name that no other process has."""
    version: str
    namespace: str = names.OPERATOR_NAMESPACE
    health_host: str | None = None
    health_port: int | None = 8081
    """The port of the probes. None: neither probes nor metrics are served."""
    settings_defaults: Path | None = None
    crds: Path | None = None
    """The folder with our CRDs: the cluster's are compared with them."""
    update_crds: bool = True
    """Whether the cluster's CRDs are updated."""
    leader_election: bool = True
    resync_seconds: float = 300.0
    work_folder: Path | None = None
    """The folder for charts and for what a helm needs while it runs, emptied at the start. None: a new one."""


def build_operator(  # noqa: PLR0913 - the world outside
    options: OperatorOptions,
    *,
    api: ApiFactory,
    watch: Watch,
    helm: HelmProcess,
    clock: Clock,
    random: Random,
    guests: GuestFactory,
    set_log_level: Callable[[Settings], None] = lambda _: None,
    end: Callable[[], None] = end_process,
) -> Operator:
    """Build the operator role with all its parts over the world outside; `Operator.run` starts it.

    `api` is called for each set of connections to the management cluster, `guests` for each connection to a guest
    cluster. `watch` watches the management cluster. All waiting is measured by the event loop's clock. `set_log_level`
    is told of every change of the options. `end` ends the process at once.
    """
    return Operator(
        options,
        environment=Environment(
            api=api, guests=guests, watch=watch, helm=helm, clock=clock, random=random, end=end
        ),
        set_log_level=set_log_level,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What is outside of the operator; `build_operator` documents each."""

    api: ApiFactory
    guests: GuestFactory
    watch: Watch
    helm: HelmProcess
    clock: Clock
    random: Random
    end: Callable[[], None]


class Operator:
    """One process of the operator role.

    `run` goes on until it is cancelled, and raises what only a new process can go on from: the Lease is lost, kopf
    ended, kube-fip-operator is back, the store was restored, the authority of the API server is another one.
    `set_log_level` is told of every change of the option.
    """

    def __init__(
        self, options: OperatorOptions, *, environment: Environment, set_log_level: Callable[[Settings], None]
    ) -> None:
        self._options = options
        self._environment = environment
        self._set_log_level = set_log_level
        self._ours_since: datetime | None = None
        self._crds = read_crds(options.crds) if options.crds is not None else []
        build_client = partial(
            KubeClient,
            on_request=partial(self._note_request, "management"),
        )
        self._client = build_client(environment.api())
        self._vital_client = build_client(environment.api())
        self._events = EventRecorder(self._client, now=environment.clock.now, instance=options.identity)
        self._configuration = Configuration(
            client=self._vital_client,
            events=self._events,
            namespace=options.namespace,
            defaults=options.settings_defaults,
        )
        self._process = Process(
            client=self._vital_client,
            read=self._configuration.poll,
            is_loaded=lambda: self._relister.loaded.is_set(),
        )
        self._elector = self._build_elector() if options.leader_election else None
        self._installations = Installations(
            self._vital_client, namespace=options.namespace, clock=environment.clock.boottime
        )
        self._http: ProbeServer | None = None
        self._folder = options.work_folder or Path(tempfile.gettempdir(), f"fipop-{secrets.token_hex(8)}")
        self._helm = Helm(
            process=environment.helm,
            folder=self._folder,
            observe=_count_helm_run,
        )
        self._charts = ChartStore(helm=self._helm, client=self._client, namespace=options.namespace)
        self._clients = GuestClients(
            guests=environment.guests,
            rate=lambda: self._configuration.settings.guest_requests_per_second,
            observe_request=partial(self._note_request, "guest"),
        )
        records = GuestRecords(GuestRecord)
        self._inventory = Inventory(records)
        self._relister = Relister(
            [self._build_informer(resource) for resource in WATCHED],
            random=environment.random,
            every_seconds=options.resync_seconds,
        )
        self._predecessor = Predecessor(self._client, namespace=options.namespace)
        self._manager = Manager(
            client=self._client.for_leader(self._leads_for),
            inventory=self._inventory,
            records=records,
            events=self._events,
            configuration=self._configuration,
            leads_for=self._leads_for,
            clients=self._clients,
            helm=self._helm,
            charts=self._charts,
            queues=build_queues(environment.random),
            random=environment.random,
            namespace=options.namespace,
            ours_since=lambda: self._ours_since,
        )

    async def run(self) -> None:
        """Start and work until cancelled."""
        options = self._options
        if options.health_port is not None:
            registry = build_registry(counters.REGISTRY, Gauges(lambda: render_fleet(self._read_fleet())))
            self._http = ProbeServer(
                lambda: self._process.why_not_ready() | self._installations.why_not_ready(),
                registry,
                host=options.health_host,
                port=options.health_port,
            )
            await self._http.start()
        try:
            # What a killed process left has kubeconfigs of guest clusters in it, without a credential.
            await asyncio.to_thread(empty_folder, self._folder)
            async with self._vital_client, self._client:
                await self._start()
                await self._work()
        finally:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
            if self._http is not None:
                await self._http.stop()

    async def _start(self) -> None:
        """Take the settings in, bring the CRDs up to date: again and again until the API server lets us."""
        await self._process.take_step(self._configuration.load, "settings")
        self._settings_changed(self._configuration.settings, self._configuration.settings)
        self._configuration.listeners.append(self._settings_changed)
        if self._http is not None:
            problem = await self._http.serve_on(self._configuration.settings.metrics_port)
            if problem:
                self._configuration.complain("PortTaken", problem)
        crds, update = self._crds, self._options.update_crds
        await self._process.take_step(lambda: settle_crds(self._client, crds, update=update), "schema")
        await self._process.take_step(self._find_our_age, "schema")
        self._process.record_started()

    async def _work(self) -> None:
        """Run everything that runs at once; the first that fails ends the rest."""
        if self._elector is None:
            leading = [self._lead()]
        else:
            leading = [self._elector.lead(self._lead), self._installations.watch()]
        parts = (
            self._events.run(),
            self._watch(),
            self._relister.run(),
            # Last in, first out: its work stops before what it stands on.
            *leading,
            self._predecessor.watch(lambda: self._manager.is_working),
        )
        await self._process.run_parts(*map(self._run_part, parts))

    async def _run_part(self, part: Coroutine[Any, Any, None]) -> None:
        """Run a part. If it fails, the next leader gets nothing of what this process knew: it may be wrong, too."""
        try:
            await part
        except Exception:
            self._manager.handover.end()
            raise

    async def _watch(self) -> None:
        """Watch after the first lists: they are here long before those of the watch, which may not be served yet."""
        await self._relister.loaded.wait()
        await self._environment.watch({resource: self._build_informer(resource).take for resource in WATCHED})

    def _build_informer(self, resource: Resource) -> Informer[Any]:
        inventory = self._inventory
        return Informer(self._client, resource, inventory.store_of(resource), inventory.taker_of(resource))

    async def _lead(self) -> None:
        """Work as the leader, until cancelled; not while another installation or kube-fip-operator works."""
        if self._elector is not None:
            await self._installations.wait_for_lead()
        await self._predecessor.wait_gone()
        await self._run_part(
            self._manager.run(
                self._relister.refresh,
                visits=VISITS_AT_ONCE,
                installs=self._configuration.settings.helm_concurrency,
            )
        )

    async def _find_our_age(self) -> None:
        self._ours_since = await find_our_age(self._client)

    def _settings_changed(self, before: Settings, after: Settings) -> None:
        self._set_log_level(after)
        self._manager.settings_changed(before, after)

    def _build_elector(self) -> LeaderElector:
        return LeaderElector(
            self._vital_client,
            namespace=self._options.namespace,
            name=names.LEASE_NAME,
            identity=self._options.identity,
            random=self._environment.random,
            clock=self._environment.clock.boottime,
            end=self._environment.end,
            annotate=lambda found, is_as_written: self._manager.annotate_lease(found, is_as_written),
        )

    def _leads_for(self, seconds: float = 0.0) -> bool:
        return self._elector is None or (self._installations.leads and self._elector.leads_for(seconds))

    def _read_fleet(self) -> OperatorState:
        since_read = self._process.since_read
        process = OperatorState(
            version=self._options.version,
            leading=self._leads_for(),
            bad_options=len(self._configuration.bad_options),
            predecessor_runs=bool(self._predecessor.runs),
            last_answer=None
            if since_read is None
            else self._environment.clock.now().timestamp() - since_read,
        )
        return read_fleet(process, self._inventory, self._manager if self._manager.is_working else None)

    def _note_request(self, target: str, record: RequestRecord) -> None:
        counters.observe_api_request(target, record.verb, record.status, record.duration_seconds)
        if requests.isEnabledFor(TRACE):
            path = clean(record.path)  # helm's hold names that a guest gave
            fields = {"target": target, "verb": record.verb, "path": path, "status": record.status}
            requests.log(TRACE, "Request", extra=fields)


def _count_helm_run(command: str, success: bool) -> None:
    counters.HELM_RUNS.labels(command, counters.result_label(success)).inc()
