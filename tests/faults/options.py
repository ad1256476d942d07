"""The command line of `python -m tests.faults`."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from localfleet.arguments import positive
from tests.faults.crowd import CROWD
from tests.faults.plans import Plan
from tests.faults.selection import SCENARIOS

OUT = Path("out/faults")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """What is asked for; exits with 2 and a sentence where that cannot be."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults",
        description="Disturb the operator on real API servers and judge every revision; without options in every way.",
    )
    parser.add_argument(
        "--lanes", type=positive, default=9, metavar="N", help="how many plans run side by side (default: 9)"
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--scenario",
        nargs="+",
        choices=SCENARIOS,
        default=[],
        metavar="NAME",
        help=f"only these of {', '.join(SCENARIOS)} (default: all)",
    )
    source.add_argument(
        "--replay",
        type=_plans,
        nargs="+",
        default=[],
        metavar="FILE",
        help="run the plans of these files again, one JSON a line; what fails goes to replay/ in --out",
    )
    parser.add_argument("--every", type=positive, default=1, metavar="N", help="only every n-th plan")
    parser.add_argument(
        "--start", type=int, metavar="K", help="with --every: which of the N shares (default: the middle one)"
    )
    parser.add_argument(
        "--crowd",
        type=positive,
        default=10_000,
        metavar="N",
        help="how many floating IPs make a crowd (default: 10000)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=OUT,
        metavar="FOLDER",
        help=f"folder for results and failed plans (default: {OUT})",
    )
    options = parser.parse_args(arguments)
    options.replay = [plan for plans in options.replay for plan in plans]
    return options


def _plans(text: str) -> list[Plan]:
    """The plans of a file. Raises ArgumentTypeError with the line that is none."""
    try:
        lines = Path(text).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(f"{text} cannot be read: {error}") from error
    plans = []
    for number, line in enumerate(lines, 1):
        try:
            plans.append(_plan(line))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise argparse.ArgumentTypeError(f"line {number} of {text} is no plan: {error!r}") from error
    if not plans:
        raise argparse.ArgumentTypeError(f"{text} has no plan")
    return plans


def _plan(line: str) -> Plan:
    plan = Plan.from_line(line)
    if plan.scenario not in SCENARIOS:
        raise ValueError(f"there is no scenario {plan.scenario}")
    if plan.scenario == CROWD and plan.size < 1:
        raise ValueError(f"{plan.scenario} needs a size")
    return plan
