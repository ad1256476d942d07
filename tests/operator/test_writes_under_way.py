"""A write without an answer is unknown: it is neither relied on nor forgotten, and trouble ends without a trace."""

import pytest

from fipop.interfaces import ApiRequest
from tests.harness.api_in_memory import Commit
from tests.harness.fleet import Fleet, build_fleet
from tests.harness.history import RESERVATIONS

A, B = "c-m-a", "c-m-b"
X, Y = "10.0.0.10", "10.0.0.11"
VERBS = ("create", "patch", "replace", "delete", "get", "list")


async def run_story(fleet: Fleet) -> None:
    """A moves from X to Y and gives Y up, while B waits for what it gets then."""
    fleet.add_range(iprange=f"{X}-{Y}", quarantineSeconds=5)
    fleet.add_guest(A)
    fleet.add_guest(B)
    await fleet.start()
    fleet.ask(A, X)
    await fleet.pass_time(30)
    fleet.ask_for_another(A, Y)
    await fleet.pass_time(30)
    fleet.give_up(A)
    await fleet.settle()
    fleet.ask(B, Y)
    await fleet.pass_time(600)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", ["lost", "failures"])
async def test_answers_that_are_lost_and_failures_change_nothing_in_the_end(kind: str, verb: str) -> None:
    fleet = Fleet()
    trouble = {"lost": 0, "failures": 0}

    def have_trouble(commit: Commit) -> None:
        """Have some after each commit, up to a number."""
        if commit.key[0] in {"floatingips", RESERVATIONS} and trouble[kind] < 6 and fleet.operators:
            trouble[kind] += 1
            getattr(fleet.link, kind)[verb] = 1

    fleet.memory.listeners.append(have_trouble)
    await run_story(fleet)
    assert trouble[kind] == 6
    assert (fleet.held(), fleet.quarantined()) == ({f"default.{Y}": B}, set())
    assert (fleet.guests[A].addresses, fleet.guests[B].addresses) == (set(), {Y})
    assert fleet.problems == []


async def test_an_address_is_not_free_while_a_write_of_it_to_its_guest_cluster_is_under_way() -> None:
    fleet = Fleet()
    fleet.add_range(iprange=f"{X}-{X}", quarantineSeconds=1)
    guest = fleet.add_guest(A)
    await fleet.start()
    freed: list[set[str]] = []

    def note_freed(commit: Commit) -> None:
        if commit.key[0] == RESERVATIONS and commit.obj is None:
            freed.append(guest.addresses)

    fleet.memory.listeners.append(note_freed)
    guest.seconds = 8.0
    fleet.ask(A)
    await fleet.pass_time(12)  # a visit has begun
    fleet.give_up(A)
    await fleet.pass_time(60)
    guest.seconds = 0.0
    await fleet.pass_time(600)
    assert (freed, fleet.quarantined(), guest.addresses) == ([set()], set(), set())
    assert fleet.problems == []


async def test_trouble_of_the_management_cluster_withholds_a_write_and_is_no_failure_of_the_guest_cluster() -> (
    None
):
    fleet = build_fleet(A)
    fleet.ask(A, has=X)
    fleet.reserve(X, A)

    async def refuse_reading(request: ApiRequest) -> None:
        if request.method == "GET" and f"{RESERVATIONS}/" in request.path:
            raise ConnectionError("refused")

    running = fleet.begin()
    running.link.before = refuse_reading
    await fleet.pass_time(20)
    assert fleet.guests[A].addresses == set()
    assert fleet.condition(A, "GuestReachable")[0] != "False"
    running.link.before = None
    await fleet.pass_time(40)
    assert fleet.guests[A].addresses == {X}
