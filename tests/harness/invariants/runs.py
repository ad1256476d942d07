"""Where the end states of two runs differ, and what their histories count."""

from collections import Counter
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any

from localfleet.faultproxy import On, Passed
from tests.harness.history import FLOATING_IPS, RANGES, RESERVATIONS, History, Json, Key
from tests.harness.stored import MADE, Owner, is_address, is_held, name_of, of_kind, owner_of, slot_of

ON_THE_WAY_SECONDS = 0.5
"""So long a request may be on its way when the Lease changes hands."""


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
        "annotations": {name: text if name != MADE else "" for name, text in sorted(annotations.items())},
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


def led_by_two(passed: Mapping[str, Sequence[Passed]]) -> list[str]:
    """Writes of our kinds that came from an operator after another one had gained the Lease.

    `passed` is what came by from each operator. What was on its way when the Lease changed hands is let off.
    """
    holder, held_since, found = "", 0.0, []
    for at, name, each in sorted(
        ((each.at, name, each) for name, requests in passed.items() for each in requests),
        key=lambda one: one[:2],
    ):
        if each.holder and name != holder:
            holder, held_since = name, at
        ours = each.seen.verb is On.WRITE and each.seen.plural in {FLOATING_IPS, RANGES, RESERVATIONS}
        if ours and holder and name != holder and at > held_since + ON_THE_WAY_SECONDS:
            found.append(
                f"lease: {name} writes {each.seen.plural} {at - held_since:.1f} s after {holder} took the lead"
            )
    return found


def creations(history: History) -> Counter[str]:
    """How many objects of each kind were created (`+`) and deleted (`-`)."""
    there: set[Key] = set()
    counted: Counter[str] = Counter()
    for change in history.changes:
        if change.obj is None:
            counted[f"-{change.plural}"] += change.revision > 0
            there.discard(change.key)
        elif change.key not in there:
            counted[f"+{change.plural}"] += change.revision > 0
            there.add(change.key)
    return counted


def allocations(history: History) -> int:
    """How often an address came into somebody's possession."""
    held: set[str] = set()
    count = 0
    for change in history.changes:
        if change.plural != RESERVATIONS:
            continue
        if change.obj is not None and is_held(change.obj):
            count += change.name not in held and change.revision > 0
            held.add(change.name)
        else:
            held.discard(change.name)
    return count


def given_out(history: History) -> int:
    """How often an address was given out: one that goes back to its owner out of quarantine was so before."""
    return len(
        {
            (slot_of(change.obj), owner_of(change.obj), change.obj["metadata"].get("uid"))
            for change in history.changes
            if change.plural == RESERVATIONS and change.obj is not None and is_held(change.obj)
        }
    )
