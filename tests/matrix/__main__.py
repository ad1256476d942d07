"""Run the API tests on other versions of Kubernetes, and record what came out.

    python -m tests.matrix [VERSION…]

VERSION is a minor version that has a folder in localfleet/modules; without one, all that have are run. The programs
are built first where they are missing. The result goes into results.toml beside this file, and from there into
docs/reference/compatibility.md.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree as ET

from localfleet.assets import KUBERNETES, MODULES, Assets
from localfleet.errors import LocalFleetError
from localfleet.fleet import PROGRAMS
from tests.matrix.results import Result, record

ROOT = Path(__file__).parents[2]
OUT = ROOT / "out" / "matrix"
WORKERS = 5
"""As `make test` has: the tests wait more than they compute."""
TESTS = "tests/api"
"""What stands on a real API server. The rest of the tests knows no version of Kubernetes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What became of the tests of a run."""

    passed: int
    failed: int
    skipped: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the versions that are named; the exit code is 1 if a test failed or a program could not be built."""
    known = known_versions()
    parser = argparse.ArgumentParser(
        prog="python -m tests.matrix", description="Test versions of Kubernetes."
    )
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=f"of {', '.join(known)}; default: all")
    chosen = parser.parse_args(arguments).versions or known
    unknown = sorted(set(chosen) - set(known))
    if unknown:
        parser.error(f"VERSION must be one of {', '.join(known)}, not {', '.join(unknown)}")
    has_failed = False
    try:
        for version in chosen:
            result = run(version)
            record(result)
            sys.stdout.write(
                f"Kubernetes {result.kubernetes}: {result.passed} passed, {result.failed} failed, "
                f"{result.minutes} min\n"
            )
            has_failed |= bool(result.failed)
    except LocalFleetError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    sys.stdout.write("Next: write the result into docs/reference/compatibility.md\n")
    return int(has_failed)


def known_versions() -> list[str]:
    """Return the minor versions that can be built beside the one of all other tests."""
    found = [folder.name.partition("-")[2] for folder in MODULES.glob("kubernetes-*")]
    return sorted(found, key=lambda version: [int(part) for part in version.split(".")])


def run(version: str) -> Result:
    """Build one Kubernetes and run the tests on it."""
    environment = {**os.environ, KUBERNETES: version}
    program = Assets(environment=environment).ensure(PROGRAMS)["kube-apiserver"]
    report = OUT / f"{version}.xml"
    report.unlink(missing_ok=True)
    began = time.monotonic()
    command = [
        *(sys.executable, "-m", "pytest", f"--numprocesses={WORKERS}", "--dist=loadgroup"),
        *("--no-loadscope-reorder", "--max-worker-restart=0", "-m", "not slow", f"--junit-xml={report}"),
        TESTS,
    ]
    code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    minutes = round((time.monotonic() - began) / 60, 1)
    counts = read_counts(report.read_text(encoding="utf-8") if report.exists() else "<testsuites/>")
    return Result(
        **read_versions(program),
        date=datetime.now(UTC).date().isoformat(),
        passed=counts.passed,
        # A run that ends badly for another reason (a worker died, nothing was collected) has failed too.
        failed=counts.failed or int(code != 0),
        skipped=counts.skipped,
        minutes=minutes,
    )


def read_counts(report: str) -> Counts:
    """Read the counts of a JUnit report."""
    passed = failed = skipped = 0
    for suite in ET.fromstring(report).iter("testsuite"):
        tests, bad, left = (int(suite.get(name, 0)) for name in ("tests", "failures", "skipped"))
        bad += int(suite.get("errors", 0))
        failed, skipped, passed = failed + bad, skipped + left, passed + tests - bad - left
    return Counts(passed=passed, failed=failed, skipped=skipped)


def read_versions(program: Path) -> dict[str, str]:
    """Ask a kube-apiserver for its version and that of the Go that built it, as `1.30.0` and `1.26.8`."""
    answer = subprocess.run([program, "--version=raw"], capture_output=True, text=True, check=True).stdout
    return {
        "kubernetes": re.findall(r'GitVersion:"v([^"]+)"', answer)[0],
        "go": re.findall(r'GoVersion:"go([^"]+)"', answer)[0],
    }


if __name__ == "__main__":
    sys.exit(main())
