"""Run what takes long, part by part: one line for each, and its output in out/night.

    python -m tests.night [--long] [PART…]

PART is the name of a part, or `ci` for the slice that CI runs. Without one, all parts run, each with its share of 90
minutes on 2 cores. With --long, each runs all that there is.
"""

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUT = ROOT / "out" / "night"
CI = "ci"
PYTEST = "pytest --numprocesses=5 --dist=loadgroup --no-loadscope-reorder --max-worker-restart=0"
# A bit more than the longest timeout of a slow test: after it the process of a test ends, whatever hangs in it.
SLOW = f"{PYTEST} -m 'slow and not hypothesis' --durations=15 --override-ini=faulthandler_timeout=1830"
FRESH = f"{PYTEST} -m hypothesis --hypothesis-profile=fresh --override-ini=faulthandler_timeout=3630"
ROLLOUTS = "pytest tests/api/test_rollout_fleet.py --override-ini=faulthandler_timeout=3630"
SCHEDULES = "pytest tests/operator/test_rollout_schedules.py"
API = f"{PYTEST} -m 'not slow' tests/api"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of the night. A command may begin with variables of the environment; SEED stands for a new number."""

    name: str
    what: str
    night: str
    """The share of one night."""
    long: str = ""
    """All that there is; empty: the same."""
    ci: str = ""
    """The slice of CI; empty: none."""


PARTS = (
    Part(name="slow", what="slow tests", night=SLOW, ci=SLOW),
    Part(
        name="fresh",
        what="fresh examples of Hypothesis",
        night=FRESH,
        ci=FRESH,
    ),
    Part(
        name="simulation",
        what="lives of several operators in memory, with trouble of every kind",
        night="python -m tests.operator.simulation 200 --seed SEED",
        long="python -m tests.operator.simulation 500 --acts 250 --seed SEED",
        ci="python -m tests.operator.simulation 60 --seed 1",
    ),
    Part(
        name="simulation-demand",
        what="the same, with floating IPs that fipop makes for Services",
        night="python -m tests.operator.simulation 100 --demand --seed SEED",
        long="python -m tests.operator.simulation 500 --demand --seed SEED",
    ),
    Part(
        name="simulation-handover",
        what="the same, in which the lead changes hands again and again",
        night="python -m tests.operator.simulation 200 --handover --seed SEED",
        long="python -m tests.operator.simulation 1000 --handover --seed SEED",
    ),
    Part(
        name="handover-fleet",
        what="changes of leader with 2,000 and 10,000 guest clusters, at the pace of one Rancher",
        night="python -m tests.operator.handover_fleet --guests 2000",
        long="python -m tests.operator.handover_fleet",
    ),
    Part(
        name="demand-fleet",
        what="1,000 guest clusters whose Services are listed, at the pace of one Rancher",
        night="python -m tests.operator.demand_fleet",
    ),
    Part(
        name="announced-fleet",
        what="2,000 guest clusters whose addresses Services use, at the pace of one Rancher",
        night="python -m tests.operator.announced_fleet",
    ),
    Part(
        name="seeded",
        what="broken protocols, each of which the simulation finds",
        night="python -m tests.operator.seeded --seed SEED",
    ),
    Part(
        name="worlds",
        what="random worlds of one operator in memory, and a naive model",
        night="python -m tests.operator.worlds 500 --seed SEED",
        long="python -m tests.operator.worlds 5000 --seed SEED",
    ),
    Part(
        name="simulation-services",
        what="lives of several cloud providers in memory, with trouble of every kind",
        night="python -m tests.provider.simulation 300 --seed SEED",
        long="python -m tests.provider.simulation 3000 --seed SEED",
    ),
    Part(
        name="worlds-services",
        what="random worlds of a cloud provider whose Services choose pools",
        night="python -m tests.provider.worlds 10000 --seed 1",
    ),
    Part(
        name="model-services",
        what="every schedule of the leaders of a cloud provider, in small worlds",
        night="python -m tests.provider.model --all",
    ),
    Part(
        name="faults",
        what="fault plans",
        night="python -m tests.faults --every 4 --start SEED",
        long="python -m tests.faults",
        ci="python -m tests.faults --every 32",
    ),
    Part(
        name="faults-services",
        what="fault plans of the cloud provider",
        night="python -m tests.faults.services --every 2 --start SEED",
        long="python -m tests.faults.services",
        ci="python -m tests.faults.services --every 16",
    ),
    Part(
        name="rollout-schedules",
        what="the rules of rollouts over random schedules",
        night=f"FIPOP_ROLLOUT_SCHEDULES=330 {SCHEDULES}",
        long=f"FIPOP_ROLLOUT_SCHEDULES=2000 {SCHEDULES}",
    ),
    Part(
        name="rollouts",
        what="rollouts over many guest clusters",
        night=f"FIPOP_ROLLOUT_SIMULATED=47 FIPOP_ROLLOUT_REAL=3 {ROLLOUTS}",
        long=f"FIPOP_ROLLOUT_SIMULATED=195 FIPOP_ROLLOUT_REAL=5 {ROLLOUTS}",
    ),
    Part(
        name="selectors",
        what="selectors of overrides, and the API server's own",
        night="FIPOP_SELECTOR_OBJECTS=1000 pytest tests/api/test_selectors.py",
    ),
    Part(
        name="overrides",
        what="what a visit and the state of rollouts cost with 50 overrides and 2,000 guest clusters",
        night="python -m tests.operator.overrides_fleet",
    ),
    Part(
        name="hostile-guests",
        what="hostile guest clusters",
        night="python -m tests.hostile --guests --no-baseline",
        long="python -m tests.hostile --guests",
    ),
    Part(name="hostile-services", what="hostile Services", night="python -m tests.hostile --services"),
    # The folders of localfleet/modules/, beside the version of all other tests.
    Part(name="kubernetes-1.30", what="API tests", night=f"LOCALFLEET_KUBERNETES=1.30 {API}"),
    Part(name="kubernetes-1.37", what="API tests", night=f"LOCALFLEET_KUBERNETES=1.37 {API}"),
    Part(name="helm-3", what="API tests", night=f"LOCALFLEET_HELM=3 {API}"),
)


def choose(parts: Sequence[Part], names: Sequence[str], *, long: bool) -> list[tuple[Part, str]]:
    """Return the chosen parts, each with its command."""
    if CI in names:
        return [(each, each.ci) for each in parts if each.ci]
    chosen = [each for each in parts if each.name in names or not names]
    return [(each, each.long if long and each.long else each.night) for each in chosen]


def run(part: Part, command: str, out: Path) -> bool:
    """Run one part, print its line, and return whether it went well."""
    began = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    log = out / f"{part.name}.log"
    argv = ["env", *shlex.split(command.replace("SEED", str(int(time.time()))))]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    with log.open("w") as file:
        file.write(f"{shlex.join(argv)}\n\n")
        file.flush()
        environment = {**os.environ, "PATH": path}
        code = subprocess.run(
            argv, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT, check=False
        ).returncode
    last = log.read_text(errors="replace").rstrip().rpartition("\n")[2].strip("= ")
    result = "ok" if code == 0 else f"FAILED with {code}, see {log}"
    seconds = time.monotonic() - began
    sys.stdout.write(f"{part.name:19} {part.what}: {result}, {seconds:.0f} s: {last}\n")
    sys.stdout.flush()
    return code == 0


def main(arguments: Sequence[str], *, parts: Sequence[Part] = PARTS, out: Path = OUT) -> int:
    """Run the chosen parts one after the other; the exit code is 1 if one failed."""
    names = [each.name for each in parts]
    width = max(map(len, names))
    parser = argparse.ArgumentParser(
        prog="python -m tests.night",
        description="Run what takes long.",
        epilog="\n".join(("parts:", *(f"  {each.name:{width}}  {each.what}" for each in parts))),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="PART", help=f"{CI}, or some of those below")
    parser.add_argument("--long", action="store_true", help="run all that there is")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - {CI, *names}:
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {CI}, {', '.join(names)}")
    failed = 0
    for part, command in choose(parts, options.names, long=options.long):
        failed += not run(part, command, out)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
