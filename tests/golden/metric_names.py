"""The metrics of both roles: names, types, help, labels and buckets.

How the metrics are fed is the only thing here that knows the inside: a rebuild rewires `_operator` and `_provider`.
"""

from collections.abc import Iterator
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from fipop.metrics.samples import GuestEvent
from fipop.metrics.services import PoolSample, ServiceMetrics, ServiceSnapshot
from tests.golden.normal import to_yaml
from tests.unit.metrics.samples import Fleet

_OF_THE_PROCESS = ("process_", "python_")


def make_metrics() -> dict[str, str]:
    """Return the metrics of both roles."""
    roles = {"operator": _operator(), "cloud provider": _provider()}
    found = {role: {each.name: _facts(each) for each in _families(text)} for role, text in roles.items()}
    return {"metrics.yaml": to_yaml(found)}


def _operator() -> str:
    fleet = Fleet()
    metrics = fleet.metrics
    for event in GuestEvent:
        metrics.count_guest_event("demo", "harv1", event, success=True)
    metrics.observe_queue_wait("objects", 0.1)
    metrics.observe_reconcile("FloatingIP", 0.1, success=False)
    metrics.observe_visit(0.1, success=True)
    metrics.observe_api_request("management", "get", 200, 0.1)
    metrics.observe_api_request("guest", "get", 404, 0.1)
    metrics.count_allocation("allocated")
    metrics.count_release("quarantined")
    metrics.count_helm_run("upgrade", success=True)
    return metrics.render().decode()


def _provider() -> str:
    pool = PoolSample(key="cidr-shop", family="IPv4", total=9, used=4)
    snapshot = ServiceSnapshot(leading=True, pools=(pool,), waiting=1, paused=1, bad_keys=1)
    metrics = ServiceMetrics(lambda: snapshot, version="1.2.3")
    metrics.count_assignment("assigned")
    metrics.observe_assignment(0.1)
    metrics.count_request("get", 200)
    return metrics.prepare()().decode()


def _families(exposition: str) -> Iterator[Any]:
    found = sorted(text_string_to_metric_families(exposition), key=lambda each: str(each.name))
    return (each for each in found if not each.name.startswith(_OF_THE_PROCESS))


def _facts(family: Any) -> dict[str, object]:
    """Return what is promised of a metric; the labels of a histogram are those of its buckets."""
    labels: dict[str, list[str]] = {}
    for sample in family.samples:
        for label, value in sorted(sample.labels.items()):
            shown = "(version)" if label in {"python", "version"} else value
            if shown not in labels.setdefault(label, []):
                labels[label].append(shown)
    found = {"type": family.type, "help": family.documentation}
    return {**found, "labels": {label: "|".join(each) for label, each in labels.items()}} if labels else found
