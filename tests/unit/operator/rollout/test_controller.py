"""One leader's rollouts: what it allows before it knows, what it counts, and what a conflict makes it do."""

import pytest

from fipop.errors import ApiError, ConflictError, ForbiddenError
from fipop.operator.rollout.progress import RolloutState
from tests.harness.background import running, until
from tests.harness.rollout_world import World


def test_nobody_is_touched_before_the_state_was_read() -> None:
    world = World(3)
    controller = world.lead()
    for guest in world.fleet().values():
        gate = controller.gate(guest)
        assert (gate.is_open, gate.update) == (False, False)


async def test_guests_are_counted_by_how_far_they_are() -> None:
    world = World(12)
    await world.run_until("Completed")
    assert world.leader.count_guests()["done"] == 12
    assert world.lead().count_guests()["done"] == 0, "who has read nothing counts nothing"


async def test_a_state_that_cannot_be_read_is_named_until_it_can() -> None:
    """As after an update of the image without its Role."""
    world = World(1)
    (guest,) = world.fleet().values()
    load = world.store.load

    async def refuse() -> RolloutState | None:
        raise ForbiddenError("get ConfigMap fipop-rollout", status=403)

    world.store.load = refuse  # type: ignore[method-assign]
    async with running(world.leader.run()):
        await until(lambda: "fipop-rollout" in world.leader.gate(guest).unreadable, "the error to be known")
        assert not world.leader.gate(guest).is_open
    world.store.load = load  # type: ignore[method-assign]
    async with running(world.leader.run()):
        await until(lambda: world.leader.gate(guest).is_open, "the state to be read")
    assert world.leader.gate(guest).unreadable == ""


@pytest.mark.parametrize("kind", [ConflictError])
async def test_a_leader_whose_write_conflicts_reads_the_state_again(kind: type[ApiError]) -> None:
    """Another one wrote, or a write of its own was done though its answer was lost."""
    world = World(3)
    loads = 0
    load, save = world.store.load, world.store.save

    async def count_load() -> RolloutState | None:
        nonlocal loads
        loads += 1
        return await load()

    async def save_second(state: RolloutState) -> None:
        if loads == 1:
            raise kind("write ConfigMap", status=409)
        await save(state)

    world.store.load, world.store.save = count_load, save_second  # type: ignore[method-assign]
    async with running(world.leader.run()):
        await until(lambda: bool(world.store.writes), "the state to be written")
    assert loads == 2
