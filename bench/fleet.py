"""How fast the operator is, in ratios of one run: bursts, new guests, passes, guests that hang, starts, new leaders.

Real: etcd, kube-apiserver, the operator as a process under the chart's access. Fake, since thousands of them do not
fit on one machine: the guests, which answer after 50 ms from memory (localfleet.simulated). What kube-fip-operator did
is played beside it: one guest after the other, four requests each, and 15 s of sleep for each new one.

    python -m bench.fleet [--guests N] [--pace N] [--burst N] [--all-guests N] [--floating-ips N] [--only-leaders]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.costs import processor_seconds, read_costs
from bench.load import (
    UP_TO_LINK,
    count_served,
    hold_addresses,
    in_parallel,
    make_guests,
    note_served,
    time_bare_writes,
)
from bench.results import describe_machine, write_section
from bench.strain import REFRESH_SECONDS, cost_of_refreshes, count_lost_terms, half_speed
from fipop.api import names
from localfleet.arguments import positive
from localfleet.fleet import LocalFleet
from localfleet.installation import NAMESPACE, OperatorProcess
from localfleet.rancher_plan import REAL_ORDER, Credential, Guest
from localfleet.routes import Fault
from localfleet.simulated import SimulatedGuest
from localfleet.stack import RANGES, Stack, build_floating_ip, build_range, floating_ips, open_stack
from localfleet.waiting import eventually

BURST_NAMESPACES = 10
CREDENTIALS = 10
"""Guests share cloud credentials, as those of one team do."""
HANGING_PERCENT = 10
DEADLINE_SECONDS = 300.0
PREDECESSOR_SLEEP_SECONDS = 15.0
FEW_GUESTS = 200
"""Of the restarts with a fleet of usual size."""
IDLE_PROCESSORS = 0.1
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{names.LEASE_NAME}"
CLOCKS = timedelta(seconds=31)
"""What a leader knows counts for guests that were connected so long before."""
PREDECESSOR_SAMPLE = 20
PREDECESSOR_NEW_SAMPLE = 2


@dataclass(slots=True)
class Figures:
    """What the last line says, by name."""

    found: dict[str, float] = field(default_factory=dict)

    def line(self) -> str:
        """Give them in their order."""
        return "fleet: " + " ".join(f"{name}={value:.3g}" for name, value in self.found.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much of everything."""

    guests: int
    pace: int
    burst: int
    all_guests: int
    floating_ips: int
    only_leaders: bool


async def main(sizes: Sizes) -> None:
    """Measure, print, and record."""
    lines = [
        "## Changes of leader" if sizes.only_leaders else "## Fleet",
        "",
        f"Machine: {describe_machine()} at the start.",
        "",
        "etcd, kube-apiserver and the operator's process are real; the guests are simulated, 50 ms a request.",
        "All of it, the making of the guests too, shares the processors.",
        "",
    ]
    print("\n".join(lines), flush=True)
    figures = Figures()
    async with LocalFleet() as fleet:
        settings = {"operateGuestClusterInterval": "3600"}
        async with open_stack(fleet, "bench", settings=settings) as stack:
            await stack.client.create(
                RANGES, build_range("bench", "10.0.0.0/14", harvester="harvester-cluster1")
            )
            await stack.client.create(RANGES, build_range("burst", "10.64.0.0/16"))
            chosen = measure_leaders if sizes.only_leaders else measure
            async for line in chosen(stack, sizes, figures):
                lines.append(f"- {line}")
                print(lines[-1], flush=True)
    lines += ["", f"`{figures.line()}`"]
    print(figures.line(), flush=True)
    write_section("leaders" if sizes.only_leaders else "fleet", lines)


async def measure(stack: Stack, sizes: Sizes, figures: Figures) -> AsyncIterator[str]:
    """Give a line for each result, as soon as it is there."""
    found = figures.found
    bare = await time_bare_writes(stack, sizes.burst)
    yield f"bare writes of a burst of {sizes.burst}, no operator running: {bare:.2f} s"
    operator = await stack.start_operator()
    took = await time_burst(stack, sizes.burst)
    found["burst_ratio"] = took / bare
    yield f"burst of {sizes.burst} floating IPs: {took:.2f} s, {took / bare:.2f} times the bare writes"
    few = min(FEW_GUESTS, sizes.guests - 1)
    await make_guests(stack, few, first=0, credentials=CREDENTIALS)
    await come_to_rest(stack)
    for hangs in (False, True):
        yield (await time_restart(stack, hangs=hangs)).line
    await come_to_rest(stack)
    operator = stack.operators[-1]
    yield await bring_up_guests(stack, operator, range(few, sizes.guests), sizes.pace, found)
    await time_pass(stack, "3599")
    calm = await time_pass(stack, "3600")
    found["quiet_pass_s"] = calm.whole
    yield f"quiet pass over {sizes.guests} guests: {calm.whole:.1f} s, {calm.requests:.2f} requests each"
    with hanging(stack):
        hurt = await time_pass(stack, "3598")
    found["hang_ratio"] = hurt.p99 / calm.p99
    yield (
        f"with {HANGING_PERCENT} % of the guests hanging, p99 of the others: {hurt.p99:.2f} s, "
        f"{hurt.p99 / calm.p99:.2f} times that of the quiet pass ({calm.p99:.2f} s)"
    )
    async for line in play_predecessor(stack, sizes.guests):
        yield line
    await operator.stop()
    await make_guests(stack, sizes.all_guests - sizes.guests, first=sizes.guests, credentials=CREDENTIALS)
    await hold_addresses(stack, sizes.floating_ips - sizes.guests - sizes.burst, range_name="bench")
    await stack.start_operator()
    await come_to_rest(stack)
    whole = await time_pass(stack, "3597")
    yield f"pass over all {len(stack.player.guests)} guests: {whole.whole:.1f} s"
    found["refresh_core"] = await cost_of_refreshes(stack)
    yield (
        f"{len(stack.player.guests)} clusters refreshed every {REFRESH_SECONDS:.0f} s: "
        f"{100 * found['refresh_core']:.0f} % of a core"
    )
    alone = await time_restart(stack, hangs=False)
    found["start_s"] = alone.ready
    found["rss_mib"] = alone.rss_mib
    yield alone.line
    beside_hanging = await time_restart(stack, hangs=True)
    found["restart_s"] = beside_hanging.address - beside_hanging.ready
    yield beside_hanging.line
    async for line in change_leaders(stack, found):
        yield line
    async with half_speed(stack):
        slow = await time_restart(stack, hangs=False)
        found["lost_terms"] = count_lost_terms(stack)
    yield f"{slow.line}; at half the speed, the lead lost {found['lost_terms']:.0f} times"


async def change_leaders(stack: Stack, found: dict[str, float]) -> AsyncIterator[str]:
    """Give a line for each way in which the lead changes."""
    for name, number in (("stop", signal.SIGTERM), ("kill", signal.SIGKILL)):
        for hangs in (False, True):
            await come_to_rest(stack)
            took = await time_handover(stack, number, hangs=hangs)
            found[f"{name}_{'hang_' if hangs else ''}s"] = took
            yield (
                f"change of leader with {len(stack.player.guests) - 1} guests{harm_of(hangs)}: a new guest's address "
                f"{took:.1f} s after {number.name} of the leader"
            )


async def measure_leaders(stack: Stack, sizes: Sizes, figures: Figures) -> AsyncIterator[str]:
    """Give the lines of changes of leader alone."""
    await make_guests(stack, sizes.all_guests, first=0, credentials=CREDENTIALS)
    await hold_addresses(stack, sizes.floating_ips - sizes.all_guests, range_name="bench")
    await stack.start_operator()
    async for line in change_leaders(stack, figures.found):
        yield line


async def time_burst(stack: Stack, count: int) -> float:
    """Create floating IPs at once; the time until the last one has its address."""
    for number in range(BURST_NAMESPACES):
        await stack.plane.create_namespace(f"burst-{number}")

    def one(number: int) -> Callable[[], Awaitable[object]]:
        namespace = f"burst-{number % BURST_NAMESPACES}"
        body = build_floating_ip(namespace, f"burst-{number}", range_name="burst")
        return lambda: stack.client.create(floating_ips(namespace), body)

    began = time.monotonic()
    await in_parallel([one(number) for number in range(count)])

    async def all_held() -> bool:
        return await count_served(stack.client, "burst-") == count

    await eventually(all_held, seconds=DEADLINE_SECONDS, what="all floating IPs of the burst")
    return time.monotonic() - began


async def bring_up_guests(
    stack: Stack, operator: OperatorProcess, numbers: range, per_second: float, found: dict[str, float]
) -> str:
    """Create guests at a fixed pace; the time from each one's last link to its address, and what it costs.

    The next guest does not wait for the ones before: where the operator falls behind, waits grow.
    """
    linked: dict[str, float] = {}
    served: dict[str, float] = {}
    watching = asyncio.create_task(note_served(stack.client, served))
    harvester = stack.player.harvesters[0]
    credentials = [Credential(name=f"cc-{number}", harvester=harvester) for number in range(CREDENTIALS)]

    async def create(number: int) -> None:
        plan = stack.player.plan_guest(f"guest-{number}", credential=credentials[number % CREDENTIALS])
        guest = await stack.player.create_guest(plan, SimulatedGuest(), order=UP_TO_LINK)
        linked[guest.cluster_id] = guest.changed_at
        for step in REAL_ORDER[len(UP_TO_LINK) :]:
            await stack.player.take(guest, step)

    count = len(numbers)
    before = await read_costs(operator)
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for position, number in enumerate(numbers):
            await asyncio.sleep(began + position / per_second - time.monotonic())
            group.create_task(create(number))
    rate = count / (time.monotonic() - began)

    async def all_served() -> bool:
        return linked.keys() <= served.keys()

    await eventually(all_served, seconds=DEADLINE_SECONDS, what="an address for every guest")
    watching.cancel()
    cost = await read_costs(operator) - before
    waits = sorted(max(0.0, served[guest_id] - at) for guest_id, at in linked.items())
    found["p99_20_per_s"] = p99_of(waits)
    found["requests_per_guest"] = cost.requests / count
    found["cpu_ms_per_guest"] = 1000 * cost.processor_seconds / count
    return (
        f"{count} new guests at {rate:.0f}/s: address p50 {statistics.median(waits):.3f} s, "
        f"p99 {p99_of(waits):.3f} s; of the operator {1000 * cost.processor_seconds / count:.0f} ms of processor "
        f"time, {cost.requests / count:.1f} requests to Rancher and {cost.guest_requests / count:.1f} to the guest each"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """How long a pass over all that answer took, the p99 of when each was reached, and requests for each."""

    whole: float
    p99: float
    requests: float


async def time_pass(stack: Stack, interval: str) -> Pass:
    """Make a pass over every guest at once, by a change of the settings."""
    guests = [
        each for each in stack.player.guests.values() if stack.proxy.guests[each.cluster_id].fault is None
    ]
    for guest in stack.player.guests.values():
        stack.proxy.forget_requests(guest.cluster_id)
    began = time.monotonic()
    await stack.set_options(operateGuestClusterInterval=interval)

    async def all_visited() -> bool:
        return all(stack.proxy.requests_of(guest.cluster_id) for guest in guests)

    await eventually(all_visited, seconds=DEADLINE_SECONDS, what="the pass")
    whole = time.monotonic() - began
    reached = sorted(stack.proxy.requests_of(each.cluster_id)[0].at - began for each in guests)
    requests = sum(len(stack.proxy.requests_of(each.cluster_id)) for each in guests)
    return Pass(whole=whole, p99=p99_of(reached), requests=requests / len(guests))


class hanging:  # noqa: N801 - used as a function is
    """Have a tenth of the guests give no answer."""

    def __init__(self, stack: Stack) -> None:
        ids = sorted(stack.proxy.guests)
        self._routes = [stack.proxy.guests[each] for each in ids[:: 100 // HANGING_PERCENT]]

    def __enter__(self) -> None:
        for route in self._routes:
            route.fault = Fault(hang=True)

    def __exit__(self, *_: object) -> None:
        for route in self._routes:
            route.fault = None


async def play_predecessor(stack: Stack, guests: int) -> AsyncIterator[str]:
    """Do what kube-fip-operator did with a few guests, and say what that is for all of them.

    Its connections and its helm are left out: only the requests, the order and the sleeps are played.
    """
    chosen = list(stack.player.guests.values())[:PREDECESSOR_SAMPLE]
    began = time.monotonic()
    for guest in chosen:
        await ask_four_times(stack, guest)
    each = (time.monotonic() - began) / len(chosen)
    yield (
        f"kube-fip-operator's shape, without its sleeps: {each:.2f} s a guest ({len(chosen)} played), "
        f"{each * guests:.0f} s for {guests}"
    )
    began = time.monotonic()
    for guest in chosen[:PREDECESSOR_NEW_SAMPLE]:
        await asyncio.sleep(PREDECESSOR_SLEEP_SECONDS)
        await ask_four_times(stack, guest)
    each = (time.monotonic() - began) / PREDECESSOR_NEW_SAMPLE
    yield (
        f"the same with 15 s for each new guest: {each:.1f} s a guest ({PREDECESSOR_NEW_SAMPLE} played), "
        f"{each * guests / 60:.0f} min for {guests}"
    )


async def ask_four_times(stack: Stack, guest: Guest) -> None:
    """Send a guest four requests, one after the other."""
    target = stack.proxy.guests[guest.cluster_id].target
    assert isinstance(target, SimulatedGuest)
    for path in ("/version", "/api/v1/configmaps", "/api/v1/secrets", "/api/v1/configmaps"):
        await target.answer("GET", path, {}, "application/json", "", b"")


async def come_to_rest(stack: Stack) -> None:
    """Have the operator work until the floating IP of every guest is ready, and it has next to nothing to do."""
    operator = stack.operators[-1]

    async def are_ready() -> bool:
        return await count_served(stack.client, "", is_ready=True) >= len(stack.player.guests)

    await eventually(
        are_ready, seconds=3 * DEADLINE_SECONDS, what="the floating IPs of all guests to be ready"
    )

    async def is_idle() -> bool:
        before = processor_seconds(operator)
        await asyncio.sleep(1)
        return processor_seconds(operator) - before < IDLE_PROCESSORS

    await eventually(is_idle, seconds=DEADLINE_SECONDS, what="the operator to have nothing to do")


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Seconds from the start of the process until it was ready, and until a new guest had its address."""

    guests: int
    ready: float
    address: float
    rss_mib: float
    hangs: bool

    @property
    def line(self) -> str:
        """Say it."""
        return (
            f"restart with {self.guests} guests{harm_of(self.hangs)}: ready {self.ready:.1f} s after the start, "
            f"a new guest's address after {self.address:.1f} s, {self.address - self.ready:.1f} s later; "
            f"{self.rss_mib:.0f} MiB resident"
        )


async def time_restart(stack: Stack, *, hangs: bool) -> Restart:
    """Stop the operator and start it again, with a new guest just then."""
    await stack.operators[-1].stop()
    guests = len(stack.player.guests)
    plan = stack.player.plan_guest(f"new-{len(stack.operators)}")
    served: dict[str, float] = {}
    with hanging(stack) if hangs else nullcontext():
        watching = asyncio.create_task(note_served(stack.client, served))
        guest = await stack.player.create_guest(plan, SimulatedGuest(), order=UP_TO_LINK)
        began = time.monotonic()
        operator = await stack.start_operator()
        ready = time.monotonic() - began

        async def is_served() -> bool:
            return guest.cluster_id in served

        await eventually(is_served, seconds=DEADLINE_SECONDS, what="the address of the new guest")
        watching.cancel()
    for step in REAL_ORDER[len(UP_TO_LINK) :]:
        await stack.player.take(guest, step)
    return Restart(
        guests=guests,
        ready=ready,
        address=served[guest.cluster_id] - began,
        rss_mib=resident_mib(operator),
        hangs=hangs,
    )


async def time_handover(stack: Stack, number: signal.Signals, *, hangs: bool) -> float:
    """End the leader beside a standby, with a new guest just then; the time until that has its address."""
    former = stack.operators[-1]
    await stack.start_operator()
    rested_at = datetime.now(UTC)

    async def is_known() -> bool:
        lease = await stack.client.get(LEASE)
        text = (lease["metadata"].get("annotations") or {}).get(names.ANNOTATION_HANDOVER, "{}")
        at = json.loads(text).get("at")
        return at is not None and datetime.fromisoformat(at) - rested_at > CLOCKS

    await eventually(is_known, seconds=DEADLINE_SECONDS, what="the leader to note that it knows everything")
    plan = stack.player.plan_guest(f"new-{len(stack.operators)}")
    served: dict[str, float] = {}
    watching = asyncio.create_task(note_served(stack.client, served))
    with hanging(stack) if hangs else nullcontext():
        began = time.monotonic()
        os.kill(former.process.pid, number)
        guest = await stack.player.create_guest(plan, SimulatedGuest(), order=UP_TO_LINK)

        async def is_served() -> bool:
            return guest.cluster_id in served

        await eventually(is_served, seconds=DEADLINE_SECONDS, what="the address of the new guest")
        watching.cancel()
    await former.process.wait()
    for step in REAL_ORDER[len(UP_TO_LINK) :]:
        await stack.player.take(guest, step)
    return served[guest.cluster_id] - began


def harm_of(hangs: bool) -> str:
    """Say how many guests hang."""
    return f", {HANGING_PERCENT} % of them hanging" if hangs else ""


def resident_mib(operator: OperatorProcess) -> float:
    """Give the resident memory of a process."""
    lines = Path(f"/proc/{operator.process.pid}/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def p99_of(ordered: Sequence[float]) -> float:
    """Give the value that one in a hundred exceeds."""
    return ordered[max(int(len(ordered) * 0.99) - 1, 0)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for option, default, said in (
        ("--guests", 1000, "new guests"),
        ("--pace", 20, "new guests a second"),
        ("--burst", 500, "floating IPs at once"),
        ("--all-guests", 2000, "guests at the starts"),
        ("--floating-ips", 10_000, "floating IPs at the starts"),
    ):
        parser.add_argument(option, type=positive, default=default, help=f"{said} (default: %(default)s)")
    parser.add_argument("--only-leaders", action="store_true", help="measure changes of leader alone")
    asyncio.run(main(Sizes(**vars(parser.parse_args()))))
