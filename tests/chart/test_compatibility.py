"""What the chart claims to run on is what docs/reference/compatibility.md says and what the tests run on."""

import re
from pathlib import Path

import pytest
import yaml

from localfleet.assets import HELM, KUBERNETES, MODULES, Assets
from tests.chart.rendering import ROOT

CHART = yaml.safe_load((ROOT / "Chart.yaml").read_text())
PAGE = (ROOT / "docs" / "reference" / "compatibility.md").read_text()
PAGES = [
    path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if "contributing" not in path.parts and path.name != "compatibility.md"
]
RANCHER = "catalog.cattle.io/rancher-version"
KUBE_VERSION = "catalog.cattle.io/kube-version"


def lowest(constraint: str) -> str:
    """The version of a constraint such as `>=1.30.0-0`, which has no upper bound, as `1.30`."""
    found = re.fullmatch(r">=(\d+\.\d+)\.0-0", constraint)
    assert found, constraint
    return found[1]


def numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def pinned(chosen: str = "", *, program: str = "kube-apiserver", variable: str = KUBERNETES) -> str:
    """The program that is built for a chosen version; empty: the one of all other tests."""
    listings = Assets(environment={variable: chosen}).listings()
    (found,) = (each.version.removeprefix("v") for each in listings if each.name == program)
    return found


def test_the_page_has_the_versions_that_tests_run_on_and_the_oldest_is_the_one_that_the_chart_claims() -> (
    None
):
    others = {folder.name.partition("-")[2] for folder in MODULES.glob("kubernetes-*")}
    versions = sorted(map(pinned, ("", *others)), key=numbers)
    assert re.findall(r"^\| (\d+\.\d+\.\d+) \|", PAGE, re.MULTILINE) == versions
    assert others == set(re.findall(r"`make night PART=kubernetes-([\d.]+)`", PAGE))
    assert versions[0] == f"{lowest(CHART['kubeVersion'])}.0", "the constraint begins there"
    assert versions[-1] != pinned(), "a newer one than that of all other tests"
    assert CHART["annotations"][KUBE_VERSION] == CHART["kubeVersion"]
    assert f"The chart claims `{CHART['kubeVersion']}` for Kubernetes" in PAGE


def test_the_page_has_the_helm_of_the_image_and_the_one_of_the_night() -> None:
    by_day, at_night = (pinned(each, program="helm", variable=HELM) for each in ("", "3"))
    assert f"| helm in the image | {by_day} |" in PAGE
    assert f"| helm that `FIPOP_HELM` names | {at_night} | run at night: `make night PART=helm-3` |" in PAGE


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
