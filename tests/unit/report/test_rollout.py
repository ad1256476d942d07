"""How far a rollout is, for people."""

from datetime import UTC, datetime

from fipop.operator.rollout.progress import GuestProgress, Phase, RolloutState, Step
from fipop.report.rollout import report_rollout


def test_guests_are_counted_by_their_step() -> None:
    def at(step: Step) -> GuestProgress:
        return GuestProgress(step=step, since=0.0, revisions=(1, 1), wave=1)

    state = RolloutState(
        number=4,
        target="c0ffee",
        stable="beef",
        phase=Phase.WAVE,
        started_at=60.0,
        guests={"a": at(Step.UPGRADING), "b": at(Step.UPGRADING), "c": at(Step.ADMITTED)},
    )
    found = report_rollout(state)
    assert found is not None
    assert found.guests == {Step.ADMITTED.value: 1, Step.UPGRADING.value: 2}
    assert (found.target, found.stable, found.phase) == ("c0ffee", "beef", "Wave")
    assert found.started == datetime(1970, 1, 1, 0, 1, tzinfo=UTC)


def test_without_one_there_is_nothing_to_tell() -> None:
    assert report_rollout(None) is None
