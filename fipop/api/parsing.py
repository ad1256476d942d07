"""Read the objects of fipop from the JSON of the API server.

Nothing here fails: a value that a schema of fipop or of the predecessor accepted is read as leniently as its
meaning allows, and what cannot be read stays text, for the reconcile to complain about with the value.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from fipop.api import names
from fipop.api.conditions import parse_conditions, parse_time
from fipop.api.models import (
    EPOCH,
    FloatingIP,
    FloatingIPRange,
    FloatingIPStatus,
    GuestStatus,
    Meta,
    Owner,
    PastOwner,
    ReleaseStatus,
    Reported,
    Requested,
    Reservation,
    SearchOrder,
)
from fipop.api.oddities import FLOATING_IP_KEYS, RANGE_KEYS, find_oddities
from fipop.ipam.addresses import FamilyPolicy
from fipop.jsons import as_list, as_mapping, as_text

E = TypeVar("E", bound=StrEnum)

_MAX_VERSION_DIGITS = 20  # a uint64
_FAMILIES = {"IPv4": 4, "IPv6": 6}


def parse_meta(obj: Mapping[str, Any]) -> Meta:
    """Read the metadata that fipop uses of any object."""
    metadata = as_mapping(obj.get("metadata"))
    return Meta(
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata.get("name") or ""),
        uid=str(metadata.get("uid") or ""),
        resource_version=_version(metadata.get("resourceVersion")),
        generation=_integer(metadata.get("generation"), 0),
        created=parse_time(metadata.get("creationTimestamp")) or EPOCH,
        deleting="deletionTimestamp" in metadata,
    )


def parse_range(obj: Mapping[str, Any]) -> FloatingIPRange:
    """Read a FloatingIPRange."""
    spec, status = as_mapping(obj.get("spec")), as_mapping(obj.get("status"))
    annotations = _annotations(obj)
    selector, capacity = spec.get("clusterSelector"), status.get("capacity")
    return FloatingIPRange(
        meta=parse_meta(obj),
        iprange=str(spec.get("iprange") or ""),
        exclude=_texts(spec.get("exclude")),
        search_order=_enum(SearchOrder, spec.get("searchOrder"), SearchOrder.ASC),
        skip_end_ips=spec.get("skipEndIPs") is not False,
        avoid_buggy_ips=spec.get("avoidBuggyIPs") is not False,
        address_space=str(spec.get("addressSpace") or names.DEFAULT_ADDRESS_SPACE),
        match_labels=_labels(selector) if isinstance(selector, dict) and "matchLabels" in selector else None,
        quarantine_seconds=_integer(spec.get("quarantineSeconds"), names.DEFAULT_QUARANTINE_SECONDS),
        draining=spec.get("draining") is True,
        restrict_to_matching=spec.get("restrictToMatching") is True,
        allowed_workspaces=_texts(spec.get("allowedWorkspaces")),
        allowed_clusters=_texts(spec.get("allowedClusters")),
        max_per_guest=_integer(spec.get("maxPerGuest"), 0) or None,
        harvester_cluster=annotations.get(names.ANNOTATION_HARVESTER_CLUSTER) or None,
        harvester_network=annotations.get(names.ANNOTATION_HARVESTER_NETWORK) or None,
        oddities=find_oddities("annotation", annotations, RANGE_KEYS),
        status_capacity=capacity if isinstance(capacity, dict) else None,
        reported=tuple(
            Reported(as_text(as_mapping(each).get("address")), as_text(as_mapping(each).get("guest")))
            for each in as_list(status.get("reported"))
        ),
        reported_count=_integer(status.get("reportedCount"), 0),
        conditions=parse_conditions(status.get("conditions")),
        observed_generation=_integer(status.get("observedGeneration"), 0),
    )


def parse_floating_ip(obj: Mapping[str, Any]) -> FloatingIP:
    """Read a FloatingIP, also one of the predecessor's that has no spec."""
    spec = as_mapping(obj.get("spec"))
    annotations = _annotations(obj)
    families = spec.get("ipFamilies")
    allow_share = spec.get("allowShare")
    return FloatingIP(
        meta=parse_meta(obj),
        cluster=annotations.get(names.ANNOTATION_CLUSTER) or None,
        range=annotations.get(names.ANNOTATION_RANGE) or None,
        update_config_map=bool(names.parse_go_bool(annotations.get(names.ANNOTATION_UPDATE_CONFIG_MAP))),
        paused=bool(names.parse_go_bool(annotations.get(names.ANNOTATION_PAUSED))),
        ignored_claims=frozenset(
            part.strip()
            for part in annotations.get(names.ANNOTATION_IGNORE_CLAIM, "").split(",")
            if part.strip()
        ),
        ipaddress=str(spec.get("ipaddress") or "").strip(),
        ip_family_policy=_policy(spec.get("ipFamilyPolicy")),
        ip_families=tuple(_FAMILIES[family] for family in map(str, families) if family in _FAMILIES)
        if isinstance(families, list)
        else (),
        service_namespace=str(spec["serviceNamespace"]) if spec.get("serviceNamespace") else None,
        allow_share=allow_share if isinstance(allow_share, bool) else None,
        interface=str(spec["interface"]) if spec.get("interface") else None,
        oddities=find_oddities("annotation", annotations, FLOATING_IP_KEYS),
        status=_floating_ip_status(as_mapping(obj.get("status"))),
    )


def _floating_ip_status(status: Mapping[str, Any]) -> FloatingIPStatus:
    addresses = status.get("addresses")
    guest = status.get("guest")
    return FloatingIPStatus(
        addresses=tuple(str(address) for address in addresses) if isinstance(addresses, list) else (),
        range=str(status["range"]) if status.get("range") else None,
        address_space=str(status["addressSpace"]) if status.get("addressSpace") else None,
        guest=_guest_status(guest) if isinstance(guest, dict) else None,
        conditions=parse_conditions(status.get("conditions")),
        observed_generation=_integer(status.get("observedGeneration"), 0),
    )


def _guest_status(guest: Mapping[str, Any]) -> GuestStatus:
    releases, reachable = guest.get("releases"), guest.get("reachable")
    return GuestStatus(
        cluster=str(guest.get("cluster") or ""),
        id=str(guest.get("id") or ""),
        reachable=reachable if isinstance(reachable, bool) else None,
        releases=tuple(
            ReleaseStatus(
                role=str(release.get("role") or ""),
                name=str(release.get("name") or ""),
                namespace=str(release.get("namespace") or ""),
                revision=_integer(release.get("revision"), 0),
                digest=str(release.get("digest") or ""),
                version=str(release.get("version") or ""),
                status=str(release.get("status") or ""),
            )
            for release in releases
            if isinstance(release, dict)
        )
        if isinstance(releases, list)
        else (),
    )


def parse_reservation(obj: Mapping[str, Any]) -> Reservation:
    """Read a FloatingIPReservation; the API server has checked that its name is its space and address."""
    spec = as_mapping(obj.get("spec"))
    owner = as_mapping(spec.get("owner"))
    history = spec.get("history")
    return Reservation(
        meta=parse_meta(obj),
        address=str(spec.get("address") or ""),
        space=str(spec.get("space") or names.DEFAULT_ADDRESS_SPACE),
        range=str(spec.get("range") or ""),
        owner=Owner(
            namespace=str(owner.get("namespace") or ""),
            name=str(owner.get("name") or ""),
            uid=str(owner.get("uid") or ""),
            cluster=str(owner.get("cluster") or ""),
            workspace=str(owner.get("workspace") or ""),
            imported=owner.get("imported") is True,
        ),
        requested=_enum(Requested, spec.get("requested"), Requested.DYNAMIC),
        since=parse_time(spec.get("since")) or EPOCH,
        quarantined_until=parse_time(spec.get("quarantinedUntil")),
        guest_gone_since=parse_time(spec.get("guestGoneSince")),
        history=tuple(_past_owner(entry) for entry in history if isinstance(entry, dict))
        if isinstance(history, list)
        else (),
    )


def _past_owner(entry: Mapping[str, Any]) -> PastOwner:
    return PastOwner(
        namespace=str(entry.get("namespace") or ""),
        name=str(entry.get("name") or ""),
        cluster=str(entry.get("cluster") or ""),
        released_at=parse_time(entry.get("releasedAt")) or EPOCH,
    )


def _policy(value: object) -> FamilyPolicy | None:
    return next((policy for policy in FamilyPolicy if policy == value), None)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(part) for part in value) if isinstance(value, list) else ()


def _labels(selector: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in as_mapping(selector.get("matchLabels")).items()}


def _annotations(obj: Mapping[str, Any]) -> dict[str, str]:
    annotations = as_mapping(as_mapping(obj.get("metadata")).get("annotations"))
    return {str(key): str(value) for key, value in annotations.items()}


def _enum(kind: type[E], value: object, default: E) -> E:
    try:
        return kind(str(value))
    except ValueError:
        return default


def _version(value: object) -> int:
    text = as_text(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_VERSION_DIGITS else 0


def _integer(value: object, default: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return default
    try:
        return int(value)
    except ValueError:
        return default
