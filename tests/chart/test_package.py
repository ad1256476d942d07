"""What `helm package` takes of the repository."""

import tarfile
from pathlib import Path

from tests.chart.rendering import Chart

PACKAGED = {
    ".helmignore",
    "Chart.yaml",
    "LICENSE",
    "NOTICE",
    "README.md",
    "crds/floatingipranges.yaml",
    "crds/floatingipreservations.yaml",
    "crds/floatingips.yaml",
    "templates/NOTES.txt",
    "templates/_names.tpl",
    "templates/admission-policy.yaml",
    "templates/clusterrole.yaml",
    "templates/deployment.yaml",
    "app-readme.md",
    "files/alerts.yaml",
    "files/dashboard.json",
    "files/icon.svg",
    "questions.yaml",
    "templates/dashboard.yaml",
    "templates/networkpolicy.yaml",
    "templates/prometheusrule.yaml",
    "templates/viewer.yaml",
    "templates/web.yaml",
    "templates/role.yaml",
    "templates/secret-roles.yaml",
    "templates/service.yaml",
    "templates/serviceaccount.yaml",
    "templates/servicemonitor.yaml",
    "templates/settings-defaults.yaml",
    "templates/tests/allocation.yaml",
    "values.schema.json",
    "values.yaml",
}


def test_the_package_holds_exactly_the_files_of_the_chart(chart: Chart, tmp_path: Path) -> None:
    chart.run("package", chart.folder, "--destination", tmp_path)
    (package,) = tmp_path.iterdir()
    with tarfile.open(package) as archive:
        names = [name.removeprefix("fipop/") for name in archive.getnames()]
    assert sorted(names) == sorted(PACKAGED)


def test_helm_lint_finds_nothing_to_complain_about(chart: Chart) -> None:
    assert "0 chart(s) failed" in chart.run("lint", "--strict", chart.folder)
