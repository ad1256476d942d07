"""Gauges about objects: each scrape renders them from what is known then, so their series go with the objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

WORK_BUCKETS = (0.005, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300)

disable_created_metrics()  # type: ignore[no-untyped-call]

Series = Iterable[tuple[Sequence[str], float]]


class Gauges(Collector):
    """Collects what `read` returns at the moment."""

    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        """Return what is true now."""
        return self._read()


def build_gauge(name: str, documentation: str, labels: Sequence[str], series: Series) -> GaugeMetricFamily:
    """Return a gauge with these series: the values of its labels, and a number."""
    gauge = GaugeMetricFamily(name, documentation, labels=labels)
    for values, number in series:
        gauge.add_metric([clean_label(text) for text in values], number)
    return gauge


def build_registry(*sources: Collector) -> CollectorRegistry:
    """Return a registry of these sources; without any, it shows this process."""
    registry = CollectorRegistry(auto_describe=False)
    for source in sources:
        registry.register(source)
    if not sources:
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
    return registry


def clean_label(text: str) -> str:
    """Return a text that can be encoded: one lone surrogate, legal in JSON, would fail the whole scrape."""
    return text.encode("utf-8", "replace").decode("utf-8")
