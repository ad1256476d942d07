"""What `helm package` takes: of the chart's folder all, and of a checkout not more than a cluster stores."""

import subprocess
import tarfile
from pathlib import Path

from localfleet.chart import ENTRIES
from tests.chart.rendering import ROOT, Chart

LARGEST_BYTES = 256 * 1024
"""A quarter of helm's limit for a release, which has what was rendered beside the package."""


def test_the_package_has_every_entry_of_the_chart(chart: Chart, tmp_path: Path) -> None:
    chart.run("package", chart.folder, "--destination", tmp_path)
    (package,) = tmp_path.iterdir()
    with tarfile.open(package) as archive:
        names = {name.split("/")[1] for name in archive.getnames()}
    assert names == set(ENTRIES)


def test_a_clean_checkout_is_small_enough_to_be_installed_as_a_chart(chart: Chart, tmp_path: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    checkout = tmp_path / "checkout"
    for name in listed.stdout.split("\0"):
        if (source := ROOT / name).is_file():
            copy = checkout / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(source.read_bytes())
    chart.run("package", checkout, "--destination", tmp_path)
    (package,) = tmp_path.glob("*.tgz")
    assert package.stat().st_size < LARGEST_BYTES
