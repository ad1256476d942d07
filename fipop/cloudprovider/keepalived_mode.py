"""Gives Services their addresses for keepalived: one plan for all of them, and one write of its ConfigMap."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from random import Random
from typing import Any

from fipop.cloudprovider.keepalived import Plan, Refusal, plan, read_held, render, says_so
from fipop.cloudprovider.notices import reference_to_service
from fipop.cloudprovider.options import KeepalivedOptions
from fipop.cloudprovider.service_cache import ServiceCache, ServiceDoor
from fipop.cloudprovider.services import Service
from fipop.errors import ConflictError, NotFoundError
from fipop.ipam.addresses import Address, format_address
from fipop.jsons import Json
from fipop.kube.client import KubeClient
from fipop.kube.events import EventRecorder, EventType
from fipop.kube.resources import CONFIG_MAPS, SERVICES
from fipop.metrics.services import ServiceMetrics, ServiceSnapshot
from fipop.runtime.configmap import ConfigMap, ConfigMapFollower
from fipop.runtime.store import Change
from fipop.runtime.workqueue import RetryAfter, WorkQueue

logger = logging.getLogger(__name__)

SOON = RetryAfter(0.05)
LOOK = "services"
"""The one key of the work queue: all Services are looked at together."""
EVERY_SECONDS = 300.0
STATUSES_AT_ONCE = 16


class KeepalivedMode:
    """keepalived-cloud-provider's place: see docs/reference/cloud-provider.md."""

    def __init__(
        self,
        options: KeepalivedOptions,
        *,
        client: KubeClient,
        services: ServiceCache,
        events: EventRecorder,
        metrics: ServiceMetrics,
        random: Random,
    ) -> None:
        self._random = random
        self._options = options
        self._services = services
        self._events = events
        self._metrics = metrics
        self._follower = ConfigMapFollower(
            client=client,
            namespace=options.namespace,
            name=options.config_map,
            take=self._config_map_changed,
            chance=random,
        )
        self._queue: WorkQueue[str] | None = None
        self._refused: dict[str, Refusal] = {}
        self._held = 0

    async def load(self) -> None:
        """Nothing is needed before the first look."""

    def follow(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """Return what keeps up with the ConfigMap."""
        return (self._follower.follow(),)

    def last_heard(self) -> Mapping[str, float | None]:
        """Return the monotonic time of the watch's last sign of life."""
        return {self._options.config_map: self._follower.last_heard_at}

    def snapshot(self) -> ServiceSnapshot | None:
        """Return what the metrics show."""
        if self._queue is None:
            return None
        return ServiceSnapshot(leading=True, waiting=len(self._refused), ledger_entries=self._held)

    async def work(self, client: KubeClient) -> None:
        """Serve Services until cancelled."""
        await self._services.wait_loaded()
        queue = self._queue = WorkQueue[str](name="keepalived", random=self._random)
        self._services.listeners.append(self._service_changed)
        looker = _Looker(
            options=self._options,
            client=client,
            door=ServiceDoor(client, self._services),
            services=self._services,
        )

        async def look(_key: str) -> RetryAfter | None:
            made = await looker.look()
            if made is None:
                return SOON
            self._tell(made)
            return RetryAfter(EVERY_SECONDS)

        try:
            queue.add(LOOK)
            await queue.run(look, concurrency=1)
        finally:
            self._services.listeners.remove(self._service_changed)
            self._queue = None

    def _tell(self, made: Plan) -> None:
        """Report once each Service that does not get what it asks for."""
        self._held = len(made.held)
        refused = {each.service.uid: each for each in made.refusals}
        for uid, each in refused.items():
            before = self._refused.get(uid)
            if before is None or (before.reason, before.message) != (each.reason, each.message):
                self._metrics.count_assignment(each.reason)
                fields = {"service": "/".join(each.service.key), "reason": each.reason, "why": each.message}
                logger.warning("Service was not assigned its address", extra=fields)
                self._events.record(
                    reference_to_service(each.service), EventType.WARNING, each.reason, each.message
                )
        self._refused = refused

    def _config_map_changed(self, _config_map: ConfigMap | None) -> None:
        if self._queue is not None:
            self._queue.add(LOOK)

    def _service_changed(self, _change: Change[Service]) -> None:
        if self._queue is not None:
            self._queue.add(LOOK)


class _Looker:
    """Looks at all Services, and brings the ConfigMap and their statuses to where the plan wants them."""

    def __init__(
        self, *, options: KeepalivedOptions, client: KubeClient, door: ServiceDoor, services: ServiceCache
    ) -> None:
        self._options = options
        self._client = client
        self._door = door
        self._services = services

    async def look(self) -> Plan | None:
        """Make the plan so; None where somebody else wrote meanwhile. ApiError."""
        config_map = await self._read()
        served = [each for each in self._services.store.all() if _is_served(each)]
        made = plan(
            config_map,
            served,
            gone=await self._find_gone(config_map, {each.uid for each in served}),
            network=self._options.network,
            default_method=self._options.default_method,
        )
        if not says_so(config_map, made):
            try:
                await self._client.replace(CONFIG_MAPS, render(config_map, made))
            except (ConflictError, NotFoundError):
                return None
            logger.info("Wrote ConfigMap", extra={"services": len(made.held)})
        slots = asyncio.Semaphore(STATUSES_AT_ONCE)
        by_uid = {each.uid: each for each in served}
        due = [(by_uid[each.uid], each.address) for each in made.held if each.uid in by_uid]
        written = await asyncio.gather(*(self._write_status(*each, slots) for each in due))
        return made if all(written) else None

    async def _read(self) -> Json:
        """Read the ConfigMap; it is created where it is missing."""
        namespace, name = self._options.namespace, self._options.config_map
        found = await self._client.get(CONFIG_MAPS, name, namespace=namespace)
        if found is not None:
            return found
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}
        try:
            return await self._client.create(CONFIG_MAPS, body)
        except ConflictError:
            return await self._read()

    async def _find_gone(self, config_map: Json, served: set[str]) -> frozenset[str]:
        """Return the uids whose Service, read after the ConfigMap, is gone or is no LoadBalancer any more."""
        gone = set()
        for each in read_held(config_map):
            if each.uid in served:
                continue
            live = None
            if each.namespace and each.name:
                live = await self._door.get(SERVICES, each.name, namespace=each.namespace)
            if (
                live is None
                or live["metadata"]["uid"] != each.uid
                or live["spec"].get("type") != "LoadBalancer"
            ):
                gone.add(each.uid)
        return frozenset(gone)

    async def _write_status(self, service: Service, address: Address, slots: asyncio.Semaphore) -> bool:
        """Have the status name the address alone; whether it does."""
        if service.announced == (address,):
            return True
        async with slots:
            live = await self._door.get(SERVICES, service.name, namespace=service.namespace)
            if live is None or live["metadata"]["uid"] != service.uid:
                return True
            ingress = {"ingress": [{"ip": format_address(address)}]}
            status = {**(live.get("status") or {}), "loadBalancer": ingress}
            try:
                await self._door.replace(SERVICES, {**live, "status": status}, subresource="status")
            except (ConflictError, NotFoundError):
                return False
        return True


def _is_served(service: Service) -> bool:
    return service.is_load_balancer and service.class_name is None
