"""What must be so at every revision (I1, I3), read from the stores alone: nothing is asked of the product.

`Judge` takes in one change after the other, of a fleet in memory or of a recorded history (`replay`).
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import inf

from tests.harness.history import FLOATING_IPS, RANGES, RESERVATIONS, Carried, Change, History, Json, Key, Use
from tests.harness.stored import (
    Owner,
    Slot,
    canonical,
    is_address,
    is_held,
    is_seen,
    owner_of,
    seconds,
    slot_of,
    slots_named_by,
)

EARLY_SECONDS = 1.5
"""The API server's time has whole seconds; by so much a quarantine may seem to have ended early."""

SHORTEST_SECONDS = 90.0
"""No quarantine is shorter, whatever its range says (DESIGN.md §4)."""
QUARANTINE_SECONDS = 600.0
"""What a range asks for that says nothing (DESIGN.md §2)."""


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

    `admin_freed` are names of reservations that the scenario itself deletes. `late_seconds` is how long a write may
    hang on its way: by so much a quarantine may be shorter than its range says.
    """

    clusters: Mapping[str, str] = field(default_factory=dict)
    admin_freed: frozenset[str] = frozenset()
    late_seconds: float = 20.0
    decided_ago: Callable[[], float] = lambda: 0.0
    """So many seconds ago the write was decided on that is judged now; unknown in a recorded history."""


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
    released_at: dict[Slot, float] = field(default_factory=dict)
    named: dict[Slot, dict[Owner, float]] = field(default_factory=lambda: defaultdict(dict))
    """Whose status names an address, and since when."""
    carried: dict[str, frozenset[str]] = field(default_factory=dict)
    written: dict[Slot, str] = field(default_factory=dict)
    """Which guest carries an address because we wrote it there."""
    moved_for: dict[Owner, dict[bool, int]] = field(default_factory=dict)
    """The latest writing of people that a family of a floating IP, IPv6 or not, has moved for."""
    made_at: dict[Owner, int] = field(default_factory=dict)
    asked_at: dict[Owner, int] = field(default_factory=dict)
    """When people last changed a floating IP, which may give it another address."""
    wish: dict[Owner, frozenset[str]] = field(default_factory=dict)
    """The addresses that people last named in a floating IP's spec."""
    wished: dict[Owner, set[str]] = field(default_factory=lambda: defaultdict(set))
    """All that people ever named there: a claim that was decided on may be on its way while they change their mind."""
    had: dict[Owner, set[Slot]] = field(default_factory=lambda: defaultdict(set))
    """What was ever held for a floating IP: what people wrote of these addresses may be an echo of ours."""
    once_had: dict[Owner, set[Slot]] = field(default_factory=lambda: defaultdict(set))
    """The same of all objects that bore that name: an operator that does not see yet that one is gone goes on."""
    adopted: set[Owner] = field(default_factory=set)
    """Who has what was reserved for another object of his name: what he asks for he has asked for when he was made."""
    spec_then: dict[tuple[Owner, Slot], frozenset[str]] = field(default_factory=dict)
    """What the spec named when the status first named an address."""
    vanished: dict[Slot, Owner] = field(default_factory=dict)
    """Addresses whose reservations people deleted while their owners were at rest: nothing else may take them away."""
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
            self._range(change)

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

    def free_by_hand(self, address: str) -> None:
        """Take in that an administrator freed an address: from now on only reports keep it from others."""
        self.written = {slot: guest for slot, guest in self.written.items() if slot[1] != address}

    def _guest_written(self, step: Carried, address: str) -> None:
        """A guest may be written only what a reservation gives to its own floating IP, or gave until just now.

        Between the last look and the write the address may be released; it then waits, and is looked for in the guest
        before anybody else has it. No write is on its way for longer than the shortest quarantine.
        """
        just_now = {
            slot: owner
            for slot, owner in self.waiting.items()
            if step.at - self.released_at[slot] < SHORTEST_SECONDS
        }
        granted = {
            slot
            for slot, owner in (*self.held.items(), *just_now.items())
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
        self.vanished.pop(slot, None)
        if change.revision in self.by_people and change.obj is None:
            self._deleted_by_people(slot, old)
            return
        if new is None and change.obj is not None:
            self.waiting[slot] = owner_of(change.obj)
            if before is None or is_held(before):
                self.released_at[slot] = change.at
                self._quarantined(change, change.obj, slot)
        if new is None:
            self.held.pop(slot, None)
        else:
            self.held[slot] = new
        if old is not None and new is not None and old != new:
            self._say(change.revision, "I3", f"{slot} goes from {old} to {new} without a release")
        if old is not None and new is None:
            self._released(change, slot, old)
        if new is not None and change.obj is not None:
            self._note_heir(new, change.obj)
        if new is not None and old is None:
            self._granted(change, slot, new, before)
        if new is not None:
            self.had[new].add(slot)
            self.once_had[new].add(slot)
        if before is not None and change.obj is None and not is_held(before):
            self._freed(change, slot, before)
        self._one_owner(change.revision, slot)

    def _note_heir(self, owner: Owner, reservation: Json) -> None:
        found = self.objects.get((FLOATING_IPS, *owner))
        if found is not None and found["metadata"].get("uid") != reservation["spec"]["owner"].get("uid"):
            self.adopted.add(owner)

    def _deleted_by_people(self, slot: Slot, owner: Owner | None) -> None:
        """What people delete they may delete; but whoever holds it and is at rest is to keep it."""
        self.held.pop(slot, None)
        found = self.objects.get((FLOATING_IPS, *owner)) if owner is not None else None
        if owner is not None and found is not None and owner in self.named[slot] and is_seen(found):
            self.vanished[slot] = owner

    def _released(self, change: Change, slot: Slot, owner: Owner) -> None:
        decided_at = change.at - self.setting.decided_ago()
        if change.name not in self.setting.admin_freed and self.named[slot].get(owner, inf) <= decided_at:
            self._say(change.revision, "I3", f"{slot} is taken from {owner}, whose status names it")
        if change.obj is None and change.name not in self.setting.admin_freed and slot in self.written:
            self._say(change.revision, "I3", f"{slot} is freed while guest {self.written[slot]} carries it")

    def _quarantined(self, change: Change, obj: Json, slot: Slot) -> None:
        """What waits must wait for as long as its range says, whatever was written."""
        waits = seconds(obj["spec"]["quarantinedUntil"]) - change.at
        wanted = max(SHORTEST_SECONDS, self.shortest.get(obj["spec"]["range"], 0.0))
        if change.at and waits < wanted - self.setting.late_seconds:
            self._say(change.revision, "I3", f"{slot} waits {waits:.0f} s, its range wants {wanted:.0f} s")

    def _granted(self, change: Change, slot: Slot, owner: Owner, before: Json | None) -> None:
        if before is not None and not (
            _returns(before, change.obj or {}) or self._is_asked_for(slot, owner, before)
        ):
            self._say(
                change.revision,
                "I3",
                f"{slot} is given to {owner} out of the quarantine of {owner_of(before)}",
            )
        carrier = self.written.get(slot)
        if carrier is not None and not self._is_guest_of(carrier, owner):
            self._say(change.revision, "I3", f"{slot} is given to {owner} while guest {carrier} carries it")

    def _is_asked_for(self, slot: Slot, owner: Owner, before: Json) -> bool:
        """Whether an address goes to a floating IP that named or had it, of the guest that had it."""
        return (slot[1] in self.wished[owner] or slot in self.once_had[owner]) and owner_of(before)[
            0
        ] == owner[0]

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
            self.named[slot].pop(owner, None)
        if change.obj is None or change.revision in self.by_people:
            self.vanished = {slot: each for slot, each in self.vanished.items() if each != owner}
        by_people = change.revision in self.by_people
        if before is None:
            self._made(change, owner)
        elif by_people:
            self.asked_at[owner] = change.revision
        if change.obj is None:
            return
        if before is None or by_people:
            self.wish[owner] = _wished(change.obj)
            self.wished[owner] |= self.wish[owner]
        else:
            self._written_over(change, owner, _wished(before) - _wished(change.obj))
        now = slots_named_by(change.obj)
        for slot in sorted(former - now):
            if self.held.get(slot) == owner:
                self._left(change, owner, slot, now)
        self._lost(change, owner, former - now, now)
        for slot in now:
            self.named[slot].setdefault(owner, change.at)
            if slot not in former:
                self.spec_then[owner, slot] = _wished(change.obj)
            if owner not in (self.held.get(slot), self.waiting.get(slot)) and slot not in former:
                self._say(
                    change.revision,
                    "I1",
                    f"the status of {owner} names {slot}, held by {self.held.get(slot)}",
                )
            self._one_owner(change.revision, slot)

    def _made(self, change: Change, owner: Owner) -> None:
        own = {slot for slot in self.had[owner] if self.held.get(slot) == owner}
        self.moved_for[owner] = {}
        self.made_at[owner] = change.revision
        self.had[owner] = own
        (self.adopted.add if own else self.adopted.discard)(owner)

    def _written_over(self, change: Change, owner: Owner, gone: frozenset[str]) -> None:
        """What people asked for stands in the spec until it was held once."""
        for address in sorted((gone & self.wish[owner]) - {slot[1] for slot in self.had[owner]}):
            self._say(change.revision, "I3", f"the wish of {owner} for {address} is written over")

    def _left(self, change: Change, owner: Owner, slot: Slot, now: frozenset[Slot]) -> None:
        """A held address leaves a status only for what people asked for: each writing moves each family once.

        An edit of a range moves nothing. Who is made again under his name goes on from where his address is, and may
        ask for another range. And a status may follow a spec that named something else when the status named the
        address: two operators chose at the same moment, and whoever writes the spec later has the last word.
        """
        wish = self.wish.get(owner, frozenset())
        used = self.moved_for.setdefault(owner, {})
        family = ":" in slot[1]
        made_at = self.made_at.get(owner, 0)
        asked_at = max(made_at, self.asked_at.get(owner, 0))
        if asked_at > used.get(family, -1 if owner in self.adopted else made_at):
            used[family] = asked_at
            return
        spec_then = self.spec_then[owner, slot]
        if spec_then and slot[1] not in spec_then and spec_then >= {text for _, text in now}:
            return
        if not wish or slot[1] in wish:
            self._say(
                change.revision, "I3", f"{slot} leaves the status of {owner}, and nobody asked for that"
            )

    def _lost(self, change: Change, owner: Owner, gone: frozenset[Slot], now: frozenset[Slot]) -> None:
        """What vanished is made again, or another of its family takes its place: a move may be under way just then."""
        families = {":" in address for _, address in now}
        for slot in sorted(gone):
            if self.vanished.get(slot) == owner and (":" in slot[1]) not in families:
                self._say(change.revision, "I3", f"{slot} vanished, and nobody keeps it for {owner} any more")

    def _range(self, change: Change) -> None:
        if change.obj is not None:
            spec = change.obj.get("spec") or {}
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


def let_go_in_use(
    history: History, uses: Mapping[str, Sequence[Use]], *, decided_ago_seconds: float
) -> list[str]:
    """Floating IPs that were deleted while a Service used an address of them.

    A Service that took the address after that was decided on, so many seconds before the delete arrived, is let off.
    `uses` are those of each guest.
    """
    there: dict[Key, Json] = {}
    found = []
    for change in history.changes:
        if change.plural != FLOATING_IPS:
            continue
        if change.obj is not None:
            there[change.key] = change.obj
            continue
        named = {text for _, text in slots_named_by(there.pop(change.key, {}))}
        found += [
            f"demand: {change.namespace}/{change.name} is deleted while {'/'.join(use.service[1:])} uses {use.address}"
            for use in uses.get(change.namespace, ())
            if use.address in named and use.since < change.at - decided_ago_seconds and use.until > change.at
        ]
    return found


def used_in_two(uses: Mapping[str, Sequence[Use]]) -> list[str]:
    """Addresses that Services of two guests used at the same time."""
    by_address: dict[str, list[tuple[str, Use]]] = defaultdict(list)
    for guest, found in uses.items():
        for use in found:
            by_address[use.address].append((guest, use))
    return [
        f"demand: Services of {one} and {other} use {address}"
        for address, found in sorted(by_address.items())
        for (one, first), (other, second) in combinations(found, 2)
        if one != other and first.since < second.until and second.since < first.until
    ]


def most_floating_ips(history: History, namespace: str) -> int:
    """How many floating IPs a guest had at most."""
    there, most = set[str](), 0
    for change in history.changes:
        if (change.plural, change.namespace) == (FLOATING_IPS, namespace):
            (there.add if change.obj is not None else there.discard)(change.name)
            most = max(most, len(there))
    return most


def _wished(floating_ip: Json) -> frozenset[str]:
    parts = ((floating_ip.get("spec") or {}).get("ipaddress") or "").split(",")
    return frozenset(canonical(part) for part in parts if is_address(part))


def _returns(before: Json, after: Json) -> bool:
    """Whether an address goes back to who had it: same floating IP, or same cluster, name and range.

    A cluster that Rancher names by its id is known by what people call it, and its floating IPs are named after the id.
    """
    old, new = before["spec"].get("owner") or {}, after["spec"].get("owner") or {}

    def known_as(owner: Json) -> tuple[str, str]:
        cluster, name = owner.get("cluster") or "", owner.get("name") or ""
        return owner.get("displayName") or cluster, name.removeprefix(f"{cluster}-kubevip") or "automatic"

    same_cluster = bool(old.get("cluster")) and known_as(old) == known_as(new)
    return owner_of(before) == owner_of(after) or (
        same_cluster and before["spec"]["range"] == after["spec"]["range"]
    )
