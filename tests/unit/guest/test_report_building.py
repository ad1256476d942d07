"""What a pass tells of releases, and when it is to come again for their pods."""

from fipop.guest.errors import HelmError, HelmFailure, ReleaseTakenError
from fipop.guest.helm.charts import Role
from fipop.guest.helm_turn import Outcome
from fipop.guest.report_building import SOONEST_SECONDS, build_events, sum_up_release, waits_for_pods
from fipop.guest.reports import ConfigMapOutcome, ConfigMapReport, ReleaseReport
from tests.unit.guest.conftest import wanted_release
from tests.unit.guest.turns import Turn, state

WANTED = wanted_release()
DENIED = HelmError(action="upgrade", subject="release", failure=HelmFailure.DENIED)
TAKEN = ReleaseTakenError(namespace="kube-system", name="kube-vip", role="kube-vip")


def told(turn: Turn, outcome: Outcome | None = None, failure: Exception | None = None) -> ReleaseReport:
    return sum_up_release(WANTED, turn.turn.observed, outcome, failure)  # type: ignore[arg-type]


def test_a_release_that_is_not_deployed_is_not_ready_whatever_runs() -> None:
    found = told(Turn(state("failed")))
    assert not found.readiness.ready
    assert "failed" in found.readiness.message
    assert (found.release.revision, found.release.status) == (3, "failed")


def test_a_release_that_runs_nothing_is_not_ready() -> None:
    assert not told(Turn(state())).readiness.ready


def test_what_failed_now_is_told_before_what_stands_in_the_way_and_what_failed_before() -> None:
    turn = Turn(state())
    assert told(turn, Outcome(error=DENIED), TAKEN).error is DENIED
    assert told(turn, None, TAKEN).error is TAKEN


def test_of_a_release_that_is_not_there_it_is_told_why() -> None:
    observed = Turn().seeing(unknown={Role.KUBE_VIP: state()}).observed
    reports = (
        told(Turn()),
        told(Turn(), Outcome(awaits_helm=True)),
        told(Turn(), Outcome(error=DENIED)),
        sum_up_release(WANTED, observed, None, None),
    )
    assert not any(each.readiness.ready for each in reports)
    assert len({each.readiness.message for each in reports}) == 4, "each has a sentence of its own"
    assert reports[2].readiness.message == str(DENIED)


def test_pods_are_looked_at_the_rarer_the_older_the_release_is() -> None:
    for age, wait in ((1.0, SOONEST_SECONDS), (60.0, 30.0)):
        turn = Turn(state(), age_seconds=age)
        assert waits_for_pods(turn.turn.observed, [told(turn)]) == [wait]
    assert waits_for_pods(Turn().turn.observed, [told(Turn())]) == []


def test_the_legacy_events_are_what_was_tried() -> None:
    written = ConfigMapReport(outcome=ConfigMapOutcome.WRITTEN)
    found = build_events(written, {Role.KUBE_VIP: Outcome(ran=True, error=DENIED)}, reachable=True)
    assert [(each.event.value, each.success) for each in found] == [
        ("api_connection", True),
        ("configmap_management", True),
        ("kubevip_install", False),
    ]
    unchanged = ConfigMapReport(outcome=ConfigMapOutcome.UNCHANGED)
    quiet = build_events(unchanged, {Role.KUBE_VIP: Outcome()}, reachable=False)
    assert [(each.event.value, each.success) for each in quiet] == [("api_connection", False)]
