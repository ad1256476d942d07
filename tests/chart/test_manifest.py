"""`make manifest`: one file for kubectl apply."""

import subprocess
from pathlib import Path

import yaml

from tests.chart.rendering import ROOT, Chart

SCRIPT = ROOT / "scripts" / "manifest.sh"


def test_the_manifest_holds_the_namespace_the_crds_and_all_that_the_chart_renders(
    chart: Chart, tmp_path: Path
) -> None:
    file = tmp_path / "new" / "fipop.yaml"
    subprocess.run([SCRIPT, chart.helm, chart.folder, file], check=True, timeout=60, cwd=tmp_path)
    objects = [obj for obj in yaml.safe_load_all(file.read_text()) if obj]
    assert (objects[0]["kind"], objects[0]["metadata"]["name"]) == ("Namespace", "kube-fip")
    crds = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "crds").iterdir())]
    assert objects[1:4] == crds
    assert objects[4:] == chart.render()


def test_a_helm_that_fails_leaves_the_manifest_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "fipop.yaml"
    file.write_text("as it was")
    done = subprocess.run([SCRIPT, "/bin/false", tmp_path, file], check=False, timeout=60)
    assert done.returncode != 0
    assert [path.name for path in tmp_path.iterdir()] == ["fipop.yaml"]
    assert file.read_text() == "as it was"
