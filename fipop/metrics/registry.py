"""What the metrics of every role have in common: the process itself, and the text that leaves `_created` out."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

WORK_BUCKETS = (0.005, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300)


def build_registry() -> CollectorRegistry:
    """Give a registry that shows this process."""
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


class Exposed(Collector):
    """Several sources without the `_created` series: the text format 0.0.4 has no use for them."""

    def __init__(self, *sources: Collector) -> None:
        self._sources = sources

    def collect(self) -> Iterable[Metric]:
        """Render all metrics but those series."""
        for source in self._sources:
            for metric in source.collect():
                metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
                yield metric
