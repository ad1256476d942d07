"""A Service as the provider sees it, what it needs, and what is written to it: values in, values out.

Whoever writes the annotation `kube-vip.io/loadbalancerIPs` decides. fipop fills it in if it is missing, and notes what
it wrote in an annotation of its own (`assigned`). If the two differ later, another writer decided, and fipop lets that
stand. The label `implementation=kube-vip` tells whether fipop chose the address (then it writes
`spec.loadBalancerIP`, too), or made the annotation from the user's `spec.loadBalancerIP`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from itertools import islice
from typing import Any

from fipop.api.names import GROUP
from fipop.cloudprovider.allocate import DHCP_ADDRESSES, Port
from fipop.guests.in_use import ANNOTATION_LOAD_BALANCER_IPS
from fipop.guests.service_uses import ADDRESS_ASSIGNED, IGNORE, read_families
from fipop.ipam.addresses import Address, Family, FamilyPolicy, format_address, parse_addresses
from fipop.jsons import JsonView, as_list, as_mapping, as_text
from fipop.kube.events import ObjectReference
from fipop.kube.resources import SERVICES
from fipop.texts import clean

ADDRESSES = ANNOTATION_LOAD_BALANCER_IPS
INTERFACE = "kube-vip.io/serviceInterface"
ASSIGNED = f"{GROUP}/assigned"
"""What fipop wrote into ADDRESSES last."""
LEADER = f"{GROUP}/leader"
"""The leader that stamped a Service which lacks an address (`ServiceController.fence`)."""
IMPLEMENTATION, KUBE_VIP = "implementation", "kube-vip"
LEGACY_LABEL = "ipam-address"
FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
FORWARD_METHOD = "k8s.co/keepalived-forward-method"
ADDRESSES_FIELD, INTERFACE_FIELD = f"annotation {ADDRESSES}", f"annotation {INTERFACE}"
LABEL_FIELD, FINALIZER_FIELD = f"label {IMPLEMENTATION}", f"finalizer {FINALIZER}"
"""The fields that fipop writes, as messages name them."""

MOST_ADDRESSES = 16
"""How many parts of an annotation, of a status and of externalIPs count."""
MOST_PORTS = 256
"""A Service with more ports shares its address with none."""
MOST_CHARACTERS = 1024
"""How much of a text of a Service is kept; 16 addresses are shorter."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """A Service as it was read; `version` is its resourceVersion then. What cannot be read is left out."""

    namespace: str
    name: str
    uid: str
    version: str
    created: str
    is_load_balancer: bool
    class_name: str
    """Its loadBalancerClass; "" without one."""
    is_deleting: bool
    ignore: str
    """The text of `kube-vip.io/ignore`."""
    policy: FamilyPolicy
    families: tuple[Family, ...]
    """Those that the API server granted: at least one."""
    ports: frozenset[Port]
    annotation: str
    """The text of ADDRESSES."""
    request: str
    """The text of `spec.loadBalancerIP`."""
    note: str
    """The text of ASSIGNED."""
    announced: tuple[Address, ...]
    """The addresses of its status, which kube-vip writes."""
    external: tuple[Address, ...]
    """The addresses of `spec.externalIPs`."""
    is_marked: bool
    """Whether it has the label of kube-vip-cloud-provider."""
    has_finalizer: bool
    leader: str
    """The text of LEADER."""
    forward_method: str
    """What its annotation asks for in keepalived mode; "" without one."""
    told: tuple[str, str, str] | None
    """Status, reason and message of our condition."""

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

    @cached_property
    def annotated(self) -> tuple[Address, ...]:
        """The addresses of the annotation, in its order."""
        return parse_addresses(self.annotation.split(",", MOST_ADDRESSES)[:MOST_ADDRESSES])

    @cached_property
    def noted(self) -> tuple[Address, ...]:
        """The addresses of the note."""
        return parse_addresses(self.note.split(",", MOST_ADDRESSES)[:MOST_ADDRESSES])

    @cached_property
    def requested(self) -> Address | None:
        """The address of `spec.loadBalancerIP`."""
        return next(iter(parse_addresses([self.request])), None)

    @cached_property
    def used(self) -> frozenset[Address]:
        """The addresses that are in use by it: externalIPs, and all else while it is a LoadBalancer or has F."""
        own = () if self.requested is None else (self.requested,)
        claimed = (*self.annotated, *own, *self.announced)
        is_holder = self.is_load_balancer or self.has_finalizer
        return frozenset((*self.external, *(claimed if is_holder else ()))) - frozenset(DHCP_ADDRESSES)

    @property
    def has_request_first(self) -> bool:
        """Whether `spec.loadBalancerIP` is the first address of the annotation."""
        return self.requested is not None and self.annotated[:1] == (self.requested,)

    @property
    def is_as_noted(self) -> bool:
        """Whether the annotation is what fipop wrote."""
        return bool(self.note) and self.annotation == self.note

    @property
    def is_of_predecessor(self) -> bool:
        """Whether kube-vip-cloud-provider assigned its addresses, as far as a Service shows that.

        It labels Services whose user wrote the annotation, too. Those are recognized if they have what no provider
        writes: a host name, two addresses of a family, or a family that the Service does not ask for.
        """
        found = [each.family for each in self.annotated]
        granted = self.families if self.policy is not FamilyPolicy.SINGLE_STACK else self.families[:1]
        wanted = [each for each in granted if each in found]
        is_fitting = found == wanted and self.annotation.count(",") + 1 == len(found)
        is_dhcp = self.annotated == DHCP_ADDRESSES[:1]
        has_both = any(each in DHCP_ADDRESSES for each in self.annotated) and len(found) > 1
        is_written_by_provider = is_dhcp or (is_fitting and not has_both)
        return not self.note and self.is_marked and self.has_request_first and is_written_by_provider

    @property
    def is_assigned(self) -> bool:
        """True if a provider chose its addresses and no other writer changed them since."""
        return (self.is_as_noted and self.is_marked) or self.is_of_predecessor


class Need(Enum):
    """What is to be done for a Service."""

    NOTHING = auto()
    ASSIGN = auto()
    """It gets the addresses that it lacks; if it lacks none, nothing."""
    COPY = auto()
    """Its annotation becomes what its user wrote into `spec.loadBalancerIP`."""
    TAKE_OVER = auto()
    """Its user wrote the annotation: it gets the finalizer, and what kube-vip reads."""
    CLEAR = auto()
    """It is no LoadBalancer any more, or ignored: what a provider wrote goes."""
    RELEASE = auto()
    """The finalizer goes."""


def find_need(service: Service, classes: frozenset[str]) -> Need:
    """Return what a Service needs; `classes` are those that are served, "" is that of Services without one."""
    release = Need.RELEASE if service.has_finalizer else Need.NOTHING
    has_sign = bool(service.annotation or service.is_marked or service.note)
    is_written = bool(service.note) or (service.is_marked and service.has_request_first)
    is_served = service.class_name in classes
    if service.is_deleting:
        is_ours = is_written if service.is_load_balancer else has_sign
        return release if is_served or is_ours else Need.NOTHING
    if not service.is_load_balancer:
        has_rest = service.note or service.is_marked or (service.has_finalizer and has_sign)
        return Need.CLEAR if has_rest else Need.NOTHING
    if not is_served:
        return Need.NOTHING
    if service.is_ignored:
        return Need.CLEAR if is_written else release if has_sign else Need.NOTHING
    return _find_need_of_served(service)


def _find_need_of_served(service: Service) -> Need:
    if not service.annotation:
        is_own = not service.request or (service.is_marked and service.requested in service.noted)
        return Need.ASSIGN if is_own else Need.COPY
    if service.is_assigned:
        return Need.ASSIGN
    if service.is_as_noted:
        if not service.request:
            return Need.ASSIGN
        is_copied = service.has_request_first or service.request == service.annotation
        return Need.NOTHING if is_copied and service.has_finalizer else Need.COPY
    is_done = service.has_finalizer and not service.note and (service.request or service.is_marked)
    return Need.NOTHING if is_done else Need.TAKE_OVER


def find_asked(service: Service) -> Address | None:
    """Return the address that the user of an assigned Service asks for by `spec.loadBalancerIP`."""
    is_other = service.is_as_noted and service.requested not in service.annotated
    return service.requested if is_other else None


def build_assigned(obj: JsonView, addresses: tuple[Address, ...], *, interface: str | None) -> dict[str, Any]:
    """Return the Service with these addresses; the interface if it has none."""
    made, meta = _copy(obj)
    texts = [format_address(each) for each in addresses]
    meta["labels"][IMPLEMENTATION] = KUBE_VIP
    meta["annotations"] |= {ADDRESSES: ",".join(texts), ASSIGNED: ",".join(texts)}
    if interface is not None:
        meta["annotations"].setdefault(INTERFACE, interface)
    made["spec"]["loadBalancerIP"] = texts[0]
    return _add_finalizer(made)


def build_copied(obj: JsonView) -> dict[str, Any]:
    """Return the Service with the annotation made from its `spec.loadBalancerIP`."""
    made, meta = _copy(obj)
    text = as_text(made["spec"].get("loadBalancerIP")).strip()
    meta["annotations"] |= {ADDRESSES: text, ASSIGNED: text}
    meta["labels"].pop(LEGACY_LABEL, None)
    return _add_finalizer(made)


def build_taken_over(obj: JsonView) -> dict[str, Any]:
    """Return the Service with the addresses that its user wrote, and nothing that fipop wrote beside them."""
    service = parse_service(obj)
    made, meta = _copy(obj)
    meta["annotations"].pop(ASSIGNED, None)
    if service.is_marked and service.requested in service.noted:
        made["spec"].pop("loadBalancerIP", None)
    if not made["spec"].get("loadBalancerIP"):
        meta["labels"][IMPLEMENTATION] = KUBE_VIP
    return _add_finalizer(made)


def build_cleared(obj: JsonView, *, interface: str | None) -> dict[str, Any]:
    """Return the Service without what a provider wrote; `interface` is that of its namespace."""
    service = parse_service(obj)
    made, meta = _copy(build_released(obj))
    annotations = meta["annotations"]
    is_written = service.is_as_noted or (not service.note and service.is_marked and service.has_request_first)
    if is_written:
        annotations.pop(ADDRESSES)
        if interface is not None and annotations.get(INTERFACE) == interface:
            annotations.pop(INTERFACE)
    is_own_request = service.requested in service.noted or not service.note
    if service.is_marked and is_own_request and (service.note or is_written):
        made["spec"].pop("loadBalancerIP", None)
    annotations.pop(ASSIGNED, None)
    meta["labels"].pop(IMPLEMENTATION, None)
    return made


def build_released(obj: JsonView) -> dict[str, Any]:
    """Return the Service without the finalizer; kube-vip-cloud-provider has the same."""
    made, meta = _copy(obj)
    meta["finalizers"] = [each for each in as_list(meta.get("finalizers")) if each != FINALIZER]
    return made


def build_stamped(obj: JsonView, leader: str) -> dict[str, Any]:
    """Return the Service with the stamp of a leader."""
    made, meta = _copy(obj)
    meta["annotations"][LEADER] = leader
    return made


def list_changed(before: JsonView, after: JsonView) -> frozenset[str]:
    """Return which of the fields that fipop writes differ in two states of a Service."""
    one, other = _read_written(before), _read_written(after)
    return frozenset(field for field, value in other.items() if value != one[field])


def _read_written(obj: JsonView) -> dict[str, Any]:
    meta = as_mapping(obj.get("metadata"))
    annotations = as_mapping(meta.get("annotations"))
    return {
        ADDRESSES_FIELD: annotations.get(ADDRESSES),
        INTERFACE_FIELD: annotations.get(INTERFACE),
        "spec.loadBalancerIP": as_mapping(obj.get("spec")).get("loadBalancerIP") or None,
        LABEL_FIELD: as_mapping(meta.get("labels")).get(IMPLEMENTATION),
        FINALIZER_FIELD: FINALIZER in as_list(meta.get("finalizers")),
    }


def _add_finalizer(made: dict[str, Any]) -> dict[str, Any]:
    finalizers = as_list(made["metadata"].get("finalizers"))
    if FINALIZER not in finalizers:
        made["metadata"]["finalizers"] = [*finalizers, FINALIZER]
    return made


def _copy(obj: JsonView) -> tuple[dict[str, Any], dict[str, Any]]:
    """Copy a Service as deep as it is changed here, without a stamp; return its metadata, too."""
    meta = {key: value for key, value in as_mapping(obj.get("metadata")).items() if key != "managedFields"}
    for field in ("annotations", "labels"):
        meta[field] = dict(as_mapping(meta.get(field)))
    meta["annotations"].pop(LEADER, None)
    return {**obj, "metadata": meta, "spec": dict(as_mapping(obj.get("spec")))}, meta


def parse_service(obj: JsonView) -> Service:
    """Read a Service. Users write what they like: what cannot be read is as if it did not exist."""
    meta, spec, status = (as_mapping(obj.get(each)) for each in ("metadata", "spec", "status"))
    annotations = as_mapping(meta.get("annotations"))
    ingress = as_list(as_mapping(status.get("loadBalancer")).get("ingress"))[:MOST_ADDRESSES]
    ports = frozenset(islice(_read_ports(spec.get("ports")), MOST_PORTS + 1))
    return Service(
        namespace=as_text(meta.get("namespace")),
        name=as_text(meta.get("name")),
        uid=as_text(meta.get("uid")),
        version=as_text(meta.get("resourceVersion")),
        created=as_text(meta.get("creationTimestamp")),
        is_load_balancer=spec.get("type") == "LoadBalancer",
        class_name=as_text(spec.get("loadBalancerClass")),
        is_deleting=bool(meta.get("deletionTimestamp")),
        ignore=as_text(annotations.get(IGNORE))[:MOST_CHARACTERS],
        policy=_read_policy(spec.get("ipFamilyPolicy")),
        families=read_families(spec.get("ipFamilies")),
        ports=ports if len(ports) <= MOST_PORTS else frozenset(),
        annotation=as_text(annotations.get(ADDRESSES)).strip()[:MOST_CHARACTERS],
        request=as_text(spec.get("loadBalancerIP")).strip()[:MOST_CHARACTERS],
        note=as_text(annotations.get(ASSIGNED)).strip()[:MOST_CHARACTERS],
        announced=parse_addresses(as_text(as_mapping(each).get("ip")) for each in ingress),
        external=parse_addresses(map(as_text, as_list(spec.get("externalIPs"))[:MOST_ADDRESSES])),
        is_marked=as_mapping(meta.get("labels")).get(IMPLEMENTATION) == KUBE_VIP,
        has_finalizer=FINALIZER in as_list(meta.get("finalizers")),
        leader=as_text(annotations.get(LEADER))[:MOST_CHARACTERS],
        forward_method=as_text(annotations.get(FORWARD_METHOD)).strip()[:MOST_CHARACTERS],
        told=_read_told(obj),
    )


def _read_policy(value: object) -> FamilyPolicy:
    try:
        return FamilyPolicy(as_text(value))
    except ValueError:
        return FamilyPolicy.SINGLE_STACK


def _read_ports(items: object) -> Iterable[Port]:
    for item in map(as_mapping, as_list(items)):
        port = item.get("port")
        if isinstance(port, int):
            yield port, as_text(item.get("protocol")) or "TCP"


def build_told(obj: JsonView, told: tuple[str, str, str] | None, now: str) -> dict[str, Any]:
    """Return the Service with our condition beside those of others, without it if `told` is None.

    Its time changes with its status alone.
    """
    status, before = dict(as_mapping(obj.get("status"))), _find_condition(obj)
    conditions = [each for each in as_list(status.get("conditions")) if each != before]
    if told is not None:
        is_same = before.get("status") == told[0] and before.get("lastTransitionTime")
        conditions.append(
            {
                "type": ADDRESS_ASSIGNED,
                "status": told[0],
                "reason": told[1],
                "message": told[2],
                "lastTransitionTime": before["lastTransitionTime"] if is_same else now,
            }
        )
    return {**obj, "status": {**status, "conditions": conditions}}


def _read_told(obj: JsonView) -> tuple[str, str, str] | None:
    ours = _find_condition(obj)
    if not ours:
        return None
    return as_text(ours.get("status")), as_text(ours.get("reason")), clean(ours.get("message"))


def _find_condition(obj: JsonView) -> JsonView:
    conditions = map(as_mapping, as_list(as_mapping(obj.get("status")).get("conditions")))
    return next((each for each in conditions if each.get("type") == ADDRESS_ASSIGNED), {})


def find_manager(obj: JsonView) -> str:
    """Return the field manager that changed an object after fipop, other than kube-vip; "" if none is recorded.

    Who only removes fields is not recorded.
    """
    entries = [as_mapping(each) for each in as_list(as_mapping(obj.get("metadata")).get("managedFields"))]
    found = [(as_text(each.get("time")), as_text(each.get("manager"))) for each in entries]
    own = max((time for time, manager in found if manager == "fipop"), default="")
    later = (each for each in found if each[0] >= own and each[1] not in ("", "fipop", "kube-vip"))
    return max(later, default=("", ""))[1]


def refer_to(service: Service) -> ObjectReference:
    """Return what an event about a Service refers to."""
    return ObjectReference(
        api_version=SERVICES.api_version,
        kind=SERVICES.kind,
        name=service.name,
        namespace=service.namespace,
        uid=service.uid,
    )
