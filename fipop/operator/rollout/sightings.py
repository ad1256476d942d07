"""What this process saw of the guests since a rollout began: nothing that others saw counts towards a success."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fipop.guest.helm.charts import Role
from fipop.guest.reports import PassReport, ReleaseReport
from fipop.operator.rollout.plan import Member


@dataclass(slots=True)
class _Sighting:
    """One guest; times are Unix times."""

    seen_since: float
    reachable: bool = False
    lost_at: float | None = None
    turn_since: float | None = None
    ready: bool = False
    targets: frozenset[str] = frozenset()
    ready_since: float | None = None
    restarts: Mapping[str, int] = field(default_factory=dict)
    helm_began: float | None = None
    helm_failures: int = 0
    failed_runs: int = 0
    is_back: bool = False
    revisions: tuple[int, int] = (0, 0)


@dataclass(slots=True)
class Sightings:
    """What passes found, by guest."""

    _seen: dict[str, _Sighting] = field(default_factory=dict)

    def begin(self, now: float) -> None:
        """Forget what was done and seen for the target before: another rollout begins."""
        for one in self._seen.values():
            one.seen_since, one.ready_since, one.helm_began, one.helm_failures = now, None, None, 0
            one.is_back = False

    def note_helm(self, guest_id: str, now: float) -> None:
        """Take in that helm begins to change a release of a guest."""
        sighting = self._seen.setdefault(guest_id, _Sighting(seen_since=now))
        sighting.helm_began = sighting.helm_began or now

    def note_lost(self, guest_id: str, now: float) -> None:
        """Take in that a guest could not be reached."""
        sighting = self._seen.setdefault(guest_id, _Sighting(seen_since=now))
        sighting.reachable, sighting.ready, sighting.ready_since = False, False, None
        sighting.lost_at = sighting.lost_at or now

    def note(self, guest_id: str, report: PassReport, target: str, now: float) -> None:
        """Take in what a pass found; a soak begins anew with each pod that restarted."""
        if not (report.reachable and report.releases):
            return self.note_lost(guest_id, now)  # what runs there was not seen
        sighting = self._seen.setdefault(guest_id, _Sighting(seen_since=now))
        sighting.reachable, sighting.lost_at = True, None
        sighting.turn_since = None if report.awaits_helm else sighting.turn_since or now
        sighting.ready = all(one.readiness.ready for one in report.releases)
        sighting.targets = frozenset.intersection(*(one.targets for one in report.releases))
        sighting.revisions = _revisions(report.releases)
        sighting.is_back = report.is_back
        failed_runs = sum(one.failed_runs for one in report.releases)
        sighting.helm_failures += max(failed_runs - sighting.failed_runs, 0)
        sighting.failed_runs = failed_runs
        restarts = report.restarts or {}
        restarted = any(count > sighting.restarts.get(uid, count) for uid, count in restarts.items())
        sighting.restarts = restarts
        if target not in sighting.targets or not sighting.ready:
            sighting.ready_since = None
        elif restarted or sighting.ready_since is None:
            sighting.ready_since = now
        return None

    def forget(self, guest_id: str) -> None:
        """Forget a guest that is gone."""
        self._seen.pop(guest_id, None)

    def reached(self, guest_id: str, target: str) -> bool:
        """Whether both releases of a guest were seen at a target."""
        sighting = self._seen.get(guest_id)
        return sighting is not None and target in sighting.targets

    def is_seen(self, guest_id: str) -> bool:
        """Whether a pass of our own was made over a guest."""
        return guest_id in self._seen

    def member(self, guest_id: str, target: str, *, canary: bool, joined: bool) -> Member:
        """Give a guest as the plan of a rollout takes it."""
        sighting = self._seen.get(guest_id)
        if sighting is None:
            return Member(canary=canary, joined=joined)
        return Member(
            reachable=sighting.reachable,
            canary=canary,
            joined=joined,
            at_target=target in sighting.targets,
            ready=sighting.ready,
            ready_since=sighting.ready_since,
            helm_began=sighting.helm_began,
            helm_failures=sighting.helm_failures,
            seen_since=sighting.seen_since,
            lost_at=sighting.lost_at,
            turn_since=sighting.turn_since,
            went_back=sighting.is_back,
            revisions=sighting.revisions,
        )


def _revisions(releases: Iterable[ReleaseReport]) -> tuple[int, int]:
    found = {one.role: one.deployed_revision for one in releases}
    return found.get(Role.KUBE_VIP, 0), found.get(Role.CLOUD_PROVIDER, 0)
