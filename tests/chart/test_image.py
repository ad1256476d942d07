"""The Dockerfile, as far as it can be judged without building it."""

import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path
from string import Template

import yaml

from localfleet.recipes import build_catalogue, parse_go_mod
from tests.chart.rendering import ROOT, Chart

DOCKERFILE = (ROOT / "Dockerfile").read_text()


def copied() -> list[str]:
    """What the Dockerfile copies from the repository."""
    lines = re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
    return [source.rstrip("/") for line in lines for source in line.split()[:-1]]


def test_every_base_image_is_a_build_argument() -> None:
    stages = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert stages == ["${GO_IMAGE}", "${PYTHON_IMAGE}", "${RUNTIME_IMAGE}"]


def test_helm_is_built_like_the_one_of_the_tests() -> None:
    recipe = build_catalogue().go["helm"]
    assert f"localfleet/modules/{recipe.module}" in copied()
    assert recipe.package in DOCKERFILE
    for stamp in recipe.stamps:
        assert f"-X {stamp.format(version='${version}')}" in DOCKERFILE


def test_the_go_image_is_new_enough_for_helm() -> None:
    module = parse_go_mod((ROOT / "localfleet/modules/helm/go.mod").read_text())
    found = re.search(r"GO_IMAGE=golang:(\d+)\.(\d+)", DOCKERFILE)
    assert found
    assert tuple(map(int, found.groups())) >= module.lowest_go[:2]


def test_what_is_copied_exists_and_is_sent_to_the_builder() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    sent = [line.removeprefix("!") for line in lines if line.startswith("!")]
    assert lines[1] == "*"
    for source in copied():
        assert (ROOT / source).exists()
        assert any(fnmatch(source, pattern) for pattern in sent), source


def test_the_image_runs_as_the_user_of_the_pod_and_has_the_crds_where_the_pod_looks(chart: Chart) -> None:
    container = chart.render()
    user = container.pod["spec"]["securityContext"]
    assert f"USER {user['runAsUser']}:{user['runAsGroup']}" in DOCKERFILE
    (crds,) = (arg.removeprefix("--crds=") for arg in container.container["args"] if arg.startswith("--crds"))
    assert f"COPY crds/ {crds}/" in DOCKERFILE


def test_the_image_has_the_version_of_the_chart_and_of_the_package() -> None:
    chart = yaml.safe_load((ROOT / "Chart.yaml").read_text())
    project = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert project
    assert chart["appVersion"] == project[1]


def test_the_image_is_labelled_with_its_version_commit_license_and_repository(tmp_path: Path) -> None:
    builder = tmp_path / "builder"
    builder.write_text('#!/bin/sh\n[ "$1" = info ] || printf "%s\\n" "$@"\n')
    builder.chmod(0o755)
    env = {"PATH": "/usr/bin:/bin", "BUILDER": str(builder)}
    env |= {"SOURCE": "https://forge.example/fipop", "REVISION": "0123abcd"}
    script = [str(ROOT / "scripts" / "image.sh"), "build"]
    done = subprocess.run(script, env=env, capture_output=True, text=True, check=True)
    given = re.findall(r"^--build-arg\n(\w+)=(.*)$", done.stdout, re.MULTILINE)
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="(.*)"', DOCKERFILE))
    chart = yaml.safe_load((ROOT / "Chart.yaml").read_text())
    assert {name: Template(text).substitute(dict(given)) for name, text in labels.items()} == {
        "title": "fipop",
        "description": chart["description"],
        "licenses": chart["annotations"]["artifacthub.io/license"],
        "version": chart["appVersion"],
        "revision": "0123abcd",
        "source": "https://forge.example/fipop",
    }


def test_the_documented_container_finds_the_kubeconfig_of_whoever_runs_it() -> None:
    page = (ROOT / "docs" / "how-to" / "install.md").read_text()
    [command] = re.findall(r"^\s*\$ (docker run .+)$", page, re.MULTILINE)
    home = re.search(r"^ENV .*\bHOME=(\S+)", DOCKERFILE, re.MULTILINE)
    assert home
    assert f"-v ~/.kube:{home[1]}/.kube:ro" in command
    assert '-u "$(id -u)"' in command, "the file of its user alone may be read by nobody else"
