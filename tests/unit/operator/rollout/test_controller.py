"""One leader's rollouts: what it allows before it knows, what it counts, and what a conflict makes it do."""

from fipop.errors import ApiConflictError
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


async def test_a_leader_whose_write_conflicts_reads_the_state_again() -> None:
    world = World(3)
    await world.run_until("Completed")
    loads = 0
    load = world.store.load

    async def count_load() -> object:
        nonlocal loads
        loads += 1
        if loads == 1:
            raise ApiConflictError(verb="replace", kind="ConfigMap", status=409)
        return await load()

    world.store.load = count_load  # type: ignore[method-assign, assignment]
    leader = world.lead()
    async with running(leader.run()):
        await until(lambda: loads >= 2, "the state to be read again")
    assert leader.state is not None
