"""Gives Services their addresses from the kubevip ConfigMap, in kube-vip-cloud-provider's place."""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Mapping
from functools import partial
from random import Random
from typing import Any

from fipop.api.parsing import parse_meta
from fipop.cloudprovider.ledger import NAME as LEDGER_NAME
from fipop.cloudprovider.ledger import NAMESPACE as LEDGER_NAMESPACE
from fipop.cloudprovider.options import KubevipOptions
from fipop.cloudprovider.pools import PoolKeys
from fipop.cloudprovider.service_cache import ServiceCache
from fipop.cloudprovider.term import ProviderTerm
from fipop.jsons import as_mapping
from fipop.kube.client import KubeClient
from fipop.kube.events import EventRecorder, EventType, reference_to
from fipop.kube.resources import CONFIG_MAPS
from fipop.metrics.services import ServiceMetrics, ServiceSnapshot
from fipop.runtime.configmap import ConfigMap, ConfigMapFollower

logger = logging.getLogger(__name__)


class KubevipMode:
    """Follows the ConfigMap and the ledger, and works for a term whenever this replica leads."""

    def __init__(
        self,
        options: KubevipOptions,
        *,
        client: KubeClient,
        services: ServiceCache,
        events: EventRecorder,
        metrics: ServiceMetrics,
        writes_at_once: int,
        random: Random,
    ) -> None:
        self._options = options
        self._events = events
        self._build_term = partial(
            ProviderTerm,
            services=services,
            events=events,
            metrics=metrics,
            class_name=options.class_name,
            writes_at_once=writes_at_once,
            random=random,
        )
        self._config_map = ConfigMapFollower(
            client=client,
            namespace=options.namespace,
            name=options.config_map,
            take=self._keys_changed,
            # One that is missing is created empty, as kube-vip-cloud-provider does.
            defaults={},
            chance=random,
        )
        self._ledger = ConfigMapFollower(
            client=client,
            namespace=LEDGER_NAMESPACE,
            name=LEDGER_NAME,
            take=self._ledger_changed,
            chance=random,
        )
        self._problems: Mapping[str, str] = {}
        self._term: ProviderTerm | None = None
        self.keys = PoolKeys({})
        """The keys as the ConfigMap has them."""

    async def load(self) -> None:
        """Read the ConfigMap; it is created where it is missing. ApiError."""
        await self._config_map.load()

    def follow(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """Return what keeps up with the two ConfigMaps."""
        return self._config_map.follow(), self._ledger.follow()

    async def work(self, client: KubeClient) -> None:
        """Serve Services until cancelled."""
        self._term = self._build_term(client=client)
        try:
            await self._term.run(self.keys)
        finally:
            self._term = None

    def last_heard(self) -> Mapping[str, float | None]:
        """Return the monotonic time of each watch's last sign of life."""
        return {
            self._options.config_map: self._config_map.last_heard_at,
            LEDGER_NAME: self._ledger.last_heard_at,
        }

    def snapshot(self) -> ServiceSnapshot | None:
        """Return what the metrics show; None while this replica does not work."""
        return self._term.snapshot() if self._term is not None else None

    def _keys_changed(self, found: ConfigMap | None) -> None:
        data = as_mapping(found.get("data")) if found is not None else {}
        self.keys = PoolKeys({key: str(value) for key, value in data.items()}, self.keys)
        problems = self.keys.problems()
        for key, problem in problems.items():
            if found is not None and self._problems.get(key) != problem:
                logger.warning("Key is invalid", extra={"key": key, "problem": problem})
                about = reference_to(CONFIG_MAPS, parse_meta(found))
                self._events.record(about, EventType.WARNING, "KeyInvalid", problem)
        self._problems = problems
        if self._term is not None:
            self._term.take_keys(self.keys)

    def _ledger_changed(self, obj: ConfigMap | None) -> None:
        if self._term is not None:
            self._term.take_ledger(obj)
