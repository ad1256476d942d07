"""What is worth remembering between the passes over a guest; all of it can be found out again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from fipop.boundary import loop_time
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


@dataclass(slots=True)
class ReleaseMemory:
    """What helm told of one guest's releases, which of its runs failed, and which releases lack objects (`lacking`).

    Times are monotonic seconds.
    """

    monotonic: Callable[[], float] = loop_time
    lacking: set[Role] = field(default_factory=set)
    _inspections: dict[tuple[str, str], Inspection] = field(default_factory=dict)
    _attempts: dict[Role, _Attempt] = field(default_factory=dict)

    def inspection(self, record: ReleaseRecord) -> Inspection | None:
        """Give what helm told of a revision; None where it was not asked, or of another Secret or version."""
        return self._inspections.get((record.uid, record.resource_version))

    def inspect(self, record: ReleaseRecord) -> Inspection:
        """Give the place to note what helm tells of a revision."""
        return self._inspections.setdefault((record.uid, record.resource_version), Inspection())

    def note_silence(self, inspection: Inspection, error: FipopError) -> None:
        """Note that helm cannot tell of a revision; it is asked again after a rest, which grows each time."""
        inspection.failures += 1
        inspection.error = error.with_traceback(None)  # it would keep alive all that the pass had in hand
        inspection.not_before = self.monotonic() + retry_delay_seconds(inspection.failures)

    def is_resting(self, inspection: Inspection) -> bool:
        """Whether helm is not to be asked about this revision yet."""
        return self.monotonic() < inspection.not_before

    def keep_only(self, records: Iterable[ReleaseRecord]) -> None:
        """Drop what helm told of revisions whose Secrets are gone or changed."""
        if self._inspections:
            present = {(record.uid, record.resource_version) for record in records}
            self._inspections = {key: value for key, value in self._inspections.items() if key in present}

    def rest_seconds(self, role: Role, digest: str) -> float:
        """Give how long helm is to rest for this release after failures with the same chart and values."""
        attempt = self._attempts.get(role)
        if attempt is None or attempt.digest != digest:
            return 0.0
        return max(attempt.not_before - self.monotonic(), 0.0)

    def failure(self, role: Role) -> FipopError | None:
        """Give why the last helm run for this release failed; None where it did not, or nothing is to be run."""
        attempt = self._attempts.get(role)
        return attempt.error if attempt is not None else None

    def failed_runs(self, role: Role) -> int:
        """Give how often helm failed for this release in a row, with the same chart and values."""
        attempt = self._attempts.get(role)
        return attempt.failures if attempt is not None and attempt.digest and attempt.error is not None else 0

    def note_failure(
        self, role: Role, digest: str, error: FipopError | None = None, *, least_seconds: float = 0.0
    ) -> float:
        """Count a helm run that failed, or changed nothing; give how long helm rests."""
        before = self._attempts.get(role)
        failures = before.failures + 1 if before is not None and before.digest == digest else 1
        rest = max(retry_delay_seconds(failures), least_seconds)
        if error is not None:
            error.with_traceback(None)  # it would keep alive all that the pass had in hand
        self._attempts[role] = _Attempt(digest, failures, self.monotonic() + rest, error)
        return rest

    def note_success(self, role: Role) -> None:
        """Forget a role's failures."""
        self._attempts.pop(role, None)

    def forget_failures(self) -> None:
        """Let helm try everything again at once."""
        self._attempts.clear()
