"""The chart as helm renders it, with its defaults whole, and with other values only what differs from that."""

import difflib
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from localfleet.assets import ensure
from localfleet.chart import copy_chart
from tests.chart.rendering import Chart
from tests.golden.manifests import dump_objects

_MONITORING = ("monitoring.coreos.com/v1/ServiceMonitor", "monitoring.coreos.com/v1/PrometheusRule")
_API_SERVER = {"to": [{"ipBlock": {"cidr": "10.0.0.0/28"}}], "ports": [{"port": 6443, "protocol": "TCP"}]}
_CASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "monitoring-is-there": ({}, _MONITORING),
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
    "hardened": (
        {
            "web": {"enabled": True, "replicas": 2},
            "networkPolicy": {"enabled": True, "egress": [_API_SERVER], "webEgress": [_API_SERVER]},
            "hostUsers": False,
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
            ],
            "priorityClassName": "system-cluster-critical",
            "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"}],
        },
        (),
    ),
    "one-replica": ({"replicas": 1, "leaderElection": False, "strategy": "Recreate"}, ()),
    "least-rights": (
        {
            "secretNamespaces": ["fleet-default", "team-a"],
            "crds": {"update": False},
            "admissionPolicy": {"enabled": False},
        },
        (),
    ),
    "other-image-and-options": (
        {
            "image": {"repository": "registry.example.com/fipop", "tag": "v9"},
            "imagePullSecrets": [{"name": "pull"}],
            "settings": {"metricsPort": 9090, "logLevel": "Debug", "kubevipNamespace": "kube-vip"},
            "extraArgs": ["--log-format=text"],
            "nodeSelector": {"disk": "ssd"},
            "podLabels": {"team": "net"},
        },
        (),
    ),
}


@cache
def _render(name: str) -> str:
    values, known = _CASES.get(name, ({}, ()))
    with tempfile.TemporaryDirectory() as home:
        chart = Chart(helm=ensure("helm"), folder=copy_chart(Path(home, "chart")), home=Path(home))
        return dump_objects(list(chart.render(values, known=known)))


def make_default_chart() -> dict[str, str]:
    """Return all objects of the defaults."""
    return {"chart/defaults.yaml": _render("defaults")}


def make_chart_cases() -> dict[str, str]:
    """Return for each set of values what differs from the defaults."""
    defaults = _render("defaults").splitlines()
    return {
        f"chart/{name}.diff": "\n".join(
            line
            for line in difflib.unified_diff(defaults, _render(name).splitlines(), n=2, lineterm="")
            if not line.startswith(("---", "+++", "@@"))
        )
        + "\n"
        for name in _CASES
    }
