"""Counts what happens, and renders all metrics in the text format 0.0.4."""

from __future__ import annotations

import functools
import re
from collections import Counter as Tally
from collections.abc import Callable

from prometheus_client import Counter, Histogram
from prometheus_client.exposition import generate_latest

from fipop.metrics.fleet import LEGACY_EVENTS, FleetCollector
from fipop.metrics.registry import WORK_BUCKETS, Exposed, build_registry
from fipop.metrics.samples import EventKey, FleetSnapshot, GuestEvent, clean_label, result_label

QUEUE_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300)

GUEST_TARGET = "guest"
_LEGACY_HEADER = re.compile(rb"^(# (?:HELP|TYPE) %s)_total " % LEGACY_EVENTS.encode(), re.MULTILINE)


class Metrics:
    """Counts what happens, and renders it beside the snapshot that `snapshot` gives at each scrape."""

    def __init__(self, snapshot: Callable[[], FleetSnapshot], *, version: str) -> None:
        self._registry = build_registry()
        self._events: dict[str, Tally[EventKey]] = {}
        self._snapshot = snapshot
        self._version = version
        self._queue_wait = self._histogram(
            "fipop_queue_wait_seconds", "Time that keys waited in the work queue.", "queue", QUEUE_BUCKETS
        )
        self._reconcile = self._histogram(
            "fipop_reconcile_duration_seconds", "Time of one reconciliation.", "kind", WORK_BUCKETS
        )
        self._visit = self._histogram(
            "fipop_visit_duration_seconds",
            "Time of one visit of a guest cluster.",
            "result",
            WORK_BUCKETS,
        )
        self._api_duration = self._histogram(
            "fipop_api_request_duration_seconds",
            "Time until a Kubernetes API answered.",
            "target",
            WORK_BUCKETS,
        )
        self._reconcile_errors = self._counter(
            "fipop_reconcile_errors", "Failed reconciliations, by kind of key.", "kind"
        )
        self._allocations = self._counter(
            "fipop_allocations", "Attempts to assign an address, by result.", "result"
        )
        self._releases = self._counter(
            "fipop_address_releases", "Released addresses, by result: quarantined or freed.", "result"
        )
        self._api_requests = self._counter(
            "fipop_api_requests",
            "Requests to Kubernetes APIs of the management cluster or guest clusters, by code; 0 means no answer.",
            "target",
            "verb",
            "code",
        )
        self._helm_runs = self._counter("fipop_helm_runs", "Runs of the helm program.", "command", "result")

    def count_guest_event(
        self, guest_cluster: str, harvester_cluster: str, event: GuestEvent, success: bool
    ) -> None:
        """Count one event of a visit of a guest, by the names of its provisioning Cluster and Harvester."""
        key = EventKey(
            cluster=clean_label(guest_cluster),
            harvester_cluster=clean_label(harvester_cluster),
            event=event,
            success=success,
        )
        self._events.setdefault(key.cluster, Tally())[key] += 1

    def forget_guest(self, guest_cluster: str) -> None:
        """Drop the events of a guest that is gone. A namesake that lives on counts from zero again."""
        self._events.pop(clean_label(guest_cluster), None)

    def observe_queue_wait(self, queue: str, seconds: float) -> None:
        """Note how long a key waited in a work queue, from when it was due until it was taken."""
        self._queue_wait.labels(queue).observe(seconds)

    def observe_reconcile(self, kind: str, seconds: float, *, success: bool) -> None:
        """Note one reconcile of a key of this kind."""
        self._reconcile.labels(kind).observe(seconds)
        if not success:
            self._reconcile_errors.labels(kind).inc()

    def observe_visit(self, seconds: float, *, success: bool) -> None:
        """Note one visit of one guest cluster."""
        self._visit.labels(result_label(success)).observe(seconds)

    def observe_api_request(self, target: str, verb: str, code: int, seconds: float) -> None:
        """Note a request to `management` or a `guest`, by the code of its answer; 0 when none came.

        Of guests only the class (`4xx`): they may answer with any code, and each would be a series.
        """
        label = str(code) if target != GUEST_TARGET or code == 0 else f"{code // 100}xx"
        self._api_requests.labels(target, verb, label).inc()
        self._api_duration.labels(target).observe(seconds)

    def count_allocation(self, result: str) -> None:
        """Count an attempt to get an address: `allocated`, or the reason of the condition that refused it."""
        self._allocations.labels(result).inc()

    def count_release(self, result: str) -> None:
        """Count an address given back: `quarantined` or `freed`."""
        self._releases.labels(result).inc()

    def count_helm_run(self, command: str, *, success: bool) -> None:
        """Count one run of helm, by its subcommand."""
        self._helm_runs.labels(command, result_label(success)).inc()

    def render(self) -> bytes:
        """Give all metrics in Prometheus's text format 0.0.4."""
        return self.prepare()()

    def prepare(self) -> Callable[[], bytes]:
        """Take down what is true now, and give what renders it, in whatever thread: it shares nothing that changes."""
        events = {guest: dict(tally) for guest, tally in self._events.items()}
        return functools.partial(self._render, FleetCollector(self._snapshot(), events, self._version))

    def _render(self, fleet: FleetCollector) -> bytes:
        # The library appends _total to every counter's HELP and TYPE lines; the legacy one never had it.
        return _LEGACY_HEADER.sub(rb"\1 ", generate_latest(Exposed(self._registry, fleet)))

    def _histogram(self, name: str, documentation: str, label: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, documentation, (label,), buckets=buckets, registry=self._registry)

    def _counter(self, name: str, documentation: str, *labels: str) -> Counter:
        return Counter(name, documentation, labels, registry=self._registry)
