"""What is written to a Service: the object as it was read, changed. Values in, values out; what was read stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fipop.cloudprovider.services import (
    ADDRESSES,
    FINALIZER,
    IMPLEMENTATION,
    INTERFACE,
    KUBE_VIP,
    LEDGER,
    LEGACY_LABEL,
    State,
)
from fipop.ipam.addresses import Address, format_address
from fipop.jsons import JsonView, as_list, as_mapping, as_text


def assigned(obj: JsonView, addresses: Sequence[Address], *, interface: str | None) -> dict[str, Any]:
    """Give the Service with chosen addresses, in their order: F, I, A, L; the interface where none was set."""
    made, meta = _marked(obj)
    texts = [format_address(each) for each in addresses]
    meta["annotations"][ADDRESSES] = ",".join(texts)
    made["spec"]["loadBalancerIP"] = texts[0]
    meta["annotations"].pop(LEDGER, None)
    if interface is not None:
        meta["annotations"].setdefault(INTERFACE, interface)
    return made


def stamped(obj: JsonView, ledger_uid: str) -> dict[str, Any]:
    """Give a Service that may be written, as known to this ledger: see there."""
    meta = as_mapping(obj.get("metadata"))
    annotations = {**as_mapping(meta.get("annotations")), LEDGER: ledger_uid}
    return {**obj, "metadata": {**meta, "annotations": annotations}}


def taken_over(obj: JsonView, state: State) -> dict[str, Any]:
    """Give a Service whose addresses a user, or a former version of the provider, wrote; it keeps them."""
    if state is State.ANNOTATED:
        return _marked(obj)[0]
    made, meta = _copy(obj)
    _add_finalizer(meta)
    if state is State.LEGACY:
        meta["annotations"][ADDRESSES] = as_text(made["spec"].get("loadBalancerIP")).strip()
        meta["labels"].pop(LEGACY_LABEL, None)
    return made


def cleared(obj: JsonView) -> dict[str, Any]:
    """Give a Service without all that the provider wrote: its type is another one by now."""
    made = released(obj)
    meta = made["metadata"]
    for field, keys in (("annotations", (ADDRESSES, INTERFACE, LEDGER)), ("labels", (IMPLEMENTATION,))):
        left = {key: value for key, value in as_mapping(meta.get(field)).items() if key not in keys}
        meta[field] = left
    made["spec"].pop("loadBalancerIP", None)
    return made


def released(obj: JsonView) -> dict[str, Any]:
    """Give a Service without the finalizer; kube-vip-cloud-provider's is the same."""
    made, meta = _copy(obj)
    meta["finalizers"] = [each for each in as_list(meta.get("finalizers")) if each != FINALIZER]
    return made


def _marked(obj: JsonView) -> tuple[dict[str, Any], dict[str, Any]]:
    made, meta = _copy(obj)
    _add_finalizer(meta)
    meta["labels"][IMPLEMENTATION] = KUBE_VIP
    return made, meta


def _copy(obj: JsonView) -> tuple[dict[str, Any], dict[str, Any]]:
    """Copy a Service as deep as it is changed here; its metadata is given beside it."""
    meta = dict(as_mapping(obj.get("metadata")))
    for field in ("annotations", "labels"):
        meta[field] = dict(as_mapping(meta.get(field)))
    return {**obj, "metadata": meta, "spec": dict(as_mapping(obj.get("spec")))}, meta


def _add_finalizer(meta: dict[str, Any]) -> None:
    finalizers = as_list(meta.get("finalizers"))
    if FINALIZER not in finalizers:
        meta["finalizers"] = [*finalizers, FINALIZER]
