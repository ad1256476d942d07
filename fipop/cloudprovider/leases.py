"""The Leases of a provider, and those that kube-vip leaves behind with `svc_election`: one for each deleted Service."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import partial
from random import Random

from fipop.api.codec import parse_time
from fipop.cloudprovider.caches import ServiceCache
from fipop.cloudprovider.options import ProviderOptions
from fipop.errors import FipopError
from fipop.interfaces import Clock, end_process
from fipop.jsons import Json, as_mapping
from fipop.kube.client import KubeClient
from fipop.kube.resources import LEASES
from fipop.runtime.leader_election import LeaderElector

logger = logging.getLogger(__name__)

PREFIX = "kubevip-"
UNRENEWED = timedelta(hours=1)
EVERY_SECONDS = 600.0


class Leadership:
    """Holds all Leases of a provider, one after the other. A process that loses one ends."""

    def __init__(
        self,
        options: ProviderOptions,
        client: KubeClient,
        *,
        clock: Clock,
        random: Random,
        end: Callable[[], None] = end_process,
    ) -> None:
        self._electors = [
            LeaderElector(
                client,
                namespace=each.namespace,
                name=each.name,
                identity=options.identity,
                random=random,
                times=options.lease_times,
                clock=clock.boottime,
                end=end,
            )
            for each in options.leases
        ]
        self._reading: asyncio.Task[bool] | None = None
        self._next: asyncio.Task[bool] | None = None

    @property
    def is_leader(self) -> bool:
        """Whether this process holds all Leases, as far as its clock can tell."""
        return all(each.leads_for() for each in self._electors)

    def describe_holders(self) -> str:
        """Return which Leases others hold, as far as it is known."""
        return ", ".join(
            f"{each.place} is held by {each.holder}" for each in self._electors if each.is_foreign
        )

    async def run(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Take the Leases, do `work`, and release them. Raises: StartError if one is lost."""
        for elector in reversed(self._electors):
            work = partial(elector.lead, work)
        await work()

    async def check(self) -> bool:
        """Read all Leases; return whether this process holds them. Raises: ApiError.

        The reading begins after the call. Calls that come while one is under way share the next one.
        """
        if self._next is None:
            self._next = asyncio.create_task(self._check_after(self._reading))
            # If all callers are cancelled, this retrieves the error: asyncio would log it otherwise.
            self._next.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._next)

    async def _check_after(self, former: asyncio.Task[bool] | None) -> bool:
        if former is not None and not former.done():
            await asyncio.wait([former])
        self._reading, self._next = self._next, None
        return all([await each.is_ours() for each in self._electors])


class StaleLeases:
    """Looks for them every ten minutes. Only a role that may list and delete Leases can have this."""

    def __init__(self, client: KubeClient, services: ServiceCache) -> None:
        self._client = client
        self._services = services

    async def run(self) -> None:
        """Look and delete for ever."""
        await self._services.loaded.wait()
        while True:
            try:
                await self.delete()
            except FipopError as error:
                logger.warning("Could not delete stale leases", extra={"error": str(error)})
            await asyncio.sleep(EVERY_SECONDS)

    async def delete(self) -> int:
        """Delete the Leases of deleted Services that were not renewed for an hour; return how many."""
        gone = 0
        for lease in (await self._client.list(LEASES)).items:
            if self._is_stale(lease):
                meta = lease["metadata"]
                gone += await self._client.delete(
                    LEASES,
                    meta["name"],
                    namespace=meta["namespace"],
                    uid=meta["uid"],
                    resource_version=meta["resourceVersion"],
                )
                logger.info("Deleted stale lease", extra={"lease": f"{meta['namespace']}/{meta['name']}"})
        return gone

    def _is_stale(self, lease: Json) -> bool:
        meta = lease["metadata"]
        service = meta["name"].removeprefix(PREFIX)
        if service == meta["name"] or self._services.store.get(meta["namespace"], service) is not None:
            return False
        renewed = parse_time(as_mapping(lease.get("spec")).get("renewTime"))
        return renewed is not None and self._client.server_now() - renewed > UNRENEWED
