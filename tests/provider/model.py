"""Every schedule of a small world: does one exist in which two Services have one address that may not share it?

Leaders follow one another. A write is (Service, version, what it writes): an address, or the stamp of a leader. It
lands only on its version, at any time or never, and its answer arrives or not. Only the leader begins writes; those of
former leaders stay under way. Users edit Services: they touch them, choose another pool, and leave their group. The
administrator closes pools. The states are enumerated, breadth first.
"""

import argparse
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple


class Stored(NamedTuple):
    """What the API server has of a Service."""

    version: int = 0
    address: int | None = None
    stamped_by: int = 0
    pool: int = 0
    group: int = 0
    """0: none."""


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
    due: frozenset[tuple[int, int]]
    """The Services that the leader must stamp before it assigns from a pool, with the pool of each."""
    leader: int
    edits_left: int
    closed: frozenset[int] = frozenset()
    """The pools that are closed to all Services."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How large the world is, and which parts of the protocol it has."""

    services: int
    addresses: int
    leaders: int
    edits: int = 0
    pools: tuple[frozenset[int], ...] = ()
    """The addresses of each; empty: one pool has all."""
    groups: tuple[int, ...] = ()
    """That of each Service at first; empty: none has one."""
    closes: bool = False
    """Whether the administrator closes pools."""
    has_stamp: bool = True
    fences_closed: bool = True
    """Whether a Service whose pool is closed is stamped before that pool assigns."""
    most_states: int = 3_000_000
    pool_addresses: tuple[frozenset[int], ...] = field(init=False)

    def __post_init__(self) -> None:
        """Have one pool of all addresses if none is given."""
        pools = self.pools or (frozenset(range(self.addresses)),)
        object.__setattr__(self, "pool_addresses", pools)

    def may_share(self, one: int, other: int) -> bool:
        """Return whether two Services may have one address: their groups were the same at first."""
        return bool(self.groups) and self.groups[one] == self.groups[other] != 0


def explore(setting: Setting) -> tuple[int, list[State]]:
    """Return how many states there are, and the way to the first one with an address that two have."""
    groups = setting.groups or (0,) * setting.services
    free = tuple(Stored(group=each) for each in groups)
    start = State(free, frozenset(), free, frozenset(), frozenset(), 1, setting.edits)
    came_from: dict[State, State | None] = {start: None}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        if _is_wrong(state, setting):
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


def _is_wrong(state: State, setting: Setting) -> bool:
    held = [(number, each.address) for number, each in enumerate(state.world) if each.address is not None]
    return any(
        address == other_address and not setting.may_share(one, other)
        for at, (one, address) in enumerate(held)
        for other, other_address in held[at + 1 :]
    )


def follow(state: State, setting: Setting) -> Iterator[State]:
    """Yield the states that can come next."""
    for service in range(setting.services):
        yield from _begin_write(state, service, setting)
        if state.known[service] != state.world[service]:
            yield _learn(state, service)
        if state.edits_left:
            for edited in _edit(state.world[service], setting):
                world = _put(state.world, service, edited)
                yield state._replace(world=world, edits_left=state.edits_left - 1)
    if setting.closes:
        for pool in {*range(len(setting.pool_addresses))} - state.closed:
            yield state._replace(closed=state.closed | {pool})
    for write in state.under_way:
        stored = state.world[write.service]
        world = state.world
        if stored.version == write.version:
            made = stored._replace(version=stored.version + 1, address=write.address)
            if write.address is None:
                made = stored._replace(version=stored.version + 1, stamped_by=write.leader)
            world = _put(world, write.service, made)
        landed = state._replace(world=world, under_way=state.under_way - {write})
        yield landed
        # Its answer tells what a read would tell: that can come at any time.
        yield _learn(landed, write.service)
    if state.leader < setting.leaders:
        lacking = frozenset(
            (number, each.pool)
            for number, each in enumerate(state.world)
            if each.address is None and (setting.fences_closed or each.pool not in state.closed)
        )
        yield state._replace(
            known=state.world,
            pending=frozenset(),
            due=lacking if setting.has_stamp else frozenset(),
            leader=state.leader + 1,
        )


def _edit(stored: Stored, setting: Setting) -> Iterator[Stored]:
    """Yield what users can make of a Service."""
    edited = stored._replace(version=stored.version + 1)
    yield edited
    for pool in range(len(setting.pool_addresses)):
        if pool != stored.pool:
            yield edited._replace(pool=pool)
    if stored.group:
        yield edited._replace(group=0)


def _begin_write(state: State, service: int, setting: Setting) -> Iterator[State]:
    known = state.known[service]
    if any(number == service for number, _ in state.due):
        write = Write(service, known.version, None, state.leader)
        yield state._replace(under_way=state.under_way | {write})
        return
    addresses = setting.pool_addresses[known.pool]
    is_fenced = any(addresses & setting.pool_addresses[pool] for _, pool in state.due)
    if is_fenced or known.address is not None or known.pool in state.closed:
        return
    mine = (each for each in state.pending if each.service == service and each.version == known.version)
    choice = next((each.address for each in mine if each.address in addresses), None)
    if choice is None:
        choice = _choose(state, service, addresses)
    if choice is not None:
        yield state._replace(
            under_way=state.under_way | {Write(service, known.version, choice, 0)},
            pending=state.pending | {Pending(service, known.version, choice)},
        )


def _choose(state: State, service: int, addresses: frozenset[int]) -> int | None:
    """Return the address of the group, else one that none has."""
    users: dict[int, set[int]] = {}
    for number, each in enumerate(state.known):
        if each.address is not None:
            users.setdefault(each.address, set()).add(number)
    for one in state.pending:
        if state.known[one.service].version == one.version:
            users.setdefault(one.address, set()).add(one.service)
    group = state.known[service].group
    of_group = (
        address
        for address in sorted(addresses & users.keys())
        if group and all(state.known[each].group == group for each in users[address])
    )
    return next(iter([*of_group, *sorted(addresses - users.keys())]), None)


def _learn(state: State, service: int) -> State:
    """Return the state after the leader read a Service."""
    stored = state.world[service]
    is_settled = stored.address is not None or stored.stamped_by == state.leader
    return state._replace(
        known=_put(state.known, service, stored),
        pending=frozenset(
            each for each in state.pending if each.service != service or each.version == stored.version
        ),
        due=frozenset(each for each in state.due if each[0] != service or not is_settled),
    )


def _put(items: tuple[Stored, ...], index: int, value: Stored) -> tuple[Stored, ...]:
    return (*items[:index], value, *items[index + 1 :])


_ALL, _APART = frozenset({0, 1}), (frozenset({0}), frozenset({1}))
_OVERLAPPING = (frozenset({0}), _ALL)
SMALL = (
    Setting(services=2, addresses=1, leaders=3),
    Setting(services=2, addresses=2, leaders=2, edits=1),
    Setting(services=2, addresses=2, leaders=2, edits=1, pools=_OVERLAPPING, closes=True),
    Setting(services=3, addresses=1, leaders=2, groups=(1, 1, 0)),
)
LARGE = (
    Setting(services=2, addresses=2, leaders=3),
    Setting(services=2, addresses=2, leaders=2, edits=2),
    Setting(services=3, addresses=2, leaders=2),
    Setting(services=2, addresses=2, leaders=2, edits=3),
    Setting(services=3, addresses=2, leaders=2, edits=1),
    Setting(services=2, addresses=2, leaders=2, edits=1, pools=_APART, closes=True),
    Setting(services=2, addresses=2, leaders=2, edits=2, pools=_OVERLAPPING, closes=True),
    Setting(services=3, addresses=2, leaders=2, pools=_OVERLAPPING, closes=True, groups=(1, 1, 0)),
    Setting(services=3, addresses=1, leaders=2, edits=1, groups=(1, 1, 0)),
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
