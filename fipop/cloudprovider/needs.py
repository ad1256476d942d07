"""A Service as the provider sees it, what it needs, and what is written to it: values in, values out.

Whoever writes the annotation `kube-vip.io/loadbalancerIPs` decides. fipop fills it in if it is missing, and notes what
it wrote in an annotation of its own (`assigned`). If the two differ later, another writer decided, and fipop lets that
stand. The label `implementation=kube-vip` tells whether fipop chose the address (then it writes
`spec.loadBalancerIP`, too), or made the annotation from the user's `spec.loadBalancerIP`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum, auto
from typing import Any

from fipop.api.conditions import ConditionContent, Verdict
from fipop.api.service import (
    ADDRESS_ASSIGNED,
    ADDRESSES,
    ASSIGNED,
    FINALIZER,
    IMPLEMENTATION,
    INTERFACE,
    KUBE_VIP,
    LEADER,
    LEASE_NAME,
    SHARED_LEASE,
    Service,
    find_condition,
    parse_service,
)
from fipop.ipam.addresses import DHCP_ADDRESSES, Address, FamilyPolicy, format_address
from fipop.jsons import JsonView, as_list, as_mapping, as_text

ASSIGNED_REASON = "Assigned"
LEGACY_LABEL = "ipam-address"
ADDRESSES_FIELD, INTERFACE_FIELD = f"annotation {ADDRESSES}", f"annotation {INTERFACE}"
LEASE_FIELD = f"annotation {LEASE_NAME}"
LABEL_FIELD, FINALIZER_FIELD = f"label {IMPLEMENTATION}", f"finalizer {FINALIZER}"
"""The fields that fipop writes, as messages name them."""


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
        # kube-vip may announce it on: fipop's operator reads there which addresses.
        has_note = service.note and not service.may_be_announced_on
        has_rest = has_note or service.is_marked or (service.has_finalizer and has_sign)
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
    if is_assigned(service):
        return Need.ASSIGN
    if service.is_as_noted:
        if not service.request:
            return Need.ASSIGN
        is_copied = service.has_request_first or service.request == service.annotation
        return Need.NOTHING if is_copied and service.has_finalizer else Need.COPY
    is_done = service.has_finalizer and not service.note and (service.request or service.is_marked)
    return Need.NOTHING if is_done else Need.TAKE_OVER


def is_assigned(service: Service) -> bool:
    """Return whether a provider chose its addresses and no other writer changed them since."""
    return (service.is_as_noted and service.is_marked) or _is_of_predecessor(service)


def _is_of_predecessor(service: Service) -> bool:
    """Return whether kube-vip-cloud-provider assigned its addresses, as far as a Service shows that.

    It labels Services whose user wrote the annotation, too. Those are recognized if they have what no provider writes:
    a host name, two addresses of a family, or a family that the Service does not ask for.
    """
    found = [each.family for each in service.annotated]
    granted = service.families if service.policy is not FamilyPolicy.SINGLE_STACK else service.families[:1]
    wanted = [each for each in granted if each in found]
    is_fitting = found == wanted and service.annotation.count(",") + 1 == len(found)
    is_dhcp = service.annotated == DHCP_ADDRESSES[:1]
    has_both = any(each in DHCP_ADDRESSES for each in service.annotated) and len(found) > 1
    is_written_by_provider = is_dhcp or (is_fitting and not has_both)
    return not service.note and service.is_marked and service.has_request_first and is_written_by_provider


def find_asked(service: Service) -> Address | None:
    """Return the address that the user of an assigned Service asks for by `spec.loadBalancerIP`."""
    is_other = service.is_as_noted and service.requested not in service.annotated
    return service.requested if is_other else None


def build_assigned(
    obj: JsonView, addresses: tuple[Address, ...], *, interface: str | None, former: Collection[str]
) -> dict[str, Any]:
    """Return the Service with these addresses; the interface if it has none, or a `former` one."""
    made, meta = _copy(obj)
    texts = [format_address(each) for each in addresses]
    meta["labels"][IMPLEMENTATION] = KUBE_VIP
    meta["annotations"] |= {ADDRESSES: ",".join(texts), ASSIGNED: ",".join(texts)}
    if meta["annotations"].get(INTERFACE) in former:
        meta["annotations"].pop(INTERFACE)
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


def build_cleared(obj: JsonView, *, interfaces: Collection[str]) -> dict[str, Any]:
    """Return the Service without what a provider wrote; `interfaces` are those of all keys."""
    service = parse_service(obj)
    made, meta = _copy(build_released(obj))
    annotations = meta["annotations"]
    is_written = service.is_as_noted or (not service.note and service.is_marked and service.has_request_first)
    if is_written:
        annotations.pop(ADDRESSES)
        if annotations.get(INTERFACE) in interfaces:
            annotations.pop(INTERFACE)
    is_own_request = service.requested in service.noted or not service.note
    if service.is_marked and is_own_request and (service.note or is_written):
        made["spec"].pop("loadBalancerIP", None)
    if service.may_be_announced_on and is_written:
        annotations.setdefault(ASSIGNED, service.annotation)
    elif not service.may_be_announced_on:
        annotations.pop(ASSIGNED, None)
    meta["labels"].pop(IMPLEMENTATION, None)
    return made


def build_released(obj: JsonView) -> dict[str, Any]:
    """Return the Service without the finalizer; kube-vip-cloud-provider has the same."""
    made, meta = _copy(obj)
    meta["finalizers"] = [each for each in as_list(meta.get("finalizers")) if each != FINALIZER]
    return made


def build_copy(obj: JsonView) -> dict[str, Any]:
    """Return the Service as it is: what a write is for comes later."""
    return _copy(obj)[0]


def put_lease(made: dict[str, Any], name: str) -> None:
    """Have a Service that was built name a Lease, and note it; without a name, what fipop named before goes."""
    annotations = made["metadata"]["annotations"]
    if annotations.pop(SHARED_LEASE, None) == annotations.get(LEASE_NAME):
        annotations.pop(LEASE_NAME, None)
    if name:
        annotations |= {LEASE_NAME: name, SHARED_LEASE: name}


def build_stamped(obj: JsonView, leader: str) -> dict[str, Any]:
    """Return the Service with the stamp of a leader."""
    made, meta = _copy(obj)
    meta["annotations"][LEADER] = leader
    return made


def build_assigned_finding(addresses: Iterable[Address]) -> ConditionContent:
    """Return what the condition of a Service says that waited, and has its addresses."""
    text = f"Assigned {', '.join(map(format_address, addresses))}."
    return ConditionContent(verdict=Verdict.TRUE, reason=ASSIGNED_REASON, message=text)


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
        LEASE_FIELD: annotations.get(LEASE_NAME),
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


def build_found(obj: JsonView, finding: ConditionContent | None, now: str) -> dict[str, Any]:
    """Return the Service with our condition beside those of others, without it if `finding` is None.

    Its time changes with its status alone.
    """
    status, before = dict(as_mapping(obj.get("status"))), find_condition(obj)
    conditions = [each for each in as_list(status.get("conditions")) if each != before]
    if finding is not None:
        is_same = before.get("status") == finding.verdict and before.get("lastTransitionTime")
        conditions.append(
            {
                "type": ADDRESS_ASSIGNED,
                "status": str(finding.verdict),
                "reason": finding.reason,
                "message": finding.message,
                "lastTransitionTime": before["lastTransitionTime"] if is_same else now,
            }
        )
    return {**obj, "status": {**status, "conditions": conditions}}


def find_manager(obj: JsonView) -> str:
    """Return the field manager that changed an object after fipop, other than kube-vip; "" if none is recorded.

    Who only removes fields is not recorded.
    """
    entries = [as_mapping(each) for each in as_list(as_mapping(obj.get("metadata")).get("managedFields"))]
    found = [(as_text(each.get("time")), as_text(each.get("manager"))) for each in entries]
    own = max((time for time, manager in found if manager == "fipop"), default="")
    later = (each for each in found if each[0] >= own and each[1] not in ("", "fipop", "kube-vip"))
    return max(later, default=("", ""))[1]
