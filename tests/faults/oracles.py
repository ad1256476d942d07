"""The invariants of the design as functions over a recorded history: nothing is asked of the product.

`replay` judges every revision (I1 to I3), `unsettled` a state at rest (I2, I4), `led_by_two` what came by from two
operators, `normalize` makes an end state comparable with that of another run.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from ipaddress import ip_address
from typing import Any

from localfleet.faultproxy import On, Passed
from tests.faults.history import FLOATING_IPS, RANGES, RESERVATIONS, Carried, Change, History, Json, Key

Slot = tuple[str, str]
"""An address in its space."""
Owner = tuple[str, str]
EARLY_SECONDS = 1.5
"""The API server's time has whole seconds; by so much a quarantine may seem to have ended early."""

LATE_SECONDS = 20.0
"""By so much a quarantine may be shorter than its range says: its write may have hung on its way."""
QUARANTINE_SECONDS = 600.0
"""What a range asks for that says nothing (DESIGN.md §2)."""

ON_THE_WAY_SECONDS = 0.5
"""So long a request may be on its way when the Lease changes hands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """An invariant that did not hold, at which revision, and how."""

    rule: str
    revision: int
    text: str

    def __str__(self) -> str:
        return f"{self.rule} at revision {self.revision}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What only the scenario knows: the cluster of each guest, and what an admin did by hand.

    `admin_freed` are names of reservations that the scenario itself deletes.
    """

    clusters: Mapping[str, str] = field(default_factory=dict)
    admin_freed: frozenset[str] = frozenset()


def replay(history: History, setting: Setting | None = None) -> list[Violation]:
    """Judge every revision; the violations in their order."""
    judge = Judge(setting=setting or Setting(), by_people=history.by_people)
    for step in history.steps():
        if isinstance(step, Carried):
            judge.take_carried(step)
        else:
            judge.take(step)
    return judge.found


@dataclass(slots=True)
class Judge:
    setting: Setting
    by_people: set[int] = field(default_factory=set)
    """Revisions of specs and annotations that people wrote."""
    found: list[Violation] = field(default_factory=list)
    objects: dict[Key, Json] = field(default_factory=dict)
    held: dict[Slot, Owner] = field(default_factory=dict)
    waiting: dict[Slot, Owner] = field(default_factory=dict)
    """In quarantine, and after whom."""
    named: dict[Slot, set[Owner]] = field(default_factory=lambda: defaultdict(set))
    carried: dict[str, frozenset[str]] = field(default_factory=dict)
    written: dict[Slot, str] = field(default_factory=dict)
    """Which guest carries an address because we wrote it there."""
    moved_for: dict[Owner, dict[str, int]] = field(default_factory=dict)
    """Of each kind of reason the latest that a floating IP has moved for; none is older than the floating IP."""
    made_at: dict[Owner, int] = field(default_factory=dict)
    asked_at: dict[Owner, int] = field(default_factory=dict)
    """When people last changed a floating IP, which may give it another address."""
    wish: dict[Owner, frozenset[str]] = field(default_factory=dict)
    """The addresses that people last named in a floating IP's spec."""
    ranges_at: int = 0
    """When any range last was another one."""
    shortest: dict[str, float] = field(default_factory=dict)
    """The shortest quarantine that a range of a name ever asked for, in seconds."""

    def take(self, change: Change) -> None:
        before = self.objects.get(change.key)
        if change.obj is None:
            self.objects.pop(change.key, None)
        else:
            self.objects[change.key] = change.obj
        if change.plural == RESERVATIONS:
            self._reservation(change, before)
        elif change.plural == FLOATING_IPS:
            self._floating_ip(change, before)
        elif change.plural == RANGES:
            self._range(change, before)

    def take_carried(self, step: Carried) -> None:
        before = self.carried.get(step.guest, frozenset())
        self.carried[step.guest] = step.addresses
        for slot in [slot for slot, guest in self.written.items() if guest == step.guest]:
            if slot[1] not in step.addresses:
                del self.written[slot]
        if step.by_admin:
            return
        for address in sorted(step.addresses - before):
            self._guest_written(step, address)

    def _guest_written(self, step: Carried, address: str) -> None:
        """A guest may be written only what a reservation gives to its own floating IP, or gave until just now.

        Between the last look and the write the address may be released; it then waits, and is looked for in the guest
        before anybody else has it.
        """
        granted = {
            slot
            for slot, owner in (*self.held.items(), *self.waiting.items())
            if slot[1] == address and self._is_guest_of(step.guest, owner)
        }
        if not granted:
            self._say(
                step.revision, "I1", f"guest {step.guest} is written {address}, which nobody holds for it"
            )
        for slot in granted:
            other = self.written.get(slot)
            if other is not None and self._cluster(other) != self._cluster(step.guest):
                self._say(step.revision, "I1", f"{slot} is written to {step.guest} while {other} carries it")
            self.written[slot] = step.guest

    def _reservation(self, change: Change, before: Json | None) -> None:
        obj = change.obj or before
        assert obj is not None
        slot = slot_of(obj)
        old = owner_of(before) if before is not None and is_held(before) else None
        new = owner_of(change.obj) if change.obj is not None and is_held(change.obj) else None
        self.waiting.pop(slot, None)
        if new is None and change.obj is not None:
            self.waiting[slot] = owner_of(change.obj)
            if before is None or is_held(before):
                self._quarantined(change, change.obj, slot)
        if new is None:
            self.held.pop(slot, None)
        else:
            self.held[slot] = new
        if old is not None and new is not None and old != new:
            self._say(change.revision, "I3", f"{slot} goes from {old} to {new} without a release")
        if old is not None and new is None:
            self._released(change, slot, old)
        if new is not None and old is None:
            self._granted(change, slot, new, before)
        if before is not None and change.obj is None and not is_held(before):
            self._freed(change, slot, before)
        self._one_owner(change.revision, slot)

    def _released(self, change: Change, slot: Slot, owner: Owner) -> None:
        if change.name not in self.setting.admin_freed and owner in self.named[slot]:
            self._say(change.revision, "I3", f"{slot} is taken from {owner}, whose status names it")
        if change.obj is None and change.name not in self.setting.admin_freed and slot in self.written:
            self._say(change.revision, "I3", f"{slot} is freed while guest {self.written[slot]} carries it")

    def _quarantined(self, change: Change, obj: Json, slot: Slot) -> None:
        """What waits must wait for as long as its range says, whatever was written."""
        waits = seconds(obj["spec"]["quarantinedUntil"]) - change.at
        wanted = self.shortest.get(obj["spec"]["range"], 0.0)
        if change.at and waits < wanted - LATE_SECONDS:
            self._say(change.revision, "I3", f"{slot} waits {waits:.0f} s, its range wants {wanted:.0f} s")

    def _granted(self, change: Change, slot: Slot, owner: Owner, before: Json | None) -> None:
        if before is not None and not _returns(before, change.obj or {}):
            self._say(
                change.revision,
                "I3",
                f"{slot} is given to {owner} out of the quarantine of {owner_of(before)}",
            )
        carrier = self.written.get(slot)
        if carrier is not None and not self._is_guest_of(carrier, owner):
            self._say(change.revision, "I3", f"{slot} is given to {owner} while guest {carrier} carries it")

    def _freed(self, change: Change, slot: Slot, before: Json) -> None:
        if change.name in self.setting.admin_freed:
            return
        until = seconds(before["spec"]["quarantinedUntil"])
        if change.at and change.at < until - EARLY_SECONDS:
            self._say(change.revision, "I3", f"{slot} leaves quarantine {until - change.at:.1f} s early")
        if slot in self.written and not self._carried_for_another_space(slot):
            self._say(change.revision, "I3", f"{slot} is freed while guest {self.written[slot]} carries it")

    def _carried_for_another_space(self, slot: Slot) -> bool:
        """Whether the guest has the same address in another space too; from now on it carries it for that one.

        Held, or released just now: then it is that quarantine which must not end before the guest is clean.
        """
        guest = self.written[slot]
        for other, owner in (*self.held.items(), *self.waiting.items()):
            if other != slot and other[1] == slot[1] and self._is_guest_of(guest, owner):
                del self.written[slot]
                self.written[other] = guest
                return True
        return False

    def _floating_ip(self, change: Change, before: Json | None) -> None:
        owner = (change.namespace, change.name)
        former = slots_named_by(before) if before is not None else frozenset[Slot]()
        for slot in former:
            self.named[slot].discard(owner)
        if before is None:
            self.moved_for[owner] = {}
            self.made_at[owner] = change.revision
        elif change.revision in self.by_people:
            self.asked_at[owner] = change.revision
        if change.obj is not None and (before is None or change.revision in self.by_people):
            self.wish[owner] = _wished(change.obj)
        if change.obj is None:
            return
        now = slots_named_by(change.obj)
        if any(self.held.get(slot) == owner for slot in former - now):
            self._left(change, owner, former - now)
        for slot in now:
            self.named[slot].add(owner)
            if self.held.get(slot) != owner and slot not in former:
                self._say(
                    change.revision,
                    "I1",
                    f"the status of {owner} names {slot}, held by {self.held.get(slot)}",
                )
            self._one_owner(change.revision, slot)

    def _left(self, change: Change, owner: Owner, slots: frozenset[Slot]) -> None:
        """A held address leaves a status only for what people asked for, or wrote since; each writing moves it once."""
        wish = self.wish.get(owner, frozenset())
        used = self.moved_for.setdefault(owner, {})
        for kind, at in (("asked", self.asked_at.get(owner, 0)), ("range", self.ranges_at)):
            if at > used.get(kind, self.made_at.get(owner, 0)):
                used[kind] = at
                return
        if not wish or any(slot[1] in wish for slot in slots):
            text = f"{sorted(slots)} leaves the status of {owner}, and nobody asked for that"
            self._say(change.revision, "I3", text)

    def _range(self, change: Change, before: Json | None) -> None:
        spec = (change.obj or {}).get("spec") or {}
        if spec != ((before or {}).get("spec") or {}):
            self.ranges_at = change.revision
        if change.obj is not None:
            wanted = float(spec.get("quarantineSeconds", QUARANTINE_SECONDS))
            self.shortest[change.name] = min(wanted, self.shortest.get(change.name, wanted))

    def _one_owner(self, revision: int, slot: Slot) -> None:
        owners = set(self.named[slot])
        if slot in self.held:
            owners.add(self.held[slot])
        if len({self._identity(owner) for owner in owners}) > 1:
            self._say(revision, "I1", f"{slot} has the owners {sorted(owners)}")

    def _identity(self, owner: Owner) -> Owner:
        return self._cluster(owner[0]), owner[1]

    def _cluster(self, guest: str) -> str:
        return self.setting.clusters.get(guest, guest)

    def _is_guest_of(self, guest: str, owner: Owner) -> bool:
        return self._cluster(guest) == self._cluster(owner[0])

    def _say(self, revision: int, rule: str, text: str) -> None:
        self.found.append(Violation(rule=rule, revision=revision, text=text))


def unsettled(
    now: Mapping[Key, Json], carried: Mapping[str, frozenset[str]], *, unwritten: Iterable[str] = ()
) -> list[str]:
    """What keeps a state from being one at rest: I2, unseen generations, guests that lack what is theirs.

    `unwritten` are guests that are not to be written, such as the loser of an address that was given out twice.
    """
    found: list[str] = []
    floating_ips = {key[1:]: obj for key, obj in now.items() if key[0] == FLOATING_IPS}
    held = {
        slot_of(obj): (owner_of(obj), obj["spec"]["owner"].get("uid"))
        for key, obj in now.items()
        if key[0] == RESERVATIONS and is_held(obj)
    }
    named: dict[Slot, tuple[Owner, str]] = {}
    for owner, obj in floating_ips.items():
        for slot in slots_named_by(obj):
            named[slot] = (owner, obj["metadata"]["uid"])
    found += [
        f"{slot} is held by {who}, named by {named.get(slot)}"
        for slot, who in held.items()
        if named.get(slot) != who
    ]
    found += [f"{slot} is named by {who} and not held" for slot, who in named.items() if slot not in held]
    for key, obj in now.items():
        if key[0] in {FLOATING_IPS, RANGES}:
            seen = (obj.get("status") or {}).get("observedGeneration")
            if seen != obj["metadata"]["generation"]:
                found.append(f"{key} was seen at generation {seen} of {obj['metadata']['generation']}")
    found += _uncounted(now)
    skipped = set(unwritten)
    for guest, addresses in carried.items():
        own = {slot[1] for slot, (owner, _) in named.items() if owner[0] == guest}
        if guest not in skipped and addresses != own:
            found.append(f"guest {guest} carries {sorted(addresses)}, its floating IPs hold {sorted(own)}")
    return sorted(found)


def _uncounted(now: Mapping[Key, Json]) -> list[str]:
    """Ranges whose status counts other than there are reservations."""
    used: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    for key, obj in now.items():
        if key[0] == RESERVATIONS:
            (used if is_held(obj) else waiting)[obj["spec"]["range"]] += 1
    found = []
    for key, obj in now.items():
        capacity = (obj.get("status") or {}).get("capacity") if key[0] == RANGES else None
        if capacity is None:
            continue
        outside = capacity.get("outOfRange", 0)
        counted = (capacity["used"] + capacity["quarantined"], capacity["total"])
        there = used[key[2]] + waiting[key[2]]
        if counted[0] != there - outside and counted[0] != there:
            found.append(
                f"range {key[2]} counts {capacity}, there are {used[key[2]]} held, {waiting[key[2]]} waiting"
            )
    return found


def normalize(
    now: Mapping[Key, Json], carried: Mapping[str, frozenset[str]], *, chosen: frozenset[Owner] | None = None
) -> Json:
    """An end state without uids, times, versions, and without which address was chosen where any would do.

    Which owners take any address, their reservations tell; or `chosen` does, and the reservations' word is left out.
    """
    masks: dict[str, str] = {}
    for obj in _of(now, RESERVATIONS):
        any_will_do = obj["spec"].get("requested") == "dynamic" if chosen is None else owner_of(obj) in chosen
        if any_will_do:
            slot = slot_of(obj)
            masks[slot[1]] = f"any v{ip_address(slot[1]).version} of {obj['spec']['range']}"
    said = chosen is None
    return {
        "reservations": sorted(_plain_reservation(obj, masks, said=said) for obj in _of(now, RESERVATIONS)),
        "floatingips": {_name(obj): _plain_floating_ip(obj, masks) for obj in _of(now, FLOATING_IPS)},
        "ranges": {_name(obj): _plain_range(obj) for obj in _of(now, RANGES)},
        "guests": {
            guest: sorted(masks.get(address, address) for address in addresses)
            for guest, addresses in sorted(carried.items())
            if addresses
        },
    }


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


def takes_any(now: Mapping[Key, Json]) -> frozenset[Owner]:
    """The owners whose addresses were chosen for them."""
    return frozenset(
        owner_of(obj) for obj in _of(now, RESERVATIONS) if obj["spec"].get("requested") == "dynamic"
    )


def difference(wanted: Any, found: Any, path: str = "") -> list[str]:
    """Where two normalized states differ, one line each."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        lines = []
        for key in sorted({*wanted, *found}):
            lines += difference(wanted.get(key), found.get(key), f"{path}/{key}")
        return lines
    return [] if wanted == found else [f"{path}: {found!r} instead of {wanted!r}"]


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


def slot_of(reservation: Json) -> Slot:
    spec = reservation["spec"]
    return spec["space"], _canonical(spec["address"])


def owner_of(reservation: Json) -> Owner:
    owner = reservation["spec"].get("owner") or {}
    return owner.get("namespace", ""), owner.get("name", "")


def is_held(reservation: Json) -> bool:
    return not reservation["spec"].get("quarantinedUntil")


def slots_named_by(floating_ip: Json) -> frozenset[Slot]:
    status = floating_ip.get("status") or {}
    space = status.get("addressSpace")
    return frozenset((space, _canonical(text)) for text in status.get("addresses") or () if space)


@lru_cache(maxsize=16_384)
def _canonical(text: str) -> str:
    return str(ip_address(text))


def _wished(floating_ip: Json) -> frozenset[str]:
    parts = ((floating_ip.get("spec") or {}).get("ipaddress") or "").split(",")
    return frozenset(_canonical(part) for part in parts if _is_address(part))


def condition(obj: Json, kind: str) -> tuple[str, str]:
    """Status and reason of a condition; two empty texts where it is not there."""
    for each in (obj.get("status") or {}).get("conditions") or ():
        if each["type"] == kind:
            return each["status"], each.get("reason", "")
    return "", ""


def _returns(before: Json, after: Json) -> bool:
    """Whether an address goes back to who had it: same floating IP, or same cluster, name and range."""
    old, new = before["spec"].get("owner") or {}, after["spec"].get("owner") or {}
    same_name = owner_of(before) == owner_of(after)
    same_cluster = bool(old.get("cluster")) and old.get("cluster") == new.get("cluster")
    return same_name or (
        same_cluster
        and old.get("name") == new.get("name")
        and before["spec"]["range"] == after["spec"]["range"]
    )


def _of(now: Mapping[Key, Json], plural: str) -> list[Json]:
    return [obj for key, obj in sorted(now.items()) if key[0] == plural]


def _name(obj: Json) -> str:
    return "/".join(filter(None, (obj["metadata"].get("namespace"), obj["metadata"]["name"])))


def _plain_reservation(obj: Json, masks: Mapping[str, str], *, said: bool) -> str:
    spec = obj["spec"]
    space, address = slot_of(obj)
    owner = spec.get("owner") or {}
    state = "held" if is_held(obj) else "waits"
    who = f"{owner.get('namespace')}/{owner.get('name')} of {owner.get('cluster')}"
    return f"{space} {masks.get(address, address)} {spec['range']} {state} {who} {spec['requested'] if said else ''}"


def _plain_floating_ip(obj: Json, masks: Mapping[str, str]) -> Json:
    status = obj.get("status") or {}
    spec = dict(obj.get("spec") or {})
    address = spec.pop("ipaddress", "")
    return {
        "annotations": dict(sorted((obj["metadata"].get("annotations") or {}).items())),
        "finalizers": obj["metadata"].get("finalizers") or [],
        "spec": spec,
        "ipaddress": [
            masks.get(str(ip_address(part)), part) if _is_address(part) else part
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
        "capacity": status.get("capacity"),
        "conditions": _plain_conditions(status),
    }


def _plain_conditions(status: Json) -> list[str]:
    found = status.get("conditions") or ()
    return sorted(f"{each['type']}={each['status']} {each.get('reason', '')}" for each in found)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def seconds(text: str) -> float:
    """Read a time of the API as seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()
