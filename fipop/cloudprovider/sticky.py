"""The addresses that Services had until they were deleted: one of the same name gets them again, if they are free.

The leader alone writes them, into a ConfigMap, from which the next one takes them. What a process remembered in its
last second may be missing there: then the Service gets another address.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from fipop.api.codec import format_time, parse_time
from fipop.api.objects import Metadata
from fipop.api.service import Service
from fipop.errors import WRITE_REFUSED, ApiError, ConflictError
from fipop.ipam.addresses import Address, format_address, parse_addresses
from fipop.jsons import as_mapping
from fipop.kube.client import KubeClient
from fipop.kube.events import EventRecorder, EventType, reference_to
from fipop.kube.resources import CONFIG_MAPS

logger = logging.getLogger(__name__)

CONFIG_MAP = "fipop-sticky"
MOST_ENTRIES = 256
"""How many Services are remembered, the last that were deleted."""
GATHER_SECONDS, RETRY_SECONDS = 1.0, 60.0


@dataclass(slots=True, kw_only=True)
class StickyAddresses:
    """The addresses by the key of their entry; `namespace` is that of the ConfigMap."""

    namespace: str
    events: EventRecorder
    _had: dict[str, tuple[datetime, tuple[Address, ...]]] = field(default_factory=dict)
    """In the order in which they were left."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def load(self, client: KubeClient) -> None:
        """Take what the last leader remembered. Raises: ApiError."""
        found = await client.get(CONFIG_MAPS, CONFIG_MAP, namespace=self.namespace)
        read = {key: str(text).split() for key, text in as_mapping((found or {}).get("data")).items()}
        times = {key: parse_time(parts[0]) for key, parts in read.items() if len(parts) == 2}
        had = {
            key: (left, parse_addresses(read[key][1].split(",")))
            for key, left in times.items()
            if left is not None
        }
        self._had = dict(sorted(had.items(), key=lambda each: each[1][0]))

    def remember(self, service: Service, now: datetime) -> None:
        """Remember the addresses of a Service that is gone."""
        self._had.pop(_key_of(service), None)
        self._had[_key_of(service)] = now, service.annotated
        for key in list(self._had)[:-MOST_ENTRIES]:
            del self._had[key]
        self._changed.set()

    def find(self, service: Service, now: datetime, seconds: int) -> tuple[Address, ...]:
        """Return what a Service of this name had in the last seconds."""
        left, addresses = self._had.get(_key_of(service), (now, ()))
        return addresses if now - left < timedelta(seconds=seconds) else ()

    async def follow(self, client: KubeClient) -> None:
        """Write what is new into the ConfigMap, for ever."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._changed.clear()
            try:
                await self._write(client)
            except ConflictError:
                self._changed.set()
            except ApiError as error:
                logger.warning(
                    "Could not write the addresses of deleted Services", extra={"error": str(error)}
                )
                if error.is_refusal:
                    about = reference_to(CONFIG_MAPS, Metadata(name=CONFIG_MAP, namespace=self.namespace))
                    self.events.record(about, EventType.WARNING, WRITE_REFUSED, error.explain())
                self._changed.set()
                await asyncio.sleep(RETRY_SECONDS)

    async def _write(self, client: KubeClient) -> None:
        found = await client.get(CONFIG_MAPS, CONFIG_MAP, namespace=self.namespace)
        data = {
            key: f"{format_time(left)} {','.join(map(format_address, addresses))}"
            for key, (left, addresses) in self._had.items()
        }
        body = found or {"metadata": {"name": CONFIG_MAP, "namespace": self.namespace}}
        write = client.create if found is None else client.replace
        await write(CONFIG_MAPS, {**body, "data": data})


def _key_of(service: Service) -> str:
    # Neither a namespace nor a Service has a dot in its name.
    return ".".join(service.key)
