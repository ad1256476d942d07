"""Gauges about objects, as a table: a row has the name, help and labels of a gauge, and what yields its series."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

WORK_BUCKETS = (0.005, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300)

disable_created_metrics()  # type: ignore[no-untyped-call]

T = TypeVar("T")

Series = Iterable[tuple[Sequence[str], float]]


class Row(NamedTuple, Generic[T]):
    """One gauge over a state; `series` yields values of its labels and a number, or nothing."""

    name: str
    documentation: str
    labels: Sequence[str]
    series: Callable[[T], Series]


class GaugeTable(Collector, Generic[T]):
    """Renders rows from the state at each scrape."""

    def __init__(self, rows: Sequence[Row[T]], state: Callable[[], T]) -> None:
        self._rows = rows
        self._state = state

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Render what is true now."""
        state = self._state()
        for row in self._rows:
            gauge = GaugeMetricFamily(row.name, row.documentation, labels=row.labels)
            for labels, value in row.series(state):
                gauge.add_metric([clean_label(text) for text in labels], value)
            yield gauge


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
