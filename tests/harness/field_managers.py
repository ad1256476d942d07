"""Changes of Services in memory by field managers, noted in metadata.managedFields as an API server does."""

from typing import Any

from fipop.cloudprovider.services import ADDRESSES
from fipop.kube.resources import SERVICES
from tests.harness.memory import Memory, copy_json

NOBODY = "nobody"
"""A writer of whom the API server notes nothing."""


def change_as(
    memory: Memory,
    manager: str,
    *,
    name: str = "web",
    a: str | None = None,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> None:
    """Change a Service as a field manager does, and note it there as an API server does; "" takes A off."""
    key = (SERVICES.plural, "shop", name)
    found = copy_json(memory.objects[key])
    meta = found["metadata"]
    entries = {each["manager"]: each for each in meta.get("managedFields", ())}
    mine = entries.setdefault(manager, {"manager": manager, "operation": "Update", "fieldsV1": {}})
    mine["time"] = memory.timestamp()
    if a is not None:
        for each in entries.values():
            each["fieldsV1"].get("f:metadata", {}).get("f:annotations", {}).pop(f"f:{ADDRESSES}", None)
        meta["annotations"] = {**meta.get("annotations", {}), ADDRESSES: a}
        if a:
            mine["fieldsV1"]["f:metadata"] = {"f:annotations": {f"f:{ADDRESSES}": {}}}
        else:
            del meta["annotations"][ADDRESSES]
    if spec:
        mine["fieldsV1"]["f:spec"] = {f"f:{field}": {} for field in spec}
    if manager is not NOBODY:
        meta["managedFields"] = [each for each in entries.values() if each["fieldsV1"]]
    meta["labels"] = {**meta.get("labels", {}), **(labels or {})}
    memory.put(key, {**found, "spec": {**found["spec"], **spec}})


def answer_as_kube_vip(memory: Memory, address: str, name: str = "web") -> None:
    """Write the status as kube-vip does, which answers each change."""
    key = (SERVICES.plural, "shop", name)
    found = copy_json(memory.objects[key])
    entry = {
        "manager": "kube-vip",
        "operation": "Update",
        "subresource": "status",
        "time": memory.timestamp(),
    }
    others = [each for each in found["metadata"].get("managedFields", ()) if each["manager"] != "kube-vip"]
    found["metadata"]["managedFields"] = [*others, {**entry, "fieldsV1": {"f:status": {}}}]
    memory.put(
        key, {**found, "status": {**found.get("status", {}), "loadBalancer": {"ingress": [{"ip": address}]}}}
    )
