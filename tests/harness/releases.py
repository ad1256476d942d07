"""Releases, targets and workloads as values, with only what a test cares about."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from fipop.helm.charts import Chart, Role, Target
from fipop.helm.releases import Release, Status, build_labels, read_release
from fipop.helm.workloads import Workload, parse_daemon_set

NOW = datetime(2026, 1, 1, tzinfo=UTC)
Json = dict[str, Any]


def target(version: str = "1.0.0", **values: Any) -> Target:
    charts = {
        role: Chart(role=role, url="https://charts.example", version=version, sha256="0" * 64)
        for role in Role
    }
    return Target(charts=charts, values=dict.fromkeys(Role, values))


TARGET, OTHER = target(), target("2.0.0")


def place(role: Role = Role.KUBE_VIP) -> Release:
    return Release(role=role, namespace="kube-system", name=role.value)


def daemon_set(name: str = "kube-vip", *, release: str = "kube-vip", ready: int = 1, **env: str) -> Json:
    annotations = {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": "kube-system"}
    container = {
        "image": "ghcr.io/kube-vip/kube-vip:v1.2.3",
        "env": [{"name": each, "value": value} for each, value in env.items()],
    }
    return {
        "metadata": {
            "name": name,
            "namespace": "kube-system",
            "generation": 1,
            "annotations": annotations if release else {},
        },
        "spec": {"template": {"spec": {"containers": [container]}}},
        "status": {
            "observedGeneration": 1,
            "desiredNumberScheduled": 1,
            "numberReady": ready,
            "updatedNumberScheduled": 1,
        },
    }


WORKLOAD: Workload = parse_daemon_set(daemon_set())


def secret(labels: Json, *, revision: int = 1, status: str = "deployed", age_seconds: float = 3600.0) -> Json:
    own = {"owner": "helm", "name": "kube-vip", "version": str(revision), "status": status}
    created = (NOW - timedelta(seconds=age_seconds)).isoformat()
    metadata = {"name": f"v{revision}", "namespace": "kube-system", "uid": "u", "resourceVersion": "7"}
    return {"metadata": {**metadata, "creationTimestamp": created, "labels": {**labels, **own}}}


def installed(made: Target = TARGET, *, status: Status = Status.DEPLOYED, **fields: Any) -> Release:
    """Return a release that fipop installed, as its Secret shows it."""
    age_seconds = fields.pop("age_seconds", 3600.0)
    labels = build_labels(made, replace(place(), object_name="kube-vip"))
    found = read_release(place(), [secret(labels, status=status.value, age_seconds=age_seconds)], NOW)
    return replace(found, **{"workloads": (WORKLOAD,), **fields})
