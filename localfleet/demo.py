"""`make demo`: fipop doing its main job on this machine, for everybody to see.

    python -m localfleet.demo [--keep]

A management cluster and three guests (real API servers), Rancher played, fipop's chart installed by helm, the operator
under the chart's own ServiceAccount. Ends with tables, checks and one line; the exit code says the same.
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
from localfleet.demo_checks import check_all, check_answers, check_end
from localfleet.demo_questions import ask_all
from localfleet.demo_stage import Stage, kubeconfig_lines, open_stage
from localfleet.demo_story import Evidence, stop_operator, tell
from localfleet.demo_tables import show
from localfleet.errors import LocalFleetError
from localfleet.fleet import PROGRAMS
from localfleet.report import Report

_INTERRUPTED = 130


async def run(report: Report, programs: Mapping[str, Path], *, keep: bool) -> int:
    """Play the demo; the exit code. With `keep` everything runs on until it is cancelled."""
    async with open_stage(report, programs) as stage:
        evidence = Evidence()
        ending = await tell(stage, evidence)
        report.chapter("How it ended")
        show(report, ending, evidence.services)
        answers = await ask_all(stage)
        report.chapter("Checks")
        check_all(report, ending, evidence, stage.narrator.first_address)
        check_answers(report, answers)
        if not keep:
            await stop_operator(stage, evidence)
            check_end(report, evidence)
        code = report.verdict()
        if keep:
            # Ctrl-C is how this ends, and no failure.
            with contextlib.suppress(asyncio.CancelledError):
                await _leave_running(report, stage)
            report.line("stopping everything")
        return code


async def _leave_running(report: Report, stage: Stage) -> None:
    report.chapter("Everything runs on until ctrl-C. To look around:")
    for line in kubeconfig_lines(stage):
        report.line(line)
    await asyncio.Event().wait()


async def _run_until_interrupted(report: Report, programs: Mapping[str, Path], *, keep: bool) -> int:
    demo = asyncio.create_task(run(report, programs, keep=keep))
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
    parser.add_argument("--keep", action="store_true", help="leave everything running until ctrl-C")
    chosen = parser.parse_args(arguments)
    report = Report()
    try:
        # Before the loop begins: what may take minutes the first time has to hear ctrl-C, too.
        programs = ensure_all(*PROGRAMS, "helm")
        return asyncio.run(_run_until_interrupted(report, programs, keep=chosen.keep))
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
