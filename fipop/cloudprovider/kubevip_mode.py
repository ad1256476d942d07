"""Gives Services their addresses from the kubevip ConfigMap, in kube-vip-cloud-provider's place."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from random import SystemRandom
from typing import Any

from fipop.cloudprovider.keys_follower import KeysFollower
from fipop.cloudprovider.ledger import NAME as LEDGER_NAME
from fipop.cloudprovider.ledger import NAMESPACE as LEDGER_NAMESPACE
from fipop.cloudprovider.options import KubevipOptions
from fipop.cloudprovider.pools import PoolKeys
from fipop.cloudprovider.service_cache import ServiceCache
from fipop.cloudprovider.term import ProviderEstate, ProviderTerm
from fipop.kube.client import KubeClient
from fipop.kube.events import EventRecorder
from fipop.metrics.services import ServiceMetrics, ServiceSnapshot
from fipop.runtime.configmap import ConfigMap, ConfigMapFollower


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
    ) -> None:
        self._options = options
        self._services = services
        self._events = events
        self._metrics = metrics
        self._writes_at_once = writes_at_once
        self._keys = KeysFollower(
            client=client,
            events=events,
            namespace=options.namespace,
            name=options.config_map,
            take=self._keys_changed,
        )
        self._ledger = ConfigMapFollower(
            client=client, namespace=LEDGER_NAMESPACE, name=LEDGER_NAME, take=self._ledger_changed
        )
        self._term: ProviderTerm | None = None

    async def load(self) -> None:
        """Read the ConfigMap; it is created where it is missing. ApiError."""
        await self._keys.load()

    def follow(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """Return what keeps up with the two ConfigMaps."""
        return self._keys.follow(), self._ledger.follow()

    async def work(self, client: KubeClient) -> None:
        """Serve Services until cancelled."""
        self._term = ProviderTerm(
            ProviderEstate(
                client=client,
                services=self._services,
                events=self._events,
                metrics=self._metrics,
                class_name=self._options.class_name,
                writes_at_once=self._writes_at_once,
            ),
            random=SystemRandom(),
        )
        try:
            await self._term.run(self._keys.keys)
        finally:
            self._term = None

    def last_heard(self) -> Mapping[str, float | None]:
        """Return the monotonic time of each watch's last sign of life."""
        return {
            self._options.config_map: self._keys.last_heard_at,
            LEDGER_NAME: self._ledger.last_heard_at,
        }

    def snapshot(self) -> ServiceSnapshot | None:
        """Return what the metrics show; None while this replica does not work."""
        return self._term.snapshot() if self._term is not None else None

    def _keys_changed(self, keys: PoolKeys) -> None:
        if self._term is not None:
            self._term.take_keys(keys)

    def _ledger_changed(self, obj: ConfigMap | None) -> None:
        if self._term is not None:
            self._term.take_ledger(obj)
