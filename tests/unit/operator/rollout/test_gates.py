"""What a rollout allows one guest."""

from dataclasses import replace

import pytest

from fipop.guest.helm.charts import ChartIdentity, Role
from fipop.guest.helm.targets import build_target
from fipop.guest.release_gate import Aim, build_aim
from fipop.operator.rollout.gates import GateKeeper
from fipop.operator.rollout.progress import GuestProgress, Phase, RolloutState, Step
from fipop.settings.options import DEFAULTS, Settings, parse_settings
from fipop.settings.values import FailureStrategy, RolloutType

UPDATING = replace(DEFAULTS, kubevip_update=True)
CHARTS = {role: ChartIdentity(name=role.value, version="1.0.0", content="c") for role in Role}


def aim(tag: str) -> Aim:
    settings, _ = parse_settings({"kubevipChartValues": f"image: {{tag: {tag}}}\n"}, UPDATING)
    return build_aim(build_target(settings, CHARTS), UPDATING)


CURRENT, STABLE = aim("v2"), aim("v1")


def keeper(
    phase: Phase | None = Phase.WAVE, *, settings: Settings = UPDATING, stable: Aim | None = STABLE
) -> GateKeeper:
    state = None
    if phase is not None:
        state = RolloutState(
            number=1,
            target=CURRENT.target.name,
            stable=stable.target.name if stable else "",
            phase=phase,
            started_at=0.0,
        )
    return GateKeeper(settings=settings, state=state, current=CURRENT if state else None, stable=stable)


def progress(step: Step) -> GuestProgress:
    return GuestProgress(step=step, since=0.0, revisions=(3, 0), wave=1)


def test_a_guest_whose_turn_has_not_come_stays_at_the_stable_target() -> None:
    gate = keeper().gate(progress=None, at_current=False, seen=True)
    assert gate.aim is STABLE
    assert not gate.update
    assert gate.mend
    assert gate.is_proven
    assert gate.reason == "RolloutPending"


def test_without_a_stable_target_what_runs_is_not_brought_to_one_that_nobody_proved() -> None:
    gate = keeper(stable=None).gate(progress=None, at_current=False, seen=True)
    assert gate.aim is CURRENT, "for those that have nothing yet"
    assert not gate.update
    assert not gate.is_proven


@pytest.mark.parametrize(
    "step", [Step.ADMITTED, Step.UPGRADING, Step.SUCCEEDED, Step.FAILED, Step.PASSED_OVER]
)
def test_a_guest_that_is_admitted_gets_the_current_target(step: Step) -> None:
    gate = keeper().gate(progress=progress(step), at_current=False, seen=True)
    assert (gate.aim, gate.update) == (CURRENT, True)


def test_a_guest_that_has_the_current_target_is_not_taken_back_when_it_is_done() -> None:
    """Guests that succeeded are not written down: their releases tell."""
    gate = keeper().gate(progress=None, at_current=True, seen=True)
    assert gate.aim is CURRENT


def test_what_failed_goes_back_when_the_rollout_stopped_and_not_while_it_is_paused() -> None:
    stopped = keeper(Phase.STOPPED).gate(progress=progress(Step.FAILED), at_current=True, seen=True)
    assert stopped.going_back is not None
    assert stopped.going_back.revisions == {Role.KUBE_VIP: 3, Role.CLOUD_PROVIDER: 0}
    assert stopped.going_back.leaving is CURRENT
    for settings in (
        replace(UPDATING, kubevip_rollout_paused=True),
        replace(UPDATING, kubevip_rollout_failure_strategy=FailureStrategy.STOP),
    ):
        gate = keeper(Phase.STOPPED, settings=settings).gate(
            progress=progress(Step.FAILED), at_current=True, seen=True
        )
        assert (gate.going_back, gate.is_open) == (None, False)


def test_what_went_back_is_told_so() -> None:
    gate = keeper(Phase.STOPPED).gate(progress=progress(Step.ROLLED_BACK), at_current=False, seen=True)
    assert (gate.aim, gate.reason) == (STABLE, "RolledBack")


def test_when_it_is_completed_nothing_that_runs_is_changed_before_this_process_has_seen_it() -> None:
    assert keeper(Phase.COMPLETED).gate(progress=None, at_current=False, seen=True).update
    assert not keeper(Phase.COMPLETED).gate(progress=None, at_current=False, seen=False).update


def test_paused_nobody_begins_and_who_began_goes_on() -> None:
    paused = keeper(settings=replace(UPDATING, kubevip_rollout_paused=True))
    assert not paused.gate(progress=progress(Step.ADMITTED), at_current=False, seen=True).update
    assert paused.gate(progress=progress(Step.UPGRADING), at_current=False, seen=True).update


def test_without_updates_new_guests_get_what_the_options_say_unless_that_is_under_way() -> None:
    off = replace(UPDATING, kubevip_update=False)
    assert keeper(Phase.COMPLETED, settings=off).gate(progress=None, at_current=False, seen=True).aim is None
    unpinned = {"kubevip_chart_version": "", "kubevip_cloud_provider_chart_version": ""}
    asked = replace(CURRENT.settings, kubevip_update=False, **unpinned)
    under_way = keeper(settings=asked).gate(progress=None, at_current=False, seen=True)
    assert (under_way.aim, under_way.update, under_way.mend) == (STABLE, False, False)


def test_with_type_all_there_is_no_gate() -> None:
    every = keeper(settings=replace(UPDATING, kubevip_rollout_type=RolloutType.ALL))
    gate = every.gate(progress=None, at_current=False, seen=True)
    assert (gate.aim, gate.update, gate.mend) == (None, True, True)
