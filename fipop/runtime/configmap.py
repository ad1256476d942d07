"""One ConfigMap, followed live: kopf would watch it among all others."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

from fipop.errors import ConflictError, FipopError
from fipop.jsons import Json
from fipop.kube.client import KubeClient, Listing
from fipop.kube.resources import CONFIG_MAPS
from fipop.runtime.list_watch import ListWatch

logger = logging.getLogger(__name__)

ConfigMap = Mapping[str, Any]
_NOTHING_SEEN = object()


class ConfigMapFollower:
    """Hands every version of a ConfigMap to `take`; a missing one is handed over as None.

    Whenever the server ends the watch, there is a list first:
    what happened while blind (a cut, a version that is too old, a restored store) is seen within a minute.
    """

    def __init__(
        self,
        *,
        client: KubeClient,
        namespace: str,
        name: str,
        take: Callable[[ConfigMap | None], None],
        chance: random.Random | None = None,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._take = take
        self._seen: object = _NOTHING_SEEN
        self._is_missing = False
        self._source = ListWatch(
            client,
            CONFIG_MAPS,
            namespace=namespace,
            field_selector=f"metadata.name={name}",
            relist_seconds=0.0,
            chance=chance,
        )

    @property
    def last_heard_at(self) -> float | None:
        """The monotonic time of the last list, event or bookmark; None before the first."""
        return self._source.last_heard_at

    async def load(self) -> None:
        """Hand over what is there now. Raises: ApiError."""
        self._hand_over(await self._client.get(CONFIG_MAPS, self._name, namespace=self._namespace))

    async def create_if_missing(self) -> bool:
        """Create it empty if it was not there when it was last seen; return whether it is there now."""
        if not self._is_missing:
            return False
        try:
            made = await self._create()
        except ConflictError:
            return False
        except FipopError as error:
            logger.warning("Could not create ConfigMap", extra={"error": str(error)})
            return False
        self._hand_over(made)
        return True

    async def follow(self) -> None:
        """Hand over every change, for ever."""
        async with aclosing(self._source.changes()) as changes:
            async for change in changes:
                if isinstance(change, Listing):
                    found = change.items[0] if change.items else None
                else:
                    found = change.object if change.type != "DELETED" else None
                self._hand_over(found)
                # Versions that came in one read come without a pause, and each may cost milliseconds.
                await asyncio.sleep(0)

    def _hand_over(self, found: Json | None) -> None:
        """Hand over a version that is another one than the last: a list usually shows what is known."""
        metadata = found["metadata"] if found is not None else {}
        self._is_missing = found is None
        identity = metadata.get("uid"), metadata.get("resourceVersion")
        if identity != self._seen:
            self._seen = identity
            self._take(found)

    async def _create(self) -> Json:
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self._name, "namespace": self._namespace},
        }
        made = await self._client.create(CONFIG_MAPS, body)
        logger.info("Created ConfigMap", extra={"config_map": self._name})
        return made
