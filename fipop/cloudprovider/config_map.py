"""The one ConfigMap that a provider reads, watched."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from fipop.api.objects import KubeObject, read_metadata
from fipop.errors import ConflictError, FipopError
from fipop.jsons import JsonView
from fipop.kube.client import KubeClient
from fipop.kube.resources import CONFIG_MAPS
from fipop.runtime.informer import Informer
from fipop.runtime.store import Change, Store

logger = logging.getLogger(__name__)

ConfigMap = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Version(KubeObject):
    """One version of it, as a store wants it."""

    obj: ConfigMap


def _read_version(obj: JsonView) -> _Version:
    return _Version(metadata=read_metadata(obj), obj=obj)


class ConfigMapFollower:
    """Hands every version of a ConfigMap to `take`; a missing one is handed over as None."""

    def __init__(
        self,
        *,
        client: KubeClient,
        namespace: str,
        name: str,
        take: Callable[[ConfigMap | None], None],
        random: Random,
    ) -> None:
        self._client = client
        self._namespace, self._name = namespace, name
        self._take = take
        self._random = random
        self._store: Store[_Version] = Store(_read_version, kind="ConfigMap")
        self._informer = Informer(
            client,
            CONFIG_MAPS,
            self._store,
            self._hand_over,
            namespace=namespace,
            field_selector=f"metadata.name={name}",
        )

    async def load(self) -> None:
        """Hand over what is there now. Raises: ApiError."""
        await self._informer.relist()
        if self._is_missing:
            self._take(None)

    async def follow(self) -> None:
        """Hand over every change, for ever."""
        await self._informer.run(self._random)

    async def create_if_missing(self) -> bool:
        """Create it empty if it was not there when it was last seen; return whether it is there now."""
        if not self._is_missing:
            return False
        body = {"metadata": {"name": self._name, "namespace": self._namespace}}
        try:
            made: JsonView = await self._client.create(CONFIG_MAPS, body)
        except ConflictError:
            return False
        except FipopError as error:
            logger.warning("Could not create ConfigMap", extra={"error": str(error)})
            return False
        logger.info("Created ConfigMap", extra={"config_map": self._name})
        self._informer.take("ADDED", made)
        return True

    @property
    def _is_missing(self) -> bool:
        return self._informer.loaded.is_set() and self._store.get(self._namespace, self._name) is None

    def _hand_over(self, change: Change[_Version]) -> None:
        self._take(change.new.obj if change.new is not None else None)
