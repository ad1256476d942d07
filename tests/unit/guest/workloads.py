"""Workloads of a guest, in short words."""

from typing import Any

from fipop.guest.workloads import (
    Workload,
    parse_daemon_set,
    parse_deployment,
)


def manifest(
    name: str = "kube-vip",
    release: str | None = "kube-vip",
    image: str = "ghcr.io/kube-vip/kube-vip:v1.2.3",
    *,
    status: dict[str, int] | None = None,
    selector: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    annotations = {}
    if release is not None:
        annotations = {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": "kube-system"}
    return {
        "metadata": {
            "namespace": "kube-system",
            "name": name,
            "generation": 2,
            "resourceVersion": "7",
            "annotations": annotations,
        },
        "spec": {"template": {"spec": {"containers": [{"image": image}], "nodeSelector": selector}}} | spec,
        "status": {"observedGeneration": 2} | (status or {}),
    }


def daemon_set(wanted: int, ready: int, *, updated: int | None = None, **rest: Any) -> Workload:
    status = {"desiredNumberScheduled": wanted, "numberReady": ready}
    status["updatedNumberScheduled"] = wanted if updated is None else updated
    return parse_daemon_set(manifest(status=status, **rest))


def deployment(replicas: int | None, ready: int, *, updated: int | None = None) -> Workload:
    status = {"readyReplicas": ready, "updatedReplicas": ready if updated is None else updated}
    spec = {} if replicas is None else {"replicas": replicas}
    return parse_deployment(manifest(status=status, **spec))


def harvester(**rest: Any) -> Workload:
    return daemon_set(1, 1, release="harvester-cloud-provider", **rest)
