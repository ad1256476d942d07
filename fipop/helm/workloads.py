"""A guest cluster's DaemonSets and Deployments as values: their release, what they do, and whether they run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from fipop.api.codec import parse_time
from fipop.api.names import GUEST_CONFIG_MAP, parse_go_bool
from fipop.jsons import Json, JsonView, as_list, as_mapping
from fipop.texts import (
    LONGEST_WORD,
    clean,
    is_namespace,
    is_object_name,
    is_release_name,
    list_some,
    read_version,
)

PARKED_LABEL = "node-role.kubernetes.io/harvester-kube-vip-disabled"
"""A node selector that no node has, as kube-fip-operator sets it: a guest cluster that it parked is parked."""
HARVESTER_RELEASE = "harvester-cloud-provider"
"""The release by which RKE2 installs Harvester's cloud provider, with a kube-vip of its own."""
SERVICE_LB_LABEL = "svccontroller.k3s.cattle.io/svcname"
"""On each DaemonSet by which ServiceLB of K3s serves a Service."""

_SYSTEM_NAMESPACE = "kube-system"
_NAMED = 5
"""The most workloads that a message names."""
_MOST_PODS = 1_000_000
_MOST_CONTAINERS, _MOST_ENTRIES = 64, 256
_LONGEST_NAME = 253
_KUBE_VIP, _PROVIDER, _FIPOP = ("kube-vip", "kube-vip-iptables"), "kube-vip-cloud-provider", "fipop"
_MIRRORED = "mirrored-kube-vip-"
"""How Rancher's mirror names images of kube-vip: `rancher/mirrored-kube-vip-kube-vip-iptables`."""
KUBE_VIP_CLASS, _COMMON_LEASE = "kube-vip.io/kube-vip-class", "plndr-svcs-lock"
_SERVICE_CONTROLLERS = frozenset({"*", "service", "service-lb-controller"})


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeVipMode:
    """How the kube-vip of a DaemonSet announces Services, by its environment."""

    namespace: str
    name: str
    """Those of the DaemonSet."""
    lease_name: str = _COMMON_LEASE
    """The Lease for all Services, in its namespace."""
    elects_each: bool = False
    """Whether each Service has a Lease and a node of its own."""
    writes_leases: bool = True
    """Whether a Lease shows who announces: not with BGP or a routing table on all nodes."""
    version: tuple[int, ...] = ()
    """That of its image, by the tag; empty if it is not known."""
    classes: frozenset[str] = frozenset({"", KUBE_VIP_CLASS})
    """The classes of the Services that it announces; "" stands for none."""

    @property
    def common_lease(self) -> tuple[str, str]:
        """Namespace and name of the Lease for all Services."""
        return self.namespace, self.lease_name

    @property
    def announces_on(self) -> bool:
        """Whether it may announce a Service on that left type LoadBalancer."""
        return self.version < (1, 2, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A DaemonSet or Deployment; `wanted` and `ready` count pods, as its controller last saw this very object."""

    kind: str
    namespace: str
    name: str
    resource_version: str
    release: str
    """The name of its helm release in the same namespace; "" if it has none."""
    wanted: int
    ready: int
    observed: bool
    has_pods: bool = True
    """False if a DaemonSet wants pods, and its controller made none."""
    runs_kube_vip: bool = False
    mode: KubeVipMode | None = None
    """How it announces Services; None if it does not."""
    is_parked: bool = False
    reads: str = ""
    """The namespace whose ConfigMap `kubevip` it reads as a cloud provider; "" if it is none."""
    serves_class: bool = False
    """Whether that cloud provider serves the Services of a class alone."""
    ignores_pools: bool = False
    """Whether it is kube-vip-cloud-provider, which does not know the pool that a Service chooses."""
    takes_services: bool = False
    """Whether it is Harvester's cloud provider with its Service controller on, which takes every Service."""
    is_service_lb: bool = False
    """Whether ServiceLB of K3s runs it for a Service."""

    @property
    def announces_services(self) -> bool:
        """Whether it runs kube-vip for Services, not for the control plane alone."""
        return self.mode is not None

    @property
    def is_ready(self) -> bool:
        """Whether it wants pods and all of them are ready."""
        return self.observed and 0 < self.wanted <= self.ready

    @property
    def is_other_provider(self) -> bool:
        """Whether it matters to fipop's cloud provider, be it another one."""
        return bool(self.reads) or self.takes_services

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


def parse_daemon_set(item: Json) -> Workload:
    """Read a DaemonSet."""
    status = as_mapping(item.get("status"))
    ready = min(_count(status, "numberReady"), _count(status, "updatedNumberScheduled"))
    return _parse("DaemonSet", item, wanted=_count(status, "desiredNumberScheduled"), ready=ready)


def parse_deployment(item: Json) -> Workload:
    """Read a Deployment."""
    status = as_mapping(item.get("status"))
    updated = _count(status, "updatedReplicas")
    # Ready ones can be of the revision before, which run until those of the new one are ready.
    outdated = max(_count(status, "replicas") - updated, 0)
    ready = max(min(_count(status, "readyReplicas") - outdated, updated), 0)
    wanted = _count({"replicas": 1, **as_mapping(item.get("spec"))}, "replicas")
    return _parse("Deployment", item, wanted=wanted, ready=ready)


def parse_ready_since(pod: Json) -> datetime | None:
    """Return since when a pod has been ready without a restart, by the guest cluster's own clock; None if it is not.

    The charts have no probes: a pod that crashes again and again is ready in between, but never for long.
    """
    for each in as_list(as_mapping(pod.get("status")).get("conditions")):
        condition = as_mapping(each)
        if condition.get("type") == "Ready" and condition.get("status") == "True":
            return parse_time(condition.get("lastTransitionTime"))
    return None


def runs_program(workload: JsonView, program: str) -> bool:
    """Return whether a container of a workload runs a program, by its image or by a word of its command line."""
    return any(
        program in (_program(each), *(word.rpartition("/")[2] for word in _arguments(each)))
        for each in _list_containers(_find_pod(workload))
    )


def describe(workloads: Iterable[Workload]) -> str:
    """Return a clause about what does not run; "" if all of it does, and there is any."""
    mine = tuple(workloads)
    if not mine:
        return "the release has no workload in this guest cluster"
    unready = [_describe(each) for each in mine if not each.is_ready]
    return list_some(unready, _NAMED, "; ")


def _describe(workload: Workload) -> str:
    if not workload.observed:
        return f"{workload} is not observed by its controller yet"
    if workload.wanted == 0:
        hint = "no node matches its node selector, affinity and tolerations"
        return f"{workload} has no pods: {hint if workload.kind == 'DaemonSet' else 'it is scaled to 0'}"
    if not workload.has_pods:
        return (
            f"{workload} has none of its {workload.wanted} pods yet. If that stays so, PodSecurity of its namespace "
            "may refuse them: label it pod-security.kubernetes.io/enforce=privileged, which kube-vip needs"
        )
    return f"{workload} has {workload.ready} of {workload.wanted} pods ready"


def _parse(kind: str, item: Json, *, wanted: int, ready: int) -> Workload:
    metadata = as_mapping(item.get("metadata"))
    annotations = as_mapping(metadata.get("annotations"))
    namespace, release = metadata.get("namespace"), annotations.get("meta.helm.sh/release-name")
    # Whoever can create workloads in one namespace can annotate them with a release of another.
    is_here = annotations.get("meta.helm.sh/release-namespace") in (namespace, None)
    status, pod = as_mapping(item.get("status")), _find_pod(item)
    containers = _list_containers(pod)
    kube_vips = [each for each in containers if _program(each) in _KUBE_VIP]
    providers = [each for each in containers if _is_provider(each)]
    name = clean(metadata.get("name"), _LONGEST_NAME)
    namespace = str(namespace) if is_namespace(namespace) else ""
    is_harvester = (namespace, name) == (_SYSTEM_NAMESPACE, HARVESTER_RELEASE) and kind == "Deployment"
    return Workload(
        kind=kind,
        namespace=namespace,
        name=name,
        resource_version=clean(metadata.get("resourceVersion"), LONGEST_WORD),
        release=str(release) if is_here and is_release_name(release) else "",
        wanted=wanted,
        ready=ready,
        observed=_count(status, "observedGeneration") >= _count(metadata, "generation"),
        has_pods=status.get("currentNumberScheduled") != 0,
        runs_kube_vip=bool(kube_vips),
        mode=next(
            (_read_mode(namespace, name, each) for each in kube_vips if _is_on(each, "svc_enable")), None
        ),
        is_parked=as_mapping(pod.get("nodeSelector")).get(PARKED_LABEL) == "true",
        reads=next(filter(None, map(_find_config_map, providers)), ""),
        serves_class=any(_is_on(each, "KUBEVIP_ENABLE_LOADBALANCERCLASS") for each in providers),
        ignores_pools=any(_program(each) == _PROVIDER for each in providers),
        takes_services=is_harvester and any(map(_has_service_controller, containers)),
        is_service_lb=kind == "DaemonSet" and SERVICE_LB_LABEL in as_mapping(metadata.get("labels")),
    )


def _find_pod(workload: JsonView) -> JsonView:
    """Return the spec of the pods of a workload."""
    return as_mapping(as_mapping(as_mapping(workload.get("spec")).get("template")).get("spec"))


def _list_containers(pod: JsonView) -> list[JsonView]:
    return [as_mapping(each) for each in as_list(pod.get("containers"))[:_MOST_CONTAINERS]]


def _is_provider(container: JsonView) -> bool:
    # The chart of kube-vip-cloud-provider runs fipop by a path.
    words = {each.rpartition("/")[2] for each in _arguments(container)}
    is_fipop = _program(container) == _FIPOP and bool(words & {"cloud-provider", _PROVIDER})
    return is_fipop or _program(container) == _PROVIDER


def _find_config_map(container: JsonView) -> str:
    """Return the namespace of the ConfigMap `kubevip` that a cloud provider reads; "" if it reads another one."""
    name = _read_env(container, "KUBEVIP_CONFIG_MAP") or GUEST_CONFIG_MAP
    namespace = _read_env(container, "KUBEVIP_NAMESPACE") or _SYSTEM_NAMESPACE
    return namespace if name == GUEST_CONFIG_MAP else ""


def _has_service_controller(container: JsonView) -> bool:
    named = [each.partition("=")[2] for each in _arguments(container) if each.startswith("--controllers=")]
    return not named or bool(_SERVICE_CONTROLLERS.intersection(named[-1].split(",")))


def _arguments(container: JsonView) -> list[str]:
    found = as_list(container.get("command")) + as_list(container.get("args"))
    return [each for each in found[:_MOST_ENTRIES] if isinstance(each, str)]


def _read_mode(namespace: str, name: str, container: JsonView) -> KubeVipMode:
    elects_each = _is_on(container, "svc_election")
    is_routed = _is_on(container, "bgp_enable") or _is_on(container, "vip_routingtable")
    own = {_read_env(container, "lb_class_name") or KUBE_VIP_CLASS}
    lease_name = _read_env(container, "svc_leasename")
    return KubeVipMode(
        namespace=namespace,
        name=name,
        lease_name=lease_name if is_object_name(lease_name) else _COMMON_LEASE,
        elects_each=elects_each,
        writes_leases=elects_each or not is_routed,
        version=_read_version(container),
        classes=frozenset(own if _is_on(container, "lb_class_only") else own | {""}),
    )


def _read_version(container: JsonView) -> tuple[int, ...]:
    return read_version(clean(container.get("image")).partition("@")[0].rpartition(":")[2])


def _is_on(container: JsonView, name: str) -> bool:
    return bool(parse_go_bool(_read_env(container, name)))


def _read_env(container: JsonView, name: str) -> str:
    entries = map(as_mapping, as_list(container.get("env"))[:_MOST_ENTRIES])
    values = (each.get("value") for each in entries if each.get("name") == name)
    return clean(next(values, ""), LONGEST_WORD)


def _program(container: JsonView) -> str:
    # registry:port/path/name:tag@digest -> name
    image = clean(container.get("image"))
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0].removeprefix(_MIRRORED)


def _count(holder: JsonView, name: str) -> int:
    value = holder.get(name)
    return min(value, _MOST_PODS) if isinstance(value, int) and value >= 0 else 0
