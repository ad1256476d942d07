"""Follows the kubevip ConfigMap, and tells which of its keys cannot be read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from fipop.api.parsing import parse_meta
from fipop.cloudprovider.pools import PoolKeys
from fipop.jsons import as_mapping
from fipop.kube.client import KubeClient
from fipop.kube.events import EventRecorder, EventType, reference_to
from fipop.kube.resources import CONFIG_MAPS
from fipop.runtime.configmap import ConfigMap, ConfigMapFollower

logger = logging.getLogger(__name__)


class KeysFollower:
    """Keeps `keys` as the ConfigMap has them; one that is missing is created empty, as kube-vip-cloud-provider does."""

    def __init__(
        self,
        *,
        client: KubeClient,
        events: EventRecorder,
        namespace: str,
        name: str,
        take: Callable[[PoolKeys], None],
    ) -> None:
        self._events = events
        self._take = take
        self._follower = ConfigMapFollower(
            client=client, namespace=namespace, name=name, take=self._changed, defaults={}
        )
        self._problems: Mapping[str, str] = {}
        self.keys = PoolKeys({})

    @property
    def last_heard_at(self) -> float | None:
        """The monotonic time when the watch showed life last."""
        return self._follower.last_heard_at

    async def load(self) -> None:
        """Read what is there now. ApiError."""
        await self._follower.load()

    async def follow(self) -> None:
        """Keep up with every change, for ever."""
        await self._follower.follow()

    def _changed(self, found: ConfigMap | None) -> None:
        data = as_mapping(found.get("data")) if found is not None else {}
        self.keys = PoolKeys({key: str(value) for key, value in data.items()}, self.keys)
        problems = self.keys.problems()
        for key, problem in problems.items():
            if found is not None and self._problems.get(key) != problem:
                logger.warning("Key is invalid", extra={"key": key, "problem": problem})
                self._events.record(
                    reference_to(CONFIG_MAPS, parse_meta(found)), EventType.WARNING, "KeyInvalid", problem
                )
        self._problems = problems
        self._take(self.keys)
