"""What belongs to an operator at work, as an API server serves it: its Deployment, Lease, options and CRDs."""

from functools import cache
from pathlib import Path

import yaml

from fipop.api import names
from tests.harness.objects import NOW, Json


@cache
def _read_crds() -> list[Json]:
    folder = Path(__file__).parents[2] / "crds"
    return [yaml.safe_load(path.read_text()) for path in sorted(folder.glob("*.yaml"))]


def build_healthy_operator() -> dict[str, list[Json]]:
    """Return the objects by the path of their collection."""
    place = {"namespace": names.OPERATOR_NAMESPACE}
    pod = {"serviceAccountName": "fipop", "containers": [{"image": "fipop:0.1.0"}]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**place, "name": "fipop", "labels": {"app.kubernetes.io/name": "fipop"}},
        "spec": {"replicas": 2, "template": {"spec": pod}},
        "status": {"readyReplicas": 2},
    }
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {**place, "name": names.LEASE_NAME},
        "spec": {
            "holderIdentity": "fipop-1",
            "leaseDurationSeconds": 15,
            "renewTime": NOW.strftime("%Y-%m-%dT%H:%M:%S.000000Z"),
        },
    }
    options = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**place, "name": names.SETTINGS_CONFIG_MAP},
        "data": {},
    }
    return {
        "/apis/apps/v1/deployments": [deployment],
        "/apis/coordination.k8s.io/v1/leases": [lease],
        "/api/v1/configmaps": [options],
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": _read_crds(),
    }
