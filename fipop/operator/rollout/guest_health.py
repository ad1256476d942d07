"""The health of guest clusters since a rollout began: what other processes saw counts for nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fipop.guest.helm.charts import Role
from fipop.guest.reports import PassReport, ReleaseReport
from fipop.state.guest_health import GuestHealth


def begin_rollout(before: GuestHealth, now: float) -> GuestHealth:
    """Return the health without what was done and seen for the target before."""
    return replace(
        before, seen_since=now, ready_since=None, helm_began=None, helm_failures=0, went_back=False
    )


def record_helm(before: GuestHealth | None, now: float) -> GuestHealth:
    """Return the health after helm began to change a release."""
    before = before or _first(now)
    return replace(before, helm_began=before.helm_began or now)


def record_loss(before: GuestHealth | None, now: float) -> GuestHealth:
    """Return the health after the guest cluster could not be reached."""
    before = before or _first(now)
    return replace(before, reachable=False, ready=False, ready_since=None, lost_at=before.lost_at or now)


def record_pass(before: GuestHealth | None, report: PassReport, target: str, now: float) -> GuestHealth:
    """Return the health after a pass; a soak begins again with each pod that restarted."""
    if not (report.reachable and report.releases):
        return record_loss(before, now)  # what runs there was not seen
    before = before or _first(now)
    targets = frozenset.intersection(*(one.targets for one in report.releases))
    ready = all(one.readiness.ready for one in report.releases)
    restarts = report.restarts or {}
    restarted = any(count > before.restarts.get(uid, count) for uid, count in restarts.items())
    soaks_since = now if restarted or before.ready_since is None else before.ready_since
    failed_runs = sum(one.failed_runs for one in report.releases)
    return replace(
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


def _first(now: float) -> GuestHealth:
    return GuestHealth(reachable=False, seen_since=now)


def _revisions(releases: Iterable[ReleaseReport]) -> tuple[int, int]:
    found = {one.role: one.deployed_revision for one in releases}
    return found.get(Role.KUBE_VIP, 0), found.get(Role.CLOUD_PROVIDER, 0)
