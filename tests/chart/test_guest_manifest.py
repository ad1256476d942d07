"""The manifest of the cloud provider for one cluster, and what `make manifest-guest` makes of it."""

import subprocess
from pathlib import Path

import yaml

from localfleet.client import Json
from tests.chart.rendering import ROOT

EXAMPLE = ROOT / "examples" / "guest-cloud-provider.yaml"


def read(path: Path) -> dict[str, Json]:
    return {each["kind"]: each for each in yaml.safe_load_all(path.read_text())}


def render(folder: Path, image: str) -> subprocess.CompletedProcess[str]:
    argv = [ROOT / "scripts" / "manifest-guest.sh", folder / "out.yaml", image]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_the_image_is_put_in_and_nothing_else(tmp_path: Path) -> None:
    assert render(tmp_path, "registry.example:5000/platform/fipop@sha256:abc").returncode == 0
    made, example = read(tmp_path / "out.yaml"), read(EXAMPLE)
    container = made["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "registry.example:5000/platform/fipop@sha256:abc"
    container["image"] = example["Deployment"]["spec"]["template"]["spec"]["containers"][0]["image"]
    assert made == example


def test_what_is_no_name_of_an_image_is_refused(tmp_path: Path) -> None:
    for image in ("", "a b", "x|y", "x\nkind: Secret"):
        done = render(tmp_path, image)
        assert (done.returncode, (tmp_path / "out.yaml").exists()) == (2, False)
        assert "is no name of an image" in done.stderr


def test_the_program_is_where_the_manifest_and_the_chart_look_for_it() -> None:
    container = read(EXAMPLE)["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    (program,) = container["command"]
    assert f"RUN ln -s /opt/fipop/bin{program} {program}\n" in (ROOT / "Dockerfile").read_text()


def test_nothing_is_allowed_by_a_star() -> None:
    for kind in ("ClusterRole", "Role"):
        for rule in read(EXAMPLE)[kind]["rules"]:
            assert "*" not in (*rule["verbs"], *rule["resources"], *rule["apiGroups"])
