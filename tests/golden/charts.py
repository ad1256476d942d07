"""The chart as helm renders it, with its defaults whole, and with other values only what differs from that."""

import difflib
import tempfile
from pathlib import Path
from typing import Any

from localfleet.assets import ensure
from localfleet.chart import copy_chart
from tests.chart.rendering import Chart
from tests.golden.manifests import dump_objects

_MONITORING = ("monitoring.coreos.com/v1/ServiceMonitor", "monitoring.coreos.com/v1/PrometheusRule")
_CASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "everything-on": (
        {
            "web": {"enabled": True},
            "dashboard": {"enabled": True},
            "networkPolicy": {"enabled": True, "metricsFrom": [{"namespaceSelector": {}}]},
            "serviceMonitor": {"enabled": True},
            "prometheusRule": {"enabled": True, "runbookUrlBase": "https://wiki.example/alerts.md"},
        },
        (*_MONITORING, "ui.cattle.io/v1/NavLink"),
    ),
    "least-rights": (
        {
            "secretNamespaces": ["fleet-default", "team-a"],
            "crds": {"update": False},
            "leaderElection": False,
            "replicas": 1,
            "strategy": "Recreate",
            "admissionPolicy": {"enabled": False},
        },
        (),
    ),
}


def _render(name: str) -> str:
    values, known = _CASES.get(name, ({}, ()))
    with tempfile.TemporaryDirectory() as home:
        chart = Chart(helm=ensure("helm"), folder=copy_chart(Path(home, "chart")), home=Path(home))
        return dump_objects(list(chart.render(values, known=known)))


def make_chart() -> dict[str, str]:
    """Return all objects of the defaults, and for each set of values what differs from them."""
    defaults = _render("defaults")
    found = {"defaults.yaml": defaults}
    for name in _CASES:
        lines = difflib.unified_diff(defaults.splitlines(), _render(name).splitlines(), n=2, lineterm="")
        shown = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
        found[f"{name}.diff"] = "\n".join(shown) + "\n"
    return found
