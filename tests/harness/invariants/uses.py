"""What must be so of addresses that guest clusters use (I3), read from the API servers alone.

`revisions` judges the history. Here are the promises about reports: no address is assigned while another guest cluster
uses it and the writer was told so, and no quarantine ends before its guest cluster was read.

"Told" is what went over the wire: the operator that writes has the answer in which the guest cluster shows the use.
"""

import asyncio
import json
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from math import inf

from fipop.api import names
from tests.harness.api_in_memory import Commit, Json
from tests.harness.fleet import CLUSTERS, Fleet, Guest, services_of, used_by, written_to
from tests.harness.history import FLOATING_IPS, RANGES, RESERVATIONS, Change
from tests.harness.invariants.revisions import Judge, Setting
from tests.harness.stored import (
    MADE,
    Owner,
    Slot,
    canonical,
    is_held,
    of_kind,
    owner_of,
    seconds,
    slot_of,
    slots_named_by,
)
from tests.harness.virtual_time import START

OPERATOR: ContextVar[str] = ContextVar("operator", default="")
"""Whose task runs; "" in the tasks of people, Rancher and the network."""
SENT_AT: ContextVar[float] = ContextVar("sent_at", default=0.0)
"""When the request that is answered now was sent: one that its sender gave up on arrives much later."""

LATE_SECONDS = 60.0
"""An API server may work so long on a request that its sender gave up."""
MUTE_SECONDS = 320.0
"""So long an operator may not hear of a change, and until it writes."""
IN_FLIGHT_SECONDS = 20.0
"""A claim may have been decided on so long before it is sent: one claim of 15 s, and what lies between."""
GATE_SECONDS = 60.0
HANDED_OVER_SECONDS = 300.0
"""How old what a leader noted on the Lease is at most, for the next one to rely on it."""
COUNT_SECONDS = 2.0
"""A count of the ranges that began before a range was edited writes the status of the range as it is then."""
ONE_VISIT_SECONDS = 15.0
"""Answers of one visit are not further apart."""
TAKEN_SECONDS = 75.0
"""So long before a floating IP is let go its Services may have been listed: one session, and a slow API server."""
LIVES_ON_SECONDS = 24 * 3600.0
"""An imported or custom guest cluster that left Rancher runs on, and nothing can read it (rule "no guest cluster to
ask")."""


@dataclass(slots=True)
class Reading:
    """What one operator was told by one guest cluster."""

    answers: dict[str, tuple[float, set[str]]] = field(default_factory=dict)
    """By the kind of objects, when they came last, and which addresses they use."""
    since: dict[str, float] = field(default_factory=dict)
    """Since when, without a break, it was told of the use of an address."""
    ranges: dict[str, set[str]] = field(default_factory=dict)
    """The ranges that could serve the guest cluster when the use of an address was found."""
    whole_at: datetime | None = None
    """When it was last told of everything."""


@dataclass(frozen=True, slots=True)
class HandedOver:
    """What an operator took over from the leader before it: when that one knew all, and for whom it waited then."""

    at: float
    waits: frozenset[str]


@dataclass
class Oracle:
    """Judges each commit of the fleet, and each write to a guest cluster."""

    fleet: Fleet
    found: list[str] = field(default_factory=list)
    readings: dict[tuple[str, str], Reading] = field(default_factory=dict)
    """By operator and guest cluster."""
    began: dict[str, float] = field(default_factory=dict)
    """When each operator was started, or began to lead."""
    shown: dict[tuple[str, str, str], float] = field(default_factory=dict)
    """Since when the status of a range shows the use of an address by a guest cluster."""
    handed_over: dict[str, HandedOver] = field(default_factory=dict)
    """By the name of the operator, if what the leader before it noted still held when it began."""
    ranges_changed_at: float = 0.0
    """When a range came, went or was edited last."""
    connected_at: dict[str, float] = field(default_factory=dict)
    """When the connection of each guest cluster last changed."""
    new_since: dict[str, float] = field(default_factory=dict)
    """When guest clusters came that fipop takes for new: they have no Services yet (rule "who connects later")."""
    left_at: dict[str, float] = field(default_factory=dict)
    """When imported and custom guest clusters left Rancher."""
    gone: set[str] = field(default_factory=set)
    """The guest clusters that have left Rancher for good."""
    named_until: dict[tuple[Owner, Slot], float] = field(default_factory=dict)
    """Until when the status of a floating IP named an address."""
    restored_at: float = 0.0
    """When the store was set back: what is on its way then was decided on before."""
    freed_by_hand: set[Slot] = field(default_factory=set)
    used_since: dict[str, dict[str, float]] = field(default_factory=dict)
    """Since when Services of a guest cluster use addresses."""
    by_hand: set[str] = field(default_factory=set)
    """Guest clusters in which people wrote fipop's key: it is theirs from then on (rule "whose keys")."""

    def __post_init__(self) -> None:
        self.fleet.judge.setting = Setting(
            late_seconds=LATE_SECONDS, decided_ago=lambda: _now() - SENT_AT.get() + IN_FLIGHT_SECONDS
        )
        self.fleet.memory.listeners.append(self.take_commit)
        self.fleet.judge_guest = self.take_guest_commit

    # What operators are told

    def note_answer(self, guest: Guest, plural: str) -> None:
        """Note that an operator has the ConfigMaps or the Services of a guest cluster; both are a whole reading."""
        operator, now = OPERATOR.get(), _now()
        reading = self._reading(operator, guest.id)
        reading.answers[plural] = now, written_to(guest) if plural == "configmaps" else services_of(guest)
        if len(reading.answers) < 2 or any(
            at < now - ONE_VISIT_SECONDS for at, _ in reading.answers.values()
        ):
            return
        used = set[str]().union(*(each for _, each in reading.answers.values()))
        reading.answers.clear()
        reading.whole_at = self.fleet.now
        ranges = {key[2] for key in self.fleet.memory.of_kind(RANGES) if self._could_serve(key[2], guest.id)}
        reading.since = {text: reading.since.get(text, now) for text in used}
        reading.ranges = {text: ranges | reading.ranges.get(text, set()) for text in used}

    def _reading(self, operator: str, guest_id: str) -> Reading:
        return self.readings.setdefault((operator, guest_id), Reading())

    def _is_told(self, operator: str, guest_id: str, text: str, range_name: str) -> bool:
        """Return whether an operator knew of a use in a guest cluster when it decided on what it writes now.

        A use counts in ranges that can serve the guest cluster, or could when a visit found it (rule "what counts").
        After a start nothing is assigned before the guest clusters that were connected then were read (rule "gate"),
        but those of which the last leader knew what they use, or that are new since (rule "handover"). What the status
        of a range showed before is known, too.
        """
        decided_at = SENT_AT.get() - IN_FLIGHT_SECONDS
        reading = self._reading(operator, guest_id)
        if text in reading.since:
            counts = range_name in reading.ranges[text] or self._could_serve(range_name, guest_id)
            return counts and reading.since[text] < decided_at
        began = self.began[operator]
        if reading.whole_at is not None or not self._could_serve(range_name, guest_id):
            return False
        if self.shown.get((range_name, text, guest_id), began) < began:
            return True
        connected_at = self.connected_at.get(guest_id, -inf)
        handed_over = self.handed_over.get(operator)
        if handed_over is not None and guest_id not in handed_over.waits:
            is_new = self.new_since.get(guest_id, -inf) > handed_over.at
            if is_new or connected_at < handed_over.at:
                return False
        was_there = self._is_connected(guest_id) and connected_at < began
        return was_there and SENT_AT.get() < began + GATE_SECONDS

    # What is stored

    def take_commit(self, commit: Commit) -> None:
        """Judge a write to the management cluster."""
        plural, _, name = commit.key
        if plural == "leases":
            self.note_lease(commit)
        if plural == CLUSTERS:
            self._note_cluster(commit)
        if plural == RANGES:
            self._note_shown(name, commit.obj)
            if _spec_of(commit.before) != _spec_of(commit.obj):
                self.ranges_changed_at = _now()
        if plural == FLOATING_IPS:
            self.named_until |= {
                (commit.key[1:], slot): _now() for slot in slots_named_by(commit.before or {})
            }
            self.named_until |= {(commit.key[1:], slot): inf for slot in slots_named_by(commit.obj or {})}
        if plural == FLOATING_IPS and OPERATOR.get() and commit.obj is None:
            self._let_go(commit.key[1], commit.before or {})
        if plural != RESERVATIONS:
            return
        if not OPERATOR.get() and commit.obj is None:
            # An administrator who deletes a reservation frees its address, whoever uses it.
            self.fleet.judge.free_by_hand(slot_of(commit.before or {})[1])
            self.freed_by_hand.add(slot_of(commit.before or {}))
        if OPERATOR.get() and commit.obj is not None and is_held(commit.obj):
            self._assigned(commit, commit.obj)
        if OPERATOR.get() and commit.before is not None and not is_held(commit.before):
            self._left_quarantine(commit, commit.before)

    def _note_cluster(self, commit: Commit) -> None:
        _, workspace, name = commit.key
        if not workspace:
            before, after = (_connected(each) for each in (commit.before, commit.obj))
            if before != after:
                self.connected_at[name] = _now()
        elif (
            commit.before is None and commit.obj is not None and commit.obj["spec"]
        ):  # an imported one has none
            self.new_since[commit.obj["status"]["clusterName"]] = _now()

    def _let_go(self, guest_id: str, before: Json) -> None:
        """What is deleted fipop made, and no Service uses it, or one only now (rule "letting go")."""
        name, annotations = before["metadata"]["name"], before["metadata"].get("annotations") or {}
        if MADE not in annotations:
            self._say(f"{guest_id}/{name} is deleted, which people made")
        used = self.used_since.get(guest_id, {})
        for _, text in slots_named_by(before):
            if used.get(text, _now()) < SENT_AT.get() - TAKEN_SECONDS:
                self._say(f"{guest_id}/{name} is deleted while a Service uses {text} since {used[text]:.0f}")

    def _note_shown(self, name: str, obj: Json | None) -> None:
        entries = ((obj or {}).get("status") or {}).get("reported") or ()
        now = {(name, canonical(each["address"]), each["guest"]) for each in entries}
        self.shown = {
            key: self.shown.get(key, _now())
            for key in (*now, *(each for each in self.shown if each[0] != name))
        }

    def _assigned(self, commit: Commit, obj: Json) -> None:
        """An address is never assigned while another guest cluster uses it."""
        slot, owner, before = slot_of(obj), owner_of(obj), commit.before
        if before is not None and owner_of(before) == owner:
            return  # rule "who can take": held or in quarantine, its owner has it, whoever reports it
        if self.named_until.get((owner, slot), -inf) > _now() - MUTE_SECONDS:
            return  # rule "decision": what it has comes first; its reservation was deleted by hand
        for guest in self._others(owner[0]):
            if slot[1] in used_by(guest) and self._is_told(
                OPERATOR.get(), guest.id, slot[1], obj["spec"]["range"]
            ):
                told = self._reading(OPERATOR.get(), guest.id).since.get(slot[1])
                since = "the gate" if told is None else f"{told:.0f}"
                self._say(
                    f"{slot[1]} is held for {owner} while {guest.id} uses it, as {OPERATOR.get()} knows since {since}"
                )

    def _left_quarantine(self, commit: Commit, before: Json) -> None:
        """Quarantine ends after a visit that began after its end.

        What an imported guest cluster had that left Rancher waits for a day, but for its successor, or its own.
        """
        slot, former = slot_of(before), owner_of(before)
        if commit.obj is None and self._was_read_before_its_end(before):
            self._say(f"{slot[1]} leaves the quarantine of {former}, which was not read since its end")
        since = self.left_at.get(former[0])
        if since is None or _now() - since >= LIVES_ON_SECONDS or slot[1] not in self._used_in(former[0]):
            return
        claimed = seconds(before["spec"]["since"]) - self.fleet.now.timestamp() + _now()
        if slot in self.freed_by_hand or claimed > since - 3.0:
            return  # it was claimed when its cluster had left
        if commit.obj is not None:
            owner = owner_of(commit.obj)
            if owner == former or slot[1] in self._used_in(owner[0]):
                return  # it came back under its name, and reports the address
        self._say(
            f"{slot[1]} leaves the quarantine of {former} {_now() - since:.0f} s after its cluster left Rancher"
        )

    def _was_read_before_its_end(self, reservation: Json) -> bool:
        """Return whether who frees an address has no answer of its former guest cluster from after the quarantine."""
        guest_id = owner_of(reservation)[0]
        if all(each.id != guest_id for each in self._others("")):
            return False  # it counts as clean, or waits for its day
        read_at = self._reading(OPERATOR.get(), guest_id).whole_at
        until = datetime.fromisoformat(reservation["spec"]["quarantinedUntil"])
        return read_at is None or read_at < until

    # What guest clusters hold

    def take_guest_commit(self, guest: Guest, commit: Commit) -> None:
        """Have a write to a guest cluster judged, and note what its Services use."""
        if commit.key[0] not in {"configmaps", "services"} or guest.id in self.gone:
            return
        is_ours = guest.is_asked and commit.key[0] == "configmaps" and SENT_AT.get() >= self.restored_at
        since = self.used_since.get(guest.id, {})
        self.used_since[guest.id] = {text: since.get(text, _now()) for text in services_of(guest)}
        self.fleet.carries(guest.id, used_by(guest), by_owner=not is_ours)
        if commit.key[0] == "configmaps" and not guest.is_asked:
            self.by_hand.add(guest.id)

    def note_left(self, guest_id: str, *, lives_on: bool) -> None:
        """Note that a guest cluster leaves Rancher: it counts as clean, at once or after a day."""
        self.gone.add(guest_id)
        if lives_on:
            self.left_at[guest_id] = _now()
        self.fleet.carries(guest_id, set())

    def note_joined(self, guest: Guest, former: str) -> None:
        """Note that a guest cluster comes to Rancher again, with all that it had under its former id."""
        if former in self.by_hand:
            self.by_hand.add(guest.id)
        self.fleet.carries(guest.id, used_by(guest))

    def note_lease(self, commit: Commit) -> None:
        """Note that an operator begins to lead: before that it knows only what is stored."""
        holders = [
            ((each or {}).get("spec") or {}).get("holderIdentity") for each in (commit.before, commit.obj)
        ]
        if holders[0] != holders[1]:
            self.began[OPERATOR.get()] = _now()
            self.handed_over.pop(OPERATOR.get(), None)
            found = _read_handed_over(commit.before)
            if found and found.at > max(
                self.ranges_changed_at - COUNT_SECONDS, self.restored_at, _now() - HANDED_OVER_SECONDS
            ):
                self.handed_over[OPERATOR.get()] = found

    def note_restored(self) -> None:
        """Note that the store is as it was once: what was assigned since, only guest clusters know."""
        self.restored_at = _now()
        # Who leads already saw other connections than the store shows now.
        self.connected_at = {each: _now() for each in self.fleet.guests if self._is_connected(each)}
        before = self.fleet.judge
        judge = Judge(setting=before.setting, by_people=before.by_people, found=before.found)
        for key, obj in sorted(self.fleet.memory.objects.items()):
            judge.take(Change(revision=0, at=0.0, plural=key[0], namespace=key[1], name=key[2], obj=obj))
        for now, then in (
            (judge.had, before.had),
            (judge.once_had, before.once_had),
            (judge.wished, before.wished),
        ):
            for owner, found in then.items():
                now[owner] |= found  # type: ignore[operator] # slots, or addresses
        for owners in judge.named.values():
            owners.update(dict.fromkeys(owners, self.fleet.now.timestamp()))  # other writes are on their way
        self.fleet.judge = judge
        self.shown.clear()
        for key, obj in self.fleet.memory.of_kind(RANGES).items():
            self._note_shown(key[2], obj)
        for guest in self.fleet.guests.values():
            self.fleet.carries(guest.id, used_by(guest))

    # How

    def _others(self, guest_id: str) -> list[Guest]:
        """Return the other guest clusters in Rancher: one that is gone counts as clean.

        Of one that a restored store brings back there is nothing but its objects in Rancher.
        """
        known = {key[2] for key in self.fleet.memory.of_kind(CLUSTERS) if not key[1]}
        return [each for each in self.fleet.guests.values() if each.id in known - {guest_id} - self.gone]

    def _used_in(self, guest_id: str) -> set[str]:
        guest = self.fleet.guests.get(guest_id)
        return used_by(guest) if guest is not None else set()

    def _is_connected(self, guest_id: str) -> bool:
        return _connected(self.fleet.memory.objects.get((CLUSTERS, "", guest_id))) is True

    def _could_serve(self, range_name: str, guest_id: str) -> bool:
        """Return whether a range could serve a guest cluster: its selector fits, or a floating IP there names it."""
        objects = self.fleet.memory.objects
        found = objects.get((RANGES, "", range_name))
        clusters = [
            each
            for each in of_kind(objects, CLUSTERS)
            if (each.get("status") or {}).get("clusterName") == guest_id and each["metadata"].get("namespace")
        ]
        if found is None or not clusters:
            return False
        for each in of_kind(objects, FLOATING_IPS):
            annotation = (each["metadata"].get("annotations") or {}).get(names.ANNOTATION_RANGE)
            named = {annotation, (each.get("status") or {}).get("range")}
            if each["metadata"]["namespace"] == guest_id and range_name in named:
                return True
        wanted = ((found["spec"].get("clusterSelector") or {}).get("matchLabels") or {}).items()
        labels = clusters[0]["metadata"].get("labels") or {}
        return all(labels.get(label) == value for label, value in wanted)

    def _say(self, text: str) -> None:
        self.found.append(f"at {_now():.1f} s, revision {self.fleet.memory.version}: {text}")


def _spec_of(found: Json | None) -> object:
    return found and (found["metadata"]["uid"], found["metadata"].get("annotations"), found["spec"])


def _read_handed_over(lease: Json | None) -> HandedOver | None:
    annotations = ((lease or {}).get("metadata") or {}).get("annotations") or {}
    if names.ANNOTATION_HANDOVER not in annotations:
        return None
    found = json.loads(annotations[names.ANNOTATION_HANDOVER])
    at = (datetime.fromisoformat(found["at"]) - START).total_seconds()
    return HandedOver(at, frozenset(found["waits"]))


def _connected(management: Json | None) -> bool | None:
    conditions = ((management or {}).get("status") or {}).get("conditions") or ()
    return next((each["status"] == "True" for each in conditions if each["type"] == "Connected"), None)


def _now() -> float:
    return asyncio.get_running_loop().time()
