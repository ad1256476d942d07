"""What the chart claims to run on is what docs/reference/compatibility.md and the recorded runs say."""

import re
from pathlib import Path

import pytest
import yaml

from localfleet.assets import Assets
from tests.chart.rendering import ROOT
from tests.matrix.results import read_results

CHART = yaml.safe_load((ROOT / "Chart.yaml").read_text())
PAGE = (ROOT / "docs" / "reference" / "compatibility.md").read_text()
PAGES = [
    path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if "contributing" not in path.parts and path.name != "compatibility.md"
]
RANCHER = "catalog.cattle.io/rancher-version"
KUBERNETES = "catalog.cattle.io/kube-version"


def lowest(constraint: str) -> str:
    """The version of a constraint such as `>=1.30.0-0`, which has no upper bound, as `1.30`."""
    found = re.fullmatch(r">=(\d+\.\d+)\.0-0", constraint)
    assert found, constraint
    return found[1]


def numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def test_the_oldest_kubernetes_that_the_chart_claims_is_the_oldest_that_was_run() -> None:
    oldest = read_results()[0]
    assert lowest(CHART["kubeVersion"]) == oldest.minor
    assert oldest.kubernetes == f"{oldest.minor}.0", "the constraint begins there"
    assert CHART["annotations"][KUBERNETES] == CHART["kubeVersion"]
    assert f"The chart claims `{CHART['kubeVersion']}` for Kubernetes" in PAGE


def test_a_kubernetes_newer_than_that_of_all_other_tests_was_run() -> None:
    listings = Assets(environment={}).listings()
    (usual,) = (each.version.removeprefix("v") for each in listings if each.name == "kube-apiserver")
    assert numbers(read_results()[-1].kubernetes) > numbers(usual)


def test_the_oldest_rancher_that_the_chart_claims_is_the_first_of_the_page() -> None:
    claimed = CHART["annotations"][RANCHER]
    assert f"and `{claimed}` for Rancher" in PAGE
    rows = re.findall(r"^\| (2\.\d+) \| .* \| (read|run): ", PAGE, re.MULTILINE)
    assert rows[0][0] == lowest(claimed)
    versions = [numbers(version)[1] for version, _ in rows]
    assert versions == list(range(versions[0], versions[-1] + 1)), "none is left out"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_page_claims_another_minimum(path: Path) -> None:
    text = path.read_text()
    for name, claimed in (("Kubernetes", CHART["kubeVersion"]), ("Rancher", CHART["annotations"][RANCHER])):
        for found in re.findall(rf"{name} (\d+\.\d+) or (?:newer|later)", text):
            assert found == lowest(claimed), f"{path.name}: {name} {found}"
