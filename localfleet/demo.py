"""`make demo`: fipop doing its main job on this machine, for everybody to see.

    python -m localfleet.demo [--full] [--keep]

A management cluster and three guest clusters (real API servers), a simulated Rancher, the chart of fipop installed by
helm, and the operator under the ServiceAccount of the chart. The exit code is 0 if all checks passed.
"""

import argparse
import asyncio
import contextlib
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from localfleet.assets import ensure_all
from localfleet.demo_full import tell_the_rest
from localfleet.demo_kept import keep
from localfleet.demo_network import find_problem, reach_an_address
from localfleet.demo_stage import open_stage
from localfleet.demo_story import Story
from localfleet.errors import LocalFleetError
from localfleet.fleet import PROGRAMS
from localfleet.report import Report
from localfleet.wire import find_kube_vip

_INTERRUPTED = 130


async def run(report: Report, programs: Mapping[str, Path], *, is_full: bool, is_kept: bool) -> int:
    """Play the demo; the exit code. If it is kept, everything runs on until it is cancelled."""
    async with open_stage(report, programs) as stage:
        story = Story(stage=stage)
        await story.tell()
        if is_full:
            await tell_the_rest(story)
            await reach_an_address(story)
        await story.end()
        if not is_kept:
            await story.stop_operator()
        code = report.verdict()
        if is_kept:
            # Ctrl-C is how this ends, and no failure.
            with contextlib.suppress(asyncio.CancelledError):
                await keep(stage)
            report.line("stopping everything")
        return code


async def _run_until_interrupted(
    report: Report, programs: Mapping[str, Path], *, is_full: bool, is_kept: bool
) -> int:
    demo = asyncio.create_task(run(report, programs, is_full=is_full, is_kept=is_kept))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, demo.cancel)
    try:
        return await demo
    except asyncio.CancelledError:
        report.line("everything is stopped")
        return _INTERRUPTED


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m localfleet.demo", description="fipop on a fleet of one machine."
    )
    parser.add_argument("--full", action="store_true", help="play what takes minutes, too")
    parser.add_argument("--keep", action="store_true", help="leave everything running until ctrl-C")
    chosen = parser.parse_args(arguments)
    report = Report()
    try:
        # Before the loop begins: what may take minutes the first time has to hear ctrl-C, too.
        programs = dict(ensure_all(*PROGRAMS, "helm"))
        if chosen.full and not find_problem():
            programs["kube-vip"] = find_kube_vip()
        report = Report()
        return asyncio.run(_run_until_interrupted(report, programs, is_full=chosen.full, is_kept=chosen.keep))
    except KeyboardInterrupt:
        return _INTERRUPTED
    except LocalFleetError as error:
        report.line(str(error))
    except Exception:  # noqa: BLE001 - whatever it is, the last line has to say that the demo failed
        report.line(traceback.format_exc())
    report.check("the story comes to its end", holds=False)
    return report.verdict()


if __name__ == "__main__":
    sys.exit(main())
