"""Rollouts over a fleet in memory: what must hold whatever guest clusters, leaders and administrators do.

The rules are checked by `rollout_fleet` at each step of helm and at each write. A story adds what only it can say.
"""

import os
import random
from dataclasses import replace

import pytest

from fipop.rollout.plan import Phase
from fipop.settings.values import Amount
from tests.operator.rollout_fleet import (
    POLICY,
    ROLES,
    ModelGuest,
    World,
    build_guests,
    digests_of,
)

SCHEDULES = int(os.environ.get("FIPOP_ROLLOUT_SCHEDULES", "5"))
HOUR = 3600.0


def settled(size: int = 30, **policy: object) -> World:
    """Return a fleet that has completed target A."""
    world = World(build_guests(size), policy=replace(POLICY, **policy))  # type: ignore[arg-type]
    world.run_until(Phase.COMPLETED)
    return world


def change(world: World, target: str, *, bad: bool = False) -> None:
    """Have the options ask for another target, whose pods get ready nowhere if it is bad."""
    world.options = replace(world.options, target=target)
    if bad:
        for guest in world.guests.values():
            guest.bad.add(digests_of(target)[ROLES[0]])


def darken(world: World, target: str, **fields: bool) -> None:
    """Have kube-vips that take no address over with a target, in guest clusters with these fields."""
    for guest in world.guests.values():
        guest.dark.add(digests_of(target)[ROLES[0]])
        for name, value in fields.items():
            setattr(guest, name, value)


def set_policy(world: World, **policy: object) -> None:
    world.options = replace(world.options, policy=replace(world.options.policy, **policy))  # type: ignore[arg-type]


def finish(world: World, phase: Phase) -> None:
    world.run_until(phase)
    world.run(HOUR)
    world.check_end()
    assert world.kept is not None
    assert world.kept.phase is phase


def test_a_good_target_reaches_all_and_as_many_at_a_time_as_have_succeeded() -> None:
    world = settled(40)
    change(world, "B")
    finish(world, Phase.COMPLETED)
    assert world.at("B") == set(world.guests)


@pytest.mark.parametrize("after", [0, 1, 20, 60, 130, 300, 610, 700])
def test_a_bad_target_reaches_the_canaries_alone_whoever_leads(after: int) -> None:
    world = settled()
    change(world, "B", bad=True)
    world.run(after)
    if after:
        world.kill_leader()
    finish(world, Phase.STOPPED)
    assert world.at("A") == set(world.guests)
    assert len(world.got("B")) == 2


@pytest.mark.parametrize("after", [0, 20, 60, 130, 300, 610])
def test_a_target_with_which_kube_vip_takes_nothing_over_stops_at_the_canaries_whoever_leads(
    after: int,
) -> None:
    world = settled()
    darken(world, "B")
    change(world, "B")
    world.run(after)
    if after:
        world.kill_leader()
    finish(world, Phase.STOPPED)
    assert world.at("A") == set(world.guests)
    assert len(world.got("B")) == 2


def test_the_lead_changes_while_helm_is_not_done_and_the_addresses_are_dark_by_then() -> None:
    world = settled()
    darken(world, "B/2")
    for guest in world.guests.values():
        guest.refused = {digests_of("B/2")[ROLES[1]]: "failed"}
    change(world, "B/2")
    world.run(120)
    world.kill_leader()
    for guest in world.guests.values():
        guest.refused = {}
    finish(world, Phase.STOPPED)
    assert world.at("A") == set(world.guests)


def test_a_retry_makes_no_address_announced() -> None:
    world = settled()
    set_policy(world, goes_back=False)
    darken(world, "B")
    change(world, "B")
    finish(world, Phase.STOPPED)
    world.options = replace(world.options, retry="retry/B")
    world.run(60)
    finish(world, Phase.STOPPED)
    assert len(world.got("B")) == 2


@pytest.mark.parametrize("state", [{"announces": False}, {"was_dark": True}])
def test_addresses_that_are_not_used_or_were_dark_before_stop_no_rollout(state: dict[str, bool]) -> None:
    """A Service without endpoints, an interface that no node has, or a kube-vip that was dead before."""
    world = settled()
    darken(world, "B", **state)
    change(world, "B")
    finish(world, Phase.COMPLETED)
    assert world.at("B") == set(world.guests)


def test_most_of_the_fleet_is_out_of_reach_when_the_canaries_have_succeeded() -> None:
    world = settled(6)
    change(world, "B")
    for name in ("c-002", "c-003", "c-004", "c-005"):
        world.guests[name].is_reachable = False
    world.run(HOUR)
    assert world.kept is not None
    assert world.kept.phase is Phase.PROGRESSING
    assert len(world.at("B")) == 2
    for name in ("c-002", "c-003", "c-004", "c-005"):
        world.guests[name].is_reachable = True
        world.guests[name].bad.add("B")
    finish(world, Phase.STOPPED)
    assert len(world.got("B")) == 3


def test_who_comes_back_after_the_end_is_admitted_in_turn_and_goes_back_if_the_target_fails_there() -> None:
    world = settled(20)
    lost = [f"c-{number:03}" for number in range(12, 20)]
    for name in lost:
        world.guests[name].is_reachable = False
        world.guests[name].bad.add("B")
    change(world, "B")
    world.run_until(Phase.COMPLETED)
    world.run(HOUR)
    for name in lost:
        world.guests[name].is_reachable = True
    finish(world, Phase.STOPPED)
    assert len(set(world.got("B")) & set(lost)) == 2
    assert all(each.is_sound(world.now) for each in world.guests.values())


def test_options_that_are_corrected_in_the_middle_downgrade_nobody_who_runs_well() -> None:
    world = settled(40)
    change(world, "B")
    world.run(700)
    assert 4 <= len(world.at("B")) < 40
    change(world, "C")
    finish(world, Phase.COMPLETED)
    assert not [run for run in world.helm_runs if run[3] == "A"]


def test_canaries_of_a_bad_target_get_the_corrected_one() -> None:
    world = settled(40)
    change(world, "B", bad=True)
    world.run(200)
    change(world, "C")
    finish(world, Phase.COMPLETED)
    assert world.at("C") == set(world.guests)


def test_a_corrected_target_reaches_those_that_failed_and_stayed_as_they_were() -> None:
    world = settled(40, goes_back=False)
    change(world, "B", bad=True)
    world.run_until(Phase.STOPPED)
    world.run(HOUR)
    assert len(world.at("B")) == 2
    change(world, "C")
    finish(world, Phase.COMPLETED)
    assert world.at("C") == set(world.guests)


def test_a_target_that_differs_in_the_provider_alone_touches_nobody_twice() -> None:
    world = settled(40)
    change(world, "B")
    world.run(500)
    change(world, "B/2")
    world.run(20)
    world.kill_leader()
    finish(world, Phase.COMPLETED)
    assert world.at("B/2") == set(world.guests)


def test_a_new_leader_finds_a_guest_cluster_with_one_of_two_releases_upgraded() -> None:
    world = settled()
    change(world, "B")
    while not any(each.history[ROLES[0]][-1].digest == "B" for each in world.guests.values()):
        world.tick()
    assert not world.at("B")
    world.kill_leader()
    world.run(120)
    assert len(world.got("B")) == 2
    finish(world, Phase.COMPLETED)


@pytest.mark.parametrize("has_releases", [True, False])
def test_the_first_rollout_is_bad(*, has_releases: bool) -> None:
    world = World(build_guests(30, "" if has_releases else None))
    for guest in world.guests.values():
        guest.bad.add("A")
    finish(world, Phase.STOPPED)
    runs = [verb for _, _, verb, _ in world.helm_runs]
    assert runs.count("rollback") == 4
    for guest in world.guests.values():
        assert guest.is_new != has_releases
        assert not has_releases or guest.is_sound(world.now)


@pytest.mark.parametrize("trouble", ["has_other_kube_vip", "is_locked"])
def test_another_kube_vip_or_a_lock_does_not_stop_the_fleet(trouble: str) -> None:
    world = settled()
    setattr(world.guests["c-000"], trouble, True)
    change(world, "B")
    finish(world, Phase.COMPLETED)
    assert world.at("B") == set(world.guests) - {"c-000"}
    setattr(world.guests["c-000"], trouble, False)
    world.run(HOUR)
    world.check_end()
    assert world.at("B") == set(world.guests)


def test_a_lock_that_comes_after_admission_gives_the_place_up() -> None:
    world = settled(10)
    world.helms = 0
    change(world, "B")
    world.run(120)
    for name in ("c-000", "c-001"):
        world.guests[name].is_locked = True
    world.helms = 4
    finish(world, Phase.COMPLETED)
    assert world.at("B") == set(world.guests) - {"c-000", "c-001"}


def test_a_dead_worker_neither_stops_nor_holds_up_a_rollout() -> None:
    world = settled(40)
    world.guests["c-000"].is_sick = True
    change(world, "B")
    finish(world, Phase.COMPLETED)
    assert world.at("B") == set(world.guests) - {"c-000"}
    change(world, "C")
    finish(world, Phase.COMPLETED)
    assert world.at("C") == set(world.guests) - {"c-000"}


@pytest.mark.parametrize("is_other_leader", [True, False])
def test_who_failed_and_went_back_is_not_admitted_again(*, is_other_leader: bool) -> None:
    world = settled(40, max_failures=Amount(3))
    world.guests["c-010"].bad.add("B")
    change(world, "B")
    while world.kept is None or "c-010" not in world.kept.failed:
        world.tick()
    world.run(300)
    assert "c-010" in world.at("A")
    world.guests["c-010"].bad.clear()
    if is_other_leader:
        world.kill_leader()
    finish(world, Phase.COMPLETED)
    assert world.at("B") == set(world.guests) - {"c-010"}
    world.options = replace(world.options, retry="retry/B")
    world.run(HOUR)
    world.check_end()
    assert world.at("B") == set(world.guests)


def test_a_node_is_replaced_while_the_lead_changes() -> None:
    world = settled(120)
    change(world, "B")
    world.run(700)
    one = next(iter(sorted(world.at("B"))))
    world.run(HOUR / 4)  # past the verdict on this one, and not the end
    assert len(world.at("B")) < len(world.guests)
    world.kill_leader()
    world.guests[one].replace_node(world.now)
    world.guests[one].is_sick = True
    finish(world, Phase.COMPLETED)


def test_the_next_leader_first_sees_canaries_after_their_deadline() -> None:
    world = settled(40)
    change(world, "B")
    while len(world.at("B")) < 2:
        world.tick()
    world.kill_leader(away_seconds=590.0)
    finish(world, Phase.COMPLETED)


def test_guest_clusters_that_wait_are_paused_or_have_no_floating_ip_hold_no_place() -> None:
    world = World(build_guests(10, None))
    world.guests["c-000"].is_ready_in_rancher = False
    world.guests["c-001"].is_paused = True
    world.guests["c-002"].has_floating_ip = False
    finish(world, Phase.COMPLETED)
    # When the target is the stable one, a guest cluster that boots gets it at once.
    assert world.at("A") == set(world.guests) - {"c-001", "c-002"}


@pytest.mark.parametrize(
    "trouble", [{"is_paused": True}, {"has_floating_ip": False}, {"is_ready_in_rancher": False}]
)
def test_who_waits_after_helm_began_holds_no_place_and_is_not_late_afterwards(
    trouble: dict[str, bool],
) -> None:
    world = settled(20)
    change(world, "B")
    while world.guests["c-000"].history[ROLES[0]][-1].digest != "B":
        world.tick()
    for what, value in trouble.items():
        setattr(world.guests["c-000"], what, value)
    finish(world, Phase.COMPLETED)
    for what, value in trouble.items():
        setattr(world.guests["c-000"], what, not value)
    world.run(HOUR)
    world.check_end()
    assert world.at("B") == set(world.guests)


@pytest.mark.parametrize("has_releases", [True, False])
def test_the_archive_of_the_stable_target_is_gone_and_the_target_is_bad(*, has_releases: bool) -> None:
    world = settled(20) if has_releases else World(build_guests(20, ""))
    world.run_until(Phase.COMPLETED)
    change(world, "B", bad=True)
    set_policy(world, has_stable=False)
    finish(world, Phase.STOPPED)
    assert all(each.is_sound(world.now) and not each.is_new for each in world.guests.values())


@pytest.mark.parametrize("updates", [True, False])
def test_many_guest_clusters_opt_in_at_once_and_are_installed_in_turn(*, updates: bool) -> None:
    world = World(build_guests(60, None), policy=replace(POLICY, updates=updates))
    world.run(180)
    assert len(world.got("A")) == 2
    finish(world, Phase.COMPLETED)
    assert world.at("A") == set(world.guests)


def test_a_new_guest_cluster_gets_the_stable_target_at_once_whatever_the_rollout_does() -> None:
    world = settled(20)
    change(world, "B", bad=True)
    world.run(100)
    for name in ("d-000", "d-001"):
        world.guests[name] = ModelGuest(name=name, bad={"B"})
    world.run(60)
    assert {"d-000", "d-001"} <= world.at("A")
    finish(world, Phase.STOPPED)
    world.guests["d-002"] = ModelGuest(name="d-002", is_sick=True)
    world.run(HOUR)
    assert "d-002" in world.at("A")


def test_a_new_guest_cluster_without_workers_does_not_stop_a_completed_rollout() -> None:
    world = settled(20)
    world.guests["d-000"] = ModelGuest(name="d-000", is_sick=True)
    world.run(HOUR)
    world.check_end()
    assert world.kept is not None
    assert world.kept.phase is Phase.COMPLETED


def test_without_updates_nothing_that_is_deployed_changes_and_new_ones_are_installed_in_turn() -> None:
    world = settled(20)
    set_policy(world, updates=False)
    change(world, "B")
    world.run(HOUR)
    assert world.at("A") == set(world.guests)
    for number in range(10):
        name = f"d-{number:03}"
        world.guests[name] = ModelGuest(name=name)
    world.run(90)
    assert len(world.got("B")) == 2
    world.run(HOUR)
    world.check_end()
    assert len(world.at("B")) == 10
    assert world.kept is not None
    assert world.kept.phase is Phase.PROGRESSING, "as long as somebody drifts, nothing is completed"
    set_policy(world, updates=True)
    finish(world, Phase.COMPLETED)


def test_without_updates_and_a_stopped_target_new_ones_get_the_stable_one() -> None:
    world = settled(20)
    set_policy(world, updates=False)
    change(world, "B")
    for number in range(4):
        name = f"d-{number:03}"
        world.guests[name] = ModelGuest(name=name, bad={"B"})
    finish(world, Phase.STOPPED)
    assert len(world.got("B")) == 2
    assert {"d-002", "d-003"} <= world.at("A")


@pytest.mark.parametrize("fate", ["absent", "failed"])
def test_without_updates_and_a_stopped_target_what_is_missing_gets_the_stable_one(fate: str) -> None:
    world = settled(20)
    set_policy(world, updates=False)
    change(world, "A|x1")
    for number in range(4):
        name = f"d-{number:03}"
        world.guests[name] = ModelGuest(name=name, label="x", refused={"A+x1": fate})
    finish(world, Phase.STOPPED)
    assert len(world.got("A|x1")) == 2
    assert world.at("A") == set(world.guests)


@pytest.mark.parametrize("bad", [False, True])
def test_without_updates_what_is_missing_is_judged_beside_what_stays_as_it_is(*, bad: bool) -> None:
    world = World(build_guests(20, None), target="A|x1", policy=replace(POLICY, updates=False))
    for guest in world.guests.values():
        guest.label, guest.refused = "x", {"A+x1": "absent"}
        guest.bad = {"B+x1"} if bad else set()
    world.run_until(Phase.STOPPED)
    halves = {name for name, each in world.guests.items() if len(each.missing) == 1}
    assert len(halves) == 2
    change(world, "B|x1")
    finish(world, Phase.STOPPED if bad else Phase.PROGRESSING)
    if bad:
        assert set(world.got("B|x1")) == halves
    else:
        assert world.at("B|x1") == set(world.guests) - halves
        found = [[each[-1].digest for each in world.guests[name].history.values()] for name in halves]
        assert found == [["B+x1", "A"]] * 2
    set_policy(world, updates=True)
    finish(world, Phase.STOPPED if bad else Phase.COMPLETED)


def test_a_pause_admits_nobody_and_brings_nobody_back() -> None:
    world = settled(50)
    change(world, "B", bad=True)
    world.run(60)
    set_policy(world, is_paused=True)
    world.run(HOUR)
    assert len(world.at("B")) == 2
    set_policy(world, is_paused=False)
    finish(world, Phase.STOPPED)
    assert world.at("A") == set(world.guests)


def test_a_fleet_in_which_nobody_is_ready_can_be_repaired() -> None:
    world = settled(20)
    for guest in world.guests.values():
        guest.bad.add("A")
    world.run(HOUR)
    change(world, "B")
    world.run(200)
    world.kill_leader()
    finish(world, Phase.COMPLETED)
    assert world.at("B") == set(world.guests)


def test_a_retry_acts_once() -> None:
    world = settled()
    change(world, "B", bad=True)
    finish(world, Phase.STOPPED)
    world.options = replace(world.options, retry="retry/B")
    world.run(60)
    assert world.kept is not None
    assert world.kept.phase is Phase.PROGRESSING
    finish(world, Phase.STOPPED)
    for guest in world.guests.values():
        guest.bad.clear()
    world.run(HOUR)
    assert world.kept.phase is Phase.STOPPED
    world.options = replace(world.options, retry="retry/B ")
    world.run(HOUR)
    assert world.kept.phase is Phase.STOPPED


@pytest.mark.parametrize("fate", ["before", "after"])
@pytest.mark.parametrize("bad", [True, False])
@pytest.mark.parametrize("number", [1, 3])
def test_a_leader_that_is_killed_at_a_write_is_followed_by_one_that_ends_it(
    number: int, fate: str, *, bad: bool
) -> None:
    world = settled(30, max_failures=Amount(2))
    world.guests["c-010"].bad.add("B")
    change(world, "B", bad=bad)
    world.kill_at = {world.writes + number: fate}
    finish(world, Phase.STOPPED if bad else Phase.COMPLETED)
    assert len(world.got("B")) <= 2 or not bad


# Schedules


def build_fleet(chance: random.Random) -> list[ModelGuest]:
    size = chance.choice([1, 2, 3, 6, 10, 16, 30])
    start = chance.choice([None, "", "A", "A", "A"])
    guests = build_guests(size, start)
    is_bad = chance.random() < 0.35
    has_labels, is_override_bad = chance.random() < 0.6, chance.random() < 0.3
    for guest in guests:
        guest.is_canary = chance.random() < 0.05
        guest.is_reachable = chance.random() > 0.07
        guest.is_sick = chance.random() < 0.04
        guest.is_ready_in_rancher = chance.random() > 0.03
        guest.is_locked = chance.random() < 0.03
        guest.has_other_kube_vip = chance.random() < 0.03
        guest.lies = chance.choice(["ready", "young"]) if chance.random() < 0.04 else ""
        guest.label = chance.choice(["", "", "x", "x", "y"]) if has_labels else ""
        if is_bad or chance.random() < 0.03:
            guest.bad |= {"B", "B+x1"}
        if is_override_bad and guest.label == "x":
            guest.bad |= {"B+x1", "A+x1"}
        if chance.random() < 0.03:
            guest.silenced_by = "B"
    return guests


def refuse(guests: list[ModelGuest], chance: random.Random) -> None:
    """Have some guest clusters in which helm cannot install a release of some target."""
    if chance.random() < 0.5:
        return
    digest, share = chance.choice(["A", "A+x1", "B", "B+x1", "B/2"]), chance.choice([0.1, 0.5, 1.0])
    for guest in guests:
        if chance.random() < share:
            guest.refused = {digest: chance.choice(["absent", "failed"])}


def have_dark_ones(guests: list[ModelGuest], chance: random.Random) -> None:
    """Have some guest clusters whose addresses are announced no more with some target, are not used, or were dark."""
    if chance.random() < 0.5:
        return
    digest, share = chance.choice(["A", "B", "B", "B+x1"]), chance.choice([0.1, 0.5, 1.0])
    for guest in guests:
        guest.dark |= {digest} if chance.random() < share else set()
        guest.announces, guest.was_dark = chance.random() > 0.2, chance.random() < 0.1


TROUBLES = (
    *("is_reachable", "is_reachable", "is_reachable", "is_paused", "has_floating_ip", "is_sick"),
    *("is_locked", "has_other_kube_vip"),
)
"""Fields of a guest cluster that turn."""
TARGETS = ("A", "B", "C", "B/2", "A|x1", "B|x1", "B|x1,y1", "B|x2,y1", "B/2|x2")
OPTIONS = ("is_paused", "is_blocked", "updates", "goes_back", "is_all", "has_stable")


def disturb_guest(world: World, chance: random.Random) -> None:
    guest = world.guests[chance.choice(sorted(world.guests))]
    what = chance.choice([*TROUBLES, "node", "node", "new", "label"])
    if what == "node":
        guest.replace_node(world.now)
    elif what == "new":
        name = f"d-{len(world.guests):03}"
        world.guests[name] = ModelGuest(name=name, bad=set(guest.bad), label=guest.label)
    elif what == "label":
        world.move(guest.name, chance.choice(["", "x", "y"]))
    else:
        setattr(guest, what, not getattr(guest, what))


def disturb(world: World, chance: random.Random) -> None:
    """Do something that happens to fleets."""
    everyone = world.guests.values()
    match chance.randrange(19):
        case 0:
            world.kill_leader(chance.choice([15.0, 60.0, 700.0]))
        case 1:
            change(world, chance.choice(TARGETS))
        case 2 | 3:
            set_policy(world, **{chance.choice(OPTIONS): chance.random() < 0.5})
        case 4:
            world.options = replace(world.options, retry=f"retry/{world.options.target}")
        case 5:
            world.options = replace(world.options, retry="")
        case 6:
            for each in everyone:
                each.bad.clear()
                each.refused.clear()
        case 7:
            for each in everyone:
                each.is_reachable = each.is_reachable and chance.random() < 0.4
        case 8:
            for each in everyone:
                each.is_reachable = True
        case _:
            disturb_guest(world, chance)


@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_schedules(seed: int) -> None:
    chance = random.Random(seed)
    policy = replace(
        POLICY,
        canaries=chance.choice([Amount(1), Amount(2), Amount(10, is_percent=True)]),
        max_concurrency=chance.choice([Amount(10, is_percent=True), Amount(3), Amount(50, is_percent=True)]),
        max_failures=chance.choice([Amount(0), Amount(0), Amount(1), Amount(20, is_percent=True)]),
    )
    fleet = build_fleet(chance)
    refuse(fleet, random.Random(f"refused {seed}"))
    have_dark_ones(fleet, random.Random(f"dark {seed}"))
    world = World(fleet, policy=policy, helms=chance.choice([1, 2, 4]), seed=seed)
    world.kill_at = {
        number: chance.choice(["before", "after"]) for number in range(1, 60) if chance.random() < 0.2
    }
    calm = chance.choice([0.002, 0.01, 0.03])
    world.run(chance.choice([60.0, 900.0, 2 * HOUR]))
    change(world, chance.choice(["B", "B", "B|x1", "B|x1,y1", "A|x1"]))
    for _ in range(int(2 * HOUR / 5)):
        world.tick()
        if chance.random() < calm:
            disturb(world, chance)
    set_policy(world, is_all=False, is_blocked=False, is_paused=False)
    world.kill_at = {}
    world.run(3 * HOUR)
    world.check_end()
