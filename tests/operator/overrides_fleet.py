"""2,000 guest clusters with kube-vip, without overrides and with 50 of them, by turns: a SIMULATION.

    python -m tests.operator.overrides_fleet [--guests 2000] [--entries 50] [--turns 3]

Prints the processor time of a visit and of a step of the rollout, of which there is one in 5 s, or in 2 s while
guest clusters are under way; and what overrides add to the state of rollouts. The API servers in memory are a part of
that time. It returns 1 if a visit costs 10 % more with overrides, or if the state grows by 64 KiB.

No guest cluster changes: the overrides have the values that all have.
"""

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from statistics import median

from fipop.api import names
from tests.harness.fleet import NAMESPACE, Fleet
from tests.harness.virtual_time import run_virtually
from tests.operator.announced_fleet import install

MOST_RATIO, MOST_BYTES = 1.10, 64 * 1024
STATE = ("configmaps", NAMESPACE, names.ROLLOUT_CONFIG_MAP)
SETTLE_SECONDS, WINDOW_SECONDS, STEP_SECONDS = 300, 100, 5
BGP = """\
    env:
      vip_interface: eth1
      vip_arp: "false"
      bgp_enable: "true"
      bgp_as: "65101"
      bgp_routerinterface: eth1
      bgp_peers: "10.1.0.1:65001::false,10.1.0.2:65001::false"
"""
ENTRY = "- name: rack-{0}\n  clusterSelector: {{matchLabels: {{rack: rack-{0}}}}}\n  values:\n" + BGP


async def spend(fleet: Fleet, seconds: float) -> float:
    """Let time pass, and return the processor time that it cost."""
    began = time.process_time()
    await fleet.pass_time(seconds)
    return time.process_time() - began


def read_state(fleet: Fleet) -> int:
    return sum(len(each.encode()) for each in fleet.memory.objects[STATE]["data"].values())


async def live(guests: int, entries: int, turns: int) -> tuple[list[tuple[float, float]], list[int]]:
    """Return the seconds of a visit and of a step, by turns without and with overrides, and the bytes of the state."""
    fleet = await install(guests, racks=entries + 10, kubevipUpdate="true", kubevipChartValues=BGP)
    texts, found, sizes = ("", "".join(map(ENTRY.format, range(entries)))), [], [0, 0]
    for turn in range(2 * turns):
        fleet.set_options(kubevipChartValuesOverrides=texts[turn % 2])
        await fleet.pass_time(SETTLE_SECONDS)
        # An option that changes has everybody visited.
        fleet.set_options(operateGuestClusterInterval=str(36_000 + turn))
        asked = sum(each.asked for each in fleet.guests.values())
        whole = await spend(fleet, WINDOW_SECONDS)
        assert sum(each.asked for each in fleet.guests.values()) >= asked + guests
        steps = await spend(fleet, WINDOW_SECONDS)
        found.append(((whole - steps) / guests, steps * STEP_SECONDS / WINDOW_SECONDS))
        sizes[turn % 2] = read_state(fleet)
    return found, sizes


def main(arguments: Sequence[str]) -> int:
    """Measure, and return 1 if overrides cost too much."""
    parser = argparse.ArgumentParser(prog="python -m tests.operator.overrides_fleet")
    parser.add_argument("--guests", type=int, default=2000)
    parser.add_argument("--entries", type=int, default=50)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    found, (without, beside) = run_virtually(live(options.guests, options.entries, options.turns))
    plain, overridden = found[::2], found[1::2]
    ratio = median(each[0] / one[0] for one, each in zip(plain, overridden, strict=True))
    for title, those in (("without", plain), ("with", overridden)):
        visit, step = (1e6 * median(each[number] for each in those) for number in (0, 1))
        sys.stdout.write(f"{title} overrides: a visit {visit:.0f} us, a step {step / 1000:.1f} ms\n")
    sys.stdout.write(
        f"overrides (in memory, no API server): guests={options.guests} entries={options.entries} "
        f"visit_ratio={ratio:.3f} state_bytes={beside - without}\n"
    )
    return int(ratio > MOST_RATIO or beside - without > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
