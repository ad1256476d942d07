"""Every schedule of a small world: does one exist in which two Services have one address?

Leaders follow one another. A write is (Service, version, what it writes): an address, or the stamp of a leader. It
lands only on its version, at any time or never, and its answer arrives or not. Only the leader begins writes; those of
former leaders stay under way. Users edit Services. The states are enumerated, breadth first.
"""

import argparse
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Stored(NamedTuple):
    """What the API server has of a Service."""

    version: int = 0
    address: int | None = None
    stamped_by: int = 0


class Write(NamedTuple):
    """A write under way; `address` None: it is the stamp of `leader`."""

    service: int
    version: int
    address: int | None
    leader: int


class Pending(NamedTuple):
    """A choice of the leader whose write has no answer yet."""

    service: int
    version: int
    address: int


class State(NamedTuple):
    """The API server, the writes under way, and what the leader knows."""

    world: tuple[Stored, ...]
    under_way: frozenset[Write]
    known: tuple[Stored, ...]
    pending: frozenset[Pending]
    due: frozenset[int]
    """The Services that the leader must stamp before it assigns."""
    leader: int
    edits_left: int


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How large the world is, and which parts of the protocol it has."""

    services: int
    addresses: int
    leaders: int
    edits: int = 0
    has_stamp: bool = True
    most_states: int = 3_000_000


def explore(setting: Setting) -> tuple[int, list[State]]:
    """Return how many states there are, and the way to the first one with an address that two have."""
    free = tuple(Stored() for _ in range(setting.services))
    start = State(free, frozenset(), free, frozenset(), frozenset(), 1, setting.edits)
    came_from: dict[State, State | None] = {start: None}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        held = [each.address for each in state.world if each.address is not None]
        if len(held) != len(set(held)):
            way = [state]
            while (before := came_from[way[-1]]) is not None:
                way.append(before)
            return len(came_from), way[::-1]
        for each in follow(state, setting):
            if each not in came_from:
                came_from[each] = state
                waiting.append(each)
        assert len(came_from) <= setting.most_states, "the world is too large"
    return len(came_from), []


def follow(state: State, setting: Setting) -> Iterator[State]:
    """Yield the states that can come next."""
    for service in range(setting.services):
        yield from _begin_write(state, service, setting)
        if state.known[service] != state.world[service]:
            yield _learn(state, service)
        if state.edits_left:
            world = _put(state.world, service, _next_version(state.world[service]))
            yield state._replace(world=world, edits_left=state.edits_left - 1)
    for write in state.under_way:
        stored = state.world[write.service]
        world = state.world
        if stored.version == write.version:
            made = Stored(stored.version + 1, write.address, stored.stamped_by)
            if write.address is None:
                made = Stored(stored.version + 1, stored.address, write.leader)
            world = _put(world, write.service, made)
        landed = state._replace(world=world, under_way=state.under_way - {write})
        yield landed
        # Its answer tells what a read would tell: that can come at any time.
        yield _learn(landed, write.service)
    if state.leader < setting.leaders:
        lacking = frozenset(number for number, each in enumerate(state.world) if each.address is None)
        yield state._replace(
            known=state.world,
            pending=frozenset(),
            due=lacking if setting.has_stamp else frozenset(),
            leader=state.leader + 1,
        )


def _begin_write(state: State, service: int, setting: Setting) -> Iterator[State]:
    version, address, _ = state.known[service]
    if service in state.due:
        yield state._replace(under_way=state.under_way | {Write(service, version, None, state.leader)})
        return
    if state.due or address is not None:
        return
    mine = next((each for each in state.pending if each.service == service and each.version == version), None)
    used = {each.address for each in state.known} | {
        each.address for each in state.pending if state.known[each.service].version == each.version
    }
    free = (each for each in range(setting.addresses) if each not in used)
    choice = mine.address if mine is not None else next(free, None)
    if choice is not None:
        yield state._replace(
            under_way=state.under_way | {Write(service, version, choice, 0)},
            pending=state.pending | {Pending(service, version, choice)},
        )


def _learn(state: State, service: int) -> State:
    """Return the state after the leader read a Service."""
    stored = state.world[service]
    is_settled = stored.address is not None or stored.stamped_by == state.leader
    return state._replace(
        known=_put(state.known, service, stored),
        pending=frozenset(
            each for each in state.pending if each.service != service or each.version == stored.version
        ),
        due=state.due - {service} if is_settled else state.due,
    )


def _next_version(stored: Stored) -> Stored:
    return stored._replace(version=stored.version + 1)


def _put(items: tuple[Stored, ...], index: int, value: Stored) -> tuple[Stored, ...]:
    return (*items[:index], value, *items[index + 1 :])


SMALL = (
    Setting(services=2, addresses=1, leaders=3),
    Setting(services=2, addresses=2, leaders=2, edits=1),
)
LARGE = (
    Setting(services=2, addresses=2, leaders=3),
    Setting(services=2, addresses=2, leaders=2, edits=2),
    Setting(services=3, addresses=2, leaders=2),
    Setting(services=2, addresses=2, leaders=2, edits=3),
    Setting(services=3, addresses=2, leaders=2, edits=1),
)


def main() -> int:
    """Explore the small settings, or all; 1 if an address had two holders."""
    parser = argparse.ArgumentParser(prog="python -m tests.provider.model")
    parser.add_argument("--all", action="store_true", help="the large settings, too: some minutes")
    is_wrong = False
    for setting in (*SMALL, *(LARGE if parser.parse_args().all else ())):
        states, way = explore(setting)
        is_wrong |= bool(way)
        sys.stdout.write(f"model of the provider: {setting} states={states} violation={bool(way)}\n")
        sys.stdout.flush()
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
