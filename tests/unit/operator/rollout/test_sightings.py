"""What this process saw of guests since a rollout began."""

from typing import Any

from fipop.guest.helm.charts import Role
from fipop.guest.reports import ConfigMapReport, PassReport, ReleaseReport
from fipop.guest.workloads import Readiness
from fipop.operator.rollout.plan import Member
from fipop.operator.rollout.sightings import Sightings

G, TARGET = "c-m-a", "c0ffee"


def release(role: Role, *, ready: bool = True, **fields: Any) -> ReleaseReport:
    fields = {"targets": frozenset({TARGET}), "deployed_revision": 3, **fields}
    readiness = Readiness(ready=ready, message="")
    return ReleaseReport(role=role, name=role.value, namespace="kube-system", readiness=readiness, **fields)


def report(*, reachable: bool = True, restarts: dict[str, int] | None = None, **fields: Any) -> PassReport:
    return PassReport(
        guest_id=G,
        reachable=reachable,
        error=None,
        config_map=ConfigMapReport(),
        releases=tuple(release(role, **fields) for role in Role),
        harvester_parked=None,
        events=(),
        requests=0,
        writes=0,
        retry_after_seconds=None,
        restarts=restarts,
    )


def member(sightings: Sightings) -> Member:
    return sightings.member(G, TARGET, canary=False, joined=False)


def test_a_guest_is_at_a_target_when_both_releases_are_and_its_soak_begins_when_they_are_ready() -> None:
    sightings = Sightings()
    assert not sightings.is_seen(G)
    sightings.note(G, report(ready=False), TARGET, 10.0)
    assert (member(sightings).at_target, member(sightings).ready_since) == (True, None)
    sightings.note(G, report(), TARGET, 20.0)
    sightings.note(G, report(), TARGET, 30.0)
    assert (member(sightings).ready_since, member(sightings).revisions) == (20.0, (3, 3))
    assert sightings.reached(G, TARGET)
    assert not sightings.reached(G, "another")


def test_a_pod_that_restarts_begins_the_soak_anew_and_a_new_pod_does_not() -> None:
    sightings = Sightings()
    sightings.note(G, report(restarts={"a": 1}), TARGET, 10.0)
    sightings.note(G, report(restarts={"a": 1, "b": 5}), TARGET, 20.0)
    assert member(sightings).ready_since == 10.0
    sightings.note(G, report(restarts={"a": 2, "b": 5}), TARGET, 30.0)
    assert member(sightings).ready_since == 30.0


def test_a_guest_that_is_out_of_reach_is_lost_since_then_and_proves_nothing() -> None:
    sightings = Sightings()
    sightings.note(G, report(), TARGET, 10.0)
    sightings.note(G, report(reachable=False), TARGET, 20.0)
    sightings.note_lost(G, 30.0)
    found = member(sightings)
    assert (found.reachable, found.lost_at, found.ready, found.ready_since) == (False, 20.0, False, None)
    sightings.note(G, report(), TARGET, 40.0)
    assert (member(sightings).lost_at, member(sightings).ready_since) == (None, 40.0)


def test_helms_failures_are_counted_since_the_rollout_began() -> None:
    sightings = Sightings()
    sightings.note_helm(G, 5.0)
    sightings.note_helm(G, 9.0)
    sightings.note(G, report(failed_runs=2), TARGET, 10.0)
    assert (member(sightings).helm_began, member(sightings).helm_failures) == (5.0, 4)
    sightings.begin(20.0)
    assert (member(sightings).helm_began, member(sightings).helm_failures) == (None, 0)
    sightings.note(G, report(failed_runs=2), TARGET, 30.0)
    assert member(sightings).helm_failures == 0, "those were counted"


def test_a_guest_that_is_gone_is_forgotten() -> None:
    sightings = Sightings()
    sightings.note(G, report(), TARGET, 10.0)
    sightings.forget(G)
    assert member(sightings) == Member(canary=False, joined=False)
