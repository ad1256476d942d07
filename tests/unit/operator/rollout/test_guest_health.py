"""What this process saw of guests since a rollout began."""

from typing import Any

from fipop.api.objects import ReleaseStatus
from fipop.guest.helm.charts import Role
from fipop.guest.reports import ConfigMapReport, PassReport, ReleaseReport
from fipop.guest.workloads import Readiness
from fipop.operator.rollout.guest_health import begin_rollout, record_helm, record_loss, record_pass

TARGET = "c0ffee"


def release(role: Role, *, ready: bool = True, **fields: Any) -> ReleaseReport:
    fields = {"targets": frozenset({TARGET}), "deployed_revision": 3, **fields}
    readiness = Readiness(ready=ready, message="")
    status = ReleaseStatus(role=role.value, name=role.value, namespace="kube-system")
    return ReleaseReport(release=status, readiness=readiness, **fields)


def report(*, reachable: bool = True, restarts: dict[str, int] | None = None, **fields: Any) -> PassReport:
    return PassReport(
        reachable=reachable,
        error=None,
        config_map=ConfigMapReport(),
        releases=tuple(release(role, **fields) for role in Role),
        events=(),
        retry_after_seconds=None,
        restarts=restarts,
    )


def test_a_guest_is_at_a_target_when_both_releases_are_and_its_soak_begins_when_they_are_ready() -> None:
    health = record_pass(None, report(ready=False), TARGET, 10.0)
    assert (health.targets, health.ready_since) == ({TARGET}, None)
    health = record_pass(health, report(), TARGET, 20.0)
    health = record_pass(health, report(), TARGET, 30.0)
    assert (health.ready_since, health.revisions, health.targets) == (20.0, (3, 3), {TARGET})


def test_a_pod_that_restarts_begins_the_soak_again_and_a_new_pod_does_not() -> None:
    health = record_pass(None, report(restarts={"a": 1}), TARGET, 10.0)
    health = record_pass(health, report(restarts={"a": 1, "b": 5}), TARGET, 20.0)
    assert health.ready_since == 10.0
    health = record_pass(health, report(restarts={"a": 2, "b": 5}), TARGET, 30.0)
    assert health.ready_since == 30.0


def test_a_guest_that_is_out_of_reach_is_lost_since_then_and_proves_nothing() -> None:
    health = record_pass(None, report(), TARGET, 10.0)
    health = record_pass(health, report(reachable=False), TARGET, 20.0)
    health = record_loss(health, 30.0)
    assert (health.reachable, health.lost_at, health.ready, health.ready_since) == (False, 20.0, False, None)
    health = record_pass(health, report(), TARGET, 40.0)
    assert (health.lost_at, health.ready_since) == (None, 40.0)


def test_helms_failures_are_counted_since_the_rollout_began() -> None:
    health = record_helm(record_helm(None, 5.0), 9.0)
    health = record_pass(health, report(failed_runs=2), TARGET, 10.0)
    assert (health.helm_began, health.helm_failures) == (5.0, 4)
    health = begin_rollout(health, 20.0)
    assert (health.helm_began, health.helm_failures) == (None, 0)
    health = record_pass(health, report(failed_runs=2), TARGET, 30.0)
    assert health.helm_failures == 0, "those were counted"
