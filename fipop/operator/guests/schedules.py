"""When the next pass over a guest is due."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fipop.guest.reports import PassReport
from fipop.rancher.discovery import retry_delay_seconds

DEEP_CHECK_SECONDS = 3600.0


@dataclass(slots=True)
class PassSchedule:
    """What is remembered of the passes over one guest; `deep_at` in monotonic, `finished_at` in Unix time."""

    deep_at: float
    failures: int = 0
    finished_at: float | None = None

    def note(
        self, report: PassReport, *, deep: bool, now: datetime, monotonic: float, created: datetime
    ) -> float | None:
        """Keep how a pass ended; give in how many seconds the next is due, None: at the interval."""
        if deep and report.releases and report.checked:
            # Also when the pass failed: what fails for good would make every pass a deep one.
            self.deep_at = monotonic
        if report.error is None:
            self.failures = 0
        else:
            self.failures += 1
        if not report.mends_soon:
            self.finished_at = now.timestamp()
            return report.retry_after_seconds
        if report.retry_after_seconds is not None:
            return report.retry_after_seconds
        return retry_delay_seconds((now - created).total_seconds(), self.failures)
