"""A fleet in the middle of a rollout, for a person who is to say where everything stands.

    python -m tests.harness.rollout_walk [--simulated 20] [--real 2]

The operator, helm and API servers are the real programs. Simulated guest clusters have a stand-in for helm. Both
canaries succeed, then one guest cluster fails. One is paused, one has a dead node, and one cannot be reached. It says
how to reach the management cluster, and stays until ctrl-C.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
from pathlib import Path

from fipop.api import names
from localfleet.fleet import LocalFleet
from localfleet.rancher_steps import PROVISIONING
from localfleet.routes import Fault
from localfleet.simulated import SimulatedGuest
from localfleet.stack import floating_ips
from localfleet.waiting import eventually
from tests.harness.rollout_fleet import Fleet, Member, open_fleet

SECONDS = 1200.0


def break_pods(target: SimulatedGuest) -> None:
    """Have a guest cluster whose pods of kube-vip are not ready, whatever helm does."""
    key = next(each for each in target.objects if each[0] == "daemonsets")
    found = target.objects[key]
    target.objects[key] = {**found, "status": {**found["status"], "numberReady": 0}}


async def keep_broken(member: Member, *, once_changed: bool = False) -> None:
    """Keep it so: each upgrade makes its pods ready for a moment. `once_changed`: only from the next upgrade on."""
    before = await member.digest()

    async def is_changed() -> bool:
        return await member.digest() not in ("", before)

    if once_changed:
        await eventually(is_changed, seconds=10 * SECONDS, what="an upgrade")
    while True:
        with contextlib.suppress(StopIteration):
            break_pods(member.simulated)
        await asyncio.sleep(0.05)


async def walk(simulated: int, real: int) -> None:
    """Have the fleet, and stay."""
    with tempfile.TemporaryDirectory(prefix="fipop-walk-") as folder:
        async with (
            LocalFleet() as fleet,
            open_fleet(fleet, "walk", Path(folder), seconds=SECONDS) as everybody,
        ):
            await show(everybody, fleet, simulated, real)


async def show(everybody: Fleet, fleet: LocalFleet, simulated: int, real: int) -> None:
    stack = everybody.stack
    await stack.start_operator(f"--helm={everybody.helm}")
    planes = [await fleet.guest(f"walk-{number}", nodes=1) for number in range(real)]
    targets = [SimulatedGuest(latency_seconds=0.01) for _ in range(simulated)]
    await everybody.come_up([*planes, *targets])
    # By name, as they are admitted: one of the first fails.
    those = [each for each in everybody.members.values() if each.api is None]
    failing, paused, dead, away, *canaries = sorted(those, key=lambda each: each.guest.name)[:6]
    for member in canaries:
        plan = member.guest.plan
        path = f"{PROVISIONING.format(namespace=plan.namespace)}/{plan.provisioning_name}"
        await stack.client.patch(path, {"metadata": {"labels": {names.LABEL_CANARY: "true"}}})
    name = f"{paused.guest.name}-kubevip"
    note = {"metadata": {"annotations": {names.ANNOTATION_PAUSED: "true"}}}
    await stack.client.patch(f"{floating_ips(paused.guest.cluster_id)}/{name}", note)
    tasks = [
        asyncio.create_task(keep_broken(dead)),
        asyncio.create_task(keep_broken(failing, once_changed=True)),
    ]
    stack.proxy.guests[away.guest.cluster_id].fault = Fault(refuse=True)
    await asyncio.sleep(30)
    await stack.set_options(
        kubevipRolloutMinSuccessTime="45",
        kubevipRolloutProgressDeadline="60",
        kubevipRolloutMaxFailures="3",
        kubevipRolloutMaxConcurrency="2",
    )
    await everybody.change("v1.3.0")

    async def has_failed() -> bool:
        return bool((await everybody.state())["failed"])

    await eventually(has_failed, seconds=SECONDS, what="a failure")
    # From now on it stays in the middle.
    await stack.set_options(kubevipRolloutMinSuccessTime="3600", kubevipRolloutProgressDeadline="7200")
    sys.stdout.write(f"export KUBECONFIG={stack.plane.admin_kubeconfig}\n")
    sys.stdout.flush()
    await asyncio.gather(*tasks)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulated", type=int, default=20)
    parser.add_argument("--real", type=int, default=2)
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(walk(options.simulated, options.real))
