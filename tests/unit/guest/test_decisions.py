"""What a pass is to do about one release."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.guest.decisions import Action, Decision, decide, retry_delay_seconds, wanted_digest
from fipop.guest.helm.charts import ChartIdentity, Role, digest, with_object_name
from fipop.guest.helm.releases import ReleaseDescription, ReleaseState, Status, build_labels, parse_record
from tests.unit.guest.conftest import CHART, release_secret, wanted_release

WANTED = wanted_release()
AIM = digest(CHART, with_object_name(WANTED.values, "kube-vip"))
GRACE = 150.0


def state(
    status: str = "deployed", *, made: str | None = AIM, revision: int = 3, **changes: Any
) -> ReleaseState:
    labels = {}
    if made is not None:
        labels = build_labels(Role.KUBE_VIP, made, CHART, object_name="kube-vip", revision=revision)
    record = parse_record(release_secret(revision=revision, status=status, labels=labels))
    assert record is not None
    return replace(ReleaseState(latest=record), **changes)


def decision(
    found: ReleaseState | None, *, chart: ChartIdentity | None = CHART, update: bool = False, age: float = 0.0
) -> Decision:
    return decide(found, WANTED, chart=chart, update=update, age_seconds=age, grace_seconds=GRACE)


def test_a_guest_without_a_release_gets_one() -> None:
    assert decision(None) == Decision(action=Action.INSTALL, digest=AIM)


@pytest.mark.parametrize("update", [True, False])
def test_a_release_as_wanted_is_left_alone(update: bool) -> None:
    assert decision(state(), update=update).action is Action.NOTHING


@pytest.mark.parametrize(("update", "action"), [(True, Action.UPGRADE), (False, Action.DRIFT)])
def test_a_release_that_differs_is_upgraded_or_reported(update: bool, action: Action) -> None:
    assert decision(state(made="0" * 32), update=update).action is action
    by_hand = state()
    by_hand = replace(by_hand, latest=replace(by_hand.latest, revision=4))
    assert decision(by_hand, update=update).action is action


def test_without_its_chart_a_deployed_release_is_left_alone() -> None:
    assert decision(state(made="0" * 32), chart=None, update=True) == Decision(action=Action.NOTHING)


@pytest.mark.parametrize(
    "status", [one.value for one in Status if one.value.startswith("pending-") or one is Status.UNINSTALLING]
)
def test_what_is_under_way_is_alive_until_the_grace_has_passed(status: str) -> None:
    early = decision(state(status), update=True, age=GRACE - 10)
    assert (early.action, early.wait_seconds) == (Action.WAIT, 10.0)
    assert decision(state(status), age=GRACE).action is Action.REPAIR


def test_a_failed_release_rests_longer_with_each_failure() -> None:
    assert [retry_delay_seconds(count) for count in (0, 1, 2, 3, 20, 10_000)] == [30, 30, 60, 120, 1800, 1800]
    early = decision(state("failed", failures=2), age=59)
    assert (early.action, early.wait_seconds) == (Action.WAIT, 1.0)
    assert decision(state("failed", failures=2), age=60).action is Action.RETRY


def test_a_release_that_failed_with_other_values_is_tried_at_once() -> None:
    assert decision(state("failed", made="0" * 32, failures=9)).action is Action.RETRY
    assert decision(state("failed", made=None, failures=9)).action is Action.WAIT


def adopted(version: str = "0.11.0", **values: Any) -> ReleaseState:
    description = ReleaseDescription(
        chart_name="kube-vip",
        chart_version=version,
        values={"env": {"vip_interface": "eth0"}, "nameOverride": "vip"} | values,
    )
    return state(made=None, description=description)


@pytest.mark.parametrize(("update", "action"), [(True, Action.UPGRADE), (False, Action.DRIFT)])
def test_a_predecessors_release_is_taken_as_it_is_and_differs_by_the_admins_word_only(
    update: bool, action: Action
) -> None:
    assert decision(adopted(), update=update).action is Action.NOTHING
    assert decision(adopted("v0.11.0"), update=update).action is Action.NOTHING
    assert decision(adopted("0.9.9"), update=update).action is action
    assert decision(adopted(image={"tag": "v1"}), update=update).action is action
    assert decision(state(made=None), update=update).action is action, "nothing is known of it"


def test_the_objects_keep_the_name_that_was_chosen_at_the_first_install() -> None:
    kept = state()
    kept = replace(kept, latest=replace(kept.latest, object_name="kube-vip-fipop"))
    assert wanted_digest(kept, WANTED, CHART) == digest(
        CHART, with_object_name(WANTED.values, "kube-vip-fipop")
    )
    own = wanted_release(object_name="mine")
    assert wanted_digest(kept, own, CHART) == digest(CHART, with_object_name(own.values, "mine"))


@given(
    st.sampled_from([status.value for status in Status]),
    st.sampled_from([AIM, "0" * 32, None]),
    st.booleans(),
    st.floats(min_value=0, max_value=1e6),
    st.integers(min_value=0, max_value=50),
)
def test_without_leave_to_update_a_deployed_release_is_never_touched(
    status: str, made: str | None, update: bool, age: float, failures: int
) -> None:
    found = decision(state(status, made=made, failures=failures), update=update, age=age)
    if status == "deployed" and not update:
        assert found.action in (Action.NOTHING, Action.DRIFT)
    if found.action is Action.WAIT:
        assert found.wait_seconds is not None
        assert found.wait_seconds > 0
    assert found.action is not Action.INSTALL
