"""Scalars in chart values mean to fipop what they mean to helm, or are refused with their line."""

import json
from pathlib import Path

import pytest
import yaml

from fipop.settings.options import DEFAULTS, parse_settings
from localfleet.assets import ensure
from localfleet.helm import Helm

SCALARS = (
    "~", "null", "NULL", "true", "True", "false", "yes", "Yes", "no", "NO", "on", "off", "Off",
    "0", "-1", "+1", "010", "0b101", "0x1F", "1_000", "123456789012", "1.10", "-.5", "1.", "1e3", "1E3", "1.5e-3",
    "2024-01-01", "2024-01-01T10:00:00Z", "1:30", "12:30:45", "190:20:30.15",
    "v1.2.3", "1.2.3.4", "=", "0.0.7", "'1'", '"true"', "!!str 1", "10.0.0.0/8", "fd00::1", "a-b", "08", "1__0e",
)  # fmt: skip
UNCLEAR = ("y", "N", "0o17", "0b", ".inf", "-.nan", "0x_1F", "1e400")
CHART = {
    "Chart.yaml": "apiVersion: v2\nname: shown\nversion: 1.0.0\n",
    "templates/shown.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: shown\n"
    "data:\n  values: {{ toJson .Values | quote }}\n",
}


def read(text: str) -> object:
    """Return the values that fipop reads in an option; else why it refuses them."""
    settings, bad = parse_settings({"kubevipChartValues": text}, DEFAULTS)
    return bad[0].reason if bad else settings.kubevip_chart_values.values


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    for name, text in CHART.items():
        path = tmp_path / "shown" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "shown"


async def test_forty_scalars_are_read_as_helm_reads_them(chart: Path, tmp_path: Path) -> None:
    text = "".join(f"s{number}: {scalar}\n" for number, scalar in enumerate(SCALARS))
    values = tmp_path / "values.yaml"
    values.write_text(text)
    helm = Helm(program=ensure("helm"), home=tmp_path / "home")
    rendered = yaml.safe_load(await helm.run("template", chart, "--values", values))
    helms, ours = json.loads(rendered["data"]["values"]), read(text)
    assert isinstance(ours, dict)
    # helm leaves out a key of the values whose value is null.
    shown = {name: value for name, value in ours.items() if value is not None}
    assert {name: (type(value) is bool, value) for name, value in shown.items()} == {
        name: (type(value) is bool, value) for name, value in helms.items() if value is not None
    }


@pytest.mark.parametrize("scalar", UNCLEAR)
def test_what_readers_differ_about_is_refused_with_its_line(scalar: str) -> None:
    assert read(f"a: 1\nb: {scalar}\n") == (
        "must have a quoted scalar in line 2: readers of YAML differ about it"
    )
