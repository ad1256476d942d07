"""Two operators: no status names, and no guest cluster is told, an address that another operator released."""

import asyncio

from fipop.interfaces import ApiRequest
from tests.harness.fleet import Fleet, build_fleet
from tests.harness.history import FLOATING_IPS

A, B = "c-m-a", "c-m-b"
X, Y = "10.0.0.10", "10.0.0.12"


async def serve_one() -> Fleet:
    fleet = build_fleet(A)
    await fleet.start()
    fleet.ask(A, X)
    await fleet.settle()
    assert fleet.addresses(A) == [X]
    return fleet


async def test_what_another_operator_reserved_and_no_status_names_is_released() -> None:
    fleet = await serve_one()
    fleet.reserve(Y, A)
    fleet.reserve(X, A, space="lab", range_name="lab")
    await fleet.pass_time(90)
    assert fleet.held() == {f"default.{X}": A}


async def test_what_another_operator_reserved_in_another_range_moves_nobody() -> None:
    fleet = Fleet()
    fleet.add_range("other", "10.0.0.16-10.0.0.18", skipEndIPs=False, clusterSelector={"matchLabels": {}})
    fleet.add_guest(A)
    await fleet.start()
    fleet.ask(A, range_name="")
    await fleet.settle()
    assert fleet.addresses(A) == ["10.0.0.16"]
    fleet.add_range("pool")
    fleet.change_range("other", iprange="10.0.0.17-10.0.0.18")
    fleet.reserve(X, A)
    await fleet.pass_time(90)
    assert fleet.addresses(A) == ["10.0.0.16"]
    assert fleet.held() == {"default.10.0.0.16": A}


async def test_a_status_never_names_a_reservation_that_went_to_another_unseen() -> None:
    fleet = build_fleet(A, B)
    fleet.reserve(X, A)
    running = fleet.begin(resync_seconds=1e6)
    await fleet.settle()
    assert running.watch is not None
    running.watch.is_mute = True
    fleet.reserve(X, B)
    running.watch.is_mute = False
    fleet.ask(A, X)
    await fleet.pass_time(10)
    named = [each for each in fleet.memory.commits if each.key[:2] == (FLOATING_IPS, A) and each.obj]
    assert not any(X in (each.obj.get("status") or {}).get("addresses", ()) for each in named if each.obj)


async def test_a_status_belongs_to_the_spec_that_it_was_decided_on() -> None:
    """An administrator asks for another address while the answer to the operator's write is on its way."""
    fleet = build_fleet(A)
    await fleet.start()

    async def ask_for_another_once(request: ApiRequest) -> None:
        if request.method == "PATCH" and FLOATING_IPS in request.path:
            fleet.link.after = None
            fleet.ask_for_another(A, Y)

    fleet.link.after = ask_for_another_once
    fleet.ask(A)
    await fleet.settle()
    assert (fleet.held(), fleet.addresses(A)) == ({f"default.{Y}": A}, [Y])
    named = {
        tuple((each.obj.get("status") or {}).get("addresses", ()))
        for each in fleet.memory.commits
        if each.key[:2] == (FLOATING_IPS, A) and each.obj is not None
    }
    assert named <= {(), (Y,)}
    assert fleet.problems == []


async def test_a_status_that_arrives_late_is_refused() -> None:
    """Its sender gave up, wrote it again, moved the floating IP, and released what the late one names."""
    fleet = build_fleet(A)
    await fleet.start()

    async def delay_one_status(request: ApiRequest) -> None:
        if request.method == "PATCH" and FLOATING_IPS in request.path and request.path.endswith("/status"):
            fleet.link.before = None
            asyncio.get_running_loop().call_later(8.0, fleet.memory.answer, request)
            raise ConnectionError("late")

    fleet.link.before = delay_one_status
    fleet.ask(A, X)
    await fleet.pass_time(3)
    assert (fleet.link.before, fleet.addresses(A)) == (None, [X])
    fleet.ask_for_another(A, Y)
    await fleet.pass_time(20)
    assert (fleet.held(), fleet.addresses(A)) == ({f"default.{Y}": A}, [Y])
    assert fleet.problems == []


async def test_a_guest_cluster_is_never_told_an_address_that_went_to_another_unseen() -> None:
    fleet = Fleet()
    fleet.add_range()
    guest = fleet.add_guest(A)
    fleet.add_guest(B)
    fleet.ask(A, has=X)
    fleet.reserve(X, A)
    guest.silent = True
    running = await fleet.start(resync_seconds=1e6)
    assert running.watch is not None
    running.watch.is_mute = True
    fleet.reserve(X, B)
    guest.silent = False
    await fleet.pass_time(200)
    assert guest.addresses == set()


async def release_without_an_answer() -> Fleet:
    """Return a fleet in which A has moved from X to Y, and the operator does not know that X was released."""
    fleet = await serve_one()
    watch = fleet.operator.watch
    assert watch is not None
    fleet.ask_for_another(A, Y)
    watch.is_mute = True  # what happened until now is still heard
    fleet.link.lost["replace"] = 1
    await fleet.settle()
    watch.is_mute = False
    assert fleet.quarantined() == {f"default.{X}"}
    return fleet


async def test_a_status_never_names_an_address_whose_release_got_no_answer() -> None:
    fleet = await release_without_an_answer()
    fleet.ask_for_another(A, X)
    await fleet.pass_time(10)
    assert (fleet.held(), fleet.addresses(A)) == ({f"default.{X}": A}, [X])
    assert fleet.problems == []


async def test_a_guest_cluster_is_never_told_an_address_whose_release_got_no_answer() -> None:
    fleet = await release_without_an_answer()
    await fleet.pass_time(60)
    assert fleet.guests[A].addresses == {Y}
