"""Plain scalars of chart values: fipop reads them as helm does, or refuses them with their line."""

import json
from pathlib import Path
from typing import Any

from fipop.settings.yaml import RefusedError, parse_yaml_mapping
from tests.chart.rendering import Chart

READ = (
    *("1e3", "1E3", "1.5e-7", "1.10", "010", "-010", "00", "0", "-0", "+7", "-1", "0x1F", "0b11", "1_000"),
    *("1_0.5", "08", "09.5", "1.", ".5", "-.5e3", "1.e3", "1e21", "9007199254740993", "18446744073709551616"),
    *("12:30:45", "1:30", "2024-01-01", "2024-01-01T00:00:00Z", "1.2.3", "v1.2.3", "10.0.0.1", "100Mi", "1e"),
    *("yes", "Yes", "no", "on", "OFF", "true", "TRUE", "tRue", "null", "~", "NULL", "=", "'1'", '"y"', "_1"),
    *("0xG", "0x1p3", "._5", "nan", "infinity", "0123abc", "!!str 1"),
    *("190:20:30.15", "1__0e", "10.0.0.0/8", "fd00::1", "a-b", "0.0.7", "123456789012", "0b101"),
)
"""As helm reads them."""
REFUSED = ("y", "Y", "n", "N", "0o17", "0X1F", "0_7", "0b12", "1e400", ".inf", "-.Inf", ".nan", "<<", "0x_1F")
"""Readers of YAML differ about them, or JSON has no such number."""


def test_plain_scalars_are_read_as_helm_reads_them(chart: Chart, tmp_path: Path) -> None:
    folder = tmp_path / "scalars"
    (folder / "templates").mkdir(parents=True)
    folder.joinpath("Chart.yaml").write_text("apiVersion: v2\nname: scalars\nversion: 0.1.0\n")
    template = "{{ range .Values.scalars }}\n# {{ toJson . }}{{ end }}\nkind: ConfigMap\n"
    folder.joinpath("templates/all.yaml").write_text(template)
    text = "scalars:\n" + "".join(f"- {each}\n" for each in READ)
    values = tmp_path / "values.yaml"
    values.write_text(text)

    rendered = chart.run("template", "scalars", folder, "--values", values)

    lines = [line.removeprefix("# ") for line in rendered.splitlines() if line.startswith("# ")]
    of_helm = [json.loads(line) for line in lines if not line.startswith("Source:")]
    ours = parse_yaml_mapping(text)["scalars"]
    assert isinstance(ours, list)
    found = dict(zip(READ, zip(ours, of_helm, strict=True), strict=True))
    assert {scalar: pair for scalar, pair in found.items() if not is_same(*pair)} == {}


def is_same(ours: object, of_helm: Any) -> bool:
    """Whether two values are the same; to helm, every number is a float."""
    if isinstance(ours, (int, float)) and not isinstance(ours, bool):
        return not isinstance(of_helm, bool) and float(ours) == float(of_helm)
    return type(ours) is type(of_helm) and ours == of_helm


def test_what_readers_of_yaml_differ_about_is_refused_with_its_line() -> None:
    found = {}
    for each in REFUSED:
        try:
            found[each] = str(parse_yaml_mapping(f"a: 1\nb: {each}\n"))
        except RefusedError as error:
            found[each] = str(error)
    assert {each: reason for each, reason in found.items() if "line 2" not in reason} == {}
