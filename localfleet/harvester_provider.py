"""A STAND-IN for the Service controller of Harvester's cloud provider: what it writes to Services of a guest cluster.

Written from its source of July 2026 (and upstream's Service controller, which it runs). It serves every Service of type
LoadBalancer without a class: finalizer, a LoadBalancer on Harvester, and its address in the annotation of kube-vip
whenever that differs. It takes its LoadBalancer away when the Service is gone, or has another type. Harvester
itself is `load_balancers`, from the uid of a Service to its address.
"""

import asyncio
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from localfleet.client import ApiClient, Json
from localfleet.errors import ApiError

MANAGER = "harvester-cloud-provider"
ADDRESSES = "kube-vip.io/loadbalancerIPs"
FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
HARVESTER_SECONDS = 0.8
"""How long Harvester takes to assign an address, or to be asked for it again; measured on a real one."""


class HarvesterServiceController:
    """Serves Services until cancelled; `addresses` are those of Harvester's IPPool.

    `written` are the versions of Services that it wrote.
    """

    def __init__(self, client: ApiClient, *, addresses: Iterator[str]) -> None:
        self.load_balancers: dict[str, str] = {}
        self.written: set[str] = set()
        self._client = client
        self._addresses = addresses
        self._queue: asyncio.Queue[Json] = asyncio.Queue()

    async def run(self) -> None:
        """Work for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            group.create_task(self._work())

    async def _follow(self) -> None:
        while True:
            async for event in self._client.watch("/api/v1/services"):
                service = event["object"]
                if event["type"] == "DELETED":
                    self.load_balancers.pop(service["metadata"]["uid"], None)
                elif event["type"] in {"ADDED", "MODIFIED"}:
                    self._queue.put_nowait(service)

    async def _work(self) -> None:
        while True:
            service = await self._queue.get()
            try:
                await self._sync(service)
            except ApiError as error:
                # A conflict is followed by an event, and a Service that is gone by another.
                if error.status not in {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}:
                    raise

    async def _sync(self, service: Json) -> None:
        metadata, spec = service["metadata"], service["spec"]
        is_wanted = spec["type"] == "LoadBalancer" and not metadata.get("deletionTimestamp")
        if spec.get("loadBalancerClass"):
            return
        if not is_wanted:
            await self._clean_up(service)
            return
        if FINALIZER not in metadata.get("finalizers", ()):
            await self._patch(service, {"finalizers": [*metadata.get("finalizers", ()), FINALIZER]})
            return
        if metadata["uid"] not in self.load_balancers:
            await asyncio.sleep(HARVESTER_SECONDS)
            self.load_balancers[metadata["uid"]] = next(self._addresses)
        address = self.load_balancers[metadata["uid"]]
        if (metadata.get("annotations") or {}).get(ADDRESSES) != address:
            await asyncio.sleep(HARVESTER_SECONDS)
            await self._patch(service, {"annotations": {ADDRESSES: address}})

    async def _clean_up(self, service: Json) -> None:
        metadata = service["metadata"]
        self.load_balancers.pop(metadata["uid"], None)
        finalizers = metadata.get("finalizers", [])
        if FINALIZER in finalizers:
            await self._patch(service, {"finalizers": [each for each in finalizers if each != FINALIZER]})

    async def _patch(self, service: Json, changes: dict[str, Any]) -> None:
        """Change a Service at the version that was seen, as an update would."""
        metadata = service["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/services/{metadata['name']}"
        body = {"metadata": {**changes, "resourceVersion": metadata["resourceVersion"]}}
        made = await self._client.patch(path, body, field_manager=MANAGER)
        self.written.add(made["metadata"]["resourceVersion"])
