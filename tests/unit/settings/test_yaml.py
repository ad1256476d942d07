"""YAML of strangers: read as helm reads it, refused in bounded time."""

import contextlib
import json
import traceback

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fipop.settings.yaml import (
    MAX_YAML_BYTES,
    MAX_YAML_DEPTH,
    RefusedError,
    parse_yaml,
    parse_yaml_mapping,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("1e3", 1000.0),
        ("2024-01-01", "2024-01-01"),
        ("{8080: web, true: x, 1.5: z}", {"8080": "web", "true": "x", "1.5": "z"}),
        ("a:\nb: [1, {c: ~}]", {"a": None, "b": [1, {"c": None}]}),
        ("!!str 1", "1"),
        ("{a: 1, <<: {a: 2, b: 3}}", {"a": 1, "b": 3}),
        ("[{a: 1}, {a: 2}]", [{"a": 1}, {"a": 2}]),
    ],
)
def test_yaml_means_what_helm_takes_it_for(text: str, value: object) -> None:
    """tests/chart has its scalars, beside real helm."""
    parsed = parse_yaml(text)

    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a: &x 1\nb: *x", ""),
        ("[" * (MAX_YAML_DEPTH + 1) + "]" * (MAX_YAML_DEPTH + 1), ""),
        ("x" * (MAX_YAML_BYTES + 1), ""),
        ("é" * (MAX_YAML_BYTES // 2 + 1), ""),
        ("!!python/object/apply:os.system [true]", ""),
        ("!!binary aGVsbG8=", ""),
        ("!!set {a, b}", ""),
        (".nan", ""),
        ("[-.inf]", ""),
        ("{~: a}", ""),
        ("a: 1\n---\nb: 2", ""),
        ("a: 1\nb: 2\na: 1", "must not have a key twice: line 3 repeats that of line 1"),
        ("a:\n- {b: 1, c: {d: 1,\n  'd': 2}}", "line 3 repeats that of line 2"),
        ("{1: a, '1': b}", "a key twice"),
        ("{yes: a, true: b}", "a key twice"),
        ("a: b: c", "line 1, column 5"),
        ("a:\n  b: 1\n\tc: 2", "line 3, column 1): the line is indented with a tab, use spaces"),
        ("a: 1\nb: y", "line 2"),
        ("a: 1\n0o17: b", "line 2"),
        ("a:\n- 1e400", "line 2"),
        ("\x00", ""),
        ("\ud800", ""),
        ("9" * 5000, ""),
    ],
)  # fmt: skip
def test_what_json_or_we_do_not_take_is_refused_with_a_reason(text: str, named: str) -> None:
    with pytest.raises(RefusedError) as refused:
        parse_yaml(text)

    assert named in str(refused.value)
    assert 0 < len(str(refused.value)) < 80


TAGS = (
    "!",
    "!own",
    "!!bool",
    "!!int",
    "!!float",
    "!!timestamp",
    "!!null",
    "!!map",
    "!!seq",
    "!!binary",
    "!!omap",
)


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("value", ["Hidden", "''", "[Hidden]", "{a: Hidden}"])
def test_an_explicit_tag_is_refused_and_nothing_of_the_text_is_told(tag: str, value: str) -> None:
    with pytest.raises(RefusedError) as refused:
        parse_yaml(f"token: {tag} {value}")

    assert "hidden" not in "".join(traceback.format_exception(refused.value)).lower()


@pytest.mark.parametrize("text", ["token: 0b_", "{0b_: x}", "token: " + "7" * 5000])
def test_what_python_says_of_a_value_is_not_told(text: str) -> None:
    with pytest.raises(RefusedError) as refused:
        parse_yaml(text)

    assert "ValueError" not in "".join(traceback.format_exception(refused.value))


@given(st.sampled_from([*TAGS, "!!str"]), st.text(alphabet="[]{}:,-'\"# \n01~axe._", max_size=30))
def test_tagged_garbage_is_a_value_or_a_refusal(tag: str, text: str) -> None:
    with contextlib.suppress(RefusedError):
        json.dumps(parse_yaml(f"a: {tag} {text}"), allow_nan=False)


def test_the_deepest_nesting_allowed_is_taken() -> None:
    assert json.dumps(parse_yaml("[" * MAX_YAML_DEPTH + "]" * MAX_YAML_DEPTH)).count("[") == MAX_YAML_DEPTH


def test_a_mapping_is_asked_for_by_name() -> None:
    assert parse_yaml_mapping("") == {}
    assert parse_yaml_mapping("a: 1") == {"a": 1}
    for text in ("[]", "text", "1"):
        with pytest.raises(RefusedError):
            parse_yaml_mapping(text)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


class PlainDumper(yaml.SafeDumper):
    """Quotes every text (to YAML 1.1 `1e3` is one without), and repeats what would be an alias."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


PlainDumper.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
)


@given(JSON_VALUES)
def test_any_json_value_comes_back_as_it_was_written(value: object) -> None:
    text = yaml.dump(value, Dumper=PlainDumper, allow_unicode=True)

    assert parse_yaml(text) == value


@given(st.lists(st.sampled_from(["hunter2", *"[]{}:,-?&*!|>'\"#% \n\t@<=\\"]), max_size=40).map("".join))
def test_no_refusal_quotes_the_text(text: str) -> None:
    said = ""
    try:
        parse_yaml(text)
    except RefusedError as error:
        said = str(error)
    assert "hunter2" not in said


@given(st.text(max_size=300) | st.text(alphabet="[]{}:,-?&*!|>'\"#% \n\tab01~<=", max_size=300))
def test_garbage_is_a_value_or_a_refusal(text: str) -> None:
    with contextlib.suppress(RefusedError):
        json.dumps(parse_yaml(text), allow_nan=False)
