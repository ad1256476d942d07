"""One ConfigMap, followed live."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

from fipop.errors import ApiAlreadyExistsError, FipopError
from fipop.kube.client import KubeClient
from fipop.kube.resources import CONFIG_MAPS
from fipop.kube.watch import ObjectWatch

logger = logging.getLogger(__name__)

CREATE_RETRY_SECONDS = 5.0

ConfigMap = Mapping[str, Any]


class ConfigMapFollower:
    """Hands every version of a ConfigMap to `take`; with `defaults`, one that is missing is made from them.

    Without `defaults` a missing one is handed over as None.
    """

    def __init__(
        self,
        *,
        client: KubeClient,
        namespace: str,
        name: str,
        take: Callable[[ConfigMap | None], None],
        defaults: Mapping[str, str] | None = None,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._take = take
        self._defaults = defaults
        self._watch = ObjectWatch(client, CONFIG_MAPS, name, namespace=namespace)

    @property
    def last_heard_at(self) -> float | None:
        """The monotonic time when the watch showed life last."""
        return self._watch.last_heard_at

    async def load(self) -> None:
        """Hand over what is there now."""
        found = await self._client.get(CONFIG_MAPS, self._name, namespace=self._namespace)
        self._take(await self._create() if found is None and self._defaults is not None else found)

    async def follow(self) -> None:
        """Hand over every change, for ever."""
        # To make it may be refused for hours (a quota, a policy). The watch is read on meanwhile: it shows no life
        # else, and liveness would end a process that works, for one that cannot start.
        making: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as group, aclosing(self._watch.versions()) as versions:
            async for version in versions:
                if making is not None:
                    # Ended before the version is taken, so that what was made never replaces what is newer.
                    making.cancel()
                    await asyncio.wait({making})
                    making = None
                if version is None and self._defaults is not None:
                    making = group.create_task(self._make_again())
                else:
                    self._take(version)
                    # Versions that came in one read come without a pause, and each may cost milliseconds.
                    await asyncio.sleep(0)

    async def _make_again(self) -> None:
        """Make the ConfigMap; the watch tells only once that it is gone, so a failure is tried again here."""
        while True:
            try:
                made = await self._create()
            except FipopError as error:
                logger.warning("Could not create ConfigMap", extra={"error": str(error)})
                await asyncio.sleep(CREATE_RETRY_SECONDS)
            else:
                return self._take(made)

    async def _create(self) -> ConfigMap:
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "data": dict(self._defaults or {}),
        }
        try:
            made = await self._client.create(CONFIG_MAPS, body)
        except ApiAlreadyExistsError:
            found = await self._client.get(CONFIG_MAPS, self._name, namespace=self._namespace)
            return found if found is not None else body
        logger.info("Created ConfigMap from the defaults", extra={"config_map": self._name})
        return made
