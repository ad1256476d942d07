"""What is worth remembering between the passes over a guest; all of it can be found out again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from fipop.errors import FipopError
from fipop.guest.decisions import retry_delay_seconds
from fipop.guest.helm.charts import Role
from fipop.guest.helm.releases import ReleaseDescription, ReleaseRecord
from fipop.kube.resources import Resource

Place: TypeAlias = tuple[Resource, str | None, str]
"""Of an object: its resource, its namespace (None: cluster scoped) and its name."""


@dataclass(slots=True)
class _Attempt:
    digest: str
    failures: int
    not_before: float
    error: FipopError | None


@dataclass(slots=True)
class Inspection:
    """What helm told of one revision of a release; `error` is why it could not, until `not_before`."""

    description: ReleaseDescription | None = None
    objects: tuple[Place, ...] | None = None
    error: FipopError | None = None
    failures: int = 0
    not_before: float = 0.0

    def fail(self, error: FipopError, now: float) -> None:
        """Note a failure: helm rests for this revision, longer each time."""
        self.failures += 1
        self.error = error.with_traceback(None)  # it would keep alive all that the pass had in hand
        self.not_before = now + retry_delay_seconds(self.failures)


@dataclass(slots=True)
class _Notes:
    inspections: dict[tuple[str, str], Inspection] = field(default_factory=dict)
    attempts: dict[Role, _Attempt] = field(default_factory=dict)
    missing: set[Role] = field(default_factory=set)


class GuestMemory:
    """Keeps, by guest, what helm told of releases, which of its runs failed, where objects lack.

    Times are monotonic seconds.
    """

    def __init__(self) -> None:
        self._guests: dict[str, _Notes] = {}

    def forget(self, guest_id: str) -> None:
        """Drop all that is known of a guest."""
        self._guests.pop(guest_id, None)

    def inspection(self, guest_id: str, record: ReleaseRecord) -> Inspection | None:
        """Give what helm told of a revision; None where it was not asked, or of another Secret or version."""
        notes = self._guests.get(guest_id)
        return notes.inspections.get((record.uid, record.resource_version)) if notes is not None else None

    def inspect(self, guest_id: str, record: ReleaseRecord) -> Inspection:
        """Give the place to note what helm tells of a revision."""
        notes = self._guests.setdefault(guest_id, _Notes())
        return notes.inspections.setdefault((record.uid, record.resource_version), Inspection())

    def keep_only(self, guest_id: str, records: Iterable[ReleaseRecord]) -> None:
        """Drop what helm told of revisions whose Secrets are gone or changed."""
        notes = self._guests.get(guest_id)
        if notes is not None and notes.inspections:
            present = {(record.uid, record.resource_version) for record in records}
            notes.inspections = {key: value for key, value in notes.inspections.items() if key in present}

    def rest_seconds(self, guest_id: str, role: Role, digest: str, now: float) -> float:
        """Give how long helm is to rest for this release after failures with the same chart and values."""
        notes = self._guests.get(guest_id)
        attempt = notes.attempts.get(role) if notes is not None else None
        if attempt is None or attempt.digest != digest:
            return 0.0
        return max(attempt.not_before - now, 0.0)

    def failure(self, guest_id: str, role: Role) -> FipopError | None:
        """Give why the last helm run for this release failed; None where it did not, or nothing is to be run."""
        notes = self._guests.get(guest_id)
        attempt = notes.attempts.get(role) if notes is not None else None
        return attempt.error if attempt is not None else None

    def failed_runs(self, guest_id: str, role: Role) -> int:
        """Give how often helm failed for this release in a row, with the same chart and values."""
        notes = self._guests.get(guest_id)
        attempt = notes.attempts.get(role) if notes is not None else None
        return attempt.failures if attempt is not None and attempt.digest and attempt.error is not None else 0

    def forget_failures(self) -> None:
        """Let helm try everywhere again at once: another rollout begins."""
        for notes in self._guests.values():
            notes.attempts.clear()

    def note_failure(
        self,
        guest_id: str,
        role: Role,
        digest: str,
        now: float,
        error: FipopError | None = None,
        *,
        least_seconds: float = 0.0,
    ) -> float:
        """Count a helm run that failed, or changed nothing; give how long helm rests."""
        notes = self._guests.setdefault(guest_id, _Notes())
        before = notes.attempts.get(role)
        failures = before.failures + 1 if before is not None and before.digest == digest else 1
        rest = max(retry_delay_seconds(failures), least_seconds)
        if error is not None:
            error.with_traceback(None)  # it would keep alive all that the pass had in hand
        notes.attempts[role] = _Attempt(digest, failures, now + rest, error)
        return rest

    def lacks_objects(self, guest_id: str, role: Role) -> bool:
        """Whether objects of a release were missing when they were last looked for."""
        notes = self._guests.get(guest_id)
        return notes is not None and role in notes.missing

    def note_objects(self, guest_id: str, role: Role, *, complete: bool) -> None:
        """Keep whether objects of a release are missing: then every pass looks for them, until they are there."""
        notes = self._guests.setdefault(guest_id, _Notes())
        if complete:
            notes.missing.discard(role)
        else:
            notes.missing.add(role)

    def note_success(self, guest_id: str, role: Role) -> None:
        """Forget a role's failures."""
        notes = self._guests.get(guest_id)
        if notes is not None:
            notes.attempts.pop(role, None)
