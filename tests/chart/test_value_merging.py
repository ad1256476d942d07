"""Overrides are merged as real helm merges values files."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from fipop.settings.overrides import merge_values
from tests.chart.rendering import Chart

CASES = 240
KEYS = ("a", "b", "c", "image")
TOP_LEVEL = 3


def build_value(chance: random.Random, depth: int) -> Any:
    kind = chance.randrange(9) if depth else chance.randrange(4, 9)
    if kind < 4:
        return build_mapping(chance, depth - 1)
    leaves = (
        None,
        chance.randrange(3),
        chance.choice(["", "x", "null"]),
        chance.random() < 0.5,
        [{"a": 1}, None],
    )
    return leaves[kind - 4]


def build_mapping(chance: random.Random, depth: int) -> dict[str, Any]:
    return {key: build_value(chance, depth) for key in KEYS if chance.random() < 0.7}


@pytest.fixture
def empty_chart(helm: Path, tmp_path: Path) -> Chart:
    """A chart that shows its values."""
    folder = tmp_path / "shown"
    (folder / "templates").mkdir(parents=True)
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: shown\nversion: 0.1.0\n")
    (folder / "templates" / "values.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {values: {{ .Values | toJson | quote }}}\n"
    )
    return Chart(helm=helm, folder=folder, home=tmp_path)


def show(chart: Chart, tmp_path: Path, *files: dict[str, Any]) -> dict[str, Any]:
    """Return the values that templates get."""
    arguments: list[str | Path] = []
    for number, each in enumerate(files):
        path = tmp_path / f"values-{number}.json"
        path.write_text(json.dumps(each))
        arguments += ["--values", path]
    rendered = yaml.safe_load(chart.run("template", "x", chart.folder, *arguments))
    shown: dict[str, Any] = json.loads(rendered["data"]["values"])
    return shown


def test_values_are_merged_as_helm_merges_files(empty_chart: Chart, tmp_path: Path) -> None:
    chance = random.Random(1)
    defaults, below, above = (
        {f"case{number}": build_mapping(chance, 3) for number in range(CASES)} for _ in range(3)
    )
    (empty_chart.folder / "values.yaml").write_text(json.dumps(defaults))
    expected = show(empty_chart, tmp_path, below, above)
    found = show(empty_chart, tmp_path, merge_values(below, above))
    assert len(expected) == CASES
    assert [case for case in expected if expected[case] != found[case]] == []


@pytest.mark.parametrize("seed", range(TOP_LEVEL))
def test_keys_of_the_top_level_are_merged_as_helm_does(seed: int, empty_chart: Chart, tmp_path: Path) -> None:
    chance = random.Random(seed)
    defaults, *files = (build_mapping(chance, 2) for _ in range(4))
    (empty_chart.folder / "values.yaml").write_text(json.dumps(defaults))
    merged: dict[str, Any] = {}
    for each in files:
        merged = merge_values(merged, each)
    assert show(empty_chart, tmp_path, *files) == show(empty_chart, tmp_path, merged)
