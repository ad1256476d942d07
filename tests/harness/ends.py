"""States at rest: what keeps one from being so (I2, I4), and where the end states of two runs differ."""

from collections import Counter
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Any

from tests.harness.history import FLOATING_IPS, RANGES, RESERVATIONS, Json, Key
from tests.harness.stored import (
    Owner,
    Slot,
    canonical,
    is_address,
    is_held,
    name_of,
    of_kind,
    owner_of,
    slot_of,
    slots_named_by,
)

_MADE = "kubefip.k8s.binbash.org/made"
"""Says which spec fipop wrote last, address and all."""


def unsettled(
    now: Mapping[Key, Json], carried: Mapping[str, frozenset[str]], *, unwritten: Iterable[str] = ()
) -> list[str]:
    """What keeps a state from being one at rest: I2, unseen generations, guests that lack what is theirs.

    `unwritten` are guests that are not to be written, such as the loser of an address that was given out twice.
    """
    found = unmatched(now)
    for key, obj in now.items():
        if key[0] in {FLOATING_IPS, RANGES}:
            seen = (obj.get("status") or {}).get("observedGeneration")
            if seen != obj["metadata"]["generation"]:
                found.append(f"{key} was seen at generation {seen} of {obj['metadata']['generation']}")
    found += _uncounted(now)
    skipped = set(unwritten)
    for guest, addresses in carried.items():
        mine = (each for each in of_kind(now, FLOATING_IPS) if each["metadata"]["namespace"] == guest)
        own = {text for each in mine for _, text in slots_named_by(each)}
        if guest not in skipped and addresses != own:
            found.append(f"guest {guest} carries {sorted(addresses)}, its floating IPs hold {sorted(own)}")
    return sorted(found)


def unmatched(now: Mapping[Key, Json]) -> list[str]:
    """Held reservations that are not the addresses of living floating IPs, and the other way round (I2)."""
    held = {
        slot_of(each): (owner_of(each), each["spec"]["owner"].get("uid"))
        for each in of_kind(now, RESERVATIONS)
        if is_held(each)
    }
    named: dict[Slot, tuple[Owner, str]] = {}
    for each in of_kind(now, FLOATING_IPS):
        meta = each["metadata"]
        for slot in slots_named_by(each):
            named[slot] = ((meta["namespace"], meta["name"]), meta["uid"])
    wrong = [
        f"{slot} is held by {who}, named by {named.get(slot)}"
        for slot, who in held.items()
        if named.get(slot) != who
    ]
    return wrong + [
        f"{slot} is named by {who} and not held" for slot, who in named.items() if slot not in held
    ]


def _uncounted(now: Mapping[Key, Json]) -> list[str]:
    """Ranges whose status counts other than there are reservations; what is only reported counts as in quarantine."""
    used: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    reserved = set()
    for obj in of_kind(now, RESERVATIONS):
        (used if is_held(obj) else waiting)[obj["spec"]["range"]] += 1
        reserved.add(slot_of(obj))
    found = []
    for obj in of_kind(now, RANGES):
        name, status = name_of(obj), obj.get("status") or {}
        capacity, reported = status.get("capacity"), status.get("reported") or ()
        if capacity is None or len(reported) < status.get("reportedCount", 0):
            continue
        space = (obj.get("spec") or {}).get("addressSpace", "default")
        alone = {(space, canonical(each["address"])) for each in reported} - reserved
        counted = capacity["used"] + capacity["quarantined"]
        there = used[name] + waiting[name] + len(alone)
        if counted not in {there - capacity.get("outOfRange", 0), there}:
            found.append(
                f"range {name} counts {capacity}, there are {used[name]} held, {waiting[name]} waiting, "
                f"{len(alone)} reported"
            )
    return found


def normalize(
    now: Mapping[Key, Json], carried: Mapping[str, frozenset[str]], *, chosen: frozenset[Owner] | None = None
) -> Json:
    """An end state without uids, times, versions, and without which address was chosen where any would do.

    Which owners take any address, their reservations tell; or `chosen` does, and the reservations' word is left out.
    What is in quarantine has a list of its own, and counts of ranges do not tell of it.
    """
    masks: dict[str, str] = {}
    held, quarantine = [], []
    for obj in of_kind(now, RESERVATIONS):
        any_will_do = obj["spec"].get("requested") == "dynamic"
        if chosen is not None:
            any_will_do = owner_of(obj) in chosen or not is_held(obj)
        address = slot_of(obj)[1]
        shown = f"any v{ip_address(address).version} of {obj['spec']['range']}" if any_will_do else address
        (held if is_held(obj) else quarantine).append(
            _plain_reservation(obj, shown, says_how=chosen is None and is_held(obj))
        )
        if is_held(obj) and any_will_do:
            masks[address] = shown
    return {
        "reservations": sorted(held),
        "quarantine": sorted(quarantine),
        "floatingips": {name_of(obj): _plain_floating_ip(obj, masks) for obj in of_kind(now, FLOATING_IPS)},
        "ranges": {name_of(obj): _plain_range(obj) for obj in of_kind(now, RANGES)},
        "guests": {
            guest: sorted(masks.get(address, address) for address in addresses)
            for guest, addresses in sorted(carried.items())
            if addresses
        },
    }


def takes_any(now: Mapping[Key, Json]) -> frozenset[Owner]:
    """The owners whose addresses were chosen for them."""
    return frozenset(
        owner_of(obj)
        for obj in of_kind(now, RESERVATIONS)
        if obj["spec"].get("requested") == "dynamic" and is_held(obj)
    )


def difference(wanted: Any, found: Any, path: str = "") -> list[str]:
    """Where two normalized states differ, one line each."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        lines = []
        for key in sorted({*wanted, *found}):
            lines += difference(wanted.get(key), found.get(key), f"{path}/{key}")
        return lines
    return [] if wanted == found else [f"{path}: {found!r} instead of {wanted!r}"]


def _plain_reservation(obj: Json, shown: str, *, says_how: bool) -> str:
    spec = obj["spec"]
    owner = spec.get("owner") or {}
    who = f"{owner.get('namespace')}/{owner.get('name')} of {owner.get('cluster')}"
    return f"{slot_of(obj)[0]} {shown} {spec['range']} {who} {spec['requested'] if says_how else ''}"


def _plain_floating_ip(obj: Json, masks: Mapping[str, str]) -> Json:
    status = obj.get("status") or {}
    spec = dict(obj.get("spec") or {})
    address = spec.pop("ipaddress", "")
    annotations = obj["metadata"].get("annotations") or {}
    return {
        "annotations": {name: text if name != _MADE else "" for name, text in sorted(annotations.items())},
        "finalizers": obj["metadata"].get("finalizers") or [],
        "spec": spec,
        "ipaddress": [
            masks.get(str(ip_address(part)), part) if is_address(part) else part
            for part in address.split(",")
        ],
        "addresses": [masks.get(text, text) for text in status.get("addresses") or ()],
        "range": status.get("range"),
        "space": status.get("addressSpace"),
        "conditions": _plain_conditions(status),
    }


def _plain_range(obj: Json) -> Json:
    status = obj.get("status") or {}
    return {
        "spec": obj.get("spec"),
        "finalizers": obj["metadata"].get("finalizers") or [],
        "capacity": _plain_capacity(status.get("capacity") or {}),
        "reported": status.get("reported"),
        "conditions": _plain_conditions(status),
    }


def _plain_capacity(capacity: Json) -> Json:
    return {
        key: _plain_capacity(value) if isinstance(value, dict) else value
        for key, value in capacity.items()
        if key not in {"free", "quarantined"}
    }


def _plain_conditions(status: Json) -> list[str]:
    found = status.get("conditions") or ()
    return sorted(f"{each['type']}={each['status']} {each.get('reason', '')}" for each in found)
