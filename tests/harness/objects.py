"""Objects of ours as an API server serves them, with only what a test cares about."""

import itertools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from fipop.addresses.inventory import Inventory
from fipop.addresses.range_status import build_status
from fipop.api.codec import write
from fipop.api.objects import FloatingIP, FloatingIPReservation, read_object
from fipop.ipam.addresses import Address, Family, address_key, explode_address, parse_address
from fipop.kube.resources import (
    FLOATING_IP_RANGES,
    FLOATING_IP_RESERVATIONS,
    FLOATING_IPS,
    MANAGEMENT_CLUSTERS,
)

Json = dict[str, Any]

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
BORN = "2026-01-01T00:00:00Z"

_versions = itertools.count(1)


def build_range(
    name: str, iprange: str, *, created: str = BORN, annotations: Json | None = None, **spec: object
) -> Json:
    return {
        "metadata": _metadata("", name, created) | {"annotations": annotations or {}},
        "spec": {"iprange": iprange, **spec},
    }


def build_floating_ip(
    name: str,
    *,
    namespace: str = "c-m-1",
    uid: str = "",
    created: str = BORN,
    annotations: Mapping[str, str] | None = None,
    status: Json | None = None,
    **spec: object,
) -> Json:
    metadata = _metadata(namespace, name, created) | {"annotations": dict(annotations or {})}
    return {"metadata": metadata | ({"uid": uid} if uid else {}), "spec": spec, "status": status or {}}


def build_reservation(  # noqa: PLR0913 - the fields of a reservation
    address: str,
    owner: str = "web",
    *,
    namespace: str = "c-m-1",
    uid: str = "",
    cluster: str = "",
    space: str = "default",
    range_name: str = "pool",
    requested: str = "dynamic",
    since: str = BORN,
    quarantined_until: str | None = None,
    history: list[Json] | None = None,
) -> Json:
    parsed = parse_address(address)
    spec: Json = {
        "address": explode_address(parsed),
        "space": space,
        "range": range_name,
        "owner": {
            "namespace": namespace,
            "name": owner,
            "uid": uid or f"uid-{namespace}-{owner}",
            "cluster": cluster,
        },
        "requested": requested,
        "since": since,
    }
    if quarantined_until is not None:
        spec["quarantinedUntil"] = quarantined_until
    if history is not None:
        spec["history"] = history
    return {"metadata": _metadata("", f"{space}.{address_key(parsed)}", BORN), "spec": spec}


def floating_ip(name: str = "web", **fields: Any) -> FloatingIP:
    return read_object(FloatingIP, build_floating_ip(name, **fields))


def reservation(address: str, owner: str = "web", **fields: Any) -> FloatingIPReservation:
    return read_object(FloatingIPReservation, build_reservation(address, owner, **fields))


def held_by(spec_addresses: list[str], *, range_name: str = "pool", space: str = "default") -> Json:
    """The status of a floating IP that holds these."""
    return {
        "addresses": spec_addresses,
        "range": range_name,
        "addressSpace": space,
        "observedGeneration": 1,
    }


def inventory_of(
    *,
    ranges: list[Json] | None = None,
    floating_ips: list[Json] | None = None,
    reservations: list[Json] | None = None,
    reads_guests: bool = True,
) -> Inventory:
    inventory = Inventory(reads_guests=reads_guests)
    for each in ranges or []:
        inventory.observe(FLOATING_IP_RANGES, each)
    for each in floating_ips or []:
        inventory.observe(FLOATING_IPS, each)
    for each in reservations or []:
        inventory.observe(FLOATING_IP_RESERVATIONS, each)
    return inventory


def count_ranges(
    ranges: Sequence[Json],
    floating_ips: Sequence[Json],
    reservations: Sequence[Json],
    management: Sequence[Json] = (),
) -> list[Json]:
    """Return ranges with the statuses that the operator writes; one that has conditions stays as it is."""
    inventory = inventory_of(
        ranges=[*ranges], floating_ips=[*floating_ips], reservations=[*reservations], reads_guests=False
    )
    for each in management:
        inventory.observe(MANAGEMENT_CLUSTERS, each)
    inventory.recall_reports(lambda _guest_id: True)
    usages = inventory.count()

    def count(item: Json) -> Json:
        found = inventory.ranges.get("", item["metadata"]["name"])
        assert found is not None
        if found.status.conditions:
            return item
        return {**item, "status": write(build_status(inventory, found, usages.get(found.name), NOW))}

    return list(map(count, ranges))


def newer(obj: Json, **changes: Any) -> Json:
    """The same object after a write."""
    version = str(next(_versions))
    made = {**obj, **changes, "metadata": {**obj["metadata"], "resourceVersion": version}}
    if made.get("spec") != obj.get("spec"):
        made["metadata"]["generation"] = obj["metadata"].get("generation", 1) + 1
    return made


def v4(text: str) -> Address:
    address = parse_address(text)
    assert address.family is Family.IPV4
    return address


def _metadata(namespace: str, name: str, created: str) -> Json:
    metadata = {
        "name": name,
        "uid": f"uid-{namespace}-{name}" if namespace else f"uid-{name}",
        "resourceVersion": str(next(_versions)),
        "generation": 1,
        "creationTimestamp": created,
    }
    return metadata | ({"namespace": namespace} if namespace else {})
