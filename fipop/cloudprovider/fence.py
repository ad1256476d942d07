"""What a new leader does about writes that a former one may still have under way; `assignment` has the argument.

It stamps each Service that lacks something: a late write then fails on the version. A pool assigns nothing until each
of its Services is stamped, or the API server has answered for a minute that it refuses the stamp: it would refuse the
late write, too. Silence is no answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from http import HTTPStatus

from fipop.api.service import Service
from fipop.cloudprovider.caches import ServiceCache
from fipop.cloudprovider.cluster import Cluster
from fipop.cloudprovider.needs import build_stamped
from fipop.cloudprovider.pools import NamespacePool
from fipop.cloudprovider.reporter import Reporter
from fipop.errors import ApiError, ConflictError, NotFoundError
from fipop.interfaces import loop_time
from fipop.ipam.intervals import AddressSet
from fipop.kube.client import KubeClient
from fipop.runtime.store import Name

logger = logging.getLogger(__name__)

REFUSED_SECONDS, RETRY_SECONDS = 60.0, 1.0
"""For how long a stamp that the API server refuses is repeated, and how often."""


class Fence:
    """Stands around the pools of Services that are not stamped yet.

    `lowered` is called with the Services that waited for a pool.
    """

    def __init__(
        self,
        services: ServiceCache,
        cluster: Cluster,
        reporter: Reporter,
        *,
        identity: str,
        lowered: Callable[[Iterable[Name]], None],
    ) -> None:
        self._services = services
        self._cluster = cluster
        self._reporter = reporter
        self._identity = identity
        self._lowered = lowered
        self._due: list[tuple[Service, AddressSet]] = []
        self._left: Counter[AddressSet] = Counter()
        """How many Services of a pool have no stamp yet."""
        self._behind: set[Name] = set()
        """The Services that wait for that."""

    def build(self) -> None:
        """Put it around the pool of every Service into which a former leader could still write an address."""
        for service in filter(self._cluster.is_open, self._services.store.all()):
            pool = self._cluster.pool_of(service)
            self._due.append((service, pool.addresses if pool is not None else AddressSet()))
        self._left.update(pool for _, pool in self._due)

    def holds_back(self, service: Service, pool: NamespacePool | None) -> bool:
        """Return whether a Service of this pool, or of one that overlaps it, has no stamp yet."""
        if pool is None or not any(each & pool.addresses for each in self._left):
            return False
        self._behind.add(service.key)
        return True

    async def lower(self, client: KubeClient, *, concurrency: int) -> None:
        """Stamp the Services, so many at a time."""
        slots = asyncio.Semaphore(concurrency)
        async with asyncio.TaskGroup() as group:
            for service, pool in self._due:
                group.create_task(self._lower(client, service, pool, slots))

    async def _lower(
        self, client: KubeClient, service: Service, pool: AddressSet, slots: asyncio.Semaphore
    ) -> None:
        refused_since: float | None = None
        while True:
            try:
                async with slots:
                    if await self._stamp(client, service):
                        break
                continue
            except ApiError as error:
                if not _is_refusal(error):
                    refused_since = None
                elif refused_since is None:
                    refused_since = loop_time()
                elif loop_time() - refused_since >= REFUSED_SECONDS:
                    text = "The API server refuses writes of this Service. Allow fipop to update its status."
                    self._reporter.warn(service, "SyncLoadBalancerFailed", text)
                    break
                fields = {"service": "/".join(service.key), "error": str(error)}
                logger.info("Could not stamp Service, retrying", extra=fields)
            await asyncio.sleep(RETRY_SECONDS)
        self._left[pool] -= 1
        if not self._left[pool]:
            del self._left[pool]
            behind, self._behind = self._behind, set()
            self._lowered(behind)

    async def _stamp(self, client: KubeClient, service: Service) -> bool:
        """Change the version of a Service; return True if a write that was sent earlier can only fail now."""
        live = await self._services.get(client, service)
        known = self._services.store.by_uid(service.uid)
        if live is None or known is None or not self._cluster.is_open(known):
            return True
        try:
            await self._services.replace(client, build_stamped(live, self._identity), subresource="status")
        except ConflictError:
            return False
        except NotFoundError:
            return True
        return True


def _is_refusal(error: ApiError) -> bool:
    """Return whether the API server answered that it does not do this; a failing one says so, too."""
    return error.is_refusal or error.status == HTTPStatus.INTERNAL_SERVER_ERROR
