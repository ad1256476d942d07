"""What keeps a state from being one at rest (I2, I4), read from the stores alone: nothing is asked of the product."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from ipaddress import ip_address

from tests.harness.history import FLOATING_IPS, RANGES, RESERVATIONS, Json, Key
from tests.harness.invariants.view import View, key_of, pool_of, range_of, space_of_range
from tests.harness.stored import (
    MADE,
    Owner,
    Slot,
    canonical,
    condition,
    is_held,
    name_of,
    of_kind,
    owner_of,
    slot_of,
    slots_named_by,
)

LIMITS = ("draining", "maxPerGuest", "restrictToMatching")
"""A range with one of these may refuse who waits."""


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


def stuck_in_quarantine(now: Mapping[Key, Json], is_waited_for: Callable[[str, str], bool]) -> Iterator[str]:
    """Yield what waits though no guest cluster is waited for, by its id and the address."""
    for each in of_kind(now, RESERVATIONS):
        if not is_held(each) and not is_waited_for(owner_of(each)[0], slot_of(each)[1]):
            yield f"{slot_of(each)} stays in the quarantine of {owner_of(each)}"


def waiting_in_vain(now: Mapping[Key, Json], used: Mapping[str, set[str]]) -> Iterator[str]:
    """Yield who waits though its range, which serves all, has an address for it, or the one that it names.

    `used` is what Services of guest clusters use. Who asks for families is left out.
    """
    view = View.of(now)
    for each in view.floating_ips:
        spec = each.get("spec") or {}
        where = view.range((each["metadata"].get("annotations") or {}).get("fiprange") or "")
        if where is None or any(where["spec"].get(limit) for limit in LIMITS):
            continue
        if condition(where, "Ready")[0] != "True" or spec.get("ipFamilyPolicy") or spec.get("ipFamilies"):
            continue
        owner, wanted = (
            key_of(each),
            [ip_address(text) for text in (spec.get("ipaddress") or "").split(",") if text],
        )
        taken = view.had_by_others(space_of_range(where), owner)
        for guest_id, texts in used.items():  # what its own guest cluster uses it gets if it names it
            taken |= set(map(ip_address, texts)) if guest_id != owner[0] or not wanted else set()
        free, held = view.given(where) - taken, {ip_address(text) for _, text in slots_named_by(each)}
        first = min((address.version for address in pool_of(where)), default=4)
        if not wanted and not held and any(address.version == first for address in free):
            yield f"{owner} waits, though {sorted(map(str, free))} are free: {each.get('status')}"
        if len(wanted) == 1 and wanted[0] in free - held:
            yield f"{owner} does not get {wanted[0]}, which is free: {each.get('status')}"


def unmet_demand(now: Mapping[Key, Json], guest_id: str) -> Iterator[str]:
    """Yield what is not as range "pool" wants it in a guest cluster (rules "making" and "letting go")."""
    per_guest = (now.get((RANGES, "", "pool")) or {"spec": {}})["spec"].get("perGuest")
    mine = [each for each in of_kind(now, FLOATING_IPS) if each["metadata"]["namespace"] == guest_id]
    if not per_guest or not mine:
        return
    oldest = min(mine, key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["name"]))
    if range_of(oldest) != "pool":
        return
    here = [each for each in mine if (each.get("status") or {}).get("range") == "pool"]
    made = [each for each in here if MADE in (each["metadata"].get("annotations") or {})]
    if len(made) > per_guest["maxAllocate"]:
        yield f"{guest_id} has {len(made)} floating IPs that fipop made"
    if condition(oldest, "DemandMet") == ("", ""):
        yield f"{guest_id} does not say whether its demand is met"
