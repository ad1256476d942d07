"""What this process saw of the guests since a rollout began: nothing that others saw counts towards a success."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from fipop.guest.helm.charts import Role
from fipop.guest.reports import PassReport, ReleaseReport
from fipop.operator.rollout.plan import Member


@dataclass(slots=True)
class Sightings:
    """What passes found, by guest."""

    _seen: dict[str, Member] = field(default_factory=dict)

    def begin(self, now: float) -> None:
        """Forget what was done and seen for the target before: another rollout begins."""
        for guest_id, one in self._seen.items():
            self._seen[guest_id] = replace(
                one, seen_since=now, ready_since=None, helm_began=None, helm_failures=0, went_back=False
            )

    def note_helm(self, guest_id: str, now: float) -> None:
        """Take in that helm begins to change a release of a guest."""
        before = self._before(guest_id, now)
        self._seen[guest_id] = replace(before, helm_began=before.helm_began or now)

    def note_lost(self, guest_id: str, now: float) -> None:
        """Take in that a guest could not be reached."""
        before = self._before(guest_id, now)
        self._seen[guest_id] = replace(
            before, reachable=False, ready=False, ready_since=None, lost_at=before.lost_at or now
        )

    def note(self, guest_id: str, report: PassReport, target: str, now: float) -> None:
        """Take in what a pass found; a soak begins anew with each pod that restarted."""
        if not (report.reachable and report.releases):
            return self.note_lost(guest_id, now)  # what runs there was not seen
        before = self._before(guest_id, now)
        targets = frozenset.intersection(*(one.targets for one in report.releases))
        ready = all(one.readiness.ready for one in report.releases)
        restarts = report.restarts or {}
        restarted = any(count > before.restarts.get(uid, count) for uid, count in restarts.items())
        soaks_since = now if restarted or before.ready_since is None else before.ready_since
        failed_runs = sum(one.failed_runs for one in report.releases)
        self._seen[guest_id] = replace(
            before,
            reachable=True,
            lost_at=None,
            turn_since=None if report.awaits_helm else before.turn_since or now,
            targets=targets,
            ready=ready,
            ready_since=soaks_since if ready and target in targets else None,
            restarts=restarts,
            helm_failures=before.helm_failures + max(failed_runs - before.failed_runs, 0),
            failed_runs=failed_runs,
            went_back=report.is_back,
            revisions=_revisions(report.releases),
        )
        return None

    def forget(self, guest_id: str) -> None:
        """Forget a guest that is gone."""
        self._seen.pop(guest_id, None)

    def reached(self, guest_id: str, target: str) -> bool:
        """Return whether both releases of a guest were seen at a target."""
        return guest_id in self._seen and target in self._seen[guest_id].targets

    def is_seen(self, guest_id: str) -> bool:
        """Return whether this process made a pass over a guest."""
        return guest_id in self._seen

    def member(self, guest_id: str, target: str, *, canary: bool, joined: bool) -> Member:
        """Return a guest as the plan of a rollout takes it."""
        seen = self._seen.get(guest_id, Member())
        return replace(seen, canary=canary, joined=joined, at_target=target in seen.targets)

    def _before(self, guest_id: str, now: float) -> Member:
        return self._seen.get(guest_id) or Member(reachable=False, seen_since=now)


def _revisions(releases: Iterable[ReleaseReport]) -> tuple[int, int]:
    found = {one.role: one.deployed_revision for one in releases}
    return found.get(Role.KUBE_VIP, 0), found.get(Role.CLOUD_PROVIDER, 0)
