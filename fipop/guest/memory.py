"""What is worth remembering between the passes over a guest; all of it can be found out again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from fipop.errors import FipopError
from fipop.guest.charts import Role
from fipop.guest.decisions import retry_delay_seconds
from fipop.guest.releases import DecodedRelease, ReleaseRecord


@dataclass(slots=True)
class _Attempt:
    digest: str
    failures: int
    not_before: float
    error: FipopError | None


@dataclass(slots=True)
class _Notes:
    decoded: dict[tuple[str, str], DecodedRelease] = field(default_factory=dict)
    attempts: dict[Role, _Attempt] = field(default_factory=dict)
    missing: set[Role] = field(default_factory=set)


class GuestMemory:
    """Keeps, by guest, what was decoded, which helm runs failed, where objects lack; times are monotonic seconds."""

    def __init__(self) -> None:
        self._guests: dict[str, _Notes] = {}

    def forget(self, guest_id: str) -> None:
        """Drop all that is known of a guest."""
        self._guests.pop(guest_id, None)

    def decoded(self, guest_id: str, record: ReleaseRecord) -> DecodedRelease | None:
        """Give what a release's Secret held when it was decoded; None when that was another Secret or version."""
        notes = self._guests.get(guest_id)
        return notes.decoded.get((record.uid, record.resource_version)) if notes is not None else None

    def remember(self, guest_id: str, record: ReleaseRecord, decoded: DecodedRelease) -> None:
        """Keep what a release's Secret held, but for its manifest, which is large."""
        notes = self._guests.setdefault(guest_id, _Notes())
        notes.decoded[record.uid, record.resource_version] = replace(decoded, manifest="")

    def keep_only(self, guest_id: str, records: Iterable[ReleaseRecord]) -> None:
        """Drop what was decoded of Secrets that are gone or changed."""
        notes = self._guests.get(guest_id)
        if notes is not None and notes.decoded:
            present = {(record.uid, record.resource_version) for record in records}
            notes.decoded = {key: value for key, value in notes.decoded.items() if key in present}

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

    def note_failure(
        self, guest_id: str, role: Role, digest: str, now: float, error: FipopError | None = None
    ) -> float:
        """Count a helm run that failed, or was in vain; give how long helm rests."""
        notes = self._guests.setdefault(guest_id, _Notes())
        before = notes.attempts.get(role)
        failures = before.failures + 1 if before is not None and before.digest == digest else 1
        rest = retry_delay_seconds(failures)
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
