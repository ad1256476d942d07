"""What people do, told once: every plan disturbs one of these stories."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from localfleet.rancher_plan import GuestKind
from tests.faults.lane import HARVESTER, Lane
from tests.faults.plans import Plan
from tests.harness.history import FLOATING_IPS, RANGES, RESERVATIONS, RecordedGuest
from tests.harness.invariants.revisions import let_go_in_use, most_floating_ips, used_in_two
from tests.harness.stored import condition, is_held, is_seen, owner_of, seconds, slot_of

Act = Callable[[Lane], Awaitable[None]]
Look = Callable[[Lane], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """What is done, and when the next chapter may begin."""

    act: Act
    until: Look


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """`before` is there when the operator starts. `unwritten` are guests that are not to be written at the end,
    `admin_freed` the reservations that the story itself deletes. `judge` returns what else was wrong.
    """

    name: str
    before: Act
    chapters: tuple[Chapter, ...]
    unwritten: tuple[str, ...] = ()
    admin_freed: frozenset[str] = field(default_factory=frozenset)
    judge: Callable[[Lane, Plan], list[str]] = lambda _lane, _plan: []


ON_HARVESTER = {"harvesterClusterName": HARVESTER, "harvesterNetworkName": "vlan10"}


def _is(lane: Lane, guest: str, name: str, *addresses: str) -> bool:
    """Whether a floating IP has these addresses (any one, where none is named) and its guest carries them."""
    has = lane.addresses(guest, name)
    return (
        bool(has)
        and (not addresses or set(addresses) == set(has))
        and set(has) <= lane.guests[guest].addresses()
    )


def _refused(lane: Lane, guest: str, name: str, reason: str) -> bool:
    return condition(lane.fip(guest, name), "Allocated") == ("False", reason)


def _in_quarantine(lane: Lane, address: str, guest: str, name: str) -> bool:
    """Whether an address waits after a floating IP, and its guest no longer carries it."""
    found = lane.reservation(address)
    return (
        bool(found)
        and not is_held(found)
        and owner_of(found) == (guest, name)
        and address not in lane.guests[guest].addresses()
    )


def _held_by(lane: Lane, guest: str) -> list[str]:
    """The reservations that are held for a guest."""
    return [
        key[2]
        for key, obj in lane.recorder.now.items()
        if key[0] == RESERVATIONS and is_held(obj) and owner_of(obj)[0] == guest
    ]


async def _nothing(_: Lane) -> None:
    """Let the operator do what is already asked for."""


# New guests appear, and one leaves


async def _appear_before(lane: Lane) -> None:
    await lane.create_range("r1", "10.1.0.10-10.1.0.30", annotations=ON_HARVESTER)
    await lane.new_guest("early")


async def _two_appear(lane: Lane) -> None:
    for name in ("apple", "berry"):
        await lane.new_guest(name)


async def _one_leaves(lane: Lane) -> None:
    await lane.remove_guest("c-m-berryxxx")


APPEAR = Scenario(
    name="appear",
    before=_appear_before,
    chapters=(
        Chapter(
            act=_two_appear,
            until=lambda lane: all(
                _is(lane, f"c-m-{name:x<8}", f"{name}-kubevip") for name in ("early", "apple", "berry")
            ),
        ),
        Chapter(
            act=_one_leaves,
            until=lambda lane: not _held_by(lane, "c-m-berryxxx"),
        ),
    ),
)


# Static, dynamic, dual stack, and what cannot be had


async def _claims_before(lane: Lane) -> None:
    guests = [await lane.guest(number) for number in range(4)]
    await lane.create_range("r1", "10.2.0.0/28,fd00:2::/124")
    await lane.create_range("tiny", "10.2.9.1-10.2.9.2")
    await lane.create_fip(guests[0], "static", ipaddress="10.2.0.5")
    await lane.create_fip(guests[1], "dynamic")


async def _claim_more(lane: Lane) -> None:
    guests = [await lane.guest(number) for number in range(4)]
    await lane.create_fip(guests[2], "dual", ipFamilyPolicy="RequireDualStack")
    await lane.create_fip(guests[3], "late", ipaddress="10.2.0.5")
    await lane.create_fip(guests[1], "six", ipaddress="FD00:2:0::7", serviceNamespace="six")
    for number in range(2):
        await lane.create_fip(guests[number], "scarce", range_name="tiny", serviceNamespace="scarce")
    await lane.create_fip(guests[3], "outside", ipaddress="10.9.9.9")


def _claimed(lane: Lane) -> bool:
    return (
        len(lane.addresses("c-m-steady02", "dual")) == 2
        and _is(lane, "c-m-steady02", "dual")
        and _is(lane, "c-m-steady01", "six", "fd00:2::7")
        and _refused(lane, "c-m-steady03", "late", "AddressInUse")
        and _refused(lane, "c-m-steady03", "outside", "AddressOutOfRange")
        and _is(lane, "c-m-steady00", "scarce")
        and _is(lane, "c-m-steady01", "scarce")
    )


async def _holder_goes(lane: Lane) -> None:
    await lane.create_fip("c-m-steady02", "scarce", range_name="tiny", serviceNamespace="scarce")
    await lane.delete_fip("c-m-steady00", "static")


CLAIMS = Scenario(
    name="claims",
    before=_claims_before,
    chapters=(
        Chapter(
            act=_nothing,
            until=lambda lane: (
                _is(lane, "c-m-steady00", "static", "10.2.0.5") and _is(lane, "c-m-steady01", "dynamic")
            ),
        ),
        Chapter(act=_claim_more, until=_claimed),
        Chapter(
            act=_holder_goes,
            until=lambda lane: (
                _in_quarantine(lane, "10.2.0.5", "c-m-steady00", "static")
                and _refused(lane, "c-m-steady03", "late", "AddressQuarantined")
                and _refused(lane, "c-m-steady02", "scarce", "RangeFull")
            ),
        ),
    ),
)


# Moves: to another address, another range, another space


async def _moves_before(lane: Lane) -> None:
    guests = [await lane.guest(number) for number in range(3)]
    await lane.create_range("r1", "10.3.0.10-10.3.0.20")
    await lane.create_range("r2", "10.3.1.10-10.3.1.20")
    await lane.create_range("r3", "10.3.2.10-10.3.2.20")
    await lane.create_range("r4", "10.3.2.10-10.3.2.20", addressSpace="other")
    await lane.create_fip(guests[0], "address")
    await lane.create_fip(guests[0], "back", ipaddress="10.3.0.16", serviceNamespace="b")
    await lane.create_fip(guests[1], "range")
    await lane.create_fip(guests[2], "space", range_name="r3")
    await lane.create_fip(guests[2], "pinned", range_name="r3", ipaddress="10.3.2.15", serviceNamespace="p")


async def _move(lane: Lane) -> None:
    await lane.edit_fip("c-m-steady00", "address", ipaddress="10.3.0.18")
    await lane.edit_fip("c-m-steady00", "back", annotations={"fiprange": "r2"}, ipaddress="10.3.1.16")
    await lane.edit_fip("c-m-steady01", "range", annotations={"fiprange": "r2"}, ipaddress="")
    for name in ("space", "pinned"):
        await lane.edit_fip("c-m-steady02", name, annotations={"fiprange": "r4"})


def _moved(lane: Lane) -> bool:
    spaces = [
        (lane.fip("c-m-steady02", name).get("status") or {}).get("addressSpace")
        for name in ("space", "pinned")
    ]
    moved_range = (lane.fip("c-m-steady01", "range").get("status") or {}).get("range") == "r2"
    return (
        _is(lane, "c-m-steady00", "address", "10.3.0.18")
        and _is(lane, "c-m-steady00", "back", "10.3.1.16")
        and _in_quarantine(lane, "10.3.0.16", "c-m-steady00", "back")
        and moved_range
        and spaces == ["other", "other"]
        and not is_held(lane.reservation("10.3.2.15"))
    )


async def _move_back(lane: Lane) -> None:
    """Back to what is in quarantine after it, and on to another one."""
    await lane.edit_fip("c-m-steady00", "address", ipaddress="10.3.0.14")
    await lane.edit_fip("c-m-steady00", "back", annotations={"fiprange": "r1"}, ipaddress="10.3.0.16")
    await lane.edit_fip("c-m-steady01", "range", annotations={"fiprange": "r1"}, ipaddress="10.3.0.12")


def _moved_back(lane: Lane) -> bool:
    return (
        _is(lane, "c-m-steady00", "address", "10.3.0.14")
        and _is(lane, "c-m-steady00", "back", "10.3.0.16")
        and _is(lane, "c-m-steady01", "range", "10.3.0.12")
        and _in_quarantine(lane, "10.3.0.18", "c-m-steady00", "address")
        and _in_quarantine(lane, "10.3.1.16", "c-m-steady00", "back")
    )


MOVES = Scenario(
    name="moves",
    before=_moves_before,
    chapters=(
        Chapter(
            act=_nothing,
            until=lambda lane: all(
                (
                    _is(lane, "c-m-steady00", "address"),
                    _is(lane, "c-m-steady00", "back", "10.3.0.16"),
                    _is(lane, "c-m-steady01", "range"),
                    _is(lane, "c-m-steady02", "space"),
                    _is(lane, "c-m-steady02", "pinned"),
                )
            ),
        ),
        Chapter(act=_move, until=_moved),
        Chapter(act=_move_back, until=_moved_back),
    ),
)


# Emptied, deleted, created again


async def _returns_before(lane: Lane) -> None:
    guests = [await lane.guest(number) for number in range(3)]
    await lane.create_range("r1", "10.4.0.10-10.4.0.20")
    await lane.create_fip(guests[0], "emptied")
    await lane.create_fip(guests[1], "returns", ipaddress="10.4.0.15")
    await lane.create_fip(guests[2], "vanished", ipaddress="10.4.0.17")


async def _empty_and_delete(lane: Lane) -> None:
    await lane.edit_fip("c-m-steady00", "emptied", ipaddress="")
    await lane.delete_fip("c-m-steady01", "returns")
    await lane.delete_reservation("default.10.4.0.17")


def _waits(lane: Lane) -> bool:
    emptied = lane.fip("c-m-steady00", "emptied")
    return (
        is_seen(emptied)
        and emptied["spec"].get("ipaddress") == ""
        and _is(lane, "c-m-steady00", "emptied", "10.4.0.10")
        and _in_quarantine(lane, "10.4.0.15", "c-m-steady01", "returns")
        and bool(lane.reservation("10.4.0.17"))
    )


async def _come_back(lane: Lane) -> None:
    await lane.create_fip("c-m-steady01", "returns", ipaddress="10.4.0.15")
    await lane.create_fip("c-m-steady02", "wants", ipaddress="10.4.0.15", serviceNamespace="w")


RETURNS = Scenario(
    name="returns",
    before=_returns_before,
    chapters=(
        Chapter(
            act=_nothing,
            until=lambda lane: all(
                (
                    _is(lane, "c-m-steady00", "emptied"),
                    _is(lane, "c-m-steady01", "returns"),
                    _is(lane, "c-m-steady02", "vanished"),
                )
            ),
        ),
        Chapter(act=_empty_and_delete, until=_waits),
        Chapter(
            act=_come_back,
            until=lambda lane: (
                _is(lane, "c-m-steady01", "returns", "10.4.0.15")
                and _refused(lane, "c-m-steady02", "wants", "AddressInUse")
            ),
        ),
    ),
    admin_freed=frozenset({"default.10.4.0.17"}),
)


# Ranges change under what is held


async def _ranges_before(lane: Lane) -> None:
    guests = [await lane.guest(number) for number in range(3)]
    await lane.create_range("r1", "10.5.0.10-10.5.0.20")
    await lane.create_fip(guests[0], "low")
    await lane.create_fip(guests[1], "high", ipaddress="10.5.0.20")


async def _shrink_and_overlap(lane: Lane) -> None:
    await lane.edit_range("r1", iprange="10.5.0.10-10.5.0.15")
    await lane.create_range("younger", "10.5.0.14-10.5.0.17")
    await lane.create_fip("c-m-steady02", "overlapped", range_name="younger")


def _overlapped(lane: Lane) -> bool:
    ranges = {key[2]: obj for key, obj in lane.recorder.now.items() if key[0] == RANGES}
    return (
        _is(lane, "c-m-steady02", "overlapped", "10.5.0.16")
        and (ranges["r1"].get("status") or {}).get("capacity", {}).get("outOfRange") == 1
        and condition(ranges["younger"], "Conflict")[0] == "True"
    )


async def _delete_and_make_again(lane: Lane) -> None:
    await lane.delete_range("r1")
    await lane.create_fip("c-m-steady02", "orphan", ipaddress="10.5.0.12", serviceNamespace="o")


async def _make_again(lane: Lane) -> None:
    # Who is older is told by whole seconds.
    await asyncio.sleep(1.1)
    await lane.create_range("r1", "10.5.0.10-10.5.0.20")
    await lane.edit_range("younger", iprange="224.0.5.0/28")
    await lane.edit_range("younger", iprange="10.5.0.16-10.5.0.25")


def _made_again(lane: Lane) -> bool:
    ranges = {key[2]: obj for key, obj in lane.recorder.now.items() if key[0] == RANGES}
    return (
        _is(lane, "c-m-steady00", "low", "10.5.0.10")
        and _is(lane, "c-m-steady01", "high", "10.5.0.20")
        and _is(lane, "c-m-steady02", "orphan", "10.5.0.12")
        and (ranges["r1"].get("status") or {}).get("capacity", {}).get("outOfRange") == 1
        and condition(ranges["younger"], "Ready")[0] == "True"
    )


RANGES_CHANGE = Scenario(
    name="ranges",
    before=_ranges_before,
    chapters=(
        Chapter(
            act=_nothing,
            until=lambda lane: (
                _is(lane, "c-m-steady00", "low", "10.5.0.10")
                and _is(lane, "c-m-steady01", "high", "10.5.0.20")
            ),
        ),
        Chapter(act=_shrink_and_overlap, until=_overlapped),
        Chapter(
            act=_delete_and_make_again,
            until=lambda lane: _refused(lane, "c-m-steady02", "orphan", "RangeNotFound"),
        ),
        Chapter(act=_make_again, until=_made_again),
    ),
)


# What kube-fip-operator left behind


async def _adopt_before(lane: Lane) -> None:
    # What is older than the kind of our reservations was made for kube-fip-operator.
    await lane.forget_reservation_kind()
    guests = [await lane.guest(number) for number in range(4)]
    await lane.create_range("r1", "10.6.0.10-10.6.0.20")
    for number, address in ((0, "10.6.0.10"), (1, "10.6.0.11"), (2, "10.6.0.11"), (3, "10.6.0.99")):
        name = f"steady-{number}-kubevip"
        guest = lane.guests[guests[number]]
        guest.furnish(**{"cidr-global": f"{address}/32"})
        guest.note(await lane.recorder.revision(), by_admin=True)
        await lane.create_fip(guests[number], name, ipaddress=address)
        if number == 1:
            await asyncio.sleep(1.1)
    await asyncio.sleep(1.1)
    await lane.restore_reservation_kind()
    await lane.create_fip(guests[0], "new", serviceNamespace="n")


def _adopted(lane: Lane) -> bool:
    return (
        _is(lane, "c-m-steady00", "steady-0-kubevip", "10.6.0.10")
        and _is(lane, "c-m-steady00", "new", "10.6.0.12")
        and _is(lane, "c-m-steady01", "steady-1-kubevip", "10.6.0.11")
        and _refused(lane, "c-m-steady02", "steady-2-kubevip", "AddressInUse")
    )


ADOPT = Scenario(
    name="adopt",
    before=_adopt_before,
    chapters=(Chapter(act=_nothing, until=_adopted),),
    unwritten=("c-m-steady02", "c-m-steady03"),
)


# A burst that comes and goes


async def _burst_before(lane: Lane) -> None:
    for number in range(4):
        await lane.guest(number)
    await lane.create_range("r1", "10.7.0.10-10.7.0.21")


async def _burst(lane: Lane) -> None:
    for number in range(4):
        await lane.create_fip(f"c-m-steady0{number}", f"f{number}", serviceNamespace=f"n{number}")


async def _half_goes(lane: Lane) -> None:
    for number in range(0, 4, 2):
        await lane.delete_fip(f"c-m-steady0{number}", f"f{number}")
    for number in range(4, 6):
        await lane.create_fip(f"c-m-steady0{number % 4}", f"f{number}", serviceNamespace=f"n{number}")


def _all_have(lane: Lane, *numbers: int) -> bool:
    return all(_is(lane, f"c-m-steady0{number % 4}", f"f{number}") for number in numbers)


BURST = Scenario(
    name="burst",
    before=_burst_before,
    chapters=(
        Chapter(act=_burst, until=lambda lane: _all_have(lane, 0, 1, 2, 3)),
        Chapter(
            act=_half_goes,
            until=lambda lane: (
                _all_have(lane, 1, 3, 4, 5)
                and len(_held_by(lane, "c-m-steady00")) == 1
                and len(_held_by(lane, "c-m-steady02")) == 0
            ),
        ),
    ),
)

# What only a careful operator gets right


async def _careful_before(lane: Lane) -> None:
    guests = [await lane.guest(number) for number in range(4)]
    await lane.create_range("r1", "10.9.0.10-10.9.0.20,fd00:9::1")
    foreign = lane.guests[guests[3]]
    foreign.furnish(**{"cidr-mine": "10.9.0.10/32"})
    foreign.note(await lane.recorder.revision(), by_admin=True)
    await lane.create_fip(guests[0], "dynamic")
    await lane.create_fip(guests[1], "both", ipFamilyPolicy="RequireDualStack")


async def _ask_too_much(lane: Lane) -> None:
    await lane.create_fip("c-m-steady02", "both", ipFamilyPolicy="RequireDualStack")
    await lane.create_fip("c-m-steady03", "stranger", annotations={"clustername": "steady-0"})


def _withstood(lane: Lane) -> bool:
    stranger = lane.fip("c-m-steady03", "stranger")
    return (
        condition(lane.fip("c-m-steady02", "both"), "Allocated")[0] == "False"
        and condition(stranger, "GuestConfigured") == ("False", "ClusterMismatch")
        and condition(stranger, "Allocated")[0] == "True"
    )


async def _make_it_again(lane: Lane) -> None:
    await lane.delete_fip("c-m-steady00", "dynamic")
    await lane.create_fip("c-m-steady00", "dynamic")
    await lane.renew_secret("c-m-steady01")
    await lane.edit_fip("c-m-steady01", "both", ipaddress="10.9.0.19,fd00:9::1")


CAREFUL = Scenario(
    name="careful",
    before=_careful_before,
    chapters=(
        Chapter(
            act=_nothing,
            until=lambda lane: (
                (
                    _is(lane, "c-m-steady00", "dynamic", "10.9.0.11")
                    or _is(lane, "c-m-steady00", "dynamic", "10.9.0.12")
                )
                and _is(lane, "c-m-steady01", "both")
            ),
        ),
        Chapter(act=_ask_too_much, until=_withstood),
        Chapter(
            act=_make_it_again,
            until=lambda lane: (
                _is(lane, "c-m-steady00", "dynamic")
                and _is(lane, "c-m-steady01", "both", "10.9.0.19", "fd00:9::1")
            ),
        ),
    ),
    unwritten=("c-m-steady03",),
)


# The end of a quarantine: in real time, so this story is the only one that waits for it. An address that a Service in
# the guest does not let go stays, and a floating IP comes back just when its address is let go.


async def _quarantine_before(lane: Lane) -> None:
    guests = [await lane.guest(number) for number in range(3)]
    await lane.create_range("r1", "10.10.0.10-10.10.0.20", quarantineSeconds=1)
    await lane.create_fip(guests[0], "first", ipaddress="10.10.0.15")
    await lane.create_fip(guests[1], "racer")
    await lane.create_fip(guests[1], "leaves", ipaddress="10.10.0.17", serviceNamespace="l")


async def _serve_and_delete(lane: Lane) -> None:
    lane.guests["c-m-steady00"].put(
        "services",
        {
            "metadata": {"namespace": "default", "name": "ingress"},
            "spec": {"type": "LoadBalancer", "loadBalancerIP": "10.10.0.15"},
            "type": "LoadBalancer",
            "status": {"loadBalancer": {"ingress": [{"ip": "10.10.0.15"}]}},
        },
    )
    await lane.delete_fip("c-m-steady00", "first")
    await lane.delete_fip("c-m-steady01", "racer")
    await lane.delete_fip("c-m-steady01", "leaves")
    await lane.create_fip("c-m-steady02", "waits", ipaddress="10.10.0.17", serviceNamespace="w")
    await lane.create_fip("c-m-steady02", "second", ipaddress="10.10.0.15")


def _waiting_in_quarantine(lane: Lane) -> bool:
    return (
        _refused(lane, "c-m-steady02", "second", "AddressQuarantined")
        and _refused(lane, "c-m-steady02", "waits", "AddressQuarantined")
        and not _held_by(lane, "c-m-steady01")
    )


async def _come_again(lane: Lane) -> None:
    """Come back when the quarantine ends. How long it is, its reservation tells: the shortest that there is."""
    ends = [
        seconds(obj["spec"]["quarantinedUntil"])
        for key, obj in lane.recorder.now.items()
        if key[0] == RESERVATIONS and owner_of(obj) == ("c-m-steady01", "racer")
    ]
    await asyncio.sleep(max(0.0, max(ends, default=0.0) + 0.3 - time.time()))
    await lane.create_fip("c-m-steady01", "racer")


def _ended(lane: Lane) -> bool:
    """Whether the quarantine of who let go is over, that of who did not would have been, and goes on."""
    lingering = lane.reservation("10.10.0.15")
    return (
        _is(lane, "c-m-steady01", "racer")
        and _is(lane, "c-m-steady02", "waits", "10.10.0.17")
        and _refused(lane, "c-m-steady02", "second", "AddressQuarantined")
        and bool(lingering)
        and seconds(lingering["spec"]["quarantinedUntil"]) + 5 < time.time()
    )


async def _stop_serving(lane: Lane) -> None:
    lane.guests["c-m-steady00"].objects.pop(("services", "default", "ingress"), None)


QUARANTINE = Scenario(
    name="quarantine",
    before=_quarantine_before,
    chapters=(
        Chapter(
            act=_nothing,
            until=lambda lane: (
                _is(lane, "c-m-steady00", "first", "10.10.0.15")
                and _is(lane, "c-m-steady01", "racer")
                and _is(lane, "c-m-steady01", "leaves", "10.10.0.17")
            ),
        ),
        Chapter(act=_serve_and_delete, until=_waiting_in_quarantine),
        Chapter(act=_come_again, until=_ended),
        Chapter(act=_stop_serving, until=lambda lane: _is(lane, "c-m-steady02", "second", "10.10.0.15")),
    ),
)


# kube-fip-operator still runs


async def _predecessor_before(lane: Lane) -> None:
    guest = await lane.guest(0)
    await lane.create_range("r1", "10.11.0.10-10.11.0.20")
    await lane.set_predecessor(1)
    await lane.create_fip(guest, "early")


async def _wait_a_little(_: Lane) -> None:
    await asyncio.sleep(5)


async def _retire_predecessor(lane: Lane) -> None:
    await lane.set_predecessor(0)


PREDECESSOR = Scenario(
    name="predecessor",
    before=_predecessor_before,
    chapters=(
        Chapter(
            act=_wait_a_little,
            until=lambda lane: (
                not lane.addresses("c-m-steady00", "early") and not lane.reservation("10.11.0.10")
            ),
        ),
        Chapter(act=_retire_predecessor, until=lambda lane: _is(lane, "c-m-steady00", "early")),
    ),
)

# Services need addresses, and let them go. One takes an address just when its floating IP is let go.

BUSY, CALM = "c-m-busyxxxx", "c-m-calmxxxx"
SECOND, THIRD = "-kubevip-2", "-kubevip-3"
MOST = 3
PER_GUEST = {"minAllocate": 1, "preAllocate": 0, "maxAllocate": MOST, "releaseAfterSeconds": 10}
LIST_SECONDS = 5.0
"""Between a list of Services and what follows from it, unless the plan itself delays that."""


async def _demand_before(lane: Lane) -> None:
    await lane.create_range("r1", "10.12.0.10-10.12.0.25", perGuest=PER_GUEST)
    for name in ("busy", "calm"):
        guest = await lane.new_guest(name, kind=GuestKind.OTHER_MACHINES)
        lane.serve(guest)
        await lane.create_fip(guest, "first")


def _add_service(guest: RecordedGuest, name: str, *addresses: str) -> None:
    """Have a Service that waits for an address, or has some."""
    guest.put(
        "services",
        {
            "metadata": {"namespace": "default", "name": name},
            "spec": {"type": "LoadBalancer"},
            "status": {"loadBalancer": {"ingress": [{"ip": each} for each in addresses]}},
        },
    )


def _remove_services(guest: RecordedGuest, *names: str) -> None:
    for name in names:
        if ("services", "default", name) in guest.objects:
            guest.drop(("services", "default", name))


def _are_served(lane: Lane, guest: str, *names: str) -> bool:
    has = {use.service[2] for use in lane.guests[guest].uses if use.until > time.time()}
    return has.issuperset(names)


def _names_in(lane: Lane, guest: str) -> set[str]:
    """The names of a guest's floating IPs."""
    return {key[2] for key in lane.recorder.now if key[:2] == (FLOATING_IPS, guest)}


def _last_of(lane: Lane, guest: str, name: str) -> list[str]:
    """The addresses that a floating IP holds or held."""
    return [
        slot_of(obj)[1]
        for key, obj in lane.recorder.now.items()
        if key[0] == RESERVATIONS and owner_of(obj) == (guest, name)
    ]


async def _need_addresses(lane: Lane) -> None:
    for guest, name in ((BUSY, "web"), (BUSY, "api"), (CALM, "web")):
        _add_service(lane.guests[guest], name)


async def _need_another(lane: Lane) -> None:
    _add_service(lane.guests[BUSY], "shop")


async def _stop_one(lane: Lane) -> None:
    _remove_services(lane.guests[BUSY], "web")  # the last that was served of the first two


async def _take_what_is_let_go(lane: Lane) -> None:
    _add_service(lane.guests[BUSY], "late", *_last_of(lane, BUSY, f"busy{SECOND}"))


async def _stop_all_but_one(lane: Lane) -> None:
    _remove_services(lane.guests[BUSY], "late", "shop")


def _judge_demand(lane: Lane, plan: Plan) -> list[str]:
    """No floating IP is deleted under a Service, no address used in two guests, no guest has more than its share."""
    uses = {guest: lane.guests[guest].uses for guest in lane.passing}
    delays = [rule.seconds or 0.0 for rule in (*plan.rules, *plan.others)]
    found = let_go_in_use(
        lane.recorder.history, uses, decided_ago_seconds=LIST_SECONDS + max(delays, default=0.0)
    )
    shares = {guest: most_floating_ips(lane.recorder.history, guest) for guest in lane.passing}
    found += [f"demand: {guest} has {most} floating IPs" for guest, most in shares.items() if most > MOST]
    return found + used_in_two({guest: each for guest, each in uses.items() if guest != LIAR})


DEMAND = Scenario(
    name="demand",
    before=_demand_before,
    chapters=(
        Chapter(
            act=_need_addresses,
            until=lambda lane: (
                _are_served(lane, BUSY, "web", "api")
                and _are_served(lane, CALM, "web")
                and _is(lane, BUSY, f"busy{SECOND}")
            ),
        ),
        Chapter(
            act=_need_another,
            until=lambda lane: _are_served(lane, BUSY, "shop") and _is(lane, BUSY, f"busy{THIRD}"),
        ),
        Chapter(act=_stop_one, until=lambda lane: _names_in(lane, BUSY) == {"first", f"busy{THIRD}"}),
        Chapter(
            act=_take_what_is_let_go,
            until=lambda lane: _is(lane, BUSY, f"busy{SECOND}", *_last_of(lane, BUSY, f"busy{SECOND}")),
        ),
        Chapter(
            act=_stop_all_but_one,
            until=lambda lane: _names_in(lane, BUSY) == {"first"} and len(_held_by(lane, BUSY)) == 1,
        ),
    ),
    judge=_judge_demand,
)


# A guest has thousands of Services that wait, at last more than are read of one guest, others that come and go, and
# others that say they use what is free.

LIAR = "c-m-liarxxxx"
WAITING, TOO_MANY, FLAPPING = 3_000, 10_000, 50
FLAP_SECONDS = 0.7
LIES = [f"10.13.0.{number}" for number in range(150, 240)]


async def _flood_before(lane: Lane) -> None:
    await lane.create_range("r1", "10.13.0.10-10.13.0.250", perGuest=PER_GUEST, maxPerGuest=MOST)
    for name in ("liar", "calm"):
        await lane.create_fip(await lane.new_guest(name, kind=GuestKind.OTHER_MACHINES), "first")
    lane.serve(CALM)
    liar = lane.guests[LIAR]
    for number in range(WAITING):
        _add_service(liar, f"waits-{number}")
    for number, address in enumerate(LIES):
        _add_service(liar, f"lies-{number}", address)
    lane.live_in(LIAR, _flap(liar))
    await asyncio.sleep(LIST_SECONDS)  # what waited for so long is a demand at once


async def _flap(guest: RecordedGuest) -> None:
    """Have Services with and without addresses come and go, as long as others wait."""
    for turn in itertools.count():
        await asyncio.sleep(FLAP_SECONDS)
        if guest.get("services", "default", "waits-0") is None:
            return
        for number in range(FLAPPING):
            if turn % 2:
                _remove_services(guest, f"flaps-{number}")
            else:
                _add_service(guest, f"flaps-{number}", *LIES[: number % 2])


def _demand(lane: Lane, guest: str) -> tuple[str, str]:
    return condition(lane.fip(guest, "first"), "DemandMet")


async def _need_some_beside(lane: Lane) -> None:
    for number in range(WAITING, TOO_MANY):
        _add_service(lane.guests[LIAR], f"waits-{number}")
    for name in ("web", "api"):
        _add_service(lane.guests[CALM], name)


async def _stop_lying(lane: Lane) -> None:
    liar = lane.guests[LIAR]
    _remove_services(liar, *[name for plural, _, name in liar.objects if plural == "services"])


FLOOD = Scenario(
    name="flood",
    before=_flood_before,
    chapters=(
        Chapter(
            act=_nothing,
            until=lambda lane: (
                _is(lane, LIAR, f"liar{SECOND}")
                and _is(lane, LIAR, f"liar{THIRD}")
                and _demand(lane, LIAR) == ("False", "LimitReached")
            ),
        ),
        Chapter(act=_need_some_beside, until=lambda lane: _are_served(lane, CALM, "web", "api")),
        Chapter(
            act=_stop_lying,
            until=lambda lane: _names_in(lane, LIAR) == {"first"} and _demand(lane, LIAR)[0] == "True",
        ),
    ),
    judge=_judge_demand,
)

SLOW = {each.name: each for each in (QUARANTINE, PREDECESSOR, FLOOD)}
"""Stories whose end comes late: a few plans do."""
SCENARIOS = {
    each.name: each for each in (APPEAR, CLAIMS, MOVES, RETURNS, RANGES_CHANGE, ADOPT, BURST, CAREFUL, DEMAND)
}
ALL = SCENARIOS | SLOW
