"""Faults during rollouts: the leader is killed, or left in the dark, at its writes.

Each plan disturbs one rollout over eight guests, of a good change or a bad one, and judges what stands in the guests: a
good change is everywhere, with one revision for it in each guest; a bad one reached no more than the canaries, and
nothing is left of it; and then nobody writes anything any more.

python -m tests.faults.rollouts [--limit N]
"""

import argparse
import asyncio
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from localfleet.assets import ensure_all
from localfleet.certificates import build_authority
from localfleet.errors import DeadlineError
from localfleet.faultproxy import Do, FaultProxy, On, Rule, Schedule
from localfleet.fleet import PROGRAMS, LocalFleet
from localfleet.installation import NAMESPACE, RELEASE
from localfleet.kubeconfigs import build_kubeconfig, token_credential, write_kubeconfig
from localfleet.simulated import SimulatedGuest
from localfleet.waiting import eventually
from tests.faults.lane import Operator
from tests.harness.rollout_fleet import CANARIES, ROLLOUT, Fleet, open_fleet

GUESTS = 8
SECONDS = 240.0
DEADLINE_SECONDS = 30
"""Other plans share the processors."""
QUIET_SECONDS = 12.0
"""Longer than the interval of visits."""
WRITES = range(1, 5)
WAYS = (Do.KILL_BEFORE, Do.KILL_AFTER, Do.CUT_AFTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which change, and what is done at which write of the ConfigMap of rollouts."""

    is_bad: bool
    do: Do
    nth: int

    def __str__(self) -> str:
        return f"{'bad' if self.is_bad else 'good'} change, {self.do.value} at write {self.nth}"


PLANS = tuple(
    Plan(is_bad=is_bad, do=do, nth=nth) for is_bad in (False, True) for do in WAYS for nth in WRITES
)


class Run:
    """One fleet, disturbed by one plan after the other."""

    def __init__(self, everybody: Fleet, operator: Operator) -> None:
        self.fleet = everybody
        self.operator = operator
        self.number = 0

    async def play(self, plan: Plan) -> list[str]:
        """Disturb one rollout; what is wrong afterwards."""
        self.number += 1
        before, revisions = await self.fleet.stable(), await self.fleet.revisions()
        rule = Rule(on=On.WRITE, do=plan.do, nth=plan.nth, plural="configmaps")
        self.operator.proxy.begin(Schedule((rule,)))
        target = await self.fleet.change(f"v{self.number}.0.0", **({"unready": True} if plan.is_bad else {}))
        await self.fleet.until("Stopped" if plan.is_bad else "Completed", target)
        wrong = await (
            self.judge_bad(before, revisions) if plan.is_bad else self.judge_good(before, revisions)
        )
        wrong += await self.judge_quiet()
        self.operator.proxy.begin(Schedule(()))
        if plan.is_bad:
            target = await self.fleet.change(f"v{self.number}.0.1")
            await self.fleet.until("Completed", target)
        return wrong

    async def judge_good(self, before: str, revisions: dict[str, int]) -> list[str]:
        """Everybody has it, by one revision."""
        after = await self.fleet.stable()
        wrong = ["the guests have what they had"] if after == before else []
        found = await self.fleet.revisions()
        return wrong + [
            f"{name}: revision {found[name]} after {revisions[name]}"
            for name in found
            if found[name] != revisions[name] + 1
        ]

    async def judge_bad(self, before: str, revisions: dict[str, int]) -> list[str]:
        """No more than the canaries were touched, and all are as before."""
        await self.fleet.agree(self.fleet.digests, before)
        found = await self.fleet.revisions()
        touched = [name for name in found if found[name] != revisions[name]]
        wrong = [f"{len(touched)} guests were touched"] if len(touched) > CANARIES else []
        # The bad revision and the one that took it back.
        return wrong + [
            f"{name}: too many revisions" for name in touched if found[name] > revisions[name] + 2
        ]

    async def judge_quiet(self) -> list[str]:
        """Nobody writes any more: neither the rollout nor anything in a guest."""

        async def versions() -> dict[str, str]:
            found = {"rollout": (await self.fleet.stack.client.get(ROLLOUT))["metadata"]["resourceVersion"]}
            for name, member in self.fleet.members.items():
                for key, each in member.simulated.objects.items():
                    found[f"{name} {key}"] = each["metadata"]["resourceVersion"]
            return found

        async def is_quiet() -> bool:
            first = await versions()
            await asyncio.sleep(QUIET_SECONDS)
            return await versions() == first

        try:
            await eventually(is_quiet, seconds=5 * QUIET_SECONDS, what="the fleet to come to rest")
        except DeadlineError as error:
            return [str(error)]
        return []


async def main(limit: int | None) -> int:
    """Play all plans; how many found something."""
    ensure_all(*PROGRAMS, "helm")
    violations = 0
    with tempfile.TemporaryDirectory() as folder:
        async with (
            LocalFleet() as fleet,
            open_fleet(
                fleet, "faults-rollouts", Path(folder), seconds=SECONDS, deadline_seconds=DEADLINE_SECONDS
            ) as everybody,
        ):
            stack = everybody.stack
            authority = build_authority("rollouts", datetime.now(UTC))
            proxy = FaultProxy(
                stack.plane.url,
                trust=stack.plane.ca_pem,
                pair=authority.issue_server(["127.0.0.1"]),
                send_signal=lambda number: operator.send_signal(number),
            )
            async with proxy:
                token = await stack.plane.token_for(NAMESPACE, RELEASE, seconds=24 * 3600)
                kubeconfig = write_kubeconfig(
                    Path(folder) / "kubeconfig",
                    build_kubeconfig("proxy", proxy.url, authority.pem, "user", token_credential(token)),
                )
                process = await stack.installation.operator(
                    fleet.ports, f"--kubeconfig={kubeconfig}", f"--helm={everybody.helm}", name="watched"
                )
                operator = Operator("watched", process, proxy)
                await operator.start(Schedule(()))
                try:
                    await everybody.come_up([SimulatedGuest(latency_seconds=0.01) for _ in range(GUESTS)])
                    run = Run(everybody, operator)
                    for plan in PLANS[:limit]:
                        wrong = await run.play(plan)
                        violations += bool(wrong)
                        sys.stdout.write(f"{plan}: {'; '.join(wrong) or 'ok'}\n")
                        sys.stdout.flush()
                finally:
                    await operator.stop()
    sys.stdout.write(
        f"rollouts: plans={len(PLANS[:limit])} kills={operator.killed} violations={violations}\n"
    )
    return violations


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--limit", type=int, help="play so many plans only")
    sys.exit(1 if asyncio.run(main(parser.parse_args().limit)) else 0)
