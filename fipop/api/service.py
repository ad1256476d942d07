"""A Service as fipop reads it: in the cluster that the cloud provider serves, and in guest clusters.

Users write what they like, and an admin of a guest cluster can serve anything. What cannot be read is left out, and
counts as if it did not exist.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TypeAlias

from fipop.api.conditions import ConditionContent, Verdict
from fipop.api.names import GROUP
from fipop.api.spelling_warnings import EXACT, KnownKeys, find_spelling_warnings
from fipop.ipam.addresses import DHCP_ADDRESSES, Address, Family, FamilyPolicy, parse_addresses
from fipop.jsons import JsonView, as_list, as_mapping, as_text, as_texts
from fipop.texts import clean

ADDRESSES = "kube-vip.io/loadbalancerIPs"
"""The annotation with the addresses that kube-vip announces."""
IGNORE = "kube-vip.io/ignore"
VIP_HOST = "kube-vip.io/vipHost"
"""Which node announced a Service last, as kube-vip wrote it."""
LEASE_NAME = "kube-vip.io/leaseName"
"""The Lease that Services with one address share: a name, or namespace and name."""
WITHOUT_ENDPOINTS = "kube-vip.io/allow-reconcile-without-endpoints"
INTERFACE = "kube-vip.io/serviceInterface"
"""Where kube-vip announces a Service: the name of a network interface of nodes, or "auto"."""
DEFAULT_CLASS = "kube-vip.io/kube-vip-class"
"""The class that a provider serves if it is to serve a class, and none is named."""
POOL = f"{GROUP}/pool"
"""The pool that a Service chooses, in place of that of its namespace."""
SHARE = f"{GROUP}/share"
"""The group of Services that get one address."""
ASSIGNED = f"{GROUP}/assigned"
"""What fipop's cloud provider wrote into ADDRESSES last."""
SHARED_LEASE = f"{GROUP}/shared-lease"
"""What fipop's cloud provider wrote into LEASE_NAME last."""
LEADER = f"{GROUP}/leader"
"""The leader that stamped a Service which lacks an address (`fipop.cloudprovider.fence`)."""
ADDRESS_ASSIGNED = f"{GROUP}/AddressAssigned"
"""The condition of fipop's cloud provider, which only Services have that wait for an address, or did."""
POOL_NOT_ALLOWED = "PoolNotAllowed"
"""The reason of a Service that gets no address, and so waits for none: it chose a pool that is closed to it."""
IMPLEMENTATION, KUBE_VIP = "implementation", "kube-vip"
FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
"""What a cloud provider puts on the Services that it serves."""
FORWARD_METHOD = "k8s.co/keepalived-forward-method"

_KEYS: KnownKeys = {
    ADDRESSES: None,
    LEASE_NAME: None,
    INTERFACE: None,
    POOL: None,
    SHARE: None,
    IGNORE: ("", *EXACT),
    WITHOUT_ENDPOINTS: ("", *EXACT),
}
"""What users write. kube-vip compares the text of the last two letter by letter."""
MOST_ADDRESSES = 16
"""How many parts of an annotation, of a status and of externalIPs a cloud provider counts."""
MOST_PORTS = 256
"""A Service with more ports shares its address with none."""
_LAST_PORT = 65535
_PREFIXES, _MOST_ANNOTATIONS = ("kube-vip.io/", f"{GROUP}/"), 64
_LONGEST_PART, _LONGEST_TEXT = 64, 1024
"""How many characters are kept for each address of a text, and of any other text."""

Port: TypeAlias = tuple[int, str]
"""Number and protocol."""
_FAMILIES = {family.label: family for family in Family}


@dataclass(frozen=True, kw_only=True)
class Service:
    """A Service at one version."""

    namespace: str
    name: str
    uid: str
    version: str
    """Its resourceVersion."""
    created: str
    is_load_balancer: bool
    class_name: str
    """Its loadBalancerClass; "" without one."""
    is_deleting: bool
    ignore: str
    """The text of IGNORE."""
    policy: FamilyPolicy
    families: tuple[Family, ...]
    """Those that the API server granted: at least one."""
    ports: frozenset[Port]
    is_local: bool
    """Whether externalTrafficPolicy is Local: only nodes with a pod of the Service serve it."""
    selector: str
    """What its pods are selected by, as a digest; "" without a selector."""
    annotation: str
    """The text of ADDRESSES."""
    request: str
    """The text of `spec.loadBalancerIP`."""
    note: str
    """The text of ASSIGNED."""
    external_ips: tuple[str, ...]
    ingress: tuple[str, ...]
    """The address of each entry of its status, which kube-vip writes; "" if one has none."""
    is_marked: bool
    """Whether it has the label of kube-vip-cloud-provider."""
    has_finalizer: bool
    leader: str
    """The text of LEADER."""
    needs_no_endpoints: bool
    """Whether kube-vip announces it without endpoints, too."""
    vip_host: str
    """The text of VIP_HOST."""
    lease_name: str
    """The text of LEASE_NAME."""
    noted_lease: str
    """The text of SHARED_LEASE."""
    interface: str
    """The text of INTERFACE."""
    pool: str | None
    """The text of POOL; None without one."""
    group: str
    """The text of SHARE."""
    forward_method: str
    """What its annotation asks for in keepalived mode; "" without one."""
    annotations: tuple[tuple[str, str], ...]
    """Its first annotations with the prefix of kube-vip or of fipop, for their spelling."""
    finding: ConditionContent | None
    """What the condition ADDRESS_ASSIGNED says."""
    finding_since: str
    """When the status of that condition changed last."""

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name

    @property
    def resource_version(self) -> int:
        """The version as a number."""
        return int(self.version)

    @property
    def is_ignored(self) -> bool:
        """Whether it is left to kube-vip, which compares the text letter by letter."""
        return self.ignore == "true"

    @property
    def spelling_warnings(self) -> tuple[str, ...]:
        """What of its annotations is probably not meant so, as sentences."""
        return find_spelling_warnings("annotation", dict(self.annotations), _KEYS)

    @property
    def has_request_first(self) -> bool:
        """Whether `spec.loadBalancerIP` is the first address of the annotation."""
        return self.requested is not None and self.annotated[:1] == (self.requested,)

    @property
    def is_as_noted(self) -> bool:
        """Whether the annotation is what fipop wrote."""
        return bool(self.note) and self.annotation == self.note

    @property
    def has_lease_as_noted(self) -> bool:
        """Whether its Lease is the one that fipop named."""
        return bool(self.noted_lease) and self.lease_name == self.noted_lease

    @property
    def may_be_announced_on(self) -> bool:
        """Whether it left type LoadBalancer, and kube-vip before v1.2.4 announces it on."""
        return not self.is_load_balancer and bool(self.vip_host)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts in which it names addresses that are in use by it."""
        claimed = (self.annotation, self.request) if self.is_load_balancer else ()
        return (*claimed, *self.external_ips, *(self.ingress if self.is_load_balancer else ()))

    @cached_property
    def annotated(self) -> tuple[Address, ...]:
        """The addresses of the annotation, in its order."""
        return _parse_list(self.annotation)

    @cached_property
    def noted(self) -> tuple[Address, ...]:
        """The addresses of the note."""
        return _parse_list(self.note)

    @cached_property
    def requested(self) -> Address | None:
        """The address of `spec.loadBalancerIP`."""
        return next(iter(parse_addresses([self.request])), None)

    @cached_property
    def announced(self) -> tuple[Address, ...]:
        """The addresses of its status."""
        return parse_addresses(self.ingress)

    @property
    def wanted(self) -> tuple[Address, ...]:
        """The addresses that kube-vip is to announce: of the annotation, a changed request, the status, a request."""
        if self.annotation:
            return self.annotated
        own = () if self.requested is None else (self.requested,)
        return own if self.requested not in self.announced and own else self.announced or own

    @property
    def lease_key(self) -> tuple[str, str]:
        """Namespace and name of the Lease of this Service, if kube-vip elects a node for each."""
        namespace, _, name = self.lease_name.rpartition("/")
        return namespace or self.namespace, name or f"kubevip-{self.name}"

    @cached_property
    def used(self) -> frozenset[Address]:
        """The addresses in use by it: externalIPs, and all else while it is a LoadBalancer or has the finalizer."""
        own = () if self.requested is None else (self.requested,)
        is_holder = self.is_load_balancer or self.has_finalizer
        claimed = (*self.annotated, *own, *self.announced) if is_holder else ()
        return frozenset((*parse_addresses(self.external_ips), *claimed)) - frozenset(DHCP_ADDRESSES)


def parse_service(obj: JsonView, *, most_addresses: int = MOST_ADDRESSES) -> Service:
    """Read a Service, and of each of its texts and lists so many addresses."""
    meta, spec, status = (as_mapping(obj.get(each)) for each in ("metadata", "spec", "status"))
    annotations = as_mapping(meta.get("annotations"))
    ingress = as_list(as_mapping(status.get("loadBalancer")).get("ingress"))[:most_addresses]
    ports = frozenset(islice(_read_ports(spec.get("ports")), MOST_PORTS + 1))
    condition = find_condition(obj)

    def read_text(value: object) -> str:
        return as_text(value).strip()[: most_addresses * _LONGEST_PART]

    return Service(
        namespace=as_text(meta.get("namespace")),
        name=as_text(meta.get("name")),
        uid=as_text(meta.get("uid")),
        version=as_text(meta.get("resourceVersion")),
        created=as_text(meta.get("creationTimestamp")),
        is_load_balancer=spec.get("type") == "LoadBalancer",
        class_name=as_text(spec.get("loadBalancerClass")),
        is_deleting=bool(meta.get("deletionTimestamp")),
        ignore=as_text(annotations.get(IGNORE))[:_LONGEST_TEXT],
        policy=_read_policy(spec.get("ipFamilyPolicy")),
        families=_read_families(spec.get("ipFamilies")),
        ports=ports if len(ports) <= MOST_PORTS else frozenset(),
        is_local=spec.get("externalTrafficPolicy") == "Local",
        selector=_digest_selector(spec.get("selector")),
        annotation=read_text(annotations.get(ADDRESSES)),
        request=read_text(spec.get("loadBalancerIP")),
        note=read_text(annotations.get(ASSIGNED)),
        external_ips=tuple(map(as_text, as_list(spec.get("externalIPs"))[:most_addresses])),
        ingress=tuple(as_text(as_mapping(each).get("ip")) for each in ingress),
        is_marked=as_mapping(meta.get("labels")).get(IMPLEMENTATION) == KUBE_VIP,
        has_finalizer=FINALIZER in as_list(meta.get("finalizers")),
        leader=as_text(annotations.get(LEADER))[:_LONGEST_TEXT],
        needs_no_endpoints=annotations.get(WITHOUT_ENDPOINTS) == "true",
        vip_host=as_text(annotations.get(VIP_HOST))[:_LONGEST_TEXT],
        lease_name=as_text(annotations.get(LEASE_NAME))[:_LONGEST_TEXT],
        noted_lease=as_text(annotations.get(SHARED_LEASE))[:_LONGEST_TEXT],
        interface=as_text(annotations.get(INTERFACE))[:_LONGEST_TEXT],
        pool=as_text(annotations[POOL]).strip()[:_LONGEST_TEXT] if POOL in annotations else None,
        group=as_text(annotations.get(SHARE)).strip()[:_LONGEST_TEXT],
        forward_method=as_text(annotations.get(FORWARD_METHOD)).strip()[:_LONGEST_TEXT],
        annotations=tuple(islice(_read_own(annotations), _MOST_ANNOTATIONS)),
        finding=_read_finding(condition),
        finding_since=as_text(condition.get("lastTransitionTime")),
    )


def find_condition(obj: JsonView) -> JsonView:
    """Return the condition ADDRESS_ASSIGNED of a Service; empty if it has none."""
    conditions = map(as_mapping, as_list(as_mapping(obj.get("status")).get("conditions")))
    return next((each for each in conditions if each.get("type") == ADDRESS_ASSIGNED), {})


def split_classes(names: str) -> frozenset[str]:
    """Return the classes that `KUBEVIP_CUSTOM_LOADBALANCERCLASS_NAME` names, separated by commas."""
    return frozenset(each.strip() for each in (names or DEFAULT_CLASS).split(","))


def _parse_list(text: str) -> tuple[Address, ...]:
    return parse_addresses(text.split(",", MOST_ADDRESSES)[:MOST_ADDRESSES])


def _read_finding(condition: JsonView) -> ConditionContent | None:
    if not condition:
        return None
    status = as_text(condition.get("status"))
    return ConditionContent(
        verdict=Verdict(status) if status in set(Verdict) else Verdict.UNKNOWN,
        reason=as_text(condition.get("reason")),
        message=clean(condition.get("message")),
    )


def _read_policy(value: object) -> FamilyPolicy:
    known = as_text(value)
    return FamilyPolicy(known) if known in set(FamilyPolicy) else FamilyPolicy.SINGLE_STACK


def _read_families(items: object) -> tuple[Family, ...]:
    """Read the families that the API server granted to a Service; IPv4 if it granted none that is known."""
    known = (_FAMILIES.get(as_text(each)) for each in as_list(items))
    return tuple(dict.fromkeys(each for each in known if each is not None)) or (Family.IPV4,)


def _digest_selector(value: object) -> str:
    found = sorted(as_texts(value).items())
    return hashlib.sha256(repr(found).encode()).hexdigest()[:16] if found else ""


def _read_own(annotations: JsonView) -> Iterable[tuple[str, str]]:
    for key, value in annotations.items():
        if len(key) <= _LONGEST_PART and key.lower().startswith(_PREFIXES):
            yield key, as_text(value)[:_LONGEST_TEXT]


def _read_ports(items: object) -> Iterable[Port]:
    for item in map(as_mapping, as_list(items)):
        port = item.get("port")
        if isinstance(port, int) and 0 < port <= _LAST_PORT:
            yield port, as_text(item.get("protocol")) or "TCP"
