"""Rollouts of overrides: only guest clusters whose own values change are touched, and each changed entry has a canary.

The rules are checked by `rollout_fleet`. A target "A|x1,y2" has an override of kube-vip for label x, and one for y.
"""

from dataclasses import replace

import pytest

from fipop.rollout.plan import Phase
from fipop.settings.values import Amount
from tests.operator.rollout_fleet import POLICY, ModelGuest, World, build_guests

HOUR = 3600.0


def settled(labels: str = "x" * 5 + "y" * 5 + " " * 30, target: str = "A|x1,y1", **policy: object) -> World:
    """Return a fleet that has completed a target; each letter is the label of a guest cluster."""
    guests = build_guests(len(labels))
    for guest, label in zip(guests, labels, strict=True):
        guest.label = label.strip()
    world = World(guests, target=target, policy=replace(POLICY, **policy))  # type: ignore[arg-type]
    world.run_until(Phase.COMPLETED)
    return world


def change(world: World, target: str) -> None:
    world.options = replace(world.options, target=target)


def finish(world: World, phase: Phase) -> None:
    world.run_until(phase)
    world.run(HOUR)
    world.check_end()
    assert world.kept is not None
    assert world.kept.phase is phase


def names(world: World, label: str) -> set[str]:
    return {name for name, each in world.guests.items() if each.label == label}


def test_an_override_that_fits_nobody_touches_nobody() -> None:
    world = settled()
    change(world, "A|x1,y1,z1")
    finish(world, Phase.COMPLETED)
    assert world.got("A|x1,y1,z1") == []


@pytest.mark.parametrize("canaries", [1, 2, 3])
def test_one_of_each_changed_override_is_a_canary(canaries: int) -> None:
    world = settled(canaries=Amount(canaries), max_concurrency=Amount(20))
    change(world, "B|x2,y2")
    world.run(100)
    got = set(world.got("B|x2,y2"))
    assert len(got & names(world, "x")) >= 1
    assert len(got & names(world, "y")) == 1
    assert len(got) <= canaries + 2
    finish(world, Phase.COMPLETED)


@pytest.mark.parametrize("max_failures", [0, 5])
def test_a_bad_override_stops_the_rollout_at_its_canary(max_failures: int) -> None:
    world = settled(max_failures=Amount(max_failures), max_concurrency=Amount(20))
    for guest in world.guests.values():
        guest.bad.add("B+y2")
    change(world, "B|x2,y2")
    finish(world, Phase.STOPPED)
    assert len(set(world.got("B|x2,y2")) & names(world, "y")) == 1
    assert all(each.is_sound(world.now) for each in world.guests.values())


def test_an_override_whose_guest_clusters_are_all_away_holds_nobody_up() -> None:
    world = settled()
    for name in names(world, "y"):
        world.guests[name].is_reachable = False
    change(world, "B|x2,y2")
    finish(world, Phase.COMPLETED)
    assert world.at("B|x2,y2") == set(world.guests) - names(world, "y")


def test_what_is_sick_elsewhere_does_not_stop_the_rollout_of_an_override() -> None:
    world = settled()
    world.guests["d-000"] = ModelGuest(name="d-000", is_sick=True)
    world.run(300)
    assert "d-000" in world.got("A|x1,y1")
    change(world, "A|x2,y1")
    finish(world, Phase.COMPLETED)


def test_an_override_reaches_a_group_in_which_nothing_is_ready() -> None:
    world = settled()
    for name in names(world, "y"):
        world.guests[name].bad.add("A+y1")
    world.run(HOUR)
    change(world, "A|x1,y2")
    finish(world, Phase.COMPLETED)
    assert set(world.got("A|x1,y2")) == names(world, "y")


@pytest.mark.parametrize("is_other_leader", [True, False])
@pytest.mark.parametrize("is_bad", [True, False])
@pytest.mark.parametrize("after", [0.0, 2 * HOUR])
def test_a_label_that_moves_a_guest_cluster_admits_it_alone(
    after: float, *, is_bad: bool, is_other_leader: bool
) -> None:
    world = settled()
    world.run(after)
    if is_bad:
        world.guests["c-020"].bad.add("A+x1")
    world.move("c-020", "x")
    if is_other_leader:
        world.kill_leader()
    began = len(world.helm_runs)
    world.run(HOUR)
    world.check_end()
    assert {run[1] for run in world.helm_runs[began:]} == {"c-020"}
    assert "uninstall" not in {run[2] for run in world.helm_runs[began:]}
    assert world.at("A|x1,y1") == set(world.guests) - ({"c-020"} if is_bad else set())
    assert all(each.is_sound(world.now) and not each.is_new for each in world.guests.values())
    assert world.kept is not None
    assert world.kept.phase is (Phase.STOPPED if is_bad else Phase.COMPLETED)


@pytest.mark.parametrize("target", ["A|x1,y1", "B|x1,y1"])
def test_a_label_that_is_corrected_reaches_a_guest_cluster_in_which_the_wrong_one_is_not_ready(
    target: str,
) -> None:
    """Its first installation had the wrong label, or the wrong label came while a rollout had it under way."""
    world = settled()
    world.guests["d-000"] = ModelGuest(name="d-000", label="x", bad={"A+x1", "B+x1"})
    world.run(HOUR)
    assert not world.guests["d-000"].is_sound(world.now)
    change(world, target)
    world.run(30)
    world.move("d-000", "y")
    finish(world, Phase.COMPLETED)
    assert world.guests["d-000"].is_sound(world.now)
    assert world.at(target) == set(world.guests)


@pytest.mark.parametrize("back_to", ["x", "y"])
def test_a_guest_cluster_that_failed_with_another_label_loses_no_release(back_to: str) -> None:
    """It moves from x to y, where it fails, and back; or it moves to x and back to y, where it fails now."""
    world = settled()
    name = min(names(world, back_to))
    if back_to == "y":
        world.move(name, "x")
        world.run(HOUR)
    world.guests[name].bad.add("A+y1")
    world.move(name, "y")
    world.run_until(Phase.STOPPED)
    world.run(HOUR)
    world.move(name, "x")
    world.kill_leader()
    world.run(HOUR)
    world.check_end()
    assert world.guests[name].is_at("A|x1,y1")
    assert world.guests[name].is_sound(world.now)


def test_labels_that_move_many_move_them_in_turn_and_a_failure_stops_it() -> None:
    world = settled(max_concurrency=Amount(2))
    moved = [f"c-{number:03}" for number in range(20, 30)]
    for name in moved:
        world.move(name, "x")
        world.guests[name].bad.add("A+x1")
    began = len(world.helm_runs)
    world.run(HOUR)
    world.check_end()
    assert world.kept is not None
    assert world.kept.phase is Phase.STOPPED
    assert len({run[1] for run in world.helm_runs[began:]}) == 2


@pytest.mark.parametrize("is_back", [True, False])
@pytest.mark.parametrize("max_failures", [0, 5])
def test_an_override_that_none_has_when_its_rollout_ends_has_its_canary_later(
    max_failures: int, *, is_back: bool
) -> None:
    """A rack comes back that was away, or labels move guest clusters to an entry that fitted nobody."""
    world = settled(max_failures=Amount(max_failures), max_concurrency=Amount(20))
    rack = names(world, "y") if is_back else {f"c-{number:03}" for number in range(20, 30)}
    label = "y" if is_back else "z"
    for guest in world.guests.values():
        guest.bad.add(f"B+{label}2")
        guest.is_reachable = not is_back or guest.name not in rack
    change(world, "B|x2,y2,z2")
    world.run_until(Phase.COMPLETED)
    began = len(world.helm_runs)
    for name in rack:
        world.guests[name].is_reachable = True
        world.move(name, label)
    world.run_until(Phase.STOPPED)
    world.run(HOUR)
    world.check_end()
    assert len({run[1] for run in world.helm_runs[began:]}) == 1


@pytest.mark.parametrize("is_stopped", [True, False])
def test_without_updates_and_after_a_stop_a_moved_guest_cluster_drifts(*, is_stopped: bool) -> None:
    world = settled()
    if is_stopped:
        for guest in world.guests.values():
            guest.bad.add("B")
        change(world, "B|x1,y1")
        finish(world, Phase.STOPPED)
    else:
        world.options = replace(world.options, policy=replace(world.options.policy, updates=False))
    world.move("c-030", "x")
    began = len(world.helm_runs)
    world.run(HOUR)
    assert world.helm_runs[began:] == []
    assert world.leader is not None
    assert world.leader.goal(world.guests["c-030"], world.options, world.now).reason == "Drift"
    if is_stopped:
        assert world.leader.goal(world.guests["c-031"], world.options, world.now).reason == "RolloutPending"


def test_a_new_guest_cluster_gets_the_stable_override_of_its_label_at_once() -> None:
    world = settled()
    change(world, "A|x2,y1")
    world.run(60)
    world.guests["d-000"] = ModelGuest(name="d-000", label="x")
    world.guests["d-001"] = ModelGuest(name="d-001", label="y")
    world.run(60)
    first = {run[1]: run[3] for run in reversed(world.helm_runs) if run[1].startswith("d-")}
    assert first["d-000"] == "A|x1,y1"
    assert world.guests["d-001"].is_at("A|x1,y1")
    finish(world, Phase.COMPLETED)
    assert world.at("A|x2,y1") == set(world.guests)


@pytest.mark.parametrize("after", [20, 130, 400])
def test_the_next_leader_goes_on_with_the_canaries_of_each_override(after: int) -> None:
    world = settled(max_concurrency=Amount(20))
    for guest in world.guests.values():
        guest.bad.add("B+y2")
    change(world, "B|x2,y2")
    world.run(after)
    world.kill_leader()
    finish(world, Phase.STOPPED)
    assert len(set(world.got("B|x2,y2")) & names(world, "y")) == 1
