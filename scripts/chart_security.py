"""Check the rendered chart with checkov: no finding without a written reason, and no reason without its finding.

    python -m scripts.chart_security CHECKOV      the checkov program; `make lint-chart-security` installs and names it

The chart is rendered with its defaults and with everything on. scripts/chart_security.toml has the exceptions. It fails
if a finding is not among them, or if one of them is of no finding any more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localfleet.assets import ensure
from tests.chart.rendering import ROOT, Chart
from tests.chart.test_access import EVERYTHING_ON

EXCEPTIONS = ROOT / "scripts" / "chart_security.toml"
RENDERINGS: Mapping[str, Mapping[str, Any]] = {
    "defaults": {},
    "everything-on": {**EVERYTHING_ON, "image": {"digest": f"sha256:{'0' * 64}"}},
}
"""The values of each rendering; a digest, which only a release has, is part of everything."""
REASON_WORDS = 5
"""A reason of fewer words explains nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Finding:
    """A check of checkov that an object of the chart fails, as `Kind.namespace.name`."""

    check: str
    resource: str

    def __str__(self) -> str:
        return f"{self.check} {self.resource}"


def read_exceptions(text: str) -> dict[Finding, str]:
    """Return the reason of each exception."""
    return {
        Finding(check=check, resource=resource): each["reason"]
        for check, exceptions in tomllib.loads(text).items()
        for each in exceptions
        for resource in each["resources"]
    }


def compare(found: Mapping[Finding, str], exceptions: Mapping[Finding, str]) -> Iterator[str]:
    """Iterate over what is wrong: findings (with what checkov says of them) that are not excepted, stale exceptions."""
    for each in sorted(found.keys() - exceptions.keys()):
        yield f"{each}: {found[each]}. Correct the chart, or add an exception with its reason"
    for each in sorted(exceptions.keys() - found.keys()):
        yield f"{each}: the exception is of no finding any more. Remove it"
    for each in sorted(exceptions):
        if len(exceptions[each].split()) < REASON_WORDS:
            yield f"{each}: the exception has no reason"


def find(checkov: str, files: Iterable[Path], home: Path) -> dict[Finding, str]:
    """Run checkov over manifests; what they fail, with the words of the check. Raises CalledProcessError."""
    done = subprocess.run(
        [
            *(checkov, "--framework", "kubernetes", "--output", "json", "--quiet", "--compact"),
            *("--skip-download", "--soft-fail"),
            *(argument for file in files for argument in ("--file", str(file))),
        ],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
    )
    report = json.loads(done.stdout)
    assert report["summary"]["parsing_errors"] == 0, report["summary"]
    assert report["summary"]["resource_count"] > 0, "checkov read nothing"
    return {
        Finding(check=each["check_id"], resource=each["resource"]): each["check_name"]
        for each in report["results"]["failed_checks"]
    }


def main(arguments: list[str]) -> int:
    """Check the chart; return the exit code."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        chart = Chart(helm=ensure("helm"), folder=ROOT, home=home)
        files = [home / f"{name}.yaml" for name in RENDERINGS]
        for file, values in zip(files, RENDERINGS.values(), strict=True):
            file.write_text(chart.template(values, with_tests=True))
        found = find(arguments[0], files, home)
    wrong = list(compare(found, read_exceptions(EXCEPTIONS.read_text())))
    for line in wrong:
        print(line, file=sys.stderr)
    if not wrong:
        print(f"checkov found nothing in {len(files)} renderings of the chart but {len(found)} exceptions")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
