"""Deletes the Leases that kube-vip leaves behind with `svc_election`: one for each Service that is gone."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from fipop.api.codec import parse_time
from fipop.cloudprovider.services import ServiceCache
from fipop.errors import FipopError
from fipop.jsons import Json, as_mapping
from fipop.kube.client import KubeClient
from fipop.kube.resources import LEASES

logger = logging.getLogger(__name__)

PREFIX = "kubevip-"
UNRENEWED = timedelta(hours=1)
EVERY_SECONDS = 600.0


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
