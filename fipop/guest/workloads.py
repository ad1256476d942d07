"""A guest's DaemonSets and Deployments as values: which release they belong to, and whether they run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from fipop.guest.helm.charts import HARVESTER_RELEASE, Role
from fipop.jsons import Json, JsonView, as_list, as_mapping
from fipop.texts import LONGEST_WORD, clean, is_namespace, is_release_name

ANNOTATION_RELEASE_NAME = "meta.helm.sh/release-name"
ANNOTATION_RELEASE_NAMESPACE = "meta.helm.sh/release-namespace"

DAEMON_SET = "DaemonSet"
DEPLOYMENT = "Deployment"

_TOLD = 5
"""Of so many workloads a message tells."""
_MOST_PODS = 1_000_000
_MOST_LABELS, _MOST_CONTAINERS = 64, 64
_LONGEST_NAME, _LONGEST_IMAGE = 253, 1024

_IMAGES = {
    "kube-vip": Role.KUBE_VIP,
    "kube-vip-iptables": Role.KUBE_VIP,
    "kube-vip-cloud-provider": Role.CLOUD_PROVIDER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A DaemonSet or Deployment; `wanted` and `ready` count pods, as its controller last saw this very object."""

    kind: str
    namespace: str
    name: str
    resource_version: str
    release: tuple[str, str] | None
    wanted: int
    ready: int
    observed: bool
    roles: frozenset[Role]
    node_selector: tuple[tuple[str, str], ...] = ()

    @property
    def is_ready(self) -> bool:
        """Whether it wants pods and all of them are ready."""
        return self.observed and 0 < self.wanted <= self.ready

    def __str__(self) -> str:
        if not self.observed:
            return f"{self.kind} {self.namespace}/{self.name} is not observed by its controller yet"
        if self.wanted == 0:
            hint = "no node matches its node selector, affinity and tolerations"
            reason = hint if self.kind == DAEMON_SET else "it is scaled to 0"
            return f"{self.kind} {self.namespace}/{self.name} has no pods: {reason}"
        return f"{self.kind} {self.namespace}/{self.name} has {self.ready} of {self.wanted} pods ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Whether what a release runs is ready, and the sentence that says so."""

    ready: bool
    message: str


def parse_daemon_set(item: Json) -> Workload:
    """Read a DaemonSet."""
    status = as_mapping(item.get("status"))
    wanted = _count(status, "desiredNumberScheduled")
    ready = min(_count(status, "numberReady"), _count(status, "updatedNumberScheduled"))
    return _parse(DAEMON_SET, item, wanted=wanted, ready=ready)


def parse_deployment(item: Json) -> Workload:
    """Read a Deployment."""
    status = as_mapping(item.get("status"))
    wanted = _count({"replicas": 1, **as_mapping(item.get("spec"))}, "replicas")
    updated = _count(status, "updatedReplicas")
    # Ready ones may be of the revision before, which run until those of the new one are ready.
    outdated = max(_count(status, "replicas") - updated, 0)
    ready = max(min(_count(status, "readyReplicas") - outdated, updated), 0)
    return _parse(DEPLOYMENT, item, wanted=wanted, ready=ready)


def parse_restarts(pod: Json) -> tuple[str, int]:
    """Give the uid of a pod, and how often its containers restarted."""
    statuses = as_mapping(pod.get("status")).get("containerStatuses")
    counts = [
        _count(each, "restartCount")
        for each in as_list(statuses)[:_MOST_CONTAINERS]
        if isinstance(each, dict)
    ]
    return clean(as_mapping(pod.get("metadata")).get("uid"), LONGEST_WORD), sum(counts)


def of_release(workloads: Iterable[Workload], release: tuple[str, str]) -> tuple[Workload, ...]:
    """Give the workloads that belong to a release (namespace, name)."""
    return tuple(workload for workload in workloads if workload.release == release)


def running_releases(workloads: Iterable[Workload], role: Role) -> tuple[tuple[str, str], ...]:
    """Give the releases whose workloads run the role's program, Harvester's left out."""
    found = {
        workload.release
        for workload in workloads
        if workload.release is not None
        and role in workload.roles
        and workload.release[1] != HARVESTER_RELEASE
    }
    return tuple(sorted(found))


def judge_readiness(workloads: Iterable[Workload]) -> Readiness:
    """Sum up a release's workloads: ready when each of them is, and there is one."""
    mine = tuple(workloads)
    if not mine:
        return Readiness(ready=False, message="the release has no workload in this guest cluster")
    unready = [workload for workload in mine if not workload.is_ready]
    told = unready or list(mine)
    message = "; ".join(map(str, told[:_TOLD]))
    if len(told) > _TOLD:
        message += f"; and {len(told) - _TOLD} more"
    return Readiness(ready=not unready, message=message)


def _parse(kind: str, item: Json, *, wanted: int, ready: int) -> Workload:
    metadata = as_mapping(item.get("metadata"))
    annotations = as_mapping(metadata.get("annotations"))
    name, namespace = annotations.get(ANNOTATION_RELEASE_NAME), annotations.get(ANNOTATION_RELEASE_NAMESPACE)
    pod = as_mapping(as_mapping(as_mapping(item.get("spec")).get("template")).get("spec"))
    place = metadata.get("namespace")
    # Whoever may create workloads in one namespace may annotate them with a release of another.
    is_here = namespace in (place, None) and is_namespace(place) and is_release_name(name)
    return Workload(
        kind=kind,
        namespace=clean(metadata.get("namespace"), LONGEST_WORD),
        name=clean(metadata.get("name"), _LONGEST_NAME),
        resource_version=clean(metadata.get("resourceVersion"), LONGEST_WORD),
        release=(str(place), str(name)) if is_here else None,
        wanted=wanted,
        ready=ready,
        observed=_count(as_mapping(item.get("status")), "observedGeneration")
        >= _count(metadata, "generation"),
        roles=_roles(pod),
        node_selector=tuple(sorted(_node_selector(pod))),
    )


def _node_selector(pod: JsonView) -> Iterator[tuple[str, str]]:
    for label, value in islice(as_mapping(pod.get("nodeSelector")).items(), _MOST_LABELS):
        if isinstance(value, str):
            yield clean(label, _LONGEST_NAME), clean(value, LONGEST_WORD)


def _roles(pod: JsonView) -> frozenset[Role]:
    containers = pod.get("containers")
    images = [
        clean(container.get("image"), _LONGEST_IMAGE)
        for container in as_list(containers)[:_MOST_CONTAINERS]
        if isinstance(container, dict)
    ]
    # registry:port/path/name:tag@digest -> name
    programs = [image.partition("@")[0].rpartition("/")[2].partition(":")[0] for image in images]
    return frozenset(_IMAGES[program] for program in programs if program in _IMAGES)


def _count(holder: JsonView, name: str) -> int:
    value = holder.get(name)
    return min(value, _MOST_PODS) if isinstance(value, int) and value >= 0 else 0
