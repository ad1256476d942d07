"""What Rancher's catalog reads of the chart, and the page and the dashboard that it brings."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from fipop.settings.options import DEFAULTS, settings_data
from tests.chart.rendering import ROOT, Chart, Object

QUESTIONS = yaml.safe_load((ROOT / "questions.yaml").read_text())["questions"]
VALUES = yaml.safe_load((ROOT / "values.yaml").read_text())
KINDS = {"boolean", "enum", "int", "string"}
CAPABILITIES = {"basic install", "seamless upgrades", "full lifecycle", "deep insights", "auto pilot"}
"""What Artifact Hub takes as the capabilities of an operator."""


def all_questions() -> Iterator[Object]:
    for question in QUESTIONS:
        yield question
        yield from question.get("subquestions", ())


def at(values: Any, variable: str) -> Any:
    """The value of a variable, KeyError where there is none."""
    for part in variable.split("."):
        values = values[part]
    return values


def nested(variable: str, value: object) -> Object:
    first, _, rest = variable.partition(".")
    return {first: nested(rest, value) if rest else value}


def answers(question: Object) -> list[Any]:
    """Answers that somebody may give: both of a boolean, all of a choice."""
    match question["type"]:
        case "boolean":
            return [True, False]
        case "enum":
            # Rancher hands over what is chosen as text, or as a boolean where it looks like one.
            return [
                *question["options"],
                *(
                    {"true": True, "false": False}[each]
                    for each in question["options"]
                    if each in ("true", "false")
                ),
            ]
        case "int":
            return [question["default"], question["min"]]
        case _:
            return [question["default"]]


def test_what_is_asked_has_the_values_default_a_known_type_and_words() -> None:
    """That every answer is taken is tried on a real API server: tests/api/test_chart_install.py."""
    for question in all_questions():
        assert question["type"] in KINDS
        assert question["label"]
        assert question["description"]
        default = at(VALUES, question["variable"])
        assert str(question["default"]).lower() == str(default).lower(), question["variable"]


def test_what_only_the_first_installation_reads_says_so() -> None:
    asked = [each for each in all_questions() if each["variable"].startswith("settings.")]
    assert {each["variable"].partition(".")[2] for each in asked} <= set(settings_data(DEFAULTS))
    for each in asked:
        assert "Only the first installation reads this" in each["description"]


def test_the_annotations_are_those_that_rancher_reads(chart: Chart) -> None:
    meta = yaml.safe_load((ROOT / "Chart.yaml").read_text())
    known = {
        *("display-name", "namespace", "release-name", "scope", "type", "permits-os", "kube-version"),
        *("rancher-version", "requests-cpu", "requests-memory", "provides-gvr"),
    }
    catalog = {name for name in meta["annotations"] if name.startswith("catalog.cattle.io/")}
    # Rancher's tool for partner charts adds "certified".
    assert {name.partition("/")[2] for name in catalog} == known
    assert meta["annotations"]["catalog.cattle.io/scope"] == "management"
    assert {"networking", "infrastructure"} <= set(meta["keywords"])
    for name in (meta["icon"].removeprefix("file://"), "app-readme.md", "questions.yaml", "LICENSE"):
        assert (ROOT / name).read_bytes().strip()
    replicas = VALUES["replicas"]
    requests = chart.render().container["resources"]["requests"]
    asked = int(requests["cpu"].removesuffix("m")) * replicas
    assert meta["annotations"]["catalog.cattle.io/requests-cpu"] == f"{asked}m"
    memory = int(requests["memory"].removesuffix("Mi")) * replicas
    assert meta["annotations"]["catalog.cattle.io/requests-memory"] == f"{memory}Mi"


def test_artifact_hub_can_read_its_annotations() -> None:
    meta = yaml.safe_load((ROOT / "Chart.yaml").read_text())
    prefix = "artifacthub.io/"
    own = {
        name.removeprefix(prefix): value
        for name, value in meta["annotations"].items()
        if name.startswith(prefix)
    }
    assert all(isinstance(value, str) for value in own.values())
    assert own.keys() <= {
        *(
            "category",
            "changes",
            "containsSecurityUpdates",
            "crds",
            "crdsExamples",
            "images",
            "license",
            "links",
        ),
        *("operator", "operatorCapabilities", "prerelease"),
    }
    assert own["category"] == "networking"
    assert own["operatorCapabilities"].lower() in CAPABILITIES
    assert {own["operator"], own["containsSecurityUpdates"]} <= {"true", "false"}
    assert all(isinstance(each, str) for each in yaml.safe_load(own["changes"]))
    kinds = {(each["kind"], each["version"]) for each in yaml.safe_load(own["crds"])}
    examples = yaml.safe_load(own["crdsExamples"])
    assert {(each["kind"], each["apiVersion"].partition("/")[2]) for each in examples} <= kinds


@pytest.mark.parametrize("secrets", [["shared"], [{"name": "shared"}]])
def test_images_come_from_ranchers_registry_with_its_secrets(chart: Chart, secrets: list[Any]) -> None:
    values = {
        "global": {"cattle": {"systemDefaultRegistry": "registry.example:5000"}, "imagePullSecrets": secrets},
        "imagePullSecrets": [{"name": "own"}],
        "web": {"enabled": True},
    }
    for deployment in chart.render(values).of_kind("Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        assert pod["containers"][0]["image"].startswith("registry.example:5000/fipop:")
        assert pod["imagePullSecrets"] == [{"name": "own"}, {"name": "shared"}]
    assert "imagePullSecrets" not in chart.render().pod["spec"]


# The dashboard


def dashboard() -> Object:
    found: Object = json.loads((ROOT / "files" / "dashboard.json").read_text())
    return found


def expressions() -> list[str]:
    return [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]


def test_the_dashboard_is_installed_as_it_is(chart: Chart) -> None:
    found = chart.render({"dashboard": {"enabled": True}}).only("ConfigMap", "fipop-dashboard")
    assert json.loads(found["data"]["fipop.json"]) == dashboard()


def test_the_dashboard_has_what_grafanas_schema_asks_for() -> None:
    """As far as it can be had: what the schema of a dashboard (schemaVersion 39) requires of these kinds of panels."""
    found = dashboard()
    assert found["schemaVersion"] == 39
    assert {"title", "uid", "panels", "templating", "time", "annotations"} <= set(found)
    assert len(found["uid"]) <= 40
    ids = [panel["id"] for panel in found["panels"]]
    assert len(set(ids)) == len(ids)
    used: set[tuple[int, int]] = set()
    for panel in found["panels"]:
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & used, f"{panel['title']} lies over another panel"
        used |= cells
        assert panel["type"] in {"row", "timeseries", "stat", "bargauge"}
        if panel["type"] == "row":
            assert panel["panels"] == []
            continue
        assert panel["fieldConfig"]["overrides"] == []
        assert {"defaults"} <= set(panel["fieldConfig"])
        assert [target["refId"] for target in panel["targets"]] == [
            chr(65 + n) for n in range(len(panel["targets"]))
        ]
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])


def test_the_dashboard_asks_for_metrics_of_the_page_and_makes_replicas_one() -> None:
    known = set(
        re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "reference" / "metrics.md").read_text(), re.MULTILINE)
    )
    for expression in expressions():
        named = set(re.findall(r"\b(?:fipop|kubefipoperator)_\w+", expression))
        assert {name.removesuffix("_bucket").removesuffix("_count") for name in named} <= known, expression
        assert re.search(r"\b(max|sum)\b|fipop:", expression), expression


def test_panels_of_addresses_show_each_family_apart() -> None:
    """A /64 on the same axis would hide every IPv4 address."""
    for expression in expressions():
        if re.search(r"fipop_(range_addresses|service_pool_\w+)|fipop:network_addresses", expression):
            assert re.search(r'family="IPv[46]"|\(range, family\)', expression), expression


def test_the_recorded_series_of_the_dashboard_are_those_of_the_rules() -> None:
    recorded = set(re.findall(r"- record: (\S+)", (ROOT / "files" / "alerts.yaml").read_text()))
    used = {name for expression in expressions() for name in re.findall(r"fipop:[\w:]+", expression)}
    assert used
    assert used <= recorded
