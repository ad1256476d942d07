"""The cloud provider's life: start in order, work while leading, tell its health, stop in time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random

from fipop.api.service import ADDRESSES, FINALIZER
from fipop.cloudprovider.assignment import ServiceController
from fipop.cloudprovider.keepalived import KeepalivedMode
from fipop.cloudprovider.leases import Leadership, StaleLeases
from fipop.cloudprovider.metrics import API_REQUESTS, REGISTRY, ServiceSnapshot, render_services
from fipop.cloudprovider.needs import build_released
from fipop.cloudprovider.options import KubevipOptions, ProviderOptions
from fipop.errors import FipopError, StartError
from fipop.interfaces import ApiFactory, Clock, end_process
from fipop.jsons import Json, as_list, as_mapping
from fipop.kube.client import KubeClient, RequestRecord
from fipop.kube.events import EventRecorder
from fipop.kube.resources import CONFIG_MAPS, SERVICES
from fipop.metrics.gauges import Gauges, build_registry
from fipop.runtime.http import ProbeServer
from fipop.runtime.process import Process

logger = logging.getLogger(__name__)

ANSWER_BYTES = 16 << 20
PAGE_ITEMS = 100
"""Of each Service in a page little is kept; one of Kubernetes has at most 1.5 MiB."""
WAIT_SECONDS = 10.0
"""How much longer than it takes dead holders to lose their Leases `release_services` waits for them."""


def build_provider(
    options: ProviderOptions,
    *,
    api: ApiFactory,
    clock: Clock,
    random: Random,
    end: Callable[[], None] = end_process,
) -> CloudProvider:
    """Build the cloud provider with all its parts over the world outside; `CloudProvider.run` starts it.

    `api` is called for each set of connections to the API server. All waiting is measured by the event loop's clock.
    `end` ends the process at once.
    """
    return CloudProvider(options, api=api, clock=clock, random=random, end=end)


class CloudProvider:
    """One process of the cloud provider.

    `run` goes on until it is cancelled, and raises what only a new process can go on from: RestoredStoreError, and
    StartError, also if a Lease was lost.
    """

    def __init__(
        self,
        options: ProviderOptions,
        *,
        api: ApiFactory,
        clock: Clock,
        random: Random,
        end: Callable[[], None],
    ) -> None:
        self._options = options
        self._api = api
        self._client = self._build_client()
        self._vital_client = self._build_client()
        read = partial(self._vital_client.get, CONFIG_MAPS, options.mode.config_map, metadata_only=True)
        self._process = Process(
            client=self._vital_client,
            read=partial(read, namespace=options.mode.namespace),
            is_loaded=lambda: self._mode.services.loaded.is_set(),
        )
        self._events = EventRecorder(
            self._client,
            now=clock.now,
            component="fipop-cloud-provider",
            instance=options.identity,
        )
        self._leadership = Leadership(options, self._vital_client, clock=clock, random=random, end=end)
        self._mode = self._build_mode(random)

    def _build_client(self) -> KubeClient:
        return KubeClient(
            self._api(),
            answer_bytes=ANSWER_BYTES,
            page_items=PAGE_ITEMS,
            on_request=self._note_request,
        )

    def _build_mode(self, random: Random) -> ServiceController | KeepalivedMode:
        options, parts = self._options, (self._client, self._events)
        if isinstance(options.mode, KubevipOptions):
            return ServiceController(options, options.mode, self._leadership.check, *parts, random=random)
        return KeepalivedMode(options.mode, *parts, random=random)

    async def run(self) -> None:
        """Start and work until cancelled."""
        options, http = self._options, None
        if options.port is not None:
            registry = build_registry(REGISTRY, Gauges(lambda: render_services(self._snapshot())))
            http = ProbeServer(self._process.why_not_ready, registry, host=options.host, port=options.port)
            await http.start()
        try:
            async with self._vital_client, self._client:
                await self._process.take_step(self._mode.load, "configuration")
                self._process.record_started()
                await self._process.run_parts(
                    self._events.run(),
                    self._mode.config_map.follow(),
                    self._mode.services.follow(),
                    # Last in, first out: its work stops before what it stands on.
                    self._leadership.run(self._lead),
                )
        finally:
            if http is not None:
                await http.stop()

    async def _lead(self) -> None:
        client = self._client.for_leader(lambda: self._leadership.is_leader)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._mode.work(client))
            if self._options.delete_stale_leases:
                group.create_task(StaleLeases(client, self._mode.services).run())

    def _snapshot(self) -> ServiceSnapshot:
        found = self._mode.snapshot() if self._leadership.is_leader else None
        return replace(found or ServiceSnapshot(leading=False), version=self._options.version)

    def _note_request(self, record: RequestRecord) -> None:
        API_REQUESTS.labels(record.verb, str(record.status)).inc()


async def release_services(
    options: ProviderOptions,
    *,
    api: ApiFactory,
    clock: Clock,
    random: Random,
    show: Callable[[str], None],
) -> None:
    """Take the finalizer off the Services with the address annotation, and show each; others are not ours.

    Raises: StartError if another provider holds a Lease, or a Service cannot be written.
    """
    client = KubeClient(api(), answer_bytes=ANSWER_BYTES, page_items=PAGE_ITEMS)
    leadership = Leadership(options, client, clock=clock, random=random)
    async with client:
        try:
            expiry = options.lease_times.duration_seconds * len(options.leases)
            async with asyncio.timeout(expiry + WAIT_SECONDS) as waiting:

                async def work() -> None:
                    waiting.reschedule(None)
                    await _release_all(client, show)

                await leadership.run(work)
        except TimeoutError:
            held = leadership.describe_holders() or "the Leases could not be taken"
            raise StartError(
                what="--release-services", problem=f"needs that no provider runs: {held}"
            ) from None


async def _release_all(client: KubeClient, show: Callable[[str], None]) -> None:
    found = (await client.list(SERVICES, project=_read_held)).items
    failed: list[str] = []
    for namespace, name in sorted(filter(None, found)):
        try:
            if await _release(client, namespace, name):
                show(f"{namespace}/{name}")
        except FipopError as error:
            failed.append(f"{namespace}/{name} ({error})")
    if failed:
        raise StartError(what="--release-services", problem=f"failed for {', '.join(failed[:16])}")


async def _release(client: KubeClient, namespace: str, name: str) -> bool:
    """Take the finalizer off one Service; return whether it was there. Raises: ApiError."""
    live = await client.get(SERVICES, name, namespace=namespace)
    if live is None or _read_held(live) is None:
        return False
    await client.replace(SERVICES, build_released(live))
    return True


def _read_held(obj: Json) -> tuple[str, str] | None:
    """Return namespace and name of a Service with the address annotation and the finalizer."""
    meta = as_mapping(obj.get("metadata"))
    is_held = FINALIZER in as_list(meta.get("finalizers"))
    is_ours = bool(as_mapping(meta.get("annotations")).get(ADDRESSES))
    return (meta["namespace"], meta["name"]) if is_held and is_ours else None
