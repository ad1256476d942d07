"""Where the benchmarks write what they measured: a section each of RESULTS.md, with the machine named."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path

RESULTS = Path(__file__).with_name("RESULTS.md")


def describe_machine() -> str:
    """Name the machine and how busy it is now; a clause for a sentence."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "CPU unknown"
    )
    load = os.getloadavg()[0]
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, load average {load:.1f}"


def write_section(name: str, lines: Sequence[str]) -> None:
    """Put the section of one benchmark into the results; what others wrote there stays."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    text = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else "# Results\n"
    if begin not in text:
        text = f"{text.rstrip()}\n\n{begin}\n{end}\n"
    before, _, rest = text.partition(begin)
    after = rest.partition(end)[2]
    RESULTS.write_text(f"{before}{begin}\n" + "\n".join(lines) + f"\n{end}{after}", encoding="utf-8")
