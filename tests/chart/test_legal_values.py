"""What the schema of the values takes, the templates take too, and it takes effect."""

import copy
import functools
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from fipop.settings.options import DEFAULTS, parse_settings
from tests.chart.legal_values import SCHEMA, TURNS, VALIDATOR, Turn, merged, put, turns, variables
from tests.chart.rendering import Chart, Object, Rendered
from tests.chart.test_access import EVERYTHING_ON


def parts(value: Any) -> Iterator[Any]:
    """Iterate over a value and all that is in it."""
    yield value
    if isinstance(value, dict):
        for key, each in value.items():
            if not isinstance(each, dict | list):
                yield key, each
            yield from parts(each)
    elif isinstance(value, list):
        for each in value:
            yield from parts(each)


def has_effect(value: Any, shown: list[Any]) -> bool:
    """Whether a value is somewhere among those shown: a text as a text, maybe with others around it."""
    match value:
        case bool():
            return True
        case dict():
            return all(has_effect(each, shown) or each in shown for each in value.items())
        case list():
            return all(has_effect(each, shown) for each in value)
        case str():
            return any(isinstance(each, str) and value in each for each in shown)
        case int():
            return value in shown or any(isinstance(each, str) and str(value) in each for each in shown)
    return False


@functools.cache
def all_turns() -> list[Turn]:
    return turns()


@pytest.mark.parametrize("number", range(TURNS))
def test_texts_that_look_like_something_else_take_effect_as_texts(chart: Chart, number: int) -> None:
    turn = all_turns()[number]
    assert list(VALIDATOR.iter_errors(merged(turn.values))) == []
    rendered = chart.render(with_everything_on(turn.values), release=turn.release, namespace=turn.namespace)
    shown = [*parts(list(rendered))]
    without_effect = [
        variable
        for variable, value in turn.given.items()
        if not variable.endswith(("enabled", "navLink", "ChartValues", "Overrides"))
        and not has_effect(value, shown)
    ]
    assert without_effect == []
    settings, bad = parse_settings(data_of(rendered), DEFAULTS)
    assert bad == ()
    given = turn.values["settings"]["kubevipChartValues"]
    wanted = yaml.safe_load(given) if isinstance(given, str) else given
    assert wanted.items() <= dict(settings.kubevip_chart_values.values).items()
    assert {each["metadata"].get("namespace") for each in rendered} >= {turn.namespace}


def test_what_is_not_required_can_be_null(chart: Chart) -> None:
    nothing: Object = copy.deepcopy(EVERYTHING_ON)
    for variable, _ in variables():
        without = remove(merged(nothing), variable)
        if VALIDATOR.is_valid(without) and not variable.endswith(("enabled", "navLink")):
            put(nothing, variable, None)
    for name in SCHEMA["properties"]:
        if name not in nothing and name not in SCHEMA["required"]:
            nothing[name] = None
    rendered = chart.render(nothing)
    assert "<nil>" not in str(rendered)
    assert "null" not in data_of(rendered).values()
    assert parse_settings(data_of(rendered), DEFAULTS) == (DEFAULTS, ())
    for each in rendered.of_kind("Deployment"):
        assert each["spec"]["template"]["spec"]["containers"]
    assert rendered.only("ConfigMap", "fipop-dashboard")["metadata"]["labels"]


def with_everything_on(values: Object) -> Object:
    return merged(EVERYTHING_ON, values)


def remove(values: Object, variable: str) -> Object:
    *parents, name = variable.split(".")
    place = values
    for parent in parents:
        place = place.get(parent) or {}
    place.pop(name, None)
    return values


def data_of(rendered: Rendered) -> dict[str, str]:
    (data,) = (
        each["data"] or {}
        for each in rendered.of_kind("ConfigMap")
        if each["metadata"]["name"].endswith("-settings-defaults")
    )
    return dict(data)
