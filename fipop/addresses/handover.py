"""What a leader hands over to the next one: a change of leader costs no new reading of the fleet.

1. A leader notes a time T on its Lease. Until T, all that it knew of addresses in use stands in the statuses of ranges:
   a count of the ranges began at T, and after it no status was left unwritten, incomplete or of another generation.
2. Beside T stand a digest of the ranges, and the guest clusters for which new addresses waited at T. With more than
   MAX_WAITS of them, or while the leader itself has not tried each guest cluster once, it notes no T of its own.
3. The next leader takes what is used by hand from these statuses. If T is at most MAX_AGE old and the ranges are the
   same, its gate waits only for those that are named, and for those that could be read only after T.
4. It reads all others at the ordinary pace. Until it has tried each once, it passes the T on that it found: restarts do
   not make old knowledge young. If a range changes meanwhile, it assigns nothing new until then, and removes T.
5. A leader that finds its Lease other than it wrote it removes T and notes none any more: its store may be a restored
   one. So does one that ends for a fault.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from fipop.addresses.gate import Gate
from fipop.addresses.inventory import Inventory
from fipop.api.codec import parse_time
from fipop.api.objects import FloatingIPRange
from fipop.errors import UnavailableError
from fipop.interfaces import loop_time
from fipop.jsons import as_mapping, as_text

MAX_AGE = timedelta(minutes=5)
"""How old T is at most: a Lease that was restored with its store is normally older."""
MAX_WAITS = 16
"""How many guest clusters are named: the Lease stays below 4 KiB, and every replica reads it once a second."""
NOTE_SECONDS = 30.0
"""How long T stays the same."""
CLOCKS = timedelta(seconds=30)
"""How much the clocks of Rancher and of replicas of the API server differ at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What was known at T, and stands in the statuses of ranges."""

    at: datetime
    ranges: str
    """The digest of the ranges at T."""
    waits: frozenset[str]
    """The ids of guest clusters for which new addresses waited."""

    def __str__(self) -> str:
        """Return it as the Lease has it."""
        return json.dumps({"at": self.at.isoformat(), "ranges": self.ranges, "waits": sorted(self.waits)})


def read_note(text: str) -> Note | None:
    """Read a note from a Lease; None if there is none, or it cannot be read."""
    try:
        found = as_mapping(json.loads(text))
    except (ValueError, RecursionError):
        return None
    at, waits = parse_time(found.get("at")), found.get("waits")
    if at is None or not isinstance(waits, list) or not all(isinstance(each, str) for each in waits):
        return None
    return Note(at=at, ranges=as_text(found.get("ranges")), waits=frozenset(waits))


def digest_ranges(ranges: Iterable[FloatingIPRange]) -> str:
    """Return what tells whether a range came, went, or was edited: all of it but its status."""
    found = sorted(
        (
            each.name,
            each.uid,
            each.metadata.generation,
            each.harvester_cluster or "",
            each.harvester_network or "",
            each.is_deleting,
        )
        for each in ranges
    )
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:32]


def tells_all(found: FloatingIPRange) -> bool:
    """Return whether the status of a range names all that guest clusters use by hand in the range as it is now."""
    status = found.status
    is_current = status.observed_generation == found.metadata.generation
    return is_current and len(status.reported) == (status.reported_count or 0)


@dataclass(slots=True, kw_only=True)
class Handover:
    """The note on the Lease of this process: the one that it found, then its own.

    `find_note` returns what the ranges were last counted for, `now` the time of the API server.
    """

    inventory: Inventory
    gate: Gate
    find_note: Callable[[], Note | None]
    now: Callable[[], datetime]
    found: Note | None = None
    """What the last leader knew, and what this one begins with."""
    _text: str = ""
    """What the Lease says."""
    _noted_at: float = -math.inf
    _has_lease: bool = False
    _has_begun: bool = False
    _is_over: bool = False

    def write(self, found: str, *, is_as_written: bool) -> str:
        """Return what the Lease has to say from now on; "" for nothing.

        `found` is what it says, `is_as_written` whether it is as this process last wrote it.
        """
        if not self._has_lease:
            self._text, self._has_lease = found, is_as_written
        elif not is_as_written:
            self.end()
        if self._is_over:
            self._text = ""
        elif self._has_begun:
            self._text = self._describe()
        return self._text

    def begin(self) -> None:
        """Take what the last leader noted, if it still holds, now that all objects are listed."""
        self._has_begun = True
        found = read_note(self._text)
        self.found = found if found is not None and self._is_young(found) and self._holds(found) else None

    def end(self) -> None:
        """Note nothing any more: what this process knows may be wrong."""
        self._is_over = True

    def knows(self, guest_id: str) -> bool:
        """Return whether the last leader knew what a guest cluster uses; one that is new since T uses nothing."""
        if self.found is None or guest_id in self.found.waits:
            return False
        at, clusters = self.found.at, self.inventory.guest_clusters(guest_id)
        if all(each.created > at and not each.is_imported for each in clusters):
            return True
        management = self.inventory.management.get("", guest_id)
        since = management.readable_since if management is not None else None
        return since is not None and since < at - CLOCKS and all(each.created < at for each in clusters)

    def _describe(self) -> str:
        if not self.gate.has_tried_all:
            found = self.found
            return self._text if found is not None and self._is_young(found) and self._holds(found) else ""
        note = self.find_note()
        if note is None or not self._holds(note):
            return ""
        note = Note(at=note.at, ranges=note.ranges, waits=note.waits | self.gate.waiting)
        if len(note.waits) > MAX_WAITS:
            return ""
        before = read_note(self._text)
        is_same = before is not None and (before.ranges, before.waits) == (note.ranges, note.waits)
        if is_same and loop_time() - self._noted_at < NOTE_SECONDS:
            return self._text
        if str(note) != self._text:
            self._noted_at = loop_time()
        return str(note)

    def _is_young(self, note: Note) -> bool:
        try:
            return -CLOCKS <= self.now() - note.at <= MAX_AGE
        except UnavailableError:
            return False

    def _holds(self, note: Note) -> bool:
        """Return whether no range changed since, and the statuses tell all."""
        ranges = self.inventory.ranges.all()
        return note.ranges == digest_ranges(ranges) and all(map(tells_all, ranges))
